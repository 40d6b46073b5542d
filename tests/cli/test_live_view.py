"""The live view: fits the terminal, shows what matters, and reads nothing as markup."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from agentrt.cli.live import LiveView
from agentrt.cli.progress import RunProgress
from agentrt.errors import ModelOverloadedError
from agentrt.run.events import (
    ActionFinished,
    ActionResult,
    ActionRetrying,
    ActionStarted,
    ActionToken,
    RunEvent,
    RunStarted,
)
from agentrt.run.state import ActionState


def started(*actions: str, deadline_s: float | None = None, slo_p99_s: float | None = None) -> RunStarted:
    return RunStarted("r", "support", actions, None, deadline_s, slo_p99_s)


def finished(name: str, status: ActionState = ActionState.SUCCEEDED, output: object = None) -> ActionFinished:
    return ActionFinished(ActionResult(name, status, output, started_s=0.0, duration_s=0.5), 0.5)


def drawn(events: list[RunEvent], *, width: int = 80, height: int = 20, at_s: float = 1.0, utf8: bool = True) -> str:
    progress = RunProgress()
    for event in events:
        progress.apply(event)
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="utf-8" if utf8 else "ascii", newline="\n")
    console = Console(
        file=stream, width=width, height=height, color_system=None, force_terminal=True, markup=False, highlight=False
    )
    console.print(LiveView(progress, lambda: at_s))
    stream.flush()
    return raw.getvalue().decode()


def test_a_running_action_shows_the_end_of_its_answer() -> None:
    """The newest tokens are what a reader follows; the beginning gives way."""
    text = drawn([started("reply"), ActionStarted("reply", 1, 0.0), ActionToken("reply", "word " * 100 + "END")])
    assert "…" in text
    assert "END\n" in text


def test_each_state_has_its_mark() -> None:
    """Running, finished, failed, skipped, cancelled and waiting actions can be told apart without colours."""
    states = [ActionState.SUCCEEDED, ActionState.FAILED, ActionState.SKIPPED, ActionState.CANCELLED]
    names = [state.value for state in states]
    events: list[RunEvent] = [started(*names, "waits", "runs"), ActionStarted("runs", 1, 0.0)]
    events += [finished(state.value, state) for state in states]
    marks = {line.split()[1]: line.split()[0] for line in drawn(events).splitlines()[1:]}
    assert len(set(marks.values())) == 6
    assert marks["succeeded"] == "✓"


def test_elapsed_time_stands_beside_slo_and_deadline() -> None:
    """The header says how long the run has taken and what it may take."""
    header = drawn([started("a", slo_p99_s=2.0, deadline_s=5.0)], at_s=1.5).splitlines()[0]
    assert header.startswith("support  1.50s · SLO p99 2s · deadline 5s")


def test_a_retry_says_why_and_drops_the_void_tokens() -> None:
    """Tokens of a failed attempt are no part of the answer."""
    error = ModelOverloadedError("come back later")
    text = drawn(
        [started("a"), ActionStarted("a", 1, 0.0), ActionToken("a", "void"), ActionRetrying("a", 1, error, 0.5)]
    )
    assert "attempt 1 failed, again in 0.50s: come back later" in text
    assert "void" not in text


def test_text_of_others_is_neither_markup_nor_control() -> None:
    """Names, tokens and outputs are shown as they are, with escapes made visible."""
    nasty = "[bold red]x[/] :smile: \x1b[2J\x07 [link=http://a]"
    text = drawn([started("a", "b"), ActionStarted("a", 1, 0.0), ActionToken("a", nasty), finished("b", output=nasty)])
    assert text.count(r"[bold red]x[/] :smile: \x1b[2J\x07 [link=http://a]") == 2
    assert "\x1b" not in text
    assert "\x07" not in text


def test_more_actions_than_rows_are_counted() -> None:
    """What runs and what failed is always shown; the rest is told in numbers."""
    names = [f"a{number}" for number in range(50)]
    events: list[RunEvent] = [started(*names), ActionStarted("a49", 1, 0.0), finished("a40", ActionState.FAILED)]
    lines = drawn(events, height=10).splitlines()
    assert len(lines) <= 9
    assert any("a49" in line for line in lines)
    assert any("a40" in line for line in lines)
    assert "more: 48 pending, 1 running, 1 failed" in lines[-1]


def test_a_terminal_without_unicode_gets_ascii() -> None:
    """Marks, bar and ellipsis have a form in ASCII."""
    events: list[RunEvent] = [started("a", "b", slo_p99_s=2.0), ActionStarted("a", 1, 0.0), finished("b")]
    events.append(ActionToken("a", "x" * 500))
    assert drawn(events, utf8=False).isascii()


@given(
    st.lists(st.text(st.characters(codec="utf-8"), min_size=1), min_size=1, max_size=30, unique=True),
    st.text(st.characters(codec="utf-8")),
    st.integers(20, 120),
    st.integers(4, 40),
)
def test_the_view_never_leaves_its_terminal(names: list[str], text: str, width: int, height: int) -> None:
    """Whatever names and tokens there are, no line is too long and no row too many."""
    events: list[RunEvent] = [started(*names, slo_p99_s=3.0), ActionStarted(names[0], 1, 0.0)]
    events += [ActionToken(names[0], text), finished(names[-1], output=text)]
    lines = drawn(events, width=width, height=height).split("\n")
    assert len(lines) <= max(5, height)
    assert all(cell_len(line) <= width for line in lines)


@pytest.mark.parametrize("num_tokens", [1, 1000])
def test_progress_keeps_a_bounded_end(num_tokens: int) -> None:
    """A long answer costs no more memory than a short one."""
    progress = RunProgress()
    progress.apply(started("a"))
    for _ in range(num_tokens):
        progress.apply(ActionToken("a", "0123456789"))
    assert progress.actions["a"].num_tokens == num_tokens
    assert len(progress.actions["a"].tail) == min(10 * num_tokens, 400)
