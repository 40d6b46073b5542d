"""The scheduler's promises: exact accounting, bounded steps, the order of the policy, and that everyone finishes."""

from __future__ import annotations

from itertools import pairwise

import pytest

from agentrt.errors import ConfigError, PromptTooLongError, QueueFullError, RequestError
from agentrt.inference.config import EngineConfig
from agentrt.inference.kv_cache import KVCache
from agentrt.inference.prefix_cache import Namespace
from agentrt.inference.request import LEGAL_MOVES, FinishReason, Request, RequestState, SchedulingParams
from agentrt.inference.sampling_params import SamplingParams
from agentrt.inference.scheduler import Scheduler, Step


def make_request(
    request_id: int,
    prompt: int | list[int],
    max_tokens: int = 4,
    *,
    arrival_s: float = 0.0,
    is_prompt_only: bool = False,
    namespace: Namespace = Namespace(),  # noqa: B008
) -> Request:
    tokens = list(range(prompt)) if isinstance(prompt, int) else prompt
    return Request(
        request_id,
        tuple(tokens),
        SamplingParams(max_tokens=max_tokens),
        arrival_s,
        SchedulingParams(namespace=namespace),
        is_prompt_only,
    )


def make_scheduler(*, num_blocks: int, block_size: int = 4, **config: object) -> Scheduler:
    settings = {"max_batch_tokens": 16, "max_prefill_chunk_tokens": 8, "max_sequences": 8, **config}
    engine_config = EngineConfig(block_size=block_size, **settings)  # type: ignore[arg-type]
    return Scheduler(engine_config, KVCache(num_blocks, block_size, max_pinned_share=engine_config.max_pinned_share))


def compute(scheduler: Scheduler, max_prefill_rows: int | None = None, token: int = 7) -> Step:
    """One step as the engine does it: the newest token of each request that got logits is a dummy."""
    step = scheduler.schedule(0.0, max_prefill_rows)
    scheduler.complete(step)
    scheduler.cache.check()
    for rows in step.rows:
        if rows.needs_logits:
            rows.request.output_token_ids.append(token)
            if len(rows.request.output_token_ids) == rows.request.sampling.max_tokens:
                scheduler.finish(rows.request, FinishReason.LENGTH)
    return step


def rows_by_id(step: Step) -> dict[int, int]:
    return {rows.request.request_id: rows.num_rows for rows in step.rows}


def test_decodes_come_before_prompts() -> None:
    """A running stream has its row in every step, however long the prompt beside it is."""
    scheduler = make_scheduler(num_blocks=32)
    speaking = make_request(0, 3, max_tokens=20)
    scheduler.submit(speaking)
    compute(scheduler)
    scheduler.submit(make_request(1, 60))
    for _ in range(7):
        assert rows_by_id(compute(scheduler)) == {0: 1, 1: 8}


def test_prompt_rows_are_bounded_by_the_caller() -> None:
    """Prompts get the rows that the caller allows, streams theirs all the same; with nobody else one row is computed."""
    scheduler = make_scheduler(num_blocks=32)
    scheduler.submit(make_request(0, 3, max_tokens=20))
    compute(scheduler)
    scheduler.submit(make_request(1, 60))
    assert rows_by_id(compute(scheduler, 6)) == {0: 1, 1: 4}, "a chunk ends at a block border if it can"
    assert rows_by_id(compute(scheduler, 0)) == {0: 1}
    assert rows_by_id(compute(scheduler, 3)) == {0: 1, 1: 3}
    assert rows_by_id(compute(scheduler, 3)) == {0: 1, 1: 1}
    scheduler.finish(scheduler.running[0], FinishReason.CANCELLED)
    assert rows_by_id(compute(scheduler, 0)) == {1: 1}


def test_a_short_prompt_goes_before_a_long_one() -> None:
    """A short prompt does not wait for the end of a long one that is being computed."""
    scheduler = make_scheduler(num_blocks=32, max_prefill_chunk_tokens=16)
    scheduler.submit(make_request(0, 40))
    compute(scheduler)
    scheduler.submit(make_request(1, [50, 51, 52]))
    step = compute(scheduler)
    assert [(rows.request.request_id, rows.num_rows, rows.num_logits) for rows in step.rows] == [(1, 3, 1), (0, 12, 0)]


