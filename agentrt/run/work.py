"""Doing the work of one action: attempts with retries, then the fallback, for each item where there are several.

Knows nothing of the graph. A slot is held while a model, tool or function works, and only then: an action that runs a Dag
or waits for a person holds none, so what it waits for can always get one.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import anyio

from agentrt.compile.plan import Plan, fallback_key
from agentrt.declare.action import Action
from agentrt.declare.call import Call, DagCall, HumanCall
from agentrt.declare.policy import ForEach, OnItemError, RetryPolicy
from agentrt.errors import AgentrtError, DeadlineError, ExecutionError, ModelError, TemplateError, TimeoutExpiredError
from agentrt.run.attempt import Attempt, Caller
from agentrt.run.events import ActionRetrying, ActionStarted, ActionToken, RunEvent
from agentrt.run.progress import Progress
from agentrt.run.retry import wait_before_retry_s
from agentrt.run.state import ActionState
from agentrt.trace.spans import ActionSpan

_ONE_ATTEMPT = RetryPolicy(attempts=1)
_NO_SLOT = contextlib.nullcontext()

RunDag = Callable[[Plan, Mapping[str, Any], float, ActionSpan], Awaitable[Mapping[str, Any]]]
"""Runs an inner Dag: its Plan, its inputs, the time (``anyio.current_time``) at which it is stopped, the span above it."""


@dataclass(frozen=True, slots=True)
class Workplace:
    """What all actions of one run share. Times are those of ``anyio.current_time``."""

    plan: Plan
    caller: Caller
    slots: anyio.Semaphore
    begun: float
    deadline: float
    emit: Callable[[RunEvent], None]
    uniform: Callable[[], float]
    run_dag: RunDag


@dataclass(frozen=True, slots=True)
class _Piece:
    """One thing to do: the action itself, or one item of its ``for_each``."""

    scope: Mapping[str, Any]
    index: int | None = None


class Work:
    """The work of one action of a run. Call ``do`` once.

    ``open_span`` opens the action's span when its first attempt begins. With ``holds_slot`` the caller has taken a slot.
    """

    def __init__(
        self,
        place: Workplace,
        progress: Progress,
        open_span: Callable[[Action], ActionSpan],
        *,
        holds_slot: bool = False,
    ) -> None:
        self._holds_slot = holds_slot
        self._place = place
        self._progress = progress
        self._action = progress.action
        self._open_span = open_span
        self.span: ActionSpan | None = None

    async def do(self, scope: Mapping[str, Any]) -> Any:
        """Return the action's output.

        Raises:
            AgentrtError: it failed for good.
        """
        if self._action.for_each is not None:
            return await self._do_each(self._action.for_each, scope)
        return await self._do_piece(_Piece(scope))

    def _begin(self) -> ActionSpan:
        if self.span is None:
            self._progress.move(ActionState.RUNNING)
            self._progress.began = anyio.current_time()
            self.span = self._open_span(self._action)
        return self.span

    # -- for each

    async def _do_each(self, each: ForEach, scope: Mapping[str, Any]) -> list[Any]:
        """Let as many workers as allowed take one item after another: memory does not grow with the number of tasks."""
        self._begin()
        items = each.items.render(scope)
        if not isinstance(items, list | tuple):
            raise TemplateError(f"'for_each' of action {self._action.name!r}: {items!r:.80} is no list")
        results: list[Any] = [None] * len(items)
        failed: set[int] = set()
        left = iter(enumerate(items))

        async def take_items() -> None:
            for index, item in left:
                piece = _Piece({**scope, "item": item, "item_index": index}, index)
                try:
                    output = await self._do_piece(piece)
                except AgentrtError as error:
                    if each.on_error is OnItemError.FAIL:
                        raise _ItemFailedError(index, error) from error
                    failed.add(index)
                    results[index] = {"ok": False, "error": str(error)}
                else:
                    results[index] = {"ok": True, "output": output} if each.on_error is OnItemError.COLLECT else output

        num_workers = min(len(items), each.max_parallel or len(items), self._place.caller.max_concurrency)
        try:
            async with anyio.create_task_group() as workers:
                for _ in range(num_workers):
                    workers.start_soon(take_items)
        except BaseExceptionGroup as group:
            errors, others = group.split(_ItemFailedError)
            if others is not None or errors is None:
                raise
            first = min(_leaves(errors), key=lambda error: error.index)
            raise ExecutionError(f"item {first.index}: {first.reason}") from first.reason
        if each.on_error is OnItemError.SKIP:
            return [result for index, result in enumerate(results) if index not in failed]
        return results

    # -- one piece

    async def _do_piece(self, piece: _Piece) -> Any:
        fallback = self._action.fallback
        try:
            return await self._try(piece, self._action.call, self._action.name, self._action.retry or _ONE_ATTEMPT)
        except AgentrtError as error:
            if fallback is None or anyio.current_time() >= self._place.deadline:
                raise
            self._progress.fell_back_on = str(error)
            try:
                if fallback.value is not None:
                    return fallback.value.render(piece.scope)
                assert fallback.call is not None
                return await self._try(piece, fallback.call, fallback_key(self._action.name), _ONE_ATTEMPT)
            except AgentrtError as second:
                raise ExecutionError(f"{error}; its fallback failed too: {second}") from second

    async def _try(self, piece: _Piece, call: Call, key: str, retry: RetryPolicy) -> Any:
        slot = _NO_SLOT if self._holds_slot or isinstance(call, DagCall | HumanCall) else self._place.slots
        num_failed = 0
        while True:
            async with slot:
                span = self._begin()
                output, error = await self._attempt(piece, call, key, num_failed + 1, span)
            if error is None:
                return output
            num_failed += 1
            wait_s = wait_before_retry_s(retry, num_failed=num_failed, error=error, uniform=self._place.uniform())
            # A retry that cannot begin before the deadline only hides the reason of the failure.
            if wait_s is None or anyio.current_time() + wait_s >= self._place.deadline:
                raise error
            span.attempt_failed(num_failed, error, wait_s)
            self._place.emit(ActionRetrying(self._action.name, num_failed, error, wait_s, piece.index))
            await anyio.sleep(wait_s)

    async def _attempt(
        self, piece: _Piece, call: Call, key: str, number: int, span: ActionSpan
    ) -> tuple[Any, AgentrtError | None]:
        """Try once; returns the output, or why it failed."""
        action, place, progress = self._action, self._place, self._progress
        now = anyio.current_time()
        timeout_s = action.timeout_s
        expires = min(place.deadline, math.inf if timeout_s is None else now + timeout_s)
        progress.num_attempts += 1
        place.emit(ActionStarted(action.name, number, now - place.begun, piece.index))
        attempt = Attempt(
            action=action.name,
            scope=piece.scope,
            span=span,
            remaining_s=None if expires == math.inf else max(0.0, expires - now),
            on_token=lambda text: place.emit(ActionToken(action.name, text, piece.index)),
        )
        try:
            with anyio.move_on_after(timeout_s):
                if isinstance(call, DagCall):
                    arguments = call.arguments.render(piece.scope)
                    return await place.run_dag(place.plan.inner[key], arguments, expires, span), None
                return await place.caller.call(call, attempt), None
        except (ModelError, DeadlineError) as error:
            # A model or an inner Dag had the same limit as we have and may notice first that it passed.
            if timeout_s is not None and anyio.current_time() >= now + timeout_s:
                expired = TimeoutExpiredError(timeout_s)
                expired.__cause__ = error
                return None, expired
            return None, error
        except AgentrtError as error:
            return None, error
        finally:
            # Of many items the times of one would say nothing of the action.
            progress.tokens = attempt.tokens if piece.index is None else None
        assert timeout_s is not None
        return None, TimeoutExpiredError(timeout_s)


class _ItemFailedError(Exception):
    """An item failed for good and its siblings are to stop."""

    def __init__(self, index: int, reason: AgentrtError) -> None:
        super().__init__(index)
        self.index = index
        self.reason = reason


def _leaves(group: BaseExceptionGroup[_ItemFailedError]) -> list[_ItemFailedError]:
    found: list[_ItemFailedError] = []
    stack: list[BaseException] = [group]
    while stack:
        error = stack.pop()
        if isinstance(error, BaseExceptionGroup):
            stack.extend(error.exceptions)
        elif isinstance(error, _ItemFailedError):
            found.append(error)
    return found
