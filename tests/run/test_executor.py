"""The executor's promises, in virtual time: no test here waits."""

from __future__ import annotations

from collections import Counter
from typing import Any

import anyio
import pytest

from agentrt.declare.dag import Slo
from agentrt.declare.policy import RetryCause, RetryPolicy
from agentrt.errors import (
    ActionError,
    DeadlineError,
    ModelConnectionError,
    ModelOverloadedError,
    TimeoutExpiredError,
    ToolError,
)
from agentrt.run.events import (
    ActionFinished,
    ActionRetrying,
    ActionStarted,
    RunEvent,
    RunFinished,
    RunStarted,
    RunStatus,
)
from agentrt.run.state import ActionState
from tests.support.dags import dag_of, execute, function_action, sleeper
from tests.support.virtual_time import run_in_virtual_time


def starts_of(events: list[RunEvent]) -> dict[str, float]:
    return {event.action: event.at_s for event in events if isinstance(event, ActionStarted)}


def test_an_action_starts_the_moment_its_last_input_is_there() -> None:
    """
    a(1s) ──> c(1s) ──> e
    b(3s) ──────────────^     d(2s) alone
    """
    dag = dag_of(
        function_action("a", sleeper(1)),
        function_action("b", sleeper(3)),
        function_action("c", sleeper(1), reads=["a"]),
        function_action("d", sleeper(2)),
        function_action("e", sleeper(1, "done"), reads=["b", "c"]),
    )
    events: list[RunEvent] = []
    result = run_in_virtual_time(lambda: execute(dag, emit=events.append))
    assert starts_of(events) == {"a": 0, "b": 0, "c": 1, "d": 0, "e": 3}
    assert result.duration_s == 4
    assert result.outputs == {"answer": "done"}
    assert result.status is RunStatus.SUCCEEDED


def test_outputs_flow_along_references() -> None:
    """A function gets the outputs of the actions its parameters name."""

    async def one() -> int:
        return 1

    async def add(one: int, two: int) -> int:
        return one + two

    dag = dag_of(
        function_action("one", one),
        function_action("two", lambda: 2),
        function_action("sum", add, reads=["one", "two"]),
    )
    assert anyio.run(lambda: execute(dag)).outputs == {"answer": 3}


def test_needs_orders_without_passing_data() -> None:
    """``needs`` alone makes an action wait."""
    dag = dag_of(function_action("a", sleeper(2)), function_action("b", sleeper(1), needs=frozenset({"a"})))
    assert run_in_virtual_time(lambda: execute(dag)).action("b").started_s == 2


def test_no_more_actions_run_at_once_than_there_are_slots() -> None:
    """Nine actions of a second each take three seconds with three slots."""
    dag = dag_of(*(function_action(f"a{i}", sleeper(1)) for i in range(9)))
    assert run_in_virtual_time(lambda: execute(dag, max_concurrency=3)).duration_s == 3


def test_a_guard_that_does_not_hold_skips_the_action_and_what_depends_on_it() -> None:
    """
    pick ──> left (if false) ──> after_left
       └───> right (if true)
    """
    dag = dag_of(
        function_action("pick", sleeper(1, "right")),
        function_action("left", sleeper(1, "L"), guard="actions.pick.output == 'left'"),
        function_action("after_left", sleeper(1), reads=["left"]),
        function_action("right", sleeper(1, "R"), guard="actions.pick.output == 'right'"),
        outputs={"left": "{{ actions.left.output }}", "right": "{{ actions.right.output }}"},
    )
    result = run_in_virtual_time(lambda: execute(dag))
    assert {a.name: a.status.value for a in result.actions} == {
        "pick": "succeeded",
        "left": "skipped",
        "after_left": "skipped",
        "right": "succeeded",
    }
    assert result.outputs == {"left": None, "right": "R"}
    assert result.action("left").reason == "its condition does not hold: actions.pick.output == 'left'"
    assert result.action("after_left").reason == "'left', which it depends on, was skipped"
    assert result.duration_s == 2


