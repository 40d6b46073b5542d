"""Random Dags with much in them that can be left out, and running a Dag as it was planned, pruned or not.

What its actions do is known exactly: they take a time, give back what they were given, fail, or write down in a log what
they were given. Duplicates, dead branches and unread actions are drawn on purpose.
"""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import anyio
from hypothesis import strategies as st

from agentrt.compile.plan import Plan, plan
from agentrt.declare.action import Action, ActionType
from agentrt.declare.agent import ModelRef
from agentrt.declare.call import Fallback, FunctionCall, ToolCall
from agentrt.declare.dag import Dag, Edge, Input
from agentrt.declare.guard import Guard
from agentrt.declare.policy import Effects, ForEach, Join, JoinKind
from agentrt.declare.reference import Reference
from agentrt.declare.template import ValueTemplate
from agentrt.run.attempt import Caller
from agentrt.run.events import RunResult
from agentrt.run.executor import Execution
from agentrt.tools.registry import ToolRegistry
from agentrt.tools.tool import Tool
from agentrt.trace.open import NullTracing
from tests.support.scripted_model import ScriptedModel

ANY = Join(JoinKind.ANY)
FIRST = Join(JoinKind.FIRST_SUCCESS)
KNOWN = {"k": 0, "j": 0}
"""The inputs that are known before the run; ``u`` and ``v`` are not."""
INPUT_GUARDS = ("true", "false", "inputs.k == 0", "inputs.j == 1", "inputs.u == 0", "inputs.v == 0")
"""No two of them exclude each other for whatever inputs, which ``check`` would not let pass."""


def tools_writing_to(log: list[Any]) -> ToolRegistry:
    """Return ``compute`` and ``break_off``, which do nothing to the world, and ``record``, which writes to ``log``."""

    async def compute(seconds: int = 0, **values: Any) -> Any:
        await anyio.sleep(seconds)
        return values

    async def break_off(**values: Any) -> Any:
        raise ValueError("as drawn")

    async def record(seconds: int = 0, **values: Any) -> Any:
        await anyio.sleep(seconds)
        log.append(json.dumps(values, sort_keys=True))
        return values

    return ToolRegistry(
        [Tool("compute", compute, effects="none"), Tool("break_off", break_off, effects="none"), Tool("record", record)]
    )


async def gather(**values: Any) -> Any:
    """A function that does nothing to the world."""
    return sorted(values.items())


class ScriptedModels:
    """One model for all agents, which answers a prompt with ``answer(prompt)``."""

    def __init__(self, answer: Callable[[str], str]) -> None:
        self._model = ScriptedModel(lambda request: answer(request.messages[-1].content))

    @property
    def num_requests(self) -> int:
        return len(self._model.requests)

    def get(self, ref: ModelRef | None, base_dir: Path | None) -> ScriptedModel:
        return self._model


async def run_plan(
    planned: Plan, tools: ToolRegistry, inputs: Mapping[str, Any], models: ScriptedModels | None = None
) -> RunResult:
    """Run a Plan with the executor alone."""
    span = NullTracing().start_run(run_id="r", dag=planned.dag.name, deadline_s=None, slo_p99_s=None)
    models = models or ScriptedModels(str)
    execution = Execution(
        planned,
        inputs,
        run_id="r",
        deadline_s=None,
        caller=Caller(planned.dag, models=models, tools=tools, trace_content=False),
        slots=anyio.Semaphore(1000),
        span=span,
        emit=lambda event: None,
        uniform=lambda: 0.5,
    )
    return await execution.run()


async def run_dag(dag: Dag, inputs: Mapping[str, Any], *, prune: bool) -> tuple[RunResult, list[Any]]:
    """Plan a drawn Dag and run it; return the result and what was written."""
    log: list[Any] = []
    tools = tools_writing_to(log)
    planned = plan(dag, tools, known_inputs=KNOWN, prune=prune)
    return await run_plan(planned, tools, inputs), sorted(log)


