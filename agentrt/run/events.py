"""What happens in a run, as a stream of events, and what is left of it at the end.

The executor emits these in the order they happen; the CLI draws them, the API streams them. Times are seconds since the
run began.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agentrt.errors import AgentrtError
from agentrt.run.state import ActionState
from agentrt.trace.token_timing import TokenTiming


class RunStatus(enum.StrEnum):
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    DEADLINE_EXCEEDED = "deadline_exceeded"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class ActionResult:
    name: str
    status: ActionState
    output: Any = None
    error: AgentrtError | None = None
    reason: str | None = None
    """Why it was skipped or cancelled, or what its fallback stands in for, in words."""
    num_attempts: int = 0
    started_s: float | None = None
    duration_s: float | None = None
    """From the start of its first attempt to its end, waits between attempts included; None when it never began."""
    tokens: TokenTiming | None = None


@dataclass(frozen=True, slots=True)
class RunResult:
    run_id: str
    dag: str
    status: RunStatus
    outputs: Mapping[str, Any]
    """Empty unless the run succeeded; an output whose action was skipped is None."""
    duration_s: float
    actions: tuple[ActionResult, ...]
    """In the order the Dag declares them; what had finished before a failure keeps its output."""
    trace_id: str | None = None
    error: AgentrtError | None = None
    slo_p99_s: float | None = None

    def action(self, name: str) -> ActionResult:
        for action in self.actions:
            if action.name == name:
                return action
        raise KeyError(name)


@dataclass(frozen=True, slots=True)
class RunStarted:
    run_id: str
    dag: str
    actions: tuple[str, ...]
    trace_id: str | None
    deadline_s: float | None
    slo_p99_s: float | None


@dataclass(frozen=True, slots=True)
class ActionStarted:
    action: str
    attempt: int
    at_s: float
    item: int | None = None
    """Which item of a ``for_each``."""


@dataclass(frozen=True, slots=True)
class ActionToken:
    action: str
    text: str
    item: int | None = None


@dataclass(frozen=True, slots=True)
class ActionRetrying:
    """An attempt failed and another follows after ``wait_s``; tokens streamed by the failed one are void."""

    action: str
    attempt: int
    error: AgentrtError
    wait_s: float
    item: int | None = None


@dataclass(frozen=True, slots=True)
class ActionFinished:
    """Succeeded, failed, skipped or cancelled: an action's last event."""

    result: ActionResult
    at_s: float


@dataclass(frozen=True, slots=True)
class RunFinished:
    result: RunResult


RunEvent = RunStarted | ActionStarted | ActionToken | ActionRetrying | ActionFinished | RunFinished
