"""A Dag as YAML again: what is written is read back as an equal Dag."""

from __future__ import annotations

import io
from typing import Any

from agentrt.declare.action import Action, ActionType, FunctionCall, LlmCall, RetryPolicy
from agentrt.declare.agent import Agent, ModelRef
from agentrt.declare.codes import Code, diagnose
from agentrt.declare.dag import Dag, Input, Slo
from agentrt.declare.duration import format_duration
from agentrt.errors import DeclarationError


def dag_to_yaml(dag: Dag) -> str:
    """Write a Dag as a DAG file.

    Raises:
        DeclarationError: an action is a Python function, which a file has no word for; names all of them.
    """
    from ruamel.yaml import YAML

    functions = [action for action in dag.actions.values() if isinstance(action.call, FunctionCall)]
    if functions:
        hint = "make the function a tool with @tool and use Action.tool(...)"
        raise DeclarationError(
            [
                diagnose(
                    Code.NOT_WRITABLE,
                    f"action {a.name!r} is a Python function; a file cannot hold it",
                    a.place,
                    hint=hint,
                )
                for a in functions
            ]
        )
    yaml = YAML(typ="rt", pure=True)
    yaml.default_flow_style = False
    yaml.allow_unicode = True
    yaml.width = 110
    stream = io.StringIO()
    yaml.dump(_literal(_dag(dag)), stream)
    return stream.getvalue()


def _dag(dag: Dag) -> dict[str, Any]:
    return _without_nothing(
        {
            "name": dag.name,
            "description": dag.description,
            "inputs": {name: _input(declared) for name, declared in dag.inputs.items()},
            "outputs": {name: template.source for name, template in dag.outputs.items()} or None,
            "slo": _slo(dag.slo),
            "agents": {name: _agent(agent) for name, agent in dag.agents.items()},
            "actions": {name: _action(action) for name, action in dag.actions.items()},
        }
    )


def _without_nothing(fields: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if value not in (None, "", {}, [], ())}


def _input(declared: Input) -> Any:
    fields = dict(declared.schema)
    if declared.description:
        fields["description"] = declared.description
    if not declared.required:
        fields["default"] = declared.default
    return fields["type"] if list(fields) == ["type"] and isinstance(fields["type"], str) else fields


def _slo(slo: Slo) -> dict[str, Any]:
    return _without_nothing({"p99": _duration(slo.p99_s), "deadline": _duration(slo.deadline_s)})


def _duration(seconds: float | None) -> str | None:
    return None if seconds is None else format_duration(seconds)


def _agent(agent: Agent) -> dict[str, Any]:
    return _without_nothing(
        {"model": _model(agent.model), "instructions": agent.instructions, "with": _parameters(agent.parameters)}
    )


def _model(model: ModelRef | None) -> Any:
    if model is None:
        return None
    if model.endpoint is None:
        return model.name
    return _without_nothing({"name": model.name, "endpoint": model.endpoint, "api_key_env": model.api_key_env})


def _parameters(parameters: Any) -> dict[str, Any]:
    return {key: list(value) if isinstance(value, tuple) else value for key, value in parameters.items()}


def _action(action: Action) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    call = action.call
    if isinstance(call, LlmCall):
        fields |= {"agent": call.agent, "prompt": call.prompt.source, "choices": list(call.choices)}
        fields |= {"with": _parameters(call.parameters)}
    elif not isinstance(call, FunctionCall):
        fields |= {"uses": f"tool/{call.tool}", "with": call.arguments.source}
        if action.type is not ActionType.TOOL:
            fields |= {"type": action.type.value}
    if action.latency is not None:
        fields |= {"latency": {"p50": _duration(action.latency.p50_s), "p99": _duration(action.latency.p99_s)}}
    return _without_nothing(
        {
            **fields,
            "needs": sorted(action.needs),
            "if": action.guard.source if action.guard else None,
            "timeout": _duration(action.timeout_s),
            "retry": _retry(action.retry),
            "effects": action.effects.value if action.effects else None,
        }
    )


def _retry(retry: RetryPolicy | None) -> dict[str, Any] | None:
    if retry is None:
        return None
    return {
        "attempts": retry.attempts,
        "on": sorted(cause.value for cause in retry.on),
        "backoff": _duration(retry.backoff_s),
        "max_backoff": _duration(retry.max_backoff_s),
    }


def _literal(value: Any) -> Any:
    """Let texts of several lines stand as literal blocks, which is how people write prompts."""
    from ruamel.yaml.scalarstring import LiteralScalarString

    if isinstance(value, dict):
        return {key: _literal(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_literal(part) for part in value]
    if isinstance(value, str) and "\n" in value and value.strip() and _fits_a_block(value):
        return LiteralScalarString(value)
    return value


def _fits_a_block(text: str) -> bool:
    """Whether a literal block gives exactly this text back: no odd line breaks, no leading space that would be indent."""
    lines = text.split("\n")
    printable = all(character.isprintable() or character == "\n" for character in text)
    return printable and not lines[0].startswith((" ", "\t")) and bool(lines[0].strip())