def test_a_guard_that_cannot_be_evaluated_fails_its_action() -> None:
    """A guard on a value of the wrong type is an error with the action's name, never a silent false."""
    dag = dag_of(
        function_action("text", sleeper(0, "abc")),
        function_action("b", sleeper(0), guard="actions.text.output > 3"),
    )
    result = run_in_virtual_time(lambda: execute(dag))
    assert result.status is RunStatus.FAILED
    assert result.action("b").status is ActionState.FAILED
    assert "'b'" in str(result.error)


def test_a_failing_action_stops_the_others_and_keeps_what_had_finished() -> None:
    """One failure ends the run at once; finished outputs stay, running actions are cancelled, later ones never start."""

    async def broken() -> None:
        await anyio.sleep(2)
        raise KeyError("no such customer")

    dag = dag_of(
        function_action("quick", sleeper(1, "kept")),
        function_action("slow", sleeper(100)),
        function_action("broken", broken),
        function_action("later", sleeper(1), reads=["broken"]),
    )
    result = run_in_virtual_time(lambda: execute(dag))
    assert result.status is RunStatus.FAILED
    assert result.duration_s == 2
    assert result.action("quick").output == "kept"
    assert {a.name: a.status.value for a in result.actions} == {
        "quick": "succeeded",
        "slow": "cancelled",
        "broken": "failed",
        "later": "cancelled",
    }
    error = result.error
    assert isinstance(error, ActionError)
    assert error.action == "broken"
    assert "KeyError: 'no such customer'" in str(error)
    assert isinstance(error.__cause__, ToolError)
    assert isinstance(error.__cause__.__cause__, KeyError)
    assert error.result is result
    assert result.action("slow").reason == "action 'broken' failed"
    assert result.outputs == {}


def test_the_deadline_cancels_everything_and_names_what_is_unfinished() -> None:
    """At the deadline the run ends, with what had finished."""
    dag = dag_of(
        function_action("a", sleeper(1, "kept")),
        function_action("b", sleeper(100), reads=["a"]),
        function_action("c", sleeper(1), reads=["b"]),
    )
    result = run_in_virtual_time(lambda: execute(dag, deadline_s=5))
    assert result.status is RunStatus.DEADLINE_EXCEEDED
    assert result.duration_s == 5
    assert isinstance(result.error, DeadlineError)
    assert result.error.unfinished == ("b", "c")
    assert result.action("a").output == "kept"
    assert result.action("b").reason == "the deadline passed"


def test_a_run_that_ends_before_its_deadline_is_not_touched_by_it() -> None:
    """A deadline that does not pass changes nothing."""
    dag = dag_of(function_action("a", sleeper(4.999, 1)), slo=Slo(p99_s=1, deadline_s=5))
    assert run_in_virtual_time(lambda: execute(dag, deadline_s=5)).status is RunStatus.SUCCEEDED


def test_an_actions_timeout_bounds_one_attempt() -> None:
    """Each attempt has the whole timeout; the error says how long that was."""
    dag = dag_of(
        function_action("a", sleeper(10), timeout_s=2, retry=RetryPolicy(attempts=3, backoff_s=1)),
    )
    events: list[RunEvent] = []
    result = run_in_virtual_time(lambda: execute(dag, emit=events.append))
    # Attempts of 2 s at 0, then waits of 0.5 and 1 s: half of 1 and 2 s, as the draw is 0.5.
    assert [e.at_s for e in events if isinstance(e, ActionStarted)] == [0, 2.5, 5.5]
    assert isinstance(result.error, ActionError)
    assert result.error.num_attempts == 3
    assert isinstance(result.error.__cause__, TimeoutExpiredError)
    assert "its timeout of 2 s" in str(result.error)


def test_a_timeout_raised_by_the_users_code_is_the_users_error() -> None:
    """A TimeoutError out of a function is not taken for the action's own timeout."""

    async def body() -> None:
        raise TimeoutError("the database did not answer")

    dag = dag_of(function_action("a", body, timeout_s=5, retry=RetryPolicy(attempts=2)))
    result = run_in_virtual_time(lambda: execute(dag))
    assert "TimeoutError: the database did not answer" in str(result.error)
    assert result.action("a").num_attempts == 1


