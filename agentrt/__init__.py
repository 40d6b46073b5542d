"""agentrt: declare agents as action DAGs, know their P99, hold it while they run, see where the time went.

    from agentrt import Dag, Runtime

    async def greet(name: str) -> str:
        return f"Hello, {name}."

    with Runtime() as runtime:
        print(runtime.run_sync(Dag.from_functions("greeting", [greet]), {"name": "Ada"}).outputs["greet"])

Names are loaded when they are first used, so that importing the package costs next to nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from agentrt import errors

if TYPE_CHECKING:
    from agentrt.compile.check import check, check_file
    from agentrt.compile.inputs import bind_inputs
    from agentrt.compile.plan import Plan, plan
    from agentrt.config import RuntimeConfig
    from agentrt.declare.action import Action, ActionOptions, ActionType
    from agentrt.declare.agent import Agent, ModelRef
    from agentrt.declare.call import Fallback
    from agentrt.declare.dag import Dag, Edge, Input, Slo, StateField
    from agentrt.declare.dag_file import load_dag_file, parse_dag
    from agentrt.declare.functions import action
    from agentrt.declare.policy import (
        CacheTier,
        Effects,
        ForEach,
        Join,
        JoinKind,
        LatencyPrior,
        OnItemError,
        Reducer,
        RetryCause,
        RetryPolicy,
    )
    from agentrt.models.model import ChatRequest, FinishEvent, Message, Model, ModelEvent, Sampling, TokenEvent
    from agentrt.run.attempt import Approval, ApprovalRequest
    from agentrt.run.events import (
        ActionFinished,
        ActionResult,
        ActionRetrying,
        ActionStarted,
        ActionToken,
        RunEvent,
        RunFinished,
        RunResult,
        RunStarted,
        RunStatus,
    )
    from agentrt.run.state import ActionState
    from agentrt.run.wiring import RunStream, Runtime
    from agentrt.tools.registry import ToolRegistry
    from agentrt.tools.tool import Tool, ToolContext, tool

__version__ = "0.1.0.dev0"

__all__ = [
    "Action",
    "ActionFinished",
    "ActionOptions",
    "ActionResult",
    "ActionRetrying",
    "ActionStarted",
    "ActionState",
    "ActionToken",
    "ActionType",
    "Agent",
    "Approval",
    "ApprovalRequest",
    "CacheTier",
    "ChatRequest",
    "Dag",
    "Edge",
    "Effects",
    "Fallback",
    "FinishEvent",
    "ForEach",
    "Input",
    "Join",
    "JoinKind",
    "LatencyPrior",
    "Message",
    "Model",
    "ModelEvent",
    "ModelRef",
    "OnItemError",
    "Plan",
    "Reducer",
    "RetryCause",
    "RetryPolicy",
    "RunEvent",
    "RunFinished",
    "RunResult",
    "RunStarted",
    "RunStatus",
    "RunStream",
    "Runtime",
    "RuntimeConfig",
    "Sampling",
    "Slo",
    "StateField",
    "TokenEvent",
    "Tool",
    "ToolContext",
    "ToolRegistry",
    "action",
    "bind_inputs",
    "check",
    "check_file",
    "errors",
    "load_dag_file",
    "parse_dag",
    "plan",
    "tool",
]

_MODULE_OF = {
    **dict.fromkeys(("check", "check_file"), "compile.check"),
    **dict.fromkeys(("bind_inputs",), "compile.inputs"),
    **dict.fromkeys(("Plan", "plan"), "compile.plan"),
    **dict.fromkeys(("RuntimeConfig",), "config"),
    **dict.fromkeys(("Action", "ActionOptions", "ActionType"), "declare.action"),
    **dict.fromkeys(("Fallback",), "declare.call"),
    **dict.fromkeys(
        (
            "CacheTier",
            "Effects",
            "ForEach",
            "Join",
            "JoinKind",
            "LatencyPrior",
            "OnItemError",
            "Reducer",
            "RetryCause",
            "RetryPolicy",
        ),
        "declare.policy",
    ),
    **dict.fromkeys(("Agent", "ModelRef"), "declare.agent"),
    **dict.fromkeys(("Dag", "Edge", "Input", "Slo", "StateField"), "declare.dag"),
    **dict.fromkeys(("load_dag_file", "parse_dag"), "declare.dag_file"),
    **dict.fromkeys(("action",), "declare.functions"),
    **dict.fromkeys(
        ("ChatRequest", "FinishEvent", "Message", "Model", "ModelEvent", "Sampling", "TokenEvent"), "models.model"
    ),
    **dict.fromkeys(
        (
            "ActionFinished",
            "ActionResult",
            "ActionRetrying",
            "ActionStarted",
            "ActionToken",
            "RunEvent",
            "RunFinished",
            "RunResult",
            "RunStarted",
            "RunStatus",
        ),
        "run.events",
    ),
    **dict.fromkeys(("Approval", "ApprovalRequest"), "run.attempt"),
    **dict.fromkeys(("ActionState",), "run.state"),
    **dict.fromkeys(("RunStream", "Runtime"), "run.wiring"),
    **dict.fromkeys(("ToolRegistry",), "tools.registry"),
    **dict.fromkeys(("Tool", "ToolContext", "tool"), "tools.tool"),
}


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
