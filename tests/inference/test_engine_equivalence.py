"""The heart of the engine's promise: whatever else runs, a request gets the answer it would get alone."""

from __future__ import annotations

import functools
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from hypothesis import given, note, settings
from hypothesis import strategies as st

from agentrt.inference.config import EngineConfig
from agentrt.inference.engine import Engine
from agentrt.inference.forward import ForwardBatch, ForwardModel, KVTensors
from agentrt.inference.models.llama import LlamaModel
from agentrt.inference.output import Output, TokenOutput
from agentrt.inference.sampling_params import SamplingParams
from tests.support.tiny_model import tiny_model, tiny_tokenizer


class CheckedModel:
    """The tiny model, which first looks whether each batch is what ForwardBatch promises."""

    def __init__(self, model: LlamaModel) -> None:
        self._model = model

    def __getattr__(self, name: str) -> object:
        return getattr(self._model, name)

    def forward(self, batch: ForwardBatch, kv: KVTensors) -> torch.Tensor:
        rows = 0
        for sequence in batch.sequences:
            assert sequence.first_row == rows
            rows += sequence.num_rows
            positions = torch.arange(sequence.num_computed, sequence.num_computed + sequence.num_rows)
            assert batch.positions[sequence.first_row : rows].equal(positions)
            assert len(sequence.block_table) == -(-(int(positions[-1]) + 1) // kv.block_size)
            blocks, offsets = sequence.block_table[positions // kv.block_size], positions % kv.block_size
            assert batch.slots[sequence.first_row : rows].equal(blocks * kv.block_size + offsets)
        assert len(batch.token_ids) == len(batch.positions) == len(batch.slots) == rows
        assert len(set(batch.slots.tolist())) == rows, "two rows write one slot"
        last_rows = {sequence.first_row + sequence.num_rows - 1 for sequence in batch.sequences}
        assert set(batch.logits_rows.tolist()) <= last_rows
        return self._model.forward(batch, kv)


MODEL: ForwardModel = CheckedModel(tiny_model(max_context_tokens=64))  # type: ignore[assignment]
TOKENIZER = tiny_tokenizer()


@dataclass(frozen=True)
class Asked:
    """One request, the step before which it arrives, and the number of steps after which its caller leaves."""

    prompt: tuple[int, ...]
    sampling: SamplingParams
    arrives: int
    leaves_after: int | None


@dataclass
class Answer:
    token_ids: list[int]
    texts: list[str]
    logprobs: list[float]
    reason: str | None

    @classmethod
    def of(cls, outputs: list[Output]) -> Answer:
        tokens = [output for output in outputs if isinstance(output, TokenOutput)]
        assert len(tokens) == len(outputs), f"a request failed: {outputs[-1]}"
        finished = tokens[-1].finished if tokens else None
        return cls(
            [token.token_id for token in tokens],
            [token.text for token in tokens],
            [token.logprob for token in tokens],
            finished.reason if finished else None,
        )


@functools.cache
def answer_alone(prompt: tuple[int, ...], sampling: SamplingParams) -> Answer:
    engine = Engine(MODEL, TOKENIZER, EngineConfig(num_blocks=8, max_sequences=1))
    engine.add_request(prompt, sampling)
    outputs: list[Output] = []
    while engine.has_work:
        outputs += engine.step()
    return Answer.of(outputs)


def poison_free_blocks(engine: Engine) -> None:
    """Whoever reads a block that is not theirs gets NaN, and fails."""
    free = torch.tensor(engine._cache._free, dtype=torch.int64)
    engine._runner.kv.keys[:, free] = torch.nan
    engine._runner.kv.values[:, free] = torch.nan


def run_together(config: EngineConfig, asked: list[Asked]) -> tuple[dict[int, list[Output]], Engine]:
    """Run all requests in one engine; the key of an answer is its request's place in ``asked``."""
    engine = Engine(MODEL, TOKENIZER, config)
    outputs: dict[int, list[Output]] = defaultdict(list)
    number_of: dict[int, int] = {}
    leaving: dict[int, list[int]] = defaultdict(list)
    step = 0
    while engine.has_work or any(request.arrives >= step for request in asked):
        for number, request in enumerate(asked):
            if request.arrives == step:
                request_id = engine.add_request(request.prompt, request.sampling)
                number_of[request_id] = number
                if request.leaves_after is not None:
                    leaving[step + request.leaves_after].append(request_id)
        for request_id in leaving.pop(step, []):
            engine.abort(request_id)
        poison_free_blocks(engine)
        for output in engine.step():
            outputs[number_of[output.request_id]].append(output)
        engine._cache.check()
        assert 0 < engine.stats().payload_share <= 1
        step += 1
    return outputs, engine


def assert_same(together: Answer, alone: Answer) -> None:
    """What came is what comes alone; all of it, unless the caller left."""
    count = len(together.token_ids)
    if together.reason is not None:
        assert (together.reason, count) == (alone.reason, len(alone.token_ids))
    assert together.token_ids == alone.token_ids[:count]
    assert together.texts == alone.texts[:count]
    assert together.logprobs == pytest.approx(alone.logprobs[:count], abs=1e-9)


prompts = st.builds(
    lambda shared, own: (*range(60, 60 + shared), *own),
    st.sampled_from([0, 0, 3, 8, 17]),
    st.lists(st.integers(60, 255), min_size=1, max_size=12),
)
free_answers = st.builds(
    SamplingParams,
    max_tokens=st.integers(1, 14),
    temperature=st.sampled_from([0.0, 0.0, 0.7, 1.5]),
    top_k=st.sampled_from([None, 3, 20]),
    top_p=st.sampled_from([None, 0.5, 0.95]),
    seed=st.integers(0, 3),
    stop=st.sampled_from([(), ("t",), ("=", "th"), ("\ufffd\ufffd",)]),
)
choice_answers = st.builds(
    SamplingParams,
    temperature=st.sampled_from([0.0, 1.0]),
    seed=st.integers(0, 3),
    choices=st.sampled_from(
        [("billing", "refund", "the", "then"), ("été", "être"), ("kiwi", "kilo", "mono"), ("a", "an", "and", "b")]
    ),
)
requests = st.builds(
    Asked,
    prompt=prompts,
    sampling=free_answers | choice_answers,
    arrives=st.integers(0, 12),
    leaves_after=st.sampled_from([None, None, None, 0, 1, 4, 9]),
)


@settings(max_examples=60, deadline=None)
@given(
    asked=st.lists(requests, min_size=1, max_size=7),
    block_size=st.sampled_from([2, 4, 16]),
    spare_blocks=st.integers(0, 6),
    max_sequences=st.integers(1, 6),
    extra_budget=st.integers(0, 20),
    chunk=st.integers(1, 20),
)
def test_answers_do_not_depend_on_what_else_runs(
    asked: list[Asked], block_size: int, spare_blocks: int, max_sequences: int, extra_budget: int, chunk: int
) -> None:
    """Random arrivals, lengths, budgets, chunk sizes and cancellations, few blocks: token ids, texts and reasons are those
    of each request alone, log-probabilities too, and at the end every block is free."""
    longest = max(len(request.prompt) + request.sampling.max_new_tokens for request in asked)
    config = EngineConfig(
        block_size=block_size,
        num_blocks=-(-longest // block_size) + spare_blocks,
        max_batch_tokens=max_sequences + extra_budget,
        max_prefill_chunk_tokens=chunk,
        max_sequences=max_sequences,
    )
    outputs, engine = run_together(config, asked)
    note(f"{engine.stats()}")
    for number, request in enumerate(asked):
        together, alone = Answer.of(outputs[number]), answer_alone(request.prompt, request.sampling)
        if request.leaves_after is None:
            assert together.reason is not None, "a request whose caller stays is answered"
        assert_same(together, alone)
    assert engine.stats().num_used_blocks == 0


def test_preempted_requests_answer_as_if_nothing_happened() -> None:
    """Eight streams in a cache for two: many preemptions, the same greedy and seeded answers."""
    asked = [
        Asked(
            tuple(range(60 + number, 68 + number)),
            SamplingParams(max_tokens=24, temperature=number % 2, seed=number),
            arrives=0,
            leaves_after=None,
        )
        for number in range(8)
    ]
    config = EngineConfig(block_size=4, num_blocks=16, max_batch_tokens=24, max_prefill_chunk_tokens=5, max_sequences=8)
    outputs, engine = run_together(config, asked)
    assert engine.stats().num_preemptions >= 4
    for number, request in enumerate(asked):
        together = Answer.of(outputs[number])
        assert together.reason is not None
        assert_same(together, answer_alone(request.prompt, request.sampling))


@pytest.mark.model
def test_the_real_model_answers_the_same_together_and_alone(model_path: Path) -> None:
    """Five prompts of different lengths at once, in chunks, with preemption: the greedy tokens of each alone."""
    from agentrt.inference.weights import load_model

    loaded = load_model(model_path)
    texts = [
        "The capital of France is",
        "The capital of Sweden is",
        "def fibonacci(n):\n",
        "Water boils at",
        "Once upon a time, in a small village by the sea, there lived a fisherman who",
    ]
    prompts = [loaded.tokenizer.encode(text, allow_special=False) for text in texts]
    sampling = SamplingParams(max_tokens=16)

    def run(config: EngineConfig, prompts: list[list[int]]) -> tuple[list[list[int]], Engine]:
        engine = Engine(loaded.model, loaded.tokenizer, config)
        answers: dict[int, list[int]] = {engine.add_request(prompt, sampling): [] for prompt in prompts}
        while engine.has_work:
            for output in engine.step():
                assert isinstance(output, TokenOutput)
                answers[output.request_id].append(output.token_id)
        return list(answers.values()), engine

    alone = [run(EngineConfig(num_blocks=4), [prompt])[0][0] for prompt in prompts]
    crowded = EngineConfig(num_blocks=5, max_batch_tokens=12, max_prefill_chunk_tokens=7, max_sequences=5)
    together, engine = run(crowded, prompts)
    assert together == alone
    assert b"Paris" in b"".join(loaded.tokenizer.token_bytes(token_id) for token_id in together[0])
    assert engine.stats().num_preemptions > 0
