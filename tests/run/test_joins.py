"""Which edges an action waits for, and what becomes of those that it does not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrt.declare.dag import Dag, Edge
from agentrt.declare.guard import Guard
from agentrt.declare.policy import Effects, Join, JoinKind
from agentrt.run.events import RunResult, RunStatus
from agentrt.run.joining import Arrivals, Decision
from agentrt.run.state import ActionState
from tests.support.dags import dag_of, execute, function_action, sleeper
from tests.support.virtual_time import run_in_virtual_time

ANY, FIRST = Join(JoinKind.ANY), Join(JoinKind.FIRST_SUCCESS)


async def echo(**read: Any) -> Any:
    return read


def run(dag: Dag) -> RunResult:
    return run_in_virtual_time(lambda: execute(dag))


def states(result: RunResult) -> dict[str, str]:
    return {action.name: action.status.value for action in result.actions}


@given(st.sampled_from(JoinKind), st.integers(1, 5), st.lists(st.booleans(), min_size=1, max_size=5))
def test_a_join_decides_once_and_by_its_definition(kind: JoinKind, count: int, lives: list[bool]) -> None:
    """Whatever the order in which edges settle: nothing is undecided at the end, a decision stands, and it is the one
    that counting the live edges gives."""
    join = Join(kind, count if kind is JoinKind.N_OF else None)
    arrivals = Arrivals(len(lives))
    decisions = [arrivals.decide(join)]
    for is_live in lives:
        arrivals.settle(is_live=is_live)
        decisions.append(arrivals.decide(join))
    decided = [decision for decision in decisions if decision is not Decision.WAIT]
    wanted = {JoinKind.ALL: len(lives), JoinKind.N_OF: count}.get(kind, 1)
    assert set(decided) == {Decision.BEGIN if sum(lives) >= wanted else Decision.SKIP}
    if join.waits_for_all:
        assert len(decided) == 1


@pytest.mark.parametrize(("x", "chosen"), [(1, "left"), (2, "right")])
def test_any_merges_branches_of_which_one_runs(x: int, chosen: str) -> None:
    """left (if x == 1) ─┐
                         ├─ merge (any): runs with whichever was not skipped; the other reads as null.
    right (if x == 2) ──┘"""
    dag = dag_of(
        function_action("left", sleeper(1, "left"), guard=f"{x} == 1"),
        function_action("right", sleeper(1, "right"), guard=f"{x} == 2"),
        function_action("merge", echo, reads=["left", "right"], join=ANY),
    )
    result = run(dag)
    assert result.outputs["answer"] == {"left": None, "right": None} | {chosen: chosen}


def test_first_success_begins_at_once_and_cancels_the_loser() -> None:
    """The slow one is stopped, reads as null, and does not keep the run from succeeding."""
    dag = dag_of(
        function_action("before", sleeper(0, 0)),
        function_action("quick", sleeper(1, "quick"), reads=["before"]),
        function_action("slow", sleeper(100, "slow"), reads=["before"]),
        function_action("first", echo, reads=["quick", "slow"], join=FIRST),
    )
    result = run(dag)
    assert result.status is RunStatus.SUCCEEDED
    assert result.outputs["answer"] == {"quick": "quick", "slow": None}
    assert states(result)["slow"] == "cancelled"
    assert result.action("slow").reason == "'first' began without it"
    assert result.duration_s == 1


def test_a_loser_that_others_want_or_that_writes_runs_on() -> None:
    """Only what nobody wants is stopped, together with what led to it and has not begun."""
    dag = dag_of(
        function_action("quick", sleeper(1, "quick")),
        function_action("wanted", sleeper(3, "wanted")),
        function_action("writing", sleeper(4, "writing"), effects=Effects.WRITE),
        function_action("leads", sleeper(5)),
        function_action("late", sleeper(5), reads=["leads"]),
        function_action("first", echo, reads=["quick", "wanted", "writing", "late"], join=FIRST),
        outputs={"first": "{{ actions.first.output.quick }}", "wanted": "{{ actions.wanted.output }}"},
    )
    result = run(dag)
    assert result.outputs == {"first": "quick", "wanted": "wanted"}
    assert states(result) == {
        "quick": "succeeded",
        "wanted": "succeeded",
        "writing": "succeeded",
        "leads": "cancelled",
        "late": "cancelled",
        "first": "succeeded",
    }
    assert result.duration_s == 4


async def fails() -> None:
    raise RuntimeError("no")


def test_one_that_fails_does_not_lose_the_race_for_the_others() -> None:
    """first_success goes on with the one that is left; only when nobody is left is the failure the run's."""
    slow = function_action("slow", sleeper(2, "slow"))
    first = function_action("first", echo, reads=["broken", "slow"], join=FIRST)
    result = run(dag_of(function_action("broken", fails), slow, first))
    assert (result.status, result.outputs["answer"]) == (RunStatus.SUCCEEDED, {"broken": None, "slow": "slow"})
    first = function_action("first", echo, reads=["broken", "worse"], join=FIRST)
    result = run(dag_of(function_action("broken", fails), function_action("worse", fails), first))
    assert result.status is RunStatus.FAILED
    assert "action 'broken' failed" in str(result.error)


