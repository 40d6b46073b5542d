"""What a box in a picture says of its action, in the words of a DAG file."""

from __future__ import annotations

from collections.abc import Iterator

from agentrt.compile.draw_text import plain
from agentrt.declare.action import DEFAULT_AGENT, Action
from agentrt.declare.call import Call, DagCall, FunctionCall, HumanCall, LlmCall, ToolCall
from agentrt.declare.dag import Dag
from agentrt.declare.policy import ALL, Effects, JoinKind


def does_of(dag: Dag, call: Call) -> str:
    """Say what a call does, in the words of a DAG file."""
    match call:
        case LlmCall():
            agent = dag.agents.get(call.agent)
            model = agent.model.name if agent is not None and agent.model is not None else ""
            who = "" if call.agent == DEFAULT_AGENT else call.agent
            return plain(" · ".join(filter(None, [who, model]))) or "llm"
        case ToolCall():
            return f"tool/{plain(call.tool)}"
        case FunctionCall():
            return f"{plain(getattr(call.function, '__name__', type(call.function).__name__))}()"
        case DagCall():
            return f"agent/{plain(call.agent)}" if call.agent else f"dag/{plain(call.source or call.dag.name)}"
        case HumanCall():
            return "a person approves"


def notes_of(dag: Dag, action: Action, num_edges: int) -> Iterator[str]:
    """Say what a reader must not overlook, such as ``join: any``; ``num_edges`` lead to the action."""
    if action.join != ALL:
        join = action.join
        yield f"join: {join.count} of {num_edges}" if join.kind is JoinKind.N_OF else f"join: {join}"
    if action.for_each is not None:
        yield (
            "for each" if action.for_each.max_parallel is None else f"for each, {action.for_each.max_parallel} at once"
        )
    if action.optional:
        yield "optional"
    if action.fallback is not None:
        call = action.fallback.call
        yield f"fallback: {'a value' if call is None else does_of(dag, call)}"
    if action.effects is Effects.WRITE:
        yield "writes"
