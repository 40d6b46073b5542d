"""Choosing tokens: what each parameter keeps and cuts, and draws that nothing else can change."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentrt.errors import RequestError
from agentrt.inference.answer import FreeAnswer
from agentrt.inference.grammar import Grammar
from agentrt.inference.request import Request
from agentrt.inference.runner import Floats, RowScores
from agentrt.inference.sampler import Draw, choose, log_probabilities, most_probable, uniform
from agentrt.inference.sampling_params import SamplingParams, seed_of_sample
from agentrt.inference.stop import StopStream, StopStrings
from tests.support.tiny_model import tiny_tokenizer


def logprobs_of(*probabilities: float) -> Floats:
    with np.errstate(divide="ignore"):
        return np.log(np.array(probabilities))


def frequencies(logprobs: Floats, draw: Draw, num_draws: int = 4000) -> list[float]:
    """How often each token is drawn at the first ``num_draws`` indices of one seed."""
    counts = [0] * len(logprobs)
    for index in range(num_draws):
        chosen = choose(logprobs, replace(draw, index=index))
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


def expected_tokens(logits: Floats, draw: Draw, tolerance: float) -> set[int]:
    """The definition written with plain loops: cut, renormalise, walk in order of id until the draw is passed.

    Sums that are added up in another order differ by a rounding: near a border both of its sides are right.
    """
    values, top_k, top_p = logits.astype(np.float64).tolist(), draw.top_k, draw.top_p
    weights = [math.exp((value - max(values)) / draw.temperature) for value in values]
    if draw.min_p is not None:
        weights = [weight if weight >= draw.min_p * (1 - tolerance) else 0.0 for weight in weights]
    if top_k is not None:
        threshold = sorted(weights, reverse=True)[min(top_k, len(weights)) - 1]
        weights = [weight if weight >= threshold else 0.0 for weight in weights]
    if top_p is not None:
        mass, total, last = top_p * sum(weights), 0.0, max(weights)
        for weight in sorted(weights, reverse=True):
            if total >= mass * (1 - tolerance / 1000):
                break
            last = weight
            total += weight
        weights = [weight if weight >= last * (1 - tolerance) else 0.0 for weight in weights]
    target, total = uniform(draw.seed, draw.index) * sum(weights), 0.0
    borders = []
    for token, weight in enumerate(weights):
        total += weight
        borders.append((total, token))
    expected = {token for border, token in borders if weights[token] and abs(border - target) < tolerance * total}
    following = next((number for number, (border, _) in enumerate(borders) if border > target), len(borders) - 1)
    expected.add(following)
    if abs(borders[following][0] - target) < tolerance * total:
        expected.add(next((token for _, token in borders[following + 1 :] if weights[token]), following))
    return expected


draws = st.builds(
    Draw,
    temperature=st.floats(0.1, 5),
    top_k=st.none() | st.integers(1, 50),
    top_p=st.none() | st.floats(0.01, 1.0),
    seed=st.integers(0, 2**64 - 1),
    index=st.integers(0, 1000),
    min_p=st.none() | st.floats(0.001, 1.0),
)


@given(logits=st.lists(st.floats(-8, 8), min_size=1, max_size=40), draw=draws)
def test_a_draw_is_the_inverse_of_the_kept_distribution(logits: list[float], draw: Draw) -> None:
    """Against the definition; shifting all logits, as a log-softmax does, changes nothing."""
    row = np.array(logits, np.float64)
    expected = expected_tokens(row, draw, 1e-9)
    assert choose(row, draw) in expected
    assert choose(log_probabilities(row), draw) in expected


@settings(max_examples=100, deadline=None)
@given(
    num_tokens=st.integers(2000, 9000),
    spread=st.sampled_from([0.01, 1.0, 3.0, 10.0]),
    dtype=st.sampled_from([np.float32, np.float64]),
    noise=st.integers(0, 2**32),
    is_rounded=st.booleans(),
    draw=draws,
)
def test_the_bounds_that_save_work_change_no_draw(
    num_tokens: int, spread: float, dtype: type[np.floating], noise: int, is_rounded: bool, draw: Draw
) -> None:
    """Flat and peaked vocabularies, with many equals and without, too large for the plain way: the same draws."""
    row = (np.random.default_rng(noise).normal(0, spread, num_tokens)).astype(dtype)
    if is_rounded:
        row = row.round(1)
    assert choose(row, draw) in expected_tokens(row, draw, 3e-5 if dtype is np.float32 else 1e-9)


@given(
    num_tokens=st.integers(1, 6000),
    count=st.integers(0, 20),
    noise=st.integers(0, 2**32),
    num_digits=st.integers(0, 3),
)
def test_the_most_probable_are_those_of_a_sort(num_tokens: int, count: int, noise: int, num_digits: int) -> None:
    """The largest first, of equals the lowest id; all of them when there are fewer than asked for."""
    row = np.random.default_rng(noise).normal(0, 1, num_tokens).round(num_digits).astype(np.float32)
    assert most_probable(row, count) == sorted(range(num_tokens), key=lambda token: (-row[token], token))[:count]


@pytest.mark.parametrize(("min_p", "kept"), [(0.0, {0, 1, 2, 3}), (0.3, {0, 1, 3}), (0.6, {1, 3}), (1.0, {1})])
def test_min_p_keeps_what_is_probable_enough(min_p: float, kept: set[int]) -> None:
    """Tokens of at least ``min_p`` times the largest probability are kept."""
    assert kept_tokens(logprobs_of(0.2, 0.4, 0.1, 0.3), Draw(temperature=1.0, min_p=min_p)) == kept


def test_a_tiny_temperature_is_greedy_in_32_bits_too() -> None:
    """No temperature, however small, divides by zero or makes a NaN."""
    row = np.array([1.0, 1.5, -np.inf, 1.4], np.float32)
    for temperature in (1e-300, 1e-40, 1e-12):
        for draw in (Draw(temperature), Draw(temperature, top_p=0.5), Draw(temperature, min_p=0.5)):
            assert choose(row, draw) == 1


def test_each_sample_of_a_request_has_a_seed_of_its_own() -> None:
    """Sample 0 has the request's seed; the others have seeds that meet neither each other nor those of other requests,
    always the same ones; without a seed there is none."""
    seeds = {seed_of_sample(seed, sample) for seed in (0, 1, 2, 2**64 - 1) for sample in range(200)}
    assert len(seeds) == 800
    assert all(seed is not None and SamplingParams(seed=seed).seed == seed for seed in seeds)
    assert [seed_of_sample(7, 0), seed_of_sample(7, 1), seed_of_sample(None, 3)] == [7, 5_065_644_779_451_256_849, None]


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
        ("min_p", -0.1),
        ("min_p", math.nan),
        ("presence_penalty", 2.1),
        ("presence_penalty", None),
        ("frequency_penalty", -2.1),
        ("frequency_penalty", math.nan),
        ("repetition_penalty", 0),
        ("repetition_penalty", math.inf),
        ("logit_bias", {3: 101}),
        ("logit_bias", {3: math.nan}),
        ("logit_bias", {"3": 1}),
        ("logit_bias", {-1: 1}),
        ("logit_bias", {True: 1}),
        ("logit_bias", [1, 2]),
        ("logit_bias", 5),
        ("logit_bias", dict.fromkeys(range(1025), 1)),
        ("num_logprobs", 21),
        ("num_logprobs", -1),
        ("num_logprobs", True),
        ("ignore_eos", 1),
        ("skip_special_tokens", "no"),
        ("stop_token_ids", 3),
        ("stop_token_ids", ["3"]),
        ("stop_token_ids", [-1]),
        ("stop_token_ids", [2**31]),
        ("stop_token_ids", list(range(65))),
        ("grammar", "a+"),
        ("grammar", {"type": "object"}),
    ],
)
def test_a_value_that_cannot_be_served_is_refused_by_name(field: str, value: object) -> None:
    """Every malformed parameter is a RequestError that names the field in its text and in ``field``."""
    with pytest.raises(RequestError, match=field) as raised:
        SamplingParams(**{field: value})  # type: ignore[arg-type]
    assert raised.value.field == field


def test_lists_become_tuples_without_repetition() -> None:
    """Lists are taken for tuples, and what is there twice is there once; so parameters can be compared and kept in sets."""
    params = SamplingParams(stop=["a", "b", "a"], choices=["x", "x"])  # type: ignore[arg-type]
    assert (params.stop, params.choices) == (("a", "b"), ("x",))
    params = SamplingParams(stop_token_ids=[3, 1, 3], logit_bias={5: 1, 2: -1}, grammar=Grammar.json_object())  # type: ignore[arg-type]
    assert (params.stop_token_ids, params.logit_bias) == ((3, 1), ((2, -1.0), (5, 1.0)))
    assert replace(params) == params
    assert len({params, replace(params)}) == 1


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("grammar", Grammar.regex("a+")),
        ("presence_penalty", 1.0),
        ("frequency_penalty", 1.0),
        ("repetition_penalty", 1.5),
        ("logit_bias", {1: 1.0}),
        ("num_logprobs", 2),
        ("ignore_eos", True),
        ("stop_token_ids", [1]),
    ],
)
def test_what_choices_cannot_honour_is_refused_beside_them(field: str, value: object) -> None:
    """Nothing that was asked for is dropped in silence."""
    with pytest.raises(RequestError, match=f"{field} and choices") as raised:
        SamplingParams(choices=("a",), **{field: value})  # type: ignore[arg-type]
    assert raised.value.field == field


def test_a_grammar_ends_where_it_is_complete() -> None:
    """An answer that ignores its end cannot have a grammar, which is an end."""
    with pytest.raises(RequestError, match="ignore_eos and a grammar"):
        SamplingParams(ignore_eos=True, grammar=Grammar.json_object())
