"""The embedded engine as a Model: loaded once and when it is needed, and events that tell all of an answer."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import anyio.to_thread
import jsonschema
import pytest

from agentrt.config import RuntimeConfig
from agentrt.errors import (
    DownloadError,
    EngineError,
    ModelFileError,
    PromptTooLongError,
    RequestError,
    TimeoutExpiredError,
)
from agentrt.inference.async_engine import AsyncEngine
from agentrt.inference.output import Finished, TokenOutput
from agentrt.inference.request import FinishReason as EngineFinishReason
from agentrt.inference.weights import load_model
from agentrt.models.catalog import ModelSource, resolve
from agentrt.models.download import Progress
from agentrt.models.embedded import EmbeddedModel, _events
from agentrt.models.model import ChatRequest, FinishEvent, Message, ModelEvent, Sampling, TokenEvent
from tests.support.virtual_time import run_in_virtual_time

pytestmark = pytest.mark.anyio

CONFIG = RuntimeConfig(engine_threads=1, kv_cache_bytes=2**20)
CONTEXT = 512
"""Tokens that the tiny model reads."""


@pytest.fixture
def tiny_gguf_bytes(tiny_gguf: Path) -> bytes:
    return tiny_gguf.read_bytes()


class Shelf:
    """Where a model file lies: counts who fetches it, makes them wait at a closed door, fails as often as told."""

    def __init__(self, path: Path, *failures: Exception, is_open: bool = True) -> None:
        self.path = path
        self.num_fetches = 0
        self.is_reached = threading.Event()
        self.door = threading.Event()
        if is_open:
            self.door.set()
        self._failures = list(failures)

    def source(self) -> ModelSource:
        return ModelSource("tiny", self._fetch)

    def _fetch(self, progress: Progress | None) -> Path:
        self.num_fetches += 1
        self.is_reached.set()
        assert self.door.wait(timeout=60), "a load waits at a door that nobody opens"
        if self._failures:
            raise self._failures.pop(0)
        return self.path

    async def reached(self) -> None:
        await anyio.to_thread.run_sync(self.is_reached.wait)


@asynccontextmanager
async def embedded(source: ModelSource, config: RuntimeConfig = CONFIG) -> AsyncIterator[EmbeddedModel]:
    model = EmbeddedModel(source, config)
    try:
        yield model
    finally:
        await model.aclose()


def request(content: str = "hello world", *, timeout_s: float | None = None, **sampling: object) -> ChatRequest:
    return ChatRequest(
        (Message("user", content),),
        Sampling(**{"max_tokens": 4, **sampling}),  # type: ignore[arg-type]
        timeout_s=timeout_s,
    )


async def events_of(model: EmbeddedModel, asked: ChatRequest) -> list[ModelEvent]:
    async with model.stream(asked) as events:
        return [event async for event in events]


async def answer(model: EmbeddedModel, asked: ChatRequest) -> tuple[str, FinishEvent]:
    """Return the text and how it ended, having checked that the events are what the protocol says they are."""
    *tokens, finish = await events_of(model, asked)
    assert isinstance(finish, FinishEvent)
    assert finish.num_completion_tokens == len(tokens)
    texts = []
    for token in tokens:
        assert isinstance(token, TokenEvent)
        texts.append(token.text)
    return "".join(texts), finish


def engine_of(model: EmbeddedModel) -> AsyncEngine:
    assert model._loading is not None
    return model._loading.result().engine


def engine_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "agentrt-engine"]


def test_importing_it_loads_no_torch() -> None:
    """A program that only may use the embedded model does not pay for torch until it does."""
    code = "import sys, agentrt.models.embedded; sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


async def test_nothing_is_loaded_before_the_first_call(tiny_gguf: Path) -> None:
    """Making and closing a model touches no file and starts no thread; the first call loads it, the next does not."""
    shelf = Shelf(tiny_gguf)
    async with embedded(shelf.source()):
        pass
    assert shelf.num_fetches == 0
    async with embedded(shelf.source()) as model:
        assert (model.name, model.provider, shelf.num_fetches) == ("tiny", "agentrt", 0)
        for _ in range(2):
            await answer(model, request())
            assert shelf.num_fetches == 1


async def test_callers_at_the_same_time_share_one_load(tiny_gguf: Path) -> None:
    """However many calls come before the model is there, it is loaded once, and all of them are answered."""
    shelf = Shelf(tiny_gguf, is_open=False)
    texts: list[str] = []
    async with embedded(shelf.source()) as model:

        async def call() -> None:
            texts.append((await answer(model, request()))[0])

        async with anyio.create_task_group() as tasks:
            # More than there are worker threads, which a caller that waits must not hold.
            for _ in range(60):
                tasks.start_soon(call)
            await shelf.reached()
            shelf.door.set()
    assert shelf.num_fetches == 1
    assert len(texts) == 60
    assert len(set(texts)) == 1


async def test_a_first_caller_that_gives_up_does_not_take_the_load_away(tiny_gguf: Path) -> None:
    """Cancelling the call that began the load ends that call at once; the others get the same load."""
    shelf = Shelf(tiny_gguf, is_open=False)
    async with embedded(shelf.source()) as model, anyio.create_task_group() as others:
        async with anyio.create_task_group() as first:
            first.start_soon(answer, model, request())
            await shelf.reached()
            others.start_soon(answer, model, request())
            await anyio.lowlevel.checkpoint()
            first.cancel_scope.cancel()
        shelf.door.set()
    assert shelf.num_fetches == 1


async def test_a_load_that_failed_is_tried_again(tiny_gguf: Path) -> None:
    """All who waited for a load get its failure, as it is; the call after it loads anew and is answered."""
    shelf = Shelf(tiny_gguf, DownloadError("the network is away"), is_open=False)
    failures: list[BaseException] = []
    async with embedded(shelf.source()) as model:

        async def call() -> None:
            with pytest.raises(DownloadError, match="the network is away") as raised:
                await answer(model, request())
            failures.append(raised.value)

        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(call)
            await shelf.reached()
            shelf.door.set()
        assert len(failures) == 3
        assert shelf.num_fetches == 1
        await answer(model, request())
        assert shelf.num_fetches == 2


async def test_a_damaged_file_can_be_mended(tiny_gguf_bytes: bytes, tmp_path: Path) -> None:
    """A model file cut short is a ModelFileError that names it; with the whole file in its place the next call works."""
    path = tmp_path / "cut.gguf"
    path.write_bytes(tiny_gguf_bytes[:1000])
    async with embedded(resolve(str(path), CONFIG)) as model:
        with pytest.raises(ModelFileError, match=r"cut\.gguf"):
            await answer(model, request())
        path.write_bytes(tiny_gguf_bytes)
        await answer(model, request())


async def test_events_tell_all_of_an_answer(tiny_gguf: Path) -> None:
    """One event a token with its id, log-probability and time, then one that says how it ended and what it took."""
    async with embedded(Shelf(tiny_gguf).source()) as model:
        *tokens, finish = await events_of(model, request("hello world", max_tokens=6))
    loaded = load_model(tiny_gguf)
    num_prompt = len(loaded.chat_template.encode_chat(loaded.tokenizer, [Message("user", "hello world")]))
    assert len(tokens) == 6
    for token in tokens:
        assert isinstance(token, TokenEvent)
        assert token.token_id is not None
        assert token.logprob is not None
        assert token.logprob <= 0
    assert isinstance(finish, FinishEvent)
    assert (finish.reason, finish.num_prompt_tokens, finish.num_completion_tokens) == ("length", num_prompt, 6)
    assert finish.queue_s is not None
    assert finish.queue_s >= 0
    assert finish.prefill_s is not None
    assert finish.prefill_s > 0


async def test_reused_tokens_are_told() -> None:
    """How many prompt tokens were found in the cache, and how long the call waited, come from the engine as they are."""
    finished = Finished(
        EngineFinishReason.STOP,
        num_prompt_tokens=40,
        num_output_tokens=1,
        num_cached_tokens=32,
        num_preemptions=1,
        queue_s=0.25,
        prefill_s=0.5,
    )

    async def outputs() -> AsyncIterator[TokenOutput]:
        yield TokenOutput(1, 7, "x", -0.5, time_ns=9, finished=finished)

    assert [event async for event in _events(outputs())] == [
        TokenEvent("x", 9, 7, -0.5),
        FinishEvent("stop", 40, 1, num_cached_tokens=32, queue_s=0.25, prefill_s=0.5),
    ]


async def test_settings_reach_the_engine(tiny_gguf: Path) -> None:
    """Threads and memory of the cache are those of the configuration."""
    config = RuntimeConfig(engine_threads=2, kv_cache_bytes=2**21)
    async with embedded(Shelf(tiny_gguf).source(), config) as model:
        await answer(model, request())
        settings = engine_of(model)._engine.config
        assert (settings.num_threads, settings.kv_cache_bytes) == (2, 2**21)


async def test_every_way_to_end_is_told(tiny_gguf: Path) -> None:
    """An answer ends by length, by a stop string, which is not part of it, or by a choice, which is all of it."""
    async with embedded(Shelf(tiny_gguf).source()) as model:
        text, finish = await answer(model, request(max_tokens=12))
        assert finish.reason == "length"
        stop = text[3:5]
        cut, finish = await answer(model, request(max_tokens=12, stop=(stop,)))
        assert (cut, finish.reason) == (text[: text.index(stop)], "stop")
        chosen, finish = await answer(model, request(choices=("world", "hello", "a user")))
        assert (chosen in ("world", "hello", "a user"), finish.reason) == (True, "choice")


async def test_sampling_reaches_the_engine(tiny_gguf: Path) -> None:
    """Seeds repeat an answer and tell answers apart; a greedy answer is none of them."""
    async with embedded(Shelf(tiny_gguf).source()) as model:

        async def text(**sampling: object) -> str:
            return (await answer(model, request(max_tokens=12, **sampling)))[0]

        drawn = [await text(temperature=2.0, seed=seed) for seed in (1, 1, 2)]
        assert drawn[0] == drawn[1] != drawn[2]
        assert await text(temperature=2.0, seed=1, top_k=1) == await text(temperature=2.0, seed=2, top_p=1e-9)
        assert await text() == await text(temperature=2.0, top_k=1, seed=5)


@pytest.mark.parametrize(
    ("sampling", "field"),
    [({"temperature": -1.0}, "temperature"), ({"top_p": 2.0}, "top_p"), ({"max_tokens": 0}, "max_tokens")],
)
async def test_a_parameter_out_of_range_is_refused_by_name(
    tiny_gguf: Path, sampling: dict[str, object], field: str
) -> None:
    """A value that cannot be served raises on entry and says which it is."""
    async with embedded(Shelf(tiny_gguf).source()) as model:
        with pytest.raises(RequestError) as raised:
            await answer(model, request(**sampling))
        assert raised.value.field == field


async def test_an_answer_may_fill_the_context_and_no_more(tiny_gguf: Path) -> None:
    """Asking for more tokens than there is room for gives as many as there is room for, and the reason is length."""
    async with embedded(Shelf(tiny_gguf).source()) as model:
        _, finish = await answer(model, request("hello " * 200, max_tokens=10**6, temperature=3.0, seed=1))
        assert finish.num_prompt_tokens is not None
        assert finish.num_completion_tokens is not None
        assert finish.num_prompt_tokens > 200
        assert (finish.reason, finish.num_prompt_tokens + finish.num_completion_tokens) == ("length", CONTEXT)


async def test_a_prompt_longer_than_the_context_is_refused(tiny_gguf: Path) -> None:
    """The error states both lengths, and the next call is answered as ever."""
    async with embedded(Shelf(tiny_gguf).source()) as model:
        with pytest.raises(PromptTooLongError) as raised:
            await answer(model, request("hello " * CONTEXT))
        assert raised.value.max_context_tokens == CONTEXT
        assert raised.value.num_prompt_tokens > CONTEXT
        await answer(model, request())


async def test_a_reader_that_leaves_frees_its_blocks(tiny_gguf: Path) -> None:
    """Leaving the block after the first token, by an error of the caller's, ends the work behind it."""

    async def read_one(model: EmbeddedModel) -> None:
        async with model.stream(request(max_tokens=400)) as events:
            await anext(events)
            raise LookupError("mine")

    async with embedded(Shelf(tiny_gguf).source()) as model:
        with pytest.raises(LookupError, match="mine"):
            await read_one(model)
        await answer(model, request(max_tokens=1))  # a whole step later
        stats = engine_of(model).stats()
        assert (stats.num_used_blocks, stats.num_running) == (0, 0)


