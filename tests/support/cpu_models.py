"""Small random models for the C++ step, and what they compute, written once more with numpy in float64."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
from gguf.constants import GGMLQuantizationType

from agentrt.inference.config import EngineConfig
from agentrt.inference.cpu.model import CpuDescription, CpuLayer, CpuModel, FileTensor
from agentrt.inference.cpu.runner import CpuRunner
from tests.support.file_tensors import random_tensor

Wide = npt.NDArray[np.float64]


@dataclass(frozen=True)
class CpuShape:
    hidden_size: int = 32
    num_heads: int = 4
    num_kv_heads: int = 2
    head_dim: int = 8
    ffn_size: int = 48
    vocab_size: int = 300
    windows: tuple[int, ...] = (0, 0)
    """One a layer."""
    thetas: tuple[float, ...] = (10_000.0,)
    gate: str = "silu"
    has_head_norms: bool = False
    has_post_norms: bool = False
    embedding_scale: float = 1.0
    kind: GGMLQuantizationType = GGMLQuantizationType.F32


@dataclass
class RandomModel:
    """``weights``: what the bytes of ``description`` mean."""

    shape: CpuShape
    seed: int = 0
    weights: dict[str, Wide] = field(default_factory=dict)

    def __post_init__(self) -> None:
        shape = self.shape
        self._count = 0
        half = np.arange(0, shape.head_dim, 2) / shape.head_dim
        self.frequencies = np.array([theta**-half for theta in shape.thetas])
        layers = [self._layer(index) for index in range(len(shape.windows))]
        self.description = CpuDescription(
            hidden_size=shape.hidden_size,
            num_heads=shape.num_heads,
            num_kv_heads=shape.num_kv_heads,
            head_dim=shape.head_dim,
            ffn_size=shape.ffn_size,
            vocab_size=shape.vocab_size,
            max_context_tokens=4096,
            norm_eps=1e-5,
            attention_scale=shape.head_dim**-0.5,
            frequencies=self.frequencies,
            layers=layers,
            embedding=self._matrix("embedding", shape.vocab_size, shape.hidden_size),
            norm=self._norm("norm", shape.hidden_size),
            gate=shape.gate,
            embedding_scale=shape.embedding_scale,
        )

    def runner(self, *, level: str | None = None, num_threads: int = 1, num_blocks: int = 64) -> CpuRunner:
        model = CpuModel(self.description, level=level)
        return CpuRunner(model, EngineConfig(num_blocks=num_blocks, num_threads=num_threads), self.shape.vocab_size)

    def logits(self, token_ids: Sequence[int]) -> Wide:
        """Compute the logits after every token, all at once."""
        shape, weights = self.shape, self.weights
        hidden = weights["embedding"][list(token_ids)] * shape.embedding_scale
        for index, window in enumerate(shape.windows):
            hidden = self._layer_output(hidden, index, window)
        return _normed(hidden, weights["norm"]) @ weights["embedding"].T

    def _layer_output(self, hidden: Wide, index: int, window: int) -> Wide:
        shape = self.shape
        w = {name.split(".")[1]: array for name, array in self.weights.items() if name.startswith(f"{index}.")}
        rows = _normed(hidden, w["attention_norm"])
        length = len(hidden)
        distance = np.arange(length)[:, None] - np.arange(length)[None, :]
        hidden_pairs = (distance < 0) | (distance >= window if window else False)
        heads = []
        for head in range(shape.num_heads):
            shared = head // (shape.num_heads // shape.num_kv_heads)
            query = self._turned(rows @ _head(w["query"], head, shape.head_dim).T, w.get("query_norm"), index)
            key = self._turned(rows @ _head(w["key"], shared, shape.head_dim).T, w.get("key_norm"), index)
            scores = query @ key.T * shape.head_dim**-0.5
            scores[hidden_pairs] = -np.inf
            odds = np.exp(scores - scores.max(-1, keepdims=True))
            value = rows @ _head(w["value"], shared, shape.head_dim).T
            heads.append(odds / odds.sum(-1, keepdims=True) @ value)
        attended = np.concatenate(heads, axis=1) @ w["attention_output"].T
        hidden = hidden + (_normed(attended, w["attention_post_norm"]) if shape.has_post_norms else attended)
        rows = _normed(hidden, w["ffn_norm"])
        down = (_gated(shape.gate, rows @ w["gate"].T) * (rows @ w["up"].T)) @ w["down"].T
        return hidden + (_normed(down, w["ffn_post_norm"]) if shape.has_post_norms else down)

    def _turned(self, rows: Wide, norm: Wide | None, index: int) -> Wide:
        if norm is not None:
            rows = _normed(rows, norm)
        half = self.shape.head_dim // 2
        angles = np.outer(np.arange(len(rows)), self.frequencies[index % len(self.shape.thetas)])
        pairs = (rows[:, :half] + 1j * rows[:, half:]) * np.exp(1j * angles)
        return np.concatenate([pairs.real, pairs.imag], axis=1)

    def _layer(self, index: int) -> CpuLayer:
        shape = self.shape
        query, kv = shape.num_heads * shape.head_dim, shape.num_kv_heads * shape.head_dim
        layer = CpuLayer(
            attention_norm=self._norm(f"{index}.attention_norm", shape.hidden_size),
            query=self._matrix(f"{index}.query", query, shape.hidden_size),
            key=self._matrix(f"{index}.key", kv, shape.hidden_size),
            value=self._matrix(f"{index}.value", kv, shape.hidden_size),
            attention_output=self._matrix(f"{index}.attention_output", shape.hidden_size, query),
            ffn_norm=self._norm(f"{index}.ffn_norm", shape.hidden_size),
            gate=self._matrix(f"{index}.gate", shape.ffn_size, shape.hidden_size),
            up=self._matrix(f"{index}.up", shape.ffn_size, shape.hidden_size),
            down=self._matrix(f"{index}.down", shape.hidden_size, shape.ffn_size),
            window=shape.windows[index],
            rotary=index % len(shape.thetas),
        )
        if shape.has_head_norms:
            layer = replace(
                layer,
                query_norm=self._norm(f"{index}.query_norm", shape.head_dim),
                key_norm=self._norm(f"{index}.key_norm", shape.head_dim),
            )
        if shape.has_post_norms:
            layer = replace(
                layer,
                attention_post_norm=self._norm(f"{index}.attention_post_norm", shape.hidden_size),
                ffn_post_norm=self._norm(f"{index}.ffn_post_norm", shape.hidden_size),
            )
        return layer

    def _matrix(self, name: str, rows: int, cols: int) -> FileTensor:
        self._count += 1
        tensor, meant = random_tensor(self.shape.kind, rows, cols, seed=self.seed * 1000 + self._count)
        self.weights[name] = meant.astype(np.float64)
        return tensor

    def _norm(self, name: str, size: int) -> FileTensor:
        self._count += 1
        values = np.random.default_rng(self.seed * 1000 + self._count).uniform(0.5, 1.5, size).astype(np.float32)
        self.weights[name] = values.astype(np.float64)
        return FileTensor.vector(values)


def _normed(rows: Wide, weight: Wide) -> Wide:
    return rows / np.sqrt((rows**2).mean(-1, keepdims=True) + 1e-5) * weight


def _head(matrix: Wide, head: int, size: int) -> Wide:
    return matrix[head * size : (head + 1) * size]


def _gated(kind: str, x: Wide) -> Wide:
    if kind == "silu":
        return x / (1 + np.exp(-x))
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
