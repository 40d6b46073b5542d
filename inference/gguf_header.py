"""The header of a GGUF file: what it says of itself and where its tensors lie, checked before anything is allocated.

It is parsed here and not by the `gguf` package's reader, for two reasons. That reader takes 2.9 s for the default model's
header with its 49,000 tokens, measured in CPU time; this one 0.09 s. And it maps the file into memory and trusts the
header's counts and offsets, so that a damaged file ends in a numpy error, an endless loop or a bus error. Here every count
is compared with the bytes that are left, and every tensor's extent with the size of the file. What the types mean is left
to the `gguf` package's table.

No torch: a model's window and tokenizer are asked for where nothing is computed.

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Any

import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

from agentrt.errors import ModelFileError
from agentrt.inference.file_fields import Fields, shorten

MAGIC = b"GGUF"
SUPPORTED_VERSIONS = (2, 3)
MAX_HEADER_BYTES = 64 * 2**20
MAX_DIMENSIONS = 4
MAX_ALIGNMENT = 2**20
SUPPORTED_TYPES = frozenset(
    {
        GGMLQuantizationType.F32,
        GGMLQuantizationType.F16,
        GGMLQuantizationType.BF16,
        GGMLQuantizationType.Q4_0,
        GGMLQuantizationType.Q4_1,
        GGMLQuantizationType.Q8_0,
        GGMLQuantizationType.Q4_K,
        GGMLQuantizationType.Q6_K,
    }
)

_SCALARS = {
    0: "<u1",
    1: "<i1",
    2: "<u2",
    3: "<i2",
    4: "<u4",
    5: "<i4",
    6: "<f4",
    7: "<b1",
    10: "<u8",
    11: "<i8",
    12: "<f8",
}
_TYPE_BOOL, _TYPE_STRING, _TYPE_ARRAY = 7, 8, 9


@dataclass(frozen=True, slots=True)
class GgufTensor:
    """Where a tensor lies. ``shape`` is in torch's order: the last dimension is contiguous."""

    name: str
    shape: tuple[int, ...]
    type: GGMLQuantizationType
    offset: int
    size_bytes: int