class Flaky:
    """Fails a number of times, then returns how often it was called."""

    def __init__(self, num_failures: int, error: Exception) -> None:
        self.num_failures = num_failures
        self.num_calls = 0
        self.error = error

    async def __call__(self) -> int:
        self.num_calls += 1
        if self.num_calls <= self.num_failures:
            raise self.error
        return self.num_calls


@pytest.mark.parametrize(
    ("error", "num_attempts"),
    [(ModelConnectionError("refused"), 3), (ModelOverloadedError("busy"), 3), (ToolError("wrong"), 1)],
)
def test_only_what_is_declared_retryable_is_tried_again(error: Exception, num_attempts: int) -> None:
    """The default policy tries lost connections and overload again, and nothing else."""
    flaky = Flaky(2, error)

    async def body() -> int:
        return await flaky()

    dag = dag_of(function_action("a", body, retry=RetryPolicy(attempts=5)))
    events: list[RunEvent] = []
    result = run_in_virtual_time(lambda: execute(dag, emit=events.append))
    assert result.action("a").num_attempts == num_attempts == flaky.num_calls
    assert sum(isinstance(event, ActionRetrying) for event in events) == num_attempts - 1
    assert (result.status is RunStatus.SUCCEEDED) == (num_attempts == 3)


def test_a_retry_that_cannot_begin_before_the_deadline_is_not_waited_for() -> None:
    """The run fails at once with the real reason, instead of waiting for the deadline."""
    flaky = Flaky(9, ModelOverloadedError("busy", retry_after_s=60))

    async def body() -> int:
        return await flaky()

    dag = dag_of(function_action("a", body, retry=RetryPolicy(attempts=5)))
    result = run_in_virtual_time(lambda: execute(dag, deadline_s=10))
    assert result.status is RunStatus.FAILED
    assert result.duration_s == 0
    assert "busy" in str(result.error)


def test_waiting_for_a_retry_takes_no_slot() -> None:
    """Others run while an action waits for its next attempt."""
    flaky = Flaky(1, ModelOverloadedError("busy", retry_after_s=10))

    async def body() -> int:
        return await flaky()

    dag = dag_of(
        function_action("flaky", body, retry=RetryPolicy()),
        function_action("other", sleeper(1)),
    )
    result = run_in_virtual_time(lambda: execute(dag, max_concurrency=1))
    assert result.action("other").started_s == 0


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_the_callers_cancellation_reaches_everything_and_is_passed_on(backend: str) -> None:
    """Cancelled from outside, all actions stop, the events end with RunFinished, and the cancellation goes on."""
    stopped: list[str] = []
    began = 0

    async def main() -> tuple[list[RunEvent], bool]:
        all_began = anyio.Event()

        async def endless() -> None:
            nonlocal began
            began += 1
            if began == 3:
                all_began.set()
            try:
                await anyio.sleep_forever()
            finally:
                stopped.append("stopped")

        dag = dag_of(
            *(function_action(f"a{i}", endless) for i in range(3)),
            function_action("z", sleeper(0), reads=["a0"]),
        )
        events: list[RunEvent] = []
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as tasks:

                async def run() -> None:
                    await execute(dag, emit=events.append)
                    raise AssertionError("the cancellation was swallowed")

                tasks.start_soon(run)
                await all_began.wait()
                scope.cancel()
        return events, scope.cancelled_caught

    events, caught = anyio.run(main, backend=backend)
    assert caught
    assert stopped == ["stopped"] * 3
    last = events[-1]
    assert isinstance(last, RunFinished)
    assert last.result.status is RunStatus.CANCELLED
    assert {a.status for a in last.result.actions} == {ActionState.CANCELLED}
    assert {a.reason for a in last.result.actions} == {"the run was cancelled"}


def test_an_action_that_cancels_itself_fails_the_run() -> None:
    """Code that raises CancelledError on its own ends the run with an error that names it, not with silence."""
    import asyncio

    async def body() -> None:
        raise asyncio.CancelledError

    dag = dag_of(function_action("other", sleeper(60)), function_action("odd", body))
    result = anyio.run(lambda: execute(dag))
    assert result.status is RunStatus.FAILED
    assert isinstance(result.error, ActionError)
    assert result.error.action == "odd"


