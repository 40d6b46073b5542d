"""From logits to the next token of each request.

Greedy takes the largest logit, the lowest id among equals. Otherwise logits are divided by the temperature and made into
probabilities, cut to those of at least ``min_p`` times the largest, cut to the ``top_k`` largest, cut to the fewest of the
most probable that reach ``top_p`` of what is left, and one is drawn from the rest. The cuts keep all that equal the last
they keep, so that the order of equals does not matter. The order of the cuts is vLLM's; ``min_p`` is that of Nguyen et al.
2024.

A draw is a pure function of the request's seed and the index of the token in its answer: a counter-based generator
(Philox; Salmon et al. 2011) is keyed by them. There is no generator state, so neither the other requests of a batch nor
a preemption, which computes tokens anew without drawing them anew, can change an answer. The draw walks the candidates
in order of token id, not of probability, so that two candidates that change places by a rounding do not change it.

The log-probability that is reported is the model's own: log-softmax of the raw logits, before penalties, temperature and
cuts, over the whole vocabulary. It says how likely the model found the token, not how it was drawn.

Speed. Nothing sorts, partitions or adds up one by one what is as long as a vocabulary. A bound found in a vectorised pass
leaves a few candidates that provably hold the answer, and the exact rule is applied to those:

- the k-th largest of the maxima of many groups is at most the k-th largest of all;
- what is at least (1 - top_p) * total / 64 heavy nearly always holds the nucleus, and its sum tells whether it does; else
  halves are told apart, not sorted, until few are left;
- a walk over sums of blocks ends in one block.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from agentrt.inference.runner import Floats

_FEW = 2048
"""Candidates that are handled in the plain way: below this, bounds cost more than they save."""
_BLOCK = 256
_NARROWING = 64.0
_LOWEST_TEMPERATURE = 1e-30
"""Greedy but for exact equals, as everything below it is; what is smaller would be 0 in 32 bits."""

Positions = npt.NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Draw:
    """How to choose from one row. ``index``: of the token in its answer."""

    temperature: float = 0.0
    top_k: int | None = None
    top_p: float | None = None
    seed: int = 0
    index: int = 0
    min_p: float | None = None


def log_probabilities(logits: Floats) -> Floats:
    """Return log-softmax of logits [vocab_size]. All NaN for one with a NaN, with +inf, or with -inf only."""
    largest = logits.max()
    if not math.isfinite(largest):
        return np.full_like(logits, np.nan)
    shifted = logits - largest
    logprobs: Floats = shifted - np.log(np.exp(shifted).sum(dtype=np.float64)).astype(logits.dtype)
    return logprobs


def choose(logits: Floats, draw: Draw) -> int | None:
    """Choose a position of ``logits`` [num_candidates], which may be shifted by any constant, as log-probabilities are.

    Returns None if it has no usable value.
    """
    position = int(logits.argmax())  # a NaN counts as the largest
    largest = float(logits[position])
    if not math.isfinite(largest):
        return None
    return position if draw.temperature == 0 else _draw(logits, largest, draw)


def most_probable(logits: Floats, count: int) -> list[int]:
    """Return the ``count`` positions with the largest logits, the largest first, of equals the lowest position."""
    if count == 0:
        return []
    positions = _largest(logits, count) if count < len(logits) else np.arange(len(logits))
    order = np.lexsort((positions, -logits[positions]))
    found: list[int] = positions[order[:count]].tolist()
    return found


def uniform(seed: int, index: int) -> float:
    """Return the draw of token ``index`` under ``seed``, in [0, 1)."""
    return float(np.random.Generator(np.random.Philox(key=seed, counter=index)).random())


def _draw(logits: Floats, largest: float, draw: Draw) -> int:
    positions: Positions | None = None
    if draw.min_p is not None and draw.min_p > 0:
        positions = np.flatnonzero(logits >= largest + draw.temperature * math.log(draw.min_p))
        logits = logits[positions]
    if draw.top_k is not None and draw.top_k < len(logits):
        kept = _largest(logits, draw.top_k)
        logits = logits[kept]
        positions = kept if positions is None else positions[kept]
    # Subtracting the largest first keeps a tiny temperature from making infinities, whose difference is a NaN.
    weights: Floats = logits - logits.dtype.type(largest)
    if draw.temperature != 1:
        weights /= max(draw.temperature, _LOWEST_TEMPERATURE)
    np.exp(weights, out=weights)
    if draw.top_p is not None and draw.top_p < 1:
        weights, candidates = _nucleus(weights, draw.top_p)
        if candidates is not None:
            positions = candidates if positions is None else positions[candidates]
    position = _walk(weights, uniform(draw.seed, draw.index))
    return position if positions is None else int(positions[position])


def _largest(values: Floats, count: int) -> Positions:
    """Return the positions of the ``count`` largest, fewer than all, and of what equals the smallest of them, in order."""
    num_groups = max(8 * count, 512)
    if len(values) < 4 * num_groups:
        return np.flatnonzero(values >= _nth_largest(values, count))
    rows = len(values) // num_groups
    maxima = values[: rows * num_groups].reshape(rows, num_groups).max(axis=0)
    candidates = np.flatnonzero(values >= _nth_largest(maxima, count))
    found = values[candidates]
    kept: Positions = candidates[np.flatnonzero(found >= _nth_largest(found, count))]
    return kept


def _nth_largest(values: Floats, count: int) -> np.floating:
    place = len(values) - count
    found: np.floating = np.partition(values, place)[place]
    return found


def _nucleus(weights: Floats, top_p: float) -> tuple[Floats, Positions | None]:
    """Cut to the fewest largest weights that reach ``top_p`` of all, and to all that equal the smallest of them.

    Returns weights with 0 for what is cut off, and where they stand in ``weights``; None: where they stood.
    """
    total = _sum(weights)
    mass = top_p * total
    if len(weights) > _FEW:
        candidates = np.flatnonzero(weights >= (total - mass) / _NARROWING)
        found = weights[candidates]
        if _sum(found) >= mass * (1 + 1e-6):  # beyond what rounding could make of it
            return found * (found >= _lightest(found, mass)), candidates
    return weights * (weights >= _lightest(weights, mass)), None


def _lightest(weights: Floats, mass: float) -> np.floating:
    """Return the smallest of the fewest largest weights that reach ``mass``."""
    ordered = weights.copy()  # one buffer, halved in place: larger ones are paid for by the page
    low, high = 0, len(ordered)
    while high - low > _FEW:
        middle = (low + high) // 2
        ordered[low:high].partition(middle - low)
        upper = _sum(ordered[middle:high])
        if upper >= mass:
            low = middle
        else:
            mass -= upper
            high = middle
    likely = np.sort(ordered[low:high])[::-1]
    cumulative = likely.cumsum(dtype=np.float64)
    found: np.floating = likely[min(int(cumulative.searchsorted(mass)), len(likely) - 1)]
    return found


def _walk(weights: Floats, share: float) -> int:
    """Return the first position at which the cumulative weight exceeds ``share`` of all; it has a weight itself."""
    if len(weights) <= _FEW:
        return _passed(weights.cumsum(dtype=np.float64), share)
    sums = _block_sums(weights)
    cumulative = sums.cumsum()
    block = _passed(cumulative, share)
    target = share * cumulative[-1] - (cumulative[block - 1] if block else 0.0)
    inside = weights[block * _BLOCK : (block + 1) * _BLOCK].cumsum(dtype=np.float64)
    return block * _BLOCK + _passed(inside, max(0.0, float(target / sums[block])))


def _passed(cumulative: npt.NDArray[np.float64], share: float) -> int:
    position = int(cumulative.searchsorted(share * cumulative[-1], side="right"))
    # By a rounding nothing may be left to exceed; the last that added something is meant.
    return position if position < len(cumulative) else int(cumulative.searchsorted(cumulative[-1]))


def _block_sums(weights: Floats) -> npt.NDArray[np.float64]:
    num_whole = len(weights) // _BLOCK
    sums = weights[: num_whole * _BLOCK].reshape(num_whole, _BLOCK).sum(axis=1).astype(np.float64)
    rest = weights[num_whole * _BLOCK :]
    return np.append(sums, rest.sum()) if len(rest) else sums


def _sum(weights: Floats) -> float:
    return float(_block_sums(weights).sum())
