"""What is left to say when a run has ended: its outputs, and where the time went.

Outputs go to stdout, one ``name: value`` a line, a text of several lines indented under its name. The rest goes to
stderr: one bar an action on a common time axis, the time to the first token drawn lighter than the tokens after it,
because the two have different causes (queue and prefill; the batch).
"""

from __future__ import annotations

import json
from typing import Any, TextIO

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from agentrt.cli.json_form import to_json
from agentrt.cli.live import glyph
from agentrt.cli.printable import limit, one_line, printable, seconds
from agentrt.run.events import ActionResult, RunResult, RunStatus
from agentrt.run.state import ActionState

_MAX_NAME_WIDTH = 24
_MIN_BAR_WIDTH = 10
_TIME_WIDTH = 8
_FIGURE_WIDTHS = (7, 8, 8)
_BAR_STYLES = {
    ActionState.SUCCEEDED: "green",
    ActionState.FAILED: "red",
    ActionState.CANCELLED: "yellow",
}


def print_outputs(result: RunResult, stream: TextIO) -> None:
    """Print the outputs of a run for a reader; programs want ``--json``."""
    for name, value in result.outputs.items():
        print(_named(name, value), file=stream)
    stream.flush()


def _named(name: str, value: Any) -> str:
    text = _output_text(value)
    if "\n" in text:
        text = "\n" + "\n".join(f"  {line}".rstrip() for line in text.split("\n"))
    else:
        text = f" {text}".rstrip()
    return f"{one_line(name)}:{text}"


def _output_text(value: Any) -> str:
    if isinstance(value, str):
        return printable(value.strip().replace("\r\n", "\n"), keep="\n\t")
    if value is None:
        return "(none)"
    return printable(json.dumps(to_json(value), ensure_ascii=False))


def print_finished(result: RunResult, console: Console) -> None:
    """Show what the actions of a run without outputs had finished, so that their work is not lost."""
    if result.status is RunStatus.SUCCEEDED:
        return
    finished = [action for action in result.actions if action.status is ActionState.SUCCEEDED]
    if not finished:
        return
    console.print(Text("finished before the end:", "dim"))
    for action in finished:
        console.print(Text(_named(action.name, action.output)), soft_wrap=True)
    console.print()


def print_time_spent(result: RunResult, console: Console) -> None:
    """Draw where the time of a run went, and end with one line that says how it ended."""
    ascii_only = console.options.ascii_only
    width = console.width
    name_width = min(_MAX_NAME_WIDTH, max((cell_len(one_line(a.name)) for a in result.actions), default=0))
    figures_width = sum(_FIGURE_WIDTHS) if any(a.tokens for a in result.actions) else 0
    bar_width = width - name_width - _TIME_WIDTH - 6 - figures_width
    if bar_width < _MIN_BAR_WIDTH:
        bar_width, figures_width = bar_width + figures_width, 0
    bar_width = max(1, bar_width)

    head = Text(no_wrap=True, style="dim").append(" " * (name_width + 2) + f"{'time':>{_TIME_WIDTH}}  ")
    head.append(_axis(result.duration_s, bar_width))
    if figures_width:
        for label, cells in zip(("tokens", "TTFT", "ITL"), _FIGURE_WIDTHS, strict=True):
            head.append(f"{label:>{cells}}")
    console.print(head, overflow="crop", no_wrap=True)
    for action in result.actions:
        line = Text(no_wrap=True).append_text(glyph(action.status, ascii_only=ascii_only))
        line.append(f" {set_cell_size(one_line(action.name), name_width)}")
        took = "" if action.duration_s is None else seconds(action.duration_s)
        line.append(f"{took:>{_TIME_WIDTH}}  ")
        if action.duration_s is None:
            why = action.reason or (str(action.error) if action.error else "")
            line.append(one_line(f"{action.status.value}: {why}" if why else action.status.value), "dim")
            console.print(line, overflow="crop" if ascii_only else "ellipsis", no_wrap=True)
            continue
        line.append_text(_bar(action, result.duration_s, bar_width, ascii_only))
        if figures_width and action.tokens is not None:
            tokens = action.tokens
            for text, cells in zip(
                (str(tokens.num_tokens), _figure(tokens.ttft_s), _figure(tokens.itl_mean_s)),
                _FIGURE_WIDTHS,
                strict=True,
            ):
                line.append(f"{text:>{cells}}")
        console.print(line, overflow="crop", no_wrap=True)
    console.print(_verdict(result, ascii_only), soft_wrap=True)


def _axis(duration_s: float, width: int) -> str:
    end = seconds(duration_s)
    return f"0{end:>{width - 1}}" if width > len(end) + 1 else " " * width


def _bar(action: ActionResult, total_s: float, width: int, ascii_only: bool) -> Text:
    """Return a bar of ``width`` cells: where the action began and ended on the run's time axis."""
    assert action.started_s is not None
    assert action.duration_s is not None
    scale = width / total_s if total_s > 0 else 0.0
    start = min(width - 1, int(action.started_s * scale))
    length = max(1, min(width - start, round(action.duration_s * scale)))
    ttft_s = action.tokens.ttft_s if action.tokens is not None else None
    until_first = min(length - 1, round(ttft_s * scale)) if ttft_s is not None else 0
    style = _BAR_STYLES.get(action.status, "")
    bar = Text(" " * start)
    bar.append(("-" if ascii_only else "░") * until_first, style)
    bar.append(("=" if ascii_only else "█") * (length - until_first), style)
    return bar.append(" " * (width - start - length))


def _figure(value_s: float | None) -> str:
    return "" if value_s is None else seconds(value_s)


def _verdict(result: RunResult, ascii_only: bool) -> Text:
    style = {RunStatus.SUCCEEDED: "bold green", RunStatus.CANCELLED: "bold yellow"}.get(result.status, "bold red")
    text = Text().append(result.status.value.replace("_", " "), style)
    text.append(f" in {seconds(result.duration_s)}")
    if result.slo_p99_s is not None and result.status is RunStatus.SUCCEEDED:
        met = result.duration_s <= result.slo_p99_s
        text.append(f", {'within' if met else 'over'} its SLO of {limit(result.slo_p99_s)}", "" if met else "red")
    if result.trace_id is not None:
        text.append(" | " if ascii_only else " · ", "dim")
        text.append(f"agentrt trace show {one_line(result.run_id)}", "dim")
    return text
