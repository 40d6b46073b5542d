"""What a request adds to the model's logits, or takes from them, before a token is chosen.

In this order, each as its source defines it:

- ``repetition_penalty`` θ (CTRL; Keskar et al. 2019, eq. 2, in the sign-aware form of transformers'
  ``RepetitionPenaltyLogitsProcessor``): the logit of every token that occurs in the prompt or the answer is divided by θ
  if it is positive and multiplied by θ if it is negative.
- ``frequency_penalty`` and ``presence_penalty`` (OpenAI's API reference, "Parameter details"): from a token that occurs c
  times in the answer so far, ``c * frequency_penalty`` is taken, and ``presence_penalty`` once. The prompt does not count.
- ``logit_bias`` (OpenAI's API reference): added as it is. It comes last so that -100 bans a token whatever the rest does.

Counts are kept as tokens come, so a token costs no more at the end of a long answer than what is distinct in it, in one
vectorised addition.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from agentrt.inference.runner import Floats
from agentrt.inference.sampling_params import SamplingParams


class TokenCounts:
    """How often each token occurred: ``token_ids`` [num_distinct] and, in the same order, ``counts``."""

    def __init__(self, token_ids: Iterable[int] = ()) -> None:
        self._places: dict[int, int] = {}
        self._token_ids = np.zeros(64, np.intp)
        self._counts = np.zeros(64, np.float32)
        for token_id in token_ids:
            self.add(token_id)

    @property
    def token_ids(self) -> npt.NDArray[np.intp]:
        return self._token_ids[: len(self._places)]

    @property
    def counts(self) -> npt.NDArray[np.float32]:
        return self._counts[: len(self._places)]

    def add(self, token_id: int) -> None:
        place = self._places.setdefault(token_id, len(self._places))
        if place == len(self._token_ids):
            self._token_ids = np.concatenate([self._token_ids, np.zeros_like(self._token_ids)])
            self._counts = np.concatenate([self._counts, np.zeros_like(self._counts)])
        self._token_ids[place] = token_id
        self._counts[place] += 1


class Penalties:
    """The changes one request asks for. ``add`` every token of the answer as it is chosen."""

    def __init__(self, sampling: SamplingParams, prompt_token_ids: Iterable[int]) -> None:
        self._presence = sampling.presence_penalty
        self._frequency = sampling.frequency_penalty
        self._repetition = sampling.repetition_penalty
        self._answer = TokenCounts()
        self._all = TokenCounts(prompt_token_ids if self._repetition != 1 else ())
        self._biased_ids = np.array([token_id for token_id, _ in sampling.logit_bias], np.intp)
        self._biases = np.array([bias for _, bias in sampling.logit_bias], np.float32)

    def add(self, token_id: int) -> None:
        if self._repetition != 1:
            self._all.add(token_id)
        if self._presence or self._frequency:
            self._answer.add(token_id)

    def apply(self, logits: Floats) -> Floats:
        """Return the changed logits [vocab_size]; ``logits`` stay as they are."""
        changed = logits.copy()
        if self._repetition != 1:
            found = changed[self._all.token_ids]
            changed[self._all.token_ids] = np.where(found > 0, found / self._repetition, found * self._repetition)
        if self._presence or self._frequency:
            changed[self._answer.token_ids] -= self._presence + self._frequency * self._answer.counts
        changed[self._biased_ids] += self._biases
        return changed
