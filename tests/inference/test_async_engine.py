"""The engine in its own thread: streams that do not disturb each other, and nothing that goes on after its reader left."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import anyio
import anyio.lowlevel
import pytest

from agentrt.errors import EngineError, PromptTooLongError, QueueFullError, RequestError, TimeoutExpiredError
from agentrt.inference.async_engine import AsyncEngine, TokenStream
from agentrt.inference.config import EngineConfig
from agentrt.inference.engine import Engine
from agentrt.inference.event_loop import EventLoop
from agentrt.inference.forward import ForwardModel
from agentrt.inference.output import TokenOutput
from agentrt.inference.request import FinishReason
from agentrt.inference.sampling_params import SamplingParams
from tests.support.tiny_model import tiny_model, tiny_tokenizer
from tests.support.told_models import GatedModel, RecitingModel

pytestmark = pytest.mark.anyio

MODEL, TOKENIZER = tiny_model(), tiny_tokenizer()
LETTERS = RecitingModel([*b"abcdefgh"], vocab_size=TOKENIZER.vocab_size)
"""Says letters for ever, and never ends an answer by itself."""
CONFIG = EngineConfig(num_blocks=64, block_size=4, max_sequences=16, max_batch_tokens=64, num_threads=1)


@asynccontextmanager
async def serving(model: ForwardModel, config: EngineConfig = CONFIG, **options: object) -> AsyncIterator[AsyncEngine]:
    engine = AsyncEngine(Engine(model, TOKENIZER, config, **options))  # type: ignore[arg-type]
    try:
        yield engine
    finally:
        if isinstance(model, GatedModel):
            model.open()
        await engine.aclose()


async def read_all(engine: AsyncEngine, prompt: list[int], sampling: SamplingParams) -> list[TokenOutput]:
    async with engine.stream(prompt, sampling) as outputs:
        return [output async for output in outputs]


async def settle(engine: AsyncEngine, model: GatedModel | None = None) -> None:
    """Return after a step that began after this call: orders given before it have been carried out."""
    if model is not None:
        model.open()
    await read_all(engine, [1], SamplingParams(max_tokens=1))


def answer_alone(prompt: list[int], sampling: SamplingParams) -> list[int]:
    engine = Engine(MODEL, TOKENIZER, CONFIG)
    engine.add_request(prompt, sampling)
    token_ids = []
    while engine.has_work:
        token_ids += [output.token_id for output in engine.step() if isinstance(output, TokenOutput)]
    return token_ids


async def test_many_streams_each_get_their_own_answer() -> None:
    """Twenty readers at once, more than run together: each gets exactly the tokens it would get alone."""
    asked = [
        ([number, 50, 60], SamplingParams(max_tokens=5 + number % 7, temperature=number % 2, seed=number))
        for number in range(20)
    ]
    answers: dict[int, list[TokenOutput]] = {}

    async def read(number: int) -> None:
        answers[number] = await read_all(engine, *asked[number])

    async with serving(MODEL) as engine, anyio.create_task_group() as tasks:
        for number in range(len(asked)):
            tasks.start_soon(read, number)
    for number, request in enumerate(asked):
        assert [output.token_id for output in answers[number]] == answer_alone(*request)
        assert [output.finished is not None for output in answers[number][:-1]] == [False] * (len(answers[number]) - 1)
        assert answers[number][-1].finished is not None
    assert engine.stats().num_used_blocks == 0


async def test_tokens_arrive_as_they_are_made() -> None:
    """A reader has each token before the next step is done, not all of them at the end."""
    model = GatedModel(LETTERS)
    async with serving(model) as engine, engine.stream([0], SamplingParams(max_tokens=4)) as outputs:
        for text in "abcd":
            model.let(1)
            assert (await anext(outputs)).text == text
        with pytest.raises(StopAsyncIteration):
            await anext(outputs)


async def test_leaving_the_block_frees_the_blocks_at_the_next_step() -> None:
    """A reader that leaves after its first token stops the work: its blocks are free and it generates no more."""
    model = GatedModel(LETTERS)
    async with serving(model) as engine:
        async with engine.stream([1] * 20, SamplingParams(max_tokens=200)) as outputs:
            model.let(1)
            await anext(outputs)
            assert engine.stats().num_used_blocks == 5
        await settle(engine, model)
        assert engine.stats().num_used_blocks == 0
        # The step that ran while the reader left may have made one token more.
        assert engine.stats().num_output_tokens <= 1 + 1 + 1


async def test_a_cancelled_reader_leaves_nothing_behind() -> None:
    """Cancelling the reading task, while it waits for a token, stops the work in the same way."""
    model = GatedModel(LETTERS)
    async with serving(model) as engine:
        async with anyio.create_task_group() as tasks:

            async def read() -> None:
                async with engine.stream([1] * 20, SamplingParams(max_tokens=200)) as outputs:
                    has_begun.set()
                    async for _ in outputs:
                        pass

            has_begun = anyio.Event()
            tasks.start_soon(read)
            await has_begun.wait()
            tasks.cancel_scope.cancel()
        await settle(engine, model)
        assert engine.stats().num_used_blocks == 0
        assert engine.stats().num_output_tokens <= 2


async def test_an_error_in_the_block_is_the_callers_own() -> None:
    """What is raised inside the block comes out as it is, and the request is dropped."""
    async with serving(MODEL) as engine:

        async def fail() -> None:
            async with engine.stream([1], SamplingParams(max_tokens=200)) as outputs:
                await anext(outputs)
                raise LookupError("mine")

        with pytest.raises(LookupError, match="mine"):
            await fail()
        await settle(engine)
        assert engine.stats().num_used_blocks == 0


async def test_a_slow_reader_holds_up_nobody() -> None:
    """A stream that is not read runs to its end beside one that is; its tokens wait for it."""
    async with serving(LETTERS) as engine, engine.stream([1], SamplingParams(max_tokens=20)) as slow:
        assert len(await read_all(engine, [2], SamplingParams(max_tokens=30))) == 30
        num_steps = engine.stats().num_steps
        assert engine.stats().num_running == 0
        assert len([output async for output in slow]) == 20
        assert engine.stats().num_steps <= num_steps + 1, "reading costs no steps; leaving the other stream may"


async def test_a_step_wakes_the_event_loop_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many streams got a token in a step, their event loop is woken once for it."""
    num_posts = 0
    post = EventLoop.post

    def counted(loop: EventLoop, callback: Callable[[], None]) -> bool:
        nonlocal num_posts
        num_posts += 1
        return post(loop, callback)

    monkeypatch.setattr(EventLoop, "post", counted)
    model = GatedModel(LETTERS)
    num_tokens: list[int] = []
    async with serving(model) as engine, anyio.create_task_group() as tasks:

        async def read(number: int) -> None:
            num_tokens.append(len(await read_all(engine, [number], SamplingParams(max_tokens=10))))

        for number in range(8):
            tasks.start_soon(read, number)
        while engine._streams.keys() != set(range(8)):
            await anyio.lowlevel.checkpoint()
        model.open()
    assert num_tokens == [10] * 8
    # All are there from the second step on; those of the first step need one more at the end.
    assert num_posts <= 12


