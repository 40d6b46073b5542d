"""One execution of a Plan: an action starts the moment its last input is there.

Policy. There is no loop that polls and there are no supersteps: every action counts what it still waits for, and whoever
takes the last of these away starts it. The task that finished an action goes on with its first ready child itself, so a
chain costs no task switch; only the other children get tasks of their own. All tasks live in one task group inside one
cancel scope that carries the run's deadline, so nothing outlives the run.

What ends a run early: an action that failed for good (the others are cancelled; what had finished keeps its output), the
deadline, or the caller's cancellation, which is recorded and passed on, never swallowed.

Skipping: an action whose guard does not hold is skipped, and so is every action that depends on a skipped one. In the
Dag's outputs a skipped action's output is None.

Time is ``anyio.current_time``, so a test may run a whole Dag in virtual time.
"""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

import anyio

from agentrt.compile.plan import Plan
from agentrt.declare.action import Action, RetryPolicy, ToolCall
from agentrt.errors import ActionError, AgentrtError, DeadlineError, ModelError, RunError, TimeoutExpiredError
from agentrt.run.attempt import Attempt, Caller
from agentrt.run.events import (
    ActionFinished,
    ActionRetrying,
    ActionStarted,
    ActionToken,
    RunEvent,
    RunFinished,
    RunResult,
    RunStarted,
    RunStatus,
)
from agentrt.run.progress import Progress
from agentrt.run.retry import wait_before_retry_s
from agentrt.run.state import ActionState
from agentrt.trace.spans import ActionSpan, RunSpan

_NO_RETRY = RetryPolicy(attempts=1)


