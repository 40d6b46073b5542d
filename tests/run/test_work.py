"""Fallbacks, items, inner Dags, shared state and approvals: what an action may do beside one plain call."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from agentrt.config import RuntimeConfig
from agentrt.declare.action import Action, ActionOptions
from agentrt.declare.call import Fallback
from agentrt.declare.dag import Dag, StateField
from agentrt.declare.dag_file import load_dag_file
from agentrt.declare.policy import ForEach, OnItemError, Reducer, RetryCause, RetryPolicy
from agentrt.declare.template import ValueTemplate
from agentrt.errors import RunError, UsageError
from agentrt.run.attempt import Approval, ApprovalRequest
from agentrt.run.events import RunFinished, RunResult, RunStatus
from agentrt.run.wiring import Runtime
from agentrt.tools.tool import tool
from tests.support.dags import dag_of, execute, function_action, sleeper
from tests.support.virtual_time import run_in_virtual_time


def run(dag: Dag, **options: Any) -> RunResult:
    return run_in_virtual_time(lambda: execute(dag, **options))


@tool(effects="none")
async def double(number: int, wait_s: float = 0) -> int:
    """Double a number; odd ones fail when told to wait for nothing."""
    await anyio.sleep(wait_s)
    if number < 0:
        raise ValueError(f"{number} is below zero")
    return 2 * number


def with_tools(dag: Dag, inputs: dict[str, Any] | None = None, **options: Any) -> RunResult:
    async def main() -> RunResult:
        async with (
            Runtime(RuntimeConfig(trace=False), tools=[double], **options) as runtime,
            runtime.stream(dag, inputs or {}) as events,
        ):
            async for event in events:
                if isinstance(event, RunFinished):
                    return event.result
        raise AssertionError("a run's last event is RunFinished")

    return run_in_virtual_time(main)


def each(items: Any, **options: Any) -> Action:
    action = Action.tool("each", "double", number="{{ item }}", wait_s="{{ item_index }}")
    return replace(action, for_each=ForEach(ValueTemplate.parse(items), **options))


def test_items_are_done_at_the_same_time_and_come_back_in_order() -> None:
    """The last one takes 3 s, and all together no longer; max_parallel 1 makes them wait for each other."""
    result = with_tools(dag_of(each([1, 2, 3, 4])))
    assert (result.outputs["answer"], result.duration_s) == ([2, 4, 6, 8], 3)
    result = with_tools(dag_of(each([1, 2, 3, 4], max_parallel=1)))
    assert (result.outputs["answer"], result.duration_s) == ([2, 4, 6, 8], 6)
    assert with_tools(dag_of(each([]))).outputs["answer"] == []


def test_each_error_policy_does_what_it_says() -> None:
    """fail: the run fails and names the item; skip: it is left out; collect: it stands in its place."""
    failed = with_tools(dag_of(each([1, -2, 3])))
    assert failed.status is RunStatus.FAILED
    assert "item 1: ValueError: -2 is below zero" in str(failed.error)
    assert failed.duration_s == 1, "the third item was cancelled"
    assert with_tools(dag_of(each([1, -2, 3], on_error=OnItemError.SKIP))).outputs["answer"] == [2, 6]
    collected = with_tools(dag_of(each([1, -2], on_error=OnItemError.COLLECT))).outputs["answer"]
    assert collected == [{"ok": True, "output": 2}, {"ok": False, "error": "ValueError: -2 is below zero"}]


def test_what_is_no_list_cannot_be_gone_through() -> None:
    """The error shows the value."""
    dag = dag_of(function_action("list", sleeper(0, 7)), each("{{ actions.list.output }}"))
    result = with_tools(dag)
    assert "'for_each' of action 'each': 7 is no list" in str(result.error)


def test_ten_thousand_items_need_no_ten_thousand_tasks() -> None:
    """No more are worked on at once than the Runtime has room for."""
    at_once = most = 0

    @tool(effects="none")
    async def watch(number: int) -> int:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        await anyio.sleep(1)
        at_once -= 1
        return number

    action = replace(
        Action.tool("each", "watch", number="{{ item }}"), for_each=ForEach(ValueTemplate.parse(list(range(10_000))))
    )

    async def main() -> RunResult:
        config = RuntimeConfig(trace=False, max_concurrency=500)
        async with Runtime(config, tools=[watch]) as runtime:
            return await runtime.run(dag_of(action))

    result = run_in_virtual_time(main)
    assert result.outputs["answer"] == list(range(10_000))
    assert (most, result.duration_s) == (500, 20)


def test_a_fallback_stands_in_after_the_last_attempt() -> None:
    """A value, with templates; the result says for what it stands in."""
    calls = []

    async def fails() -> None:
        calls.append(1)
        raise RuntimeError("no")

    action = function_action("a", fails, retry=RetryPolicy(2, frozenset({RetryCause.ERROR}), 1, 1))
    action = replace(action, fallback=Fallback(value=ValueTemplate.parse({"x": "{{ inputs.x }}"})))
    result = run(dag_of(action), inputs={"x": 5})
    assert (len(calls), result.outputs["answer"]) == (2, {"x": 5})
    assert result.action("a").reason == "its fallback stands in: RuntimeError: no"


def test_a_fallback_may_be_another_call_and_may_fail() -> None:
    """When both fail both reasons are told."""
    other = Action.tool("other", "double", number=4).call
    action = replace(Action.tool("a", "double", number=-1), fallback=Fallback(call=other))
    assert with_tools(dag_of(action)).outputs["answer"] == 8
    worse = Action.tool("other", "double", number=-4).call
    failed = with_tools(dag_of(replace(action, fallback=Fallback(call=worse))))
    assert "-1 is below zero; its fallback failed too: ValueError: -4 is below zero" in str(failed.error)


INNER = """\
name: inner
inputs: {number: integer}
outputs: {twice: "{{ actions.twice.output }}"}
actions:
  twice: {uses: tool/double, with: {number: "{{ inputs.number }}", wait_s: 1}}