@st.composite
def prunable_dags(draw: st.DrawFn, max_actions: int = 12) -> Dag:
    """Draw a Dag whose runs succeed, whatever the inputs that are not known are."""
    num_actions = draw(st.integers(1, max_actions))
    made: dict[str, Action] = {}
    edges: list[Edge] = []
    for index in range(num_actions):
        name = f"a{index}"
        original = draw(st.sampled_from([*made])) if made and draw(st.integers(0, 3)) == 0 else None
        if original is not None:
            made[name] = draw(_likely_duplicate(name, made[original], list(made)))
            edges += [dataclasses.replace(edge, target=name) for edge in edges if edge.target == original]
        else:
            made[name] = draw(_action(name, list(made)))
            for source in draw(st.lists(st.sampled_from([*made][:-1]), max_size=2, unique=True)) if index else ():
                edges.append(Edge(source, name, draw(_edge_guard(source))))
    read = draw(st.lists(st.sampled_from([*made]), min_size=1, max_size=4, unique=True))
    outputs = {other: f"{{{{ actions.{other}.{draw(st.sampled_from(('output', 'status')))} }}}}" for other in read}
    return Dag(
        "drawn",
        made,
        {name: ValueTemplate.parse(source) for name, source in outputs.items()},
        inputs={name: Input(name, {"type": "integer"}) for name in ("k", "j", "u", "v")},
        edges=tuple(edges),
    )


@st.composite
def _likely_duplicate(draw: st.DrawFn, name: str, original: Action, earlier: list[str]) -> Action:
    """Draw the same action again: as it is, after the original, or after one more."""
    needs = draw(st.sampled_from((frozenset(), frozenset({original.name}), frozenset(earlier[-1:]))))
    return dataclasses.replace(original, name=name, needs=original.needs | needs)


@st.composite
def _action(draw: st.DrawFn, name: str, earlier: list[str]) -> Action:
    some = st.lists(st.sampled_from(earlier), max_size=2, unique=True) if earlier else st.just([])
    needs = frozenset(draw(some))
    joins = (Join(), Join(), ANY, FIRST, *(Join(JoinKind.N_OF, count) for count in range(1, len(needs) + 1)))
    join = draw(st.sampled_from(joins))
    # What a race sees of its losers depends on time, so one that is a race reads nothing.
    read: list[str] = draw(some) if join.waits_for_all else []
    fails = draw(st.integers(0, 5)) == 0
    writes = draw(st.integers(0, 3)) == 0
    has_fallback = draw(st.integers(0, 5)) == 0
    part = st.sampled_from(("output", "status"))
    call: ToolCall | FunctionCall
    if not fails and not writes and draw(st.integers(0, 3)) == 0:
        call = FunctionCall(gather, {f"p{i}": Reference("actions", other, ("output",)) for i, other in enumerate(read)})
    else:
        arguments: dict[str, Any] = {"seconds": draw(st.integers(0, 2)), "tag": draw(st.integers(0, 1))}
        arguments["read"] = [{"value": f"{{{{ actions.{other}.{draw(part)} }}}}"} for other in read]
        if draw(st.booleans()):
            arguments["u"] = "is {{ inputs.u }}"
        call = ToolCall("break_off" if fails else "record" if writes else "compute", ValueTemplate.parse(arguments))
    guards = [*INPUT_GUARDS]
    if join.waits_for_all:
        guards += [f"actions.{other}.status == 'succeeded'" for other in earlier[-2:]]
        guards += [f"inputs.j == 1 || actions.{other}.status != 'succeeded'" for other in earlier[-1:]]
    guard = draw(st.sampled_from(guards)) if draw(st.integers(0, 2)) == 0 else None
    return Action(
        name,
        ActionType.FUNCTION if isinstance(call, FunctionCall) else ActionType.TOOL,
        call,
        needs=needs,
        guard=_guard(guard),
        effects=Effects.NONE if isinstance(call, FunctionCall) else Effects.WRITE if writes else None,
        join=join,
        optional=(fails and not has_fallback) or draw(st.integers(0, 4)) == 0,
        fallback=Fallback(value=ValueTemplate.parse("instead")) if has_fallback else None,
        for_each=ForEach(ValueTemplate.parse([1, 2])) if draw(st.integers(0, 7)) == 0 else None,
    )


@st.composite
def _edge_guard(draw: st.DrawFn, source: str) -> Guard | None:
    guards = (None, None, *INPUT_GUARDS, f"actions.{source}.status == 'succeeded'")
    return _guard(draw(st.sampled_from(guards)))


@functools.cache
def _guard(source: str | None) -> Guard | None:
    """Read a guard once; there are few, and reading one takes longer than running a Dag."""
    return Guard.parse(source) if source else None
