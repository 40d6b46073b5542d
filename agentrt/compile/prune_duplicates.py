"""Actions that do the same as another: one stands in for both.

The same means: the same call with the same values, under the same condition, after the same actions, with the same policy,
without effects on the world, and the same output each time. Two actions that differ only in reading one or the other of two
duplicates are duplicates themselves; templates are compared by what they read, not by how they are written, where they are
texts and plain references. A template with expressions is compared as it is written.

An action that follows its equivalent for order alone (``a -> b``, where ``b`` needs ``a``) gives the same once more and is
shared too. What ``a`` waits for on top of that makes no difference to ``b``, unless ``a`` is optional: then ``b`` runs even
where ``a`` was skipped.

Who waits for the duplicate waits for its equivalent from then on. With a join that is a race, or guards on edges from both,
that would be another question than the one that was asked; the duplicate stays then.
"""

from __future__ import annotations

import json
import re
from collections.abc import Hashable, Mapping
from typing import Any

from agentrt.compile.graph import PlanEdge
from agentrt.compile.prune_effects import ActionEffects
from agentrt.compile.prune_graph import NEVER_HOLDS, PruneGraph
from agentrt.declare.action import Action
from agentrt.declare.call import Call, DagCall, FunctionCall, HumanCall, LlmCall, ToolCall
from agentrt.declare.dag import Dag
from agentrt.declare.guard import Guard
from agentrt.declare.policy import ALL, Effects
from agentrt.declare.reference import Reference
from agentrt.declare.template import Position, Template, ValueTemplate
from agentrt.declare.template_program import Pieces, Program, read_program

_Sources = frozenset[tuple[str, str | None, bool]]
"""Of each incoming edge its source, its guard and whether it streams."""


def merge_duplicates(dag: Dag, graph: PruneGraph, effects: ActionEffects) -> Mapping[str, str]:
    """Take duplicates out of ``graph``; return, for each, the action that stands in for it.

    In the order of the graph, so that what an action waits for is settled before the action itself is compared. What it
    waits for is compared first: few actions have the same sources, and only those are looked into.
    """
    while _merge_once(dag, graph, effects):
        pass
    return graph.into


def _merge_once(dag: Dag, graph: PruneGraph, effects: ActionEffects) -> bool:
    """Go through the graph once; return whether going through it again may find more."""
    forms = _Forms(dag, graph, effects)
    num_before, num_refused = len(graph.into), 0
    sources: dict[str, _Sources] = {}
    alike: dict[_Sources, list[str]] = {}
    first: dict[tuple[_Sources, Hashable], str] = {}
    for name in graph.order:
        if name not in graph.incoming:
            continue
        edges = graph.incoming[name].values()
        sources[name] = own = frozenset(map(_as_source, edges))
        others = alike.setdefault(own, [])
        others.append(name)
        if len(others) == 2:
            # Only now is it worth knowing what the first of them does.
            first[own, forms.of(others[0])] = others[0]
        equivalent = first.setdefault((own, forms.of(name)), name) if len(others) > 1 else name
        if equivalent == name and dag.actions[name].join == ALL:
            earlier = [edge.source for edge in edges if _is_for_order_alone(edge)]
            equivalent = next((other for other in earlier if _follows(name, other, forms, sources)), name)
        if equivalent == name:
            continue
        if _can_stand_in(dag, graph, name, equivalent):
            graph.redirect(name, equivalent)
            others.pop()
        else:
            # Whoever was in the way may turn out to be a duplicate itself.
            num_refused += 1
    return num_refused > 0 and len(graph.into) > num_before


def _follows(name: str, other: str, forms: _Forms, sources: Mapping[str, _Sources]) -> bool:
    """Whether ``name``, which needs ``other``, does the same once more, and runs exactly when ``other`` does."""
    own = sources[name] - {(other, None, False)}
    enough = own == sources[other] if forms.is_optional(name) else own <= sources[other]
    return enough and forms.of(name) == forms.of(other)


def _as_source(edge: PlanEdge) -> tuple[str, str | None, bool]:
    return edge.source, edge.guard.source if edge.guard else None, edge.stream


def _is_for_order_alone(edge: PlanEdge) -> bool:
    return not edge.reads and edge.guard is None and not edge.stream


