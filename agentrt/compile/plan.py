"""A Plan: a Dag that was checked, freed of what is useless, and put in order.

Everything here is linear in actions and edges and free of recursion, so a Dag of ten thousand actions is no special case.
A Dag inside a Dag is planned with it, as a Plan of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from agentrt.compile.check import check_subject
from agentrt.compile.graph import PlanEdge, edges_of
from agentrt.compile.prune import Pruned, fuse, prune_dag
from agentrt.compile.subject import Subject
from agentrt.declare.call import DagCall
from agentrt.declare.dag import Dag
from agentrt.errors import DeclarationError, Diagnostic, Severity
from agentrt.tools.registry import ToolRegistry


@dataclass(frozen=True, slots=True)
class Plan:
    """A checked Dag with its edges written out.

    ``parents`` and ``children`` name, for each action, those it waits for and those that wait for it, in the order the
    Dag declares them. ``levels`` groups actions by the length of the longest path that leads to them; read one after
    another they are a topological order.
    """

    dag: Dag
    """What is run."""
    declared: Dag
    """What was declared; the same as ``dag`` where nothing was pruned."""
    incoming: Mapping[str, tuple[PlanEdge, ...]]
    children: Mapping[str, tuple[str, ...]]
    levels: tuple[tuple[str, ...], ...]
    pruned: tuple[Pruned, ...] = ()
    units: tuple[tuple[str, ...], ...] = ()
    """Chains of two and more cheap local actions that are scheduled as one."""
    inner: Mapping[str, Plan] = field(default_factory=dict)
    """Action -> the Plan of the Dag that it runs."""
    diagnostics: tuple[Diagnostic, ...] = ()
    """Warnings."""

    @property
    def parents(self) -> Mapping[str, tuple[str, ...]]:
        return {name: tuple(edge.source for edge in edges) for name, edges in self.incoming.items()}

    @property
    def edges(self) -> tuple[PlanEdge, ...]:
        return tuple(edge for edges in self.incoming.values() for edge in edges)

    @property
    def num_declared_edges(self) -> int:
        return sum(map(len, edges_of(self.declared).values()))

    @property
    def order(self) -> tuple[str, ...]:
        """Every action after all that it depends on."""
        return tuple(name for level in self.levels for name in level)


def plan(
    dag: Dag,
    tools: ToolRegistry | None = None,
    *,
    known_inputs: Mapping[str, Any] | None = None,
    prune: bool = True,
) -> Plan:
    """Check a Dag, prune it and put it in order. Without ``tools`` their names and parameters are not checked.

    ``known_inputs`` hold for every run of the Plan: conditions on them are settled now.

    Raises:
        DeclarationError: the Dag is wrong; carries every diagnostic, warnings included.
    """
    subject = Subject(dag, tools)
    diagnostics = check_subject(subject)
    if any(diagnostic.severity is Severity.ERROR for diagnostic in diagnostics):
        raise DeclarationError(diagnostics)
    return _plan(subject, known_inputs or {}, prune, diagnostics, {})


def _plan(
    subject: Subject,
    known_inputs: Mapping[str, Any],
    prune: bool,
    diagnostics: tuple[Diagnostic, ...],
    planned: dict[int, Plan],
) -> Plan:
    dag, tools = subject.dag, subject.tools
    kept, pruned = prune_dag(dag, tools, known_inputs, edges=subject.incoming) if prune else (dag, ())
    if kept is not dag:
        subject = Subject(kept, tools)
    inner: dict[str, Plan] = {}
    for name, action in kept.actions.items():
        calls = [action.call, action.fallback.call if action.fallback else None]
        for key, call in zip((name, fallback_key(name)), calls, strict=True):
            if isinstance(call, DagCall):
                # One file used many times is planned once.
                if id(call.dag) not in planned:
                    planned[id(call.dag)] = _plan(Subject(call.dag, tools), {}, prune, (), planned)
                inner[key] = planned[id(call.dag)]
    return Plan(
        dag=kept,
        declared=dag,
        incoming=subject.incoming,
        children=subject.children,
        levels=subject.levels,
        pruned=pruned,
        units=fuse(kept, subject.incoming, subject.children, tools),
        inner=inner,
        diagnostics=diagnostics,
    )


def fallback_key(name: str) -> str:
    """Return the name under which the Plan of an action's fallback stands in ``inner``."""
    return f"{name}.fallback"
