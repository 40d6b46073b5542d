"""How long a step takes, learned from steps, and so how many prompt rows the next one may have.

What a running stream waits for its next token is the length of the step. A fixed number of prompt rows bounds it for one
machine, one model and one context length only (128 rows gave 65-83 ms where 40 were wanted); so the bound is a time, and
the rows follow from it, as in Sarathi-Serve (Agrawal et al. 2024), but learned while serving instead of profiled before.

The model: ``seconds = a + b * decode rows + c * prompt rows + d * pairs``, where pairs are (row, token it attends to).
All four are costs, so none is negative; without that bound noise makes one negative, and then some chunk looks free.
They are fitted by least squares over what was seen, by these rules:

- **Relative errors.** A step of 2 ms and one of 200 ms say as much of the coefficients; weights are 1 / predicted time^2.
- **Forgetting by kind.** The newest ``MEMORY`` steps or so count, but steps with prompt rows are forgotten only for others
  of their kind: an hour of pure decoding must not erase what is known of prompts.
- **Outliers are cut.** A time above ``MAX_SURPRISE`` times (or below that part of) the prediction counts as that. A step
  that took ten times as long, as the machine was busy, moves the estimate by some percent; a machine that became ten times
  slower is believed after a few dozen steps.
- **Small steps up.** No more than twice the rows of the largest chunk of late: the model is not trusted far from what it
  has seen. From the first 64 rows to 512 these are three steps.
- **A margin.** The rows are cut so that the prediction, increased by twice the usual error, is within the target.

At least ``min_rows`` are always given: however slow the machine is, prompts get done, and their steps keep teaching. That
is also what ends an overestimate: the rows never reach a number from which nothing more is learned.

Pure: no clock, no tensors; four numbers and two 4 x 4 sums.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

MEMORY = 40
MAX_SURPRISE = 2.0
FIRST_ROWS = 64
MAX_MARGIN = 1.5
_SCALES = (1.0, 8.0, 64.0, 64.0 * 512.0)
"""What makes the four features about 1 in an ordinary step, so that one small ridge fits all."""
_FIRST_GUESS = (0.002, 0.004, 0.016, 0.001)
"""Seconds for one scale of each: two cores, 135 M parameters in 4 bits. Outweighed by a handful of steps."""
_RIDGE = 1e-3


@dataclass(frozen=True, slots=True)
class StepLoad:
    """What a step has to compute. ``num_pairs``: over all rows, the tokens that each attends to, itself included."""

    decode_rows: int = 0
    prefill_rows: int = 0
    num_pairs: int = 0


class StepTime:
    """Learns from ``observe``; answers ``max_prefill_rows``."""

    def __init__(self, *, itl_target_s: float, max_rows: int, min_rows: int = 16) -> None:
        """``max_rows``: the prompt rows of a step for which no stream waits, and at most of any."""
        self._target_s = itl_target_s
        self._max_rows = max_rows
        self._min_rows = min(min_rows, max_rows)
        self._costs = list(_FIRST_GUESS)
        # For steps without and with prompt rows: the sums of weight * x * x^T and weight * x * seconds.
        self._squares = [[[0.0] * 4 for _ in range(4)] for _ in range(2)]
        self._products = [[0.0] * 4 for _ in range(2)]
        self._usual_error = 0.1
        self._largest_chunk = FIRST_ROWS / 2

    def observe(self, load: StepLoad, seconds: float) -> None:
        """Learn that a step took so long. A time that is none (not finite, or not above 0) is ignored."""
        if not (math.isfinite(seconds) and seconds > 0):
            return
        x = _features(load)
        predicted_s = self.predict_s(load)
        believed_s = min(max(seconds, predicted_s / MAX_SURPRISE), predicted_s * MAX_SURPRISE)
        self._usual_error += (abs(believed_s / predicted_s - 1) - self._usual_error) / MEMORY
        if load.prefill_rows:
            faded = self._largest_chunk * (1 - 1 / MEMORY)
            self._largest_chunk = max(faded, min(load.prefill_rows, 2 * self._largest_chunk))
        kind = int(load.prefill_rows > 0)
        weight = 1 / predicted_s**2
        for squares, products in zip(self._squares[: kind + 1], self._products[: kind + 1], strict=True):
            for row in range(4):
                products[row] *= 1 - 1 / MEMORY
                for column in range(4):
                    squares[row][column] *= 1 - 1 / MEMORY
        squares, products = self._squares[kind], self._products[kind]
        for row in range(4):
            products[row] += weight * x[row] * believed_s
            for column in range(4):
                squares[row][column] += weight * x[row] * x[column]
        self._fit()

    def predict_s(self, load: StepLoad) -> float:
        """Return the expected length of a step; always above 0."""
        seconds = sum(cost * value for cost, value in zip(self._costs, _features(load), strict=True))
        return max(seconds, 1e-6)

    def max_prefill_rows(self, decodes: StepLoad, *, context_tokens: int = 0) -> int:
        """Return how many prompt rows may stand beside ``decodes`` so that its streams get their tokens in time.

        ``context_tokens``: how many tokens stand before the prompt rows; the most of the prompts in progress.
        """
        if decodes.decode_rows == 0:
            return self._max_rows
        margin = min(MAX_MARGIN, 1 + 2 * self._usual_error)
        left_s = self._target_s / margin - self.predict_s(decodes)
        if left_s <= 0:
            return self._min_rows
        # Row n of a chunk attends to context_tokens + n tokens, so the time is pair_s / 2 * rows^2 + row_s * rows.
        pair_s = self._costs[3] / _SCALES[3]
        row_s = self._costs[2] / _SCALES[2] + pair_s * context_tokens
        per_row_s = (row_s + math.sqrt(row_s * row_s + 2 * pair_s * left_s)) / 2
        rows = left_s / per_row_s if per_row_s > 0 else math.inf
        return int(max(self._min_rows, min(rows, 2 * self._largest_chunk, self._max_rows)))

    def _fit(self) -> None:
        """Solve the least squares with costs >= 0: exactly, without the costs that come out negative.

        Steps beside the same streams all look alike, so fixed time and time for rows can hardly be told apart, and descent
        along one cost after the other, which would be simpler, is still far off when it stops.
        """
        ridge = [_RIDGE / guess**2 for guess in _FIRST_GUESS]
        totals = [sum(p) + r * guess for *p, r, guess in zip(*self._products, ridge, _FIRST_GUESS, strict=True)]
        squares = [[one + other for one, other in zip(*rows, strict=True)] for rows in zip(*self._squares, strict=True)]
        for index in range(4):
            squares[index][index] += ridge[index]
        used = [0, 1, 2, 3]
        while used:
            costs = _solve([[*(squares[row][column] for column in used), totals[row]] for row in used])
            lowest = min(costs)
            if lowest >= 0:
                break
            del used[costs.index(lowest)]
        self._costs = [costs[used.index(index)] if index in used else 0.0 for index in range(4)]


def _solve(rows: list[list[float]]) -> list[float]:
    """Solve linear equations, each row a left side and its right side, by elimination; symmetric and positive definite."""
    size = len(rows)
    for index, row in enumerate(rows):
        for below in rows[index + 1 :]:
            factor = below[index] / row[index]
            for column in range(index, size + 1):
                below[column] -= factor * row[column]
    for index in range(size - 1, -1, -1):
        row = rows[index]
        row[size] = (row[size] - sum(row[other] * rows[other][size] for other in range(index + 1, size))) / row[index]
    return [row[size] for row in rows]


def _features(load: StepLoad) -> tuple[float, float, float, float]:
    return (
        1.0,
        load.decode_rows / _SCALES[1],
        load.prefill_rows / _SCALES[2],
        load.num_pairs / _SCALES[3],
    )
