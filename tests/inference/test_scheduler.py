"""The scheduler's promises: exact accounting, bounded steps, and that everyone finishes."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from agentrt.errors import ConfigError, PromptTooLongError, RequestError
from agentrt.inference.config import EngineConfig
from agentrt.inference.kv_cache import KVCache
from agentrt.inference.request import LEGAL_MOVES, FinishReason, Request, RequestState
from agentrt.inference.sampling_params import SamplingParams
from agentrt.inference.scheduler import Scheduler, Step


def make_request(request_id: int, prompt: int | list[int], max_tokens: int = 4, **params: object) -> Request:
    tokens = list(range(prompt)) if isinstance(prompt, int) else prompt
    sampling = SamplingParams(max_tokens=max_tokens, **params)  # type: ignore[arg-type]
    return Request(request_id, tuple(tokens), sampling, arrival_s=0.0)


def make_scheduler(*, num_blocks: int, block_size: int = 4, **config: int) -> Scheduler:
    settings = {"max_batch_tokens": 16, "max_prefill_chunk_tokens": 8, "max_sequences": 8, **config}
    return Scheduler(EngineConfig(block_size=block_size, **settings), KVCache(num_blocks, block_size))


def compute(scheduler: Scheduler) -> Step:
    """One step as the engine does it: the newest token of each request that got logits is a dummy."""
    step = scheduler.schedule()
    scheduler.complete(step)
    for rows in step.rows:
        if rows.needs_logits:
            rows.request.output_token_ids.append(7)
            if len(rows.request.output_token_ids) == rows.request.sampling.max_tokens:
                scheduler.finish(rows.request, FinishReason.LENGTH)
    return step


def rows_by_id(step: Step) -> dict[int, int]:
    return {rows.request.request_id: rows.num_rows for rows in step.rows}


class SchedulerMachine(RuleBasedStateMachine):
    """Random arrivals (some with a shared beginning), steps and cancellations, with few blocks."""

    @initialize(
        num_blocks=st.integers(2, 12),
        block_size=st.integers(1, 4),
        max_sequences=st.integers(1, 5),
        extra_budget=st.integers(0, 12),
        chunk=st.integers(1, 12),
    )
    def build(self, num_blocks: int, block_size: int, max_sequences: int, extra_budget: int, chunk: int) -> None:
        self.config = EngineConfig(
            block_size=block_size,
            num_blocks=num_blocks,
            max_batch_tokens=max_sequences + extra_budget,
            max_prefill_chunk_tokens=chunk,
            max_sequences=max_sequences,
        )
        self.cache = KVCache(num_blocks, block_size)
        self.scheduler = Scheduler(self.config, self.cache)
        self.live: list[Request] = []
        self.next_id = 0

    @rule(num_shared=st.integers(0, 10), num_own=st.integers(1, 10), max_tokens=st.integers(1, 10))
    def arrive(self, num_shared: int, num_own: int, max_tokens: int) -> None:
        own = [100 + self.next_id] * num_own
        request = make_request(self.next_id, [*range(num_shared), *own], max_tokens)
        self.next_id += 1
        fits = num_shared + num_own + max_tokens <= self.cache.max_tokens
        if fits:
            self.scheduler.submit(request)
            self.live.append(request)
        else:
            with pytest.raises(RequestError):
                self.scheduler.submit(request)

    @precondition(lambda self: self.live)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        request = data.draw(st.sampled_from(self.live))
        self.scheduler.finish(request, FinishReason.CANCELLED)
        assert len(self.cache.table(request.request_id)) == 0
        self.live.remove(request)

    @precondition(lambda self: any(request.output_token_ids for request in self.live))
    @rule(data=st.data(), num_kept=st.integers(0, 4), num_new=st.integers(1, 4))
    def rewrite(self, data: st.DataObject, num_kept: int, num_new: int) -> None:
        """An answer that is searched for tries another beginning."""
        request = data.draw(st.sampled_from([request for request in self.live if request.output_token_ids]))
        output = [*request.output_token_ids[:num_kept], *[8] * num_new]
        request.replace_output(output[: request.sampling.max_tokens - 1] or request.output_token_ids[:1])

    @rule()
    def step(self) -> None:
        step = self.scheduler.schedule()
        assert step.num_rows <= self.config.max_batch_tokens
        computed = {rows.request: rows.num_rows for rows in step.rows}
        assert len(computed) == len(step.rows), "a request is in the step twice"
        for request, num_rows in computed.items():
            assert 1 <= num_rows <= self.config.max_prefill_chunk_tokens
            assert request.state is RequestState.RUNNING
            held = len(self.cache.table(request.request_id)) * self.cache.block_size
            assert request.num_computed_tokens + num_rows <= held
        for request in self.scheduler.running:
            if request.num_pending_tokens == 1:
                assert computed.get(request) == 1, "a stream that decodes was left out of the step"
        if self.live:
            # The oldest request always advances: it is never preempted, never passed over. So it finishes, the next
            # becomes the oldest, and by induction nobody starves.
            assert self.live[0] in computed
        assert bool(computed) == bool(self.live)
        self.scheduler.complete(step)
        for rows in step.rows:
            assert rows.needs_logits == (rows.request.num_pending_tokens == 0)
            if rows.needs_logits:
                rows.request.output_token_ids.append(7)
                if len(rows.request.output_token_ids) == rows.request.sampling.max_tokens:
                    self.scheduler.finish(rows.request, FinishReason.LENGTH)
                    self.live.remove(rows.request)

    @invariant()
    def accounting_is_exact(self) -> None:
        if not hasattr(self, "scheduler"):
            return
        self.cache.check()
        running, waiting = self.scheduler.running, self.scheduler.waiting
        assert [*running, *waiting] == self.live, "order of arrival, and nobody lost"
        assert len(running) <= self.config.max_sequences
        assert all(request.state is RequestState.RUNNING for request in running)
        for request in waiting:
            assert request.state in (RequestState.WAITING, RequestState.PREEMPTED)
            assert len(self.cache.table(request.request_id)) == 0
            assert request.num_computed_tokens == 0
        assert all(request.num_pending_tokens >= 1 for request in self.live)

    def teardown(self) -> None:
        """Whatever happened, what is left finishes, and then every block is free."""
        if not hasattr(self, "scheduler"):
            return
        # Each step computes a row of the oldest, so this many steps are enough for all.
        enough = sum(len(r.prompt_token_ids) + r.sampling.max_tokens for r in self.live)
        for _ in range(enough):
            self.step()
            self.accounting_is_exact()
        assert not self.live
        assert self.cache.num_free_blocks == self.cache.num_blocks


TestSchedulerMachine = SchedulerMachine.TestCase
TestSchedulerMachine.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


def test_decodes_come_before_prompts() -> None:
    """A running stream has its row in every step, however long the prompt beside it is."""
    scheduler = make_scheduler(num_blocks=32)
    speaking = make_request(0, 3, max_tokens=20)
    scheduler.submit(speaking)
    compute(scheduler)
    scheduler.submit(make_request(1, 60))
    for _ in range(7):
        assert rows_by_id(compute(scheduler)) == {0: 1, 1: 8}


def test_a_short_prompt_runs_beside_a_long_one() -> None:
    """The chunk size leaves room in the step: a short prompt does not wait for the end of a long one."""
    scheduler = make_scheduler(num_blocks=32)
    scheduler.submit(make_request(0, 40))
    scheduler.submit(make_request(1, [50, 51, 52]))
    step = compute(scheduler)
    assert rows_by_id(step) == {0: 8, 1: 3}
    assert [rows.needs_logits for rows in step.rows] == [False, True]


def test_the_youngest_is_preempted_and_comes_back() -> None:
    """Out of blocks, the youngest request gives its up, is computed anew later, and nothing of its answer is lost."""
    scheduler = make_scheduler(num_blocks=5, max_sequences=2)
    old, young = make_request(0, [1] * 4, max_tokens=12), make_request(1, [2] * 4, max_tokens=9)
    scheduler.submit(old)
    scheduler.submit(young)
    while not scheduler.num_preemptions:
        compute(scheduler)
    assert (old.state, young.state) == (RequestState.RUNNING, RequestState.PREEMPTED)
    num_generated = len(young.output_token_ids)
    assert num_generated > 0
    while old.state is RequestState.RUNNING:
        compute(scheduler)
    assert compute(scheduler).rows[0].request is young
    assert len(young.output_token_ids) >= num_generated
    while young.state is not RequestState.FINISHED:
        compute(scheduler)
    assert len(young.output_token_ids) == 9
    assert scheduler.cache.num_free_blocks == 5


def test_a_request_that_loses_its_blocks_is_not_in_the_step() -> None:
    """A stream that was given its row, and then its blocks were taken for an older prompt, is not computed.

    0 is computing its prompt again, 1 decodes and so is placed first; the next chunk of 0 needs the blocks of 1.
    """
    scheduler = make_scheduler(num_blocks=4, max_sequences=2, max_batch_tokens=8, max_prefill_chunk_tokens=4)
    old, young = make_request(0, [1] * 4, max_tokens=12), make_request(1, [2] * 3, max_tokens=8)
    scheduler.submit(old)
    scheduler.submit(young)
    compute(scheduler)
    old.replace_output([8] * 9)
    step = scheduler.schedule()
    while young.state is RequestState.RUNNING:
        scheduler.complete(step)
        for rows in step.rows:
            if rows.needs_logits:
                rows.request.output_token_ids.append(7)
        step = scheduler.schedule()
    assert [rows.request for rows in step.rows] == [old]
    scheduler.cache.check()


@pytest.mark.parametrize(
    ("num_prompt", "chunk", "num_newcomer"),
    [
        pytest.param(6, 8, 12, id="the newcomer would take the block the stream grows into"),
        pytest.param(12, 4, 8, id="the newcomer would take the blocks of the rest of the prompt"),
    ],
)
def test_a_newcomer_leaves_room_for_those_before_it(num_prompt: int, chunk: int, num_newcomer: int) -> None:
    """A request that would fill the last block is not admitted, only to be thrown out at the next block border."""
    scheduler = make_scheduler(num_blocks=5, max_prefill_chunk_tokens=chunk)
    scheduler.submit(make_request(0, [1] * num_prompt, max_tokens=4))
    compute(scheduler)
    scheduler.submit(make_request(1, [2] * num_newcomer, max_tokens=4))
    compute(scheduler)
    assert [request.request_id for request in scheduler.waiting] == [1]
    while scheduler.waiting:
        compute(scheduler)
    assert scheduler.num_preemptions == 0


def test_equal_beginnings_share_full_blocks() -> None:
    """A prompt that begins like a running one is computed only from where they differ; the blocks are counted once."""
    scheduler = make_scheduler(num_blocks=8)
    first = make_request(0, [1, 2, 3, 4, 5, 6, 7, 8, 9], max_tokens=20)
    scheduler.submit(first)
    compute(scheduler)
    compute(scheduler)
    second = make_request(1, [1, 2, 3, 4, 5, 6, 7, 8, 20, 21], max_tokens=2)
    scheduler.submit(second)
    assert rows_by_id(compute(scheduler)) == {0: 1, 1: 2}
    assert second.num_cached_tokens == 8
    assert scheduler.cache.table(1)[:2] == scheduler.cache.table(0)[:2]
    scheduler.finish(first, FinishReason.CANCELLED)
    scheduler.cache.check()
    assert len(scheduler.cache.table(1)) == 3


def test_only_equal_blocks_are_shared() -> None:
    """Of prompts that part in the second block, the first alone is shared; of those that part in the first, nothing."""
    scheduler = make_scheduler(num_blocks=16, max_prefill_chunk_tokens=16)
    scheduler.submit(make_request(0, 12, max_tokens=20))
    compute(scheduler)
    early, late = make_request(1, [0, 1, 2, 3, 4, 9, 6, 7, 8]), make_request(2, [0, 1, 2, 9, 4, 5, 6, 7, 8])
    scheduler.submit(early)
    scheduler.submit(late)
    compute(scheduler)
    assert (early.num_cached_tokens, late.num_cached_tokens) == (4, 0)


def test_a_prompt_that_is_all_shared_still_computes_its_last_token() -> None:
    """Logits come from computing: of an equal prompt at least the last block is computed again."""
    scheduler = make_scheduler(num_blocks=8)
    scheduler.submit(make_request(0, 8, max_tokens=20))
    compute(scheduler)
    scheduler.submit(make_request(1, 8))
    assert rows_by_id(compute(scheduler)) == {0: 1, 1: 4}


def test_what_can_never_fit_is_refused_at_once() -> None:
    """A request that could not finish even alone gets a clear error when it is submitted, and is not queued."""
    scheduler = make_scheduler(num_blocks=4)
    with pytest.raises(PromptTooLongError, match="the prompt has 16 tokens and the model's context holds 16"):
        scheduler.submit(make_request(0, 16, max_tokens=1))
    with pytest.raises(RequestError, match="the prompt has 10 tokens and the answer may have 7") as raised:
        scheduler.submit(make_request(1, 10, max_tokens=7))
    assert raised.value.field == "max_tokens"
    assert not scheduler.waiting
    scheduler.submit(make_request(2, 10, max_tokens=6))


def test_an_answer_that_is_rewritten_is_computed_from_where_it_differs() -> None:
    """Replacing the end of an answer keeps what is common, and always leaves a token to compute."""
    request = make_request(0, 5)
    request.run(0)
    request.output_token_ids += [10, 11, 12]
    request.num_computed_tokens = 8
    request.replace_output([10, 20])
    assert (request.num_computed_tokens, request.num_pending_tokens) == (6, 1)
    request.num_computed_tokens = 7
    request.replace_output([10])
    assert (request.num_computed_tokens, request.num_pending_tokens) == (5, 1)
    assert list(request.token_ids(3, 6)) == [3, 4, 10]


@pytest.mark.parametrize("state", list(RequestState))
@pytest.mark.parametrize("move", list(RequestState))
def test_only_legal_moves_are_made(state: RequestState, move: RequestState) -> None:
    """A request refuses every move that its table does not list."""
    request = make_request(0, 3)
    request.state = state
    make_move = {
        RequestState.RUNNING: lambda: request.run(0),
        RequestState.PREEMPTED: request.preempt,
        RequestState.FINISHED: lambda: request.finish(FinishReason.STOP),
    }.get(move)
    if make_move is None:
        assert all(move not in moves for moves in LEGAL_MOVES.values())
    elif move in LEGAL_MOVES[state]:
        make_move()
        assert request.state is move
    else:
        with pytest.raises(AssertionError, match=f"may not go from {state} to {move}"):
            make_move()


def test_a_budget_below_the_number_of_streams_is_refused() -> None:
    """Every running stream must fit every step, so the two bounds are checked against each other."""
    with pytest.raises(ConfigError, match="max_batch_tokens is 4, less than max_sequences"):
        EngineConfig(max_batch_tokens=4, max_sequences=5)


@pytest.mark.parametrize("value", [0, -1, True, 1.5, "8", None])
def test_settings_out_of_range_name_themselves(value: object) -> None:
    """A malformed setting is an error that names it and shows the value."""
    with pytest.raises(ConfigError, match=f"max_sequences is {value!r}"):
        EngineConfig(max_sequences=value)  # type: ignore[arg-type]
