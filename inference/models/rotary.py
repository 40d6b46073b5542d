"""Rotary position embedding (Su et al., 2021) in its half-split form, with the scalings that Llama files
state.

Angles are computed in float64 from the position, a token's own and never a table's, so that a context of any
length costs no memory and chunks of a prompt see the very same angles as the whole.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch


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

    def frequencies(self) -> torch.Tensor:
        """Return radians a position: [head_dim / 2], float64."""
        exponents = torch.arange(0, self.head_dim, 2, dtype=torch.float64) / self.head_dim
        frequencies = self.theta**-exponents / self.linear_factor
        if self.divisors:
            frequencies = frequencies / torch.tensor(self.divisors, dtype=torch.float64)
        return frequencies if self.llama3 is None else _stretched(frequencies, self.llama3)


def _stretched(frequencies: torch.Tensor, scaling: Llama3Scaling) -> torch.Tensor:
    turns = frequencies * scaling.original_context_tokens / (2 * math.pi)
    kept = (turns - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor)
    kept = kept.clamp(0.0, 1.0)
    return frequencies * (kept + (1.0 - kept) / scaling.factor)


def rotate(vectors: torch.Tensor, cosines: torch.Tensor, sines: torch.Tensor) -> torch.Tensor:
    """Turn ``vectors`` [num_rows, num_heads, head_dim] by angles [num_rows, 1, head_dim / 2]; returns a new
    tensor."""
    left, right = vectors.chunk(2, dim=-1)
    turned = torch.cat((left * cosines - right * sines, right * cosines + left * sines), dim=-1)
    return turned.to(vectors.dtype)
