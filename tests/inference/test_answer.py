"""How one answer grows: when logits are needed, what ends it, and what is told of each token."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from agentrt.errors import RequestError
from agentrt.inference.answer import FreeAnswer
from agentrt.inference.config import EngineConfig
from agentrt.inference.engine import Engine
from agentrt.inference.grammar import Grammar
from agentrt.inference.grammar_compiler import GrammarCompiler
from agentrt.inference.output import RequestFailed, TokenOutput
from agentrt.inference.request import FinishReason, Request
from agentrt.inference.runner import Floats, RowScores
from agentrt.inference.sampler import Draw, log_probabilities
from agentrt.inference.sampling_params import SamplingParams
from agentrt.inference.stop import StopStream, StopStrings
from tests.support.tiny_model import tiny_model, tiny_tokenizer
from tests.support.told_models import RecitingModel

TOKENIZER = tiny_tokenizer()
END_ID = next(iter(TOKENIZER.eos_token_ids))
GRAMMARS = GrammarCompiler(TOKENIZER, TOKENIZER.vocab_size)


def begun(**sampling: Any) -> FreeAnswer:
    params = SamplingParams(**sampling)
    draw = Draw(params.temperature, params.top_k, params.top_p, seed=params.seed or 0, min_p=params.min_p)
    matcher = None if params.grammar is None else GRAMMARS.matcher(params.grammar)
    return FreeAnswer(Request(0, (1, 2), params, arrival_s=0.0), draw, TOKENIZER, StopStream(StopStrings(())), matcher)


def scores(logits: Floats) -> RowScores:
    best = int(logits.argmax())
    return RowScores(best, float(log_probabilities(logits)[best]), logits)


def row(**values: float) -> Floats:
    """Logits with these for some letters and 0 for every other token."""
    logits = np.zeros(TOKENIZER.vocab_size)
    for letter, value in values.items():
        logits[ord(letter)] = value
    return logits


def run(script: list[int], **sampling: Any) -> list[TokenOutput]:
    engine = Engine(RecitingModel(script, vocab_size=TOKENIZER.vocab_size), TOKENIZER, EngineConfig(num_blocks=16))
    engine.add_request([0], SamplingParams(**{"max_tokens": 8, **sampling}))
    outputs: list[TokenOutput] = []
    while engine.has_work:
        for output in engine.step():
            assert isinstance(output, TokenOutput)
            outputs.append(output)
    return outputs


@pytest.mark.parametrize(
    "sampling",
    [
        {},
        {"ignore_eos": True},
        {"stop_token_ids": (3,)},
        {"stop": ("x",)},
        {"top_k": 5, "top_p": 0.5, "min_p": 0.1, "seed": 1},
        {"presence_penalty": 0, "frequency_penalty": 0.0, "repetition_penalty": 1, "logit_bias": {}},
        {"skip_special_tokens": False},
    ],
)
def test_plain_greedy_needs_no_logits(sampling: dict[str, Any]) -> None:
    """What the best token of each row can serve asks for no more, and takes it."""
    answer = begun(**sampling)
    assert not answer.wants_logits
    (token,) = answer.advance(RowScores(ord("a"), -0.5))
    assert (token.token_id, token.logprob, token.top_logprobs) == (ord("a"), -0.5, ())


@pytest.mark.parametrize(
    "sampling",
    [
        {"temperature": 0.1},
        {"presence_penalty": 0.1},
        {"frequency_penalty": -0.1},
        {"repetition_penalty": 1.1},
        {"logit_bias": {3: 1.0}},
        {"num_logprobs": 1},
        {"grammar": Grammar.regex("a+")},
    ],
)
def test_everything_else_needs_logits(sampling: dict[str, Any]) -> None:
    """Whatever may choose another token, or tells of others, asks for the whole row."""
    assert begun(**sampling).wants_logits


def test_the_best_tokens_are_told_by_the_models_own_measure() -> None:
    """``top_logprobs`` are the most probable tokens, best first, equals by id, before penalties and temperature; and so is
    the log-probability of the token itself."""
    logits = row(a=5.0, b=4.0, c=3.0, d=3.0)
    answer = begun(temperature=2.0, num_logprobs=3, logit_bias={ord("z"): 100.0})
    (token,) = answer.advance(scores(logits))
    logprobs = log_probabilities(logits)
    assert token.token_id == ord("z")
    assert token.logprob == pytest.approx(logprobs[ord("z")])
    assert [likely for likely, _ in token.top_logprobs] == [ord("a"), ord("b"), ord("c")]
    assert [value for _, value in token.top_logprobs] == pytest.approx([logprobs[ord(x)] for x in "abc"])


def test_outputs_carry_the_best_tokens() -> None:
    """What was asked for comes out of the engine with each token; nothing when nothing was asked for."""
    told = run([*b"ab", END_ID], num_logprobs=2)
    assert [output.top_logprobs[0][0] for output in told] == [*b"ab", END_ID]
    assert all(len(output.top_logprobs) == 2 for output in told)
    assert all(math.isclose(output.top_logprobs[0][1], output.logprob, abs_tol=1e-6) for output in told)
    assert all(output.top_logprobs == () for output in run([*b"ab", END_ID]))


def test_penalties_count_the_tokens_of_the_answer() -> None:
    """Greedy with a frequency penalty turns to the next best as often as the definition says."""
    answer = begun(frequency_penalty=1.0)
    logits = row(a=9.0, b=7.5)
    chosen = [answer.advance(scores(logits))[0].token_id for _ in range(5)]
    assert bytes(chosen) == b"aabab"


def test_an_ignored_end_is_delivered_without_text() -> None:
    """With ``ignore_eos`` only max_tokens ends the answer; the model's end is a token like any other, without text."""
    outputs = run([*b"a", END_ID, *b"bc"], ignore_eos=True, max_tokens=4)
    assert [output.token_id for output in outputs] == [*b"a", END_ID, *b"bc"]
    assert [output.text for output in outputs] == ["a", "", "b", "c"]
    assert outputs[-1].finished is not None
    assert outputs[-1].finished.reason is FinishReason.LENGTH


