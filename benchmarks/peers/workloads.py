"""The three workloads. W1: one agent alone, 128 tokens in, 128 out, one request at a time. W2: a crowd of agents with one
system prompt, 512 shared and 64 own tokens in, 64 out, each asking again as soon as it is answered. W3: four agents are
reading their answers when a prompt of 4,096 tokens comes in.

All greedy, and told to go on past the end of an answer, so that every server makes the same number of tokens. In W2 the
system prompt was served once before the crowd comes. The first wave, in which all ask at once, is part of the figures;
``steady_`` figures leave it out.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from benchmarks.peers.exchange import Exchange, ask
from benchmarks.peers.figures import Figures, summarise, summarise_intrusion
from benchmarks.peers.prompts import PromptSource
from benchmarks.peers.reply import Reply, read_reply
from benchmarks.peers.servers import Running

NUM_SHARED, NUM_OWN, NUM_ANSWER = 512, 64, 64
NUM_SHORT = 128
NUM_LONG, NUM_STREAMS = 4096, 4
NUM_AFTER_LONG = 16
BASELINE_S = 1.0
"""How long the four streams of W3 are watched before the long prompt comes."""
AFTERWARDS_S = 0.5
WATCH_EVERY_S = 0.02


@dataclass(frozen=True, slots=True)
class Case:
    """A workload with its numbers. ``slots`` requests are under way at most, of at most ``slot_context`` tokens each."""

    name: str
    slots: int
    slot_context: int
    warm_up: Callable[[Running, PromptSource], Awaitable[list[int]]]
    run: Callable[[Running, PromptSource, list[int]], Awaitable[Figures]]


def one_at_a_time(num_requests: int) -> Case:
    async def warm_up(server: Running, prompts: PromptSource) -> list[int]:
        await complete(server, prompts.take(NUM_SHORT), 16)
        return []

    async def run(server: Running, prompts: PromptSource, _: list[int]) -> Figures:
        waiting = [prompts.take(NUM_SHORT) for _ in range(num_requests)]
        exchanges = [await exchange_of(server, prompt, NUM_SHORT) for prompt in waiting]
        return summarise([checked(exchange, NUM_SHORT, NUM_SHORT) for exchange in exchanges])

    return Case("W1", 1, 768, warm_up, run)


def crowd(num_agents: int, num_waves: int = 3) -> Case:
    async def warm_up(server: Running, prompts: PromptSource) -> list[int]:
        shared = prompts.take(NUM_SHARED)
        await complete(server, shared + prompts.take(NUM_OWN), 8)
        return shared

    async def run(server: Running, prompts: PromptSource, shared: list[int]) -> Figures:
        own = [[shared + prompts.take(NUM_OWN) for _ in range(num_waves)] for _ in range(num_agents)]

        async def agent(waiting: list[list[int]]) -> list[Exchange]:
            return [await exchange_of(server, prompt, NUM_ANSWER) for prompt in waiting]

        answered = await asyncio.gather(*(agent(waiting) for waiting in own))
        num_prompt = NUM_SHARED + NUM_OWN
        replies = [[checked(exchange, num_prompt, NUM_ANSWER) for exchange in exchanges] for exchanges in answered]
        figures = summarise([reply for agent_replies in replies for reply in agent_replies])
        if num_waves > 1:
            steady = summarise([reply for agent_replies in replies for reply in agent_replies[1:]])
            figures |= {f"steady_{name}": value for name, value in steady.items()}
        return figures

    return Case(f"W2 at {num_agents}", num_agents, 768, warm_up, run)


def intrusion() -> Case:
    """Each stream may fill its slot, so none ends before the long prompt is through."""
    slot_context = NUM_LONG + 512

    async def warm_up(server: Running, prompts: PromptSource) -> list[int]:
        await complete(server, prompts.take(NUM_SHORT), 16)
        return []

    async def run(server: Running, prompts: PromptSource, _: list[int]) -> Figures:
        num_most = slot_context - NUM_SHORT - 8
        streams = [
            await ask(server.port, request(server, prompts.take(NUM_SHORT), num_most)) for _ in range(NUM_STREAMS)
        ]
        try:
            while min(len(stream.segments) for stream in streams) < 8:
                if any(stream.ended.done() for stream in streams):
                    break
                await asyncio.sleep(WATCH_EVERY_S)
            await asyncio.sleep(BASELINE_S)
            long = await exchange_of(server, prompts.take(NUM_LONG), NUM_AFTER_LONG)
            await asyncio.sleep(AFTERWARDS_S)
            if any(stream.ended.done() for stream in streams):
                raise RuntimeError("a stream ended before the long prompt was through")
        finally:
            hung_up_s = time.perf_counter()
            for stream in streams:
                stream.close()
        replies = [checked(stream, NUM_SHORT, num_most) for stream in streams]
        return summarise_intrusion(replies, checked(long, NUM_LONG, NUM_AFTER_LONG), hung_up_s)

    return Case("W3", NUM_STREAMS + 1, slot_context, warm_up, run)


def request(server: Running, prompt: list[int], num_tokens: int) -> dict[str, object]:
    return {
        "model": server.server.model,
        "prompt": prompt,
        "max_tokens": num_tokens,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
        **server.server.fields,
    }


async def exchange_of(server: Running, prompt: list[int], num_tokens: int) -> Exchange:
    """Ask, and wait until the answer is complete."""
    exchange = await ask(server.port, request(server, prompt, num_tokens))
    await exchange.ended
    return exchange


async def complete(server: Running, prompt: list[int], num_tokens: int) -> None:
    checked(await exchange_of(server, prompt, num_tokens), len(prompt), num_tokens)


def checked(exchange: Exchange, num_prompt_tokens: int, num_output_tokens: int) -> Reply:
    """Return the reply of an exchange. Raises RuntimeError when it is not what was asked for."""
    reply = read_reply(exchange.segments, asked_s=exchange.asked_s, stopped=exchange.stopped)
    if (fault := reply.fault(num_prompt_tokens, num_output_tokens)) is not None:
        raise RuntimeError(fault)
    return reply