async def test_time_that_is_over_ends_a_call(tiny_gguf: Path) -> None:
    """A call that cannot be done in its time ends with TimeoutExpiredError; one with time enough is answered."""
    async with embedded(Shelf(tiny_gguf).source()) as model:
        await answer(model, request(timeout_s=math.inf))
        for timeout_s in (0.0, 0.002):
            with pytest.raises(TimeoutExpiredError):
                await answer(model, request(max_tokens=400, timeout_s=timeout_s))
        await answer(model, request(max_tokens=1))
        assert engine_of(model).stats().num_used_blocks == 0


def test_waiting_for_a_load_is_part_of_a_calls_time(tiny_gguf: Path) -> None:
    """A download that takes longer than the caller has does not hold the caller; it goes on for those who come later."""
    shelf = Shelf(tiny_gguf, is_open=False)
    model = EmbeddedModel(shelf.source(), CONFIG)

    async def call_in_vain() -> None:
        with pytest.raises(TimeoutExpiredError, match="timeout of 30 s"):
            await answer(model, request(timeout_s=30.0))

    async def call() -> None:
        shelf.door.set()
        await answer(model, request())
        await model.aclose()

    run_in_virtual_time(call_in_vain)
    anyio.run(call)
    assert shelf.num_fetches == 1


