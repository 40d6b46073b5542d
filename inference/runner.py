"""The seam between the engine and what computes: a step goes in, scores of the next tokens come out.

Two implementations: ``model_runner`` (plain torch, the reference, any supported model) and ``cpu.runner`` (a C++ step for
processors). The engine, the scheduler and the block accounting are the same over both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from agentrt.inference.kv_cache import KVCache
from agentrt.inference.scheduler import Step

Floats = npt.NDArray[np.floating]


@dataclass(frozen=True, slots=True)
class RowScores:
    """What the model says of the token after one row.

    ``best_token_id``: the token with the largest logit, the lowest id among equals; None when a logit is NaN or +inf, or
    all are -inf. ``best_logprob``: its log-probability over the whole vocabulary. ``logits``: [vocab_size], the model's
    own, only when they were asked for; not to be changed, and valid until the next step.
    """

    best_token_id: int | None
    best_logprob: float
    logits: Floats | None = None


class Runner(Protocol):
    """Computes the steps of one model over a cache of ``num_blocks`` blocks. One thread at a time."""

    @property
    def num_blocks(self) -> int: ...

    def run(self, step: Step, cache: KVCache, wants_logits: Sequence[bool]) -> list[RowScores]:
        """Compute a step and write the cache; ``cache`` says which block is whose.

        ``wants_logits`` and the result have an entry for each row of the step that needs logits, in its order. The copies
        that the step asks for are made first.
        """
        ...

    def close(self) -> None:
        """Give back threads and memory; nothing is run after that."""
        ...
