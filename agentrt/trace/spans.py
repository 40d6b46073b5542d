"""The spans of a run, as the executor sees them: run > agent > action > model call > token.

The executor opens and ends spans through these protocols and passes parents explicitly, never through context
variables: an action may run in a task or thread that inherited another action's context. Times are wall-clock
nanoseconds (``time.time_ns``), as OpenTelemetry wants them. Recording a token must cost no more than an
append; token spans are built when the model call ends.
"""

from __future__ import annotations

from typing import Protocol

from agentrt.errors import AgentrtError


class ModelCallSpan(Protocol):
    @property
    def traceparent(self) -> str | None:
        """W3C trace context to hand to a remote endpoint; None when nothing is recorded."""
        ...

    def token(self, time_ns: int, token_id: int | None, logprob: float | None, text: str) -> None: ...

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
        """End the span; an ``error`` that is a cancellation marks it cancelled, not failed."""
        ...


class ActionSpan(Protocol):
    def inner_run(self) -> RunSpan:
        """Return what takes the actions of a Dag that this action runs: their spans stand under this one."""
        ...

    def model_call(
        self,
        *,
        model: str,
        provider: str,
        max_tokens: int,
        temperature: float,
        prompt: str | None = None,
    ) -> ModelCallSpan: ...

    def attempt_failed(self, attempt: int, error: AgentrtError, wait_s: float) -> None:
        """Note, as an event, an attempt that failed and will be followed by another."""
        ...

    def end(self, *, status: str, error: BaseException | None = None, reason: str | None = None) -> None: ...


class RunSpan(Protocol):
    @property
    def trace_id(self) -> str | None:
        """32 hex digits; None when nothing is recorded."""
        ...

    def action(self, *, name: str, action_type: str, agent: str | None, tool: str | None) -> ActionSpan:
        """Open an action's span, under its agent's span when it has an agent (opened at that agent's first
        action)."""
        ...

    def end(self, *, status: str, error: BaseException | None = None) -> None:
        """End the run's span and the agents' spans, and hand the whole trace to the store and exporters."""
        ...


class Tracing(Protocol):
    """What records runs: the real one (OpenTelemetry, SQLite, OTLP) or one that records nothing."""

    def start_run(self, *, run_id: str, dag: str, deadline_s: float | None, slo_p99_s: float | None) -> RunSpan: ...

    def close(self) -> None:
        """Flush, within a bounded time, and release everything; safe to call twice."""
        ...
