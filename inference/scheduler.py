"""What the next step computes, and for whom: pure policy over requests and blocks.

A step is a set of rows: the next tokens of some requests, all computed in one pass of the model (iteration-level
batching: Yu et al. 2022, "Orca"). The order in a step:

1. **Decodes**: every request that needs one row gets it. A stream that speaks is never held up by a prompt. If there are
   more than the step has rows, those go first that have waited for the most steps.
2. **Admission**: waiting requests in the order of ``ranking``, while prompts do not fill the step yet and there are free
   blocks for all tokens they know, over and above what admitted prompts still need and one block to grow into for each
   running stream. Without that headroom the newcomer would take the last block, and be thrown out for it at the next
   block border. Nobody passes one that does not fit: that would starve long prompts.
3. **Chunks**: prompts share the rows that the caller allows for them (``step_time``; Agrawal et al. 2024,
   "Sarathi-Serve"), the shortest remaining first, with ageing (``ranking``). A chunk ends at a block border if it can, so
   that what it computed can be shared at once.
4. **Drafts** get what is left: rows, and blocks that nobody holds. They are the first to go when either is short, as a
   guess is worth less than a token that somebody waits for.

Before its chunk is placed, a prompt takes over the blocks that others have computed meanwhile. If another computes its
next ``AWAITED_BLOCKS`` blocks in this very step, it gets no rows: it finds them in the next step. It cannot wait in vain
for long, as each step that it waits brings it forward by that many tokens that it did not have to compute. (Letting it
run *in* the same step, right behind, would save that one step, but needs runners that write all rows' keys before any
row reads, across requests: a trap for each new kernel.) Below that many blocks a step's delay is worth more.

Blocks are taken as rows need them. When none is left, the running request that ranks last is preempted: its full blocks
become cached, its tokens stay, and it is computed anew, from what is still cached, when there is room. The rank is fixed,
so the first is never preempted by another, gets its rows, and finishes; then the next is first: nobody starves and
nothing deadlocks. That needs two more things: a request that could not finish even alone is refused when it is submitted,
and pins yield to one that runs alone.

``running`` and ``waiting`` are kept in the order of ``ranking.queue_order``. Times are given by the caller.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from agentrt.errors import PromptTooLongError, QueueFullError, RequestError
from agentrt.inference.config import EngineConfig
from agentrt.inference.kv_cache import BlockCopy, KVCache
from agentrt.inference.ranking import Ranking
from agentrt.inference.request import FinishReason, Request, RequestState
from agentrt.inference.sampling_params import SamplingParams
from agentrt.inference.step_time import StepLoad

AWAITED_BLOCKS = 4
_NO_DRAFTS: Mapping[int, int] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class ScheduledRows:
    """The next ``num_rows`` tokens of one request, drafts included, computed in this step.

    The last ``num_logits`` rows need logits: none in the middle of a prompt, one for the newest token, and one more for
    each draft token after it.
    """

    request: Request
    num_rows: int
    num_logits: int

    @property
    def needs_logits(self) -> bool:
        return self.num_logits > 0

    @property
    def num_drafts(self) -> int:
        return max(0, self.num_logits - 1)


@dataclass(frozen=True, slots=True)
class Step:
    """What to compute. The runner makes ``copies`` first."""

    rows: tuple[ScheduledRows, ...]
    copies: tuple[BlockCopy, ...] = ()
    load: StepLoad = field(default_factory=StepLoad)

    @property
    def num_rows(self) -> int:
        return sum(rows.num_rows for rows in self.rows)


class Scheduler:
    """Decides about steps; owns the order of requests, and through ``cache`` their blocks."""

    def __init__(self, config: EngineConfig, cache: KVCache, *, max_context_tokens: int | None = None) -> None:
        self.cache = cache
        self.max_context_tokens = min(max_context_tokens or cache.max_tokens, cache.max_tokens)
        """Prompt and answer of one request together: what the model reads and what the cache holds."""
        self.running: list[Request] = []
        self.waiting: list[Request] = []
        self.num_preemptions = 0
        self._config = config
        self._ranking = Ranking(config)
        self._num_turns = 0
        self._now_s = 0.0
        self._finish_times_s: deque[float] = deque(maxlen=64)

    @property
    def payload_share(self) -> float:
        """Of the slots in used blocks, each block counted once, how many hold a token: 1 means no waste."""
        num_slots = self.cache.num_used_blocks * self.cache.block_size
        num_computed = {request.request_id: request.num_computed_tokens for request in self.running}
        return 1.0 if num_slots == 0 else self.cache.num_held_tokens(num_computed) / num_slots

    @property
    def retry_after_s(self) -> float:
        """When one that is refused now may try again: in the time that a quarter of the queue takes.

        Sooner, all who were refused would come back for the one place that is free; later, places would stay empty.
        """
        if len(self._finish_times_s) < 2:
            return 1.0
        interval_s = (self._now_s - self._finish_times_s[0]) / len(self._finish_times_s)
        return max(0.1, interval_s * max(1, len(self.waiting) // 4))

    def submit(self, request: Request) -> None:
        """Put a request in the queue.

        Raises:
            PromptTooLongError: the prompt and one token of the answer do not fit the context, even alone.
            RequestError: the prompt fits, but not with as many tokens as the answer may have.
            QueueFullError: ``max_waiting`` requests wait already.
        """
        self.check_fits(request.prompt_token_ids, request.sampling, is_prompt_only=request.is_prompt_only)
        if len(self.waiting) >= self._config.max_waiting:
            raise QueueFullError(len(self.waiting), retry_after_s=self.retry_after_s)
        self._ranking.enter(request)
        insort(self.waiting, request, key=self._ranking.queue_order)

    def check_fits(
        self, prompt_token_ids: Sequence[int], sampling: SamplingParams, *, is_prompt_only: bool = False
    ) -> None:
        """Raise what ``submit`` would raise, a full queue apart. Changes nothing, so any thread may call it."""
        num_prompt, max_new_tokens = len(prompt_token_ids), 0 if is_prompt_only else sampling.max_new_tokens
        if num_prompt + min(1, max_new_tokens) > self.max_context_tokens:
            raise PromptTooLongError(num_prompt, self.max_context_tokens)
        if num_prompt + max_new_tokens > self.max_context_tokens:
            raise RequestError(
                f"the prompt has {num_prompt} tokens and the answer may have {max_new_tokens}; the context "
                f"holds {self.max_context_tokens}: ask for fewer tokens, or give the cache more memory if the model "
                "reads more",
                field="choices" if sampling.choices else "max_tokens",
            )

    def fork(self, request: Request, sample: Request) -> None:
        """Begin another sample of a running request, which shares the blocks of all that is computed.

        ``sample`` is new, and its tokens begin with those computed. It needs no admission; if ``max_sequences`` run
        already it waits, and finds the full blocks again. Raises nothing: its parent was checked.
        """
        assert request.state is RequestState.RUNNING, f"request {request.request_id} does not run, it has no blocks"
        if request.is_rewritten:
            self._rewind(request)
        num_computed = request.num_computed_tokens
        assert sample.token_ids(0, num_computed) == request.token_ids(0, num_computed), "a sample has other tokens"
        self._ranking.enter(sample)
        if len(self.running) >= self._config.max_sequences:
            insort(self.waiting, sample, key=self._ranking.queue_order)
            return
        self.cache.fork(request.request_id, sample.request_id, num_computed)
        sample.run(num_cached_tokens=num_computed)
        insort(self.running, sample, key=self._ranking.queue_order)

    def decode_load(self) -> StepLoad:
        """Return what the streams alone would make of the next step."""
        streams = [request.num_tokens for request in self.running if request.num_pending_tokens == 1]
        return StepLoad(decode_rows=len(streams), num_pairs=sum(streams))

    def prompt_context_tokens(self) -> int:
        """Return to how many tokens prompt rows of the next step attend at most."""
        return max((r.num_computed_tokens for r in self.running if r.num_pending_tokens > 1), default=0)

    def schedule(self, now_s: float, max_prefill_rows: int | None = None) -> Step:
        """Choose the rows of the next step and take the blocks they need. ``complete`` must follow.

        ``max_prefill_rows``: of prompts, all together; None leaves only the bounds of the config. A step is never empty
        while a request is there: if nobody decodes, one row of a prompt is computed all the same.
        """
        self._now_s = now_s
        self.cache.prefixes.expire_pins(now_s)
        plan: dict[Request, int] = {}
        for request in self.running:
            if request.is_rewritten:
                self._rewind(request)
        self._place_decodes(plan)
        rows_left = self._config.max_batch_tokens - sum(plan.values())
        budget = rows_left if max_prefill_rows is None else min(rows_left, max(max_prefill_rows, 0 if plan else 1))
        if budget > 0:
            prompts = [request for request in self.running if request.num_pending_tokens > 1]
            prompts += self._admit(budget, prompts)
            self._place_chunks(prompts, budget, plan)
        self._place_drafts(plan)
        return self._make_step(plan)

    def complete(self, step: Step, num_accepted: Mapping[int, int] = _NO_DRAFTS) -> list[Request]:
        """Record that the rows of ``step`` are in the cache, and file the blocks they fill.

        ``num_accepted``: how many draft tokens were right, by request id; the answer must have gained these, or gain them
        before the next step. Blocks beyond are given back. Returns the requests that are over, as nothing was to be
        generated.
        """
        self.cache.end_copies()
        finished = []
        for rows in step.rows:
            request, owner = rows.request, rows.request.request_id
            request.num_computed_tokens += rows.num_rows - rows.num_drafts
            if rows.num_drafts:
                num_right = num_accepted.get(owner, 0)
                assert 0 <= num_right <= rows.num_drafts, f"{num_right} of {rows.num_drafts} drafts were accepted"
                request.num_computed_tokens += num_right
                self.cache.rewind(owner, request.num_computed_tokens)
            self.cache.register(owner, request.token_ids, min(request.num_computed_tokens, request.num_settled_tokens))
            request.draft_token_ids = ()
            if request.is_prompt_only and request.num_pending_tokens == 0:
                self.finish(request, FinishReason.PROMPT)
                finished.append(request)
        return finished

    def finish(self, request: Request, reason: FinishReason) -> None:
        """End a request, whatever its state, and give back its blocks; those of one that failed are not found again."""
        if request.state is RequestState.RUNNING:
            self.running.remove(request)
            self.cache.release(request.request_id, discards=reason is FinishReason.FAILED)
            self._finish_times_s.append(self._now_s)
        else:
            self.waiting.remove(request)
        self._ranking.leave(request)
        request.finish(reason)

    def _rewind(self, request: Request) -> None:
        """Let go of the blocks that hold what a rewritten answer does not begin with any more."""
        request.num_computed_tokens = self.cache.rewind(request.request_id, request.num_computed_tokens)
        request.is_rewritten = False
        request.draft_token_ids = ()

    def _place_decodes(self, plan: dict[Request, int]) -> None:
        decodes = [request for request in self.running if request.num_pending_tokens == 1]
        if len(decodes) > self._config.max_batch_tokens:
            decodes.sort(key=lambda request: request.last_turn)
            del decodes[self._config.max_batch_tokens :]
        for request in decodes:
            if request.state is RequestState.RUNNING:
                self._place(request, 1, plan)

    def _place_chunks(self, prompts: Sequence[Request], budget: int, plan: dict[Request, int]) -> None:
        computed_now: set[tuple[object, tuple[int, ...]]] = set()
        for request in sorted(prompts, key=self._ranking.prompt_order):
            if request.state is not RequestState.RUNNING:
                continue
            part = self._next_part(request)
            if part is not None and part in computed_now:
                continue
            num_rows = self._chunk_rows(request, budget)
            if num_rows == 0:
                break
            if self._place(request, num_rows, plan):
                budget -= num_rows
                if part is not None and num_rows >= AWAITED_BLOCKS * self.cache.block_size:
                    computed_now.add(part)

    def _next_part(self, request: Request) -> tuple[object, tuple[int, ...]] | None:
        """Take over what others computed; return what comes next, None if it is too little to share."""
        owner, block_size = request.request_id, self.cache.block_size
        num_found = self.cache.catch_up(owner, request.token_ids, request.num_tokens)
        request.num_computed_tokens += num_found
        if request.num_preemptions == 0:
            request.num_cached_tokens += num_found
        at_border = request.num_computed_tokens == self.cache.num_registered_tokens(owner)
        if not at_border or request.num_pending_tokens <= AWAITED_BLOCKS * block_size:
            return None
        return self.cache.next_part(owner, request.token_ids, AWAITED_BLOCKS)

    def _chunk_rows(self, request: Request, budget: int) -> int:
        num_rows = min(request.num_pending_tokens, self._config.max_prefill_chunk_tokens, budget)
        if num_rows < request.num_pending_tokens:
            num_beyond = (request.num_computed_tokens + num_rows) % self.cache.block_size
            num_rows -= num_beyond if num_beyond < num_rows else 0
        return num_rows

    def _place_drafts(self, plan: dict[Request, int]) -> None:
        rows_left = self._config.max_batch_tokens - sum(plan.values())
        for request in plan:
            if not request.draft_token_ids or request.num_pending_tokens > 1:
                continue
            num_useful = request.sampling.max_new_tokens - len(request.output_token_ids) - 1
            num_drafts = min(len(request.draft_token_ids), rows_left, num_useful)
            owner, num_computed = request.request_id, request.num_computed_tokens
            if num_drafts <= 0 or not self.cache.extend(owner, num_computed, 1 + num_drafts):
                num_slots = len(self.cache.table(owner)) * self.cache.block_size - num_computed - 1
                num_drafts = max(0, min(num_drafts, num_slots))
            request.draft_token_ids = request.draft_token_ids[:num_drafts]
            plan[request] += num_drafts
            rows_left -= num_drafts

    def _place(self, request: Request, num_rows: int, plan: dict[Request, int]) -> bool:
        """Get blocks for rows, if need be from requests that rank last; return False if that is this one itself."""
        owner, num_computed = request.request_id, request.num_computed_tokens
        while not self.cache.extend(owner, num_computed, num_rows, may_break_pins=len(self.running) == 1):
            victim = self.running.pop()
            self.cache.release(victim.request_id)
            victim.preempt()
            insort(self.waiting, victim, key=self._ranking.queue_order)
            self.num_preemptions += 1
            plan.pop(victim, None)
            if victim is request:
                return False
        plan[request] = num_rows
        return True

    def _admit(self, budget: int, prompts: Sequence[Request]) -> list[Request]:
        """Move requests from ``waiting`` to ``running``, while there is room and rows for them; return them."""
        newcomers: list[Request] = []
        if not self.waiting:
            return newcomers
        num_promised = sum(
            max(0, self.cache.blocks_for(other.num_tokens) - len(self.cache.table(other.request_id)))
            for other in self.running
        )
        while self.waiting and len(self.running) < self._config.max_sequences:
            request = self.waiting[0]
            order = self._ranking.queue_order(request)
            before = (p for p in (*prompts, *newcomers) if self._ranking.prompt_order(p) < order)
            if sum(self._chunk_rows(p, budget) for p in before) >= budget:
                break
            nodes = self.cache.match(request.scheduling.namespace, request.token_ids, request.num_tokens)
            num_needed = self.cache.blocks_for(request.num_tokens) - len(nodes)
            num_idle_hits = sum(node.num_holders == 0 and node.num_pins == 0 for node in nodes)
            num_available = self.cache.num_available_blocks - num_idle_hits
            if self.running and num_available < num_promised + num_needed + len(self.running):
                break
            self.waiting.pop(0)
            self.cache.begin(request.request_id, request.scheduling.namespace, nodes, request.num_tokens)
            request.run(num_cached_tokens=len(nodes) * self.cache.block_size)
            insort(self.running, request, key=self._ranking.queue_order)
            newcomers.append(request)
            num_promised += num_needed
        return newcomers

    def _make_step(self, plan: dict[Request, int]) -> Step:
        rows = []
        decode_rows = prefill_rows = num_pairs = 0
        for request, num_rows in plan.items():
            num_pending = request.num_pending_tokens
            self._num_turns += 1
            request.last_turn = self._num_turns
            if num_pending == 1:
                decode_rows += num_rows
            else:
                prefill_rows += num_rows
            num_pairs += num_rows * request.num_computed_tokens + num_rows * (num_rows + 1) // 2
            is_whole = num_rows >= num_pending and not request.is_prompt_only
            rows.append(ScheduledRows(request, num_rows, num_rows - num_pending + 1 if is_whole else 0))
        return Step(tuple(rows), self.cache.copies, StepLoad(decode_rows, prefill_rows, num_pairs))
