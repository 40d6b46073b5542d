"""What a Runtime promises to a program that embeds it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from agentrt import (
    Action,
    ActionOptions,
    ActionToken,
    Agent,
    Dag,
    ModelRef,
    RetryPolicy,
    RunFinished,
    RunStatus,
    Runtime,
    RuntimeConfig,
    Slo,
    load_dag_file,
    parse_dag,
    tool,
)
from agentrt.errors import ActionError, DeclarationError, InputError, ModelConnectionError, UnknownModelError
from agentrt.models.model import ChatRequest
from agentrt.trace.store import TraceStore
from tests.support.scripted_model import ScriptedModel


@pytest.fixture
def config(tmp_path: Path) -> RuntimeConfig:
    return RuntimeConfig(cache_dir=tmp_path / "cache", data_dir=tmp_path / "data", model="echo")


@pytest.fixture
def echo() -> ScriptedModel:
    return ScriptedModel(lambda request: f"you said {request.messages[-1].content}", name="echo")


def greeting() -> Dag:
    return Dag.from_functions("greeting", [Action.llm("reply", "Hello {{ inputs.name }}", max_tokens=5)])


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_dag_runs_inside_a_users_own_loop(config: RuntimeConfig, echo: ScriptedModel, backend: str) -> None:
    """``await runtime.run`` works on asyncio and trio, and what is asked of the model is what the Dag says."""

    async def main() -> None:
        agent = Agent("default", instructions="Be brief.", parameters={"temperature": 0.5, "max_tokens": 99})
        dag = Dag.from_functions("d", [Action.llm("reply", "Hi {{ inputs.name }}", max_tokens=5)], agents=[agent])
        async with Runtime(config, models={"echo": echo}) as runtime:
            result = await runtime.run(dag, {"name": "Ada"})
        assert result.outputs == {"reply": "you said Hi Ada"}
        request = echo.requests[0]
        assert [(m.role, m.content) for m in request.messages] == [("system", "Be brief."), ("user", "Hi Ada")]
        assert (request.sampling.max_tokens, request.sampling.temperature) == (5, 0.5)
        assert request.traceparent is not None
        timing = result.action("reply").tokens
        assert timing is not None
        assert timing.num_tokens == 4
        assert not echo.is_closed

    anyio.run(main, backend=backend)


def test_a_plain_program_needs_no_loop(config: RuntimeConfig, echo: ScriptedModel) -> None:
    """``run_sync`` works any number of times, and the program ends without a thread left over."""
    import threading

    before = set(threading.enumerate())
    with Runtime(config, models={"echo": echo}) as runtime:
        for name in ("Ada", "Alan"):
            assert runtime.run_sync(greeting(), {"name": name}).outputs == {"reply": f"you said Hello {name}"}
    left = [thread for thread in threading.enumerate() if thread not in before]
    for thread in left:
        # Idle worker threads of the event loop end with it, a moment later.
        thread.join(timeout=30)
    assert not any(thread.is_alive() for thread in left)


def test_a_failed_run_raises_and_keeps_what_had_finished(config: RuntimeConfig) -> None:
    """The error names the action and carries the result."""

    def first() -> str:
        return "kept"

    def second(first: str) -> str:
        raise ValueError(f"cannot use {first}")

    with Runtime(config) as runtime, pytest.raises(ActionError) as caught:
        runtime.run_sync(Dag.from_functions("d", [first, second]))
    assert "action 'second' failed: ValueError: cannot use kept" in str(caught.value)
    assert __file__ in str(caught.value)
    result = caught.value.result
    assert result is not None
    assert result.action("first").output == "kept"  # type: ignore[attr-defined]


def test_mistakes_of_the_caller_are_told_before_anything_runs(config: RuntimeConfig, echo: ScriptedModel) -> None:
    """A wrong Dag and wrong inputs raise at once, and no model is asked."""
    wrong = parse_dag("name: d\noutputs: {a: '{{ actions.b.output }}'}\nactions: {x: {prompt: hi}}")
    unknown_tool = parse_dag("name: d\noutputs: {a: '{{ actions.x.output }}'}\nactions: {x: {uses: tool/retrival}}")
    with Runtime(config, models={"echo": echo}) as runtime:
        with pytest.raises(DeclarationError, match="no action 'b'"):
            runtime.run_sync(wrong)
        with pytest.raises(DeclarationError, match="did you mean 'retrieval'"):
            runtime.run_sync(unknown_tool)
        with pytest.raises(InputError, match="input 'name' is missing"):
            runtime.run_sync(greeting())
        with pytest.raises(InputError, match=r"there is no input 'nam' \(did you mean 'name'"):
            runtime.run_sync(greeting(), {"nam": "x"})
        with pytest.raises(InputError, match="deadline must be more than 0"):
            runtime.run_sync(greeting(), {"name": "x"}, deadline_s=0)
    assert echo.requests == []


def test_an_unknown_model_is_told_before_anything_runs(config: RuntimeConfig) -> None:
    """A misspelt model is answered with the one that was meant, and no action has started."""
    started: list[str] = []

    def first() -> None:
        started.append("first")

    dag = Dag.from_functions(
        "d", [first, Action.llm("a", "hi", agent="x")], agents=[Agent("x", model=ModelRef("smollm2-135"))]
    )
    with Runtime(config) as runtime, pytest.raises(UnknownModelError, match="smollm2-135m"):
        runtime.run_sync(dag)
    assert started == []


def test_tools_and_relative_paths_come_from_beside_the_dag_file(config: RuntimeConfig, tmp_path: Path) -> None:
    """The built-in retrieval finds the corpus next to the file; a user's tool is called by its name."""

    @tool(effects="none")
    def shout(text: str) -> str:
        return text.upper()

    (tmp_path / "corpus.jsonl").write_text('{"text": "Refunds take five days."}')
    (tmp_path / "d.yaml").write_text(
        """
name: d
inputs: {q: string}
outputs: {answer: "{{ actions.loud.output }}"}
actions:
  find: {uses: tool/retrieval, with: {corpus: corpus.jsonl, query: "{{ inputs.q }}"}}
  loud: {uses: tool/shout, with: {text: "{{ actions.find.output[0].text }}"}}
"""
    )
    with Runtime(config, tools=[shout]) as runtime:
        result = runtime.run_sync(load_dag_file(tmp_path / "d.yaml"), {"q": "refund"})
    assert result.outputs == {"answer": "REFUNDS TAKE FIVE DAYS."}


