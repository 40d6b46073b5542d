"""Progress as plain lines, for a log or a pipe: one line an event, tokens left out."""

from __future__ import annotations

from typing import TextIO

from agentrt.cli.printable import limit, one_line, preview, seconds
from agentrt.run.events import (
    ActionFinished,
    ActionResult,
    ActionRetrying,
    ActionStarted,
    RunEvent,
    RunStarted,
)
from agentrt.run.state import ActionState


class PlainLines:
    """Writes each event to ``stream`` as a line like ``0.52s  classify  succeeded in 0.31s  "billing"``."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._name_width = 0

    def show(self, event: RunEvent) -> None:
        match event:
            case RunStarted():
                self._name_width = max((len(one_line(name)) for name in event.actions), default=0)
                self._write(0.0, "run", _run_text(event))
            case ActionStarted():
                again = f" (attempt {event.attempt})" if event.attempt > 1 else ""
                self._write(event.at_s, event.action, f"started{again}")
            case ActionRetrying():
                text = f"attempt {event.attempt} failed, again in {seconds(event.wait_s)}: {event.error}"
                self._write(None, event.action, text)
            case ActionFinished():
                self._write(event.at_s, event.result.name, _result_text(event.result))

    def say(self, text: str) -> None:
        print(one_line(text), file=self._stream, flush=True)

    def leave(self) -> None:
        return

    def _write(self, at_s: float | None, name: str, text: str) -> None:
        time = "" if at_s is None else f"{at_s:.2f}s"
        print(f"{time:>7}  {one_line(name):<{self._name_width}}  {one_line(text)}", file=self._stream, flush=True)


def _run_text(event: RunStarted) -> str:
    num_actions = len(event.actions)
    limits = [f"{num_actions} action{'' if num_actions == 1 else 's'}"]
    if event.slo_p99_s is not None:
        limits.append(f"SLO p99 {limit(event.slo_p99_s)}")
    if event.deadline_s is not None:
        limits.append(f"deadline {limit(event.deadline_s)}")
    return f"{event.dag} {event.run_id}: {', '.join(limits)}"


def _result_text(result: ActionResult) -> str:
    took = "" if result.duration_s is None else f" in {seconds(result.duration_s)}"
    match result.status:
        case ActionState.SUCCEEDED:
            return f"succeeded{took}  {preview(result.output)}"
        case ActionState.FAILED:
            return f"failed{took}: {result.error}"
        case _:
            return f"{result.status.value}{took}" + (f": {result.reason}" if result.reason else "")
