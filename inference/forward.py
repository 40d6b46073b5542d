"""What one engine step hands to a model, and what it gets back.

The scheduler decides which tokens of which requests go into a step; the model runner turns that decision into a
ForwardBatch; a model computes it. Rows of all sequences lie one behind the other, with no padding.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch


@dataclass(frozen=True, slots=True)
class SequenceSlice:
    """Rows of one sequence in a step.

    ``first_row``: its first row in the batch. ``num_rows``: how many new tokens it computes. ``num_computed``: tokens of
    it whose keys and values are in the cache already, so its rows are positions num_computed ... num_computed+num_rows-1.
    ``block_table``: [num_blocks], int64: physical blocks of positions 0 ... num_computed+num_rows-1, in order.
    """

    first_row: int
    num_rows: int
    num_computed: int
    block_table: torch.Tensor


@dataclass(frozen=True, slots=True)
class ForwardBatch:
    """One step.

    token_ids:    [num_rows], int64
    positions:    [num_rows], int64: position of each token in its sequence
    slots:        [num_rows], int64: block * block_size + offset; where the row's key and value go in the cache
    sequences:    one slice a sequence, in row order
    logits_rows:  [num_logits], int64: the rows whose logits are wanted
    """

    token_ids: torch.Tensor
    positions: torch.Tensor
    slots: torch.Tensor
    sequences: tuple[SequenceSlice, ...]
    logits_rows: torch.Tensor


@dataclass(frozen=True, slots=True)
class KVTensors:
    """The paged cache of every layer.

    keys, values: [num_layers, num_blocks, block_size, num_kv_heads, head_dim], the model's dtype. A forward pass writes
    the batch's slots in place and reads only slots that were written for the sequence it works on.
    """

    keys: torch.Tensor
    values: torch.Tensor

    @property
    def block_size(self) -> int:
        return self.keys.shape[2]


class ForwardModel(Protocol):
    """A decoder-only transformer over a paged cache."""

    @property
    def num_layers(self) -> int: ...
    @property
    def num_kv_heads(self) -> int: ...
    @property
    def head_dim(self) -> int: ...
    @property
    def vocab_size(self) -> int: ...
    @property
    def max_context_tokens(self) -> int: ...
    @property
    def dtype(self) -> torch.dtype: ...

    def forward(self, batch: ForwardBatch, kv: KVTensors) -> torch.Tensor:
        """Compute one step; returns logits [num_logits, vocab_size] in float32 (float64 for a float64 model)."""
        ...