class Execution:
    """One execution of a Plan. Call ``run`` once.

    ``slots`` limits how many attempts run at the same time; it may be shared by many executions. ``emit`` is called
    with each event as it happens and must not block. ``uniform`` draws from [0, 1) for the jitter of retries.
    """

    def __init__(
        self,
        plan: Plan,
        inputs: Mapping[str, Any],
        *,
        run_id: str,
        deadline_s: float | None,
        caller: Caller,
        slots: anyio.Semaphore,
        span: RunSpan,
        emit: Callable[[RunEvent], None],
        uniform: Callable[[], float] = random.random,
    ) -> None:
        self._plan = plan
        self._run_id = run_id
        self._deadline_s = deadline_s
        self._caller = caller
        self._slots = slots
        self._span = span
        self._emit = emit
        self._uniform = uniform
        self._progress = {
            name: Progress(action, num_waiting=len(plan.parents[name])) for name, action in plan.dag.actions.items()
        }
        self._outcomes: dict[str, Mapping[str, Any]] = {}
        self._scope: Mapping[str, Any] = {"inputs": inputs, "actions": self._outcomes}
        self._failure: RunError | None = None
        self._first_cancelled: Progress | None = None
        self._cut_short_by = ""
        self._began = 0.0
        self._deadline = math.inf

    async def run(self) -> RunResult:
        """Execute to the end and return the result, whatever the run's fate.

        Cancelled from outside, it emits the RunFinished event with what was done so far and lets the cancellation pass.
        """
        self._began = anyio.current_time()
        if self._deadline_s is not None:
            self._deadline = self._began + self._deadline_s
        self._emit(
            RunStarted(
                self._run_id,
                self._plan.dag.name,
                tuple(self._progress),
                self._span.trace_id,
                self._deadline_s,
                self._plan.dag.slo.p99_s,
            )
        )
        try:
            with anyio.CancelScope(deadline=self._deadline) as self._cancel_scope:
                await self._run_actions()
        except BaseException as error:
            # Cancelled by the caller, or a fault of our own: either way the trace and the events must be complete.
            is_fault = isinstance(error, Exception) and not isinstance(error, anyio.get_cancelled_exc_class())
            self._cut_short_by = "agentrt itself failed" if is_fault else "the run was cancelled"
            self._finish(RunStatus.FAILED if is_fault else RunStatus.CANCELLED, None, cause=error)
            raise
        status, failure = self._verdict()
        return self._finish(status, failure, cause=failure)

    async def _run_actions(self) -> None:
        try:
            async with anyio.create_task_group() as self._tasks:
                ready = [name for name, progress in self._progress.items() if progress.num_waiting == 0]
                self._start_all(self._admit_all(ready))
        except BaseExceptionGroup as group:
            # Actions never raise: what arrives here is an interrupt, or a fault of our own. Show it as it is.
            raise _first_leaf(group) from None

    # -- moving through the graph

    def _admit_all(self, names: list[str]) -> list[str]:
        """Settle the guards of actions that wait for nothing any more; return those that may run.

        A skipped action counts as gone for its children at once, so they are settled here as well.
        """
        ready: list[str] = []
        queue = deque(names)
        while queue and self._failure is None:
            name = queue.popleft()
            if self._admit(name):
                ready.append(name)
            else:
                queue.extend(self._released_by(name))
        return ready

    def _admit(self, name: str) -> bool:
        progress = self._progress[name]
        skipped = next((p for p in self._plan.parents[name] if self._progress[p].state is ActionState.SKIPPED), None)
        if skipped is not None:
            self._skip(progress, f"{skipped!r}, which it depends on, was skipped")
            return False
        guard = progress.action.guard
        if guard is not None:
            try:
                holds = guard.holds(self._scope)
            except AgentrtError as error:
                self._fail(progress, error, span=self._open_span(progress.action))
                return False
            if not holds:
                self._skip(progress, f"its condition does not hold: {guard.source}")
                return False
        progress.move(ActionState.READY)
        return True

    def _released_by(self, name: str) -> list[str]:
        """Count ``name`` as gone; return the actions that now wait for nothing."""
        released = []
        for child in self._plan.children[name]:
            progress = self._progress[child]
            progress.num_waiting -= 1
            if progress.num_waiting == 0:
                released.append(child)
        return released

    def _start_all(self, names: list[str]) -> None:
        for name in names:
            self._tasks.start_soon(self._carry_on_from, name)

    async def _carry_on_from(self, name: str) -> None:
        """Perform an action, then its first ready child, and so on down the chain; others get their own task."""
        while await self._perform(self._progress[name]):
            ready = self._admit_all(self._released_by(name))
            if not ready:
                return
            name, *others = ready
            self._start_all(others)

    # -- one action

    async def _perform(self, progress: Progress) -> bool:
        """Run an action with its retries; return whether it succeeded."""
        action = progress.action
        span: ActionSpan | None = None
        try:
            async with self._slots:
                progress.move(ActionState.RUNNING)
                progress.began = anyio.current_time()
                span = self._open_span(action)
                error = await self._attempt(progress, span)
            while error is not None:
                wait_s = wait_before_retry_s(
                    action.retry or _NO_RETRY,
                    num_failed=progress.num_attempts,
                    error=error,
                    uniform=self._uniform(),
                )
                # A retry that cannot begin before the deadline only hides the reason of the failure.
                if wait_s is None or anyio.current_time() + wait_s >= self._deadline:
                    self._fail(progress, error, span=span)
                    return False
                span.attempt_failed(progress.num_attempts, error, wait_s)
                self._emit(ActionRetrying(action.name, progress.num_attempts, error, wait_s))
                await anyio.sleep(wait_s)
                async with self._slots:
                    error = await self._attempt(progress, span)
        except BaseException as error:
            if self._first_cancelled is None:
                self._first_cancelled = progress
            # One that still waits for its slot is settled when the run ends.
            if progress.state is ActionState.RUNNING:
                self._cancel(progress, error, span)
            raise
        self._settle(progress, ActionState.SUCCEEDED)
        span.end(status=ActionState.SUCCEEDED.value)
        return True

    async def _attempt(self, progress: Progress, span: ActionSpan) -> AgentrtError | None:
        """Try once. Stores the output and returns None, or returns why it failed."""
        action = progress.action
        now = anyio.current_time()
        expires = min(self._deadline, math.inf if action.timeout_s is None else now + action.timeout_s)
        progress.num_attempts += 1
        self._emit(ActionStarted(action.name, progress.num_attempts, now - self._began))
        attempt = Attempt(
            scope=self._scope,
            span=span,
            remaining_s=None if expires == math.inf else max(0.0, expires - now),
            on_token=lambda text: self._emit(ActionToken(action.name, text)),
        )
        try:
            with anyio.move_on_after(action.timeout_s):
                progress.output = await self._caller.call(action, attempt)
                return None
        except ModelError as error:
            # The model had the same limit as we have and may notice first that it passed.
            if action.timeout_s is not None and anyio.current_time() >= now + action.timeout_s:
                expired = TimeoutExpiredError(action.timeout_s)
                expired.__cause__ = error
                return expired
            return error
        except AgentrtError as error:
            return error
        finally:
            progress.tokens = attempt.tokens
        assert action.timeout_s is not None
        return TimeoutExpiredError(action.timeout_s)

    # -- how an action ends

    def _settle(self, progress: Progress, state: ActionState) -> None:
        now = anyio.current_time()
        progress.move(state)
        progress.ended = now
        self._outcomes[progress.action.name] = {"output": progress.output, "status": state.value}
        self._emit(ActionFinished(progress.result(self._began), now - self._began))

    def _skip(self, progress: Progress, reason: str) -> None:
        progress.reason = reason
        self._settle(progress, ActionState.SKIPPED)
        self._open_span(progress.action).end(status=ActionState.SKIPPED.value, reason=reason)

    def _open_span(self, action: Action) -> ActionSpan:
        return self._span.action(
            name=action.name,
            action_type=self._caller.type_of(action).value,
            agent=action.agent,
            tool=action.call.tool if isinstance(action.call, ToolCall) else None,
        )

    def _cancel(self, progress: Progress, error: BaseException | None, span: ActionSpan | None) -> None:
        progress.output = None
        progress.reason = self._reason_to_stop()
        self._settle(progress, ActionState.CANCELLED)
        if span is not None:
            span.end(status=ActionState.CANCELLED.value, error=error, reason=progress.reason)

    def _fail(self, progress: Progress, error: AgentrtError, *, span: ActionSpan) -> None:
        """Record an action that failed for good and stop the others, unless the deadline is the real reason."""
        action = progress.action
        if anyio.current_time() >= self._deadline:
            self._cancel(progress, error, span)
            return
        failure = ActionError(action.name, str(error), place=action.place, num_attempts=max(1, progress.num_attempts))
        failure.__cause__ = error
        progress.error = failure
        self._settle(progress, ActionState.FAILED)
        span.end(status=ActionState.FAILED.value, error=error)
        if self._failure is None:
            self._failure = failure
            self._cut_short_by = f"action {action.name!r} failed"
            self._cancel_scope.cancel()

    def _reason_to_stop(self) -> str:
        if self._cut_short_by:
            return self._cut_short_by
        if anyio.current_time() >= self._deadline:
            return "the deadline passed"
        return "the run was cancelled"

    # -- how the run ends

    def _verdict(self) -> tuple[RunStatus, RunError | None]:
        if self._failure is not None:
            return RunStatus.FAILED, self._failure
        unfinished = [p for p in self._progress.values() if not p.is_done]
        if not unfinished:
            return RunStatus.SUCCEEDED, None
        if anyio.current_time() >= self._deadline:
            assert self._deadline_s is not None
            self._cut_short_by = "the deadline passed"
            return RunStatus.DEADLINE_EXCEEDED, DeadlineError(self._deadline_s, [p.action.name for p in unfinished])
        # Nobody cancelled the run, yet an action ended cancelled: its own code raised the cancellation.
        culprit = self._first_cancelled
        assert culprit is not None
        self._cut_short_by = f"action {culprit.action.name!r} cancelled itself"
        return RunStatus.FAILED, ActionError(
            culprit.action.name,
            "it was cancelled by its own code, not by the run",
            place=culprit.action.place,
            num_attempts=culprit.num_attempts,
        )

    def _finish(self, status: RunStatus, failure: RunError | None, *, cause: BaseException | None) -> RunResult:
        for progress in self._progress.values():
            if not progress.state.is_final:
                self._cancel(progress, None, None)
        outputs: dict[str, Any] = {}
        if status is RunStatus.SUCCEEDED:
            try:
                for name, template in self._plan.dag.outputs.items():
                    outputs[name] = template.render(self._scope)
            except AgentrtError as error:
                status, failure, outputs = RunStatus.FAILED, RunError(f"output {name!r}: {error}"), {}
                failure.__cause__ = cause = error
        result = RunResult(
            run_id=self._run_id,
            dag=self._plan.dag.name,
            status=status,
            outputs=outputs,
            duration_s=anyio.current_time() - self._began,
            actions=tuple(progress.result(self._began) for progress in self._progress.values()),
            trace_id=self._span.trace_id,
            error=failure,
            slo_p99_s=self._plan.dag.slo.p99_s,
        )
        if failure is not None:
            failure.result = result
        self._span.end(status=status.value, error=cause)
        self._emit(RunFinished(result))
        return result


def _first_leaf(group: BaseExceptionGroup[BaseException]) -> BaseException:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
