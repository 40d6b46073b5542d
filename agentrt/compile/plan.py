"""A Plan: a Dag that was checked and put in order.

Everything here is linear in actions and edges and free of recursion, so a Dag of ten thousand actions is no special case.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from agentrt.compile.check import check
from agentrt.declare.dag import Dag
from agentrt.errors import DeclarationError, Severity
from agentrt.tools.registry import ToolRegistry


@dataclass(frozen=True, slots=True)
class Plan:
    """A checked Dag with its edges written out.

    ``parents`` and ``children`` name, for each action, those it depends on and those that depend on it, in the order the
    Dag declares them. ``levels`` groups actions by the length of the longest path that leads to them; read one after
    another they are a topological order.
    """

    dag: Dag
    parents: Mapping[str, tuple[str, ...]]
    children: Mapping[str, tuple[str, ...]]
    levels: tuple[tuple[str, ...], ...]

    @property
    def order(self) -> tuple[str, ...]:
        """Every action after all that it depends on."""
        return tuple(name for level in self.levels for name in level)


def plan(dag: Dag, tools: ToolRegistry | None = None) -> Plan:
    """Check a Dag and put it in order. Without ``tools`` their names and parameters are not checked.

    Raises:
        DeclarationError: the Dag is wrong; carries every diagnostic, warnings included.
    """
    diagnostics = check(dag, tools)
    if any(diagnostic.severity is Severity.ERROR for diagnostic in diagnostics):
        raise DeclarationError(diagnostics)
    rank = {name: index for index, name in enumerate(dag.actions)}
    parents = {name: tuple(sorted(action.dependencies, key=rank.__getitem__)) for name, action in dag.actions.items()}
    children: dict[str, list[str]] = {name: [] for name in dag.actions}
    for name, dependencies in parents.items():
        for dependency in dependencies:
            children[dependency].append(name)
    return Plan(
        dag=dag,
        parents=parents,
        children={name: tuple(names) for name, names in children.items()},
        levels=_levels(parents, children),
    )


def _levels(parents: Mapping[str, tuple[str, ...]], children: Mapping[str, list[str]]) -> tuple[tuple[str, ...], ...]:
    num_waiting = {name: len(names) for name, names in parents.items()}
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
