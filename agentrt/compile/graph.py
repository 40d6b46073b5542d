"""The edges of a Dag, written out: those that follow from what actions read and need, and those that the Dag states."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from agentrt.declare.dag import Dag
from agentrt.declare.guard import Guard


class PlanEdge(NamedTuple):
    """``target`` waits for ``source``. ``reads``: it reads something of it; otherwise the edge is for order alone.

    ``guard`` is the edge's own condition; a condition of the whole action stands in ``Action.guard``.
    """

    source: str
    target: str
    reads: bool
    guard: Guard | None = None
    stream: bool = False


def edges_of(dag: Dag) -> dict[str, tuple[PlanEdge, ...]]:
    """Return the edges into each action, by the order in which the Dag declares their sources.

    What names an action that is not there is left out; ``check`` tells of it.
    """
    rank = {name: index for index, name in enumerate(dag.actions)}
    stated: dict[str, dict[str, tuple[Guard | None, bool]]] = {}
    for edge in dag.edges:
        stated.setdefault(edge.target, {})[edge.source] = (edge.guard, edge.stream)
    edges: dict[str, tuple[PlanEdge, ...]] = {}
    for name, action in dag.actions.items():
        own = stated.get(name, {})
        read = {reference.name for reference in action.references if reference.kind == "actions"}
        sources = {source for source in (read | action.needs | own.keys()) if source in rank}
        edges[name] = tuple(
            PlanEdge(source, name, source in read, *own.get(source, (None, False)))
            for source in sorted(sources, key=rank.__getitem__)
        )
    return edges


def children_of(edges: Mapping[str, tuple[PlanEdge, ...]]) -> dict[str, tuple[str, ...]]:
    """Return, for each action, those that wait for it, in the order of the Dag."""
    children: dict[str, list[str]] = {name: [] for name in edges}
    for name, incoming in edges.items():
        for edge in incoming:
            children[edge.source].append(name)
    return {name: tuple(names) for name, names in children.items()}


def levels_of(
    edges: Mapping[str, tuple[PlanEdge, ...]], children: Mapping[str, tuple[str, ...]]
) -> tuple[tuple[str, ...], ...]:
    """Group actions by the length of the longest path that leads to them; what is in a cycle is in no level."""
    num_waiting = {name: len(incoming) for name, incoming in edges.items()}
    level = [name for name, count in num_waiting.items() if count == 0]
    levels: list[tuple[str, ...]] = []
    while level:
        levels.append(tuple(level))
        following: list[str] = []
        for name in level:
            for child in children[name]:
                num_waiting[child] -= 1
                if num_waiting[child] == 0:
                    following.append(child)
        level = following
    return tuple(levels)
