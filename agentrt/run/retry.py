"""When an action is tried again, and after how long. Pure: randomness is passed in.

Waits grow by a factor of two with full jitter (Brooker, "Exponential Backoff and Jitter"): many runs that failed together
must not come back together. A server that says when to come back is believed.
"""

from __future__ import annotations

from agentrt.declare.policy import RetryCause, RetryPolicy
from agentrt.errors import (
    AgentrtError,
    ModelConnectionError,
    ModelOverloadedError,
    ModelStreamError,
    TimeoutExpiredError,
)


def cause_of(error: AgentrtError) -> RetryCause:
    """Name the kind of failure ``error`` is."""
    match error:
        case TimeoutExpiredError():
            return RetryCause.TIMEOUT
        case ModelConnectionError() | ModelStreamError():
            return RetryCause.CONNECTION
        case ModelOverloadedError():
            return RetryCause.OVERLOADED
    return RetryCause.ERROR


def wait_before_retry_s(policy: RetryPolicy, *, num_failed: int, error: AgentrtError, uniform: float) -> float | None:
    """Return how long to wait before the next attempt, or None when there is none.

    ``num_failed``: attempts that failed so far, at least 1. ``uniform``: a draw from [0, 1).
    """
    if num_failed >= policy.attempts:
        return None
    if RetryCause.ERROR not in policy.on and cause_of(error) not in policy.on:
        return None
    # 2.0 ** 1024 overflows; by then the ceiling has been reached long ago.
    ceiling_s = min(policy.max_backoff_s, policy.backoff_s * 2.0 ** min(num_failed - 1, 64))
    wait_s = ceiling_s * uniform
    if isinstance(error, ModelOverloadedError) and error.retry_after_s is not None:
        wait_s = max(wait_s, error.retry_after_s)
    return wait_s
