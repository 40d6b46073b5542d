"""What one run, one action or one thread does to values stays with it, and errors keep their causes."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from agentrt import Runtime, parse_dag, tool
from agentrt.config import RuntimeConfig
from agentrt.errors import ActionError


@pytest.fixture
def config(tmp_path: Path) -> RuntimeConfig:
    return RuntimeConfig(data_dir=tmp_path, cache_dir=tmp_path, trace=False)


@tool(effects="none")
def grow(notes: list[Any]) -> int:
    notes.append("mine")
    return len(notes)


@tool(effects="none")
def boom() -> int:
    raise RuntimeError("boom")


@tool(effects="none")
def fine() -> int:
    return 1


def test_state_begins_anew_in_every_run(config: RuntimeConfig) -> None:
    """A function that changes the list it is given changes neither the next run's nor another Dag's."""
    sources = [
        "name: first\nstate: {notes: {type: array, reducer: append}}\n",
        "name: second\nstate: {notes: {type: array, initial: []}}\n",
    ]
    actions = (
        "outputs: {n: '{{ actions.g.output }}'}\nactions:\n  g: {uses: tool/grow, with: {notes: '{{ state.notes }}'}}\n"
    )
    with Runtime(config, tools=[grow]) as runtime:
        for source in sources * 2:
            assert runtime.run_sync(parse_dag(source + actions)).outputs == {"n": 1}


@pytest.mark.parametrize("failing", ["a", "b", "c"])
def test_a_failure_in_a_chain_of_cheap_actions_is_the_actions_own(config: RuntimeConfig, failing: str) -> None:
    """Wherever in a chain that shares a slot an action fails, the run fails with that action's name and cause."""
    actions = "".join(
        f"  {name}: {{uses: tool/{'boom' if name == failing else 'fine'}, type: format, needs: [{needs}]}}\n"
        for name, needs in (("a", ""), ("b", "a"), ("c", "b"))
    )
    with Runtime(config, tools=[boom, fine]) as runtime, pytest.raises(ActionError) as raised:
        runtime.run_sync(parse_dag(f"name: chain\noutputs: {{n: '{{{{ actions.c.output }}}}'}}\nactions:\n{actions}"))
    assert raised.value.action == failing
    assert isinstance(raised.value.__cause__, Exception)


def test_threads_that_come_first_together_share_one_loop(config: RuntimeConfig) -> None:
    """However many threads make the first call of a Runtime at once, it has one event loop, and all get their results."""
    dag = parse_dag("name: one\noutputs: {n: '{{ actions.f.output }}'}\nactions:\n  f: {uses: tool/fine}\n")
    results: list[Any] = []
    barrier = threading.Barrier(8)
    with Runtime(config, tools=[fine]) as runtime:

        def call() -> None:
            barrier.wait()
            results.append(runtime.run_sync(dag).outputs["n"])

        threads = [threading.Thread(target=call) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert len([thread for thread in threading.enumerate() if thread.name == "agentrt-runtime"]) == 1
    assert results == [1] * 8


async def test_an_error_of_the_callers_keeps_its_cause(config: RuntimeConfig) -> None:
    """What is raised inside the block of a stream leaves it as it was raised."""
    dag = parse_dag("name: one\noutputs: {n: '{{ actions.f.output }}'}\nactions:\n  f: {uses: tool/fine}\n")
    cause = KeyError("first")
    with pytest.raises(ValueError, match="second") as raised:
        async with Runtime(config, tools=[fine]) as runtime, runtime.stream(dag):
            raise ValueError("second") from cause
    assert raised.value.__cause__ is cause
