"""TTFT and ITL of one stream of tokens, never merged into one figure.

TTFT counts from the start of the model call to the first token; ITL are the gaps between consecutive tokens.
A high TTFT with a low ITL points at the network, the queue or the prefill; the other way round at the batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True, slots=True)
class TokenTiming:
    """Seconds. ``ttft_s`` is None without a token, the ITL figures without a second one."""

    num_tokens: int
    ttft_s: float | None
    itl_mean_s: float | None
    itl_p99_s: float | None

    @classmethod
    def from_times(cls, began_ns: int, times_ns: Sequence[int]) -> TokenTiming:
        """Take the figures from when the call began and when each token was delivered (same clock,
        ascending)."""
        if not times_ns:
            return cls(0, None, None, None)
        ttft_s = max(0, times_ns[0] - began_ns) / 1e9
        gaps = sorted(later - earlier for earlier, later in pairwise(times_ns))
        if not gaps:
            return cls(len(times_ns), ttft_s, None, None)
        # Nearest rank: the smallest gap that at least 99 of 100 gaps do not exceed.
        p99_ns = gaps[-(-99 * len(gaps) // 100) - 1]
        return cls(len(times_ns), ttft_s, sum(gaps) / len(gaps) / 1e9, p99_ns / 1e9)
