"""One execution of a Plan: an action starts the moment its last input is there.

Policy. There is no loop that polls and there are no supersteps: every action counts what it still waits for, and whoever
takes the last of these away starts it. The task that finished an action goes on with its first ready child itself, so a
chain costs no task switch; only the other children get tasks of their own. All tasks live in one task group inside one
cancel scope that carries the run's deadline, so nothing outlives the run.

What ends a run early: an action that failed for good (the others are cancelled; what had finished keeps its output), the
deadline, or the caller's cancellation, which is recorded and passed on, never swallowed.

Skipping: an action whose guard does not hold is skipped, and so is one whose join its edges can no longer satisfy (see
``JoinKind``). The output of a skipped action is None for whoever reads it. One that lost a race (``first_success``,
``n_of``) is cancelled when nothing else wants it.

Time is ``anyio.current_time``, so a test may run a whole Dag in virtual time.
"""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

import anyio

from agentrt.compile.inputs import bind_inputs
from agentrt.compile.plan import Plan
from agentrt.compile.prune import PruneCause, Pruned
from agentrt.declare.action import Action
from agentrt.declare.call import ToolCall
from agentrt.declare.policy import Effects
from agentrt.errors import ActionError, AgentrtError, DeadlineError, RunError
from agentrt.run.attempt import Caller
from agentrt.run.events import (
    ActionFinished,
    ActionResult,
    RunEvent,
    RunFinished,
    RunResult,
    RunStarted,
    RunStatus,
)
from agentrt.run.joining import Arrivals, Decision
from agentrt.run.progress import Progress
from agentrt.run.shared_state import SharedState
from agentrt.run.state import ActionState
from agentrt.run.work import Work, Workplace
from agentrt.trace.spans import ActionSpan, RunSpan

