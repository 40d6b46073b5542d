"""Choices: the answer is one of the list, spelled with any tokens, and the one the model finds most probable."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from agentrt.errors import RequestError
from agentrt.inference.choices import ChoiceAutomaton, ChoiceSearch, Decision, TokenSpellings, split_text
from agentrt.inference.config import EngineConfig
from agentrt.inference.engine import Engine
from agentrt.inference.forward import ForwardBatch, KVTensors, SequenceSlice
from agentrt.inference.output import Output, TokenOutput
from agentrt.inference.request import FinishReason
from agentrt.inference.sampler import Draw, Floats
from agentrt.inference.sampling_params import SamplingParams
from tests.support.tiny_model import tiny_model, tiny_tokenizer

# A small vocabulary in which most texts have several spellings.
TOKENS = [b"a", b"b", b"ab", b"ba", b"aab", b" ", b" a", b" ab", b"c", b"\xc3", b"\xa9", b"\xc3\xa9"]
SPELLINGS = TokenSpellings(enumerate(TOKENS))
NextToken = Callable[[tuple[int, ...]], Floats]


def next_token_table(seed: int) -> NextToken:
    """A model: random log-probabilities for each beginning, the same each time it is asked."""

    def next_token(beginning: tuple[int, ...]) -> Floats:
        generator = np.random.default_rng([seed, *beginning, 99])
        logits = generator.normal(0, 2, len(TOKENS) + 1)
        return logits - np.log(np.exp(logits).sum())

    return next_token


def decide(choices: list[str], next_token: NextToken, draw: Draw | None = None) -> tuple[Decision, int]:
    """Run a search to its end; also return how many beginnings were computed."""
    search = ChoiceSearch(ChoiceAutomaton(choices, SPELLINGS), draw or Draw())
    for num_computed in itertools.count(1):
        decision = search.observe(next_token(search.token_ids))
        if decision is not None:
            return decision, num_computed
    raise AssertionError


def text_of(token_ids: tuple[int, ...]) -> bytes:
    return b"".join(TOKENS[token_id] for token_id in token_ids)


def spellings_of(text: bytes) -> list[tuple[int, ...]]:
    if not text:
        return [()]
    return [
        (token_id, *rest)
        for token_id, token in enumerate(TOKENS)
        if text.startswith(token)
        for rest in spellings_of(text[len(token) :])
    ]


choice_lists = st.lists(
    st.text(alphabet="abcé ", min_size=1, max_size=5).filter(lambda text: text.strip() == text),
    min_size=1,
    max_size=5,
    unique=True,
)


@given(choices=choice_lists, seed=st.integers(0, 10**6), temperature=st.sampled_from([0.0, 1.0]))
def test_the_answer_is_exactly_one_of_the_choices(choices: list[str], seed: int, temperature: float) -> None:
    """Whatever the model says, the tokens spell a choice, but for one leading space; and the texts add up to it."""
    decision, _ = decide(choices, next_token_table(seed), Draw(temperature, seed=seed))
    assert decision.choice in choices
    spelled = text_of(decision.token_ids).decode()
    assert spelled in (decision.choice, f" {decision.choice}")
    assert "".join(split_text(decision.choice, [TOKENS[token] for token in decision.token_ids])) == decision.choice


@given(choices=choice_lists, seed=st.integers(0, 10**6))
def test_log_probabilities_are_the_models_own(choices: list[str], seed: int) -> None:
    """Each token of the answer carries what the model said of it after the tokens before it."""
    next_token = next_token_table(seed)
    decision, _ = decide(choices, next_token)
    for index, (token_id, logprob) in enumerate(zip(decision.token_ids, decision.logprobs, strict=True)):
        assert logprob == next_token(decision.token_ids[:index])[token_id]


def text_model(seed: int) -> NextToken:
    """A model that reads text, not tokens: what follows depends on the bytes so far only."""
    table = next_token_table(seed)
    return lambda beginning: table(tuple(text_of(beginning)))


@given(choices=choice_lists, seed=st.integers(0, 10**6))
def test_the_most_probable_choice_wins(choices: list[str], seed: int) -> None:
    """Against all spellings of all choices, enumerated: the search finds the best of them.

    A choice is scored by the probability that the answer begins with it and, if it begins others, does not go on with a
    token of theirs.
    """
    next_token = text_model(seed)
    automaton = ChoiceAutomaton(choices, SPELLINGS)
    scores: dict[str, float] = {}
    texts = {f" {choice}": choice for choice in choices} | {choice: choice for choice in choices}
    for text, choice in texts.items():
        longer = [other.encode()[len(text.encode()) :] for other in texts if other.startswith(text) and other != text]
        for spelling in spellings_of(text.encode()):
            score = sum(next_token(spelling[:index])[token] for index, token in enumerate(spelling))
            following = next_token(spelling)
            rest = 1 - sum(
                math.exp(following[token_id])
                for token_id, token in enumerate(TOKENS)
                if any(end.startswith(token) for end in longer)
            )
            if longer:
                score += math.log(rest)
            scores[choice] = max(scores.get(choice, -math.inf), score)
    decision, num_computed = decide(choices, next_token)
    assert decision.choice in [choice for choice in choices if scores[choice] > max(scores.values()) - 1e-9]
    assert num_computed <= sum(len(text.encode()) for text in texts), "each place is computed at most once"
    assert automaton.choice_at(0) is None


def favour(*token_ids: int, weight: float = 0.9) -> Floats:
    """Log-probabilities of a model that shares ``weight`` among some tokens and the rest among all."""
    probabilities = np.full(len(TOKENS) + 1, (1 - weight) / (len(TOKENS) + 1))
    for token_id in token_ids:
        probabilities[token_id] += weight / len(token_ids)
    return np.log(probabilities / probabilities.sum())


def test_a_probable_beginning_with_an_improbable_end_does_not_win() -> None:
    """Scored as a whole, "b" beats "ac": "a" is the likelier first token, but "c" hardly ever follows it."""

    def next_token(beginning: tuple[int, ...]) -> Floats:
        if not beginning:
            probabilities = np.full(len(TOKENS) + 1, 0.01)
            probabilities[TOKENS.index(b"a")], probabilities[TOKENS.index(b"b")] = 0.5, 0.39
            return np.log(probabilities)
        return favour(TOKENS.index(b"b"))

    decision, num_computed = decide(["ac", "b"], next_token)
    assert decision.choice == "b"
    assert num_computed == 2


def test_a_sure_model_costs_no_more_than_its_answer() -> None:
    """A choice of one token needs the logits after the prompt and nothing else."""
    decision, num_computed = decide(["aab", "b", "c"], lambda beginning: favour(TOKENS.index(b"aab")))
    assert (decision.choice, decision.token_ids, num_computed) == ("aab", (TOKENS.index(b"aab"),), 1)


@pytest.mark.parametrize(("goes_on", "expected"), [(True, "ab"), (False, "a")])
def test_a_choice_that_begins_another_wins_unless_the_model_goes_on(goes_on: bool, expected: str) -> None:
    """After "a" the question is whether "b" follows; anything else, a full stop or the end, means "a"."""

    def next_token(beginning: tuple[int, ...]) -> Floats:
        first = favour(TOKENS.index(b"a"))
        return favour(TOKENS.index(b"b") if goes_on else TOKENS.index(b"c")) if beginning else first

    assert decide(["a", "ab"], next_token)[0].choice == expected


def test_a_leading_space_is_allowed_and_dropped() -> None:
    """A model that wants to begin with a space may; the answer does not show it."""
    decision, _ = decide(["a", "b"], lambda beginning: favour(TOKENS.index(b" a")))
    assert (decision.choice, decision.token_ids) == ("a", (TOKENS.index(b" a"),))
    assert split_text("a", [b" a"]) == ["a"]
    assert split_text("ab", [b" ", b"ab"]) == ["", "ab"]


def test_a_choice_that_begins_with_a_space_keeps_it() -> None:
    """When both "a" and " a" are in the list, each is spelled as it stands there."""
    decision, _ = decide(["a", " a"], lambda beginning: favour(TOKENS.index(b" a")))
    assert decision.choice == " a"
    assert split_text(" a", [b" a"]) == [" a"]


def test_characters_are_never_cut() -> None:
    """A character that two tokens share appears with the second."""
    assert split_text("éa", [b"\xc3", b"\xa9", b"a"]) == ["", "é", "a"]


def test_a_walk_is_drawn_with_the_models_odds() -> None:
    """With a temperature, choices come as often as the model would have it, among those allowed."""

    def next_token(beginning: tuple[int, ...]) -> Floats:
        probabilities = np.full(len(TOKENS) + 1, 1e-9)
        probabilities[TOKENS.index(b"a")], probabilities[TOKENS.index(b"b")] = 0.75, 0.25
        return np.log(probabilities / probabilities.sum())

    answers = [decide(["a", "b"], next_token, Draw(1.0, seed=seed))[0].choice for seed in range(400)]
    assert answers.count("a") / 400 == pytest.approx(0.75, abs=0.06)


def test_what_the_vocabulary_cannot_spell_is_refused() -> None:
    """A choice with a letter that no token has is named in the error."""
    with pytest.raises(RequestError, match="choice 'xyz' cannot be spelled") as raised:
        ChoiceAutomaton(["ab", "xyz"], SPELLINGS)
    assert raised.value.field == "choices"


def test_dead_ends_are_not_entered() -> None:
    """A token that spells a beginning from which no token leads to the end is not allowed."""
    automaton = ChoiceAutomaton(["xy"], TokenSpellings([(0, b"x"), (1, b"xy")]))
    assert automaton.options(0).token_ids.tolist() == [1]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("num_good", [0, 1])
def test_values_that_are_not_numbers_decide_nothing(temperature: float, num_good: int) -> None:
    """NaN at any place of the search ends it, also where a choice is complete or others are left to try."""
    search = ChoiceSearch(ChoiceAutomaton(["ab", "aba", "c"], SPELLINGS), Draw(temperature))
    for _ in range(num_good):
        assert search.observe(favour(TOKENS.index(b"ab"), weight=1 - 1e-9)) is None
    with pytest.raises(ValueError, match="not numbers"):
        search.observe(np.full(len(TOKENS) + 1, np.nan))


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_choices_that_are_impossible_are_not_made(temperature: float) -> None:
    """A model that gives no continuation of any choice a probability gets no answer put into its mouth."""
    search = ChoiceSearch(ChoiceAutomaton(["b"], SPELLINGS), Draw(temperature))
    logprobs = np.full(len(TOKENS) + 1, -np.inf)
    logprobs[TOKENS.index(b"c")] = 0.0
    with pytest.raises(ValueError, match="no token that continues"):
        search.observe(logprobs)


MODEL, TOKENIZER = tiny_model(), tiny_tokenizer()


def logprobs_after(token_ids: list[int]) -> Floats:
    """The model's word on what follows, computed in one pass over a cache of its own."""
    num_rows = len(token_ids)
    shape = (MODEL.num_layers, 16, 16, MODEL.num_kv_heads, MODEL.head_dim)
    kv = KVTensors(torch.zeros(shape, dtype=MODEL.dtype), torch.zeros(shape, dtype=MODEL.dtype))
    rows = torch.arange(num_rows)
    batch = ForwardBatch(
        token_ids=torch.tensor(token_ids),
        positions=rows,
        slots=rows,
        sequences=(SequenceSlice(0, num_rows, 0, torch.arange(-(-num_rows // 16))),),
        logits_rows=torch.tensor([num_rows - 1]),
    )
    values: Floats = torch.log_softmax(MODEL.forward(batch, kv)[0, : TOKENIZER.vocab_size], -1).numpy()
    return values


@settings(max_examples=15, deadline=None)
@given(
    prompt=st.lists(st.integers(0, 255), min_size=1, max_size=20),
    choices=st.sampled_from([("kiwi", "kilo", "mono", "jazz"), ("xyz", "xy", "x", "wwww"), ("the", "then", "billing")]),
    temperature=st.sampled_from([0.0, 0.0, 1.0]),
    chunk=st.integers(1, 8),
)
def test_the_engine_takes_up_abandoned_beginnings_rightly(
    prompt: list[int], choices: tuple[str, ...], temperature: float, chunk: int
) -> None:
    """Going back to another beginning in the engine's cache gives what computing each from nothing gives."""
    sampling = SamplingParams(choices=choices, temperature=temperature, seed=3)
    spellings = TokenSpellings((token_id, TOKENIZER.token_bytes(token_id)) for token_id in range(256 + 14))
    search = ChoiceSearch(ChoiceAutomaton(choices, spellings), Draw(temperature, seed=3))
    expected, num_computed = None, 0
    while expected is None:
        num_computed += 1
        expected = search.observe(logprobs_after([*prompt, *search.token_ids]))
    engine = Engine(MODEL, TOKENIZER, EngineConfig(num_blocks=16, block_size=4, max_prefill_chunk_tokens=chunk))
    engine.add_request(prompt, sampling)
    outputs: list[Output] = []
    while engine.has_work:
        outputs += engine.step()
    tokens = [output for output in outputs if isinstance(output, TokenOutput)]
    assert tuple(token.token_id for token in tokens) == expected.token_ids
    assert [token.logprob for token in tokens] == pytest.approx(list(expected.logprobs), abs=1e-9)
    assert "".join(token.text for token in tokens) == expected.choice
    finished = tokens[-1].finished
    assert finished is not None
    assert (finished.reason, finished.num_output_tokens) == (FinishReason.CHOICE, len(tokens))
