"""Matrix products of the C++ step, type by type and on every kind of processor this one can stand for."""

from __future__ import annotations

import ctypes

import numpy as np
import numpy.typing as npt
import pytest
from gguf.constants import GGMLQuantizationType

from agentrt.errors import EngineError
from agentrt.inference.cpu import library
from agentrt.inference.cpu.library import address, load_library, raise_for
from agentrt.inference.cpu.model import FileTensor
from tests.support.file_tensors import TYPES, Floats, block_values, quantised_rows, random_tensor

LEVELS = load_library().levels_here
FLOATS = (GGMLQuantizationType.F32, GGMLQuantizationType.F16, GGMLQuantizationType.BF16)


def multiply(level: str, tensor: FileTensor, values: Floats) -> Floats:
    out = np.empty((len(values), tensor.rows), np.float32)
    error = library.Error()
    if (
        load_library().multiply(level.encode(), tensor.pointer(), address(values), len(values), address(out), error)
        != 0
    ):
        raise_for(error)
    return out


def unpack(tensor: FileTensor) -> Floats:
    out = np.empty((tensor.rows, tensor.cols), np.float32)
    error = library.Error()
    if load_library().unpack(tensor.pointer(), address(out), error) != 0:
        raise_for(error)
    return out


def random_rows(num_rows: int, cols: int, seed: int = 1) -> Floats:
    return np.random.default_rng(seed).normal(0, 2, (num_rows, cols)).astype(np.float32)


def shapes(kind: GGMLQuantizationType) -> list[tuple[int, int]]:
    block = max(32, block_values(kind)) if kind not in FLOATS else 32
    whole = [(1, block), (15, block), (16, 2 * block), (17, 3 * block), (33, block), (96, 2 * block)]
    return [*whole, (5, 1), (16, 7), (18, 33)] if kind in FLOATS else whole


@pytest.mark.parametrize("kind", TYPES, ids=lambda kind: kind.name)
def test_products_are_those_of_the_weights_the_file_means(kind: GGMLQuantizationType) -> None:
    """Against numpy in float64: of the rows as the step quantises them tightly, of the rows themselves within 8 bits.

    The scales of K types are products of two numbers, kept with 11 bits, so theirs is the wider tolerance.
    """
    is_float = kind in FLOATS
    for rows, cols in shapes(kind):
        tensor, weights = random_tensor(kind, rows, cols)
        for num_rows in (1, 2, 3, 4, 5, 9, 65):
            values = random_rows(num_rows, cols)
            size = np.abs(values).astype(np.float64) @ np.abs(weights.T).astype(np.float64)
            seen = values if is_float else quantised_rows(values)
            got = multiply(LEVELS[0], tensor, values)
            tight = 1e-6 if kind.name[-1] != "K" else 1e-3
            assert np.all(np.abs(got - seen.astype(np.float64) @ weights.T) <= tight * size + 1e-6), (rows, cols)
            assert np.all(np.abs(got - values.astype(np.float64) @ weights.T) <= 2e-2 * size + 1e-6), (rows, cols)


@pytest.mark.parametrize("kind", TYPES, ids=lambda kind: kind.name)
def test_every_processor_gives_the_same_bits(kind: GGMLQuantizationType) -> None:
    """AVX-512, AVX2 and plain C++ agree to the last bit, and so does a row among others with the row alone."""
    for rows, cols in shapes(kind):
        tensor, _ = random_tensor(kind, rows, cols, seed=2)
        values = random_rows(11, cols, seed=3)
        expected = multiply("portable", tensor, values)
        for level in LEVELS:
            assert np.array_equal(multiply(level, tensor, values), expected), level
            for row in range(len(values)):
                assert np.array_equal(multiply(level, tensor, values[row : row + 1])[0], expected[row]), (level, row)


