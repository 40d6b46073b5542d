"""The engine in one thread: what comes out for each request, what ends it, and what it leaves behind."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence

import pytest
import tokenizers
import torch
from tokenizers import models

from agentrt.errors import ConfigError, EngineError, PromptTooLongError, RequestError, TimeoutExpiredError
from agentrt.inference.config import EngineConfig
from agentrt.inference.engine import Engine
from agentrt.inference.output import Finished, Output, RequestFailed, TokenOutput
from agentrt.inference.request import FinishReason
from agentrt.inference.sampling_params import SamplingParams
from agentrt.inference.tokenizer import Tokenizer, Vocabulary
from tests.support.tiny_model import tiny_model, tiny_tokenizer
from tests.support.told_models import RecitingModel

TOKENIZER = tiny_tokenizer()
END_ID = next(iter(TOKENIZER.eos_token_ids))
SMALL = EngineConfig(num_blocks=16, max_sequences=8, max_batch_tokens=32)


class ManualClock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def run(engine: Engine) -> dict[int, list[Output]]:
    outputs: dict[int, list[Output]] = defaultdict(list)
    while engine.has_work:
        for output in engine.step():
            outputs[output.request_id].append(output)
    return outputs


def reciting_engine(script: Sequence[int], **model: object) -> Engine:
    """An engine whose model, after a prompt of one token, says ``script`` from its beginning."""
    return Engine(RecitingModel(script, vocab_size=TOKENIZER.vocab_size, **model), TOKENIZER, SMALL)  # type: ignore[arg-type]


def recite(text: bytes, *, ends: bool = True, **sampling: object) -> tuple[list[str], Finished]:
    """Let a model say ``text``, a token a byte, and then end; return the texts of its tokens."""
    engine = reciting_engine([*text, END_ID] if ends else [*text])
    engine.add_request([0], SamplingParams(**{"max_tokens": 100, **sampling}))  # type: ignore[arg-type]
    (outputs,) = run(engine).values()
    tokens = [output for output in outputs if isinstance(output, TokenOutput)]
    assert all(token.finished is None for token in tokens[:-1])
    assert tokens[-1].finished is not None
    assert tokens[-1].finished.num_output_tokens == len(tokens)
    return [token.text for token in tokens], tokens[-1].finished


def test_every_token_comes_out_once_with_what_is_known_of_it() -> None:
    """Each generated token is one output, in order: id, text, log-probability, time; the last one says how it ended."""
    engine = Engine(tiny_model(), TOKENIZER, SMALL)
    request_id = engine.add_request(list(b"Hello"), SamplingParams(max_tokens=12))
    outputs = run(engine)[request_id]
    tokens = [output for output in outputs if isinstance(output, TokenOutput)]
    assert len(tokens) == len(outputs) == 12
    spelled = b"".join(TOKENIZER.token_bytes(token.token_id) for token in tokens)
    assert "".join(token.text for token in tokens) == spelled.decode(errors="replace")
    assert all(-30 < token.logprob <= 0 for token in tokens)
    assert [token.time_ns for token in tokens] == sorted(token.time_ns for token in tokens)
    finished = tokens[-1].finished
    assert finished is not None
    assert (finished.reason, finished.num_prompt_tokens, finished.num_output_tokens) == (FinishReason.LENGTH, 5, 12)


def test_the_token_that_ends_an_answer_has_no_text() -> None:
    """The model's end-of-text token is delivered, as the last, and its spelling never appears."""
    texts, finished = recite(b"Hi")
    assert (texts, finished.reason) == (["H", "i", ""], FinishReason.STOP)


def test_a_token_of_plain_text_may_end_an_answer() -> None:
    """A tokenizer whose end-of-text token is no control token: it ends the answer all the same, and is not shown."""
    vocabulary = Vocabulary([bytes([byte]) for byte in range(128)], [], frozenset({ord(".")}))
    tokenizer = Tokenizer(tokenizers.Tokenizer(models.BPE()), vocabulary)
    engine = Engine(RecitingModel([*b"ab.c"], vocab_size=128), tokenizer, SMALL)
    engine.add_request([0], SamplingParams(max_tokens=9))
    (outputs,) = run(engine).values()
    assert [output.text for output in outputs if isinstance(output, TokenOutput)] == ["a", "b", ""]


