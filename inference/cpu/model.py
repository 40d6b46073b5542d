"""A decoder model for the C++ step: its shape, and its weights in a model file's own bytes, repacked once.

What the step computes is described here and nowhere else: a pre-norm decoder with grouped-query attention, rotary positions
and a gated feed-forward layer; norms on queries, keys and projections, an embedding scale, windows and several rotary bases
where an architecture has them.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from agentrt.inference.cpu import library
from agentrt.inference.cpu.library import address, load_library, raise_for

F32 = 0
"""ggml's number of the type that vectors have."""

GATES = {"silu": 0, "gelu_tanh": 1}


@dataclass(frozen=True, slots=True)
class FileTensor:
    """A matrix, [rows, cols] outputs by inputs, or a vector, as the bytes of a model file; ``kind`` is ggml's number."""

    data: npt.NDArray[np.uint8]
    kind: int
    rows: int
    cols: int

    @classmethod
    def vector(cls, values: npt.NDArray[np.float32]) -> FileTensor:
        return cls(np.ascontiguousarray(values, np.float32).view(np.uint8), F32, 1, values.size)

    def pointer(self) -> library.Tensor:
        """Return what the library reads. This object must be kept alive meanwhile."""
        return library.Tensor(address(self.data), self.kind, self.rows, self.cols)


@dataclass(frozen=True, slots=True)
class CpuLayer:
    """Weights of one layer. ``window``: tokens a row sees, itself included; 0 for all. ``rotary``: which of the model's."""

    attention_norm: FileTensor
    query: FileTensor
    key: FileTensor
    value: FileTensor
    attention_output: FileTensor
    ffn_norm: FileTensor
    gate: FileTensor
    up: FileTensor
    down: FileTensor
    query_norm: FileTensor | None = None
    key_norm: FileTensor | None = None
    attention_post_norm: FileTensor | None = None
    ffn_post_norm: FileTensor | None = None
    window: int = 0
    rotary: int = 0


@dataclass(frozen=True, slots=True)
class CpuDescription:
    """All that the step needs to know.

    ``frequencies``: [num_rotaries, head_dim / 2], float64, radians a position. ``has_paired_rows``: query and key rows lie
    in pairs, a rotated value beside its partner, as llama.cpp stores Llama's. ``head``: None when it is the embedding.
    """

    hidden_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    ffn_size: int
    vocab_size: int
    max_context_tokens: int
    norm_eps: float
    attention_scale: float
    frequencies: npt.NDArray[np.float64]
    layers: Sequence[CpuLayer]
    embedding: FileTensor
    norm: FileTensor
    head: FileTensor | None = None
    gate: str = "silu"
    embedding_scale: float = 1.0
    has_paired_rows: bool = False


class CpuModel:
    """Packed weights. They do not change, so several engines may use one model. ``level``: see ``Library.levels_here``."""

    def __init__(self, description: CpuDescription, *, level: str | None = None) -> None:
        """Raises EngineError: no library, or a shape or type that the step does not compute."""
        self.library = load_library()
        self.vocab_size = description.vocab_size
        self.max_context_tokens = description.max_context_tokens
        self.level = level or self.library.levels_here[0]
        error = library.Error()
        layers = (library.Layer * len(description.layers))(*map(_layer, description.layers))
        frequencies = np.ascontiguousarray(description.frequencies, np.float64)
        head = description.head
        native = library.Description(
            num_layers=len(description.layers),
            hidden_size=description.hidden_size,
            num_heads=description.num_heads,
            num_kv_heads=description.num_kv_heads,
            head_dim=description.head_dim,
            ffn_size=description.ffn_size,
            vocab_size=description.vocab_size,
            gate=GATES[description.gate],
            has_paired_rows=description.has_paired_rows,
            norm_eps=description.norm_eps,
            attention_scale=description.attention_scale,
            embedding_scale=description.embedding_scale,
            num_rotaries=len(frequencies),
            frequencies=frequencies.ctypes.data_as(ctypes.POINTER(ctypes.c_double)),
            layers=layers,
            embedding=description.embedding.pointer(),
            norm=description.norm.pointer(),
            head=library.Tensor() if head is None else head.pointer(),
        )
        handle = self.library.model_new(native, self.level.encode(), error)
        if not handle:
            raise_for(error)
        self.handle = ctypes.c_void_p(handle)
        self.close = weakref.finalize(self, self.library.model_free, self.handle)
        """Free the weights; nothing that uses them may be alive."""

    @property
    def size_bytes(self) -> int:
        """Memory of the packed weights."""
        return int(self.library.model_bytes(self.handle))

    @property
    def block_bytes(self) -> int:
        """Memory of one block of the cache: 16 tokens, all layers."""
        return int(self.library.block_bytes(self.handle))


def _layer(layer: CpuLayer) -> library.Layer:
    tensors = {name: getattr(layer, name) for name in library.LAYER_TENSORS}
    return library.Layer(
        **{name: library.Tensor() if tensor is None else tensor.pointer() for name, tensor in tensors.items()},
        window=layer.window,
        rotary=layer.rotary,
    )