class GgufHeader:
    """The header of a GGUF file, parsed. ``metadata`` holds numeric arrays as numpy arrays."""

    def __init__(self, path: Path, file: BufferedReader) -> None:
        """Read the header of ``file``, which was opened from ``path``; where the file then stands is not said.

        Raises:
            ModelFileError: it cannot be read, is not GGUF, is damaged or cut short, or holds types not supported.
        """
        self._path = path
        self._file = file
        self._size_bytes = file.seek(0, 2)
        self._position = 0
        file.seek(0)
        self.metadata: dict[str, Any] = {}
        self.tensors: dict[str, GgufTensor] = {}
        try:
            self._parse()
        except OSError as error:
            raise ModelFileError(f"{path}: cannot be read: {error.strerror or error}") from error

    def _parse(self) -> None:
        start = self._file.read(8)
        if start[:4] != MAGIC:
            raise self._damaged(_not_gguf(start))
        if len(start) < 8:
            raise self._damaged("is cut short: nothing but its first bytes is there; fetch it again")
        version = int.from_bytes(start[4:], "little")
        self._position = 8
        if version not in SUPPORTED_VERSIONS:
            swapped = int.from_bytes(start[4:], "big") in SUPPORTED_VERSIONS
            what = "a big-endian GGUF" if swapped else f"GGUF version {version}"
            raise self._damaged(f"is {what}; little-endian versions 2 and 3 are supported")
        num_tensors, num_fields = self._unsigned(8), self._unsigned(8)
        # A field is at least a length, a type and a value: 13 bytes; a tensor's entry 32.
        self._check_count(num_fields, 13, "metadata fields")
        self._check_count(num_tensors, 32, "tensors")
        for _ in range(num_fields):
            key = self._string("a metadata key")
            if key in self.metadata:
                raise self._damaged(f"states {shorten(key)} twice")
            self.metadata[key] = self._value(key, self._unsigned(4))
        entries = [self._tensor_entry() for _ in range(num_tensors)]
        alignment = self.metadata.get("general.alignment", 32)
        if type(alignment) is not int or not 1 <= alignment <= MAX_ALIGNMENT or alignment & (alignment - 1):
            raise self._damaged(f"general.alignment = {shorten(alignment)}: a power of two is expected")
        data_start = -(-self._position // alignment) * alignment
        for name, shape, kind, offset in entries:
            if name in self.tensors:
                raise self._damaged(f"holds tensor {shorten(name)} twice")
            self.tensors[name] = self._placed(name, shape, kind, data_start + offset)

    def _tensor_entry(self) -> tuple[str, tuple[int, ...], int, int]:
        name = self._string("a tensor's name")
        num_dimensions = self._unsigned(4)
        if not 1 <= num_dimensions <= MAX_DIMENSIONS:
            raise self._damaged(f"tensor {shorten(name)} has {num_dimensions} dimensions; 1 to 4 are possible")
        shape = tuple(self._unsigned(8) for _ in range(num_dimensions))
        return name, shape[::-1], self._unsigned(4), self._unsigned(8)

    def _placed(self, name: str, shape: tuple[int, ...], kind: int, offset: int) -> GgufTensor:
        try:
            quantization = GGMLQuantizationType(kind)
        except ValueError:
            raise self._damaged(f"tensor {shorten(name)} has the unknown type {kind}") from None
        if quantization not in SUPPORTED_TYPES:
            supported = ", ".join(sorted(kind.name for kind in SUPPORTED_TYPES))
            raise self._damaged(f"tensor {shorten(name)} is {quantization.name}; supported types are {supported}")
        values_per_block, bytes_per_block = GGML_QUANT_SIZES[quantization]
        if min(shape) < 1 or shape[-1] % values_per_block:
            raise self._damaged(f"tensor {shorten(name)} has the impossible shape {list(shape)}")
        size_bytes = math.prod(shape) // values_per_block * bytes_per_block
        if offset + size_bytes > self._size_bytes:
            raise self._damaged(
                f"is cut short: tensor {shorten(name)} ends at byte {offset + size_bytes} and the file has "
                f"{self._size_bytes}; fetch it again"
            )
        return GgufTensor(name, shape, quantization, offset, size_bytes)

    def _value(self, key: str, kind: int) -> Any:
        if kind in _SCALARS:
            return self._numbers(kind, 1)[0].item()
        if kind == _TYPE_STRING:
            return self._string(key)
        if kind != _TYPE_ARRAY:
            raise self._damaged(f"{shorten(key)} has the unknown type {kind}")
        item_kind, count = self._unsigned(4), self._unsigned(8)
        if item_kind in _SCALARS:
            self._check_count(count, np.dtype(_SCALARS[item_kind]).itemsize, f"values of {shorten(key)}")
            return self._numbers(item_kind, count)
        if item_kind == _TYPE_STRING:
            self._check_count(count, 8, f"values of {shorten(key)}")
            return [self._string(key) for _ in range(count)]
        raise self._damaged(f"{shorten(key)} is a list of the unsupported type {item_kind}")

    def _numbers(self, kind: int, count: int) -> np.ndarray[Any, Any]:
        dtype = np.dtype(_SCALARS[kind])
        raw = self._take(count * dtype.itemsize)
        if kind == _TYPE_BOOL:
            return np.asarray(np.frombuffer(raw, np.uint8) != 0)
        return np.asarray(np.frombuffer(raw, dtype))

    def _string(self, what: str) -> str:
        raw = self._take(self._unsigned(8))
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError:
            raise self._damaged(f"{shorten(what)} is not UTF-8") from None

    def _unsigned(self, size_bytes: int) -> int:
        return int(struct.unpack("<Q" if size_bytes == 8 else "<I", self._take(size_bytes))[0])

    def _take(self, size_bytes: int) -> bytes:
        """Return the next bytes of the header; the bytes that are left bound what is read."""
        end = self._position + size_bytes
        if end > self._size_bytes:
            raise self._damaged(
                f"is cut short or damaged: its header goes to byte {end} at least and the file has "
                f"{self._size_bytes}; fetch it again"
            )
        if end > MAX_HEADER_BYTES:
            raise self._damaged(f"has a header of more than {MAX_HEADER_BYTES} bytes")
        self._position = end
        raw = self._file.read(size_bytes)
        if len(raw) != size_bytes:
            raise self._damaged("became shorter while it was read")
        return raw

    def _check_count(self, count: int, least_bytes: int, what: str) -> None:
        if count * least_bytes > self._size_bytes - self._position:
            raise self._damaged(
                f"is cut short or damaged: it announces {count} {what}, more than its {self._size_bytes} bytes hold"
            )

    def _damaged(self, reason: str) -> ModelFileError:
        return ModelFileError(f"{self._path}: {reason}")


def _not_gguf(start: bytes) -> str:
    if not start:
        return "is empty; a GGUF file is expected"
    if start[:2] == b"PK" or start[:1] == b"\x80":
        return "is a pickled PyTorch file, which is never loaded; use a GGUF file or a folder with safetensors"
    if start[:4] == b"<htm" or start[:4] == b"<!DO":
        return "is a web page, not a GGUF file; the download went wrong"
    if start.startswith(b"version"):
        return "is a Git LFS pointer, not the model; run `git lfs pull` where it came from"
    return f"is not a GGUF file: it begins with {start[:4]!r}, not {MAGIC!r}"


def read_metadata(path: Path) -> Fields:
    """Return what a GGUF file says of itself.

    Raises:
        ModelFileError: as for ``GgufHeader``.
    """
    try:
        with path.open("rb") as file:
            return Fields(path, GgufHeader(path, file).metadata)
    except OSError as error:
        raise ModelFileError(f"{path}: cannot be read: {error.strerror or error}") from error