"""
OUTER = """\
name: outer
inputs: {numbers: {type: array, items: {type: integer}}}
outputs: {all: "{{ actions.all.output | map(attribute='twice') | list }}"}
agents: {doubler: {dag: parts/inner.yaml}}
actions:
  all:
    uses: agent/doubler
    for_each: "{{ inputs.numbers }}"
    with: {number: "{{ item }}"}
"""


def outer(folder: Path) -> Dag:
    (folder / "parts").mkdir()
    (folder / "parts" / "inner.yaml").write_text(INNER)
    (folder / "outer.yaml").write_text(OUTER)
    return load_dag_file(folder / "outer.yaml")


@pytest.mark.parametrize("max_concurrency", [1, 100])
def test_a_dag_runs_inside_an_action(tmp_path: Path, max_concurrency: int) -> None:
    """Its outputs are the action's output. With a single slot nothing waits for itself."""
    dag = outer(tmp_path)

    async def main() -> RunResult:
        config = RuntimeConfig(trace=False, max_concurrency=max_concurrency)
        async with Runtime(config, tools=[double]) as runtime:
            return await runtime.run(dag, {"numbers": [1, 2, 3]})

    result = run_in_virtual_time(main)
    assert result.outputs["all"] == [2, 4, 6]
    assert result.duration_s == (3 if max_concurrency == 1 else 1)


def test_a_failure_inside_names_both_actions_and_the_place(tmp_path: Path) -> None:
    """The reader finds the line in the inner file."""
    result = with_tools(outer(tmp_path), {"numbers": [-1]})
    assert "action 'all' failed" in str(result.error)
    assert f"{tmp_path / 'parts' / 'inner.yaml'}:5" in str(result.error)
    assert "-1 is below zero" in str(result.error)


def test_the_deadline_reaches_inside(tmp_path: Path) -> None:
    """Half a second is less than the inner action takes."""
    dag = outer(tmp_path)

    async def main() -> RunResult:
        async with Runtime(RuntimeConfig(trace=False), tools=[double]) as runtime:
            with pytest.raises(RunError) as caught:
                await runtime.run(dag, {"numbers": [1]}, deadline_s=0.5)
            assert isinstance(caught.value.result, RunResult)
            return caught.value.result

    result = run_in_virtual_time(main)
    assert (result.status, result.duration_s) == (RunStatus.DEADLINE_EXCEEDED, 0.5)


def test_writes_meet_in_the_shared_state() -> None:
    """Two actions append at the same time; a third, which needs both, reads the two."""

    def noting(name: str) -> Action:
        own = {"notes": ValueTemplate.parse(f"{{{{ actions.{name}.output }}}}")}
        return replace(function_action(name, sleeper(1, name)), writes=own)

    reader = Action.tool("reader", "double", number="{{ state.notes | length }}")
    dag = dag_of(noting("a"), noting("b"), replace(reader, needs=frozenset("ab")))
    dag = replace(dag, state={"notes": StateField("notes", {"type": "array"}, Reducer.APPEND, [])})
    assert with_tools(dag).outputs["answer"] == 4


def test_a_value_that_does_not_suit_its_field_fails_the_action() -> None:
    """The error names the field."""
    action = replace(function_action("a", sleeper(0, "x")), writes={"n": ValueTemplate.parse("{{ actions.a.output }}")})
    dag = replace(dag_of(action), state={"n": StateField("n", {"type": "integer"})})
    assert "state field 'n'" in str(run(dag).error)


def test_a_person_is_asked_and_a_refusal_fails_the_run() -> None:
    """The question arrives filled in; without anybody to ask nothing runs at all."""
    asked: list[ApprovalRequest] = []

    async def approve(request: ApprovalRequest) -> Approval:
        asked.append(request)
        return Approval(request.question == "Send 7?", "too many")

    dag = dag_of(Action.human("ask", "Send {{ inputs.x }}?"))
    assert with_tools(dag, {"x": 7}, approver=approve).outputs["answer"] == {"approved": True, "comment": "too many"}
    refused = with_tools(dag, {"x": 8}, approver=approve)
    assert "it was not approved: too many" in str(refused.error)
    assert [(request.action, request.question) for request in asked] == [("ask", "Send 7?"), ("ask", "Send 8?")]
    with pytest.raises(UsageError, match="nobody answers"):
        with_tools(dag, {"x": 7})


def test_options_say_it_from_python() -> None:
    """What a file can say of an action, ActionOptions can."""
    options = ActionOptions(optional=True, writes={"notes": "{{ actions.a.output }}"}, fallback=Fallback(value=None))
    action = Action.tool("a", "double", options=options, number=1)
    assert action.optional
    assert action.writes["notes"].source == "{{ actions.a.output }}"
    assert action.dependencies == frozenset(), "its own output is not something to wait for"
