"""Whatever comes, in whatever order: exact accounting, nobody reads what is not theirs, everybody finishes."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from agentrt.errors import QueueFullError, RequestError
from agentrt.inference.config import EngineConfig
from agentrt.inference.kv_cache import KVCache
from agentrt.inference.prefix_cache import Namespace
from agentrt.inference.request import FinishReason, Request, RequestState, SchedulingParams
from agentrt.inference.sampling_params import SamplingParams
from agentrt.inference.scheduler import Scheduler, Step
from tests.support.cache_memory import CacheMemory

SHARED = [*range(40)]
END_OF_TIME_S = 1e9


class SchedulerMachine(RuleBasedStateMachine):
    """Arrivals of every kind, steps with drafts, forks, rewrites, pins, failures and cancellations, with few blocks."""

    @initialize(
        num_blocks=st.integers(2, 16),
        block_size=st.integers(1, 4),
        max_sequences=st.integers(1, 5),
        max_batch_tokens=st.integers(2, 40),
        chunk=st.integers(1, 40),
        policy=st.sampled_from(["fcfs", "priority", "slack"]),
        prompt_token_wait_s=st.sampled_from([0.0, 0.01, 1.0]),
        share=st.sampled_from([0.0, 0.5, 1.0]),
    )
    def build(
        self,
        num_blocks: int,
        block_size: int,
        max_sequences: int,
        max_batch_tokens: int,
        chunk: int,
        policy: str,
        prompt_token_wait_s: float,
        share: float,
    ) -> None:
        self.config = EngineConfig(
            block_size=block_size,
            num_blocks=num_blocks,
            max_batch_tokens=max_batch_tokens,
            max_prefill_chunk_tokens=chunk,
            max_sequences=max_sequences,
            max_waiting=6,
            policy=policy,  # type: ignore[arg-type]
            prompt_token_wait_s=prompt_token_wait_s,
            max_pinned_share=share,
        )
        self.cache = KVCache(num_blocks, block_size, max_pinned_share=share)
        self.memory = CacheMemory(num_blocks, block_size)
        self.scheduler = Scheduler(self.config, self.cache)
        self.live: list[Request] = []
        self.ids = itertools.count()
        self.now_s = 0.0

    @rule(
        num_shared=st.sampled_from([0, 3, 8, 20, 20]),
        num_own=st.integers(1, 10),
        max_tokens=st.sampled_from([1, 3, 10, 16]),
        num_equal=st.integers(1, 4),
        is_prompt_only=st.sampled_from([False, False, False, True]),
        tenant=st.sampled_from(["", "", "", "other"]),
        run_id=st.sampled_from([None, "a", "b"]),
        priority=st.integers(-1, 2),
        time_left_s=st.sampled_from([None, 1.0, 20.0]),
    )
    def arrive(
        self,
        num_shared: int,
        num_own: int,
        max_tokens: int,
        num_equal: int,
        is_prompt_only: bool,
        tenant: str,
        run_id: str | None,
        priority: int,
        time_left_s: float | None,
    ) -> None:
        deadline_s = None if time_left_s is None else self.now_s + time_left_s
        prompt = [*SHARED[:num_shared], *[100 + num_own] * num_own]
        scheduling = SchedulingParams(run_id, deadline_s, priority, Namespace(tenant=tenant))
        sampling = SamplingParams(max_tokens=max_tokens)
        for _ in range(num_equal):
            self._submit(
                Request(next(self.ids), tuple(prompt), sampling, self.now_s, scheduling, is_prompt_only=is_prompt_only)
            )

    def _submit(self, request: Request) -> None:
        if len(request.prompt_token_ids) + request.max_new_tokens > self.cache.max_tokens:
            with pytest.raises(RequestError):
                self.scheduler.submit(request)
        elif len(self.scheduler.waiting) >= self.config.max_waiting:
            with pytest.raises(QueueFullError):
                self.scheduler.submit(request)
        else:
            self.scheduler.submit(request)
            self.live.append(request)

    @precondition(lambda self: self.live)
    @rule(data=st.data(), reason=st.sampled_from([FinishReason.CANCELLED, FinishReason.FAILED]))
    def leave(self, data: st.DataObject, reason: FinishReason) -> None:
        request = data.draw(st.sampled_from(self.live))
        self.scheduler.finish(request, reason)
        assert len(self.cache.table(request.request_id)) == 0
        self.live.remove(request)

    @precondition(lambda self: any(request.output_token_ids for request in self.live))
    @rule(data=st.data(), num_kept=st.integers(0, 4), num_new=st.integers(1, 4))
    def rewrite(self, data: st.DataObject, num_kept: int, num_new: int) -> None:
        """An answer that is searched for tries another beginning."""
        request = data.draw(st.sampled_from([request for request in self.live if request.output_token_ids]))
        output = [*request.output_token_ids[:num_kept], *[8] * num_new]
        request.replace_output(output[: request.sampling.max_tokens - 1] or request.output_token_ids[:1])

    @precondition(lambda self: any(request.output_token_ids for request in self.scheduler.running))
    @rule(data=st.data())
    def fork(self, data: st.DataObject) -> None:
        request = data.draw(
            st.sampled_from([request for request in self.scheduler.running if request.output_token_ids])
        )
        sample = Request(next(self.ids), request.prompt_token_ids, request.sampling, self.now_s, request.scheduling)
        sample.output_token_ids += request.output_token_ids
        self.scheduler.fork(request, sample)
        self.live.append(sample)

    @precondition(lambda self: any(r.output_token_ids and r.num_pending_tokens == 1 for r in self.scheduler.running))
    @rule(data=st.data(), draft=st.lists(st.sampled_from([7, 9]), max_size=6))
    def guess(self, data: st.DataObject, draft: list[int]) -> None:
        streams = [r for r in self.scheduler.running if r.output_token_ids and r.num_pending_tokens == 1]
        data.draw(st.sampled_from(streams)).draft_token_ids = tuple(draft)

    @rule(num_tokens=st.integers(0, 24), time_s=st.integers(0, 30))
    def pin(self, num_tokens: int, time_s: int) -> None:
        self.cache.prefixes.pin(Namespace(), SHARED[:num_tokens], self.now_s + time_s)

    @rule(time_s=st.sampled_from([0.001, 0.5, 10.0]))
    def wait(self, time_s: float) -> None:
        self.now_s += time_s

    @rule(data=st.data(), max_prefill_rows=st.sampled_from([None, None, 0, 1, 5, 17]))
    def step(self, data: st.DataObject, max_prefill_rows: int | None) -> None:
        self._step(max_prefill_rows, lambda num_drafts: data.draw(st.integers(0, num_drafts)))

    @rule(num_steps=st.integers(1, 8))
    def steps(self, num_steps: int) -> None:
        for _ in range(num_steps):
            self._step(None)
            self.accounting_is_exact()

    def _step(self, max_prefill_rows: int | None, accept: object = None) -> None:
        running, waiting = list(self.scheduler.running), list(self.scheduler.waiting)
        streams = [request for request in running if request.num_pending_tokens == 1]
        step = self.scheduler.schedule(self.now_s, max_prefill_rows)
        self.cache.check()
        self._check_step(step, streams, max_prefill_rows)
        self._check_order(running, waiting)
        self._run(step, accept)

    def _check_step(self, step: Step, streams: list[Request], max_prefill_rows: int | None) -> None:
        assert bool(step.rows) == bool(self.live), "while somebody is there, something is computed"
        assert step.num_rows <= self.config.max_batch_tokens
        rows_of = {rows.request: rows for rows in step.rows}
        assert len(rows_of) == len(step.rows), "a request is in the step twice"
        num_prompt_rows = 0
        for request, rows in rows_of.items():
            assert request.state is RequestState.RUNNING
            assert 1 <= rows.num_rows <= max(self.config.max_prefill_chunk_tokens, 1 + rows.num_drafts)
            held = len(self.cache.table(request.request_id)) * self.cache.block_size
            assert request.num_computed_tokens + rows.num_rows <= held
            assert request.num_tokens + rows.num_drafts <= len(request.prompt_token_ids) + request.max_new_tokens
            is_whole = rows.num_rows >= request.num_pending_tokens
            assert rows.needs_logits == (is_whole and not request.is_prompt_only)
            assert rows.num_drafts == len(request.draft_token_ids)
            num_prompt_rows += rows.num_rows if request.num_pending_tokens > 1 else 0
        if max_prefill_rows is not None and streams:
            assert num_prompt_rows <= max(max_prefill_rows, 1)
        if len(streams) <= self.config.max_batch_tokens:
            for request in streams:
                is_stream = request.state is RequestState.RUNNING and request.num_pending_tokens == 1
                assert request in rows_of or not is_stream, "a stream that decodes was left out of the step"
        assert step.load.decode_rows + step.load.prefill_rows == step.num_rows

    def _check_order(self, running: list[Request], waiting: list[Request]) -> None:
        """Who was let in stands before all who wait on; who was thrown out stands after all who stay."""
        order = self.scheduler._ranking.queue_order
        admitted = [request for request in waiting if request.state is RequestState.RUNNING]
        left = [request for request in waiting if request.state is not RequestState.RUNNING]
        assert all(order(one) < order(other) for one in admitted for other in left)
        thrown = [request for request in running if request.state is RequestState.PREEMPTED]
        stayed = [request for request in running if request.state is RequestState.RUNNING]
        assert all(order(one) > order(other) for one in thrown for other in stayed)

    def _run(self, step: Step, accept: object) -> None:
        """Compute a step in the memory, then say what was right, as an engine does."""
        self.memory.copy(step.copies)
        for rows in step.rows:
            request, start = rows.request, rows.request.num_computed_tokens
            table = self.cache.table(request.request_id)
            tokens = list(request.token_ids(0, start + rows.num_rows))
            self.memory.write(table, request.scheduling.namespace, tokens, start)
        accepted = {
            rows.request.request_id: accept(rows.num_drafts) if callable(accept) else 0
            for rows in step.rows
            if rows.num_drafts
        }
        drafts = {rows.request: rows.request.draft_token_ids for rows in step.rows}
        for request in self.scheduler.complete(step, accepted):
            self.live.remove(request)
        for rows in step.rows:
            request = rows.request
            if rows.needs_logits:
                request.output_token_ids += [*drafts[request][: accepted.get(request.request_id, 0)], 7]
                if len(request.output_token_ids) == request.sampling.max_tokens:
                    self.scheduler.finish(request, FinishReason.LENGTH)
                    self.live.remove(request)

    @invariant()
    def accounting_is_exact(self) -> None:
        if not hasattr(self, "scheduler"):
            return
        self.cache.check()
        running, waiting = self.scheduler.running, self.scheduler.waiting
        order = self.scheduler._ranking.queue_order
        assert sorted(running, key=order) == running
        assert sorted(waiting, key=order) == waiting
        assert {*running, *waiting} == set(self.live)
        assert len(running) + len(waiting) == len(self.live), "nobody is lost, nobody is in two places"
        assert len(running) <= self.config.max_sequences
        for request in running:
            assert request.state is RequestState.RUNNING
            tokens = request.token_ids(0, request.num_computed_tokens)
            self.memory.read(self.cache.table(request.request_id), request.scheduling.namespace, tokens)
        for request in waiting:
            assert request.state in (RequestState.WAITING, RequestState.PREEMPTED)
            assert len(self.cache.table(request.request_id)) == 0
            assert request.num_computed_tokens == 0
        assert all(request.num_pending_tokens >= 1 for request in self.live)
        assert 0 <= self.scheduler.payload_share <= 1

    def teardown(self) -> None:
        """Whatever happened, what is left finishes, pins or not, and then every block can be had."""
        if not hasattr(self, "scheduler"):
            return
        # Any step computes something. What the first in rank has computed is never lost; what others have may be, once
        # for each block that one before them takes.
        num_tokens = sum(len(request.prompt_token_ids) + request.max_new_tokens for request in self.live)
        for _ in range(num_tokens * (len(self.live) + 1)):
            if self.live:
                self._step(None)
                self.accounting_is_exact()
        assert not self.live
        assert self.cache.num_used_blocks == 0
        self.cache.prefixes.expire_pins(END_OF_TIME_S)
        assert self.cache.num_available_blocks == self.cache.num_blocks


TestSchedulerMachine = SchedulerMachine.TestCase
TestSchedulerMachine.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
