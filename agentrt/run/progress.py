"""Where one action of a running Dag stands, from pending to its result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from agentrt.declare.action import Action
from agentrt.errors import AgentrtError
from agentrt.run.events import ActionResult
from agentrt.run.state import MOVES, ActionState
from agentrt.trace.token_timing import TokenTiming


@dataclass(slots=True)
class Progress:
    """Mutable; owned by one Execution. ``num_waiting`` counts the dependencies that have not ended. Times are those of
    ``anyio.current_time``."""

    action: Action
    num_waiting: int
    state: ActionState = ActionState.PENDING
    output: Any = None
    error: AgentrtError | None = None
    reason: str | None = None
    num_attempts: int = 0
    began: float | None = None
    ended: float | None = None
    tokens: TokenTiming | None = None

    def move(self, state: ActionState) -> None:
        assert state in MOVES[self.state], f"{self.action.name}: {self.state} -> {state} is no legal move"
        self.state = state

    @property
    def is_done(self) -> bool:
        """Whether those that depend on it can go on."""
        return self.state in (ActionState.SUCCEEDED, ActionState.SKIPPED)

    def result(self, run_began: float) -> ActionResult:
        began, ended = self.began, self.ended
        return ActionResult(
            name=self.action.name,
            status=self.state,
            output=self.output,
            error=self.error,
            reason=self.reason,
            num_attempts=self.num_attempts,
            started_s=None if began is None else began - run_began,
            duration_s=None if began is None or ended is None else ended - began,
            tokens=self.tokens,
        )
