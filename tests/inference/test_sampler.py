"""Choosing tokens: what each parameter keeps and cuts, and draws that nothing else can change."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrt.errors import RequestError
from agentrt.inference.answer import FreeAnswer
from agentrt.inference.request import Request
from agentrt.inference.runner import Floats, RowScores
from agentrt.inference.sampler import Draw, choose, log_probabilities, uniform
from agentrt.inference.sampling_params import SamplingParams
from agentrt.inference.stop import StopStream, StopStrings
from tests.support.tiny_model import tiny_tokenizer


def logprobs_of(*probabilities: float) -> Floats:
    with np.errstate(divide="ignore"):
        return np.log(np.array(probabilities))


def frequencies(logprobs: Floats, draw: Draw, num_draws: int = 4000) -> list[float]:
    """How often each token is drawn at the first ``num_draws`` indices of one seed."""
    counts = [0] * len(logprobs)
    for index in range(num_draws):
        chosen = choose(logprobs, Draw(draw.temperature, draw.top_k, draw.top_p, draw.seed, index))
        assert chosen is not None
        counts[chosen] += 1
    return [count / num_draws for count in counts]


def kept_tokens(logprobs: Floats, draw: Draw) -> set[int]:
    return {token for token, share in enumerate(frequencies(logprobs, draw, 400)) if share > 0}


def test_greedy_takes_the_first_of_the_largest() -> None:
    """Temperature 0 takes the largest, and of equals the lowest id, always."""
    assert choose(logprobs_of(0.2, 0.3, 0.3, 0.2), Draw()) == 1


def test_draws_follow_the_probabilities() -> None:
    """At temperature 1 tokens are drawn as often as the model says."""
    shares = frequencies(logprobs_of(0.5, 0.0, 0.3, 0.2), Draw(temperature=1.0))
    assert shares == pytest.approx([0.5, 0.0, 0.3, 0.2], abs=0.03)


def test_temperature_sharpens_and_flattens() -> None:
    """Temperature T draws by the T-th root of the probabilities."""
    for temperature in (0.5, 2.0):
        weights = np.array([0.6, 0.3, 0.1]) ** (1 / temperature)
        shares = frequencies(logprobs_of(0.6, 0.3, 0.1), Draw(temperature=temperature))
        assert shares == pytest.approx((weights / weights.sum()).tolist(), abs=0.03)


@pytest.mark.parametrize(
    ("draw", "kept"),
    [
        (Draw(temperature=1.0), {0, 1, 2, 3}),
        (Draw(temperature=1.0, top_k=1), {1}),
        (Draw(temperature=1.0, top_k=2), {1, 3}),
        (Draw(temperature=1.0, top_k=99), {0, 1, 2, 3}),
        (Draw(temperature=1.0, top_p=0.4), {1}),
        (Draw(temperature=1.0, top_p=0.41), {1, 3}),
        (Draw(temperature=1.0, top_p=0.71), {0, 1, 3}),
        (Draw(temperature=1.0, top_p=1.0), {0, 1, 2, 3}),
        (Draw(temperature=1.0, top_k=2, top_p=0.57), {1}),
        (Draw(temperature=1.0, top_k=2, top_p=0.58), {1, 3}),
    ],
)
def test_cuts_keep_the_most_probable(draw: Draw, kept: set[int]) -> None:
    """top_k keeps that many; top_p the fewest that reach it, of what top_k left; the token that reaches it included."""
    assert kept_tokens(logprobs_of(0.2, 0.4, 0.1, 0.3), draw) == kept


def test_top_k_keeps_all_equals_of_the_last() -> None:
    """Tokens as probable as the k-th are kept too, so that which of them survive is not left to chance."""
    assert kept_tokens(logprobs_of(0.2, 0.4, 0.2, 0.2), Draw(temperature=1.0, top_k=2)) == {0, 1, 2, 3}


@given(
    logits=st.lists(st.floats(-8, 8), min_size=1, max_size=40),
    temperature=st.floats(0.1, 5),
    top_k=st.none() | st.integers(1, 50),
    top_p=st.none() | st.floats(0.01, 1.0),
    seed=st.integers(0, 2**64 - 1),
    index=st.integers(0, 1000),
)
def test_a_draw_is_the_inverse_of_the_kept_distribution(
    logits: list[float], temperature: float, top_k: int | None, top_p: float | None, seed: int, index: int
) -> None:
    """Against the definition written with plain loops: cut, renormalise, walk in order of id until the draw is passed."""
    logprobs = log_probabilities(np.array(logits, np.float64))
    weights = [math.exp((value - max(logprobs)) / temperature) for value in logprobs]
    if top_k is not None:
        threshold = sorted(weights, reverse=True)[min(top_k, len(weights)) - 1]
        weights = [weight if weight >= threshold else 0.0 for weight in weights]
    if top_p is not None:
        mass, total, last = top_p * sum(weights), 0.0, max(weights)
        for weight in sorted(weights, reverse=True):
            if total >= mass * (1 - 1e-12):
                break
            last = weight
            total += weight
        weights = [weight if weight >= last else 0.0 for weight in weights]
    target, total = uniform(seed, index) * sum(weights), 0.0
    borders = []
    for token, weight in enumerate(weights):
        total += weight
        borders.append((total, token))
    # Sums that are added up in another order differ by a rounding: near a border both of its sides are right.
    expected = {token for border, token in borders if weights[token] and abs(border - target) < 1e-9 * total}
    expected.add(next((token for border, token in borders if border > target), borders[-1][1]))
    assert choose(logprobs, Draw(temperature, top_k, top_p, seed, index)) in expected


def test_a_nucleus_wider_than_a_thousand_tokens_is_whole() -> None:
    """A flat distribution over a large vocabulary keeps as many tokens as top_p takes, not only the first thousand."""
    generator = np.random.default_rng(0)
    logprobs = log_probabilities(generator.normal(0, 0.01, 4000))
    drawn = {choose(logprobs, Draw(1.0, top_p=0.9, seed=1, index=index)) for index in range(300)}
    most_probable = np.argsort(-logprobs)
    ranks = {int(token): rank for rank, token in enumerate(most_probable)}
    assert max(ranks[token] for token in drawn if token is not None) > 2500
    assert max(ranks[token] for token in drawn if token is not None) < 3620


def test_the_same_seed_and_index_draw_the_same() -> None:
    """A draw depends on seed and index alone; either makes another draw."""
    assert uniform(7, 3) == uniform(7, 3)
    draws = {uniform(seed, index) for seed in (0, 1, 2**64 - 1) for index in range(100)}
    assert len(draws) == 300
    assert all(0 <= draw < 1 for draw in draws)


def test_every_token_of_an_answer_is_drawn_anew() -> None:
    """The index of a draw is the token's place in the answer: a flat model does not repeat one token."""
    tokenizer = tiny_tokenizer()
    request = Request(0, (1,), SamplingParams(max_tokens=20), arrival_s=0.0)
    answer = FreeAnswer(request, Draw(1.0, seed=5), tokenizer, StopStream(StopStrings(())))
    flat = logprobs_of(*[1 / 256] * 256)
    scores = RowScores(0, 0.0, flat)
    tokens = [answer.advance(scores)[0].token_id for _ in range(20)]
    assert tokens == [int(uniform(5, index) * 256) for index in range(20)]


