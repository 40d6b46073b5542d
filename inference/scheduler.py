"""What the next step computes, and for whom: pure policy over requests and blocks.

A step is a set of rows: the next tokens of some requests, all computed in one pass of the model (iteration-level
batching: Yu et al. 2022, "Orca"). The order in a step:

1. Decodes: every request that needs one row gets it. A stream that speaks is never held up by a prompt.
2. Chunks: requests that need more rows share what is left of the step's token budget, oldest first, each up to the chunk
   size (Agrawal et al. 2024, "Sarathi-Serve"). So a long prompt costs running streams one bounded step at a time, and a
   short prompt beside it has room in the same step.
3. Admission: waiting requests in order of arrival, while there are free blocks for all tokens they know, over and above
   what admitted prompts still need and one block to grow into for each running stream. Without that headroom the newcomer
   would take the last block, and be thrown out for it at the next block border.

Blocks are taken as rows need them. When none is left, the youngest running request is preempted: its blocks go, its
tokens stay, and it is computed anew when there is room (recomputation: one pass over known tokens is cheaper than moving
blocks out and in). The youngest, because then the oldest request is never preempted and has a row in every step: it
finishes, the next becomes the oldest, so nobody starves and nothing deadlocks. That needs one more thing: a request that
could not finish even alone is refused when it is submitted.

A request that begins with the same tokens as a running one shares the full blocks that are computed.

``running`` and ``waiting`` are kept in order of arrival, and every running request arrived before every waiting one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from agentrt.errors import PromptTooLongError, RequestError
from agentrt.inference.config import EngineConfig
from agentrt.inference.kv_cache import KVCache
from agentrt.inference.request import FinishReason, Request, RequestState
from agentrt.inference.sampling_params import SamplingParams


@dataclass(frozen=True, slots=True)
class ScheduledRows:
    """The next ``num_rows`` tokens of one request, computed in this step."""

    request: Request
    num_rows: int
    needs_logits: bool
    """Whether the last row is the newest known token, so that its logits choose the next one."""


@dataclass(frozen=True, slots=True)
class Step:
    rows: tuple[ScheduledRows, ...]

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
        self.waiting: deque[Request] = deque()
        self.num_preemptions = 0
        self._config = config

    def submit(self, request: Request) -> None:
        """Put a request at the end of the queue.

        Raises:
            PromptTooLongError: the prompt and one token of the answer do not fit the context, even alone.
            RequestError: the prompt fits, but not with as many tokens as the answer may have.
        """
        self.check_fits(request.prompt_token_ids, request.sampling)
        self.waiting.append(request)

    def check_fits(self, prompt_token_ids: Sequence[int], sampling: SamplingParams) -> None:
        """Raise what ``submit`` would raise. Changes nothing, so any thread may call it."""
        num_prompt = len(prompt_token_ids)
        if num_prompt >= self.max_context_tokens:
            raise PromptTooLongError(num_prompt, self.max_context_tokens)
        if num_prompt + sampling.max_new_tokens > self.max_context_tokens:
            raise RequestError(
                f"the prompt has {num_prompt} tokens and the answer may have {sampling.max_new_tokens}; the context "
                f"holds {self.max_context_tokens}: ask for fewer tokens, or give the cache more memory if the model "
                "reads more",
                field="choices" if sampling.choices else "max_tokens",
            )

    def schedule(self) -> Step:
        """Choose the rows of the next step and take the blocks they need. ``complete`` must follow."""
        planned: dict[Request, int] = {}
        budget = self._config.max_batch_tokens
        decodes = [request for request in self.running if request.num_pending_tokens == 1]
        chunks = [request for request in self.running if request.num_pending_tokens > 1]
        for request in (*decodes, *chunks):
            num_rows = self._num_rows(request, budget)
            if num_rows == 0:
                break
            while request.state is RequestState.RUNNING:
                if self.cache.extend(request.request_id, request.num_computed_tokens + num_rows):
                    planned[request] = num_rows
                    budget -= num_rows
                    break
                planned.pop(self._preempt_youngest(), None)
        while budget > 0 and (newcomer := self._admit()) is not None:
            planned[newcomer] = self._num_rows(newcomer, budget)
            budget -= planned[newcomer]
            taken = self.cache.extend(newcomer.request_id, newcomer.num_computed_tokens + planned[newcomer])
            assert taken, f"request {newcomer.request_id} was admitted without blocks for it"
        return Step(
            tuple(
                ScheduledRows(request, num_rows, num_rows == request.num_pending_tokens)
                for request, num_rows in planned.items()
            )
        )

    def complete(self, step: Step) -> None:
        """Record that the rows of ``step`` are in the cache."""
        for rows in step.rows:
            rows.request.num_computed_tokens += rows.num_rows

    def finish(self, request: Request, reason: FinishReason) -> None:
        """End a request, whatever its state, and give back its blocks."""
        if request.state is RequestState.RUNNING:
            self.running.remove(request)
            self.cache.release(request.request_id)
        else:
            self.waiting.remove(request)
        request.finish(reason)

    def _num_rows(self, request: Request, budget: int) -> int:
        return min(request.num_pending_tokens, self._config.max_prefill_chunk_tokens, budget)

    def _preempt_youngest(self) -> Request:
        request = self.running.pop()
        self.cache.release(request.request_id)
        request.preempt()
        self.waiting.appendleft(request)
        self.num_preemptions += 1
        return request

    def _admit(self) -> Request | None:
        """Move the request that waits longest into ``running``, if there is room for it."""
        if not self.waiting or len(self.running) >= self._config.max_sequences:
            return None
        request = self.waiting[0]
        sibling, num_shared = self._find_shared_prefix(request)
        num_promised = sum(
            max(0, self.cache.blocks_for(other.num_tokens) - len(self.cache.table(other.request_id)))
            for other in self.running
        )
        num_needed = self.cache.blocks_for(request.num_tokens) - num_shared
        headroom = len(self.running)
        if self.cache.num_free_blocks < num_promised + num_needed + headroom:
            return None
        self.waiting.popleft()
        if sibling is not None:
            self.cache.share(sibling.request_id, request.request_id, num_shared)
        request.run(num_cached_tokens=num_shared * self.cache.block_size)
        self.running.append(request)
        return request

    def _find_shared_prefix(self, request: Request) -> tuple[Request | None, int]:
        """Return the running request that shares most full, computed blocks of the prompt, and how many those are.

        At least one token is left to compute, as logits come from computing.
        """
        block_size = self.cache.block_size
        prompt = request.prompt_token_ids
        best: tuple[Request | None, int] = (None, 0)
        for other in self.running:
            limit = min(len(prompt) - 1, len(other.prompt_token_ids), other.num_computed_tokens) // block_size
            if limit <= best[1] or prompt[:block_size] != other.prompt_token_ids[:block_size]:
                continue
            num_same = 1
            while num_same < limit:
                part = slice(num_same * block_size, (num_same + 1) * block_size)
                if prompt[part] != other.prompt_token_ids[part]:
                    break
                num_same += 1
            if num_same > best[1]:
                best = (other, num_same)
        return best