async def test_closing_does_not_wait_for_a_load(tiny_gguf: Path) -> None:
    """Closing in the middle of a load fails those who wait for it, and drops what it brings."""
    shelf = Shelf(tiny_gguf, is_open=False)
    model = EmbeddedModel(shelf.source(), CONFIG)

    async def call() -> None:
        with pytest.raises(EngineError, match="model 'tiny' is closed"):
            await answer(model, request())

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(call)
        await shelf.reached()
        await model.aclose()
    (loader,) = (thread for thread in threading.enumerate() if thread.name == "agentrt-load-tiny")
    shelf.door.set()
    await anyio.to_thread.run_sync(loader.join)
    await call()
    assert shelf.num_fetches == 1
    assert engine_threads() == []


async def test_closing_ends_the_thread_and_the_streams(tiny_gguf: Path) -> None:
    """A reader in the middle of an answer gets EngineError; no thread is left, closing twice is no fault."""
    model = EmbeddedModel(Shelf(tiny_gguf).source(), CONFIG)

    async def read_on_after_close() -> None:
        async with model.stream(request(max_tokens=400)) as events:
            await anext(events)
            assert len(engine_threads()) == 1
            await model.aclose()
            async for _ in events:
                pass

    with pytest.raises(EngineError, match="the engine was closed"):
        await read_on_after_close()
    await model.aclose()
    assert engine_threads() == []
    with pytest.raises(EngineError, match="is closed"):
        await answer(model, request())


