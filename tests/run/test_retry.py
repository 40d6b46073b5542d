"""The retry policy, pure."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from agentrt.declare.policy import RetryCause, RetryPolicy
from agentrt.errors import (
    AgentrtError,
    ModelConnectionError,
    ModelOverloadedError,
    ModelResponseError,
    ModelStreamError,
    TimeoutExpiredError,
    ToolError,
)
from agentrt.run.retry import cause_of, wait_before_retry_s

ERRORS: dict[RetryCause, list[AgentrtError]] = {
    RetryCause.CONNECTION: [ModelConnectionError("x"), ModelStreamError("x")],
    RetryCause.TIMEOUT: [TimeoutExpiredError(1.0)],
    RetryCause.OVERLOADED: [ModelOverloadedError("x")],
    RetryCause.ERROR: [ToolError("x"), ModelResponseError("x")],
}


def test_each_failure_has_its_cause() -> None:
    """Lost connections, timeouts and overload are told apart; the rest is ``error``."""
    for cause, errors in ERRORS.items():
        for error in errors:
            assert cause_of(error) is cause


policies = st.builds(
    RetryPolicy,
    attempts=st.integers(1, 2000),
    on=st.frozensets(st.sampled_from(RetryCause)),
    backoff_s=st.floats(0, 10),
    max_backoff_s=st.floats(0, 60),
)
errors = st.sampled_from([error for errors in ERRORS.values() for error in errors])
uniforms = st.floats(0, 1, exclude_max=True)


@given(policies, errors, st.integers(1, 5000), uniforms)
def test_waits_are_bounded_and_only_for_what_is_declared(
    policy: RetryPolicy, error: AgentrtError, num_failed: int, uniform: float
) -> None:
    """No wait beyond the ceiling, none after the last attempt, none for a cause that is not declared."""
    wait_s = wait_before_retry_s(policy, num_failed=num_failed, error=error, uniform=uniform)
    declared = RetryCause.ERROR in policy.on or cause_of(error) in policy.on
    assert (wait_s is not None) == (declared and num_failed < policy.attempts)
    if wait_s is not None:
        assert 0 <= wait_s <= policy.max_backoff_s


@given(st.floats(0, 1000), uniforms)
def test_a_server_that_says_when_to_come_back_is_believed(retry_after_s: float, uniform: float) -> None:
    """The wait is never shorter than Retry-After."""
    error = ModelOverloadedError("busy", retry_after_s=retry_after_s)
    wait_s = wait_before_retry_s(RetryPolicy(), num_failed=1, error=error, uniform=uniform)
    assert wait_s is not None
    assert wait_s >= retry_after_s
