"""Traces for a reader at a terminal: the list of runs, and one run as a waterfall.

A model call's bar shows the wait for its first token lighter than the tokens after it, and TTFT and ITL stand
in columns of their own: the first is a matter of the queue and the prefill, the second of the batch, and one
figure for both would hide which. On a wide terminal the figures stand behind the bars; on a narrow one the
bars keep their room and the figures follow in a table.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from agentrt.cli.json_form import to_json
from agentrt.cli.live import glyph
from agentrt.cli.printable import limit, one_line, seconds
from agentrt.run.state import ActionState
from agentrt.trace import names
from agentrt.trace.record import RunSummary, RunTraceRecord, SpanKind, SpanStatus
from agentrt.trace.token_timing import TokenTiming
from agentrt.trace.waterfall import Row, Waterfall, bar, cell_at, waterfall

INLINE_FROM_WIDTH = 100
_MIN_BAR_WIDTH = 10
_TIME_WIDTH = 8
_FIGURES = ("TTFT", "ITL", "ITL p99", "tokens")
_FIGURE_WIDTH = 9
_STATUS_STYLES = {"succeeded": "green", "cancelled": "yellow", "skipped": "dim", "unset": "", "ok": "green"}
_INK = {
    # (unicode, ASCII)
    "span": ("─", "."),
    "work": ("━", "#"),
    "wait": ("░", "-"),
    "tokens": ("█", "="),
}


def print_runs(runs: Sequence[RunSummary], console: Console) -> None:
    """Print one line a run; a narrow terminal gets shorter times and no count of actions."""
    is_wide = console.width >= INLINE_FROM_WIDTH
    columns: list[tuple[str, str, list[Text]]] = [
        ("run", "<", [Text(one_line(run.run_id)) for run in runs]),
        ("dag", "<", [Text(one_line(run.dag)) for run in runs]),
        ("status", "<", [Text(_words(run.status), _status_style(run.status)) for run in runs]),
        ("started", "<", [Text(_local_time(run.started_ns, is_short=not is_wide)) for run in runs]),
        ("time", ">", [Text(seconds(run.duration_s), _slo_style(run)) for run in runs]),
        ("SLO", ">", [Text("" if run.slo_p99_s is None else limit(run.slo_p99_s)) for run in runs]),
        ("tokens", ">", [Text(str(run.num_completion_tokens)) for run in runs]),
    ]
    if is_wide:
        columns.insert(-1, ("actions", ">", [Text(str(run.num_actions)) for run in runs]))
    widths = [max(len(heading), *(cell.cell_len for cell in cells)) for heading, _, cells in columns]
    # The name of the Dag gives way to the figures.
    widths[1] = max(8, min(widths[1], console.width - sum(widths) + widths[1] - 2 * len(widths)))
    lines = [[Text(heading, "dim") for heading, _, _ in columns]]
    lines += [[cells[index] for _, _, cells in columns] for index in range(len(runs))]
    for line in lines:
        text = Text()
        for cell, width, (_, side, _) in zip(line, widths, columns, strict=True):
            pad = " " * (width - cell.cell_len)
            text.append_text(_fitted(cell, width + 2, _is_ascii(console)) if side == "<" else Text(pad))
            if side == ">":
                text.append_text(cell).append("  ")
        text.rstrip()
        console.print(text, soft_wrap=True)


def print_trace(trace: RunTraceRecord, console: Console, *, with_tokens: bool) -> None:
    """Draw one run as a waterfall, with what went wrong below it."""
    is_ascii = _is_ascii(console)
    picture = waterfall(trace, with_tokens=with_tokens)
    for line in (
        *_header(trace.summary, is_ascii),
        Text(),
        *_waterfall_lines(picture, console.width, is_ascii),
        *_figure_lines(picture, console.width, is_ascii),
        *_notes(picture, is_ascii),
        Text(),
        _legend(picture, is_ascii),
    ):
        console.print(line, soft_wrap=True)


def summary_to_json(run: RunSummary) -> dict[str, Any]:
    form: dict[str, Any] = to_json(run)
    return {**form, "kept_slo": run.kept_slo}


def trace_to_json(trace: RunTraceRecord, *, with_tokens: bool) -> dict[str, Any]:
    """Return a trace as JSON: its summary, and its spans in the order of the waterfall."""
    timing = trace.token_timing()
    spans: list[dict[str, Any]] = []
    for depth, span in trace.tree():
        kind = span.kind
        if kind is SpanKind.TOKEN and not with_tokens:
            continue
        form: dict[str, Any] = to_json(span)
        form |= {"kind": kind.value, "depth": depth, "duration_s": span.duration_s}
        if span.span_id in timing:
            form["tokens"] = to_json(timing[span.span_id])
        spans.append(form)
    return {**summary_to_json(trace.summary), "spans": spans}


def _is_ascii(console: Console) -> bool:
    return console.options.ascii_only or not console.is_terminal


def _local_time(time_ns: int, *, is_short: bool = False) -> str:
    form = "%m-%d %H:%M" if is_short else "%Y-%m-%d %H:%M:%S"
    return datetime.fromtimestamp(time_ns / 1e9).astimezone().strftime(form)


def _words(status: str) -> str:
    return one_line(status.replace("_", " "))


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _slo_style(run: RunSummary) -> str:
    return "red" if run.kept_slo is False else ""


def _status_style(status: str) -> str:
    return _STATUS_STYLES.get(status, "red")


def _header(run: RunSummary, is_ascii: bool) -> Iterator[Text]:
    dot = " | " if is_ascii else " · "
    line = Text(one_line(run.dag), "bold").append(f" {one_line(run.run_id)}", "not bold dim")
    line.append("  ").append(_words(run.status), f"not bold {_status_style(run.status)}")
    line.append(f" in {seconds(run.duration_s)}", "not bold")
    if run.slo_p99_s is not None and run.status == "succeeded":
        word = "within" if run.kept_slo else "over"
        line.append(f", {word} its SLO of {limit(run.slo_p99_s)}", f"not bold {_slo_style(run)}")
    yield line
    facts = [_local_time(run.started_ns), _count(run.num_actions, "action")]
    if run.num_model_calls:
        facts.append(_count(run.num_model_calls, "model call"))
        facts.append(f"{run.num_prompt_tokens} prompt, {run.num_completion_tokens} answer tokens")
    yield Text(dot.join(facts), "dim")
    yield Text(f"trace {run.trace_id}", "dim")


def _waterfall_lines(picture: Waterfall, width: int, is_ascii: bool) -> Iterator[Text]:
    longest = max((2 * row.depth + 3 + cell_len(one_line(row.label)) for row in picture.rows), default=0)
    name_width = max(12, min(longest, width * 2 // 5))
    figures_width = _FIGURE_WIDTH * len(_FIGURES) if width >= INLINE_FROM_WIDTH and _has_calls(picture) else 0
    bar_width = max(_MIN_BAR_WIDTH, width - name_width - _TIME_WIDTH - 2 - figures_width)
    axis_end = seconds(picture.window_s)
    head = Text(" " * (name_width + _TIME_WIDTH + 2) + f"0{axis_end:>{bar_width - 1}}", "dim")
    if figures_width:
        head.append("".join(f"{heading:>{_FIGURE_WIDTH}}" for heading in _FIGURES))
    yield head
    for row in picture.rows:
        line = Text("  " * row.depth).append_text(_mark(row, is_ascii)).append(" ")
        line.append(one_line(row.label), _label_style(row))
        line = _fitted(line, name_width, is_ascii)
        if row.status == ActionState.SKIPPED:
            yield line.append(" " * (_TIME_WIDTH + 2)).append("skipped", "dim")
            continue
        line.append(f"{seconds(row.duration_s):>{_TIME_WIDTH}}  ")
        line.append_text(_bar_text(row, picture.window_s, bar_width, is_ascii))
        if figures_width and row.tokens is not None:
            line.append("".join(f"{text:>{_FIGURE_WIDTH}}" for text in _figures(row.tokens)))
        line.rstrip()
        yield line


def _figure_lines(picture: Waterfall, width: int, is_ascii: bool) -> Iterator[Text]:
    """The figures of the model calls as a table, where they did not fit behind the bars."""
    if width >= INLINE_FROM_WIDTH or not _has_calls(picture):
        return
    headings = (*_FIGURES[:3], "queue", "prefill", _FIGURES[3])
    cells = [_FIGURE_WIDTH] * len(headings)
    name_width = max(12, width - sum(cells))
    yield Text()
    yield Text(f"{'model calls':<{name_width}}", "dim").append(
        "".join(f"{heading:>{_FIGURE_WIDTH}}" for heading in headings)
    )
    action = ""
    for row in picture.rows:
        if row.kind is SpanKind.ACTION:
            action = row.label
        if row.tokens is None:
            continue
        ttft, itl, itl_p99, num_tokens = _figures(row.tokens)
        queue, prefill = (
            _seconds_or_nothing(row.span.attributes.get(name)) for name in (names.QUEUE_S, names.PREFILL_S)
        )
        texts = (ttft, itl, itl_p99, queue, prefill, num_tokens)
        line = _fitted(Text(one_line(action or row.label)), name_width, is_ascii)
        yield line.append("".join(f"{text:>{_FIGURE_WIDTH}}" for text in texts))


def _notes(picture: Waterfall, is_ascii: bool) -> Iterator[Text]:
    """What went wrong, one line each: failed attempts, errors, and why an action was skipped or cancelled."""
    notes = [(row, *note) for row in picture.rows for note in _notes_on(row)]
    # An action tells what its model call met, and the run repeats its action: each reason is told once, by the
    # action if there is one.
    told = [text for row, text, _ in notes if row.kind is SpanKind.ACTION]
    kept = []
    for row, text, style in notes:
        if row.kind is not SpanKind.ACTION:
            message = row.span.status_message
            if any(message in other or other.partition(": ")[2] in message for other in told):
                continue
            told.append(text)
        kept.append(Text().append_text(_mark(row, is_ascii)).append(f" {one_line(row.label)} ", "bold"))
        kept[-1].append(one_line(text), style)
    if kept:
        yield Text()
        yield from kept


def _notes_on(row: Row) -> Iterator[tuple[str, str]]:
    for event in row.span.events:
        if event.name == names.ATTEMPT_FAILED_EVENT:
            attributes = event.attributes
            yield (
                f"attempt {attributes.get(names.ATTEMPT)} failed, another followed after "
                f"{_seconds_or_nothing(attributes.get(names.RETRY_WAIT_S))}: "
                f"{attributes.get(names.EXCEPTION_MESSAGE)}",
                "yellow",
            )
    if row.span.status is SpanStatus.ERROR:
        yield f"{row.span.attributes.get(names.ERROR_TYPE, 'error')}: {row.span.status_message}", "red"
    elif names.REASON in row.span.attributes:
        yield f"{row.status}: {row.span.attributes[names.REASON]}", _status_style(row.status)


def _legend(picture: Waterfall, is_ascii: bool) -> Text:
    parts = [("span", "covers rows below"), ("work", "work")]
    if _has_calls(picture):
        parts += [("wait", "wait for first token (TTFT)"), ("tokens", "tokens (ITL)")]
    return Text("  ".join(f"{_ink(ink, is_ascii) * 2} {meaning}" for ink, meaning in parts), "dim")


def _has_calls(picture: Waterfall) -> bool:
    return any(row.tokens is not None for row in picture.rows)


def _ink(name: str, is_ascii: bool) -> str:
    return _INK[name][is_ascii]


def _mark(row: Row, is_ascii: bool) -> Text:
    """One cell: how the span ended."""
    if row.span.status is SpanStatus.ERROR:
        return glyph(ActionState.FAILED, ascii_only=is_ascii)
    if row.status in (ActionState.SUCCEEDED, ActionState.SKIPPED, ActionState.CANCELLED):
        return glyph(ActionState(row.status), ascii_only=is_ascii)
    return Text(" ")


def _label_style(row: Row) -> str:
    if row.span.status is SpanStatus.ERROR:
        return "red"
    return {SpanKind.RUN: "bold", SpanKind.MODEL_CALL: "cyan", SpanKind.TOKEN: "dim"}.get(row.kind, "")


def _bar_text(row: Row, window_s: float, width: int, is_ascii: bool) -> Text:
    cells = bar(row, window_s, width)
    style = "red" if row.span.status is SpanStatus.ERROR else _status_style(row.status)
    ink = "span" if row.is_parent else "work"
    if row.kind in (SpanKind.MODEL_CALL, SpanKind.TOKEN):
        ink = "tokens"
    text = Text(" " * cells.before)
    text.append(_ink("wait", is_ascii) * cells.wait, style)
    text.append(_ink(ink, is_ascii) * cells.work, style)
    text.append(" " * (width - len(text.plain)))
    for failed_s in row.failed_attempts_s:
        at = cell_at(failed_s, window_s, width)
        cross = glyph(ActionState.FAILED, ascii_only=is_ascii)
        text = text[:at].append_text(cross).append_text(text[at + 1 :])
    return text


def _figures(tokens: TokenTiming) -> tuple[str, str, str, str]:
    return (
        _seconds_or_nothing(tokens.ttft_s),
        _seconds_or_nothing(tokens.itl_mean_s),
        _seconds_or_nothing(tokens.itl_p99_s),
        str(tokens.num_tokens),
    )


def _seconds_or_nothing(value: Any) -> str:
    return seconds(value) if isinstance(value, int | float) else ""


def _fitted(text: Text, width: int, is_ascii: bool) -> Text:
    """Cut or pad to ``width`` cells, the last of them left blank."""
    if cell_len(text.plain) > width - 1:
        text.truncate(width - 2)
        text.append("~" if is_ascii else "…")
    text.append(" " * (width - cell_len(text.plain)))
    return text
