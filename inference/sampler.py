"""From logits to the next token of each request.

Greedy takes the largest logit, the lowest id among equals. Otherwise logits are divided by the temperature, cut to the
``top_k`` largest, made into probabilities, cut to the fewest of the most probable that reach ``top_p``, and one is drawn
from what is left. Both cuts keep all that equal the last they keep, so that the order of equals does not matter.

A draw is a pure function of the request's seed and the index of the token in its answer: a counter-based generator
(Philox; Salmon et al. 2011) is keyed by them. There is no generator state, so neither the other requests of a batch nor
a preemption, which computes tokens anew without drawing them anew, can change an answer. The draw walks the candidates
in order of token id, not of probability, so that two candidates that change places by a rounding do not change it.

The log-probability that is reported is the model's own: log-softmax of the raw logits, before temperature and cuts, over
the whole vocabulary. It says how likely the model found the token, not how it was drawn.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from agentrt.inference.runner import Floats

_NUM_LIKELY = 1024

Positions = npt.NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Draw:
    """How to choose from one row. ``index``: of the token in its answer."""

    temperature: float = 0.0
    top_k: int | None = None
    top_p: float | None = None
    seed: int = 0
    index: int = 0


def log_probabilities(logits: Floats) -> Floats:
    """Return log-softmax of logits [vocab_size]. All NaN for one with a NaN, with +inf, or with -inf only."""
    largest = logits.max()
    if not math.isfinite(largest):
        return np.full_like(logits, np.nan)
    shifted = logits - largest
    logprobs: Floats = shifted - np.log(np.exp(shifted).sum(dtype=np.float64)).astype(logits.dtype)
    return logprobs


def choose(logprobs: Floats, draw: Draw) -> int | None:
    """Choose a position of ``logprobs`` [num_candidates]: a row of ``log_probabilities``, or a part of one.

    Returns None if it has no usable value.
    """
    position = int(logprobs.argmax())  # a NaN counts as the largest
    if not math.isfinite(logprobs[position]):
        return None
    return position if draw.temperature == 0 else _draw(logprobs, float(logprobs[position]), draw)


def uniform(seed: int, index: int) -> float:
    """Return the draw of token ``index`` under ``seed``, in [0, 1)."""
    return float(np.random.Generator(np.random.Philox(key=seed, counter=index)).random())


def _draw(logprobs: Floats, largest: float, draw: Draw) -> int:
    positions: Positions | None = None
    if draw.top_k is not None and draw.top_k < len(logprobs):
        threshold = np.partition(logprobs, -draw.top_k)[-draw.top_k]
        positions = np.flatnonzero(logprobs >= threshold)
        logprobs = logprobs[positions]
    # Subtracting the largest first keeps a tiny temperature from making infinities, whose difference is a NaN.
    weights = np.exp((logprobs - largest) / draw.temperature)
    if draw.top_p is not None and draw.top_p < 1:
        kept = _nucleus(weights, draw.top_p * float(weights.sum()))
        weights = weights[kept]
        positions = kept if positions is None else positions[kept]
    cumulative = weights.cumsum(dtype=np.float64)
    target = uniform(draw.seed, draw.index) * cumulative[-1]
    # The first whose cumulative weight exceeds the target: one without weight is never it.
    position = min(int(cumulative.searchsorted(target, side="right")), len(cumulative) - 1)
    return position if positions is None else int(positions[position])


def _nucleus(weights: Floats, mass: float) -> Positions:
    """Return the positions of the fewest largest weights that reach ``mass``, and of all that equal the smallest of them.

    Sorting a whole vocabulary takes milliseconds, and the nucleus is nearly always among the first thousand.
    """
    for size in (min(_NUM_LIKELY, len(weights)), len(weights)):
        likely = np.sort(np.partition(weights, len(weights) - size)[len(weights) - size :])[::-1].copy()
        cumulative = likely.cumsum(dtype=np.float64)
        if cumulative[-1] >= mass:
            break
    last = min(int(cumulative.searchsorted(mass)), len(cumulative) - 1)
    return np.flatnonzero(weights >= likely[last])
