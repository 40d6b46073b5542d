"""Whole steps of the C++ engine: right against numpy, and the same to the last bit however they are cut."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pytest
from gguf.constants import GGMLQuantizationType
from hypothesis import given, settings
from hypothesis import strategies as st

from agentrt.errors import ConfigError, EngineError
from agentrt.inference.config import EngineConfig
from agentrt.inference.cpu.library import load_library
from agentrt.inference.cpu.model import CpuModel
from agentrt.inference.cpu.runner import CpuRunner
from tests.support.cpu_models import CpuShape, RandomModel

LEVELS = load_library().levels_here
Floats = npt.NDArray[np.float32]

SHAPES = {
    "plain": CpuShape(),
    "no groups": CpuShape(num_heads=3, num_kv_heads=3),
    "groups of 3": CpuShape(num_heads=9, num_kv_heads=3, head_dim=16),
    "groups of 8": CpuShape(num_heads=8, num_kv_heads=1, head_dim=4),
    "heads of 2": CpuShape(head_dim=2),
    "heads of 80": CpuShape(head_dim=80),
    "heads of 256": CpuShape(head_dim=256, num_heads=2, num_kv_heads=1),
    "odd sizes": CpuShape(hidden_size=21, ffn_size=19, vocab_size=257, head_dim=6),
    "windows": CpuShape(windows=(5, 0, 40)),
    "gemma": CpuShape(
        windows=(16, 0),
        thetas=(10_000.0, 1_000_000.0),
        gate="gelu_tanh",
        has_head_norms=True,
        has_post_norms=True,
        embedding_scale=32**0.5,
    ),
}


@functools.cache
def random_model(name: str) -> RandomModel:
    return RandomModel(SHAPES[name])


class Sequences:
    """Some sequences in one cache, whose free blocks are all NaN."""

    def __init__(self, runner: CpuRunner, seed: int = 0) -> None:
        self._runner = runner
        for block in range(runner.num_blocks):
            runner.poison(block)
        self._free = np.random.default_rng(seed).permutation(runner.num_blocks).tolist()
        self.blocks: dict[str, list[int]] = {}
        self._lengths: dict[str, int] = {}

    def compute(self, parts: dict[str, Sequence[int]]) -> dict[str, Floats]:
        """Append tokens to sequences in one step; return all logits of each."""
        token_ids: list[int] = []
        first_rows, num_computed, tables = [0], [], []
        for name, ids in parts.items():
            length = self._lengths.get(name, 0)
            blocks = self.blocks.setdefault(name, [])
            while len(blocks) * 16 < length + len(ids):
                blocks.append(self._free.pop())
            token_ids += ids
            first_rows.append(len(token_ids))
            num_computed.append(length)
            tables.append(blocks)
            self._lengths[name] = length + len(ids)
        rows = range(len(token_ids))
        scores = self._runner.compute(token_ids, first_rows, num_computed, tables, rows, [True] * len(rows))
        logits = []
        for row in scores:
            assert row.logits is not None
            assert row.best_token_id == row.logits.argmax()
            wide = row.logits.astype(np.float64)
            assert row.best_logprob == pytest.approx(-np.log(np.exp(wide - wide.max()).sum()), abs=1e-4)
            logits.append(row.logits)
        stacked = np.array(logits)
        bounds = pairwise(first_rows)
        return {name: stacked[first:end] for name, (first, end) in zip(parts, bounds, strict=True)}

    def share(self, name: str, new_name: str, num_blocks: int) -> None:
        self.blocks[new_name] = self.blocks[name][:num_blocks]
        self._lengths[new_name] = num_blocks * 16


def token_ids(length: int, vocab_size: int, seed: int = 0) -> list[int]:
    ids: list[int] = np.random.default_rng(seed).integers(0, vocab_size, length).tolist()
    return ids


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", SHAPES)
def test_logits_are_those_of_the_definition(name: str, level: str) -> None:
    """With float weights every position's logits are numpy's, within what keys and values in bf16 allow."""
    model = random_model(name)
    ids = token_ids(90, model.shape.vocab_size)
    got = Sequences(model.runner(level=level)).compute({"a": ids})["a"]
    expected = model.logits(ids)
    difference = np.abs(got - expected)
    assert difference.mean() <= 0.01 * expected.std()
    assert difference.max() <= 0.05 * np.abs(expected).max()
    assert (got.argmax(1) == expected.argmax(1)).mean() > 0.95


@settings(max_examples=40, deadline=None)
@given(
    name=st.sampled_from(sorted(SHAPES)),
    lengths=st.lists(st.integers(1, 80), min_size=1, max_size=4),
    cuts=st.lists(st.integers(1, 50), min_size=1, max_size=12),
    num_threads=st.sampled_from([1, 2, 3]),
    level=st.sampled_from(LEVELS),
    seed=st.integers(0, 100),
)
def test_any_cutting_gives_the_same_bits(
    name: str, lengths: list[int], cuts: list[int], num_threads: int, level: str, seed: int
) -> None:
    """Sequences side by side, in chunks of any sizes, on any threads and kernels: bit for bit as whole and alone."""
    model = random_model(name)
    whole = {
        str(number): token_ids(length, model.shape.vocab_size, seed + number) for number, length in enumerate(lengths)
    }
    alone = {key: Sequences(model.runner()).compute({key: ids})[key] for key, ids in whole.items()}
    together = Sequences(model.runner(level=level, num_threads=num_threads), seed)
    done = dict.fromkeys(whole, 0)
    got: dict[str, list[Floats]] = {key: [] for key in whole}
    turn = 0
    while any(done[key] < len(ids) for key, ids in whole.items()):
        parts = {}
        for number, (key, ids) in enumerate(whole.items()):
            size = cuts[(turn + number) % len(cuts)]
            if done[key] < len(ids):
                parts[key] = ids[done[key] : done[key] + size]
                done[key] += len(parts[key])
        for key, logits in together.compute(parts).items():
            got[key].append(logits)
        turn += 1
    for key in whole:
        assert np.array_equal(np.concatenate(got[key]), alone[key]), key


@pytest.mark.parametrize("name", ["plain", "groups of 3", "windows", "gemma"])
def test_a_shared_beginning_changes_no_bit(name: str) -> None:
    """Twelve sequences decode over the same first blocks, which are read once for all: each as if it were alone."""
    model = random_model(name)
    vocab_size = model.shape.vocab_size
    beginning = token_ids(160, vocab_size)
    sequences = Sequences(model.runner(num_threads=2, num_blocks=128))
    sequences.compute({"first": beginning})
    endings = {f"s{number}": token_ids(4 + number, vocab_size, 7 + number) for number in range(12)}
    for key, ending in endings.items():
        sequences.share("first", key, 8 + len(ending) % 3)
        start = (8 + len(ending) % 3) * 16
        sequences.compute({key: [*beginning[start:], *ending]})
    last = sequences.compute({key: [5] for key in endings})
    for key, ending in endings.items():
        alone = Sequences(model.runner()).compute({key: [*beginning, *ending, 5]})[key]
        assert np.array_equal(last[key][0], alone[-1]), key


@pytest.mark.parametrize("kind", ["Q4_0", "Q4_1", "Q8_0", "Q5_1", "F16", "BF16"])
def test_quantised_weights_stay_near_their_meaning(kind: str) -> None:
    """Activations in eight bits move logits a little, and the likeliest token rarely."""
    shape = CpuShape(hidden_size=64, ffn_size=96, head_dim=16, kind=GGMLQuantizationType[kind])
    model = RandomModel(shape, seed=3)
    ids = token_ids(60, shape.vocab_size)
    got = Sequences(model.runner()).compute({"a": ids})["a"]
    expected = model.logits(ids)
    difference = np.abs(got - expected).mean()
    assert difference <= 0.06 * expected.std()
    assert (got.argmax(1) == expected.argmax(1)).mean() >= 0.9


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"token_ids": [1, 300]}, "a token is out of range"),
        ({"token_ids": [1, -1]}, "a token is out of range"),
        ({"tables": [[64]]}, "a block is out of range"),
        ({"tables": [[-1]]}, "a block is out of range"),
        ({"tables": [[]]}, "a block table is too short"),
        ({"num_computed": [15]}, "a block table is too short"),
        ({"num_computed": [-1]}, "a sequence without rows"),
        ({"first_rows": [0, 1]}, "rows are not all used"),
        ({"logits_rows": [2]}, "logits rows do not rise"),
        ({"token_ids": [], "first_rows": [0, 0], "logits_rows": []}, "a step without rows"),
    ],
)
def test_a_step_that_does_not_fit_is_refused(change: dict[str, list[int]], message: str) -> None:
    """What would read or write outside is an error before anything is computed, and the runner goes on."""
    runner = random_model("plain").runner()
    step = {"token_ids": [1, 2], "first_rows": [0, 2], "num_computed": [0], "tables": [[3]], "logits_rows": [1]}
    wants_logits = [False] * len(change.get("logits_rows", [1]))
    with pytest.raises(EngineError, match=message):
        runner.compute(**(step | change), wants_logits=wants_logits)  # type: ignore[arg-type]
    assert runner.compute(**step, wants_logits=[False])[0].best_token_id is not None  # type: ignore[arg-type]
    runner.close()


def test_a_model_that_is_not_computed_is_refused_by_name() -> None:
    """A matrix of the wrong shape is an EngineError that names the layer and the tensor."""
    model = random_model("plain")
    layers = list(model.description.layers)
    object.__setattr__(layers[1], "up", layers[1].down)
    try:
        with pytest.raises(EngineError, match=r"layer 1: up is 32 x 48; 48 x 32 is expected"):
            CpuModel(model.description)
    finally:
        random_model.cache_clear()


def test_blocks_are_of_sixteen_tokens() -> None:
    """The kernels are written for one size of block; another is the configuration's mistake."""
    model = CpuModel(random_model("plain").description)
    with pytest.raises(ConfigError, match="block_size is 8"):
        CpuRunner(model, EngineConfig(block_size=8), 300)
    with pytest.raises(ConfigError, match="kv_cache_bytes is 1000"):
        CpuRunner(model, EngineConfig(kv_cache_bytes=1000), 300)


def test_runners_come_and_go() -> None:
    """Making and closing runners with threads, used or not, leaves nothing hanging."""
    model = CpuModel(random_model("plain").description)
    for number in range(30):
        runner = CpuRunner(model, EngineConfig(num_blocks=4, num_threads=1 + number % 4), 300)
        if number % 2:
            runner.compute([1], [0, 1], [0], [[0]], [0], [False])
        runner.close()
        runner.close()
