"""Reading a GGUF file: header first (see `gguf_header`), tensors dequantised piece by piece.

Data is read with `read`, which reports a short file instead of faulting as a mapped one does. What the bytes mean is left
to the `gguf` package's `dequantize`, called on pieces that fit the cache and cut into long rows, which is two to three
times faster than a model's own short ones (blocks do not know which row they are in).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from io import BufferedReader
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize

from agentrt.errors import ModelFileError
from agentrt.inference.file_fields import Fields
from agentrt.inference.gguf_header import GgufHeader, GgufTensor

if TYPE_CHECKING:
    import torch

PIECE_BYTES = 2 * 2**20
VALUES_PER_ROW = 8192
"""What `dequantize` is given as a row; it works on sixteen rows at a time."""

FLOAT_DTYPES = {
    GGMLQuantizationType.F32: "float32",
    GGMLQuantizationType.F16: "float16",
    GGMLQuantizationType.BF16: "bfloat16",
}
"""What torch calls them."""


class GgufFile:
    """An open GGUF file. Use it as a context manager.

    ``fields`` is its metadata; numeric arrays in it are numpy arrays.
    """

    def __init__(self, path: Path) -> None:
        """Open ``path`` and check its header.

        Raises: ModelFileError: it cannot be read, is not GGUF, is damaged or cut short, or holds types not
            supported.
        """
        self.path = path
        try:
            self._file: BufferedReader = path.open("rb")
        except OSError as error:
            raise ModelFileError(f"{path}: cannot be read: {error.strerror or error}") from error
        try:
            header = GgufHeader(path, self._file)
            self.fields = Fields(path, header.metadata)
            self.tensors: Mapping[str, GgufTensor] = header.tensors
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def shape(self, name: str) -> tuple[int, ...] | None:
        tensor = self.tensors.get(name)
        return tensor.shape if tensor else None

    def read_into(self, name: str, out: torch.Tensor) -> None:
        """Read a tensor into ``out``, dequantised and converted to its dtype.

        ``out`` is contiguous and has as many elements as the tensor; no second copy of the whole is made.
        """
        tensor = self.tensors[name]
        flat = out.view(-1)
        assert flat.numel() == math.prod(tensor.shape)
        values_per_block, bytes_per_block = GGML_QUANT_SIZES[tensor.type]
        piece_bytes = PIECE_BYTES // bytes_per_block * bytes_per_block
        first = 0
        for start in range(0, tensor.size_bytes, piece_bytes):
            raw = self._read(tensor, start, min(piece_bytes, tensor.size_bytes - start))
            count = raw.size // bytes_per_block * values_per_block
            flat[first : first + count].copy_(_dequantized(raw, tensor.type))
            first += count

    def read_raw(self, name: str) -> np.ndarray[Any, np.dtype[np.uint8]]:
        """Return the bytes of a tensor as they stand in the file; what they mean, ``tensors[name].type`` says."""
        tensor = self.tensors[name]
        return self._read(tensor, 0, tensor.size_bytes)

    def _read(self, tensor: GgufTensor, start: int, size_bytes: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
        raw = np.empty(size_bytes, np.uint8)
        try:
            self._file.seek(tensor.offset + start)
            num_read = self._file.readinto(raw.data)
        except OSError as error:
            raise ModelFileError(f"{self.path}: cannot be read: {error.strerror or error}") from error
        if num_read != size_bytes:
            raise ModelFileError(f"{self.path}: is cut short inside tensor {tensor.name}; fetch it again")
        return raw


def _dequantized(raw: np.ndarray[Any, np.dtype[np.uint8]], kind: GGMLQuantizationType) -> torch.Tensor:
    import torch

    if (name := FLOAT_DTYPES.get(kind)) is not None:
        return torch.from_numpy(raw).view(getattr(torch, name))
    values_per_block, bytes_per_block = GGML_QUANT_SIZES[kind]
    row_bytes = VALUES_PER_ROW // values_per_block * bytes_per_block
    whole = raw.size // row_bytes * row_bytes
    # A damaged block may hold infinities; they are the file's and become the model's, without a warning of
    # numpy's.
    with np.errstate(all="ignore"):
        pieces = [piece for piece in (raw[:whole].reshape(-1, row_bytes), raw[whole:]) if piece.size]
        parts = [torch.from_numpy(dequantize(piece, kind)).view(-1) for piece in pieces]
    return parts[0] if len(parts) == 1 else torch.cat(parts)
