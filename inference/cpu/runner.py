"""Steps of a ``CpuModel`` over a cache of its own: a scheduled step becomes a few integer arrays, the C++ library does the
rest, and what comes back is the best token of each row, with all logits only where they were asked for.

The call lets go of the interpreter, so the event loop runs meanwhile.
"""

from __future__ import annotations

import ctypes
import math
import os
import weakref
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt

from agentrt.errors import ConfigError
from agentrt.inference.config import EngineConfig
from agentrt.inference.cpu import library
from agentrt.inference.cpu.library import address, raise_for
from agentrt.inference.cpu.model import CpuModel
from agentrt.inference.kv_cache import KVCache
from agentrt.inference.runner import RowScores
from agentrt.inference.scheduler import Step

BLOCK_SIZE = 16
"""Tokens of a block: the lanes of one vector, see native/kernels.h."""


class CpuRunner:
    """A Runner. ``num_tokens``: how many of the model's logits mean a token."""

    def __init__(self, model: CpuModel, config: EngineConfig, num_tokens: int) -> None:
        """
        Raises:
            ConfigError: blocks of another size than 16 tokens, or not enough memory for the cache.
        """
        if config.block_size != BLOCK_SIZE:
            raise ConfigError(f"block_size is {config.block_size}; the CPU path computes blocks of {BLOCK_SIZE} tokens")
        self.num_blocks = config.num_blocks or config.kv_cache_bytes // model.block_bytes
        if self.num_blocks == 0:
            raise ConfigError(
                f"kv_cache_bytes is {config.kv_cache_bytes}; one block of {BLOCK_SIZE} tokens takes {model.block_bytes}"
            )
        self._model = model
        self._library = model.library
        self._num_tokens = num_tokens
        self._error = library.Error()
        self._cache = ctypes.c_void_p(self._library.cache_new(model.handle, self.num_blocks, self._error))
        if not self._cache:
            raise ConfigError(
                f"there is no memory for a cache of {self.num_blocks} blocks of {model.block_bytes} bytes; lower "
                "kv_cache_bytes"
            )
        self._close_cache = weakref.finalize(self, self._library.cache_free, self._cache)
        num_threads = config.num_threads or os.cpu_count() or 1
        self._stepper = ctypes.c_void_p(self._library.stepper_new(model.handle, num_threads, self._error))
        if not self._stepper:
            raise_for(self._error)
        self._close_stepper = weakref.finalize(self, self._library.stepper_free, self._stepper)

    def run(self, step: Step, cache: KVCache, wants_logits: Sequence[bool]) -> list[RowScores]:
        """Compute a step; see ``Runner.run``."""
        for copy in step.copies:
            if self._library.cache_copy(self._cache, copy.source, copy.target, self._error) != 0:
                raise_for(self._error)
        token_ids: list[int] = []
        first_rows = [0]
        num_computed: list[int] = []
        tables: list[Sequence[int]] = []
        logits_rows: list[int] = []
        for rows in step.rows:
            request = rows.request
            start, stop = request.num_computed_tokens, request.num_computed_tokens + rows.num_rows
            token_ids.extend(request.token_ids(start, stop))
            first_rows.append(len(token_ids))
            num_computed.append(start)
            tables.append(cache.table(request.request_id)[: cache.blocks_for(stop)])
            logits_rows.extend(range(len(token_ids) - rows.num_logits, len(token_ids)))
        return self.compute(token_ids, first_rows, num_computed, tables, logits_rows, wants_logits)

    def compute(
        self,
        token_ids: Sequence[int],
        first_rows: Sequence[int],
        num_computed: Sequence[int],
        tables: Sequence[Sequence[int]],
        logits_rows: Sequence[int],
        wants_logits: Sequence[bool],
    ) -> list[RowScores]:
        """Compute rows of sequences that lie one behind the other, each with its block table; see native/abi.h."""
        num_logits = len(logits_rows)
        integers = [
            _int32(token_ids),
            _int32(first_rows),
            _int32(num_computed),
            _int32([0, *accumulate(map(len, tables))]),
            _int32([block for table in tables for block in table]),
            _int32(logits_rows),
        ]
        wanted = np.array(wants_logits, np.uint8)
        logits = np.empty((int(wanted.sum()), self._num_tokens), np.float32)
        best_ids = np.empty(num_logits, np.int32)
        best_logits = np.empty(num_logits, np.float32)
        log_normalisers = np.empty(num_logits, np.float32)
        arrays: tuple[npt.NDArray[Any], ...] = (*integers, wanted, logits, best_ids, best_logits, log_normalisers)
        native = library.Step(
            len(token_ids), len(num_computed), num_logits, self._num_tokens, *(address(array) for array in arrays)
        )
        if self._library.run(self._stepper, self._cache, native, self._error) != 0:
            raise_for(self._error)
        rows = iter(logits)
        return [
            RowScores(
                best_id if math.isfinite(best_logit) and math.isfinite(normaliser) else None,
                best_logit - normaliser,
                next(rows) if is_wanted else None,
            )
            for best_id, best_logit, normaliser, is_wanted in zip(
                best_ids.tolist(), best_logits.tolist(), log_normalisers.tolist(), wants_logits, strict=True
            )
        ]

    def poison(self, block: int) -> None:
        """Overwrite a block with NaN: for tests of who reads what."""
        if self._library.cache_poison(self._cache, block, self._error) != 0:
            raise_for(self._error)

    def close(self) -> None:
        """Give back threads and memory; see ``Runner.close``."""
        self._close_stepper()
        self._close_cache()


def _int32(values: Sequence[int]) -> npt.NDArray[np.int32]:
    return np.array(values, np.int32)
