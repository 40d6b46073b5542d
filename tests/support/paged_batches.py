"""Making ForwardBatches by hand, and a second implementation of a Llama to compare with."""

from __future__ import annotations

import numpy as np
import torch

from agentrt.inference.forward import ForwardBatch, ForwardModel, KVTensors, SequenceSlice
from tests.support.model_files import TinyShape


class PagedSequences:
    """Sequences in a cache whose every unwritten slot is NaN, in blocks taken in random order.

    ``compute({name: ids, ...})`` runs one step that appends those ids to those sequences and returns the
    logits of every row by name.
    """

    def __init__(self, model: ForwardModel, *, block_size: int = 16, num_blocks: int = 256, seed: int = 0) -> None:
        self._model = model
        self._block_size = block_size
        shape = (model.num_layers, num_blocks, block_size, model.num_kv_heads, model.head_dim)
        self.kv = KVTensors(
            torch.full(shape, torch.nan, dtype=model.dtype), torch.full(shape, torch.nan, dtype=model.dtype)
        )
        self._free = np.random.default_rng(seed).permutation(num_blocks).tolist()
        self._blocks: dict[str, list[int]] = {}
        self._lengths: dict[str, int] = {}

    def compute(self, step: dict[str, list[int]]) -> dict[str, torch.Tensor]:
        batch = self.batch(step)
        logits = self._model.forward(batch, self.kv)
        return {
            name: logits[part.first_row : part.first_row + part.num_rows]
            for name, part in zip(step, batch.sequences, strict=True)
        }

    def batch(self, step: dict[str, list[int]]) -> ForwardBatch:
        """Make the batch of a step, all rows wanted, and count its tokens as computed."""
        token_ids: list[int] = []
        positions: list[torch.Tensor] = []
        slots: list[torch.Tensor] = []
        slices: list[SequenceSlice] = []
        for name, ids in step.items():
            computed = self._lengths.get(name, 0)
            blocks = self._blocks.setdefault(name, [])
            total = computed + len(ids)
            while len(blocks) * self._block_size < total:
                blocks.append(self._free.pop())
            table = torch.tensor(blocks)
            own = torch.arange(computed, total)
            slices.append(SequenceSlice(len(token_ids), len(ids), computed, table))
            positions.append(own)
            slots.append(table[own // self._block_size] * self._block_size + own % self._block_size)
            token_ids += ids
            self._lengths[name] = total
        return ForwardBatch(
            torch.tensor(token_ids),
            torch.cat(positions),
            torch.cat(slots),
            tuple(slices),
            torch.arange(len(token_ids)),
        )

    def release(self, name: str) -> None:
        """Give a sequence's blocks back and poison them, as if another sequence had left them half written."""
        for block in self._blocks.pop(name):
            self.kv.keys[:, block] = torch.nan
            self.kv.values[:, block] = torch.nan
            self._free.append(block)
        del self._lengths[name]


def reference_logits(weights: dict[str, np.ndarray], shape: TinyShape, ids: list[int]) -> np.ndarray:
    """Compute the logits of every position of one sequence in float64: no cache, no batch, one head at a
    time."""
    weights = {name: array.astype(np.float64) for name, array in weights.items()}
    half = shape.head_dim // 2
    angles = np.outer(np.arange(len(ids)), shape.theta ** (-np.arange(half) / half))

    def normed(rows: np.ndarray, weight: np.ndarray) -> np.ndarray:
        return rows / np.sqrt((rows**2).mean(-1, keepdims=True) + shape.norm_eps) * weight

    def turned(rows: np.ndarray) -> np.ndarray:
        pairs = (rows[:, :half] + 1j * rows[:, half:]) * np.exp(1j * angles)
        return np.concatenate([pairs.real, pairs.imag], axis=1)

    hidden = weights["embedding"][ids]
    for index in range(shape.num_layers):
        layer = {name.split(".")[2]: array for name, array in weights.items() if name.startswith(f"layers.{index}.")}
        rows = normed(hidden, layer["attention_norm"])
        heads = []
        for head in range(shape.num_heads):
            shared = head // (shape.num_heads // shape.num_kv_heads)
            query = turned(rows @ layer["query"][head * shape.head_dim : (head + 1) * shape.head_dim].T)
            key = turned(rows @ layer["key"][shared * shape.head_dim : (shared + 1) * shape.head_dim].T)
            value = rows @ layer["value"][shared * shape.head_dim : (shared + 1) * shape.head_dim].T
            scores = query @ key.T / np.sqrt(shape.head_dim)
            scores[np.triu_indices(len(ids), 1)] = -np.inf
            odds = np.exp(scores - scores.max(-1, keepdims=True))
            heads.append(odds / odds.sum(-1, keepdims=True) @ value)
        hidden = hidden + np.concatenate(heads, axis=1) @ layer["output"].T
        rows = normed(hidden, layer["ffn_norm"])
        gate = rows @ layer["gate"].T
        hidden = hidden + (gate / (1 + np.exp(-gate)) * (rows @ layer["up"].T)) @ layer["down"].T
    return normed(hidden, weights["norm"]) @ weights.get("head", weights["embedding"]).T