@pytest.mark.model
async def test_the_default_model_knows_a_capital(model_path: Path) -> None:
    """The default model, asked in a chat, says Paris; given choices, it says the right one."""
    config = RuntimeConfig(engine_threads=2)
    async with embedded(resolve(str(model_path), config), config) as model:
        question = "What is the capital of France? Answer in one sentence."
        text, finish = await answer(model, request(question, max_tokens=24))
        assert "Paris" in text
        assert finish.reason == "stop"
        assert "<|" not in text
        chosen, finish = await answer(model, request(question, choices=("Berlin", "Paris", "Rome")))
        assert (chosen, finish.reason) == ("Paris", "choice")


SCHEMA = {
    "type": "object",
    "properties": {
        "kind": {"enum": ["a", "b"]},
        "sizes": {"type": "array", "items": {"type": "boolean"}, "maxItems": 2},
    },
    "required": ["kind", "sizes"],
    "additionalProperties": False,
}


async def test_an_answer_is_held_to_its_output_schema(tiny_gguf: Path) -> None:
    """A model of random weights writes JSON that fits, at any temperature, in answers that run beside free ones."""
    async with embedded(Shelf(tiny_gguf).source()) as model:
        found: list[tuple[str, FinishEvent]] = []

        async def ask(seed: int) -> None:
            schema = SCHEMA if seed % 2 else None
            asked = request(max_tokens=200 if schema else 10, temperature=1.0, seed=seed, output_schema=schema)
            told = await answer(model, asked)
            if schema:
                found.append(told)

        async with anyio.create_task_group() as group:
            for seed in range(8):
                group.start_soon(ask, seed)
    assert len(found) == 4
    assert any(finish.reason == "stop" for _, finish in found)
    for text, finish in found:
        if finish.reason == "stop":
            jsonschema.validate(json.loads(text), SCHEMA)


@pytest.mark.parametrize(
    "schema",
    [{"type": "string", "pattern": "(?=x)"}, {"enum": ["x" * 70_000]}, {"allOf": [{"type": "null"}, {"const": 1}]}],
)
async def test_a_schema_that_cannot_be_enforced_leaves_the_answer_free(
    tiny_gguf: Path, schema: dict[str, object], caplog: pytest.LogCaptureFixture
) -> None:
    """Such a schema is no error here, because the caller validates; that it is not enforced is logged."""
    async with embedded(Shelf(tiny_gguf).source()) as model:
        free = await answer(model, request())
        assert (await answer(model, request(output_schema=schema)))[0] == free[0]
    assert "not held to its output_schema" in caplog.text
