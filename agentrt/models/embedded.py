"""The embedded Engine as a Model: a chat request in, token events out, all in this process.

The model file is fetched and loaded at the first call, in a thread, once for all callers: whoever comes meanwhile waits for
the same load, but no longer than its own timeout, and a caller that gives up does not take it away from the others. A load
that failed is tried again by the next call, because a network may be back by then. Closing does not wait for a load, which
may be a long download: what it brings is dropped.

With an ``output_schema`` tokens that cannot lead to an answer that fits are not drawn. What of a schema cannot be enforced
is left to the caller's validation, as all of it is with other models.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import AsyncGenerator, AsyncIterator
from concurrent.futures import Future
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread

from agentrt.config import RuntimeConfig
from agentrt.errors import EngineError, RequestError, TimeoutExpiredError
from agentrt.inference.event_loop import current_event_loop
from agentrt.models.catalog import ModelSource
from agentrt.models.model import ChatRequest, FinishEvent, FinishReason, ModelEvent, Sampling, TokenEvent

if TYPE_CHECKING:
    from agentrt.inference.async_engine import AsyncEngine
    from agentrt.inference.output import TokenOutput
    from agentrt.inference.sampling_params import SamplingParams
    from agentrt.inference.weights import LoadedModel

_log = logging.getLogger(__name__)
_FINISH_REASONS: dict[str, FinishReason] = {"stop": "stop", "length": "length", "choice": "choice"}


@dataclass(frozen=True, slots=True)
class LoadedEngine:
    """A model and the engine that serves it."""

    model: LoadedModel
    engine: AsyncEngine


class EmbeddedModel:
    """A Model served by an engine of its own."""

    provider = "agentrt"

    def __init__(self, source: ModelSource, config: RuntimeConfig) -> None:
        self._source = source
        self._config = config
        self._lock = threading.Lock()
        self._loading: Future[LoadedEngine] | None = None
        self._is_closed = False

    @property
    def name(self) -> str:
        return self._source.name

    @asynccontextmanager
    async def stream(self, request: ChatRequest) -> AsyncIterator[AsyncIterator[ModelEvent]]:
        """Begin a call; see ``Model.stream``. The first one fetches and loads the model.

        Raises, besides what the protocol names:
            DownloadError, ModelFileError: the model could not be fetched or loaded.
            TimeoutExpiredError: ``request.timeout_s`` passed.
        """
        began = anyio.current_time()
        with anyio.move_on_after(request.timeout_s) as limit:
            loaded = await self._load()
        if limit.cancelled_caught:
            assert request.timeout_s is not None, "a call without a timeout has no limit to pass"
            raise TimeoutExpiredError(request.timeout_s)
        prompt = await anyio.to_thread.run_sync(
            loaded.model.chat_template.encode_chat, loaded.model.tokenizer, request.messages
        )
        sampling = _sampling_params(request.sampling, loaded.engine.max_context_tokens - len(prompt), self.name)
        timeout_s = None
        if request.timeout_s is not None:
            timeout_s = request.timeout_s - (anyio.current_time() - began)
            if timeout_s <= 0:
                raise TimeoutExpiredError(request.timeout_s)
        async with AsyncExitStack() as stack:
            try:
                outputs = await stack.enter_async_context(loaded.engine.stream(prompt, sampling, timeout_s=timeout_s))
            except RequestError as error:
                if sampling.grammar is None or error.field != "grammar":
                    raise
                _log.warning(
                    "an answer of model %r is validated but not held to its output_schema: %s", self.name, error
                )
                free = replace(sampling, grammar=None)
                outputs = await stack.enter_async_context(loaded.engine.stream(prompt, free, timeout_s=timeout_s))
            yield await stack.enter_async_context(aclosing(_events(outputs)))

    async def aclose(self) -> None:
        """Stop the engine and let go of the weights; calls that wait for a load fail with EngineError."""
        with self._lock:
            self._is_closed = True
            loading, self._loading = self._loading, None
            if loading is not None and not loading.done():
                loading.set_exception(self._closed_error())
        if loading is not None and loading.exception() is None:
            await loading.result().engine.aclose()

    async def _load(self) -> LoadedEngine:
        with self._lock:
            if self._is_closed:
                raise self._closed_error()
            if self._loading is None:
                self._loading = Future()
                threading.Thread(
                    target=self._load_into, args=(self._loading,), name=f"agentrt-load-{self.name}", daemon=True
                ).start()
            loading = self._loading
        if not loading.done():
            # Not a worker thread that waits: those are few, and a download may take minutes.
            is_done, loop = anyio.Event(), current_event_loop()
            loading.add_done_callback(lambda _: loop.post(is_done.set))
            await is_done.wait()
        return loading.result()

    def _load_into(self, loading: Future[LoadedEngine]) -> None:
        loaded: LoadedEngine | None = None
        failure: BaseException | None = None
        try:
            loaded = load_engine(self._source.fetch(), self._config)
        except BaseException as error:
            failure = error
        with self._lock:
            if loading.done():
                return  # closed meanwhile
            if loaded is not None:
                loading.set_result(loaded)
            else:
                self._loading = None
                loading.set_exception(failure)

    def _closed_error(self) -> EngineError:
        return EngineError(f"model {self.name!r} is closed")


def load_engine(path: Path, config: RuntimeConfig) -> LoadedEngine:
    """Load a model's file or folder, and make an engine of what ``config`` allows. It blocks. Raises ModelFileError."""
    from agentrt.inference.async_engine import AsyncEngine
    from agentrt.inference.config import EngineConfig
    from agentrt.inference.engine import Engine
    from agentrt.inference.weights import load_model

    engine_config = EngineConfig(kv_cache_bytes=config.kv_cache_bytes, num_threads=config.engine_threads)
    model = load_model(path)
    return LoadedEngine(model, AsyncEngine(Engine(model.model, model.tokenizer, engine_config)))


def _sampling_params(sampling: Sampling, num_free_tokens: int, name: str) -> SamplingParams:
    """Ask for no more tokens than the context has room for; a prompt without any room is the engine's to refuse."""
    from agentrt.inference.grammar import Grammar
    from agentrt.inference.sampling_params import SamplingParams

    grammar = None
    if sampling.output_schema is not None:
        try:
            grammar = Grammar.json_schema(sampling.output_schema, is_lenient=True)
        except RequestError as error:
            _log.warning("an answer of model %r is validated but not held to its output_schema: %s", name, error)
    params = SamplingParams(
        max_tokens=sampling.max_tokens,
        temperature=sampling.temperature,
        top_k=sampling.top_k,
        top_p=sampling.top_p,
        seed=sampling.seed,
        stop=sampling.stop,
        choices=sampling.choices,
        grammar=grammar,
    )
    return replace(params, max_tokens=max(1, min(params.max_tokens, num_free_tokens)))


async def _events(outputs: AsyncIterator[TokenOutput]) -> AsyncGenerator[ModelEvent]:
    async for output in outputs:
        yield TokenEvent(output.text, output.time_ns, output.token_id, output.logprob)
        if output.finished is not None:
            finished = output.finished
            yield FinishEvent(
                _FINISH_REASONS[finished.reason.value],
                num_prompt_tokens=finished.num_prompt_tokens,
                num_completion_tokens=finished.num_output_tokens,
                num_cached_tokens=finished.num_cached_tokens,
                queue_s=finished.queue_s,
                prefill_s=finished.prefill_s,
            )
