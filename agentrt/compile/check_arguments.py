"""Arguments against what takes them: a tool's parameters, or the inputs of a Dag.

Only what is written out is checked here; what a template gives is ``edge_types``'s business.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from agentrt.compile.references import did_you_mean
from agentrt.declare.action import Action
from agentrt.declare.call import Call, DagCall, ToolCall
from agentrt.declare.codes import Code, diagnose
from agentrt.declare.json_schema import misfit
from agentrt.declare.template import ValueTemplate
from agentrt.errors import Diagnostic, Place
from agentrt.tools.registry import ToolRegistry


def argument_problems(action: Action, call: Call, tools: ToolRegistry | None) -> Iterator[Diagnostic]:
    """Go through what is wrong with the arguments of one call."""
    match call:
        case ToolCall() if tools is not None:
            if call.tool not in tools:
                hint = did_you_mean(call.tool, tools, "tools")
                yield diagnose(Code.UNKNOWN_TOOL, f"there is no tool {call.tool!r}", action.place_of("uses"), hint=hint)
                return
            yield from _problems(action, call.arguments, tools[call.tool].parameters, f"tool {call.tool!r}")
        case DagCall():
            inputs = call.dag.inputs
            parameters = {
                "properties": {name: declared.schema for name, declared in inputs.items()},
                "required": [name for name, declared in inputs.items() if declared.required],
                "additionalProperties": False,
            }
            yield from _problems(action, call.arguments, parameters, f"Dag {call.dag.name!r}")


def _problems(
    action: Action, arguments: ValueTemplate, parameters: Mapping[str, Any], taker: str
) -> Iterator[Diagnostic]:
    properties: Mapping[str, Any] = parameters.get("properties", {})
    given = arguments.source
    for name in given:
        if name not in properties and parameters.get("additionalProperties") is False:
            hint = did_you_mean(name, properties, "parameters")
            message = f"{taker} has no parameter {name!r}"
            yield diagnose(Code.UNKNOWN_ARGUMENT, message, _place(action, arguments, name), hint=hint)
    for name in parameters.get("required", ()):
        if name not in given:
            message = f"action {action.name!r} does not give {taker} its parameter {name!r}"
            yield diagnose(Code.MISSING_ARGUMENT, message, action.place, hint=f"write it under 'with': {name}: ...")
    templated = {position[0] for position in arguments.programs}
    for name, value in given.items():
        if name in properties and name not in templated:
            schema = {**properties[name], "$defs": {**parameters.get("$defs", {}), **properties[name].get("$defs", {})}}
            problem = misfit(value, schema)
            if problem is not None:
                message = f"argument {name!r} of {taker}: {problem}"
                yield diagnose(Code.WRONG_ARGUMENT, message, _place(action, arguments, name))


def _place(action: Action, arguments: ValueTemplate, name: str) -> Place | None:
    origin = arguments.origins.get((name,))
    return origin.place if origin is not None else action.place_of("with")