def test_a_stream_gives_tokens_as_they_come_and_can_be_cancelled(config: RuntimeConfig) -> None:
    """Cancelling in the middle ends the model's work; the last event still tells what was done."""
    endless = ScriptedModel(lambda request: "word " * 10_000, name="echo")

    async def main() -> None:
        async with Runtime(config, models={"echo": endless}) as runtime:
            texts, last = [], None
            async with runtime.stream(greeting(), {"name": "x"}) as run:
                async for event in run:
                    last = event
                    if isinstance(event, ActionToken):
                        texts.append(event.text)
                        if len(texts) == 3:
                            run.cancel()
            assert "".join(texts[:3]) == "word word word"
            assert isinstance(last, RunFinished)
            assert last.result.status is RunStatus.CANCELLED
            assert endless.num_open == 0

    anyio.run(main)


def test_leaving_a_stream_early_stops_the_run(config: RuntimeConfig) -> None:
    """A reader that goes away leaves nothing running behind."""
    endless = ScriptedModel(lambda request: "word " * 10_000, name="echo")

    async def main() -> None:
        async with Runtime(config, models={"echo": endless}) as runtime:
            async with runtime.stream(greeting(), {"name": "x"}) as run:
                async for event in run:
                    if isinstance(event, ActionToken):
                        break
            assert endless.num_open == 0

    anyio.run(main)


def test_an_error_in_the_readers_own_code_comes_out_as_it_is(config: RuntimeConfig, echo: ScriptedModel) -> None:
    """No exception group is wrapped around what the user's code raises inside the block."""

    async def main() -> None:
        async with Runtime(config, models={"echo": echo}) as runtime:
            with pytest.raises(LookupError, match="mine"):
                async with runtime.stream(greeting(), {"name": "x"}):
                    raise LookupError("mine")

    anyio.run(main)


def test_the_dags_own_deadline_holds_unless_another_is_given(config: RuntimeConfig, echo: ScriptedModel) -> None:
    """What is left of the deadline travels with the model call."""
    dag = Dag.from_functions("d", [Action.llm("a", "hi")], slo=Slo(p99_s=1, deadline_s=50))
    with Runtime(config, models={"echo": echo}) as runtime:
        runtime.run_sync(dag)
        runtime.run_sync(dag, deadline_s=20)
    first, second = (request.timeout_s for request in echo.requests)
    assert first is not None
    assert second is not None
    assert 20 < first <= 50
    assert second <= 20


def test_a_retried_model_call_starts_anew(config: RuntimeConfig) -> None:
    """Only the successful attempt's text is the output."""
    answers: Iterator[Exception | str] = iter([ModelConnectionError("refused"), "fine"])

    def answer(request: ChatRequest) -> str:
        given = next(answers)
        if isinstance(given, Exception):
            raise given
        return given

    options = ActionOptions(retry=RetryPolicy(attempts=2, backoff_s=0.0))
    dag = Dag.from_functions("d", [Action.llm("a", "hi", options=options)])
    with Runtime(config, models={"echo": ScriptedModel(answer, name="echo")}) as runtime:
        result = runtime.run_sync(dag)
    assert result.outputs == {"a": "fine"}
    assert result.action("a").num_attempts == 2


def test_a_run_is_traced_down_to_its_tokens(config: RuntimeConfig, echo: ScriptedModel) -> None:
    """run > agent > action > model call > token, under the run's id, skipped actions included."""
    dag = parse_dag(
        """
name: d
inputs: {q: string}
agents: {helper: {}}
outputs: {a: "{{ actions.say.output }}"}
actions:
  say: {prompt: "{{ inputs.q }}"}
  never: {prompt: "{{ actions.say.output }}", if: "inputs.q == 'no'"}
"""
    )
    with Runtime(config, models={"echo": echo}) as runtime:
        result = runtime.run_sync(dag, {"q": "hi"})
    store = TraceStore(config.trace_db)
    record = store.load_run(result.run_id)
    store.close()
    assert record.summary.trace_id == result.trace_id
    parents = {span.span_id: span for span in record.spans}
    tokens = [span for span in record.spans if span.name == "llm.token.generate"]
    assert [span.attributes["llm.step"] for span in tokens] == [0, 1, 2]
    path, span = [], tokens[0]
    while span is not None:
        path.append(span.name)
        span = parents.get(span.parent_id or "")
    assert path == ["llm.token.generate", "chat echo", "action say", "invoke_agent helper", "invoke_workflow d"]
    assert "action never" in {span.name for span in record.spans}


def test_without_tracing_nothing_is_written(config: RuntimeConfig, echo: ScriptedModel, tmp_path: Path) -> None:
    """``trace=False`` leaves no file behind."""
    quiet = RuntimeConfig(cache_dir=tmp_path / "c", data_dir=tmp_path / "d", model="echo", trace=False)
    with Runtime(quiet, models={"echo": echo}) as runtime:
        assert runtime.run_sync(greeting(), {"name": "x"}).trace_id is None
    assert not (tmp_path / "d").exists()
