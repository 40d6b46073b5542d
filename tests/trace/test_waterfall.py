"""The layout of a trace: order of rows and cells of bars, whatever the spans look like."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from agentrt.trace.record import RunSummary, RunTraceRecord, SpanKind, SpanRecord
from agentrt.trace.waterfall import Bar, Row, bar, waterfall
from tests.support.traces import Recording, record_support_run

SUMMARY = RunSummary("r", "t", "d", "succeeded", 0, 1.0)
KINDS = (
    {"gen_ai.operation.name": "invoke_workflow"},
    {"gen_ai.operation.name": "invoke_agent"},
    {"action.type": "llm"},
    {"gen_ai.operation.name": "chat", "gen_ai.response.time_to_first_chunk": 0.5},
    {},
)


@st.composite
def any_trace(draw: st.DrawFn) -> RunTraceRecord:
    """Spans as bad as they come: of no length, turned around, orphans, rings of parents, tokens before their call."""
    ids = [f"{number:016x}" for number in range(draw(st.integers(1, 12)))]
    times = st.integers(0, 50) | st.integers(0, 10**15)
    spans = []
    for span_id in ids:
        is_token = draw(st.booleans())
        spans.append(
            SpanRecord(
                span_id,
                draw(st.sampled_from([None, "f" * 16, *ids])),
                "llm.token.generate" if is_token else "x",
                draw(times),
                draw(times),
                {"llm.step": draw(st.integers(0, 3))} if is_token else draw(st.sampled_from(KINDS)),
            )
        )
    return RunTraceRecord(SUMMARY, tuple(spans))


@given(any_trace(), st.integers(1, 200))
def test_every_bar_lies_inside_the_window_and_can_be_seen(trace: RunTraceRecord, width: int) -> None:
    """No bar is empty, begins before the window or ends behind it, and its wait is a part of it."""
    picture = waterfall(trace, with_tokens=True)
    for row in picture.rows:
        cells = bar(row, picture.window_s, width)
        assert cells.before >= 0
        assert cells.wait >= 0
        assert cells.work >= 0
        assert cells.wait + cells.work >= 1
        assert cells.before + cells.wait + cells.work <= width


@given(any_trace())
def test_every_span_has_one_row_below_its_parent(trace: RunTraceRecord) -> None:
    """Each span is shown exactly once; a row's parent is the nearest row above it that is one level up."""
    rows = waterfall(trace, with_tokens=True).rows
    assert sorted(row.span.span_id for row in rows) == sorted(span.span_id for span in trace.spans)
    above: list[Row] = []
    for row in rows:
        del above[row.depth :]
        assert len(above) == row.depth
        if above:
            assert above[-1].span.span_id == row.span.parent_id
            assert above[-1].is_parent
        above.append(row)


@given(any_trace())
def test_siblings_stand_in_the_order_they_began(trace: RunTraceRecord) -> None:
    """Among the rows of one parent starts never go back."""
    latest: dict[str | None, int] = {}
    for row in waterfall(trace, with_tokens=True).rows:
        if row.depth == 0:
            continue
        start_ns = row.span.start_ns
        assert latest.get(row.span.parent_id, 0) <= start_ns
        latest[row.span.parent_id] = start_ns


@given(any_trace(), st.integers(1, 200))
def test_what_lies_inside_in_time_lies_inside_on_the_screen(trace: RunTraceRecord, width: int) -> None:
    """Rounding to cells never pushes a span out of another one that contains it."""
    picture = waterfall(trace, with_tokens=True)
    for outer in picture.rows:
        for inner in picture.rows:
            is_inside = outer.span.start_ns <= inner.span.start_ns <= inner.span.end_ns <= outer.span.end_ns
            if not is_inside:
                continue
            around, within = (bar(row, picture.window_s, width) for row in (outer, inner))
            assert around.before <= within.before
            assert within.before + within.wait + within.work <= around.before + around.wait + around.work


def test_a_model_call_shows_its_wait_and_its_tokens_apart() -> None:
    """Half of the call waiting for the first token is half of its bar; a call without a token is all wait."""
    recording = Recording()
    run = recording.tracing.start_run(run_id="r", dag="d", deadline_s=None, slo_p99_s=None)
    action = run.action(name="a", action_type="llm", agent=None, tool=None)
    first = action.model_call(model="m", provider="p", max_tokens=3, temperature=0.0)
    recording.stream(first, num_tokens=3, ttft_s=1.0, itl_s=0.5)
    first.end(finish_reason="stop")
    second = action.model_call(model="m", provider="p", max_tokens=3, temperature=0.0)
    recording.time.advance(2.0)
    second.end(error=ValueError("no answer"))
    action.end(status="failed", error=ValueError("no answer"))
    run.end(status="failed", error=ValueError("no answer"))
    (trace,) = recording.records()
    picture = waterfall(trace)
    calls = [row for row in picture.rows if row.kind is SpanKind.MODEL_CALL]
    assert [bar(row, picture.window_s, 40) for row in calls] == [Bar(0, 10, 10), Bar(20, 20, 0)]


def test_tokens_are_rows_only_when_asked_for() -> None:
    """By default a run of hundreds of tokens stays on one screen."""
    recording = Recording()
    record_support_run(recording)
    (trace,) = recording.records()
    assert SpanKind.TOKEN not in {row.kind for row in waterfall(trace).rows}
    rows = [row for row in waterfall(trace, with_tokens=True).rows if row.kind is SpanKind.TOKEN]
    assert len(rows) == 64
    assert rows[1].label == "#1 id 1001 p 0.90"


def test_a_clock_ahead_on_another_machine_widens_the_window() -> None:
    """A span that seems to lie behind its run's end is drawn there, not cut off."""
    root = SpanRecord("1" * 16, None, "run", 10**9, 2 * 10**9)
    skewed = SpanRecord("2" * 16, root.span_id, "remote", 3 * 10**9, 4 * 10**9)
    picture = waterfall(RunTraceRecord(SUMMARY, (root, skewed)))
    assert picture.window_s == 3.0
    assert [bar(row, picture.window_s, 30) for row in picture.rows] == [Bar(0, 0, 10), Bar(20, 0, 10)]


def test_a_trace_without_spans_is_an_empty_picture() -> None:
    """Nothing recorded, nothing drawn, nothing raised."""
    assert waterfall(RunTraceRecord(SUMMARY, ())).rows == ()
