"""Runs recorded as OpenTelemetry spans: the tree, the names, and what is told of failures."""

from __future__ import annotations

import asyncio
import json
import random
import threading
from typing import Any

import anyio
import pytest
import trio

from agentrt.errors import ActionError, DeadlineError, ModelResponseError
from agentrt.trace import names
from agentrt.trace.record import RunTraceRecord, SpanKind, SpanRecord, SpanStatus
from agentrt.trace.recorder import is_cancellation
from tests.support.traces import EPOCH_NS, Recording, record_support_run


def spans_of(trace: RunTraceRecord, kind: SpanKind) -> list[SpanRecord]:
    return [span for span in trace.spans if span.kind is kind]


def only(trace: RunTraceRecord, kind: SpanKind) -> SpanRecord:
    (span,) = spans_of(trace, kind)
    return span


def start(recording: Recording, **given: Any) -> Any:
    return recording.tracing.start_run(**{"run_id": "r1", "dag": "d", "deadline_s": None, "slo_p99_s": None} | given)


def test_the_tree_is_run_agent_action_model_call_token() -> None:
    """Every span hangs where it belongs; an action without an agent hangs under the run."""
    recording = Recording()
    record_support_run(recording)
    (trace,) = recording.records()
    outline = [(depth, span.kind.value, span.name) for depth, span in trace.tree() if span.kind is not SpanKind.TOKEN]
    assert outline == [
        (0, "run", "invoke_workflow support_triage"),
        (1, "action", "action search"),
        (1, "agent", "invoke_agent triage"),
        (2, "action", "action classify"),
        (3, "model_call", "chat smollm2-135m"),
        (1, "agent", "invoke_agent writer"),
        (2, "action", "action draft"),
        (3, "model_call", "chat smollm2-135m"),
        (3, "model_call", "chat smollm2-135m"),
        (1, "action", "action check"),
        (1, "action", "action escalate"),
    ]
    calls = {span.span_id for span in spans_of(trace, SpanKind.MODEL_CALL)}
    tokens = spans_of(trace, SpanKind.TOKEN)
    assert len(tokens) == 64
    assert {token.parent_id for token in tokens} <= calls
    assert len({span.span_id for span in trace.spans}) == len(trace.spans)


def test_attributes_carry_the_names_of_the_conventions() -> None:
    """What a backend looks for is there under the names it knows."""
    recording = Recording()
    record_support_run(recording)
    (trace,) = recording.records()
    assert only(trace, SpanKind.RUN).attributes == {
        "gen_ai.operation.name": "invoke_workflow",
        "gen_ai.agent.name": "support_triage",
        "gen_ai.workflow.name": "support_triage",
        "agentrt.run_id": "9f3c2a1b4d5e",
        "agentrt.dag": "support_triage",
        "agentrt.deadline_s": 10.0,
        "agentrt.slo_p99_s": 4.0,
        "agentrt.status": "succeeded",
    }
    search, classify, *_ = sorted(spans_of(trace, SpanKind.ACTION), key=lambda span: span.start_ns)
    assert search.attributes == {
        "action.type": "retrieval",
        "action.duration_ms": 31.0,
        "agentrt.action.name": "search",
        "agentrt.action.num_attempts": 1,
        "agentrt.status": "succeeded",
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "search_docs",
        "gen_ai.tool.type": "function",
    }
    assert classify.attributes["gen_ai.agent.name"] == "triage"
    call = next(span for span in trace.spans if span.parent_id == classify.span_id)
    assert call.is_client
    assert call.attributes == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "agentrt",
        "gen_ai.request.model": "smollm2-135m",
        "gen_ai.request.max_tokens": 8,
        "gen_ai.request.temperature": 0.0,
        "gen_ai.request.stream": True,
        "gen_ai.response.finish_reasons": ("choice",),
        "gen_ai.response.time_to_first_chunk": 0.42,
        "gen_ai.usage.input_tokens": 212,
        "gen_ai.usage.output_tokens": 4,
        "gen_ai.usage.cache_read.input_tokens": 96,
        "agentrt.itl_mean_s": 0.018,
        "agentrt.itl_p99_s": 0.018,
        "agentrt.queue_s": 0.011,
        "agentrt.prefill_s": 0.4,
        "agentrt.status": "succeeded",
    }


