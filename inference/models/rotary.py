"""Rotary position embedding (Su et al., 2021) in its half-split form, with the scalings that Llama files
state.

Angles are computed in float64 from the position, a token's own and never a table's, so that a context of any
length costs no memory and chunks of a prompt see the very same angles as the whole.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class Llama3Scaling:
    """Llama 3.1's: slow waves are stretched by ``factor``, fast ones kept, those between blended."""

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_context_tokens: int


@dataclass(frozen=True, slots=True)
class Rotary:
    """``divisors``: a number to divide each frequency by, as GGUF files store a scaling; () for none."""

    head_dim: int
    theta: float
    linear_factor: float = 1.0
    llama3: Llama3Scaling | None = None
    divisors: tuple[float, ...] = ()

    def frequencies(self) -> npt.NDArray[np.float64]:
        """Return radians a position: [head_dim / 2]."""
        exponents = np.arange(0, self.head_dim, 2, dtype=np.float64) / self.head_dim
        frequencies = self.theta**-exponents / self.linear_factor
        if self.divisors:
            frequencies = frequencies / np.array(self.divisors, np.float64)
        return frequencies if self.llama3 is None else _stretched(frequencies, self.llama3)


def _stretched(frequencies: npt.NDArray[np.float64], scaling: Llama3Scaling) -> npt.NDArray[np.float64]:
    turns = frequencies * scaling.original_context_tokens / (2 * math.pi)
    kept = (turns - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor)
    kept = kept.clip(0.0, 1.0)
    return frequencies * (kept + (1.0 - kept) / scaling.factor)