async def test_the_thread_starts_with_the_first_stream_and_ends_with_close() -> None:
    """An engine that nobody asks has no thread; after aclose none is left, and closing twice is no fault."""

    def engine_threads() -> list[threading.Thread]:
        # By name: worker threads of event loops come and go beside them.
        return [thread for thread in threading.enumerate() if thread.name == "agentrt-engine"]

    engine = AsyncEngine(Engine(MODEL, TOKENIZER, CONFIG))
    assert engine_threads() == []
    await read_all(engine, [1], SamplingParams(max_tokens=1))
    (thread,) = engine_threads()
    await engine.aclose()
    await engine.aclose()
    assert not thread.is_alive()


async def test_closing_an_engine_that_never_ran_is_no_fault() -> None:
    """aclose without any stream before it does nothing, and streams after it are refused."""
    engine = AsyncEngine(Engine(MODEL, TOKENIZER, CONFIG))
    await engine.aclose()
    with pytest.raises(EngineError, match="the engine is closed"):
        async with engine.stream([1], SamplingParams(max_tokens=1)):
            pass


async def test_an_idle_engine_sleeps() -> None:
    """With nothing to do the thread takes no steps, and it is awake again for the next request."""
    async with serving(MODEL) as engine:
        await read_all(engine, [1], SamplingParams(max_tokens=3))
        await settle(engine)
        num_steps = engine.stats().num_steps
        end = time.thread_time() + 0.05
        while time.thread_time() < end:
            await anyio.lowlevel.checkpoint()
        # One step may follow the reader's leaving; a thread that spins takes thousands.
        assert engine.stats().num_steps <= num_steps + 1
        assert len(await read_all(engine, [1], SamplingParams(max_tokens=3))) == 3


