"""Recording runs with OpenTelemetry: run > agent > action > model call > token.

The spans follow the conventions for generative AI (see ``names``), so that a backend draws a run as a
workflow, its agents as agents and its model calls as chats. A span that ends takes with it whatever is still
open below it, so that a trace is a whole tree however its run ended.
"""

from __future__ import annotations

import asyncio
import atexit
import json
import threading
from collections.abc import Sequence
from typing import Any

from opentelemetry.sdk.trace import Span
from opentelemetry.trace import SpanKind

from agentrt.errors import AgentrtError
from agentrt.trace import names
from agentrt.trace.finished import FinishedTrace, TraceCollector
from agentrt.trace.outbox import Outbox
from agentrt.trace.recorder import (
    CANCELLED,
    NOT_FAILED,
    Attributes,
    Clock,
    OpenSpan,
    Recorder,
    error_type,
    is_cancellation,
)
from agentrt.trace.redact import redact, redact_host, valid_unicode
from agentrt.trace.tokens import TokenLog

CLOSE_TIMEOUT_S = 3.0
"""Longest wait of ``close`` for each outbox: a collector that is down must not hold up the end of a
command."""


class OtelTracing:
    """Records runs as spans and hands each finished trace to every outbox.

    ``content`` says whether prompts and answers are recorded.
    """

    def __init__(
        self,
        outboxes: Sequence[Outbox],
        *,
        content: bool = False,
        clock: Clock | None = None,
        close_timeout_s: float = CLOSE_TIMEOUT_S,
    ) -> None:
        self._outboxes = tuple(outboxes)
        self._close_timeout_s = close_timeout_s
        collector = TraceCollector(self._deliver)
        self._recorder = Recorder(collector, content=content, clock=Clock() if clock is None else clock)
        atexit.register(self.close)

    def start_run(self, *, run_id: str, dag: str, deadline_s: float | None, slo_p99_s: float | None) -> OtelRunSpan:
        dag = valid_unicode(dag)
        attributes: Attributes = {
            names.OPERATION: names.INVOKE_WORKFLOW,
            names.AGENT_NAME: dag,
            names.WORKFLOW_NAME: dag,
            names.RUN_ID: valid_unicode(run_id),
            names.DAG: dag,
            names.DEADLINE_S: deadline_s,
            names.SLO_P99_S: slo_p99_s,
        }
        return OtelRunSpan(self._recorder, self._recorder.open(f"{names.INVOKE_WORKFLOW} {dag}", None, attributes))

    def close(self) -> None:
        atexit.unregister(self.close)
        for outbox in self._outboxes:
            outbox.close(self._close_timeout_s)

    def _deliver(self, trace: FinishedTrace) -> None:
        for outbox in self._outboxes:
            outbox.put(trace)


class OtelRunSpan:
    """A run's span, and the spans of the agents that act in it.

    The run of a Dag inside an action has no span of its own: it shares that of the action, which ends it.
    """

    def __init__(self, recorder: Recorder, open_span: OpenSpan, *, is_inner: bool = False) -> None:
        self._recorder = recorder
        self._open = open_span
        self._is_inner = is_inner
        self._lock = threading.Lock()
        self._agents: dict[str, _Agent] = {}
        self._actions: list[OtelActionSpan] = []

    @property
    def trace_id(self) -> str | None:
        return f"{self._open.span.get_span_context().trace_id:032x}"

    def action(self, *, name: str, action_type: str, agent: str | None, tool: str | None) -> OtelActionSpan:
        with self._lock:
            actor = None if agent is None else self._agents.get(agent)
            if agent is not None and actor is None:
                actor = self._agents[agent] = _Agent(self._recorder, self._open.span, valid_unicode(agent))
            parent = self._open.span if actor is None else actor.open.span
            action = OtelActionSpan(self._recorder, parent, actor, valid_unicode(name), action_type, tool)
            self._actions.append(action)
        return action

    def end(self, *, status: str, error: BaseException | None = None) -> None:
        """End what is still open below (its run is over, so it was cancelled), then the run's own span."""
        if self._open.has_ended:
            return
        for action in self._actions:
            action.end(status=CANCELLED, reason="the run ended first")
        for agent in self._agents.values():
            agent.end()
        if not self._is_inner:
            self._open.end(status, error)