@pytest.mark.parametrize("kind", TYPES, ids=lambda kind: kind.name)
def test_a_row_can_be_unpacked_again(kind: GGMLQuantizationType) -> None:
    """What was packed is what the file means: exactly, or within the 11 bits of a K type's scale."""
    for rows, cols in shapes(kind):
        tensor, weights = random_tensor(kind, rows, cols, seed=4)
        got = unpack(tensor)
        if kind.name[-1] == "K":
            # A scale and a minimum, each of 11 bits, may be larger than their difference.
            assert np.abs(got - weights).max() <= 2**-11 * 2 * np.abs(weights).max() + 1e-6
        else:
            np.testing.assert_allclose(got, weights, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("kind", TYPES, ids=lambda kind: kind.name)
@pytest.mark.parametrize("level", LEVELS)
def test_what_is_no_number_stays_none(level: str, kind: GGMLQuantizationType, value: float) -> None:
    """A NaN or an infinity among the inputs of a row is in all of its outputs, and in no other row's."""
    cols = max(64, block_values(kind))
    tensor, _ = random_tensor(kind, 16, cols, seed=5)
    values = random_rows(3, cols, seed=6)
    alone = multiply(level, tensor, values)
    values[1, 37] = value
    got = multiply(level, tensor, values)
    assert not np.isfinite(got[1]).any()
    assert np.array_equal(got[[0, 2]], alone[[0, 2]])


@pytest.mark.parametrize("level", LEVELS)
def test_zeros_multiply_to_zero(level: str) -> None:
    """A row of zeros has no scale to divide by; its products are zeros."""
    for kind in TYPES:
        cols = max(32, block_values(kind))
        tensor, _ = random_tensor(kind, 20, cols)
        assert np.array_equal(multiply(level, tensor, np.zeros((2, cols), np.float32)), np.zeros((2, 20), np.float32))


@pytest.mark.parametrize("level", LEVELS)
def test_the_largest_quants_do_not_overflow(level: str) -> None:
    """Extreme weights against extreme inputs, all of one sign: the sums that are kept in sixteen bits hold them."""
    for quant in (-128, -127, 127):
        block = np.zeros((16, 34), np.uint8)
        block[:, :2] = np.full((16, 1), 1.0, np.float16).view(np.uint8)
        block[:, 2:] = np.full((16, 32), quant, np.int8).view(np.uint8)
        tensor = FileTensor(block.reshape(-1), int(GGMLQuantizationType.Q8_0), 16, 32)
        for sign in (1, -1):
            values = np.full((5, 32), 3.0 * sign, np.float32)
            np.testing.assert_allclose(multiply(level, tensor, values), 32 * 3.0 * sign * quant, rtol=1e-6)
    nibbles = np.full((16, 20), 0xFF, np.uint8)
    nibbles[:, :4] = np.array([1.0, 0.0], np.float16).view(np.uint8)
    tensor = FileTensor(nibbles.reshape(-1), int(GGMLQuantizationType.Q4_1), 16, 32)
    for sign in (1, -1):
        values = np.full((4, 32), 5.0 * sign, np.float32)
        np.testing.assert_allclose(multiply(level, tensor, values), 32 * 5.0 * sign * 15, rtol=1e-6)


def test_a_type_that_is_not_read_is_refused() -> None:
    """A type or a length that the packing does not know is an EngineError that says so."""
    data: npt.NDArray[np.uint8] = np.zeros(4096, np.uint8)
    with pytest.raises(EngineError, match="ggml type 10 are not supported"):
        multiply("portable", FileTensor(data, 10, 1, 256), np.zeros((1, 256), np.float32))
    with pytest.raises(EngineError, match="33 weights is not a whole number of blocks of 32"):
        multiply("portable", FileTensor(data, int(GGMLQuantizationType.Q8_0), 1, 33), np.zeros((1, 33), np.float32))
    with pytest.raises(EngineError, match="'neon' cannot run on this processor"):
        multiply("neon", FileTensor(data, int(GGMLQuantizationType.Q8_0), 1, 32), np.zeros((1, 32), np.float32))


def test_the_best_kernels_come_first() -> None:
    """Plain C++ is always there, and last."""
    assert LEVELS[-1] == "portable"
    assert set(LEVELS) <= {"avx512", "avx2", "portable"}


def test_structures_have_the_sizes_of_their_c_twins() -> None:
    """ctypes lays structures out as the compiler does: pointers on eight bytes, no padding lost."""
    assert ctypes.sizeof(library.Tensor) == 24
    assert ctypes.sizeof(library.Layer) == 13 * 24 + 8
    assert ctypes.sizeof(library.Step) == 16 + 11 * 8
