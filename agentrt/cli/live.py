"""Progress on a terminal: each action's state, its tokens as they stream, and the time against the limit.

The view is drawn from a RunProgress a few times a second, never once a token. It takes no more rows than the terminal
has: what runs comes first, then what failed, then what finished last; the rest is counted in one line. Every text that
comes from a model, a tool or a file is escaped first and never read as markup.
"""

from __future__ import annotations

from collections.abc import Callable

from rich.cells import cell_len, set_cell_size
from rich.console import Console, ConsoleOptions, RenderResult
from rich.segment import Segment
from rich.text import Text

from agentrt.cli.printable import limit, one_line, preview, seconds
from agentrt.cli.progress import ActionProgress, RunProgress
from agentrt.run.state import ActionState

FRAMES_PER_SECOND = 8

_SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_ASCII_SPINNER = "|/-\\"
_GLYPHS = {
    ActionState.PENDING: ("·", ".", "dim"),
    ActionState.READY: ("·", ".", "dim"),
    ActionState.SUCCEEDED: ("✓", "+", "green"),
    ActionState.FAILED: ("✗", "x", "bold red"),
    ActionState.SKIPPED: ("–", "-", "dim"),
    ActionState.CANCELLED: ("■", "#", "yellow"),
}
_TIME_WIDTH = 7
_MAX_NAME_WIDTH = 24


def glyph(state: ActionState, *, ascii_only: bool) -> Text:
    """Return the mark and colour of a state, one cell wide."""
    unicode_mark, ascii_mark, style = _GLYPHS[state]
    return Text(ascii_mark if ascii_only else unicode_mark, style)


class LiveView:
    """A rich renderable of a run; ``elapsed_s`` tells the seconds since the run began."""

    def __init__(self, progress: RunProgress, elapsed_s: Callable[[], float]) -> None:
        self._progress = progress
        self._elapsed_s = elapsed_s

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        elapsed_s = self._elapsed_s()
        # The terminal echoes ^C behind the last line; with no room left there it would move the picture down.
        width, height = max(8, options.max_width - 2), max(4, options.size.height - 1)
        lines = [self._header(elapsed_s, width, options.ascii_only)]
        actions, num_hidden = _most_telling(list(self._progress.actions.values()), height - 2)
        name_width = min(_MAX_NAME_WIDTH, max((cell_len(one_line(a.name)) for a in actions), default=0))
        lines += [_row(action, elapsed_s, name_width, width, options.ascii_only) for action in actions]
        if num_hidden:
            lines.append(Text(f"    and {num_hidden} more: {self._counts()}", "dim"))
        for line in lines:
            line.truncate(width, overflow="crop" if options.ascii_only else "ellipsis")
            yield from line.render(console)
            yield Segment.line()

    def _header(self, elapsed_s: float, width: int, ascii_only: bool) -> Text:
        progress = self._progress
        name = one_line(progress.dag) if progress.dag else "starting"
        header = Text(no_wrap=True, end="").append(name, "bold").append(f"  {seconds(elapsed_s)}")
        limits = [("SLO p99", progress.slo_p99_s), ("deadline", progress.deadline_s)]
        known = [(label, value) for label, value in limits if value is not None]
        for label, value in known:
            style = "red" if elapsed_s > value else "dim"
            header.append(" | " if ascii_only else " · ", "dim").append(f"{label} {limit(value)}", style)
        bar_width = min(24, width - header.cell_len - 2)
        if known and bar_width >= 8:
            share = elapsed_s / known[0][1]
            filled = min(bar_width, round(bar_width * share))
            style = "green" if share <= 0.8 else "yellow" if share <= 1 else "red"
            header.append("  ").append(("#" if ascii_only else "━") * filled, style)
            header.append(("-" if ascii_only else "─") * (bar_width - filled), "bright_black")
        return header

    def _counts(self) -> str:
        states = [action.state for action in self._progress.actions.values()]
        return ", ".join(f"{states.count(state)} {state.value}" for state in ActionState if state in states)


def _most_telling(actions: list[ActionProgress], max_rows: int) -> tuple[list[ActionProgress], int]:
    """Choose what to show when there are more actions than rows; kept in the order they were declared."""
    if len(actions) <= max_rows:
        return actions, 0
    by_interest = sorted(range(len(actions)), key=lambda index: (_interest(actions[index]), index))
    shown = sorted(by_interest[: max(1, max_rows - 1)])
    return [actions[index] for index in shown], len(actions) - len(shown)


def _interest(action: ActionProgress) -> tuple[int, float]:
    match action.state:
        case ActionState.RUNNING:
            return 0, 0.0
        case ActionState.FAILED:
            return 1, 0.0
        case ActionState.SUCCEEDED | ActionState.CANCELLED if action.started_s is not None:
            return 2, -action.started_s
        case ActionState.PENDING | ActionState.READY:
            return 3, 0.0
        case _:
            return 4, 0.0


def _row(action: ActionProgress, elapsed_s: float, name_width: int, width: int, ascii_only: bool) -> Text:
    line = Text(no_wrap=True, end="").append("  ")
    if action.state is ActionState.RUNNING:
        spinner = _ASCII_SPINNER if ascii_only else _SPINNER
        line.append(spinner[int(elapsed_s * FRAMES_PER_SECOND) % len(spinner)], "cyan")
    else:
        line.append_text(glyph(action.state, ascii_only=ascii_only))
    line.append(f" {set_cell_size(one_line(action.name), name_width)} ")
    line.append(f"{_time_of(action, elapsed_s):>{_TIME_WIDTH}}  ", "dim")
    room = width - line.cell_len
    text, style = _text_of(action, ascii_only, room)
    return line.append(text, style)


def _time_of(action: ActionProgress, elapsed_s: float) -> str:
    if action.result is not None:
        return "" if action.result.duration_s is None else seconds(action.result.duration_s)
    return "" if action.started_s is None else seconds(max(0.0, elapsed_s - action.started_s))


def _text_of(action: ActionProgress, ascii_only: bool, room: int) -> tuple[str, str]:
    """Return what to say about an action in ``room`` cells, and its style."""
    result = action.result
    if result is not None:
        if result.status is ActionState.SUCCEEDED:
            return preview(result.output, max_chars=max(8, room)), ""
        if result.status is ActionState.FAILED:
            return one_line(str(result.error)), "red"
        return one_line(f"{result.status.value}: {result.reason}" if result.reason else result.status.value), "dim"
    if action.note is not None:
        return one_line(action.note), "yellow"
    if action.state is ActionState.RUNNING:
        return _end_of(one_line(action.tail.lstrip()), room, "..." if ascii_only else "…"), ""
    return "waiting", "dim"


def _end_of(text: str, room: int, ellipsis: str) -> str:
    """Return the end of ``text`` that fits in ``room`` cells."""
    if cell_len(text) <= room:
        return text
    room -= cell_len(ellipsis)
    start = len(text)
    while start > 0 and room >= (cells := cell_len(text[start - 1])):
        start -= 1
        room -= cells
    return ellipsis + text[start:]
