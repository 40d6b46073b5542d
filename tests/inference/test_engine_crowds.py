"""Crowds that press: long and short prompts around block borders, shared beginnings, callers that leave, few blocks.

``test_engine_equivalence`` draws small cases of every kind. Here each case is made to press, and what is to happen under
pressure (preemption, sharing, leaving while running, waiting and preempted) is counted: a crowd in which it does not
happen proves nothing.
"""

from __future__ import annotations

import functools
from collections import Counter
from dataclasses import dataclass, field

from hypothesis import example, given, settings
from hypothesis import strategies as st

from agentrt.inference.config import EngineConfig
from agentrt.inference.engine import Engine
from agentrt.inference.output import TokenOutput
from agentrt.inference.request import RequestState
from agentrt.inference.sampling_params import SamplingParams
from tests.support.tiny_model import tiny_model, tiny_tokenizer

MODEL, TOKENIZER = tiny_model(), tiny_tokenizer()
SHARED = tuple((7 * number) % 200 + 30 for number in range(64))
"""What prompts with a shared beginning begin with."""


@dataclass(frozen=True)
class Caller:
    prompt: tuple[int, ...]
    sampling: SamplingParams
    arrives: int
    leaves_after: int | None

    @property
    def max_steps(self) -> int:
        """Steps in which it is certainly done once it is the oldest, which has a row in every step."""
        num_prompt, choices = len(self.prompt), self.sampling.choices
        if not choices:
            return num_prompt + self.sampling.max_tokens
        # Every place of the trie is computed at most once, at the price of the beginning that leads there.
        num_places = sum(2 * len(choice.encode()) + 1 for choice in choices)
        return num_prompt + num_places * self.sampling.max_new_tokens


@dataclass
class Crowd:
    """What became of the callers, by their number."""

    token_ids: dict[int, list[int]] = field(default_factory=dict)
    texts: dict[int, str] = field(default_factory=dict)
    finished: set[int] = field(default_factory=set)


@functools.cache
def alone(prompt: tuple[int, ...], sampling: SamplingParams) -> tuple[list[int], str]:
    crowd = serve([Caller(prompt, sampling, 0, None)], EngineConfig(num_blocks=16), Counter())
    return crowd.token_ids[0], crowd.texts[0]


def serve(callers: list[Caller], config: EngineConfig, seen: Counter[str]) -> Crowd:
    engine, crowd = Engine(MODEL, TOKENIZER, config), Crowd()
    number_of: dict[int, int] = {}
    leaving: dict[int, list[int]] = {}
    last_step = max(caller.arrives for caller in callers) + sum(caller.max_steps for caller in callers)
    step = 0
    while engine.has_work or any(caller.arrives >= step for caller in callers):
        assert step <= last_step, "somebody starves"
        for number, caller in enumerate(callers):
            if caller.arrives == step:
                request_id = engine.add_request(caller.prompt, caller.sampling)
                number_of[request_id] = number
                crowd.token_ids[number], crowd.texts[number] = [], ""
                if caller.leaves_after is not None:
                    leaving.setdefault(step + caller.leaves_after, []).append(request_id)
        for request_id in leaving.pop(step, []):
            if request_id in engine._live:
                seen[f"left while {engine._live[request_id].request.state}"] += 1
            engine.abort(request_id)
            assert len(engine._cache.table(request_id)) == 0, "blocks are free at once"
        for output in engine.step():
            assert isinstance(output, TokenOutput), f"a request failed: {output}"
            number = number_of[output.request_id]
            crowd.token_ids[number].append(output.token_id)
            crowd.texts[number] += output.text
            if output.finished is not None:
                crowd.finished.add(number)
                seen["finished after preemption"] += output.finished.num_preemptions > 0
                seen["finished with shared blocks"] += output.finished.num_cached_tokens > 0
        engine._cache.check()
        step += 1
    assert engine.stats().num_used_blocks == 0
    seen["preemptions"] += engine.stats().num_preemptions
    return crowd


prompts = st.one_of(
    st.integers(1, 70).map(lambda length: tuple(range(40, 40 + length))),
    # A block size less one, itself, and one more; twice it, and so on.
    st.builds(
        lambda blocks, around, first: tuple((first + 3 * number) % 256 for number in range(16 * blocks + around)),
        st.integers(1, 4),
        st.integers(-1, 1),
        st.integers(0, 255),
    ),
    st.builds(
        lambda num_shared, own: SHARED[:num_shared] + tuple(own),
        st.sampled_from([15, 16, 17, 32, 48, 64]),
        st.lists(st.integers(0, 255), min_size=1, max_size=4),
    ),
)
samplings = st.one_of(
    st.builds(SamplingParams, max_tokens=st.sampled_from([1, 15, 16, 17, 40, 40])),
    st.builds(SamplingParams, max_tokens=st.integers(20, 40), temperature=st.just(1.0), seed=st.integers(0, 9)),
    st.builds(SamplingParams, choices=st.sampled_from([("billing", "refund"), ("kiwi", "kilo", "mono")])),
)
callers = st.builds(Caller, prompts, samplings, st.integers(0, 6), st.one_of(st.none(), st.none(), st.integers(0, 60)))

PRESSING = [
    Caller(
        prompt=(*SHARED[:9], 100 + number),
        sampling=SamplingParams(max_tokens=40, temperature=number % 2, seed=number),
        arrives=number // 3,
        leaves_after=20 + number if number % 3 == 2 else None,
    )
    for number in range(6)
]
"""Six that are let in together, and grow to three times what there is room for."""


def test_a_crowd_is_served_as_each_of_it_alone() -> None:
    """Under pressure of every kind each caller gets the tokens and the text it gets alone, and nobody starves."""
    seen: Counter[str] = Counter()

    @settings(max_examples=12, deadline=None, derandomize=True, database=None)
    @given(
        crowd=st.lists(callers, min_size=5, max_size=9),
        spare_blocks=st.integers(0, 4),
        block_size=st.sampled_from([4, 5, 15, 16, 17]),
        max_sequences=st.integers(3, 9),
        extra_budget=st.integers(0, 60),
        chunk=st.sampled_from([1, 5, 15, 16, 17, 64]),
    )
    @example(crowd=PRESSING, spare_blocks=1, block_size=4, max_sequences=6, extra_budget=20, chunk=16)
    def run(
        crowd: list[Caller], spare_blocks: int, block_size: int, max_sequences: int, extra_budget: int, chunk: int
    ) -> None:
        longest = max(len(caller.prompt) + caller.sampling.max_new_tokens for caller in crowd)
        config = EngineConfig(
            block_size=block_size,
            num_blocks=-(-longest // block_size) + spare_blocks,
            max_batch_tokens=max_sequences + extra_budget,
            max_prefill_chunk_tokens=chunk,
            max_sequences=max_sequences,
        )
        together = serve(crowd, config, seen)
        for number, caller in enumerate(crowd):
            token_ids, text = alone(caller.prompt, caller.sampling)
            got = together.token_ids[number]
            assert got == token_ids[: len(got)]
            assert text.startswith(together.texts[number])
            if number in together.finished:
                assert (got, together.texts[number]) == (token_ids, text)
            else:
                assert caller.leaves_after is not None, "who stays is answered"

    run()
    for kind in (
        "preemptions",
        "finished after preemption",
        "finished with shared blocks",
        *(f"left while {state}" for state in (RequestState.RUNNING, RequestState.WAITING, RequestState.PREEMPTED)),
    ):
        assert seen[kind] > 0, f"{kind}: {seen}"
