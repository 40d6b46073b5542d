"""What can be left out of a Dag without changing what comes out of it.

The static pruning of DAG state machines: branches whose guard cannot hold, isolated and dangling actions, and equivalent
ones, as dead code, unused code and common subexpressions are for a compiler. The measure is strict. For every run that
succeeds, the outputs, what is written to the world and the order of what stays are as they were; where that cannot be
shown, the action stays.

The passes run once each, in this order, because none makes work for one before it: what never runs reads nothing any more,
so its sources may have become unused; what is unused waits for nobody, so it no longer keeps two duplicates apart; and a
duplicate reads what its equivalent reads, so no source becomes unused by it. All are linear in actions and edges.

The texts of what stays are not rewritten. Templates and guards may name an action that is gone, and a run gives them what
they would have seen: for one that never runs null and ``skipped``, for a duplicate the outcome of ``Pruned.into``.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from agentrt.compile.graph import PlanEdge, edges_of
from agentrt.compile.prune_duplicates import merge_duplicates
from agentrt.compile.prune_effects import ActionEffects
from agentrt.compile.prune_fusion import fuse
from agentrt.compile.prune_graph import PruneGraph
from agentrt.compile.prune_never import remove_never_running
from agentrt.declare.dag import Dag
from agentrt.declare.policy import Effects
from agentrt.tools.registry import ToolRegistry

__all__ = ["PruneCause", "Pruned", "fuse", "prune_dag"]


class PruneCause(enum.StrEnum):
    """Why an action is left out."""

    NEVER_RUNS = "never_runs"
    """Its condition cannot hold, or what it waits for never runs."""
    UNUSED = "unused"
    """Nothing reads it or waits for it, and it writes nothing."""
    DUPLICATE = "duplicate"
    """Another action does the same; it stands in for both."""


@dataclass(frozen=True, slots=True)
class Pruned:
    """One action left out, and why. ``into``: the action that stands in for a duplicate."""

    action: str
    cause: PruneCause
    reason: str
    into: str | None = None


def prune_dag(
    dag: Dag,
    tools: ToolRegistry | None,
    known_inputs: Mapping[str, Any],
    *,
    edges: Mapping[str, tuple[PlanEdge, ...]] | None = None,
) -> tuple[Dag, tuple[Pruned, ...]]:
    """Return the Dag that is left, and what went, in the order of the Dag.

    Without ``tools`` every tool is taken to write. ``edges``: those of the Dag, if they are known already.
    """
    graph = PruneGraph(dag, edges_of(dag) if edges is None else edges)
    effects = ActionEffects(dag, tools)
    gone: dict[str, Pruned] = {}

    never, kept = remove_never_running(dag, graph, known_inputs)
    for name in never.keys() - kept:
        gone[name] = Pruned(name, PruneCause.NEVER_RUNS, never[name])

    read_by_outputs = {r.name for template in dag.outputs.values() for r in template.references if r.kind == "actions"}

    def is_useless(name: str) -> bool:
        if name in kept:
            return True
        return name not in read_by_outputs and effects.of(dag.actions[name]) is Effects.NONE

    for name, reason in _remove_unused(graph, is_useless).items():
        if name in kept:
            gone[name] = Pruned(name, PruneCause.NEVER_RUNS, never[name])
        else:
            gone[name] = Pruned(name, PruneCause.UNUSED, reason)

    for name, into in merge_duplicates(dag, graph, effects).items():
        gone[name] = Pruned(name, PruneCause.DUPLICATE, f"it does the same as {into!r}", into)
    return graph.dag(), tuple(gone[name] for name in dag.actions if name in gone)


def _remove_unused(graph: PruneGraph, is_useless: Callable[[str], bool]) -> dict[str, str]:
    """Take out what nobody waits for and that is good for nothing by itself, then what only that waited for, and so on."""
    was_read = {name for name, children in graph.children.items() if children}
    reasons: dict[str, str] = {}
    for name in reversed(graph.order):
        if name in graph.children and not graph.children[name] and is_useless(name):
            reader = "nothing" if name not in was_read else "nothing that is left"
            reasons[name] = f"{reader} reads it, and it writes nothing"
            graph.remove(name)
    return reasons