async def test_a_fault_of_the_engine_fails_every_stream() -> None:
    """When the model raises, all readers get EngineError with the cause, and so does whoever comes later."""
    cause = RuntimeError("out of memory")
    model = GatedModel(RecitingModel([1], vocab_size=TOKENIZER.vocab_size, raises=cause))
    errors: list[EngineError] = []
    async with serving(model) as engine:
        async with anyio.create_task_group() as tasks:

            async def read() -> None:
                with pytest.raises(EngineError, match=r"the engine stopped: RuntimeError\('out of memory'\)") as raised:
                    await read_all(engine, [1], SamplingParams(max_tokens=5))
                errors.append(raised.value)

            for _ in range(3):
                tasks.start_soon(read)
            while len(engine._streams) < 3:
                await anyio.lowlevel.checkpoint()
            model.open()
        assert [error.__cause__ for error in errors] == [cause] * 3
        with pytest.raises(EngineError, match="the engine stopped earlier") as raised:
            await read_all(engine, [1], SamplingParams(max_tokens=5))
        assert raised.value.__cause__ is cause


async def test_logits_that_are_not_numbers_fail_one_stream() -> None:
    """A request that the model answers with NaN gets EngineError; the stream beside it gets its tokens."""
    model = RecitingModel([*b"ab"], vocab_size=TOKENIZER.vocab_size, damaged={9: float("nan")})
    async with serving(model) as engine, engine.stream([0] * 9, SamplingParams(max_tokens=9)) as sick:
        assert len(await read_all(engine, [0], SamplingParams(max_tokens=5))) == 5
        assert (await anext(sick)).text == "a"
        with pytest.raises(EngineError, match="not numbers"):
            await anext(sick)


async def test_closing_fails_the_streams_that_are_open() -> None:
    """A reader is not left waiting for an engine that is gone."""
    model = GatedModel(LETTERS)
    engine = AsyncEngine(Engine(model, TOKENIZER, CONFIG))
    async with engine.stream([1], SamplingParams(max_tokens=200)) as outputs:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(engine.aclose)
            model.open()
        with pytest.raises(EngineError, match="the engine was closed"):
            async for _ in outputs:
                pass


class ManualClock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


async def test_the_engine_stops_working_when_the_time_is_over() -> None:
    """A request past its timeout is ended by the engine itself, not only by a caller that gives up."""
    clock, model = ManualClock(), GatedModel(LETTERS)
    async with serving(model, clock=clock) as engine:
        async with engine.stream([1], SamplingParams(max_tokens=200), timeout_s=3.0) as outputs:
            model.let(1)
            await anext(outputs)
            clock.now_s = 3.0
            model.let(1)  # the step that was under way when the time was over
            with pytest.raises(TimeoutExpiredError, match="timeout of 3 s"):
                async for _ in outputs:
                    pass
        await settle(engine, model)
        assert engine.stats().num_used_blocks == 0


