"""Shortest cycles: found, shortest, and nothing found where there is none."""

from __future__ import annotations

import networkx
from hypothesis import given, settings
from hypothesis import strategies as st

from agentrt.compile.cycle import shortest_cycles

GRAPHS = st.dictionaries(
    st.sampled_from("abcdefg"), st.lists(st.sampled_from("abcdefg"), max_size=3, unique=True), min_size=1, max_size=7
).map(lambda graph: {name: [other for other in others if other in graph] for name, others in graph.items()})


def test_no_cycle_no_finding() -> None:
    """A diamond has none.

    a -> b -> d,  a -> c -> d
    """
    assert shortest_cycles({"a": [], "b": ["a"], "c": ["a"], "d": ["b", "c"]}) == []


def test_one_cycle_for_each_knot_and_the_shortest_of_it() -> None:
    """Two knots are told apart; of the first the cycle of two is told, not that of three.

    a -> b -> c -> a,  b -> a      x -> y -> x      a self-reference is no cycle of its own: s -> s
    """
    graph = {"a": ["b"], "b": ["c", "a"], "c": ["a"], "x": ["y", "a"], "y": ["x"], "s": ["s"]}
    assert shortest_cycles(graph) == [("a", "b"), ("x", "y")]


@settings(deadline=None, max_examples=300)
@given(GRAPHS)
def test_agreement_with_networkx(graph: dict[str, list[str]]) -> None:
    """One cycle a strongly connected component, each edge of it real, and none of the component is shorter."""
    cycles = shortest_cycles(graph)
    reference = networkx.DiGraph([(name, other) for name in graph for other in graph[name] if other != name])
    knots = [part for part in networkx.strongly_connected_components(reference) if len(part) > 1]
    assert len(cycles) == len(knots)
    for cycle in cycles:
        assert len(set(cycle)) == len(cycle)
        assert all(other in graph[name] for name, other in zip(cycle, (*cycle[1:], cycle[0]), strict=True))
        (knot,) = [part for part in knots if cycle[0] in part]
        assert len(cycle) == min(len(found) for found in networkx.simple_cycles(reference.subgraph(knot)))


def test_the_search_is_bounded_in_a_large_knot() -> None:
    """Ten thousand actions in one knot are no reason to search for minutes; a cycle is still told."""
    size = 10_000
    graph = {str(n): [str((n + 1) % size), str((n * 7 + 3) % size)] for n in range(size)}
    (cycle,) = shortest_cycles(graph)
    assert all(other in graph[name] for name, other in zip(cycle, (*cycle[1:], cycle[0]), strict=True))
