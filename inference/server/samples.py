"""The samples of one request, as one stream of tokens in the order in which they come."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from agentrt.errors import AgentrtError
from agentrt.inference.async_engine import TokenStream
from agentrt.inference.output import TokenOutput
from agentrt.inference.request import SchedulingParams
from agentrt.inference.server.models import ServedModel
from agentrt.inference.server.parameters import Order


@dataclass(frozen=True, slots=True)
class SampleToken:
    """A token of the sample with this index."""

    index: int
    output: TokenOutput


@asynccontextmanager
async def open_samples(
    model: ServedModel, orders: Sequence[Order], timeout_s: float | None, scheduling: SchedulingParams
) -> AsyncIterator[AsyncIterator[SampleToken]]:
    """Begin all samples. Leaving the block drops those that are not over.

    Raises on entry what ``AsyncEngine.stream`` raises for a request that cannot be served, and while iterating what ends
    one before its time.
    """
    async with AsyncExitStack() as stack:
        streams = [
            await stack.enter_async_context(
                model.engine.stream(order.prompt_token_ids, order.sampling, timeout_s=timeout_s, scheduling=scheduling)
            )
            for order in orders
        ]
        if len(streams) == 1:
            yield await stack.enter_async_context(aclosing(_one(streams[0])))
            return
        send, receive = anyio.create_memory_object_stream[SampleToken | AgentrtError](len(streams))
        failure: Exception | None = None
        async with receive, anyio.create_task_group() as group:
            for index, stream in enumerate(streams):
                group.start_soon(_pass_on, index, stream, send.clone())
            send.close()
            try:
                yield await stack.enter_async_context(aclosing(_received(receive)))
            except Exception as error:
                failure = error  # raised below, where the group does not wrap it
            group.cancel_scope.cancel()
        if failure is not None:
            raise failure


async def _one(stream: TokenStream) -> AsyncGenerator[SampleToken]:
    async for output in stream:
        yield SampleToken(0, output)


async def _received(receive: MemoryObjectReceiveStream[SampleToken | AgentrtError]) -> AsyncGenerator[SampleToken]:
    async for item in receive:
        if isinstance(item, AgentrtError):
            raise item
        yield item


async def _pass_on(index: int, stream: TokenStream, send: MemoryObjectSendStream[SampleToken | AgentrtError]) -> None:
    async with send:
        try:
            async for output in stream:
                await send.send(SampleToken(index, output))
        except AgentrtError as error:
            await send.send(error)
