"""Choosing how runs are recorded: into the local store, to a collector as well, or not at all."""

from __future__ import annotations

import os

from agentrt.config import RuntimeConfig
from agentrt.errors import AgentrtError
from agentrt.trace.spans import ActionSpan, ModelCallSpan, RunSpan, Tracing


def open_tracing(config: RuntimeConfig) -> Tracing:
    """Return what records the runs of one Runtime.

    Traces go into ``config.trace_db``, and to an OTLP collector when ``OTEL_EXPORTER_OTLP_ENDPOINT`` (or its
    form for traces) is set. Nothing is recorded when ``config.trace`` is off or ``OTEL_SDK_DISABLED`` is
    true. Nothing is written, opened or connected to before the first run ends.
    """
    if not config.trace or os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return NullTracing()
    # The SDK costs 150 ms to import; a process that records nothing does not pay for it.
    from agentrt.trace.otel import OtelTracing
    from agentrt.trace.otlp import OtlpSender, endpoint_from_env
    from agentrt.trace.outbox import Outbox
    from agentrt.trace.store import TraceStore

    store = TraceStore(config.trace_db)
    outboxes = [Outbox("agentrt-trace-store", lambda trace: store.write(trace.to_record()), release=store.close)]
    endpoint = endpoint_from_env()
    if endpoint is not None:
        sender = OtlpSender(endpoint)
        outboxes.append(Outbox("agentrt-trace-otlp", sender.send, stop=sender.stop))
    return OtelTracing(outboxes, content=config.trace_content)


class NullTracing:
    """Records nothing; traces have no id."""

    def start_run(self, *, run_id: str, dag: str, deadline_s: float | None, slo_p99_s: float | None) -> RunSpan:
        return _NullRunSpan()

    def close(self) -> None:
        return


class _NullRunSpan:
    trace_id: str | None = None

    def action(self, *, name: str, action_type: str, agent: str | None, tool: str | None) -> ActionSpan:
        return _NULL_ACTION

    def end(self, *, status: str, error: BaseException | None = None) -> None:
        return


class _NullActionSpan:
    def inner_run(self) -> RunSpan:
        return _NullRunSpan()

    def model_call(
        self, *, model: str, provider: str, max_tokens: int, temperature: float, prompt: str | None = None
    ) -> ModelCallSpan:
        return _NULL_CALL

    def attempt_failed(self, attempt: int, error: AgentrtError, wait_s: float) -> None:
        return

    def end(self, *, status: str, error: BaseException | None = None, reason: str | None = None) -> None:
        return


class _NullModelCallSpan:
    traceparent: str | None = None

    def token(self, time_ns: int, token_id: int | None, logprob: float | None, text: str) -> None:
        return

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
        return


_NULL_ACTION = _NullActionSpan()
_NULL_CALL = _NullModelCallSpan()
