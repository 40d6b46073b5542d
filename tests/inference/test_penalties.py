"""Penalties and bias: what each takes from the logits, by the definition of its source."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrt.inference.penalties import Penalties, TokenCounts
from agentrt.inference.sampling_params import SamplingParams

VOCAB_SIZE = 8
token_lists = st.lists(st.integers(0, VOCAB_SIZE - 1), max_size=30)


@given(
    logits=st.lists(st.floats(-20, 20), min_size=VOCAB_SIZE, max_size=VOCAB_SIZE),
    prompt=token_lists,
    answer=token_lists,
    presence=st.floats(-2, 2),
    frequency=st.floats(-2, 2),
    repetition=st.just(1.0) | st.floats(0.1, 5),
    bias=st.dictionaries(st.integers(0, VOCAB_SIZE - 1), st.floats(-100, 100), max_size=3),
)
def test_the_changes_are_those_of_the_definitions(
    logits: list[float],
    prompt: list[int],
    answer: list[int],
    presence: float,
    frequency: float,
    repetition: float,
    bias: dict[int, float],
) -> None:
    """Against the formulas written out for each token: repetition over prompt and answer, counts over the answer alone,
    bias last; the model's own logits stay as they are."""
    sampling = SamplingParams(
        presence_penalty=presence,
        frequency_penalty=frequency,
        repetition_penalty=repetition,
        logit_bias=bias,  # type: ignore[arg-type]
    )
    penalties = Penalties(sampling, prompt)
    for token in answer:
        penalties.add(token)
    row = np.array(logits)
    changed = penalties.apply(row)
    for token, value in enumerate(logits):
        if token in prompt or token in answer:
            value = value / repetition if value > 0 else value * repetition
        count = answer.count(token)
        value -= count * frequency + (count > 0) * presence
        assert changed[token] == pytest.approx(value + bias.get(token, 0.0), abs=1e-4)
    assert row.tolist() == logits


def test_an_impossible_token_stays_impossible() -> None:
    """A logit of -inf is one whatever is done to it, and no NaN comes of it."""
    penalties = Penalties(
        SamplingParams(presence_penalty=-2.0, repetition_penalty=2.0, logit_bias=((0, 100.0),)), prompt_token_ids=[0]
    )
    penalties.add(0)
    assert penalties.apply(np.array([-np.inf, 1.0], np.float32)).tolist() == [-np.inf, 1.0]


def test_counts_grow_past_any_size() -> None:
    """Many distinct tokens are counted each on its own."""
    counts = TokenCounts([*range(500), *range(0, 500, 2), 7])
    expected = {token: 1 + (token % 2 == 0) + (token == 7) for token in range(500)}
    assert dict(zip(counts.token_ids.tolist(), counts.counts.tolist(), strict=True)) == expected