@pytest.mark.parametrize(("later_s", "first"), [(0.9, 1), (1.1, 0)])
def test_a_long_prompt_lets_short_ones_pass_for_a_bounded_time(later_s: float, first: int) -> None:
    """With 0.1 s a token, a prompt that is ten tokens longer waits for those that come within a second, and no others."""
    scheduler = make_scheduler(num_blocks=32, prompt_token_wait_s=0.1)
    scheduler.submit(make_request(0, [1] * 15))
    scheduler.submit(make_request(1, [2] * 5, arrival_s=later_s))
    assert compute(scheduler, 4).rows[0].request.request_id == first


def test_more_streams_than_rows_take_turns() -> None:
    """If more streams decode than a step has rows, none gets a second row before each had one."""
    scheduler = make_scheduler(num_blocks=64, max_batch_tokens=4, max_sequences=7)
    first = make_request(0, 3, max_tokens=30)
    scheduler.submit(first)
    scheduler.complete(scheduler.schedule(0.0))
    samples = [make_request(number, 3, max_tokens=30) for number in range(1, 7)]
    for sample in samples:
        scheduler.fork(first, sample)
    for request in scheduler.running:
        request.output_token_ids.append(7)
    turns: dict[int, list[int]] = {number: [] for number in range(7)}
    for number in range(21):
        for request_id in rows_by_id(compute(scheduler)):
            turns[request_id].append(number)
    assert all(following - step <= 2 for steps in turns.values() for step, following in pairwise(steps))
    assert {len(steps) for steps in turns.values()} == {12}


def test_the_last_in_rank_is_preempted_and_comes_back() -> None:
    """Out of blocks, the last in rank gives its up; what is still cached of it is found again, and its answer goes on."""
    scheduler = make_scheduler(num_blocks=5, max_sequences=2)
    old, young = make_request(0, [1] * 4, max_tokens=12), make_request(1, [2] * 4, max_tokens=9, arrival_s=1.0)
    scheduler.submit(old)
    scheduler.submit(young)
    while not scheduler.num_preemptions:
        compute(scheduler)
    assert (old.state, young.state) == (RequestState.RUNNING, RequestState.PREEMPTED)
    num_generated = len(young.output_token_ids)
    assert num_generated > 0
    while old.state is RequestState.RUNNING:
        compute(scheduler)
    step = compute(scheduler)
    assert step.rows[0].request is young
    assert step.num_rows < 4 + num_generated, "its first block was still cached"
    assert len(young.output_token_ids) >= num_generated
    while young.state is not RequestState.FINISHED:
        compute(scheduler)
    assert len(young.output_token_ids) == 9
    assert scheduler.cache.num_used_blocks == 0
    assert scheduler.cache.num_available_blocks == 5


def test_a_request_that_loses_its_blocks_is_not_in_the_step() -> None:
    """A stream that was given its row, and then its blocks were taken for one before it, is not computed.

    0 is computing its prompt again, 1 decodes and so is placed first; the next chunk of 0 needs the blocks of 1.
    """
    scheduler = make_scheduler(num_blocks=4, max_sequences=2, max_batch_tokens=8, max_prefill_chunk_tokens=4)
    old, young = make_request(0, [1] * 4, max_tokens=12), make_request(1, [2] * 3, max_tokens=8, arrival_s=1.0)
    scheduler.submit(old)
    scheduler.submit(young)
    compute(scheduler)
    old.replace_output([8] * 9)
    step = scheduler.schedule(0.0)
    while young.state is RequestState.RUNNING:
        scheduler.complete(step)
        for rows in step.rows:
            if rows.needs_logits:
                rows.request.output_token_ids.append(7)
        step = scheduler.schedule(0.0)
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


