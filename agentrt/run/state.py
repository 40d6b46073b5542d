"""The life of an action: its states and the legal moves between them, in one table.

pending ──> ready ──> running ──> succeeded
 │ │ │        │        │   └────> failed
 │ │ │        └────────┴────────> cancelled
 │ │ └──────────────────────────> cancelled
 │ └────────────────────────────> skipped
 └──────────────────────────────> failed      (its guard could not be evaluated)
"""

from __future__ import annotations

import enum


class ActionState(enum.StrEnum):
    PENDING = "pending"
    """Waits for another action."""
    READY = "ready"
    """Everything it waits for is there; waits for a free place to run."""
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    SKIPPED = "skipped"
    """Its guard did not hold, or something it depends on was skipped."""
    CANCELLED = "cancelled"
    """The run ended first: another action failed, the deadline passed, or the caller went away."""

    @property
    def is_final(self) -> bool:
        return not MOVES[self]


MOVES: dict[ActionState, frozenset[ActionState]] = {
    ActionState.PENDING: frozenset({ActionState.READY, ActionState.SKIPPED, ActionState.CANCELLED, ActionState.FAILED}),
    ActionState.READY: frozenset({ActionState.RUNNING, ActionState.CANCELLED}),
    ActionState.RUNNING: frozenset({ActionState.SUCCEEDED, ActionState.FAILED, ActionState.CANCELLED}),
    ActionState.SUCCEEDED: frozenset(),
    ActionState.FAILED: frozenset(),
    ActionState.SKIPPED: frozenset(),
    ActionState.CANCELLED: frozenset(),
}
