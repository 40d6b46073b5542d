"""What is said when a run has ended."""

from __future__ import annotations

import io

import pytest
from rich.cells import cell_len
from rich.console import Console

from agentrt.cli.summary import print_finished, print_outputs, print_time_spent
from agentrt.run.events import ActionResult, RunResult, RunStatus
from agentrt.run.state import ActionState
from agentrt.trace.token_timing import TokenTiming

ACTIONS = (
    ActionResult(
        "classify", ActionState.SUCCEEDED, "billing", num_attempts=1, started_s=0.0, duration_s=0.5,
        tokens=TokenTiming(4, 0.3, 0.05, 0.06),
    ),
    ActionResult("reply", ActionState.SUCCEEDED, "a\nb", num_attempts=1, started_s=0.5, duration_s=1.5),
    ActionResult("escalate", ActionState.SKIPPED, reason="its condition does not hold: " + "x" * 200),
)  # fmt: skip


def result(**changes: object) -> RunResult:
    fields = {"run_id": "r1", "dag": "d", "status": RunStatus.SUCCEEDED, "outputs": {}, "duration_s": 2.0}
    return RunResult(**{**fields, "actions": ACTIONS, "trace_id": "t", **changes})  # type: ignore[arg-type]


def times(shown: RunResult, width: int, *, encoding: str = "utf-8") -> list[str]:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding=encoding)
    console = Console(file=stream, width=width, color_system=None, markup=False, highlight=False, emoji=False)
    print_time_spent(shown, console)
    stream.flush()
    return raw.getvalue().decode().splitlines()


def outputs(**values: object) -> str:
    stream = io.StringIO()
    print_outputs(result(outputs=values), stream)
    return stream.getvalue()


def test_outputs_are_one_a_line_and_long_ones_indented() -> None:
    """A text of several lines stands under its name; what was skipped says so; a value is JSON."""
    text = outputs(category="billing", answer="Dear you,\n\nyes.\n", note=None, hits=[{"id": 1}])
    assert text == 'category: billing\nanswer:\n  Dear you,\n\n  yes.\nnote: (none)\nhits: [{"id": 1}]\n'


def test_outputs_cannot_control_the_terminal() -> None:
    """Escapes in a model's answer are shown, not obeyed."""
    assert outputs(answer="\x1b]0;title\x07 [red]x[/]") == "answer: \\x1b]0;title\\x07 [red]x[/]\n"


def test_bars_stand_on_one_time_axis() -> None:
    """An action's bar begins where it began and is as long as it took; the wait for the first token is lighter."""
    head, classify, reply, *_ = times(result(), 100)
    axis = head[head.index("0") : head.index("2.00s") + 5]
    begins = head.index("0")
    assert reply.index("█") - begins == len(axis) // 4
    assert classify[begins] == "░"
    assert reply.count("█") > 2 * (classify.count("█") + classify.count("░"))


def test_figures_of_model_calls_stand_apart() -> None:
    """Tokens, TTFT and mean ITL have columns of their own."""
    head, classify, *_ = times(result(), 100)
    assert head.split()[-3:] == ["tokens", "TTFT", "ITL"]
    assert classify.split()[-3:] == ["4", "0.30s", "50ms"]


@pytest.mark.parametrize("width", [34, 40, 60, 80, 100, 200])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    """Bars and figures give way on a narrow terminal; a long reason is cut."""
    *lines, verdict = times(result(), width)
    assert all(cell_len(line) <= width for line in lines)
    assert len(lines) == 1 + len(ACTIONS)
    assert "succeeded in 2.00s" in verdict


def test_ascii_terminals_get_ascii() -> None:
    """No mark or bar needs a letter that the terminal lacks."""
    assert "\n".join(times(result(), 80, encoding="ascii")).isascii()


@pytest.mark.parametrize(("slo_p99_s", "verdict"), [(3.0, "within its SLO of 3s"), (1.0, "over its SLO of 1s")])
def test_the_verdict_tells_the_slo(slo_p99_s: float, verdict: str) -> None:
    """The last line says whether the run kept its SLO and how to see more."""
    assert times(result(slo_p99_s=slo_p99_s), 100)[-1] == f"succeeded in 2.00s, {verdict} · agentrt trace show r1"


def test_a_run_without_a_trace_points_at_none() -> None:
    """Nothing is recommended that is not there."""
    assert times(result(trace_id=None), 100)[-1] == "succeeded in 2.00s"


def test_what_had_finished_before_a_failure_is_shown() -> None:
    """A failed or interrupted run does not lose the work that was done."""
    stream = io.StringIO()
    console = Console(file=stream, width=80, color_system=None, markup=False, highlight=False, emoji=False)
    print_finished(result(status=RunStatus.CANCELLED), console)
    assert stream.getvalue() == "finished before the end:\nclassify: billing\nreply:\n  a\n  b\n\n"
    print_finished(result(), console)
    assert stream.getvalue().count("finished") == 1
