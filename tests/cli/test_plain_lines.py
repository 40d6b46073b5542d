"""Progress in a log."""

from __future__ import annotations

import io

from agentrt.cli.plain_lines import PlainLines
from agentrt.errors import ActionError, ModelConnectionError
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


def test_every_event_but_tokens_is_one_line() -> None:
    """A log has one printable line an event, whatever the texts hold, and no line a token."""
    failure = ActionError("b", "broke\nbadly \x1b[31m")
    events: list[RunEvent] = [
        RunStarted("r1", "demo", ("a", "b", "long"), None, 20.0, 2.0),
        ActionStarted("a", 1, 0.0),
        ActionToken("a", "token"),
        ActionRetrying("a", 1, ModelConnectionError("refused"), 0.25),
        ActionStarted("a", 2, 0.25),
        ActionFinished(ActionResult("a", ActionState.SUCCEEDED, "x\ny", duration_s=0.5), 0.5),
        ActionFinished(ActionResult("b", ActionState.FAILED, error=failure, duration_s=0.5), 1.0),
        ActionFinished(ActionResult("long", ActionState.CANCELLED, reason="action 'b' failed"), 1.0),
    ]
    stream = io.StringIO()
    lines = PlainLines(stream)
    for event in events:
        lines.show(event)
    assert stream.getvalue().splitlines() == [
        "  0.00s  run   demo r1: 3 actions, SLO p99 2s, deadline 20s",
        "  0.00s  a     started",
        "         a     attempt 1 failed, again in 0.25s: refused",
        "  0.25s  a     started (attempt 2)",
        '  0.50s  a     succeeded in 0.50s  "x y"',
        r"  1.00s  b     failed in 0.50s: action 'b' failed: broke badly \x1b[31m",
        "  1.00s  long  cancelled: action 'b' failed",
    ]
