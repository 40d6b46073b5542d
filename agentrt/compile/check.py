"""Every mistake that is visible in a Dag, found before anything runs, and all of them at once.

Pure, linear in actions and references, and exact: what is reported here would go wrong, or could not have an effect. What
the text of a file already shows (unknown keys, malformed durations) is reported by ``declare`` when it is read.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from agentrt.compile.cycle import shortest_cycles
from agentrt.compile.references import check_reference, did_you_mean, self_reference
from agentrt.declare.action import Action, Effects, FunctionCall, LlmCall, ToolCall
from agentrt.declare.codes import Code, diagnose
from agentrt.declare.dag import Dag
from agentrt.declare.dag_file import read_dag_file
from agentrt.declare.json_schema import misfit
from agentrt.declare.limits import MAX_DIAGNOSTICS
from agentrt.errors import Diagnostic, Place, Severity
from agentrt.tools.registry import ToolRegistry


def check_file(path: str | Path, tools: ToolRegistry | None = None) -> tuple[Dag | None, tuple[Diagnostic, ...]]:
    """Read a DAG file and check it; returns the Dag as far as it could be read and everything that is wrong."""
    reading = read_dag_file(path)
    found = list(reading.diagnostics)
    if reading.dag is not None:
        # In a Dag that was read in part, what seems unused or missing may only be unread.
        found += [
            diagnostic
            for diagnostic in check(reading.dag, tools, unread_actions=reading.unread_actions)
            if not found or (diagnostic.severity is Severity.ERROR and diagnostic.code != Code.NO_OUTPUTS)
        ]
    return reading.dag, tuple(sorted(found, key=_by_place))


def check(
    dag: Dag, tools: ToolRegistry | None = None, *, unread_actions: frozenset[str] = frozenset()
) -> tuple[Diagnostic, ...]:
    """Return everything wrong with ``dag``, up to MAX_DIAGNOSTICS, in the order of the file.

    Without ``tools``, tools are not looked at. ``unread_actions`` are there but could not be read.
    """
    found = islice(_all_diagnostics(dag, tools, {*dag.actions, *unread_actions}), MAX_DIAGNOSTICS)
    return tuple(sorted(found, key=_by_place))


def _all_diagnostics(dag: Dag, tools: ToolRegistry | None, known_actions: Collection[str]) -> Iterator[Diagnostic]:
    for action in dag.actions.values():
        yield from _check_action(dag, action, known_actions, tools)
        if tools is not None and isinstance(action.call, ToolCall):
            yield from _check_tool_call(action, action.call, tools)
    yield from _check_cycles(dag)
    yield from _check_outputs(dag, known_actions, tools)
    yield from _check_unused(dag)


def _by_place(diagnostic: Diagnostic) -> tuple[str, int, int, str, str]:
    place = diagnostic.place or Place("")
    return place.file, place.line or 0, place.column or 0, diagnostic.code, diagnostic.message


def _check_action(
    dag: Dag, action: Action, known_actions: Collection[str], tools: ToolRegistry | None
) -> Iterator[Diagnostic]:
    places = action.reference_places
    found = [
        diagnostic
        for reference in action.references
        for diagnostic in check_reference(
            dag, reference, places.get(reference, action.place), known_actions, reader=action, tools=tools
        )
    ]
    yield from sorted(found, key=_by_place)
    for name in sorted(action.needs):
        if name == action.name:
            yield self_reference(action, action.place_of_dependency(name))
        elif name not in known_actions:
            hint = did_you_mean(name, dag.actions, "actions")
            message = f"action {action.name!r} needs {name!r}, which is no action"
            yield diagnose(Code.UNKNOWN_ACTION, message, action.place_of_dependency(name), hint=hint)
    if isinstance(action.call, LlmCall) and action.call.agent not in dag.agents:
        hint = did_you_mean(action.call.agent, dag.agents, "agents")
        message = f"action {action.name!r} names the agent {action.call.agent!r}, which is not declared"
        yield diagnose(Code.UNKNOWN_AGENT, message, action.place_of("agent"), hint=hint)
    deadline_s = dag.slo.deadline_s
    if deadline_s is not None and action.timeout_s is not None and action.timeout_s > deadline_s:
        message = f"the timeout of action {action.name!r}, {action.timeout_s:g} s, is longer than the deadline"
        hint = f"the run is stopped after {deadline_s:g} s"
        place = action.place_of("timeout")
        yield diagnose(Code.TIMEOUT_OVER_DEADLINE, message, place, hint=hint, severity=Severity.WARNING)


# -- tools


def _check_tool_call(action: Action, call: ToolCall, tools: ToolRegistry) -> Iterator[Diagnostic]:
    if call.tool not in tools:
        hint = did_you_mean(call.tool, tools, "tools")
        yield diagnose(Code.UNKNOWN_TOOL, f"there is no tool {call.tool!r}", action.place_of("uses"), hint=hint)
        return
    tool = tools[call.tool]
    effects = action.effects or Effects(tool.effects)
    if action.retry is not None and action.retry.attempts > 1 and effects is Effects.WRITE:
        message = f"action {action.name!r} is tried again on failure, but tool {tool.name!r} writes: it could act twice"
        hint = "remove 'retry', or declare 'effects: idempotent' if calling it twice does no harm"
        yield diagnose(Code.UNSAFE_RETRY, message, action.place_of("retry"), hint=hint)
    arguments = call.arguments.source
    properties: Mapping[str, Any] = tool.parameters.get("properties", {})
    for name in arguments:
        if name not in properties and tool.parameters.get("additionalProperties") is False:
            hint = did_you_mean(name, properties, "parameters")
            message = f"tool {tool.name!r} has no parameter {name!r}"
            yield diagnose(Code.UNKNOWN_ARGUMENT, message, _argument_place(action, call, name), hint=hint)
    for name in tool.parameters.get("required", ()):
        if name not in arguments:
            message = f"action {action.name!r} does not give tool {tool.name!r} its parameter {name!r}"
            yield diagnose(Code.MISSING_ARGUMENT, message, action.place, hint=f"write it under 'with': {name}: ...")
    templated = {position[0] for position in call.arguments.programs}
    for name, value in arguments.items():
        # What a template gives is known only when it runs; the tool checks it then.
        if name in properties and name not in templated:
            yield from _check_argument(action, call, tool.parameters, name, value)


def _check_argument(
    action: Action, call: ToolCall, parameters: Mapping[str, Any], name: str, value: Any
) -> Iterator[Diagnostic]:
    problem = misfit(value, {**parameters["properties"][name], "$defs": parameters.get("$defs", {})})
    if problem is not None:
        message = f"argument {name!r} of tool {call.tool!r}: {problem}"
        yield diagnose(Code.WRONG_ARGUMENT, message, _argument_place(action, call, name))


def _argument_place(action: Action, call: ToolCall, name: str) -> Place | None:
    origin = call.arguments.origins.get((name,))
    return origin.place if origin is not None else action.place_of("with")


# -- the whole


def _check_cycles(dag: Dag) -> Iterator[Diagnostic]:
    parents = {
        name: [other for other in action.dependencies if other in dag.actions] for name, action in dag.actions.items()
    }
    for cycle in shortest_cycles(parents):
        edges = list(zip(cycle, (*cycle[1:], cycle[0]), strict=True))
        told = ", ".join(_edge(dag.actions[name], other) for name, other in edges)
        place = dag.actions[cycle[0]].place_of_dependency(edges[0][1])
        hint = "take one of these references away"
        yield diagnose(Code.CYCLE, f"these actions wait for each other: {told}", place, hint=hint)


def _edge(action: Action, dependency: str) -> str:
    place = action.place_of_dependency(dependency)
    at = f" (line {place.line})" if place and place.line else ""
    return f"{action.name!r} waits for {dependency!r}{at}"


def _check_outputs(dag: Dag, known_actions: Collection[str], tools: ToolRegistry | None) -> Iterator[Diagnostic]:
    if not dag.outputs:
        hint = "write, for instance, outputs: {answer: '{{ actions.NAME.output }}'}"
        yield diagnose(Code.NO_OUTPUTS, f"Dag {dag.name!r} has no outputs", dag.place, hint=hint)
    for template in dag.outputs.values():
        for reference in sorted(template.references):
            place = template.places.get(reference, dag.place)
            yield from check_reference(dag, reference, place, known_actions, reader=None, tools=tools)


def _check_unused(dag: Dag) -> Iterator[Diagnostic]:
    read = {reference for action in dag.actions.values() for reference in action.references}
    read |= {reference for template in dag.outputs.values() for reference in template.references}
    used_inputs = {reference.name for reference in read if reference.kind == "inputs"}
    for name, declared in dag.inputs.items():
        if name not in used_inputs:
            message = f"nothing reads the input {name!r}"
            yield diagnose(Code.UNUSED_INPUT, message, declared.place, severity=Severity.WARNING)
    used_agents = {action.agent for action in dag.actions.values()}
    for name, agent in dag.agents.items():
        if name not in used_agents:
            message = f"no action names the agent {name!r}"
            yield diagnose(Code.UNUSED_AGENT, message, agent.place, severity=Severity.WARNING)
    used_actions = {reference.name for reference in read if reference.kind == "actions"}
    used_actions |= {name for action in dag.actions.values() for name in action.needs}
    for name, action in dag.actions.items():
        # A tool or function may be there for what it does; an answer that nobody reads is work for nothing.
        if name not in used_actions and not isinstance(action.call, ToolCall | FunctionCall):
            message = f"nothing reads the output of action {name!r}"
            yield diagnose(Code.UNUSED_ACTION, message, action.place, severity=Severity.WARNING)
