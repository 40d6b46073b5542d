"""Reading GGUF files: right ones to the bit, and wrong ones with one line that says what is wrong."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType as Kind
from hypothesis import given, settings
from hypothesis import strategies as st

from agentrt.errors import ModelFileError
from agentrt.inference import gguf_file
from agentrt.inference.gguf_file import GgufFile
from agentrt.inference.gguf_header import SUPPORTED_TYPES
from agentrt.inference.weights import load_model
from tests.support.model_files import TinyShape, write_tiny_gguf

BLOCK_BYTES = {Kind.Q4_0: 18, Kind.Q4_1: 20, Kind.Q8_0: 34, Kind.Q4_K: 144, Kind.Q6_K: 210}


def half(raw: bytes) -> np.float32:
    return np.float32(np.frombuffer(raw, "<f2")[0])


def scalar_block(kind: Kind, block: bytes) -> list[np.float32]:
    """Dequantise one block value by value, as the layouts in ggml's own header describe them."""
    values: list[np.float32] = []
    if kind is Kind.Q4_0:
        scale = half(block[:2])
        nibbles = [byte & 15 for byte in block[2:]] + [byte >> 4 for byte in block[2:]]
        values = [scale * np.float32(nibble - 8) for nibble in nibbles]
    elif kind is Kind.Q4_1:
        scale, least = half(block[:2]), half(block[2:4])
        nibbles = [byte & 15 for byte in block[4:]] + [byte >> 4 for byte in block[4:]]
        values = [scale * np.float32(nibble) + least for nibble in nibbles]
    elif kind is Kind.Q8_0:
        values = [half(block[:2]) * np.float32(byte) for byte in np.frombuffer(block[2:], np.int8)]
    elif kind is Kind.Q4_K:
        scale, least, packed, quants = half(block[:2]), half(block[2:4]), block[4:16], block[16:]
        for part in range(8):
            if part < 4:
                six, minimum = packed[part] & 63, packed[part + 4] & 63
            else:
                six = (packed[part + 4] & 15) | (packed[part - 4] >> 6 << 4)
                minimum = (packed[part + 4] >> 4) | (packed[part] >> 6 << 4)
            bytes_of_part = quants[part // 2 * 32 : part // 2 * 32 + 32]
            nibbles = [byte >> 4 if part % 2 else byte & 15 for byte in bytes_of_part]
            values += [scale * np.float32(six) * np.float32(nibble) - least * np.float32(minimum) for nibble in nibbles]
    elif kind is Kind.Q6_K:
        low, high, scales, scale = (
            block[:128],
            block[128:192],
            np.frombuffer(block[192:208], np.int8),
            half(block[208:]),
        )
        for index in range(256):
            part, offset = divmod(index, 128)
            quarter, column = divmod(offset, 32)
            byte = low[part * 64 + column + 32 * (quarter % 2)]
            nibble = byte >> 4 if quarter >= 2 else byte & 15
            six = nibble | (high[part * 32 + column] >> (2 * quarter) & 3) << 4
            values.append(scale * np.float32(scales[index // 16]) * np.float32(six - 32))
    return values


def random_blocks(kind: Kind, rows: int, row_values: int) -> np.ndarray:
    """Make random bytes whose scales, which are halves, are small and finite."""
    per_block = 256 if kind in (Kind.Q4_K, Kind.Q6_K) else 32
    random = np.random.default_rng(int(kind))
    blocks = random.integers(0, 256, (rows * row_values // per_block, BLOCK_BYTES[kind]), dtype=np.uint8)
    places = {Kind.Q4_0: [0], Kind.Q4_1: [0, 2], Kind.Q8_0: [0], Kind.Q4_K: [0, 2], Kind.Q6_K: [208]}[kind]
    for place in places:
        halves = random.uniform(-0.1, 0.1, len(blocks)).astype("<f2")
        blocks[:, place : place + 2] = halves.view(np.uint8).reshape(-1, 2)
    return blocks.reshape(rows, -1)


@pytest.mark.parametrize("kind", BLOCK_BYTES, ids=lambda kind: kind.name)
@pytest.mark.parametrize(("rows", "columns"), [(1, 256), (3, 512), (96, 256)])
def test_quantised_values_are_those_of_the_formats_definition(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: Kind, rows: int, columns: int
) -> None:
    """Every quantised type is read as its layout defines it, value by value, also when read in several pieces."""
    monkeypatch.setattr(gguf_file, "PIECE_BYTES", 6000)
    raw = random_blocks(kind, rows, columns)
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "llama")
    writer.add_tensor("t", raw, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    blocks = raw.reshape(-1, BLOCK_BYTES[kind])
    expected = np.array([scalar_block(kind, block.tobytes()) for block in blocks], np.float32).reshape(rows, columns)
    out = torch.empty(rows, columns)
    with GgufFile(tmp_path / "m.gguf") as file:
        assert file.shape("t") == (rows, columns)
        file.read_into("t", out)
    np.testing.assert_allclose(out.numpy(), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("kind", [Kind.F32, Kind.F16, Kind.BF16], ids=lambda kind: kind.name)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_float_tensors_are_read_exactly_and_converted(tmp_path: Path, kind: Kind, dtype: torch.dtype) -> None:
    """F32, F16 and BF16 are read to the bit; asking for another dtype converts each value once."""
    weights = write_tiny_gguf(tmp_path / "m.gguf", kind=kind)
    stored = {Kind.F32: torch.float32, Kind.F16: torch.float16, Kind.BF16: torch.bfloat16}[kind]
    expected = torch.from_numpy(weights["layers.1.down"]).to(stored).to(dtype)
    out = torch.empty_like(expected)
    with GgufFile(tmp_path / "m.gguf") as file:
        file.read_into("blk.1.ffn_down.weight", out)
    assert torch.equal(out, expected)


def test_metadata_is_what_was_written(tiny_gguf: Path) -> None:
    """Header fields of every type come back, as the gguf package's own reader has them."""
    reader = gguf.GGUFReader(tiny_gguf)
    with GgufFile(tiny_gguf) as file:
        for key, field in reader.fields.items():
            if key.startswith("GGUF."):
                continue
            value = file.fields.raw(key)
            assert (value.tolist() if isinstance(value, np.ndarray) else value) == field.contents()
        assert {name: tensor.offset for name, tensor in file.tensors.items()} == {
            tensor.name: tensor.data_offset for tensor in reader.tensors
        }


def failure(path: Path) -> str:
    with pytest.raises(ModelFileError) as caught, GgufFile(path):
        pass
    text = str(caught.value)
    assert text.startswith(f"{path}: ")
    assert "\n" not in text
    return text


@pytest.mark.parametrize(
    ("start", "says"),
    [
        (b"", "is empty"),
        (b"PK\x03\x04rest of a zip", "pickled"),
        (b"\x80\x02}q\x00", "pickled"),
        (b"<!DOCTYPE html><html>", "a web page"),
        (b"version https://git-lfs.github.com/spec/v1\n", "Git LFS pointer"),
        (b"GGUX" + bytes(100), "not a GGUF file: it begins with b'GGUX'"),
        (b"GGUF" + struct.pack("<I", 1) + bytes(100), "GGUF version 1; "),
        (b"GGUF" + struct.pack(">I", 3) + bytes(100), "a big-endian GGUF"),
        (b"GGUF" + struct.pack("<IQQ", 3, 2**60, 0), "announces 1152921504606846976 tensors"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 2**60), "announces 1152921504606846976 metadata fields"),
        (b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 2**63) + bytes(100), "cut short or damaged"),
        (b"GGUF", "cut short"),
    ],
)
def test_what_is_not_a_model_file_is_said_for_what_it_is(tmp_path: Path, start: bytes, says: str) -> None:
    """Files that are not GGUF, or not one this reads, are told apart in one line with the path."""
    path = tmp_path / "m.gguf"
    path.write_bytes(start)
    assert says in failure(path)


def test_a_file_that_cannot_be_opened_gives_the_systems_reason(tmp_path: Path) -> None:
    """A missing file is one line with its path."""
    assert "No such file or directory" in failure(tmp_path / "absent.gguf")


def test_a_file_cut_anywhere_is_refused_before_weights_are_read(tiny_gguf: Path, tmp_path: Path) -> None:
    """Cut in the header or in the data, even by its last byte, a file is refused when it is opened."""
    data = tiny_gguf.read_bytes()
    path = tmp_path / "cut.gguf"
    for length in [*range(0, 200, 7), *range(200, len(data), len(data) // 60), len(data) - 64, len(data) - 1]:
        path.write_bytes(data[:length])
        failure(path)


def test_a_file_that_shrinks_while_it_is_read_is_an_error_not_a_crash(tiny_gguf: Path, tmp_path: Path) -> None:
    """A file cut after it was opened gives a ModelFileError; there is no mapping to fault."""
    path = tmp_path / "m.gguf"
    path.write_bytes(tiny_gguf.read_bytes())
    with GgufFile(path) as file:
        with path.open("r+b") as other:
            other.truncate(file.tensors["output_norm.weight"].offset + 8)
        with pytest.raises(ModelFileError, match="cut short inside tensor output_norm"):
            file.read_into("output_norm.weight", torch.empty(64))


def header(fields: list[bytes], tensors: list[bytes] | None = None) -> bytes:
    tensors = tensors or []
    return b"".join([b"GGUF", struct.pack("<IQQ", 3, len(tensors), len(fields)), *fields, *tensors])


def string(text: bytes) -> bytes:
    return struct.pack("<Q", len(text)) + text


def tensor(name: bytes, dimensions: list[int], kind: int, offset: int = 0) -> bytes:
    return string(name) + struct.pack(f"<I{len(dimensions)}QIQ", len(dimensions), *dimensions, kind, offset)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (header([string(b"a") + struct.pack("<IB", 0, 1)] * 2), "states 'a' twice"),
        (header([string(b"\xff") + struct.pack("<IB", 0, 1)]), "a metadata key' is not UTF-8"),
        (header([string(b"a") + struct.pack("<I", 99) + bytes(20)]), "the unknown type 99"),
        (header([string(b"a") + struct.pack("<IIQ", 9, 9, 1) + bytes(20)]), "a list of the unsupported type 9"),
        (header([string(b"a") + struct.pack("<IIQ", 9, 4, 2**62)]), "announces 4611686018427387904 values of 'a'"),
        (header([string(b"general.alignment") + struct.pack("<II", 4, 48)]), "a power of two is expected"),
        (header([], [tensor(b"t", [4], 999)]) + bytes(64), "the unknown type 999"),
        (header([], [tensor(b"t", [256], 10)]) + bytes(256), "is Q2_K; supported types are BF16, F16"),
        (header([], [tensor(b"t", [33], 8)]) + bytes(64), "the impossible shape [33]"),
        (header([], [tensor(b"t", [4, 0], 0)]) + bytes(64), "the impossible shape [0, 4]"),
        (header([], [tensor(b"t", [1] * 5, 0)]) + bytes(64), "has 5 dimensions"),
        (header([], [tensor(b"t", [2**40, 2**40], 0)]) + bytes(64), "cut short"),
        (header([], [tensor(b"t", [4], 0, 2**63)]) + bytes(64), "cut short"),
        (header([], [tensor(b"t", [4], 0)] * 2) + bytes(64), "holds tensor 't' twice"),
    ],
)
def test_a_damaged_header_is_refused_with_the_value_seen(tmp_path: Path, data: bytes, says: str) -> None:
    """Every impossible value of a header has a message of its own."""
    path = tmp_path / "m.gguf"
    path.write_bytes(data)
    assert says in failure(path)


def corrupt(data: bytes, changes: list[tuple[int, int]]) -> bytes:
    damaged = bytearray(data)
    for place, value in changes:
        damaged[place % len(damaged)] = value
    return bytes(damaged)


def outcome_of(data: bytes, tmp_path_factory: pytest.TempPathFactory) -> bool:
    """Load ``data``; say whether it ended as it may: in a model, or in one line about the file."""
    path = tmp_path_factory.mktemp("damaged") / "m.gguf"
    path.write_bytes(data)
    try:
        return load_model(path).max_context_tokens > 0
    except ModelFileError as error:
        return str(error).startswith(f"{path}: ") and "\n" not in str(error)
    finally:
        path.unlink()


HEADER_BYTES = 6500
"""A little more than the tiny model's header."""


@settings(max_examples=300, deadline=None)
@given(changes=st.lists(st.tuples(st.integers(0, HEADER_BYTES), st.integers(0, 255)), min_size=1, max_size=4))
def test_any_damage_to_a_header_is_a_clear_error_or_a_model(
    tiny_gguf: Path, tmp_path_factory: pytest.TempPathFactory, changes: list[tuple[int, int]]
) -> None:
    """Whatever bytes of a header are changed, loading gives a ModelFileError of one line, or a model; nothing else."""
    assert outcome_of(corrupt(tiny_gguf.read_bytes(), changes), tmp_path_factory)


STRETCHES: list[Callable[[bytes, int], bytes]] = [
    lambda data, place: data[:place] + b"\xff" * 8 + data[place + 8 :],
    lambda data, place: data[:place] + data[place + 1 :],
    lambda data, place: data[:place] + b"\0" + data[place:],
]


@settings(max_examples=150, deadline=None)
@given(place=st.integers(8, HEADER_BYTES), stretch=st.sampled_from(STRETCHES))
def test_shifted_and_huge_values_are_a_clear_error_or_a_model(
    tiny_gguf: Path, tmp_path_factory: pytest.TempPathFactory, place: int, stretch: Callable[[bytes, int], bytes]
) -> None:
    """A byte lost, a byte added or a number of all ones anywhere in the header ends as any other damage does."""
    assert outcome_of(stretch(tiny_gguf.read_bytes(), place), tmp_path_factory)


def test_the_tiny_models_header_is_covered_by_the_damage(tiny_gguf: Path) -> None:
    """The range of damaged bytes reaches to the end of the header, so that tensor entries are damaged as well."""
    with GgufFile(tiny_gguf) as file:
        first = min(tensor.offset for tensor in file.tensors.values())
    assert first - 500 < HEADER_BYTES < first + 2000


def test_every_supported_type_is_tested_here() -> None:
    """No type is claimed without a test of its values."""
    assert {*BLOCK_BYTES, Kind.F32, Kind.F16, Kind.BF16} == SUPPORTED_TYPES
    assert TinyShape().hidden_size % 32 == 0
