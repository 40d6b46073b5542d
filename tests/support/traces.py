"""Runs recorded by the real OtelTracing in virtual time, for tests that look at traces."""

from __future__ import annotations

from dataclasses import dataclass, field

from agentrt.trace.finished import FinishedTrace
from agentrt.trace.otel import OtelModelCallSpan, OtelTracing
from agentrt.trace.outbox import Outbox
from agentrt.trace.record import RunTraceRecord
from agentrt.trace.recorder import Clock

EPOCH_NS = 1_764_547_200_000_000_000
"""2025-12-01 00:00:00 UTC."""


@dataclass
class VirtualClock:
    """Wall and monotonic time that pass only when told."""

    now_ns: int = EPOCH_NS
    clock: Clock = field(init=False)

    def __post_init__(self) -> None:
        self.clock = Clock(lambda: self.now_ns, lambda: self.now_ns - EPOCH_NS)

    def advance(self, seconds: float) -> None:
        self.now_ns += round(seconds * 1e9)


class Recording:
    """An OtelTracing in virtual time that keeps what it delivers."""

    def __init__(self, *, content: bool = False) -> None:
        self.time = VirtualClock()
        self.finished: list[FinishedTrace] = []
        self.outbox = Outbox("test-recording", self.finished.append)
        self.tracing = OtelTracing([self.outbox], content=content, clock=self.time.clock)

    def records(self) -> list[RunTraceRecord]:
        """Close the tracing and return what it recorded."""
        self.tracing.close()
        return [trace.to_record() for trace in self.finished]

    def stream(self, call: OtelModelCallSpan, *, num_tokens: int, ttft_s: float = 0.2, itl_s: float = 0.02) -> None:
        """Deliver tokens to ``call``, the first after ``ttft_s``."""
        for step in range(num_tokens):
            self.time.advance(itl_s if step else ttft_s)
            call.token(self.time.now_ns, 1000 + step, -0.1 * (step % 5), f"w{step} ")


def record_support_run(recording: Recording, *, run_id: str = "9f3c2a1b4d5e", fails: bool = False) -> None:
    r"""Record a run of four actions.

    search ──> classify ──> draft ──> check
    """
    from agentrt.errors import ActionError, ModelConnectionError, ModelOverloadedError

    time = recording.time
    run = recording.tracing.start_run(run_id=run_id, dag="support_triage", deadline_s=10.0, slo_p99_s=4.0)
    time.advance(0.002)
    search = run.action(name="search", action_type="retrieval", agent=None, tool="search_docs")
    time.advance(0.031)
    search.end(status="succeeded")
    classify = run.action(name="classify", action_type="llm", agent="triage", tool=None)
    call = classify.model_call(
        model="smollm2-135m", provider="agentrt", max_tokens=8, temperature=0.0, prompt="Which team?"
    )
    recording.stream(call, num_tokens=4, ttft_s=0.42, itl_s=0.018)
    call.end(finish_reason="choice", num_prompt_tokens=212, queue_s=0.011, prefill_s=0.4, num_cached_tokens=96)
    classify.end(status="succeeded")
    draft = run.action(name="draft", action_type="llm", agent="writer", tool=None)
    call = draft.model_call(model="smollm2-135m", provider="agentrt", max_tokens=128, temperature=0.2)
    time.advance(0.3)
    overloaded = ModelOverloadedError("429 from https://user:hunter2@llm.example.com/v1?api_key=s3cret")
    call.end(error=overloaded)
    draft.attempt_failed(1, overloaded, 0.25)
    time.advance(0.25)
    call = draft.model_call(model="smollm2-135m", provider="agentrt", max_tokens=128, temperature=0.2)
    recording.stream(call, num_tokens=60, ttft_s=0.9, itl_s=0.024)
    error = ModelConnectionError("the connection to https://llm.example.com/v1?key=s3cret was closed")
    if fails:
        call.end(error=error)
        draft.end(status="failed", error=error)
        failure = ActionError("draft", str(error), num_attempts=2)
        failure.__cause__ = error
        run.end(status="failed", error=failure)
        return
    call.end(finish_reason="stop", num_prompt_tokens=310, queue_s=0.2, prefill_s=0.65)
    draft.end(status="succeeded")
    check = run.action(name="check", action_type="validate", agent=None, tool=None)
    time.advance(0.004)
    check.end(status="succeeded")
    escalate = run.action(name="escalate", action_type="http", agent=None, tool=None)
    escalate.end(status="skipped", reason="its condition does not hold: actions.check.output.sure == false")
    run.end(status="succeeded")