def test_token_spans_tell_ttft_and_itl() -> None:
    """The first token's span lasts from the call's start (TTFT), each other one from the token before it (ITL)."""
    recording = Recording()
    run = start(recording)
    action = run.action(name="a", action_type="llm", agent=None, tool=None)
    call = action.model_call(model="m", provider="p", max_tokens=3, temperature=0.0)
    for delay_s, token_id, logprob in ((0.5, 11, -0.25), (0.02, 12, None), (0.03, None, -1.5)):
        recording.time.advance(delay_s)
        call.token(recording.time.now_ns, token_id, logprob, "x")
    call.end(finish_reason="length")
    action.end(status="succeeded")
    run.end(status="succeeded")
    (trace,) = recording.records()
    tokens = sorted(spans_of(trace, SpanKind.TOKEN), key=lambda span: span.start_ns)
    assert [span.name for span in tokens] == ["llm.token.generate"] * 3
    assert [(span.start_ns - EPOCH_NS, span.end_ns - EPOCH_NS) for span in tokens] == [
        (0, 500_000_000),
        (500_000_000, 520_000_000),
        (520_000_000, 550_000_000),
    ]
    assert [span.attributes for span in tokens] == [
        {"llm.token_id": 11, "llm.step": 0, "llm.logprob": -0.25},
        {"llm.token_id": 12, "llm.step": 1},
        {"llm.step": 2, "llm.logprob": -1.5},
    ]
    assert trace.token_timing()[only(trace, SpanKind.MODEL_CALL).span_id].ttft_s == 0.5


def test_no_token_is_lost_whatever_the_environment_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand tokens are a thousand spans, though the SDK's limits and samplers would drop them."""
    for variable in (
        "OTEL_SPAN_EVENT_COUNT_LIMIT",
        "OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT",
        "OTEL_ATTRIBUTE_COUNT_LIMIT",
        "OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT",
    ):
        monkeypatch.setenv(variable, "1")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "always_off")
    recording = Recording()
    run = start(recording)
    action = run.action(name="a", action_type="llm", agent="writer", tool=None)
    call = action.model_call(model="m", provider="p", max_tokens=1000, temperature=0.0)
    recording.stream(call, num_tokens=1000)
    call.end(finish_reason="length")
    for attempt in range(1, 200):
        action.attempt_failed(attempt, ModelResponseError("no"), 0.0)
    action.end(status="succeeded")
    run.end(status="succeeded")
    (trace,) = recording.records()
    steps = sorted(span.attributes["llm.step"] for span in spans_of(trace, SpanKind.TOKEN))
    assert steps == list(range(1000))
    assert len(only(trace, SpanKind.ACTION).events) == 199
    assert only(trace, SpanKind.MODEL_CALL).attributes["gen_ai.request.model"] == "m"


def test_a_clock_that_is_set_back_turns_no_span_around() -> None:
    """Spans keep their length and their order when the wall clock jumps in the middle of a run."""
    recording = Recording()
    run = start(recording)
    action = run.action(name="a", action_type="llm", agent=None, tool=None)
    call = action.model_call(model="m", provider="p", max_tokens=2, temperature=0.0)
    recording.time.advance(1.0)
    hour_back_ns = recording.time.now_ns - 3600 * 10**9
    call.token(recording.time.now_ns, 1, None, "a")
    call.token(hour_back_ns, 2, None, "b")
    call.token(recording.time.now_ns, 3, None, "c")
    call.end(finish_reason="stop")
    action.end(status="succeeded")
    run.end(status="succeeded")
    (trace,) = recording.records()
    assert all(span.start_ns <= span.end_ns for span in trace.spans)
    assert only(trace, SpanKind.MODEL_CALL).attributes["agentrt.itl_mean_s"] == 0.0


