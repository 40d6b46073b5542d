"""What is being checked: a Dag with its edges and schemas worked out once, and what was found with whom it concerns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from agentrt.compile.edge_schemas import EdgeSchemas
from agentrt.compile.graph import PlanEdge, children_of, edges_of, levels_of
from agentrt.declare.action import Action
from agentrt.declare.call import ToolCall
from agentrt.declare.dag import Dag
from agentrt.declare.policy import Effects
from agentrt.errors import Diagnostic, Place
from agentrt.tools.registry import ToolRegistry


class Finding(NamedTuple):
    """A diagnostic, and the action whose ``ignore`` may speak of it."""

    action: str | None
    diagnostic: Diagnostic


Findings = Iterator[Finding]


@dataclass(frozen=True)
class Subject:
    """``unread``: actions that are declared but could not be read."""

    dag: Dag
    tools: ToolRegistry | None
    unread: frozenset[str] = frozenset()

    @cached_property
    def known_actions(self) -> frozenset[str]:
        return self.unread | self.dag.actions.keys()

    @cached_property
    def incoming(self) -> Mapping[str, tuple[PlanEdge, ...]]:
        return edges_of(self.dag)

    @cached_property
    def children(self) -> Mapping[str, tuple[str, ...]]:
        return children_of(self.incoming)

    @cached_property
    def levels(self) -> tuple[tuple[str, ...], ...]:
        return levels_of(self.incoming, self.children)

    @cached_property
    def order(self) -> tuple[str, ...]:
        """Every action after all that it waits for; without those in or behind a cycle."""
        return tuple(name for level in self.levels for name in level)

    @cached_property
    def schemas(self) -> EdgeSchemas:
        return EdgeSchemas(self.dag, self.tools)

    def place_of_edge(self, target: str, source: str) -> Place | None:
        """Return where it is said that one action waits for another."""
        action = self.dag.actions[target]
        if source in action.dependencies:
            return action.place_of_dependency(source)
        stated = (edge.place for edge in self.dag.edges if edge.target == target and edge.source == source)
        return next(stated, action.place)


def writes(action: Action, tools: ToolRegistry | None) -> bool:
    """Whether doing it twice, or half, would do harm, as far as that is declared."""
    if action.effects is not None:
        return action.effects is Effects.WRITE
    return any(
        isinstance(call, ToolCall)
        and tools is not None
        and call.tool in tools
        and tools[call.tool].effects == Effects.WRITE
        for call in action.calls
    )