def test_nobody_passes_one_that_does_not_fit() -> None:
    """While the first of the queue waits for blocks, smaller ones behind it wait too: else it would wait for ever."""
    scheduler = make_scheduler(num_blocks=8, prompt_token_wait_s=0.0)
    scheduler.submit(make_request(0, [1] * 15, max_tokens=8))
    compute(scheduler)
    scheduler.submit(make_request(1, [2] * 20, arrival_s=1.0))
    scheduler.submit(make_request(2, [3], arrival_s=2.0))
    for _ in range(3):
        compute(scheduler)
    assert [request.request_id for request in scheduler.waiting] == [1, 2]


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


def test_a_conversations_next_turn_finds_prompt_and_answer() -> None:
    """What a finished request computed is found, its answer included; another tenant finds nothing."""
    scheduler = make_scheduler(num_blocks=32)
    scheduler.submit(make_request(0, [1] * 6, max_tokens=7))
    while scheduler.running or scheduler.waiting:
        compute(scheduler)
    turn = [*[1] * 6, *[7] * 7, 2, 2]
    scheduler.submit(make_request(1, turn, max_tokens=1))
    assert rows_by_id(compute(scheduler)) == {1: 3}
    scheduler.submit(make_request(2, turn, max_tokens=1, namespace=Namespace(tenant="other")))
    assert rows_by_id(compute(scheduler)) == {2: 8}
    stats = scheduler.cache.stats()
    assert (stats.num_hit_tokens, stats.num_queried_tokens) == (12, 6 + 15 + 15)


def test_prompts_that_come_together_compute_their_beginning_once() -> None:
    """Three with the same long beginning arrive at once: one computes it, the others take it over and do their own part."""
    scheduler = make_scheduler(num_blocks=64, max_batch_tokens=64, max_prefill_chunk_tokens=16)
    shared = list(range(100, 140))
    for number in range(3):
        scheduler.submit(make_request(number, [*shared, number, number], max_tokens=3))
    steps = [rows_by_id(compute(scheduler)) for _ in range(4)]
    assert steps[0] == {0: 16}
    assert steps[1] == {0: 16}
    # 40 tokens are ten blocks of four: what is left to share now is less than a wait is worth.
    assert steps[2] == {0: 10, 1: 10, 2: 10}
    assert scheduler.running[1].num_cached_tokens == 32
    assert scheduler.cache.table(0)[:10] == scheduler.cache.table(1)[:10] == scheduler.cache.table(2)[:10]


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


def test_a_failed_request_leaves_nothing_to_find() -> None:
    """What a model computed for a request whose values were no numbers is not handed to the next one."""
    scheduler = make_scheduler(num_blocks=8)
    request = make_request(0, 8, max_tokens=20)
    scheduler.submit(request)
    compute(scheduler)
    scheduler.finish(request, FinishReason.FAILED)
    assert scheduler.cache.num_free_blocks == 8


def test_samples_of_a_prompt_share_it() -> None:
    """Forked samples share the prompt's blocks, the part-filled one too until they write; the step says what to copy."""
    scheduler = make_scheduler(num_blocks=16)
    request = make_request(0, 6, max_tokens=5)
    scheduler.submit(request)
    scheduler.complete(scheduler.schedule(0.0))
    samples = [make_request(number, 6, max_tokens=5) for number in (1, 2)]
    for sample in samples:
        scheduler.fork(request, sample)
    for number, sample in enumerate((request, *samples)):
        sample.output_token_ids.append(50 + number)
    assert scheduler.cache.num_used_blocks == 2
    step = scheduler.schedule(0.0)
    assert rows_by_id(step) == {0: 1, 1: 1, 2: 1}
    assert len(step.copies) == 2
    assert scheduler.cache.num_used_blocks == 4
    scheduler.complete(step)
    assert scheduler.schedule(0.0).copies == ()
    assert scheduler.payload_share == (4 + 3 + 3 + 3) / 16
    scheduler.cache.check()


def test_a_sample_without_a_free_place_waits() -> None:
    """With ``max_sequences`` running, a sample is queued and finds the full blocks of its prompt when it is admitted."""
    scheduler = make_scheduler(num_blocks=16, max_sequences=1)
    first, sample = make_request(0, 9, max_tokens=9), make_request(1, 9, max_tokens=2)
    scheduler.submit(first)
    compute(scheduler)
    scheduler.complete(scheduler.schedule(0.0))
    scheduler.fork(first, sample)
    assert sample.state is RequestState.WAITING
    sample.output_token_ids.append(50)
    scheduler.finish(first, FinishReason.CANCELLED)
    assert rows_by_id(compute(scheduler)) == {1: 2}
    assert sample.num_cached_tokens == 8


