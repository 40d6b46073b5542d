"""A scheduled step becomes tensors, goes through the model, and comes back as logits.

The runner owns the tensors of the cache. They are not cleared: memory that no block was written to is never touched, so a
large cache costs nothing until it is used, and a model reads only slots that were written for the sequence it works on.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch

from agentrt.errors import ConfigError
from agentrt.inference.config import EngineConfig
from agentrt.inference.forward import ForwardBatch, ForwardModel, KVTensors, SequenceSlice
from agentrt.inference.kv_cache import KVCache
from agentrt.inference.runner import Floats, RowScores
from agentrt.inference.scheduler import Step


def allocate_cache(model: ForwardModel, config: EngineConfig) -> KVTensors:
    """Return the tensors of the cache: of ``num_blocks`` blocks, or of as many as ``kv_cache_bytes`` holds.

    Raises:
        ConfigError: not even one fits, or there is not that much memory.
    """
    block_bytes = 2 * model.num_layers * config.block_size * model.num_kv_heads * model.head_dim * model.dtype.itemsize
    num_blocks = config.num_blocks or config.kv_cache_bytes // block_bytes
    if num_blocks == 0:
        raise ConfigError(
            f"kv_cache_bytes is {config.kv_cache_bytes}; one block of {config.block_size} tokens takes {block_bytes}"
        )
    shape = (2, model.num_layers, num_blocks, config.block_size, model.num_kv_heads, model.head_dim)
    try:
        tensors = torch.empty(shape, dtype=model.dtype)
    except RuntimeError as error:
        raise ConfigError(
            f"there is no memory for a cache of {num_blocks} blocks of {block_bytes} bytes; lower kv_cache_bytes"
        ) from error
    return KVTensors(keys=tensors[0], values=tensors[1])


class ModelRunner:
    """A Runner over a ForwardModel. ``num_tokens``: how many of its logits mean a token; the rest are not looked at."""

    def __init__(self, model: ForwardModel, config: EngineConfig, num_tokens: int) -> None:
        """Raises ConfigError: see ``allocate_cache``."""
        self.kv = allocate_cache(model, config)
        self._model = model
        self._num_tokens = num_tokens
        self._num_threads = config.num_threads

    @property
    def num_blocks(self) -> int:
        return self.kv.keys.shape[1]

    @torch.inference_mode()
    def run(self, step: Step, cache: KVCache, wants_logits: Sequence[bool]) -> list[RowScores]:
        """Compute a step; see ``Runner.run``."""
        if self._num_threads is not None:
            torch.set_num_threads(self._num_threads)  # it holds for the calling thread
        for copy in step.copies:
            self.kv.keys[:, copy.target] = self.kv.keys[:, copy.source]
            self.kv.values[:, copy.target] = self.kv.values[:, copy.source]
        logits = self._model.forward(_batch(step, cache), self.kv)[:, : self._num_tokens]
        rows: Floats = logits.numpy()
        best_ids = rows.argmax(axis=1)  # numpy, not torch: it promises the first of equals; a NaN counts as the largest
        best_logits = rows[np.arange(len(rows)), best_ids]
        normalisers: Floats = torch.logsumexp(logits, dim=-1).numpy()
        return [
            RowScores(
                int(best_id) if math.isfinite(best_logit) else None,
                float(best_logit - normaliser) if math.isfinite(best_logit) else math.nan,
                row if wanted else None,
            )
            for best_id, best_logit, normaliser, row, wanted in zip(
                best_ids, best_logits, normalisers, rows, wants_logits, strict=True
            )
        ]

    def close(self) -> None:
        pass


def _batch(step: Step, cache: KVCache) -> ForwardBatch:
    block_size = cache.block_size
    token_ids: list[int] = []
    positions: list[int] = []
    slots: list[int] = []
    sequences: list[SequenceSlice] = []
    logits_rows: list[int] = []
    for rows in step.rows:
        request = rows.request
        start, stop = request.num_computed_tokens, request.num_computed_tokens + rows.num_rows
        table = cache.table(request.request_id)[: cache.blocks_for(stop)]
        sequences.append(
            SequenceSlice(
                first_row=len(token_ids),
                num_rows=rows.num_rows,
                num_computed=start,
                block_table=torch.tensor(table, dtype=torch.int64),
            )
        )
        token_ids.extend(request.token_ids(start, stop))
        positions.extend(range(start, stop))
        slots.extend(
            table[position // block_size] * block_size + position % block_size for position in range(start, stop)
        )
        logits_rows.extend(range(len(token_ids) - rows.num_logits, len(token_ids)))
    return ForwardBatch(
        token_ids=torch.tensor(token_ids, dtype=torch.int64),
        positions=torch.tensor(positions, dtype=torch.int64),
        slots=torch.tensor(slots, dtype=torch.int64),
        sequences=tuple(sequences),
        logits_rows=torch.tensor(logits_rows, dtype=torch.int64),
    )
