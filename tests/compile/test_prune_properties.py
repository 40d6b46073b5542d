"""Random Dags, pruned and as they are declared, against each other."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from agentrt.compile.graph import children_of, edges_of, levels_of
from agentrt.compile.prune import PruneCause, prune_dag
from agentrt.declare.dag import Dag
from agentrt.run.events import RunStatus
from tests.support.prunable_dags import KNOWN, prunable_dags, run_dag, tools_writing_to
from tests.support.virtual_time import run_in_virtual_time

TOOLS = tools_writing_to([])


@settings(deadline=None, max_examples=100)
@given(prunable_dags(), st.integers(0, 1), st.integers(0, 1))
def test_pruning_changes_neither_outputs_nor_what_is_written(dag: Dag, u: int, v: int) -> None:
    """Run with the same inputs, a Dag gives the same outputs and writes the same things, as often, pruned or not."""
    inputs = {**KNOWN, "u": u, "v": v}
    whole, whole_log = run_in_virtual_time(lambda: run_dag(dag, inputs, prune=False))
    pruned, pruned_log = run_in_virtual_time(lambda: run_dag(dag, inputs, prune=True))
    assert (whole.status, whole.error) == (RunStatus.SUCCEEDED, None)
    assert (pruned.status, pruned.error) == (RunStatus.SUCCEEDED, None)
    assert pruned.outputs == whole.outputs
    assert Counter(pruned_log) == Counter(whole_log)


def certainly_before(dag: Dag) -> dict[str, set[str]]:
    """Return, for each action, those that have ended before it begins or is skipped, however long each takes."""
    edges = edges_of(dag)
    before: dict[str, set[str]] = {}
    for level in levels_of(edges, children_of(edges)):
        for name in level:
            ends = [before[edge.source] | {edge.source} for edge in edges[name]]
            if dag.actions[name].join.waits_for_all:
                before[name] = set().union(*ends)
            else:
                before[name] = set.intersection(*ends) if ends else set()
    return before


@settings(deadline=None, max_examples=100)
@given(prunable_dags())
def test_pruning_keeps_what_stays_in_order(dag: Dag) -> None:
    """An action that certainly comes after another that may run still does, though what stood between them is gone."""
    kept, _ = prune_dag(dag, TOOLS, KNOWN)
    declared, left = certainly_before(dag), certainly_before(kept)
    may_run = {name for name, action in kept.actions.items() if action.guard is None or action.guard.source != "false"}
    for name in kept.actions:
        assert declared[name] & may_run <= left[name], name


@settings(deadline=None, max_examples=100)
@given(prunable_dags())
def test_pruning_says_what_went_and_leaves_a_whole_dag(dag: Dag) -> None:
    """What was declared is kept or told, never both; whoever stands in for a duplicate is kept; nothing that is written
    may go unless it never runs; and what is kept needs and names in its edges only what is kept."""
    kept, pruned = prune_dag(dag, TOOLS, KNOWN)
    gone = [each.action for each in pruned]
    assert sorted([*kept.actions, *gone]) == sorted(dag.actions)
    assert gone == [name for name in dag.actions if name in set(gone)]
    for each in pruned:
        assert each.into is None if each.cause is not PruneCause.DUPLICATE else each.into in kept.actions
        if getattr(dag.actions[each.action].call, "tool", "") == "record":
            assert each.cause is PruneCause.NEVER_RUNS
    assert all(action.needs <= kept.actions.keys() for action in kept.actions.values())
    assert all({edge.source, edge.target} <= kept.actions.keys() for edge in kept.edges)
    assert prune_dag(dag, TOOLS, KNOWN) == (kept, pruned)
    if not pruned:
        assert list(kept.actions) == list(dag.actions)