def test_a_prompt_alone_can_be_computed_ahead() -> None:
    """A request that generates nothing is over when its prompt is in the cache, needs no logits, and is found later."""
    scheduler = make_scheduler(num_blocks=16)
    warm = make_request(0, 12, is_prompt_only=True)
    scheduler.submit(warm)
    first, second = scheduler.schedule(0.0), None
    assert scheduler.complete(first) == []
    second = scheduler.schedule(0.0)
    assert [rows.num_logits for rows in (*first.rows, *second.rows)] == [0, 0]
    assert scheduler.complete(second) == [warm]
    assert (warm.state, warm.finish_reason) == (RequestState.FINISHED, FinishReason.PROMPT)
    assert scheduler.cache.prefixes.pin(Namespace(), list(range(12)), 10.0) == 12
    scheduler.submit(make_request(1, [*range(12), 99]))
    assert rows_by_id(compute(scheduler)) == {1: 1}


def test_drafts_are_rows_with_logits_of_their_own() -> None:
    """A stream with six draft tokens gets seven rows with logits; what was right counts, the rest is given back."""
    scheduler = make_scheduler(num_blocks=16)
    request = make_request(0, 6, max_tokens=20)
    scheduler.submit(request)
    compute(scheduler)
    request.draft_token_ids = (11, 12, 13, 14, 15, 16)
    step = scheduler.schedule(0.0)
    assert [(rows.num_rows, rows.num_logits, rows.num_drafts) for rows in step.rows] == [(7, 7, 6)]
    assert list(request.token_ids(6, 13)) == [7, 11, 12, 13, 14, 15, 16]
    assert len(scheduler.cache.table(0)) == 4
    scheduler.complete(step, {0: 2})
    assert request.num_computed_tokens == 9
    assert len(scheduler.cache.table(0)) == 3, "blocks beyond the accepted tokens are given back"
    request.output_token_ids += [11, 12, 50]
    assert (request.num_pending_tokens, request.draft_token_ids) == (1, ())
    scheduler.cache.check()
    nodes = scheduler.cache.match(Namespace(), request.token_ids, request.num_tokens)
    assert len(nodes) == 2, "a block that accepted drafts fill is found like any other"


def test_drafts_are_the_first_to_go() -> None:
    """Neither rows for prompts nor blocks of others are taken for drafts, and none beyond what may be generated."""
    scheduler = make_scheduler(num_blocks=6, max_batch_tokens=8)
    speaking, other = make_request(0, 3, max_tokens=8), make_request(1, [9] * 11, max_tokens=2)
    scheduler.submit(speaking)
    compute(scheduler)
    scheduler.submit(other)
    speaking.draft_token_ids = (1, 2, 3, 4, 5)
    step = scheduler.schedule(0.0, max_prefill_rows=7)
    assert rows_by_id(step) == {0: 4, 1: 4}, "a chunk ends at a block border; the draft has what is left"
    scheduler.complete(step)
    speaking.output_token_ids.append(7)
    speaking.draft_token_ids = (1, 2, 3, 4, 5)
    assert rows_by_id(compute(scheduler)) == {0: 1, 1: 7}, "the prompt needs all"
    scheduler.finish(other, FinishReason.CANCELLED)
    while len(speaking.output_token_ids) < 6:
        compute(scheduler)
    speaking.draft_token_ids = (1, 2, 3, 4, 5)
    assert rows_by_id(scheduler.schedule(0.0)) == {0: 2}


def test_drafts_take_no_block_that_somebody_has() -> None:
    """When blocks are short a draft is cut to the room its stream has already, and nobody is preempted for it."""
    scheduler = make_scheduler(num_blocks=3)
    first, second = make_request(0, 1, max_tokens=8), make_request(1, [9] * 3, max_tokens=8, arrival_s=1.0)
    scheduler.submit(first)
    scheduler.submit(second)
    while scheduler.cache.num_available_blocks:
        compute(scheduler)
    assert (first.num_computed_tokens, second.num_computed_tokens) == (3, 5)
    first.draft_token_ids = second.draft_token_ids = (1, 2, 3)
    assert rows_by_id(scheduler.schedule(0.0)) == {0: 1, 1: 3}
    assert scheduler.num_preemptions == 0


