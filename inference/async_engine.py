"""The engine in a thread of its own, and its outputs in the event loops of those who asked.

Why a thread: a step holds a core for tens of milliseconds inside torch, which lets go of the interpreter meanwhile. In the
event loop it would stop every other stream, timer and socket for that long.

The thread takes new requests and cancellations between two steps, so both take effect at the next step. After a step it
wakes each event loop that has outputs once, however many tokens there are. Nothing waits for a reader: what a slow one has
not taken yet stays in its stream's queue, which holds no more than the tokens it asked for. An idle thread sleeps on a
condition; it never spins.

A fault of the engine itself fails every open stream, and every later one, with an EngineError that has it as its cause.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager

import anyio
import anyio.to_thread

from agentrt.errors import AgentrtError, EngineError, QueueFullError
from agentrt.inference.engine import Engine, Generation
from agentrt.inference.event_loop import EventLoop, current_event_loop
from agentrt.inference.output import EngineStats, Output, RequestFailed, TokenOutput
from agentrt.inference.request import ORDINARY, SchedulingParams
from agentrt.inference.sampling_params import SamplingParams

Item = TokenOutput | AgentrtError


class TokenStream:
    """The tokens of one request as they come; ends after the one with ``finished`` set. One reader."""

    def __init__(self, generation: Generation) -> None:
        self.generation = generation
        self.loop = current_event_loop()
        self._send, self._receive = anyio.create_memory_object_stream[Item](math.inf)

    @property
    def request_id(self) -> int:
        return self.generation.request.request_id

    def __aiter__(self) -> TokenStream:
        return self

    async def __anext__(self) -> TokenOutput:
        try:
            item = await self._receive.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None
        if isinstance(item, AgentrtError):
            raise item
        return item

    def put(self, items: Sequence[Item]) -> None:
        """Hand items to the reader. Only in the reader's event loop."""
        for item in items:
            try:
                self._send.send_nowait(item)
            except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                return
            if isinstance(item, AgentrtError) or item.finished is not None:
                self._send.close()

    def close(self) -> None:
        self._send.close()
        self._receive.close()


class AsyncEngine:
    """Serves streams of any number of event loops with one Engine; usable from asyncio and trio.

    ``engine`` must not be used by anybody else. The thread starts with the first stream.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._streams: dict[int, TokenStream] = {}
        self._arrivals: deque[TokenStream] = deque()
        self._departures: deque[int] = deque()
        self._condition = threading.Condition()
        self._thread: threading.Thread | None = None
        self._is_closing = False
        self._failure: BaseException | None = None
        self._stats = engine.stats()

    @property
    def max_context_tokens(self) -> int:
        return self._engine.max_context_tokens

    def stats(self) -> EngineStats:
        """Return the state after the last step."""
        return self._stats

    @asynccontextmanager
    async def stream(
        self,
        prompt_token_ids: Sequence[int],
        sampling: SamplingParams,
        *,
        timeout_s: float | None = None,
        scheduling: SchedulingParams = ORDINARY,
    ) -> AsyncIterator[TokenStream]:
        """Generate an answer; the iterator gives each token as it comes, the last with ``finished`` set.

        Leaving the block, for whatever reason, drops the request: its blocks are free at the next step.

        Raises:
            RequestError: on entry; the request cannot be served (see ``Engine.prepare``).
            QueueFullError: while iterating; too many requests wait already.
            TimeoutExpiredError: on entry or while iterating; ``timeout_s`` seconds have passed.
            EngineError: on entry or while iterating; the engine stopped, or this answer cannot go on.
        """
        # What is prepared may be large (the trie of many choices), and it is the engine's only call for any thread.
        generation = await anyio.to_thread.run_sync(
            lambda: self._engine.prepare(prompt_token_ids, sampling, timeout_s=timeout_s, scheduling=scheduling)
        )
        stream = TokenStream(generation)
        try:
            self._enter(stream)
            try:
                yield stream
            finally:
                self._leave(stream.request_id)
        finally:
            stream.close()

    async def aclose(self) -> None:
        """End the thread; open streams fail with EngineError. Safe to call twice."""
        with self._condition:
            self._is_closing = True
            self._condition.notify()
        if self._thread is not None:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(self._thread.join)

    def _enter(self, stream: TokenStream) -> None:
        with self._condition:
            if self._failure is not None:
                raise EngineError(f"the engine stopped earlier: {self._failure!r}") from self._failure
            if self._is_closing:
                raise EngineError("the engine is closed")
            if self._thread is None:
                # A daemon: a program that forgets to close its engine must still be able to end.
                self._thread = threading.Thread(target=self._serve, name="agentrt-engine", daemon=True)
                self._thread.start()
            self._streams[stream.request_id] = stream
            self._arrivals.append(stream)
            self._condition.notify()

    def _leave(self, request_id: int) -> None:
        with self._condition:
            if self._streams.pop(request_id, None) is not None:
                self._departures.append(request_id)
                self._condition.notify()

    def _serve(self) -> None:
        """The engine's thread."""
        failure: BaseException | None = None
        try:
            while self._take_orders():
                self._deliver(self._engine.step())
        except BaseException as error:
            failure = error
        finally:
            self._engine.close()
        self._fail_all(failure)

    def _take_orders(self) -> bool:
        """Wait for work, then hand arrivals and departures to the engine; return False when it is time to end."""
        with self._condition:
            while not (self._arrivals or self._departures or self._is_closing or self._engine.has_work):
                self._condition.wait()
            if self._is_closing:
                return False
            arrivals, departures = list(self._arrivals), list(self._departures)
            self._arrivals.clear()
            self._departures.clear()
        for stream in arrivals:
            try:
                self._engine.submit(stream.generation)
            except QueueFullError as error:
                self._send([(stream, [error])])
        for request_id in departures:
            self._engine.abort(request_id)
        return True

    def _deliver(self, outputs: Sequence[Output]) -> None:
        self._stats = self._engine.stats()
        parcels: dict[int, tuple[TokenStream, list[Item]]] = {}
        with self._condition:
            for output in outputs:
                stream = self._streams.get(output.request_id)
                if stream is not None:
                    item = output.error if isinstance(output, RequestFailed) else output
                    parcels.setdefault(output.request_id, (stream, []))[1].append(item)
        self._send(parcels.values())

    def _fail_all(self, failure: BaseException | None) -> None:
        with self._condition:
            self._failure = failure
            self._is_closing = True
            streams = list(self._streams.values())
        parcels: list[tuple[TokenStream, list[Item]]] = []
        for stream in streams:
            error = EngineError("the engine was closed" if failure is None else f"the engine stopped: {failure!r}")
            error.__cause__ = failure
            parcels.append((stream, [error]))
        self._send(parcels)

    def _send(self, parcels: Iterable[tuple[TokenStream, list[Item]]]) -> None:
        """Hand items to their readers, with one wake-up for each event loop."""
        by_loop: dict[EventLoop, list[tuple[TokenStream, list[Item]]]] = {}
        for stream, items in parcels:
            by_loop.setdefault(stream.loop, []).append((stream, items))
        for loop, group in by_loop.items():

            def put_all(group: list[tuple[TokenStream, list[Item]]] = group) -> None:
                for stream, items in group:
                    stream.put(items)

            if not loop.post(put_all):  # it has ended without leaving the blocks of its streams
                for stream, _ in group:
                    self._leave(stream.request_id)