@pytest.mark.parametrize("ignore_eos", [False, True])
def test_a_stop_token_ends_the_answer_without_text(ignore_eos: bool) -> None:
    """A token of ``stop_token_ids`` is the last of the answer, its text is not shown and what was held back is."""
    outputs = run([*b"abcd"], stop_token_ids=[ord("c")], stop=["bcd"], ignore_eos=ignore_eos)
    assert [output.text for output in outputs] == ["a", "", "b"]
    assert outputs[-1].finished is not None
    assert outputs[-1].finished.reason is FinishReason.STOP


def test_control_tokens_are_shown_when_asked_for() -> None:
    """``skip_special_tokens`` off shows the spelling of control tokens, but never that of the one that ends the answer."""
    shown = run([*b"a", END_ID, *b"b"], ignore_eos=True, max_tokens=3, skip_special_tokens=False)
    assert [output.text for output in shown] == ["a", "", "b"]


def test_bias_bans_and_demands() -> None:
    """-100 bans a token and 100 takes it, whatever the model finds."""
    assert [output.text for output in run([*b"aaaa"], logit_bias={ord("b"): 100.0}, max_tokens=2)] == ["b", "b"]
    assert "a" not in [output.text for output in run([*b"aaaa"], logit_bias={ord("a"): -100.0}, max_tokens=3)]


@pytest.mark.parametrize("sampling", [{"logit_bias": {271: 1.0}}, {"stop_token_ids": [3, 271]}])
def test_a_token_that_the_model_does_not_have_is_refused(sampling: dict[str, Any]) -> None:
    """Ids beyond the vocabulary are a RequestError that names the field and the id."""
    engine = Engine(tiny_model(), TOKENIZER, EngineConfig(num_blocks=16))
    with pytest.raises(RequestError, match="271; this model's tokens are whole numbers from 0 to 270") as raised:
        engine.add_request([0], SamplingParams(max_tokens=9, **sampling))
    assert raised.value.field == next(iter(sampling))


def test_preemption_changes_no_penalised_or_constrained_answer() -> None:
    """With too few blocks for all, each answer is what it is alone: counts and grammar follow the tokens, once each."""
    model = tiny_model()
    grammar = Grammar.regex("([a-f]{2,4} ){30}")
    wanted = [
        SamplingParams(max_tokens=90, temperature=1.0, seed=seed, frequency_penalty=0.7, repetition_penalty=1.2,
                       grammar=grammar if seed % 2 else None)
        for seed in range(6)
    ]  # fmt: skip

    def serve(numbers: list[int], config: EngineConfig) -> tuple[dict[int, list[int]], int]:
        engine = Engine(model, TOKENIZER, config)
        number_of = {engine.add_request([9, number], wanted[number]): number for number in numbers}
        tokens: dict[int, list[int]] = {number: [] for number in numbers}
        while engine.has_work:
            for output in engine.step():
                assert not isinstance(output, RequestFailed)
                tokens[number_of[output.request_id]].append(output.token_id)
        return tokens, engine.stats().num_preemptions

    crowd, num_preemptions = serve([*range(6)], EngineConfig(num_blocks=10, max_sequences=6))
    assert num_preemptions > 0
    for number in range(6):
        assert serve([number], EngineConfig(num_blocks=10))[0][number] == crowd[number]
