"""Readers that come and go in crowds, and the thread that serves them."""

from __future__ import annotations

import random

import anyio
import pytest
import torch

from agentrt.inference.async_engine import AsyncEngine
from agentrt.inference.config import EngineConfig
from agentrt.inference.engine import Engine
from agentrt.inference.forward import ForwardBatch, KVTensors
from agentrt.inference.output import TokenOutput
from agentrt.inference.sampling_params import SamplingParams
from tests.support.tiny_model import tiny_model, tiny_tokenizer
from tests.support.told_models import RecitingModel

pytestmark = pytest.mark.anyio

MODEL, TOKENIZER = tiny_model(), tiny_tokenizer()
TIGHT = EngineConfig(num_blocks=14, block_size=4, max_sequences=8, max_batch_tokens=16, num_threads=1)
"""So little room that streams wait, and are preempted."""


class HadEnoughError(Exception):
    """What a reader that has had enough raises."""


def answer_alone(prompt: list[int], sampling: SamplingParams) -> list[int]:
    engine = Engine(MODEL, TOKENIZER, EngineConfig(num_blocks=32, num_threads=1))
    engine.add_request(prompt, sampling)
    outputs = []
    while engine.has_work:
        outputs += engine.step()
    return [output.token_id for output in outputs if isinstance(output, TokenOutput)]


async def test_fifty_readers_of_which_many_leave() -> None:
    """Of fifty streams at once some are read to the end, some left by break, error or cancellation: the first have their
    whole answers, the others the beginnings of theirs, and afterwards no block is held and no stream is known."""
    chance = random.Random(1)
    asked = [
        (
            [number, *range(60, 60 + chance.randrange(12))],
            SamplingParams(max_tokens=chance.randrange(1, 32), temperature=number % 2, seed=number),
        )
        for number in range(50)
    ]
    ways = ["stays", "stays", "breaks", "raises", "is cancelled"] * 10
    stays_for = [chance.randrange(1, 10) for _ in asked]
    got: dict[int, list[int]] = {number: [] for number in range(50)}

    async def read(number: int) -> None:
        prompt, sampling = asked[number]
        with anyio.CancelScope() as scope:
            async with engine.stream(prompt, sampling) as outputs:
                async for output in outputs:
                    got[number].append(output.token_id)
                    if len(got[number]) < stays_for[number] or ways[number] == "stays":
                        continue
                    if ways[number] == "breaks":
                        break
                    if ways[number] == "raises":
                        raise HadEnoughError
                    scope.cancel()

    async def read_and_forgive(number: int) -> None:
        try:
            await read(number)
        except HadEnoughError:
            assert ways[number] == "raises"

    engine = AsyncEngine(Engine(MODEL, TOKENIZER, TIGHT))
    async with anyio.create_task_group() as tasks:
        for number in range(50):
            tasks.start_soon(read_and_forgive, number)
    async with engine.stream([1], SamplingParams(max_tokens=1)) as outputs:
        assert [output.finished is not None async for output in outputs] == [True]
    stats = engine.stats()
    await engine.aclose()
    assert (stats.num_used_blocks, stats.num_running, stats.num_waiting) == (0, 0, 0)
    assert not engine._streams
    assert stats.num_preemptions > 0, "the crowd did not press"
    for number, request in enumerate(asked):
        whole = answer_alone(*request)
        assert got[number] == (whole if ways[number] == "stays" else whole[: len(got[number])])
        assert got[number]


class ThreadCountingModel(RecitingModel):
    """Notes how many threads torch would use where it computes."""

    num_threads: int | None = None

    def forward(self, batch: ForwardBatch, kv: KVTensors) -> torch.Tensor:
        self.num_threads = torch.get_num_threads()
        return super().forward(batch, kv)


@pytest.mark.parametrize("num_threads", [1, 3])
async def test_steps_run_on_as_many_threads_as_configured(num_threads: int) -> None:
    """``num_threads`` holds in the engine's own thread, whatever it is elsewhere, and changes nothing there."""
    elsewhere = torch.get_num_threads()
    model = ThreadCountingModel([97], vocab_size=TOKENIZER.vocab_size)
    engine = AsyncEngine(Engine(model, TOKENIZER, EngineConfig(num_blocks=8, num_threads=num_threads)))
    async with engine.stream([1], SamplingParams(max_tokens=2)) as outputs:
        assert len([output async for output in outputs]) == 2
    await engine.aclose()
    assert model.num_threads == num_threads
    assert torch.get_num_threads() == elsewhere
