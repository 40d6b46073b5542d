"""Chains of cheap actions that are scheduled as one.

Taking a slot and starting a task cost more than formatting a text does, and between two cheap actions of a chain another
run could take the slot. What may wait long keeps its own place in the schedule: a model, a network, another Dag, a person,
several items, and whatever waits between two attempts, which would hold the slot of the whole chain meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping

from agentrt.compile.graph import PlanEdge
from agentrt.declare.action import Action, ActionType
from agentrt.declare.call import Call, FunctionCall, ToolCall
from agentrt.declare.dag import Dag
from agentrt.declare.policy import JoinKind
from agentrt.tools.registry import ToolRegistry

CHEAP_P99_S = 0.005
"""An action whose declared p99 is no longer than this is cheap."""
_CHEAP_TYPES = (ActionType.FORMAT, ActionType.VALIDATE)
_FAR_TYPES = (ActionType.LLM, ActionType.RETRIEVAL, ActionType.HTTP, ActionType.DAG, ActionType.AGENT, ActionType.HUMAN)


def fuse(
    dag: Dag,
    incoming: Mapping[str, tuple[PlanEdge, ...]],
    children: Mapping[str, tuple[str, ...]],
    tools: ToolRegistry | None,
) -> tuple[tuple[str, ...], ...]:
    """Return the chains of actions that are scheduled as one: as long as they go, each of two or more."""
    cheap = {name for name, action in dag.actions.items() if _is_cheap(action, tools)}
    following: dict[str, str] = {}
    for name in cheap:
        edges = incoming[name]
        if len(edges) != 1 or edges[0].stream or dag.actions[name].join.kind is not JoinKind.ALL:
            continue
        source = edges[0].source
        if source in cheap and len(children[source]) == 1:
            following[source] = name
    continued = set(following.values())
    chains = []
    for name in dag.actions:
        if name in following and name not in continued:
            chain = [name]
            while chain[-1] in following:
                chain.append(following[chain[-1]])
            chains.append(tuple(chain))
    return tuple(chains)


def _is_cheap(action: Action, tools: ToolRegistry | None) -> bool:
    if action.for_each is not None or (action.retry is not None and action.retry.attempts > 1):
        return False
    if action.fallback is not None and action.fallback.call is not None:
        return False
    kind = _type_of(action.type, action.call, tools)
    if kind in _FAR_TYPES or not isinstance(action.call, FunctionCall | ToolCall):
        return False
    return action.latency.p99_s <= CHEAP_P99_S if action.latency is not None else kind in _CHEAP_TYPES


def _type_of(declared: ActionType, call: Call, tools: ToolRegistry | None) -> ActionType:
    """Return what kind of work it is: what the Dag says, or else what the tool says of itself."""
    if declared is ActionType.TOOL and isinstance(call, ToolCall) and tools is not None and call.tool in tools:
        return ActionType(tools[call.tool].action_type)
    return declared