async def test_concurrent_actions_keep_their_own_parents() -> None:
    """Actions that run side by side in tasks and threads never take each other for parents."""
    recording = Recording()
    run = start(recording)

    def perform(number: int) -> None:
        action = run.action(name=f"a{number}", action_type="llm", agent=f"agent{number % 3}", tool=None)
        call = action.model_call(model=f"m{number}", provider="p", max_tokens=5, temperature=0.0)
        for step in range(5):
            call.token(EPOCH_NS + step, step, None, "x")
        call.end(finish_reason="stop")
        action.end(status="succeeded")

    async def perform_in_thread(number: int) -> None:
        await anyio.to_thread.run_sync(perform, number)

    async with anyio.create_task_group() as tasks:
        for number in range(40):
            tasks.start_soon(perform_in_thread, number)
    run.end(status="succeeded")
    (trace,) = recording.records()
    by_id = {span.span_id: span for span in trace.spans}
    assert len(spans_of(trace, SpanKind.AGENT)) == 3
    for number in range(40):
        call = next(span for span in trace.spans if span.name == f"chat m{number}")
        action = by_id[call.parent_id or ""]
        assert action.name == f"action a{number}"
        assert by_id[action.parent_id or ""].name == f"invoke_agent agent{number % 3}"
        assert sum(span.parent_id == call.span_id for span in trace.spans) == 5


def test_a_failed_action_fails_its_agent_and_its_run() -> None:
    """The reason stands in the status of each span it reached, with its class in ``error.type``."""
    recording = Recording()
    record_support_run(recording, fails=True)
    (trace,) = recording.records()
    failed = {span.name: span for span in trace.spans if span.status is SpanStatus.ERROR}
    assert set(failed) == {
        "invoke_workflow support_triage",
        "invoke_agent writer",
        "action draft",
        "chat smollm2-135m",
    }
    run = failed["invoke_workflow support_triage"]
    assert run.attributes["agentrt.status"] == "failed"
    assert run.attributes["error.type"] == "ModelConnectionError"
    assert run.status_message.startswith("action 'draft' failed after 2 attempts: ")
    assert failed["action draft"].attributes["agentrt.action.num_attempts"] == 2
    (event,) = failed["action draft"].events
    assert event.name == "agentrt.attempt_failed"
    assert event.attributes["agentrt.attempt"] == 1
    assert event.attributes["exception.type"] == "ModelOverloadedError"
    assert event.attributes["agentrt.retry_wait_s"] == 0.25


def test_a_deadline_that_passed_is_an_error_of_the_run() -> None:
    """A run over its deadline is told from one that failed, and from one that was cancelled."""
    recording = Recording()
    run = start(recording, deadline_s=1.0)
    run.end(status="deadline_exceeded", error=DeadlineError(1.0, ["a"]))
    (trace,) = recording.records()
    span = only(trace, SpanKind.RUN)
    assert (span.status, span.attributes["agentrt.status"]) == (SpanStatus.ERROR, "deadline_exceeded")
    assert trace.summary.error == "the deadline of 1 s passed; unfinished actions: a"


@pytest.mark.parametrize("error", [asyncio.CancelledError(), KeyboardInterrupt(), None])
def test_a_cancellation_is_not_an_error(error: BaseException | None) -> None:
    """Who stopped a run did nothing wrong: its spans are marked cancelled and none counts as failed."""
    recording = Recording()
    run = start(recording)
    action = run.action(name="a", action_type="llm", agent="writer", tool=None)
    call = action.model_call(model="m", provider="p", max_tokens=1, temperature=0.0)
    call.end(error=error or asyncio.CancelledError())
    action.end(status="cancelled", error=error, reason="the run was cancelled")
    run.end(status="cancelled", error=error)
    (trace,) = recording.records()
    assert {span.status for span in trace.spans} == {SpanStatus.UNSET}
    assert {span.attributes["agentrt.status"] for span in trace.spans} == {"cancelled"}
    assert only(trace, SpanKind.ACTION).attributes["agentrt.reason"] == "the run was cancelled"