def test_no_output_holds_half_a_character() -> None:
    """A character of four tokens appears with its fourth; a whole answer is the text exactly."""
    text = "é🙂 ok"
    texts, _ = recite(text.encode())
    assert texts == ["", "é", "", "", "", "🙂", " ", "o", "k", ""]


def test_a_character_that_is_never_completed_is_marked_at_the_end() -> None:
    """An answer cut by max_tokens inside a character ends with U+FFFD in its last output, not with silence."""
    texts, finished = recite("a🙂".encode(), max_tokens=3)
    assert (texts, finished.reason) == (["a", "", "\ufffd"], FinishReason.LENGTH)


@pytest.mark.parametrize(
    ("stop", "texts"),
    [
        (("\nUser:",), ["H", "i", "", "", "", "", "", ""]),
        (("ser", "\nU"), ["H", "i", "", ""]),
        (("i\n",), ["H", "", ""]),
        (("H",), [""]),
    ],
)
def test_nothing_of_a_stop_string_is_emitted(stop: tuple[str, ...], texts: list[str]) -> None:
    """A stop string over several tokens ends the answer with the token that completes it; none of it comes out."""
    emitted, finished = recite(b"Hi\nUser: x", stop=stop)
    assert (emitted, finished.reason) == (texts, FinishReason.STOP)


@pytest.mark.parametrize(("max_tokens", "reason"), [(4, FinishReason.LENGTH), (100, FinishReason.STOP)])
def test_text_held_for_a_stop_string_comes_with_the_last_token(max_tokens: int, reason: FinishReason) -> None:
    """An answer that ends, by itself or by max_tokens, in what could have become a stop string loses nothing."""
    texts, finished = recite(b"a ST", stop=("STOP",), max_tokens=max_tokens)
    assert ("".join(texts), texts[-1][-2:], finished.reason) == ("a ST", "ST", reason)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("choices", [(), ("aaaa", "bbbb")])
def test_logits_that_are_not_numbers_end_their_request_only(value: float, choices: tuple[str, ...]) -> None:
    """A request whose logits are unusable fails with a clear error; the one beside it gets its whole answer."""
    engine = reciting_engine([*b"aaaaaaaa"], damaged={6: value})
    sound = engine.add_request([0], SamplingParams(max_tokens=5))
    sick = engine.add_request([0] * 6, SamplingParams(max_tokens=5, choices=choices))
    outputs = run(engine)
    failed = outputs[sick][-1]
    assert isinstance(failed, RequestFailed)
    assert isinstance(failed.error, EngineError)
    assert str(failed.error).startswith("the model's values")
    assert "not numbers" in str(failed.error)
    assert len(outputs[sick]) == (1 if choices else 2), "what came before it was delivered"
    assert [output.text for output in outputs[sound] if isinstance(output, TokenOutput)] == ["a"] * 5
    assert engine.stats().num_used_blocks == 0
    engine.add_request([0], SamplingParams(max_tokens=2))
    assert len(run(engine).popitem()[1]) == 2


def test_a_fault_in_making_text_ends_its_request_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever goes wrong with one answer is that request's failure, with its cause chained; the engine lives on."""
    engine = reciting_engine([*b"ab"])
    broken = engine.add_request([0], SamplingParams(max_tokens=3))
    monkeypatch.setattr(engine._live[broken].answer, "_detokenizer", None)
    sound = engine.add_request([0], SamplingParams(max_tokens=3))
    outputs = run(engine)
    (failed,) = outputs[broken]
    assert isinstance(failed, RequestFailed)
    assert isinstance(failed.error.__cause__, AttributeError)
    assert len(outputs[sound]) == 3


