"""The Llama forward pass over the paged cache, against a second implementation without cache or batch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from agentrt.inference.forward import ForwardModel
from agentrt.inference.models.rotary import Llama3Scaling, Rotary
from agentrt.inference.weights import load_model
from tests.support.model_files import TinyShape, vocabulary, write_tiny_gguf
from tests.support.paged_batches import PagedSequences, reference_logits

SHAPE = TinyShape(max_context_tokens=1024)
TOLERANCE = 1e-9
"""In float64, of logits that reach about 30."""


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> Iterator[None]:
    """Small matrices gain nothing from threads and wait for one another on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> tuple[ForwardModel, dict[str, np.ndarray]]:
    path = tmp_path_factory.mktemp("llama") / "tiny.gguf"
    weights = write_tiny_gguf(path, shape=SHAPE)
    return load_model(path, dtype=torch.float64).model, weights


def random_ids(count: int, seed: int = 0) -> list[int]:
    return np.random.default_rng(seed).integers(0, len(vocabulary()), count).tolist()


def assert_agrees(logits: torch.Tensor, expected: np.ndarray) -> None:
    assert logits.dtype == torch.float64
    np.testing.assert_allclose(logits.numpy(), expected, rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("length", [1, 2, 15, 16, 17, 31, 32, 33, 255, 256, 257, 300])
def test_a_whole_prompt_agrees_with_the_reference(
    tiny: tuple[ForwardModel, dict[str, np.ndarray]], length: int
) -> None:
    """Prompts of one token, around block borders and around tile borders have the reference's logits at every
    row."""
    model, weights = tiny
    ids = random_ids(length)
    assert_agrees(PagedSequences(model).compute({"a": ids})["a"], reference_logits(weights, SHAPE, ids))


@pytest.mark.parametrize("chunks", [[1] * 40, [16, 16, 8], [15, 1, 17, 7], [39, 1], [1, 39], [3, 5, 32]])
def test_chunks_of_a_prompt_agree_with_the_reference(
    tiny: tuple[ForwardModel, dict[str, np.ndarray]], chunks: list[int]
) -> None:
    """However a prompt is cut into steps, every row has the logits of the whole."""
    model, weights = tiny
    ids = random_ids(sum(chunks), seed=1)
    sequences = PagedSequences(model)
    rows = []
    for size in chunks:
        rows.append(sequences.compute({"a": ids[len(torch.cat(rows)) if rows else 0 :][:size]})["a"])
    assert_agrees(torch.cat(rows), reference_logits(weights, SHAPE, ids))


def test_long_and_short_sequences_decode_together(tiny: tuple[ForwardModel, dict[str, np.ndarray]]) -> None:
    """Sequences of very different length in one decode step do not touch one another."""
    model, weights = tiny
    lengths = {"a": 1, "b": 2, "c": 16, "d": 17, "e": 130, "f": 257, "g": 258, "h": 600}
    ids = {name: random_ids(length + 1, seed=length) for name, length in lengths.items()}
    sequences = PagedSequences(model)
    sequences.compute({name: own[:-1] for name, own in ids.items()})
    logits = sequences.compute({name: own[-1:] for name, own in ids.items()})
    for name, own in ids.items():
        assert_agrees(logits[name], reference_logits(weights, SHAPE, own)[-1:])


STEPS = st.lists(st.dictionaries(st.sampled_from("abcd"), st.integers(1, 37), min_size=1), min_size=1, max_size=6)


@settings(max_examples=40, deadline=None)
@given(steps=STEPS, block_size=st.sampled_from([1, 3, 16]), seed=st.integers(0, 2**16))
def test_any_mixture_of_steps_agrees_with_the_reference(
    tiny: tuple[ForwardModel, dict[str, np.ndarray]], steps: list[dict[str, int]], block_size: int, seed: int
) -> None:
    """Any composition of steps, decoding and prefilling mixed, in blocks of any size in any order, gives
    every row the logits it has alone, and no NaN of an unwritten slot comes through."""
    model, weights = tiny
    sequences = PagedSequences(model, block_size=block_size, num_blocks=1024 // block_size, seed=seed)
    ids = {name: random_ids(6 * 37, seed=seed + ord(name)) for name in "abcd"}
    rows: dict[str, list[torch.Tensor]] = {name: [] for name in "abcd"}
    for step in steps:
        starts = {name: sum(map(len, rows[name])) for name in step}
        logits = sequences.compute({name: ids[name][starts[name] :][:size] for name, size in step.items()})
        for name, own in logits.items():
            rows[name].append(own)
    for name, own in rows.items():
        if own:
            computed = torch.cat(own)
            assert_agrees(computed, reference_logits(weights, SHAPE, ids[name][: len(computed)]))


def test_blocks_of_a_finished_sequence_serve_the_next(tiny: tuple[ForwardModel, dict[str, np.ndarray]]) -> None:
    """What a former owner left in a block, and in the tail of a block, is never read."""
    model, weights = tiny
    sequences = PagedSequences(model, num_blocks=6)
    sequences.compute({"old": random_ids(50, seed=2), "kept": random_ids(20, seed=3)})
    sequences.release("old")
    ids = random_ids(49, seed=4)
    first = sequences.compute({"new": ids[:30]})["new"]
    second = sequences.compute({"new": ids[30:], "kept": [7]})
    assert_agrees(torch.cat([first, second["new"]]), reference_logits(weights, SHAPE, ids))
    assert_agrees(second["kept"], reference_logits(weights, SHAPE, [*random_ids(20, seed=3), 7])[-1:])


def test_only_the_wanted_rows_get_logits(tiny: tuple[ForwardModel, dict[str, np.ndarray]]) -> None:
    """logits_rows chooses rows, in their order, and may be empty."""
    model, weights = tiny
    ids = random_ids(9)
    sequences = PagedSequences(model)
    batch = sequences.batch({"a": ids})
    expected = reference_logits(weights, SHAPE, ids)
    for rows in ([8], [0, 8], [3, 1], []):
        chosen = replace(batch, logits_rows=torch.tensor(rows, dtype=torch.int64))
        assert_agrees(model.forward(chosen, sequences.kv), expected[rows])


@pytest.mark.parametrize(
    "shape",
    [
        TinyShape(num_heads=4, num_kv_heads=4),
        TinyShape(num_heads=6, num_kv_heads=1, head_dim=8),
        TinyShape(num_layers=1, tied=False),
        TinyShape(theta=1e6, head_dim=32, hidden_size=32),
    ],
    ids=["no sharing", "all share one", "own head", "head wider than its share"],
)
def test_other_shapes_agree_with_the_reference(tmp_path: Path, shape: TinyShape) -> None:
    """Every ratio of heads, a head of its own, and heads that are not hidden_size / num_heads wide are
    computed right."""
    weights = write_tiny_gguf(tmp_path / "m.gguf", shape=shape)
    sequences = PagedSequences(load_model(tmp_path / "m.gguf", dtype=torch.float64).model)
    ids = random_ids(20)
    rows = [sequences.compute({"a": ids[:11]})["a"], *(sequences.compute({"a": [each]})["a"] for each in ids[11:])]
    assert_agrees(torch.cat(rows), reference_logits(weights, shape, ids))


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-4), (torch.bfloat16, 0.08)])
def test_lower_precisions_stay_close(tmp_path: Path, dtype: torch.dtype, tolerance: float) -> None:
    """float32 is within 1e-4 and bfloat16 within 8 % of the largest logit of its row; logits come as float32."""
    weights = write_tiny_gguf(tmp_path / "m.gguf")
    ids = random_ids(40)
    logits = PagedSequences(load_model(tmp_path / "m.gguf", dtype=dtype).model).compute({"a": ids})["a"]
    expected = reference_logits(weights, TinyShape(), ids)
    assert logits.dtype == torch.float32
    error = np.abs(logits.numpy() - expected).max(-1) / np.abs(expected).max(-1)
    assert error.max() < tolerance


