"""Where one action of a running Dag stands, from pending to its result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import anyio

from agentrt.declare.action import Action
from agentrt.errors import ActionError
from agentrt.run.events import ActionResult
from agentrt.run.joining import Arrivals
from agentrt.run.state import MOVES, ActionState
from agentrt.trace.token_timing import TokenTiming


@dataclass(slots=True)
class Progress:
    """Mutable; owned by one Execution. Times are those of ``anyio.current_time``."""

    action: Action
    arrivals: Arrivals
    state: ActionState = ActionState.PENDING
    output: Any = None
    error: ActionError | None = None
    reason: str | None = None
    num_attempts: int = 0
    began: float | None = None
    ended: float | None = None
    tokens: TokenTiming | None = None
    fell_back_on: str | None = None
    """Why the fallback stands in, where it does."""
    is_tolerated: bool = False
    """Its failure is not the run's: it is optional, or took part in races alone."""
    is_unneeded: bool = False
    """It lost a race, and nothing else wants its output."""
    scope: Mapping[str, Any] | None = None
    """What it may read, fixed when it begins."""
    cancel_scope: anyio.CancelScope | None = None
    """Around the work of an action that may lose a race."""

    def move(self, state: ActionState) -> None:
        assert state in MOVES[self.state], f"{self.action.name}: {self.state} -> {state} is no legal move"
        self.state = state

    @property
    def is_done(self) -> bool:
        """Whether the run can succeed with it as it is."""
        return (
            self.state in (ActionState.SUCCEEDED, ActionState.SKIPPED)
            or (self.state is ActionState.FAILED and self.is_tolerated)
            or (self.state is ActionState.CANCELLED and self.is_unneeded)
        )

    @property
    def counts_as_live(self) -> bool:
        """Whether those that wait for it may go on, now that it has ended."""
        return self.state is ActionState.SUCCEEDED or (self.action.optional and self.state.is_final)

    @property
    def _reason(self) -> str | None:
        if self.state is ActionState.SUCCEEDED and self.fell_back_on is not None:
            return f"its fallback stands in: {self.fell_back_on}"
        return self.reason

    def result(self, run_began: float) -> ActionResult:
        began, ended = self.began, self.ended
        return ActionResult(
            name=self.action.name,
            status=self.state,
            output=self.output,
            error=self.error,
            reason=self._reason,
            num_attempts=self.num_attempts,
            started_s=None if began is None else began - run_began,
            duration_s=None if began is None or ended is None else ended - began,
            tokens=self.tokens,
        )