def test_what_the_model_raises_is_raised() -> None:
    """A fault of the model concerns all requests: it comes out of ``step`` as it is."""
    engine = reciting_engine([1], raises=RuntimeError("out of memory"))
    engine.add_request([0], SamplingParams(max_tokens=9))
    with pytest.raises(RuntimeError, match="out of memory"):
        engine.step()


def test_a_late_request_is_dropped_wherever_it_is() -> None:
    """When its time is over a request ends with TimeoutExpiredError, running or still waiting, and frees its blocks."""
    clock = ManualClock()
    config = EngineConfig(num_blocks=4, max_sequences=1)
    engine = Engine(tiny_model(), TOKENIZER, config, clock=clock)
    running = engine.add_request(list(b"one"), SamplingParams(max_tokens=50), timeout_s=2.0)
    waiting = engine.add_request(list(b"two"), SamplingParams(max_tokens=50), timeout_s=1.5)
    patient = engine.add_request(list(b"three"), SamplingParams(max_tokens=2))
    assert [output.request_id for output in engine.step()] == [running]
    clock.now_s += 1.5
    first, second = engine.step()
    assert isinstance(first, RequestFailed)
    assert first.request_id == waiting
    assert isinstance(second, TokenOutput)
    clock.now_s += 0.5
    outputs = engine.step()
    assert isinstance(outputs[0], RequestFailed)
    assert outputs[0].request_id == running
    assert isinstance(outputs[0].error, TimeoutExpiredError)
    assert "timeout of 2 s" in str(outputs[0].error)
    assert [output.request_id for output in outputs[1:]] == [patient]
    run(engine)
    assert engine.stats().num_used_blocks == 0


def test_an_aborted_request_is_gone_at_once() -> None:
    """Abort frees the blocks before the next step, running or waiting, and nothing more comes out of the request."""
    engine = Engine(tiny_model(), TOKENIZER, EngineConfig(num_blocks=16, max_sequences=2))
    ids = [engine.add_request(list(b"some words"), SamplingParams(max_tokens=30)) for _ in range(3)]
    engine.step()
    assert (engine.stats().num_running, engine.stats().num_waiting, engine.stats().num_used_blocks) == (2, 1, 2)
    engine.abort(ids[0])
    assert engine.stats().num_used_blocks == 1
    engine.abort(ids[2])
    assert engine.stats().num_waiting == 0
    assert set(run(engine)) == {ids[1]}


def test_aborting_what_is_over_or_unknown_does_nothing() -> None:
    """A caller that leaves after the end, or twice, is no fault."""
    engine = reciting_engine([END_ID])
    request_id = engine.add_request([0], SamplingParams(max_tokens=9))
    run(engine)
    engine.abort(request_id)
    engine.abort(request_id)
    engine.abort(12345)
    assert not engine.has_work


def test_the_books_balance_when_the_engine_is_idle() -> None:
    """After waves of requests that finish, are aborted, time out or fail, every block is free and nothing is counted."""
    clock = ManualClock()
    engine = Engine(tiny_model(), TOKENIZER, EngineConfig(num_blocks=8, block_size=4), clock=clock)
    for wave in range(3):
        ids = [
            engine.add_request([wave, number, 7], SamplingParams(max_tokens=9), timeout_s=5.0 if number == 3 else None)
            for number in range(6)
        ]
        engine.step()
        engine.abort(ids[1])
        engine.step()
        clock.now_s += 6
        run(engine)
        stats = engine.stats()
        assert (stats.num_running, stats.num_waiting, stats.num_used_blocks, stats.payload_share) == (0, 0, 0, 1.0)
        assert engine.step() == []
        engine._cache.check()