@pytest.mark.parametrize("temperature", [1e-300, 1e-6])
def test_a_tiny_temperature_is_greedy(temperature: float) -> None:
    """The smallest temperatures overflow nothing; they draw the largest."""
    assert choose(logprobs_of(0.2, 0.5, 0.3), Draw(temperature=temperature)) == 1


@pytest.mark.parametrize("row", [[math.nan, 1.0], [1.0, math.nan], [math.inf, 1.0], [-math.inf, -math.inf]])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_logits_that_are_not_numbers_choose_nothing(row: list[float], temperature: float) -> None:
    """A row with a NaN, an infinity, or nothing possible gives no token; an ordinary one does."""
    assert choose(log_probabilities(np.array(row)), Draw(temperature=temperature)) is None
    logprobs = log_probabilities(np.array([0.0, 3.0]))
    assert choose(logprobs, Draw()) == 1
    assert logprobs.tolist() == pytest.approx([-3.0486, -0.0486], abs=1e-4)


def test_impossible_tokens_are_never_drawn() -> None:
    """A logit of -inf is a token that cannot be; whatever the temperature, it is not drawn."""
    logprobs = log_probabilities(np.array([-math.inf, 0.0, -math.inf, 0.0, -math.inf]))
    assert kept_tokens(logprobs, Draw(temperature=100.0)) == {1, 3}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("max_tokens", 0),
        ("max_tokens", -1),
        ("max_tokens", True),
        ("max_tokens", 1.0),
        ("max_tokens", None),
        ("max_tokens", 10**30),
        ("temperature", -0.1),
        ("temperature", math.nan),
        ("temperature", math.inf),
        ("temperature", True),
        ("temperature", "hot"),
        ("temperature", None),
        ("temperature", 10**400),
        ("top_k", 0),
        ("top_k", -1),
        ("top_k", 1.5),
        ("top_k", False),
        ("top_p", 0),
        ("top_p", 1.01),
        ("top_p", math.nan),
        ("top_p", True),
        ("seed", -1),
        ("seed", 2**64),
        ("seed", "1"),
        ("stop", "END"),
        ("stop", [""]),
        ("stop", [1]),
        ("stop", ["x"] * 65),
        ("stop", ["x" * 1025]),
        ("stop", ["\ud800"]),
        ("stop", None),
        ("choices", "yes"),
        ("choices", ["yes", ""]),
        ("choices", [None]),
        ("choices", ["\udfff"]),
        ("choices", ["x"] * 1025),
        ("choices", ["y" * 20_000]),
    ],
)
def test_a_value_that_cannot_be_served_is_refused_by_name(field: str, value: object) -> None:
    """Every malformed parameter is a RequestError that names the field in its text and in ``field``."""
    with pytest.raises(RequestError, match=field) as raised:
        SamplingParams(**{field: value})  # type: ignore[arg-type]
    assert raised.value.field == field


def test_lists_become_tuples_without_repetition() -> None:
    """Lists are taken for tuples, and what is there twice is there once."""
    params = SamplingParams(stop=["a", "b", "a"], choices=["x", "x"])  # type: ignore[arg-type]
    assert (params.stop, params.choices) == (("a", "b"), ("x",))