def test_llama_3_scaling_keeps_fast_waves_and_stretches_slow_ones() -> None:
    """Waves shorter than the original context over high_freq_factor are kept, longer than over
    low_freq_factor slowed by the factor, and those between lie between."""
    scaling = Llama3Scaling(factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_context_tokens=8192)
    plain = Rotary(128, 500_000.0).frequencies()
    scaled = Rotary(128, 500_000.0, llama3=scaling).frequencies()
    wavelengths = 2 * np.pi / plain
    fast, slow = wavelengths < 8192 / 4, wavelengths > 8192
    assert np.array_equal(scaled[fast], plain[fast])
    np.testing.assert_allclose(scaled[slow], plain[slow] / 8, rtol=1e-12)
    between = ~(fast | slow)
    assert between.any()
    assert ((scaled[between] < plain[between]) & (scaled[between] > plain[between] / 8)).all()


def test_linear_scaling_and_divisors_slow_every_wave() -> None:
    """A linear factor divides all frequencies by one number, divisors each by its own."""
    plain = Rotary(8, 10_000.0).frequencies()
    np.testing.assert_allclose(Rotary(8, 10_000.0, linear_factor=4.0).frequencies(), plain / 4)
    divided = Rotary(8, 10_000.0, divisors=(1.0, 2.0, 4.0, 8.0)).frequencies()
    np.testing.assert_allclose(divided, plain / np.array([1.0, 2.0, 4.0, 8.0]))