def test_durations_are_by_the_engines_clock() -> None:
    """queue_s ends with admission, prefill_s with the first token; a wait behind another request is queueing."""
    clock = ManualClock()
    config = EngineConfig(num_blocks=8, max_sequences=1, max_prefill_chunk_tokens=2)
    engine = Engine(tiny_model(), TOKENIZER, config, clock=clock)
    engine.add_request([1], SamplingParams(max_tokens=2))
    second = engine.add_request([1, 2, 3], SamplingParams(max_tokens=1))
    outputs: list[Output] = []
    while engine.has_work:
        clock.now_s += 1
        outputs += engine.step()
    last = outputs[-1]
    assert isinstance(last, TokenOutput)
    assert last.request_id == second
    assert last.finished is not None
    assert (last.finished.queue_s, last.finished.prefill_s) == (3.0, 1.0)


def test_reused_prompt_tokens_are_told() -> None:
    """A prompt that begins like a running one reports how many of its tokens were not computed, and they were not."""
    engine = Engine(tiny_model(), TOKENIZER, SMALL)
    prompt = list(range(40, 80))
    first = engine.add_request(prompt, SamplingParams(max_tokens=20))
    engine.step()
    engine.step()
    num_computed = engine.stats().num_computed_tokens
    second = engine.add_request([*prompt, 9], SamplingParams(max_tokens=1))
    outputs = engine.step()
    last = next(output for output in outputs if output.request_id == second)
    assert isinstance(last, TokenOutput)
    assert last.finished is not None
    assert last.finished.num_cached_tokens == engine.stats().num_cached_tokens == 32
    assert engine.stats().num_computed_tokens - num_computed == 1 + len(prompt) + 1 - 32
    engine.abort(first)


def test_payload_share_counts_tokens_over_slots() -> None:
    """Of two blocks that hold five tokens of four each, five eighths are payload."""
    engine = Engine(tiny_model(), TOKENIZER, EngineConfig(num_blocks=4, block_size=4))
    engine.add_request([1, 2, 3, 4, 5], SamplingParams(max_tokens=9))
    engine.step()
    assert engine.stats().payload_share == 5 / 8


def test_draws_without_a_seed_differ() -> None:
    """Leaving the seed out gives another answer each time; giving it gives the same one."""
    engine = Engine(tiny_model(), TOKENIZER, SMALL)

    def answer(seed: int | None) -> tuple[int, ...]:
        engine.add_request([5], SamplingParams(max_tokens=16, temperature=3.0, seed=seed))
        (outputs,) = run(engine).values()
        return tuple(output.token_id for output in outputs if isinstance(output, TokenOutput))

    assert len({answer(None) for _ in range(4)}) == 4
    assert len({answer(11) for _ in range(4)}) == 1


def test_ids_the_tokenizer_does_not_have_are_never_drawn() -> None:
    """A model with more rows than its tokenizer has tokens draws only tokens."""
    model = tiny_model(vocab_size=TOKENIZER.vocab_size + 200)
    engine = Engine(model, TOKENIZER, SMALL)
    for seed in range(8):
        engine.add_request([5], SamplingParams(max_tokens=30, temperature=50.0, seed=seed))
    outputs = [output for group in run(engine).values() for output in group]
    assert len(outputs) > 100
    assert all(isinstance(output, TokenOutput) and output.token_id < TOKENIZER.vocab_size for output in outputs)


@pytest.mark.parametrize(
    ("prompt", "told"),
    [
        ([], "the prompt is empty"),
        ([1, -1], "token 1 of the prompt is -1"),
        ([271], "token 0 of the prompt is 271; this model's tokens are whole numbers from 0 to 270"),
        ([2**70], f"token 0 of the prompt is {2**70}"),
        ([True], "token 0 of the prompt is True"),
        ([1.0], "token 0 of the prompt is 1.0"),
        (["a"], "token 0 of the prompt is 'a'"),
        ([None], "token 0 of the prompt is None"),
    ],
)
def test_a_prompt_that_is_no_list_of_tokens_is_refused(prompt: list[int], told: str) -> None:
    """Tokens that the model does not have are an error that says which; nothing is queued."""
    engine = Engine(tiny_model(), TOKENIZER, SMALL)
    with pytest.raises(RequestError, match=told) as raised:
        engine.add_request(prompt, SamplingParams(max_tokens=9))
    assert raised.value.field == "prompt_token_ids"
    assert not engine.has_work