def test_a_cancellation_of_trio_is_known_as_one() -> None:
    """On trio a cancellation is another class, alone or in a group, and a real fault in that group still counts."""

    async def caught() -> BaseException:
        with trio.CancelScope() as scope:
            scope.cancel()
            try:
                await trio.lowlevel.checkpoint()
            except BaseException as error:
                seen = error
                raise
        return seen

    cancelled = trio.run(caught)
    assert is_cancellation(cancelled)
    assert is_cancellation(BaseExceptionGroup("", [cancelled, asyncio.CancelledError()]))
    assert not is_cancellation(BaseExceptionGroup("", [cancelled, ValueError()]))
    assert not is_cancellation(None)


def test_a_run_that_ends_takes_everything_open_with_it() -> None:
    """However a run ended, its trace is a whole tree: what was still open is cancelled, and a late end does nothing."""
    recording = Recording()
    run = start(recording)
    action = run.action(name="slow", action_type="llm", agent="writer", tool=None)
    call = action.model_call(model="m", provider="p", max_tokens=1, temperature=0.0)
    recording.stream(call, num_tokens=2)
    run.end(status="failed", error=ActionError("other", "it broke"))
    call.end(finish_reason="stop")
    action.end(status="succeeded")
    run.end(status="succeeded")
    (trace,) = recording.records()
    statuses = {span.kind.value: span.attributes["agentrt.status"] for span in trace.spans if span.kind != "token"}
    assert statuses == {"run": "failed", "agent": "cancelled", "action": "cancelled", "model_call": "cancelled"}
    assert len(spans_of(trace, SpanKind.TOKEN)) == 2


def test_an_agent_acts_from_its_first_action_to_its_last() -> None:
    """An agent's span does not count the time after its last action."""
    recording = Recording()
    run = start(recording)
    for name, seconds in (("one", 1.0), ("two", 2.0)):
        action = run.action(name=name, action_type="llm", agent="writer", tool=None)
        recording.time.advance(seconds)
        action.end(status="succeeded")
    recording.time.advance(5.0)
    run.end(status="succeeded")
    (trace,) = recording.records()
    assert only(trace, SpanKind.AGENT).duration_s == 3.0
    assert only(trace, SpanKind.RUN).duration_s == 8.0


@pytest.mark.parametrize("content", [False, True])
def test_prompts_and_answers_are_recorded_only_when_asked_for(content: bool) -> None:
    """By default neither the prompt nor a word of the answer is anywhere in the trace."""
    recording = Recording(content=content)
    run = start(recording)
    action = run.action(name="a", action_type="llm", agent=None, tool=None)
    call = action.model_call(model="m", provider="p", max_tokens=2, temperature=0.0, prompt="the secret question")
    call.token(EPOCH_NS + 5, 1, -0.1, "the secret ")
    call.token(EPOCH_NS + 6, 2, -0.1, "answer \ud800")
    call.end(finish_reason="stop")
    action.end(status="succeeded")
    run.end(status="succeeded")
    (trace,) = recording.records()
    if not content:
        assert "secret" not in repr(trace)
        return
    attributes = only(trace, SpanKind.MODEL_CALL).attributes
    assert json.loads(attributes[names.INPUT_MESSAGES]) == [
        {"role": "user", "parts": [{"type": "text", "content": "the secret question"}]}
    ]
    assert json.loads(attributes[names.OUTPUT_MESSAGES]) == [
        {
            "role": "assistant",
            "parts": [{"type": "text", "content": "the secret answer ?"}],
            "finish_reason": "stop",
        }
    ]


