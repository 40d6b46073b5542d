"""A Plan: edges written out, an order that keeps them, and no Dag with errors."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from agentrt.compile.plan import plan
from agentrt.declare.action import Action, ActionType
from agentrt.declare.call import FunctionCall
from agentrt.declare.dag import Dag
from agentrt.declare.dag_file import parse_dag
from agentrt.declare.reference import Reference
from agentrt.declare.template import ValueTemplate
from agentrt.errors import DeclarationError
from tests.support.random_dags import dags


def nothing(**given: object) -> None:
    return None


def graph_of(parents: dict[str, list[str]]) -> Dag:
    """Return a Dag of functions with these edges."""
    actions = {
        name: Action(
            name,
            ActionType.FUNCTION,
            FunctionCall(nothing, {other: Reference("actions", other, ("output",)) for other in others}),
        )
        for name, others in parents.items()
    }
    last = next(reversed(parents))
    return Dag("graph", actions, {"out": ValueTemplate.parse(f"{{{{ actions.{last}.output }}}}")})


def test_edges_levels_and_order() -> None:
    """Declared backwards, planned forwards.

    a -> b -> d,  a -> c -> d
    """
    planned = plan(graph_of({"d": ["b", "c"], "c": ["a"], "b": ["a"], "a": []}))
    assert planned.parents == {"d": ("c", "b"), "c": ("a",), "b": ("a",), "a": ()}
    assert planned.children == {"d": (), "c": ("d",), "b": ("d",), "a": ("c", "b")}
    assert planned.levels == (("a",), ("c", "b"), ("d",))
    assert planned.order == ("a", "c", "b", "d")


def test_every_kind_of_dependency_is_an_edge() -> None:
    """A prompt, an argument, a guard and ``needs`` all make an action wait, once each."""
    dag = parse_dag("""
name: d
outputs: {a: "{{ actions.last.output }}"}
actions:
  one: {prompt: hi}
  two: {prompt: hi}
  three: {prompt: hi}
  last: {prompt: "{{ actions.one.output }} {{ actions.one.status }}", if: actions.two.status == 'x', needs: [three, one]}
""")
    assert plan(dag, prune=False).parents["last"] == ("one", "two", "three")


def test_a_dag_with_errors_has_no_plan() -> None:
    """All diagnostics come along; warnings alone keep nothing from running."""
    with pytest.raises(DeclarationError) as caught:
        plan(graph_of({"a": ["b"], "b": ["a"], "c": ["missing"]}))
    assert {d.code for d in caught.value.diagnostics} == {"DAG034", "DAG031"}
    dag = parse_dag("name: d\ninputs: {unused: string}\noutputs: {a: hi}\nactions: {x: {prompt: hi}}")
    assert plan(dag, prune=False).order == ("x",)


@settings(deadline=None, max_examples=40)
@given(dags(max_actions=6))
def test_the_order_keeps_every_edge(dag: Dag) -> None:
    """Each action stands once, after all that it depends on; parents and children mirror each other."""
    planned = plan(dag, prune=False)
    position = {name: index for index, name in enumerate(planned.order)}
    assert sorted(position) == sorted(dag.actions)
    for name, action in dag.actions.items():
        stated = {edge.source for edge in dag.edges if edge.target == name}
        assert set(planned.parents[name]) == action.dependencies | stated
        assert all(position[parent] < position[name] for parent in planned.parents[name])
        assert all(name in planned.children[parent] for parent in planned.parents[name])
    assert sum(map(len, planned.parents.values())) == sum(map(len, planned.children.values()))
    assert plan(dag, prune=False).order == planned.order


def test_ten_thousand_actions_in_a_row() -> None:
    """Nothing recurses: a chain of ten thousand, and a wide graph of forty thousand edges, are planned."""
    size = 10_000
    chain = {f"a{n}": [f"a{n - 1}"] if n else [] for n in range(size)}
    assert len(plan(graph_of(chain)).levels) == size
    wide = {f"a{n}": [f"a{m}" for m in {n // 2, n // 3, n // 5, n // 7} if m < n] for n in range(size)}
    planned = plan(graph_of(wide))
    assert len(planned.order) == size
