"""Turning queries and keys by their positions, in torch."""

from __future__ import annotations

import torch


def rotate(vectors: torch.Tensor, cosines: torch.Tensor, sines: torch.Tensor) -> torch.Tensor:
    """Turn ``vectors`` [num_rows, num_heads, head_dim] by angles [num_rows, 1, head_dim / 2]; returns a new
    tensor."""
    left, right = vectors.chunk(2, dim=-1)
    turned = torch.cat((left * cosines - right * sines, right * cosines + left * sines), dim=-1)
    return turned.to(vectors.dtype)
