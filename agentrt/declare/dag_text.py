"""A Dag as YAML again: what is written is read back as an equal Dag."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from agentrt.declare.action import Action, ActionType
from agentrt.declare.agent import Agent, ModelRef
from agentrt.declare.call import Call, DagCall, Fallback, FunctionCall, HumanCall, LlmCall, ToolCall
from agentrt.declare.codes import Code, diagnose
from agentrt.declare.dag import Dag, Edge, Input, Slo, StateField
from agentrt.declare.dag_fields import INITIAL_OF_REDUCER
from agentrt.declare.duration import format_duration
from agentrt.declare.policy import ALL, ForEach, Join, JoinKind, OnItemError, Reducer, RetryPolicy
from agentrt.declare.yaml_text import write_yaml
from agentrt.errors import DeclarationError, Diagnostic


def dag_to_yaml(dag: Dag) -> str:
    """Write a Dag as a DAG file.

    Raises:
        DeclarationError: an action is a Python function, which a file has no word for; names all of them.
    """
    problems = [problem for action in dag.actions.values() for problem in _unwritable(action)]
    if problems:
        raise DeclarationError(problems)
    try:
        return write_yaml(_dag(dag))
    except (TypeError, ValueError) as error:
        message = f"Dag {dag.name!r} holds a value that YAML has no form for: {error}"
        raise DeclarationError([diagnose(Code.NOT_WRITABLE, message, dag.place)]) from error


def _unwritable(action: Action) -> Iterator[Diagnostic]:
    calls = [action.call, action.fallback.call if action.fallback else None]
    for call in calls:
        if isinstance(call, FunctionCall):
            hint = "make the function a tool with @tool and use Action.tool(...)"
            message = f"action {action.name!r} is a Python function; a file cannot hold it"
            yield diagnose(Code.NOT_WRITABLE, message, action.place, hint=hint)
        elif isinstance(call, DagCall) and call.source is None:
            message = f"action {action.name!r} runs the Dag {call.dag.name!r}, which has no file"
            yield diagnose(Code.NOT_WRITABLE, message, action.place, hint="write that Dag to a file of its own")


def _dag(dag: Dag) -> dict[str, Any]:
    return _without_nothing(
        {
            "name": dag.name,
            "description": dag.description,
            "inputs": {name: _input(declared) for name, declared in dag.inputs.items()},
            "outputs": {name: template.source for name, template in dag.outputs.items()} or None,
            "slo": _slo(dag.slo),
            "agents": {name: _agent(agent) for name, agent in dag.agents.items()},
            "state": {name: _state_field(declared) for name, declared in dag.state.items()},
            "actions": {name: _action(action) for name, action in dag.actions.items()},
            "edges": [_edge(edge) for edge in dag.edges],
            "ignore": dict(dag.ignore),
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


def _state_field(declared: StateField) -> Any:
    fields = dict(declared.schema)
    if declared.reducer is not Reducer.REPLACE:
        fields["reducer"] = declared.reducer.value
    if declared.initial != INITIAL_OF_REDUCER.get(declared.reducer):
        fields["initial"] = declared.initial
    return fields["type"] if list(fields) == ["type"] and isinstance(fields["type"], str) else fields


def _edge(edge: Edge) -> dict[str, Any]:
    fields: dict[str, Any] = {"from": edge.source, "to": edge.target}
    if edge.guard is not None:
        fields["guard"] = edge.guard.source
    return {**fields, "stream": True} if edge.stream else fields


def _slo(slo: Slo) -> dict[str, Any]:
    return _without_nothing({"p99": _duration(slo.p99_s), "deadline": _duration(slo.deadline_s)})


def _duration(seconds: float | None) -> str | None:
    return None if seconds is None else format_duration(seconds)


def _agent(agent: Agent) -> dict[str, Any]:
    return _without_nothing(
        {
            "model": _model(agent.model),
            "instructions": agent.instructions,
            "with": _parameters(agent.parameters),
            "dag": agent.dag_source,
        }
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
    fields = _call(action.call)
    if isinstance(action.call, ToolCall) and action.type is not ActionType.TOOL:
        fields["type"] = action.type.value
    if action.latency is not None:
        fields["latency"] = {"p50": _duration(action.latency.p50_s), "p99": _duration(action.latency.p99_s)}
    return _without_nothing(
        {
            **fields,
            "needs": sorted(action.needs),
            "if": action.guard.source if action.guard else None,
            "join": _join(action.join),
            "for_each": _for_each(action.for_each),
            "optional": True if action.optional else None,
            "timeout": _duration(action.timeout_s),
            "retry": _retry(action.retry),
            "effects": action.effects.value if action.effects else None,
            "writes": {field: template.source for field, template in action.writes.items()},
            "cache": action.cache.value if action.cache else None,
            "ignore": dict(action.ignore),
        }
    ) | _fallback(action.fallback)


def _call(call: Call) -> dict[str, Any]:
    match call:
        case LlmCall():
            fields: dict[str, Any] = {"agent": call.agent, "prompt": call.prompt.source, "choices": list(call.choices)}
            fields["with"] = _parameters(call.parameters)
            return fields if call.output_schema is None else {**fields, "output_schema": dict(call.output_schema)}
        case ToolCall():
            return {"uses": f"tool/{call.tool}", "with": call.arguments.source}
        case DagCall():
            uses = f"dag/{call.source}" if call.agent is None else f"agent/{call.agent}"
            return {"uses": uses, "with": call.arguments.source}
        case HumanCall():
            return {"human": call.question.source}
    raise AssertionError("a function has no form in a file, and was refused before")


def _fallback(fallback: Fallback | None) -> dict[str, Any]:
    if fallback is None:
        return {}
    if fallback.call is not None:
        return {"fallback": _without_nothing(_call(fallback.call))}
    assert fallback.value is not None
    return {"fallback": {"value": fallback.value.source}}


def _join(join: Join) -> Any:
    if join.kind is JoinKind.N_OF:
        return {"n_of": join.count}
    return None if join == ALL else join.kind.value


def _for_each(each: ForEach | None) -> Any:
    if each is None:
        return None
    fields = {"items": each.items.source, "max_parallel": each.max_parallel}
    if each.on_error is not OnItemError.FAIL:
        fields["on_error"] = each.on_error.value
    if each.max_parallel is None:
        del fields["max_parallel"]
    return fields["items"] if list(fields) == ["items"] and fields["items"] else fields


def _retry(retry: RetryPolicy | None) -> dict[str, Any] | None:
    if retry is None:
        return None
    return {
        "attempts": retry.attempts,
        "on": sorted(cause.value for cause in retry.on),
        "backoff": _duration(retry.backoff_s),
        "max_backoff": _duration(retry.max_backoff_s),
    }
