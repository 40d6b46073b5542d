"""Build small Dags of Python functions, and run them without models or tracing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

import anyio

from agentrt.compile.plan import plan
from agentrt.config import RuntimeConfig
from agentrt.declare.action import Action, ActionType
from agentrt.declare.call import FunctionCall
from agentrt.declare.dag import Dag, Input, Slo
from agentrt.declare.guard import Guard
from agentrt.declare.reference import Reference
from agentrt.declare.template import ValueTemplate
from agentrt.models.registry import ModelRegistry
from agentrt.net.http_pool import HttpPool
from agentrt.run.attempt import Caller
from agentrt.run.events import RunEvent, RunResult
from agentrt.run.executor import Execution
from agentrt.tools.registry import ToolRegistry
from agentrt.trace.open import NullTracing

Body = Callable[..., Any]


def function_action(
    name: str, function: Body, *, reads: Iterable[str] = (), guard: str | None = None, **options: Any
) -> Action:
    """Return an action that calls ``function`` with the outputs of the actions it ``reads``, by their names."""
    arguments = {other: Reference("actions", other, ("output",)) for other in reads}
    return Action(
        name,
        ActionType.FUNCTION,
        FunctionCall(function, arguments),
        guard=Guard.parse(guard) if guard else None,
        **options,
    )


def dag_of(*actions: Action, outputs: Mapping[str, Any] | None = None, slo: Slo | None = None) -> Dag:
    """Return a Dag of ``actions``; its outputs are the last action's unless given."""
    outputs = outputs or {"answer": f"{{{{ actions.{actions[-1].name}.output }}}}"}
    return Dag(
        name="test",
        actions={action.name: action for action in actions},
        outputs={name: ValueTemplate.parse(source) for name, source in outputs.items()},
        inputs={"x": Input("x", {"type": "integer"}, default=0, required=False)},
        slo=slo or Slo(),
    )


async def execute(
    dag: Dag,
    *,
    inputs: Mapping[str, Any] | None = None,
    deadline_s: float | None = None,
    max_concurrency: int = 1000,
    emit: Callable[[RunEvent], None] = lambda event: None,
    prune: bool = True,
) -> RunResult:
    """Run ``dag`` with the executor alone."""
    planned = plan(dag, prune=prune)
    models = ModelRegistry(RuntimeConfig(), pool=HttpPool())
    span = NullTracing().start_run(run_id="r", dag=dag.name, deadline_s=deadline_s, slo_p99_s=None)
    execution = Execution(
        planned,
        {"x": 0, **(inputs or {})},
        run_id="r",
        deadline_s=deadline_s,
        caller=Caller(dag, models=models, tools=ToolRegistry([]), trace_content=False),
        slots=anyio.Semaphore(max_concurrency),
        span=span,
        emit=emit,
        uniform=lambda: 0.5,
    )
    return await execution.run()


def sleeper(seconds: float, value: Any = None) -> Callable[..., Awaitable[Any]]:
    """Return an async function that takes ``seconds`` and returns ``value``."""

    async def body(**_: Any) -> Any:
        await anyio.sleep(seconds)
        return value

    return body