def test_no_secret_reaches_a_span() -> None:
    """User names, passwords and keys in endpoints and error messages are gone from every part of the trace."""
    recording = Recording()
    run = start(recording)
    action = run.action(name="a", action_type="http", agent="writer", tool=None)
    call = action.model_call(
        model="https://anna:hunter2@host/m", provider="anna:x@host?key=hunter2", max_tokens=1, temperature=0.0
    )
    error = ModelResponseError("401 from https://anna:hunter2@host/v1?key=hunter2 (Authorization: Bearer hunter2)")
    call.end(error=error)
    action.attempt_failed(1, error, 0.1)
    action.end(status="failed", error=error, reason="https://anna:hunter2@host")
    run.end(status="failed", error=error)
    (trace,) = recording.records()
    assert "hunter2" not in repr(trace)
    assert "401 from https://host/v1?key=***" in repr(trace)


def test_the_programs_own_opentelemetry_is_left_alone() -> None:
    """No global provider is set, and a span that the program has open is neither our parent nor given our spans."""
    from opentelemetry import trace as api
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    before = api.get_tracer_provider()
    exporter = InMemorySpanExporter()
    theirs = TracerProvider(shutdown_on_exit=False)
    theirs.add_span_processor(SimpleSpanProcessor(exporter))
    recording = Recording()
    with theirs.get_tracer("theirs").start_as_current_span("request") as request:
        run = start(recording)
        run.action(name="a", action_type="function", agent=None, tool=None).end(status="succeeded")
        run.end(status="succeeded")
        assert api.get_current_span() is request
    (trace,) = recording.records()
    assert api.get_tracer_provider() is before
    assert only(trace, SpanKind.RUN).parent_id is None
    assert trace.summary.trace_id != f"{request.get_span_context().trace_id:032x}"
    assert [span.name for span in exporter.get_finished_spans()] == ["request"]


def test_the_traceparent_names_the_model_call() -> None:
    """What a remote endpoint is told is the trace's id and the model call's span, sampled, as W3C writes it."""
    recording = Recording()
    run = start(recording)
    action = run.action(name="a", action_type="llm", agent=None, tool=None)
    call = action.model_call(model="m", provider="p", max_tokens=1, temperature=0.0)
    version, trace_id, span_id, flags = call.traceparent.split("-")
    call.end(finish_reason="stop")
    action.end(status="succeeded")
    run.end(status="succeeded")
    (trace,) = recording.records()
    assert (version, trace_id) == ("00", run.trace_id)
    assert span_id == only(trace, SpanKind.MODEL_CALL).span_id
    assert int(flags, 16) & 1


def test_a_program_that_seeds_random_gets_no_ids_twice() -> None:
    """Trace ids differ though ``random`` was set to the same state before each run, as experiments do."""
    recording = Recording()
    trace_ids = set()
    for _ in range(3):
        random.seed(42)
        trace_ids.add(start(recording).trace_id)
    assert len(trace_ids) == 3


def test_runs_side_by_side_are_delivered_apart() -> None:
    """Each run is handed over once, when it ends, with its own spans and no other's."""
    recording = Recording()
    runs = [start(recording, run_id=f"r{number}", dag=f"d{number}") for number in range(8)]
    barrier = threading.Barrier(len(runs))

    def act(number: int) -> None:
        barrier.wait()
        for step in range(20):
            action = runs[number].action(name=f"{number}.{step}", action_type="function", agent=None, tool=None)
            action.end(status="succeeded")
        runs[number].end(status="succeeded")

    threads = [threading.Thread(target=act, args=(number,)) for number in range(len(runs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    traces = {trace.summary.run_id: trace for trace in recording.records()}
    assert set(traces) == {f"r{number}" for number in range(8)}
    for number in range(8):
        found = {span.attributes[names.ACTION_NAME] for span in spans_of(traces[f"r{number}"], SpanKind.ACTION)}
        assert found == {f"{number}.{step}" for step in range(20)}
