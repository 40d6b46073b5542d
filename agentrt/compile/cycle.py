"""Finding a shortest cycle, so that the message names as few actions as the mistake has.

A Dag without cycles, which is nearly every one, is known by counting alone; networkx, a third of a second to import, is
loaded only to tell the knots of a graph apart that has some.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping

MAX_EDGES_SEARCHED = 1_000_000
"""Edges looked at for the shortest cycle of one component; beyond, the shortest found so far is good enough."""


def shortest_cycles(parents: Mapping[str, Iterable[str]]) -> list[tuple[str, ...]]:
    """Return one shortest cycle of each strongly connected component, as actions of which each depends on the next.

    Linear in actions and edges where there is no cycle. Self-references are left out: they are told apart.
    """
    knotted = _without_order(parents)
    if not knotted:
        return []
    import networkx

    graph: networkx.DiGraph[str] = networkx.DiGraph()
    graph.add_edges_from((name, other) for name in knotted for other in knotted[name])
    rank = {name: index for index, name in enumerate(parents)}
    found = []
    for component in networkx.strongly_connected_components(graph):
        if len(component) > 1:
            found.append(_shortest(sorted(component, key=rank.__getitem__), knotted, component))
    return sorted(found, key=lambda cycle: rank[cycle[0]])


def _without_order(parents: Mapping[str, Iterable[str]]) -> dict[str, list[str]]:
    """Return what is left of a graph after everything that can be put in order is taken away."""
    waits_for = {name: {other for other in others if other != name} for name, others in parents.items()}
    children: dict[str, list[str]] = {name: [] for name in parents}
    for name, others in waits_for.items():
        for other in others:
            children[other].append(name)
    num_waiting = {name: len(others) for name, others in waits_for.items()}
    ready = [name for name, count in num_waiting.items() if count == 0]
    while ready:
        name = ready.pop()
        del num_waiting[name]
        for child in children[name]:
            num_waiting[child] -= 1
            if num_waiting[child] == 0:
                ready.append(child)
    return {name: sorted(waits_for[name] & num_waiting.keys()) for name in num_waiting}


def _shortest(members: list[str], parents: Mapping[str, list[str]], component: Collection[str]) -> tuple[str, ...]:
    best: tuple[str, ...] = ()
    left = MAX_EDGES_SEARCHED
    for start in members:
        cycle, num_edges = _shortest_through(start, parents, component, len(best) or None)
        best = cycle or best
        left -= num_edges
        if len(best) == 2 or (best and left < 0):
            break
    assert best, "a strongly connected component of two or more has a cycle through each of its members"
    return best


def _shortest_through(
    start: str, parents: Mapping[str, list[str]], component: Collection[str], shorter_than: int | None
) -> tuple[tuple[str, ...], int]:
    """Search breadth-first from ``start`` back to itself; returns the cycle, if there is one, and the edges looked at."""
    came_from: dict[str, str | None] = {start: None}
    level = {start: 0}
    queue = deque([start])
    num_edges = 0
    while queue:
        name = queue.popleft()
        if shorter_than is not None and level[name] + 1 >= shorter_than:
            break
        for other in parents[name]:
            num_edges += 1
            if other == start:
                path = [name]
                while (before := came_from[path[-1]]) is not None:
                    path.append(before)
                return tuple(reversed(path)), num_edges
            if other in component and other not in came_from:
                came_from[other] = name
                level[other] = level[name] + 1
                queue.append(other)
    return (), num_edges