def test_what_can_never_fit_is_refused_at_once() -> None:
    """A request that could not finish even alone gets a clear error when it is submitted, and is not queued."""
    scheduler = make_scheduler(num_blocks=4)
    with pytest.raises(PromptTooLongError, match="the prompt has 16 tokens and the model's context holds 16"):
        scheduler.submit(make_request(0, 16, max_tokens=1))
    with pytest.raises(RequestError, match="the prompt has 10 tokens and the answer may have 7") as raised:
        scheduler.submit(make_request(1, 10, max_tokens=7))
    assert raised.value.field == "max_tokens"
    with pytest.raises(PromptTooLongError):
        scheduler.submit(make_request(2, 17, is_prompt_only=True))
    assert not scheduler.waiting
    scheduler.submit(make_request(3, 10, max_tokens=6))
    scheduler.submit(make_request(4, 16, is_prompt_only=True))


def test_pins_yield_to_a_request_that_is_alone() -> None:
    """A request for which there is no other room breaks pins rather than wait for ever, and it is counted."""
    scheduler = make_scheduler(num_blocks=4, max_pinned_share=1.0)
    scheduler.submit(make_request(0, 16, is_prompt_only=True))
    compute(scheduler)
    compute(scheduler)
    assert scheduler.cache.prefixes.pin(Namespace(), list(range(16)), 1e9) == 16
    request = make_request(1, [9] * 9, max_tokens=7)
    scheduler.submit(request)
    for _ in range(10):
        compute(scheduler)
    assert request.state is RequestState.FINISHED
    assert scheduler.cache.stats().num_broken_pins == 1


def test_a_full_queue_says_when_to_come_back() -> None:
    """Beyond ``max_waiting`` a request is refused with an estimate from how fast requests finish; none is counted in."""
    scheduler = make_scheduler(num_blocks=32, max_sequences=1, max_waiting=8)
    for number in range(8):
        scheduler.submit(make_request(number, 3, max_tokens=1, arrival_s=float(number)))
    with pytest.raises(QueueFullError, match="8 requests wait for the engine") as raised:
        scheduler.submit(make_request(8, 3))
    assert raised.value.retry_after_s == 1.0
    for number in range(4):
        step = scheduler.schedule(now_s=3.0 * number)
        scheduler.complete(step)
        scheduler.finish(step.rows[0].request, FinishReason.LENGTH)
    for number in range(4):
        scheduler.submit(make_request(10 + number, 3))
    with pytest.raises(QueueFullError) as raised:
        scheduler.submit(make_request(20, 3))
    assert raised.value.retry_after_s == pytest.approx(2 * 9.0 / 4)
    assert raised.value.num_waiting == len(scheduler.waiting) == 8


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


def test_a_rewritten_answer_leaves_registered_blocks_alone() -> None:
    """Rows that would change a block others may read are computed again, from its beginning, into another one."""
    scheduler = make_scheduler(num_blocks=8)
    request = make_request(0, 3, max_tokens=20)
    scheduler.submit(request)
    while len(request.output_token_ids) < 7:
        compute(scheduler)
    table = list(scheduler.cache.table(0))
    request.replace_output([7, 7, 9])
    assert rows_by_id(compute(scheduler)) == {0: 2}, "the token that differs, and the one before it in its block"
    assert scheduler.cache.table(0)[0] == table[0]
    assert scheduler.cache.table(0)[1] != table[1]


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


@pytest.mark.parametrize("value", [0, -1, True, 1.5, "8", None])
def test_settings_out_of_range_name_themselves(value: object) -> None:
    """A malformed setting is an error that names it and shows the value."""
    with pytest.raises(ConfigError, match=f"max_sequences is {value!r}"):
        EngineConfig(max_sequences=value)  # type: ignore[arg-type]
