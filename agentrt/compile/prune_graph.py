"""The edges of a Dag while actions are being taken out of it.

Taking one out or putting one in the place of another touches its own neighbours alone, so that pruning stays linear in
actions and edges. At the end the Dag that is left says, in ``needs``, whatever its texts no longer say.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from agentrt.compile.graph import PlanEdge, children_of, levels_of
from agentrt.declare.action import Action
from agentrt.declare.dag import Dag, Edge
from agentrt.declare.guard import Guard

NEVER_HOLDS = Guard("false", frozenset())
"""The condition of an action that never runs and is kept because others are put in order by it."""


class PruneGraph:
    """``incoming``: action -> source -> edge. ``children``: action -> those that wait for it. Mutable."""

    def __init__(self, dag: Dag, edges: Mapping[str, tuple[PlanEdge, ...]]) -> None:
        children = children_of(edges)
        rank = {name: index for index, name in enumerate(dag.actions)}
        levels = levels_of(edges, children)
        self._dag = dag
        self.order = tuple(name for level in levels for name in sorted(level, key=rank.__getitem__))
        """Sources before targets, and otherwise as the Dag declares them. What is in a cycle is not there."""
        self.incoming = {name: {edge.source: edge for edge in own} for name, own in edges.items()}
        self.children = {name: dict.fromkeys(names) for name, names in children.items()}
        self._guards: dict[str, Guard | None] = {}
        self.into: dict[str, str] = {}
        """Those taken out -> those that are there in their place."""
        self._in_place_of: dict[str, list[str]] = {}
        self._free_edges: set[tuple[str, str]] = set()
        self._touched: set[str] = set()

    def guard_of(self, name: str) -> Guard | None:
        return self._guards[name] if name in self._guards else self._dag.actions[name].guard

    def set_guard(self, name: str, guard: Guard | None) -> None:
        self._guards[name] = guard
        self._touched.add(name)

    def free_edge(self, source: str, target: str) -> None:
        """Take the guard off an edge."""
        edges = self.incoming[target]
        edges[source] = edges[source]._replace(guard=None)
        self._free_edges.add((source, target))
        self._touched.add(target)

    def remove(self, name: str) -> None:
        for target in self.children.pop(name):
            del self.incoming[target][name]
            self._touched.add(target)
        for source in self.incoming.pop(name):
            del self.children[source][name]

    def redirect(self, name: str, into: str) -> None:
        """Take ``name`` out and let those that wait for it wait for ``into``."""
        for target in self.children[name]:
            edge = self.incoming[target][name]._replace(source=into)
            self.incoming[target].setdefault(into, edge)
            self.children[into][target] = None
        self.remove(name)
        stands_for = [name, *self._in_place_of.pop(name, ())]
        self._in_place_of.setdefault(into, []).extend(stands_for)
        self.into.update(dict.fromkeys(stands_for, into))

    def dag(self) -> Dag:
        """Return the Dag that is left; the given one where nothing was changed."""
        if not self._touched and len(self.incoming) == len(self._dag.actions):
            return self._dag
        edges = self._edges()
        stated: dict[str, set[str]] = {}
        for edge in edges:
            stated.setdefault(edge.target, set()).add(edge.source)
        actions = {
            name: self._action(action, stated.get(name, set())) if name in self._touched else action
            for name, action in self._dag.actions.items()
            if name in self.incoming
        }
        return dataclasses.replace(self._dag, actions=actions, edges=edges)

    def _action(self, action: Action, stated: set[str]) -> Action:
        action = dataclasses.replace(action, guard=self.guard_of(action.name))
        sources = self.incoming[action.name].keys()
        said = stated.union(reference.name for reference in action.references if reference.kind == "actions")
        return dataclasses.replace(action, needs=(action.needs & sources) | (sources - said))

    def _edges(self) -> tuple[Edge, ...]:
        left: dict[tuple[str, str], Edge] = {}
        for edge in self._dag.edges:
            source = self.into.get(edge.source, edge.source)
            if source in self.incoming.get(edge.target, ()):
                guard = None if (edge.source, edge.target) in self._free_edges else edge.guard
                if source != edge.source or guard is not edge.guard:
                    edge = dataclasses.replace(edge, source=source, guard=guard)
                left[source, edge.target] = edge
        return tuple(left.values())
