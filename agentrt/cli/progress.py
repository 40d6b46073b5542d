"""Where a run stands, told by its events: one small state that every view draws from.

Pure: it takes events and a time and touches nothing else. It keeps what a view needs and no more, so that a run with a
thousand actions and a hundred thousand tokens costs a few kilobytes and no time.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from agentrt.cli.printable import seconds
from agentrt.run.events import (
    ActionFinished,
    ActionResult,
    ActionRetrying,
    ActionStarted,
    ActionToken,
    RunEvent,
    RunFinished,
    RunResult,
    RunStarted,
)
from agentrt.run.state import ActionState

_TAIL_CHARS = 400


@dataclass(slots=True)
class ActionProgress:
    """One action, as far as it is known. ``tail`` is the end of what its model has said so far."""

    name: str
    state: ActionState = ActionState.PENDING
    num_attempts: int = 0
    started_s: float | None = None
    num_tokens: int = 0
    tail: str = ""
    note: str | None = None
    result: ActionResult | None = None


@dataclass(slots=True)
class RunProgress:
    """One run, as far as it is known. ``dag`` is empty before the first event."""

    run_id: str = ""
    dag: str = ""
    trace_id: str | None = None
    deadline_s: float | None = None
    slo_p99_s: float | None = None
    actions: dict[str, ActionProgress] = field(default_factory=dict)
    result: RunResult | None = None

    def apply(self, event: RunEvent) -> None:
        match event:
            case RunStarted():
                self.run_id, self.dag, self.trace_id = event.run_id, event.dag, event.trace_id
                self.deadline_s, self.slo_p99_s = event.deadline_s, event.slo_p99_s
                self.actions = {name: ActionProgress(name) for name in event.actions}
            case ActionStarted():
                action = self.actions[event.action]
                action.state, action.num_attempts = ActionState.RUNNING, event.attempt
                action.started_s = event.at_s if action.started_s is None else action.started_s
                action.note = None
            case ActionToken():
                action = self.actions[event.action]
                action.num_tokens += 1
                action.tail = (action.tail + event.text)[-_TAIL_CHARS:]
            case ActionRetrying():
                action = self.actions[event.action]
                action.num_tokens, action.tail = 0, ""
                action.note = f"attempt {event.attempt} failed, again in {seconds(event.wait_s)}: {event.error}"
            case ActionFinished():
                action = self.actions[event.result.name]
                action.state, action.result = event.result.status, event.result
            case RunFinished():
                self.result = event.result