def test_n_of_begins_at_the_nth() -> None:
    """Two of three: begins when the second is there, and sees exactly those two."""
    dag = dag_of(
        *(function_action(f"a{i}", sleeper(i, i)) for i in (1, 2, 3)),
        function_action("vote", echo, reads=["a1", "a2", "a3"], join=Join(JoinKind.N_OF, 2)),
    )
    result = run(dag)
    assert (result.outputs["answer"], result.duration_s) == ({"a1": 1, "a2": 2, "a3": None}, 2)


def test_too_few_for_the_join_is_a_skip() -> None:
    """With one branch skipped two of two cannot come; what follows is skipped, and the reason says the numbers."""
    dag = dag_of(
        function_action("a", sleeper(1), guard="inputs.x == 1"),
        function_action("b", sleeper(1)),
        function_action("vote", echo, reads=["a", "b"], join=Join(JoinKind.N_OF, 2)),
    )
    result = run(dag)
    assert states(result)["vote"] == "skipped"
    assert result.action("vote").reason == (
        "its join wants 2 of them, and of the 2 actions it waits for 1 can come through"
    )


def test_the_guard_of_an_edge_decides_for_that_edge_alone() -> None:
    """a ──(x == 1)──> b is dead, so b is skipped; a ──> c goes on."""
    actions = [function_action(name, sleeper(1, name)) for name in "abc"]
    dag = dag_of(*actions, outputs={"b": "{{ actions.b.output }}", "c": "{{ actions.c.output }}"})
    guarded = Edge("a", "b", Guard.parse("actions.a.output == 'never'"))
    result = run(_with_edges(dag, guarded, Edge("a", "c")))
    assert result.outputs == {"b": None, "c": "c"}
    assert result.action("b").reason == "the guard of its edge from 'a' does not hold: actions.a.output == 'never'"
    assert result.duration_s == 2


def test_a_guard_that_cannot_be_evaluated_fails_its_target() -> None:
    """The error names the action the edge leads to."""
    dag = dag_of(*(function_action(name, sleeper(1, name)) for name in "ab"))
    result = run(_with_edges(dag, Edge("a", "b", Guard.parse("actions.a.output.part == 1"))))
    assert result.status is RunStatus.FAILED
    assert (states(result)["a"], states(result)["b"]) == ("succeeded", "failed")


@pytest.mark.parametrize("kind", ["fails", "is skipped"])
def test_others_do_without_what_is_optional(kind: str) -> None:
    """Its output is null; nobody is skipped, and the run succeeds."""
    guard = "inputs.x == 1" if kind == "is skipped" else None
    dag = dag_of(
        function_action("extra", fails, optional=True, guard=guard),
        function_action("answer", echo, reads=["extra"]),
    )
    result = run(dag)
    assert (result.status, result.outputs["answer"]) == (RunStatus.SUCCEEDED, {"extra": None})
    assert result.action("extra").status is (ActionState.FAILED if kind == "fails" else ActionState.SKIPPED)


def _with_edges(dag: Dag, *edges: Edge) -> Dag:
    return replace(dag, edges=edges)