def test_a_function_that_exits_the_interpreter_only_fails_its_action() -> None:
    """``sys.exit()`` in a tool is that tool's failure."""
    import sys

    dag = dag_of(function_action("a", lambda: sys.exit(3)))
    result = anyio.run(lambda: execute(dag))
    assert "SystemExit: 3" in str(result.error)


def test_a_plain_function_does_not_hold_up_the_event_loop() -> None:
    """Two blocking functions that wait for each other both finish: they run in threads."""
    import threading

    barrier = threading.Barrier(2, timeout=30)

    def wait() -> int:
        return barrier.wait()

    dag = dag_of(
        function_action("a", wait),
        function_action("b", wait),
        function_action("c", lambda a, b: {a, b}, reads=["a", "b"]),
    )
    assert anyio.run(lambda: execute(dag)).outputs == {"answer": {0, 1}}


def test_a_plain_function_does_not_hold_up_the_deadline() -> None:
    """The run ends at its deadline although a thread cannot be stopped."""
    import threading

    release = threading.Event()
    dag = dag_of(function_action("a", lambda: release.wait(60)))
    try:
        result = anyio.run(lambda: execute(dag, deadline_s=0.01))
    finally:
        release.set()
    assert result.status is RunStatus.DEADLINE_EXCEEDED


def test_events_tell_the_whole_story_in_order() -> None:
    """First RunStarted, last RunFinished, and for each action a start before its one end."""
    dag = dag_of(
        function_action("a", sleeper(1)),
        function_action("b", sleeper(1), reads=["a"]),
        function_action("c", sleeper(1), guard="inputs.x == 1"),
    )
    events: list[RunEvent] = []
    run_in_virtual_time(lambda: execute(dag, emit=events.append))
    assert isinstance(events[0], RunStarted)
    assert isinstance(events[-1], RunFinished)
    story = [
        (type(event).__name__, event.action if isinstance(event, ActionStarted) else event.result.name)
        for event in events
        if isinstance(event, ActionStarted | ActionFinished)
    ]
    assert story == [
        ("ActionFinished", "c"),
        ("ActionStarted", "a"),
        ("ActionFinished", "a"),
        ("ActionStarted", "b"),
        ("ActionFinished", "b"),
    ]


def test_an_output_that_cannot_be_rendered_fails_the_run() -> None:
    """A finished Dag whose output refers to a part that is not there fails with the output's name."""
    dag = dag_of(function_action("a", sleeper(1, {"x": 1})), outputs={"answer": "{{ actions.a.output.y }}"})
    result = run_in_virtual_time(lambda: execute(dag))
    assert result.status is RunStatus.FAILED
    assert "output 'answer'" in str(result.error)
    assert result.action("a").output == {"x": 1}


def test_a_wide_dag_runs_every_action_once() -> None:
    """Fan-out of 500 and a join: everything once, all at the same time."""
    calls: Counter[str] = Counter()

    def counted(name: str) -> Any:
        async def body(**_: Any) -> str:
            calls[name] += 1
            await anyio.sleep(1)
            return name

        return body

    leaves = [f"n{i}" for i in range(500)]
    dag = dag_of(
        *(function_action(name, counted(name)) for name in leaves),
        function_action("join", counted("join"), reads=leaves),
    )
    result = run_in_virtual_time(lambda: execute(dag))
    assert result.duration_s == 2
    assert set(calls.values()) == {1}
    assert len(calls) == 501


def test_retry_cause_error_covers_everything() -> None:
    """``on: [error]`` tries any failure again."""
    flaky = Flaky(1, ValueError("odd"))

    async def body() -> int:
        return await flaky()

    dag = dag_of(function_action("a", body, retry=RetryPolicy(on=frozenset({RetryCause.ERROR}))))
    assert run_in_virtual_time(lambda: execute(dag)).outputs == {"answer": 2}
