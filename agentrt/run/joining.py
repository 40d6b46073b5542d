"""When an action begins, by its join: a pure decision over how its incoming edges stand."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from agentrt.declare.policy import Join


class Decision(enum.Enum):
    WAIT = "wait"
    BEGIN = "begin"
    SKIP = "skip"


@dataclass(slots=True)
class Arrivals:
    """The incoming edges of one action: how many are still open, live and dead. Their sum never changes."""

    num_open: int
    num_live: int = 0
    num_dead: int = 0

    def settle(self, *, is_live: bool) -> None:
        assert self.num_open > 0, "an edge settles once"
        self.num_open -= 1
        self.num_live += is_live
        self.num_dead += not is_live

    def decide(self, join: Join) -> Decision:
        """Say whether the action begins now, never, or not yet."""
        if join.waits_for_all and self.num_open > 0:
            return Decision.WAIT
        num_wanted = join.num_wanted(self.num_open + self.num_live + self.num_dead)
        if self.num_live >= num_wanted:
            return Decision.BEGIN
        return Decision.SKIP if self.num_live + self.num_open < num_wanted else Decision.WAIT