class OtelActionSpan:
    def __init__(
        self,
        recorder: Recorder,
        parent: Span,
        agent: _Agent | None,
        name: str,
        action_type: str,
        tool: str | None,
    ) -> None:
        self._recorder = recorder
        self._agent = agent
        self._calls: list[OtelModelCallSpan] = []
        self._inner_runs: list[OtelRunSpan] = []
        self._num_failed_attempts = 0
        self._open = recorder.open(
            f"action {name}",
            parent,
            {
                names.ACTION_NAME: name,
                names.ACTION_TYPE: action_type,
                names.AGENT_NAME: agent.name if agent is not None else None,
                names.OPERATION: names.EXECUTE_TOOL if tool is not None else None,
                names.TOOL_NAME: valid_unicode(tool) if tool is not None else None,
                names.TOOL_TYPE: "function" if tool is not None else None,
            },
        )

    def inner_run(self) -> OtelRunSpan:
        run = OtelRunSpan(self._recorder, self._open, is_inner=True)
        self._inner_runs.append(run)
        return run

    def model_call(
        self,
        *,
        model: str,
        provider: str,
        max_tokens: int,
        temperature: float,
        prompt: str | None = None,
    ) -> OtelModelCallSpan:
        model = redact(model)
        attributes: Attributes = {
            names.OPERATION: names.CHAT,
            names.PROVIDER: redact_host(provider),
            names.REQUEST_MODEL: model,
            names.REQUEST_MAX_TOKENS: max_tokens,
            names.REQUEST_TEMPERATURE: temperature,
            names.REQUEST_STREAM: True,
            names.INPUT_MESSAGES: (
                _messages("user", prompt) if prompt is not None and self._recorder.content else None
            ),
        }
        call = OtelModelCallSpan(self._recorder, self._open.span, f"{names.CHAT} {model}", attributes)
        self._calls.append(call)
        return call

    def attempt_failed(self, attempt: int, error: AgentrtError, wait_s: float) -> None:
        if self._open.has_ended:
            return
        self._num_failed_attempts += 1
        self._open.span.add_event(
            names.ATTEMPT_FAILED_EVENT,
            {
                names.ATTEMPT: attempt,
                names.EXCEPTION_TYPE: error_type(error),
                names.EXCEPTION_MESSAGE: redact(str(error)),
                names.RETRY_WAIT_S: wait_s,
            },
            timestamp=self._open.now_ns(),
        )

    def end(self, *, status: str, error: BaseException | None = None, reason: str | None = None) -> None:
        if self._open.has_ended:
            return
        for call in self._calls:
            call.end(error=asyncio.CancelledError())
        for run in self._inner_runs:
            run.end(status=CANCELLED)
        self._open.end(
            status,
            error,
            {
                names.ACTION_DURATION_MS: self._open.elapsed_ns() / 1e6,
                names.NUM_ATTEMPTS: self._num_failed_attempts + (status != "skipped"),
                names.REASON: redact(reason) if reason is not None else None,
            },
        )
        if self._agent is not None:
            self._agent.action_ended(self._open.end_ns, status, error)


class OtelModelCallSpan:
    def __init__(self, recorder: Recorder, parent: Span, name: str, attributes: Attributes) -> None:
        self._recorder = recorder
        self._tokens = TokenLog()
        self._texts: list[str] | None = [] if recorder.content else None
        self._open = recorder.open(name, parent, attributes, kind=SpanKind.CLIENT)

    @property
    def traceparent(self) -> str | None:
        context = self._open.span.get_span_context()
        return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"

    def token(self, time_ns: int, token_id: int | None, logprob: float | None, text: str) -> None:
        tokens = self._tokens
        tokens.times_ns.append(time_ns)
        tokens.token_ids.append(token_id)
        tokens.logprobs.append(logprob)
        if self._texts is not None:
            self._texts.append(text)

    def end(
        self,
        *,
        finish_reason: str | None = None,
        num_prompt_tokens: int | None = None,
        num_completion_tokens: int | None = None,
        num_cached_tokens: int = 0,
        queue_s: float | None = None,
        prefill_s: float | None = None,
        error: BaseException | None = None,
    ) -> None:
        if self._open.has_ended:
            return
        timing = self._tokens.timing(self._open.start_ns)
        answer = "".join(self._texts) if self._texts else None
        attributes: Attributes = {
            names.FINISH_REASONS: (finish_reason,) if finish_reason is not None else None,
            names.INPUT_TOKENS: num_prompt_tokens,
            names.OUTPUT_TOKENS: len(self._tokens) if num_completion_tokens is None else num_completion_tokens,
            names.CACHED_INPUT_TOKENS: num_cached_tokens or None,
            names.TIME_TO_FIRST_CHUNK: timing.ttft_s,
            names.ITL_MEAN_S: timing.itl_mean_s,
            names.ITL_P99_S: timing.itl_p99_s,
            names.QUEUE_S: queue_s,
            names.PREFILL_S: prefill_s,
            names.OUTPUT_MESSAGES: (
                _messages("assistant", answer, finish_reason or "error") if answer is not None else None
            ),
        }
        self._recorder.collector.add_tokens(self._open.span, self._tokens)
        status = CANCELLED if is_cancellation(error) else "failed" if error is not None else "succeeded"
        self._open.end(status, error, attributes)


class _Agent:
    """An agent's span: from its first action's beginning to its last action's end."""

    def __init__(self, recorder: Recorder, run: Span, name: str) -> None:
        self.name = name
        self.open = recorder.open(
            f"{names.INVOKE_AGENT} {name}",
            run,
            {names.OPERATION: names.INVOKE_AGENT, names.AGENT_NAME: name},
        )
        self._lock = threading.Lock()
        self._end_ns = self.open.start_ns
        self._status = "succeeded"
        self._error: BaseException | None = None

    def action_ended(self, end_ns: int, status: str, error: BaseException | None) -> None:
        with self._lock:
            self._end_ns = max(self._end_ns, end_ns)
            if status not in NOT_FAILED or (status == CANCELLED and self._status == "succeeded"):
                self._status, self._error = status, error

    def end(self) -> None:
        self.open.end(self._status, self._error, end_ns=self._end_ns)


def _messages(role: str, text: str, finish_reason: str | None = None) -> str:
    message: dict[str, Any] = {
        "role": role,
        "parts": [{"type": "text", "content": valid_unicode(text)}],
    }
    if finish_reason is not None:
        message["finish_reason"] = finish_reason
    return json.dumps([message], ensure_ascii=False)