@pytest.mark.parametrize(
    ("prompt", "options", "error"),
    [
        ([], {}, RequestError),
        ([1] * 300, {}, PromptTooLongError),
        ([1] * 250, {}, RequestError),
        ([1], {"timeout_s": -1.0}, TimeoutExpiredError),
        ([1], {"timeout_s": float("nan")}, RequestError),
    ],
)
async def test_what_cannot_be_served_is_refused_on_entry(
    prompt: list[int], options: dict[str, float], error: type[Exception]
) -> None:
    """A request that cannot be served raises before the block is entered, and the engine knows nothing of it."""
    async with serving(MODEL) as engine:
        with pytest.raises(error):
            async with engine.stream(prompt, SamplingParams(max_tokens=20), **options):
                raise AssertionError("the block was entered")
        assert engine.stats().num_steps == 0
        assert not engine._streams


async def test_choices_come_as_one_answer() -> None:
    """An answer that is chosen from a list arrives whole, and says that it was chosen."""
    async with serving(MODEL) as engine:
        tokens = await read_all(engine, [7], SamplingParams(choices=("kiwi", "billing")))
    assert "".join(token.text for token in tokens) in ("kiwi", "billing")
    assert tokens[-1].finished is not None
    assert tokens[-1].finished.reason is FinishReason.CHOICE


def test_two_event_loops_share_an_engine() -> None:
    """Readers in an asyncio loop and in a trio loop, in two threads, are served by one engine at the same time."""
    engine = AsyncEngine(Engine(MODEL, TOKENIZER, CONFIG))
    answers: dict[str, list[int]] = {}
    sampling = SamplingParams(max_tokens=15)

    async def read(backend: str) -> None:
        answers[backend] = [output.token_id for output in await read_all(engine, [9, 9], sampling)]

    threads = [
        threading.Thread(target=lambda backend=backend: anyio.run(read, backend, backend=backend))  # type: ignore[misc]
        for backend in ("asyncio", "trio")
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    anyio.run(engine.aclose)
    assert answers == dict.fromkeys(("asyncio", "trio"), answer_alone([9, 9], sampling))


def test_a_loop_that_ends_with_open_streams_stops_their_work() -> None:
    """An event loop that is closed without leaving its blocks is noticed: its requests are dropped, others go on."""
    model = GatedModel(LETTERS)
    engine = AsyncEngine(Engine(model, TOKENIZER, CONFIG))
    kept: list[tuple[object, TokenStream]] = []

    async def enter() -> None:
        block = engine.stream([1] * 20, SamplingParams(max_tokens=200))
        kept.append((block, await block.__aenter__()))

    loop = asyncio.new_event_loop()
    loop.run_until_complete(enter())
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()

    async def look() -> None:
        model.open()
        await read_all(engine, [2], SamplingParams(max_tokens=5))
        assert engine.stats().num_used_blocks == 0
        assert engine.stats().num_output_tokens < 20
        await engine.aclose()

    anyio.run(look)
    kept[0][1].close()


async def test_one_too_many_is_refused_and_the_others_are_served() -> None:
    """A request beyond ``max_waiting`` fails with QueueFullError from its own stream; the engine goes on."""
    model = GatedModel(LETTERS)
    config = EngineConfig(num_blocks=64, max_sequences=1, max_waiting=1, num_threads=1)
    texts: list[str] = []
    refusals: list[QueueFullError] = []
    async with serving(model, config) as engine:

        async def ask() -> None:
            try:
                outputs = await read_all(engine, [0], SamplingParams(max_tokens=3))
            except QueueFullError as error:
                refusals.append(error)
            else:
                texts.append("".join(output.text for output in outputs))

        async with anyio.create_task_group() as tasks:
            for _ in range(6):
                tasks.start_soon(ask)
            while len(engine._streams) + len(refusals) < 6:
                await anyio.lowlevel.checkpoint()
            model.open()
    assert len(texts) + len(refusals) == 6
    assert set(texts) == {"abc"}
    assert refusals
    assert all(refusal.retry_after_s > 0 for refusal in refusals)