_NOT_ENDED: Mapping[str, Any] = {"output": None, "status": "pending"}


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
            name: Progress(action, Arrivals(len(plan.incoming[name]))) for name, action in plan.dag.actions.items()
        }
        self._edge_guards = {
            (edge.source, edge.target): edge.guard
            for edges in plan.incoming.values()
            for edge in edges
            if edge.guard is not None
        }
        self._dead_edges: set[tuple[str, str]] = set()
        self._read_by_outputs = {
            reference.name for template in plan.dag.outputs.values() for reference in template.references
        }
        self._has_races = any(not action.join.waits_for_all for action in plan.dag.actions.values())
        self._unit_of = {unit[0]: unit for unit in plan.units}
        self._aliases: dict[str, list[str]] = {}
        self._outcomes: dict[str, Mapping[str, Any]] = {}
        for pruned in plan.pruned:
            if pruned.cause is PruneCause.NEVER_RUNS:
                self._outcomes[pruned.action] = {"output": None, "status": ActionState.SKIPPED.value}
            elif pruned.into is not None:
                self._aliases.setdefault(pruned.into, []).append(pruned.action)
        self._state = SharedState(plan.dag.state)
        self._scope: Mapping[str, Any] = {
            "inputs": inputs,
            "actions": self._outcomes,
            "state": self._state.values,
        }
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
        self._place = Workplace(
            plan=self._plan,
            caller=self._caller,
            slots=self._slots,
            begun=self._began,
            deadline=self._deadline,
            emit=self._emit,
            uniform=self._uniform,
            run_dag=self._run_inner,
        )
        self._emit(
            RunStarted(
                self._run_id,
                self._plan.dag.name,
                tuple(self._plan.declared.actions),
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
                for pruned in self._plan.pruned:
                    self._show_pruned(pruned)
                ready = [name for name, progress in self._progress.items() if progress.arrivals.num_open == 0]
                self._start_all(self._admit_all(ready))
        except BaseExceptionGroup as group:
            # Actions never raise: what arrives here is an interrupt, or a fault of our own. Show it as it is.
            leaf = _first_leaf(group)
            raise leaf from leaf.__cause__

    def _show_pruned(self, pruned: Pruned) -> None:
        """Let events and trace tell of an action that was left out, as of one that was skipped."""
        reason = f"pruned: {pruned.reason}"
        action = self._plan.declared.actions[pruned.action]
        self._emit(ActionFinished(ActionResult(pruned.action, ActionState.SKIPPED, reason=reason), 0.0))
        self._open_span(action).end(status=ActionState.SKIPPED.value, reason=reason)

    # -- moving through the graph

    def _admit_all(self, names: list[str]) -> list[str]:
        """Settle actions whose time has come; return those that may run.

        A skipped action counts as ended for its children at once, so they are settled here as well.
        """
        ready: list[str] = []
        queue = deque(names)
        while queue and self._failure is None:
            name = queue.popleft()
            progress = self._progress[name]
            if progress.state is not ActionState.PENDING:
                continue
            match progress.arrivals.decide(progress.action.join):
                case Decision.WAIT:
                    continue
                case Decision.SKIP:
                    lost = self._failed_racer(name)
                    if lost is not None:
                        # Nobody is left to win the race: the failure that was put up with is the run's after all.
                        self._end_with(lost)
                        break
                    self._skip(progress, self._why_not(name))
                case Decision.BEGIN:
                    if self._admit(progress):
                        ready.append(name)
                        self._drop_losers(name)
                        continue
            if progress.state.is_final:
                queue.extend(self._released_by(name))
        return ready

    def _admit(self, progress: Progress) -> bool:
        """Evaluate the condition of an action whose join is satisfied."""
        guard = progress.action.guard
        if guard is not None:
            try:
                holds = guard.holds(self._scope_of(progress))
            except AgentrtError as error:
                self._fail(progress, error, span=self._open_span(progress.action))
                return False
            if not holds:
                self._skip(progress, f"its condition does not hold: {guard.source}")
                return False
        progress.move(ActionState.READY)
        return True

    def _scope_of(self, progress: Progress) -> Mapping[str, Any]:
        """Return what an action may read. One that does not wait for all its sources sees the late ones as null, however
        late it looks: a retry must not read something else than the first attempt did."""
        if progress.scope is None:
            progress.scope = self._scope
            if not progress.action.join.waits_for_all:
                seen = dict(self._outcomes)
                for edge in self._plan.incoming[progress.action.name]:
                    seen.setdefault(edge.source, _NOT_ENDED)
                progress.scope = {**self._scope, "actions": seen}
        return progress.scope

    def _released_by(self, name: str) -> list[str]:
        """Settle the edges out of an action that has ended; return the actions whose time may have come."""
        progress = self._progress[name]
        if progress.is_unneeded:
            return []
        released = []
        for child_name in self._plan.children[name]:
            child = self._progress[child_name]
            if child.state is not ActionState.PENDING:
                continue
            is_live = progress.counts_as_live
            guard = self._edge_guards.get((name, child_name)) if is_live else None
            if guard is not None:
                try:
                    is_live = guard.holds(self._scope)
                except AgentrtError as error:
                    self._fail(child, error, span=self._open_span(child.action))
                    if child.state.is_final and self._failure is None:
                        released += self._released_by(child_name)
                    continue
            if not is_live:
                self._dead_edges.add((name, child_name))
            child.arrivals.settle(is_live=is_live)
            released.append(child_name)
        return released

    def _why_not(self, name: str) -> str:
        action = self._progress[name].action
        if action.join.waits_for_all and action.join.num_wanted(2) == 2:
            source = next(e.source for e in self._plan.incoming[name] if (e.source, name) in self._dead_edges)
            if self._progress[source].counts_as_live:
                return f"the guard of its edge from {source!r} does not hold: {self._edge_guards[source, name].source}"
            return f"{source!r}, which it depends on, was skipped"
        arrivals, num_edges = self._progress[name].arrivals, len(self._plan.incoming[name])
        num_left = arrivals.num_live + arrivals.num_open
        return f"its join wants {action.join}, and of the {num_edges} actions it waits for {num_left} can come through"

    def _failed_racer(self, name: str) -> ActionError | None:
        """Return the first failure among those who raced for an action that nobody came through to."""
        if self._progress[name].action.join.waits_for_all:
            return None
        sources = (self._progress[edge.source] for edge in self._plan.incoming[name])
        return next((p.error for p in sources if p.error is not None and not p.action.optional), None)

    def _drop_losers(self, name: str) -> None:
        """Cancel what an action that has just begun no longer waits for, where nobody else wants it."""
        if self._progress[name].action.join.waits_for_all:
            return
        queue = [edge.source for edge in self._plan.incoming[name]]
        while queue:
            source = queue.pop()
            progress = self._progress[source]
            if progress.state.is_final or not self._is_unneeded(source):
                continue
            progress.is_unneeded = True
            progress.reason = f"{name!r} began without it"
            if progress.state is ActionState.PENDING:
                self._settle(progress, ActionState.CANCELLED)
                queue += [edge.source for edge in self._plan.incoming[source]]
            elif progress.cancel_scope is not None:
                progress.cancel_scope.cancel()

    def _is_unneeded(self, name: str) -> bool:
        if name in self._read_by_outputs or any(
            alias in self._read_by_outputs for alias in self._aliases.get(name, ())
        ):
            return False
        action = self._progress[name].action
        if action.writes or action.effects is Effects.WRITE:
            return False
        return all(self._progress[child].state is not ActionState.PENDING for child in self._plan.children[name])

    def _start_all(self, names: list[str]) -> None:
        for name in names:
            self._tasks.start_soon(self._carry_on_from, name)

    async def _carry_on_from(self, name: str) -> None:
        """Perform an action, then its first ready child, and so on down the chain; others get their own task."""
        while True:
            unit = self._unit_of.get(name)
            if unit is None:
                await self._perform(self._progress[name])
                ready = self._admit_all(self._released_by(name))
            else:
                ready = await self._perform_unit(unit)
            if not ready:
                return
            name, *others = ready
            self._start_all(others)

    async def _perform_unit(self, unit: tuple[str, ...]) -> list[str]:
        """Perform a chain of cheap actions in one slot; return what became ready at its end.

        The chain ends early where its next action was skipped, or where the run has failed.
        """
        ready: list[str] = []
        async with self._slots:
            for number, name in enumerate(unit, start=1):
                await self._perform(self._progress[name], holds_slot=True)
                ready = self._admit_all(self._released_by(name))
                if ready != list(unit[number : number + 1]):
                    break
        return ready

    # -- one action

    async def _perform(self, progress: Progress, *, holds_slot: bool = False) -> None:
        """Do an action and settle it."""
        if progress.is_unneeded:
            self._cancel(progress, None, None)
            return
        work = Work(self._place, progress, self._open_span, holds_slot=holds_slot)
        scope = self._scope_of(progress)
        try:
            if self._has_races:
                with anyio.CancelScope() as progress.cancel_scope:
                    progress.output = await work.do(scope)
            else:
                progress.output = await work.do(scope)
            if progress.cancel_scope is not None and progress.cancel_scope.cancelled_caught:
                self._cancel(progress, None, work.span)
                return
            self._write_state(progress)
        except AgentrtError as error:
            self._fail(progress, error, span=work.span or self._open_span(progress.action))
            return
        except BaseException as error:
            if self._first_cancelled is None:
                self._first_cancelled = progress
            # One that still waits for its slot is settled when the run ends.
            if progress.state is ActionState.RUNNING:
                self._cancel(progress, error, work.span)
            raise
        self._settle(progress, ActionState.SUCCEEDED)
        assert work.span is not None
        work.span.end(status=ActionState.SUCCEEDED.value)

    def _write_state(self, progress: Progress) -> None:
        if progress.action.writes:
            own = {"output": progress.output, "status": ActionState.SUCCEEDED.value}
            scope = {**self._scope, "actions": {**self._outcomes, progress.action.name: own}}
            self._state.write([(name, value.render(scope)) for name, value in progress.action.writes.items()])

    async def _run_inner(
        self, plan: Plan, arguments: Mapping[str, Any], expires: float, span: ActionSpan
    ) -> Mapping[str, Any]:
        """Run the Dag of an action, with what is left of the time, and return its outputs."""
        deadline_s = plan.dag.slo.deadline_s
        if expires < math.inf:
            deadline_s = min(max(0.0, expires - anyio.current_time()), math.inf if deadline_s is None else deadline_s)
        inner = Execution(
            plan,
            bind_inputs(plan.dag, arguments),
            run_id=self._run_id,
            deadline_s=deadline_s,
            caller=self._caller.of(plan.dag),
            slots=self._slots,
            span=span.inner_run(),
            emit=lambda event: None,
            uniform=self._uniform,
        )
        result = await inner.run()
        if result.error is not None:
            raise result.error
        return result.outputs

    # -- how an action ends

    def _settle(self, progress: Progress, state: ActionState) -> None:
        now = anyio.current_time()
        progress.move(state)
        progress.ended = now
        outcome = {"output": progress.output, "status": state.value}
        for name in (progress.action.name, *self._aliases.get(progress.action.name, ())):
            self._outcomes[name] = outcome
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
        progress.reason = progress.reason if progress.is_unneeded else self._reason_to_stop()
        self._settle(progress, ActionState.CANCELLED)
        if span is not None:
            span.end(status=ActionState.CANCELLED.value, error=error, reason=progress.reason)

    def _fail(self, progress: Progress, error: AgentrtError, *, span: ActionSpan) -> None:
        """Record an action that failed for good and stop the others, unless the deadline is the real reason."""
        action = progress.action
        if progress.is_unneeded or anyio.current_time() >= self._deadline:
            self._cancel(progress, error, span)
            return
        failure = ActionError(action.name, str(error), place=action.place, num_attempts=max(1, progress.num_attempts))
        failure.__cause__ = error
        progress.error = failure
        progress.output = None
        self._settle(progress, ActionState.FAILED)
        span.end(status=ActionState.FAILED.value, error=error)
        progress.is_tolerated = action.optional or self._only_races(action.name)
        if not progress.is_tolerated:
            self._end_with(failure)

    def _end_with(self, failure: ActionError) -> None:
        if self._failure is None:
            self._failure = failure
            self._cut_short_by = f"action {failure.action!r} failed"
            self._cancel_scope.cancel()

    def _only_races(self, name: str) -> bool:
        """Whether all that wait for an action do without it when another comes through first."""
        if name in self._read_by_outputs:
            return False
        children = self._plan.children[name]
        return bool(children) and all(not self._progress[c].action.join.waits_for_all for c in children)

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
            actions=self._results(),
            trace_id=self._span.trace_id,
            error=failure,
            slo_p99_s=self._plan.dag.slo.p99_s,
        )
        if failure is not None:
            failure.result = result
        self._span.end(status=status.value, error=cause)
        self._emit(RunFinished(result))
        return result

    def _results(self) -> tuple[ActionResult, ...]:
        """Return what became of every declared action, those that were pruned included."""
        results = {name: progress.result(self._began) for name, progress in self._progress.items()}
        for pruned in self._plan.pruned:
            output = self._progress[pruned.into].output if pruned.into is not None else None
            reason = f"pruned: {pruned.reason}"
            results[pruned.action] = ActionResult(pruned.action, ActionState.SKIPPED, output, reason=reason)
        return tuple(results[name] for name in self._plan.declared.actions)


def _first_leaf(group: BaseExceptionGroup[BaseException]) -> BaseException:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