def test_what_cannot_fit_is_refused() -> None:
    """The context is the smaller of the model's and the cache's; prompts and answers beyond it are refused at once."""
    small_cache = Engine(tiny_model(max_context_tokens=256), TOKENIZER, EngineConfig(num_blocks=2))
    small_model = Engine(tiny_model(max_context_tokens=32), TOKENIZER, EngineConfig(num_blocks=99))
    for engine in (small_cache, small_model):
        assert engine.max_context_tokens == 32
        with pytest.raises(PromptTooLongError):
            engine.add_request([1] * 32, SamplingParams(max_tokens=1))
        with pytest.raises(RequestError) as raised:
            engine.add_request([1] * 30, SamplingParams(max_tokens=3))
        assert raised.value.field == "max_tokens"
        with pytest.raises(RequestError) as raised:
            engine.add_request([1] * 20, SamplingParams(choices=("x" * 20,)))
        assert raised.value.field == "choices"
        assert not engine.has_work
        engine.add_request([1] * 30, SamplingParams(max_tokens=2))
        assert len(run(engine).popitem()[1]) <= 2


@pytest.mark.parametrize("timeout_s", [math.nan, "5", True])
def test_a_timeout_that_is_no_number_is_refused(timeout_s: float) -> None:
    """A timeout must be a number of seconds."""
    with pytest.raises(RequestError) as raised:
        Engine(tiny_model(), TOKENIZER, SMALL).prepare([1], SamplingParams(max_tokens=9), timeout_s=timeout_s)
    assert raised.value.field == "timeout_s"


def test_a_timeout_that_is_over_already_is_told_at_once() -> None:
    """A caller whose time is over gets no work done for it."""
    with pytest.raises(TimeoutExpiredError):
        Engine(tiny_model(), TOKENIZER, SMALL).prepare([1], SamplingParams(max_tokens=9), timeout_s=0.0)


def test_the_cache_takes_the_memory_it_is_given() -> None:
    """kv_cache_bytes is turned into whole blocks: keys and values of all layers and heads."""
    block_bytes = 2 * 2 * 16 * 2 * 8 * torch.float64.itemsize
    engine = Engine(tiny_model(), TOKENIZER, EngineConfig(kv_cache_bytes=5 * block_bytes + 1))
    assert engine.stats().num_blocks == 5
    with pytest.raises(ConfigError, match=f"one block of 16 tokens takes {block_bytes}"):
        Engine(tiny_model(), TOKENIZER, EngineConfig(kv_cache_bytes=block_bytes - 1))
    with pytest.raises(ConfigError, match="there is no memory for a cache of"):
        Engine(tiny_model(), TOKENIZER, EngineConfig(num_blocks=2**40))


@pytest.mark.parametrize("sampling", [{}, {"temperature": 50.0, "seed": 4}, {"temperature": 0.1, "top_k": 1}])
def test_a_log_probability_is_of_the_models_own_logits(sampling: dict[str, float]) -> None:
    """Neither temperature nor cuts change what is reported: log-softmax of the raw logits over all tokens."""
    engine = reciting_engine([*b"abcdefgh"])
    engine.add_request([0], SamplingParams(max_tokens=8, **sampling))  # type: ignore[arg-type]
    (outputs,) = run(engine).values()
    norm = math.log(math.exp(9.0) + TOKENIZER.vocab_size - 1)
    recited = []
    for output, expected in zip(outputs, b"abcdefgh", strict=False):
        assert isinstance(output, TokenOutput)
        recited.append(output.token_id == expected)
        assert output.logprob == pytest.approx((9.0 if recited[-1] else 0.0) - norm, abs=1e-5)
    assert all(recited) == (sampling.get("temperature") != 50.0)
