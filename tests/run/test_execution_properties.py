"""Random Dags, durations, failures and deadlines against what must always hold."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import anyio
from hypothesis import given, settings
from hypothesis import strategies as st

from agentrt.declare.dag import Dag
from agentrt.declare.policy import Join, JoinKind
from agentrt.run.events import ActionFinished, ActionStarted, RunEvent, RunStatus
from agentrt.run.state import ActionState
from tests.support.dags import dag_of, execute, function_action
from tests.support.virtual_time import run_in_virtual_time


@dataclass(frozen=True)
class Shape:
    """Action i depends on the earlier ones in ``parents[i]``, takes ``seconds[i]``, and may fail or be skipped."""

    parents: tuple[frozenset[int], ...]
    seconds: tuple[int, ...]
    fails: tuple[bool, ...]
    skipped: tuple[bool, ...]


@st.composite
def shapes(draw: st.DrawFn, *, failures: bool = True) -> Shape:
    n = draw(st.integers(1, 9))
    rarely = st.integers(0, 9).map(lambda k: k == 0)
    return Shape(
        tuple(frozenset(draw(st.sets(st.integers(0, i - 1), max_size=3))) if i else frozenset() for i in range(n)),
        tuple(draw(st.integers(0, 5)) for _ in range(n)),
        tuple(failures and draw(rarely) for _ in range(n)),
        tuple(draw(rarely) for _ in range(n)),
    )


def build(shape: Shape, calls: list[str]) -> Dag:
    def body(i: int) -> Any:
        async def run(**_: Any) -> int:
            calls.append(f"a{i}")
            await anyio.sleep(shape.seconds[i])
            if shape.fails[i]:
                raise RuntimeError("as drawn")
            return i

        return run

    return dag_of(
        *(
            function_action(
                f"a{i}",
                body(i),
                reads=[f"a{p}" for p in sorted(shape.parents[i])],
                guard="inputs.x != 0" if shape.skipped[i] else None,
            )
            for i in range(len(shape.parents))
        )
    )


@settings(deadline=None, max_examples=150)
@given(shapes(), st.one_of(st.none(), st.integers(1, 12)), st.integers(1, 10))
def test_every_run_ends_in_good_order(shape: Shape, deadline_s: int | None, slots: int) -> None:
    """Whatever happens: each action runs at most once and ends exactly once, never before what it depends on; the run
    ends by its deadline; it succeeds exactly when every action succeeded or was skipped."""
    calls: list[str] = []
    events: list[RunEvent] = []
    result = run_in_virtual_time(
        lambda: execute(build(shape, calls), deadline_s=deadline_s, max_concurrency=slots, emit=events.append)
    )
    assert len(calls) == len(set(calls))
    ends = [event.result.name for event in events if isinstance(event, ActionFinished)]
    assert sorted(ends) == sorted(f"a{i}" for i in range(len(shape.parents)))
    ended: set[str] = set()
    for event in events:
        if isinstance(event, ActionStarted):
            assert {f"a{p}" for p in shape.parents[int(event.action[1:])]} <= ended
        elif isinstance(event, ActionFinished) and event.result.status is ActionState.SUCCEEDED:
            ended.add(event.result.name)
    if deadline_s is not None:
        assert result.duration_s <= deadline_s
    good = {ActionState.SUCCEEDED, ActionState.SKIPPED}
    assert (result.status is RunStatus.SUCCEEDED) == all(a.status in good for a in result.actions)
    assert (result.status is RunStatus.SUCCEEDED) == (result.error is None)


@settings(deadline=None, max_examples=150)
@given(shapes(failures=False))
def test_with_enough_slots_a_run_takes_its_critical_path(shape: Shape) -> None:
    """Without limits the makespan is the longest path of actions that were not skipped."""
    result = run_in_virtual_time(lambda: execute(build(shape, [])))
    gone: set[int] = set()
    finish: dict[int, int] = {}
    for i, parents in enumerate(shape.parents):
        ready = max((finish[p] for p in parents), default=0)
        if shape.skipped[i] or parents & gone:
            gone.add(i)
            finish[i] = ready
        else:
            finish[i] = ready + shape.seconds[i]
    ran = [finish[i] for i in finish if i not in gone]
    assert result.duration_s == max(ran, default=0)


@st.composite
def racing_dags(draw: st.DrawFn) -> Dag:
    """Draw actions of which each waits for some earlier ones by any join, may be optional, skipped, slow, or fail."""
    shape = draw(shapes())
    calls: list[str] = []
    dag = build(shape, calls)
    joins = st.sampled_from([*(Join(kind) for kind in JoinKind if kind is not JoinKind.N_OF), Join(JoinKind.N_OF, 1)])
    actions = {
        name: replace(action, join=draw(joins) if action.dependencies else action.join, optional=draw(st.booleans()))
        for name, action in dag.actions.items()
    }
    return replace(dag, actions=actions)


@settings(deadline=None, max_examples=200)
@given(racing_dags(), st.one_of(st.none(), st.integers(1, 12)), st.integers(1, 10))
def test_whatever_the_joins_every_action_ends_once_and_the_run_ends(
    dag: Dag, deadline_s: int | None, slots: int
) -> None:
    """Races, optional failures and skips: nothing is left open, nothing ends twice, and a run that succeeded has no
    failure in it but those that were put up with."""
    events: list[RunEvent] = []
    result = run_in_virtual_time(
        lambda: execute(dag, deadline_s=deadline_s, max_concurrency=slots, emit=events.append, prune=False)
    )
    ends = [event.result.name for event in events if isinstance(event, ActionFinished)]
    assert sorted(ends) == sorted(dag.actions)
    assert all(action.status.is_final for action in result.actions)
    assert deadline_s is None or result.duration_s <= deadline_s
    if result.status is RunStatus.SUCCEEDED:
        for ended in result.actions:
            if ended.status is ActionState.FAILED and not dag.actions[ended.name].optional:
                readers = [a for a in dag.actions.values() if ended.name in a.dependencies]
                assert readers
                assert not any(reader.join.waits_for_all for reader in readers)
    elif result.status is RunStatus.FAILED:
        assert result.error is not None