def _can_stand_in(dag: Dag, graph: PruneGraph, name: str, equivalent: str) -> bool:
    """Whether every action that waits for ``name`` may as well wait for ``equivalent``."""
    for target in graph.children[name]:
        if not dag.actions[target].join.waits_for_all:
            return False
        edges = graph.incoming[target]
        if equivalent in edges and _as_source(edges[equivalent])[1:] != _as_source(edges[name])[1:]:
            return False
    return True


class _Forms:
    """What actions do, in a form that is equal for equal work."""

    def __init__(self, dag: Dag, graph: PruneGraph, effects: ActionEffects) -> None:
        self._actions = dag.actions
        self._graph = graph
        self._effects = effects
        self._known: dict[str, Hashable] = {}

    def is_optional(self, name: str) -> bool:
        return self._actions[name].optional

    def of(self, name: str) -> Hashable:
        """Return the form of an action whose sources are settled; equal to no other where it cannot be shared."""
        if name not in self._known:
            action, guard = self._actions[name], self._graph.guard_of(name)
            can_be_shared = (
                guard is not NEVER_HOLDS
                and self._effects.of(action) is Effects.NONE
                and self._effects.is_steady(action)
            )
            self._known[name] = self._action(action, guard) if can_be_shared else name
        return self._known[name]

    def _action(self, action: Action, guard: Guard | None) -> Hashable:
        each, fallback = action.for_each, action.fallback
        return (
            action.type,
            self._call(action.call),
            guard.source if guard else None,
            action.join,
            action.optional,
            action.timeout_s,
            action.retry,
            action.cache,
            each and (self._value(each.items), each.max_parallel, each.on_error),
            fallback and fallback.call and self._call(fallback.call),
            fallback and fallback.value and self._value(fallback.value),
        )

    def _call(self, call: Call) -> Hashable:
        match call:
            case LlmCall():
                settings = json.dumps([dict(call.parameters), call.output_schema], sort_keys=True)
                return "llm", call.agent, self._template(call.prompt), call.choices, settings
            case ToolCall():
                return "tool", call.tool, self._value(call.arguments)
            case FunctionCall():
                read = frozenset((parameter, self._reference(r)) for parameter, r in call.arguments.items())
                converters = frozenset((parameter, id(convert)) for parameter, convert in call.converters.items())
                return "function", id(call.function), read, converters, call.agent
            case DagCall():
                return "dag", id(call.dag), self._value(call.arguments), call.agent
            case HumanCall():
                raise AssertionError("a person is never asked once for two questions")

    def _reference(self, reference: Reference) -> Hashable:
        if reference.kind == "actions":
            return Reference("actions", self._graph.into.get(reference.name, reference.name), reference.path)
        return reference

    def _template(self, template: Template) -> Hashable:
        if not template.references or not _is_plain(template.source):
            return template.source
        return self._program(template.source, read_program(template.source, None))

    def _value(self, template: ValueTemplate) -> Hashable:
        return self._part(template.source, (), template.programs)

    def _part(self, value: Any, at: Position, programs: Mapping[Position, Program]) -> Hashable:
        if isinstance(value, dict):
            return "{", tuple((key, self._part(part, (*at, key), programs)) for key, part in value.items())
        if isinstance(value, list):
            return "[", tuple(self._part(part, (*at, index), programs) for index, part in enumerate(value))
        if at in programs:
            return self._program(value, programs[at])
        # 1, 1.0 and true are equal in Python and are not the same.
        return type(value), repr(value)

    def _program(self, source: str, program: Program) -> Hashable:
        if not isinstance(program, Pieces):
            return source
        return tuple(piece if isinstance(piece, str) else (self._keys(piece.keys),) for piece in program.pieces)

    def _keys(self, keys: tuple[str | int, ...]) -> tuple[str | int, ...]:
        if keys[0] == "actions":
            return "actions", self._graph.into.get(str(keys[1]), keys[1]), *keys[2:]
        return keys


_PLAIN_EXPRESSION = re.compile(r"\{\{[\s\w.\[\]'\"]*\}\}")


def _is_plain(source: str) -> bool:
    """Whether a template looks like texts and plain references, so that reading it again costs little."""
    return "{%" not in source and "{#" not in source and "{{" not in _PLAIN_EXPRESSION.sub("", source)
