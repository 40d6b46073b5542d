"""Actions that never run: their condition cannot hold, or their join cannot be satisfied.

Whoever reads one sees what it would see anyway: null, and the status ``skipped``. An edge from one is dead from the start,
so a join that does not want all its edges does without it. From one that is ``optional`` it is live from the start; where
that counts (a join that does not want all, a guard that is not settled) the action is kept.

Order is kept as well. In ``charge -> notify -> ship`` where ``notify`` is optional and never runs, ``ship`` must still not
begin before ``charge`` has succeeded. Leaving out ``notify`` is right only where ``ship`` comes after ``charge`` by another
way too. So for each action that would lose a source, what that source put before it (``_Order``) must be put before it by
those that stay; otherwise the source stays, with a condition that never holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from agentrt.compile.graph import PlanEdge
from agentrt.compile.guard_analysis import fold, possible_results
from agentrt.compile.guard_domain import Domain
from agentrt.compile.guard_outcome import Outcome
from agentrt.compile.prune_graph import NEVER_HOLDS, PruneGraph
from agentrt.declare.action import Action
from agentrt.declare.dag import Dag
from agentrt.declare.guard import Guard
from agentrt.declare.policy import JoinKind
from agentrt.declare.reference import Reference


def remove_never_running(
    dag: Dag, graph: PruneGraph, known_inputs: Mapping[str, Any]
) -> tuple[dict[str, str], set[str]]:
    """Take them out of ``graph``; return why, for each, and those that never run and had to stay.

    Conditions that always hold are taken off their actions and edges.
    """
    found = _NeverRunning(dag, graph, known_inputs)
    kept = found.kept_for_others()
    for name in kept:
        graph.set_guard(name, NEVER_HOLDS)
    for name in found.reasons.keys() - kept:
        graph.remove(name)
    for name in found.always_true:
        if name not in found.reasons:
            graph.set_guard(name, None)
    for source, target in found.free_edges:
        if source in graph.children and target in graph.children:
            graph.free_edge(source, target)
    return found.reasons, kept


class _NeverRunning:
    def __init__(self, dag: Dag, graph: PruneGraph, known_inputs: Mapping[str, Any]) -> None:
        self._actions = dag.actions
        self._graph = graph
        self._settled = _Settled(dag, known_inputs)
        self.reasons: dict[str, str] = {}
        self.always_true: list[str] = []
        self.free_edges: list[tuple[str, str]] = []
        for name in graph.order:
            reason = self._why_never(dag.actions[name])
            if reason is not None:
                self.reasons[name] = reason
                self._settled.never_runs(name)

    def _why_never(self, action: Action) -> str | None:
        if action.guard is not None:
            holds = self._settled.value(action.guard)
            if holds is False:
                return f"its condition never holds: {action.guard.source}"
            if holds:
                self.always_true.append(action.name)
        edges = self._graph.incoming[action.name].values()
        dead = [(edge, why) for edge in edges if (why := self._why_dead(edge)) is not None]
        if len(edges) - len(dead) >= action.join.num_wanted(len(edges)):
            return None
        if not dead:
            return f"its join wants {action.join.count} edges, and it has {len(edges)}"
        return dead[0][1]

    def _why_dead(self, edge: PlanEdge) -> str | None:
        if edge.source in self.reasons and not self._actions[edge.source].optional:
            return f"it waits for {edge.source!r}, which never runs"
        if edge.guard is not None:
            holds = self._settled.value(edge.guard)
            if holds is False:
                return f"the guard of its edge from {edge.source!r} never holds: {edge.guard.source}"
            if holds:
                self.free_edges.append((edge.source, edge.target))
        return None

    def kept_for_others(self) -> set[str]:
        """Return those that must stay. Targets are looked at before their sources: one that stays may need its own."""
        graph = self._graph
        kept: set[str] = set()
        if not any(child not in self.reasons for name in self.reasons for child in graph.children[name]):
            return kept
        order = _Order(graph, self._actions, self.reasons)
        for name in reversed(graph.order):
            if name in self.reasons and name not in kept:
                continue
            leaving = [edge for edge in graph.incoming[name].values() if edge.source in self.reasons]
            if not leaving:
                continue
            join = self._actions[name].join
            if name not in self.reasons:
                kept.update(edge.source for edge in leaving if self._counts_as_live(edge, join.kind))
            if not join.waits_for_all:
                continue
            covered = 0
            for edge in graph.incoming[name].values():
                if edge.source not in self.reasons or edge.source in kept:
                    covered |= order.until_end(edge.source)
            for edge in leaving:
                if order.until_end(edge.source) & ~covered:
                    kept.add(edge.source)
                    covered |= order.until_end(edge.source)
        return kept

    def _counts_as_live(self, edge: PlanEdge, join: JoinKind) -> bool:
        """Whether something is decided by this edge from an optional action."""
        if not self._actions[edge.source].optional:
            return False
        holds = True if edge.guard is None else self._settled.value(edge.guard)
        return holds is None or (holds and join is not JoinKind.ALL)


class _Order:
    """Which of the actions that stay have certainly ended before an action begins or is skipped.

    Only those matter that lead into what never runs; each is one bit, so that the whole is linear in edges.
    """

    def __init__(self, graph: PruneGraph, actions: Mapping[str, Action], never: Mapping[str, str]) -> None:
        self._bits: dict[str, int] = {}
        for name in graph.order:
            if name in never:
                for source in graph.incoming[name]:
                    if source not in never:
                        self._bits.setdefault(source, 1 << len(self._bits))
        self._before: dict[str, int] = {}
        for name in graph.order:
            ends = [self.until_end(source) for source in graph.incoming[name]]
            self._before[name] = _union(ends) if actions[name].join.waits_for_all else _intersection(ends)

    def until_end(self, name: str) -> int:
        return self._before[name] | self._bits.get(name, 0)


def _union(sets: Iterable[int]) -> int:
    result = 0
    for each in sets:
        result |= each
    return result


def _intersection(sets: Iterable[int]) -> int:
    """An action that begins at the first or n-th of its edges comes after what they all come after."""
    result = -1
    for each in sets:
        result &= each
    return max(result, 0)


class _Settled:
    """What conditions come to, as far as it is known before the run: from constants, inputs, and what never runs."""

    def __init__(self, dag: Dag, known_inputs: Mapping[str, Any]) -> None:
        self._inputs = dag.inputs
        self._known: dict[Reference, Any] = {Reference("inputs", name): value for name, value in known_inputs.items()}
        self._never: set[str] = set()
        self._found: dict[str, bool | None] = {}

    def never_runs(self, name: str) -> None:
        self._never.add(name)
        self._known[Reference("actions", name, ("output",))] = None
        self._known[Reference("actions", name, ("status",))] = "skipped"

    def value(self, guard: Guard) -> bool | None:
        """Return what the guard comes to; None when that is open, or is an error that only the run may raise."""
        if any(reference.kind == "actions" and reference.name in self._never for reference in guard.references):
            return fold(guard, self._known)
        if guard.source not in self._found:
            self._found[guard.source] = self._of_inputs(guard)
        return self._found[guard.source]

    def _of_inputs(self, guard: Guard) -> bool | None:
        holds = fold(guard, self._known)
        if holds is not None or any(reference.kind != "inputs" for reference in guard.references):
            return holds
        # The schema of an input may decide it: a run begins only with inputs that fit.
        results = possible_results([guard], self._domain_of, self._known)
        if results == {(Outcome.HOLDS,)}:
            return True
        return False if results == {(Outcome.DOES_NOT_HOLD,)} else None

    def _domain_of(self, reference: Reference) -> Domain:
        declared = self._inputs.get(reference.name)
        return Domain(nullable=True) if declared is None or reference.path else Domain(declared.schema)
