"""A Request: what was asked of the engine, how far it got, and the moves its state may make.

    WAITING ──> RUNNING ──> FINISHED
                 │   ^          ^
                 v   │          │
               PREEMPTED ───────┘        (and WAITING ──> FINISHED: cancelled, or its time was over)

A running request holds blocks of the cache. ``num_pending_tokens`` says what it needs next: one token means that it
decodes, more that its prompt (or, after a preemption, its prompt and answer so far) is still being computed. There is no
state of its own for that, because nothing but this number depends on it.

Draft tokens are guesses at what comes after the newest token. They are rows of a step like any other, but no tokens of the
request until the engine has said how many were right.

No tensors here: tokens are ints.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from agentrt.inference.prefix_cache import Namespace
from agentrt.inference.sampling_params import SamplingParams


class RequestState(enum.StrEnum):
    WAITING = "waiting"
    """It holds no blocks and never did."""
    RUNNING = "running"
    """It holds blocks and gets rows in steps."""
    PREEMPTED = "preempted"
    """Its blocks were taken for an older request; it waits to be computed anew."""
    FINISHED = "finished"
    """It holds no blocks and never will; ``finish_reason`` says why."""


class FinishReason(enum.StrEnum):
    STOP = "stop"
    """The model ended its answer, or a stop string appeared."""
    LENGTH = "length"
    """``max_tokens`` tokens were generated."""
    CHOICE = "choice"
    """One of ``choices`` was decided on."""
    CANCELLED = "cancelled"
    """The caller left."""
    TIMED_OUT = "timed_out"
    """Its deadline passed."""
    FAILED = "failed"
    """The model gave something that cannot be used."""
    PROMPT = "prompt"
    """Nothing was to be generated; its prompt is in the cache."""


LEGAL_MOVES: Mapping[RequestState, frozenset[RequestState]] = MappingProxyType(
    {
        RequestState.WAITING: frozenset({RequestState.RUNNING, RequestState.FINISHED}),
        RequestState.RUNNING: frozenset({RequestState.PREEMPTED, RequestState.FINISHED}),
        RequestState.PREEMPTED: frozenset({RequestState.RUNNING, RequestState.FINISHED}),
        RequestState.FINISHED: frozenset(),
    }
)


@dataclass(frozen=True, slots=True)
class SchedulingParams:
    """For whom a request is, and how urgent it is. Times are seconds of the engine's clock.

    ``run_id``: the run it belongs to, so that requests of one run stand together. ``deadline_s``: when its answer is of no
    use any more. ``priority``: more is earlier; read by the policy ``priority`` only. ``namespace``: requests of different
    ones share no blocks.
    """

    run_id: str | None = None
    deadline_s: float | None = None
    priority: int = 0
    namespace: Namespace = field(default_factory=Namespace)


ORDINARY = SchedulingParams()
"""Of no run, for no tenant, without a deadline."""


@dataclass(slots=True, eq=False)
class Request:
    """One request. The scheduler and the engine change it; everyone else reads.

    ``num_computed_tokens`` counts the tokens whose keys and values are in the cache. Times are seconds of the engine's
    clock.
    """

    request_id: int
    prompt_token_ids: tuple[int, ...]
    sampling: SamplingParams
    arrival_s: float
    scheduling: SchedulingParams = field(default_factory=SchedulingParams)
    is_prompt_only: bool = False
    """Nothing is generated: it is over when its prompt is in the cache."""
    state: RequestState = RequestState.WAITING
    finish_reason: FinishReason | None = None
    output_token_ids: list[int] = field(default_factory=list)
    draft_token_ids: Sequence[int] = ()
    num_computed_tokens: int = 0
    num_cached_tokens: int = 0
    """Tokens that did not have to be computed, as they were in the cache; not counted after a preemption."""
    num_preemptions: int = 0
    admitted_s: float | None = None
    first_token_s: float | None = None
    rank_s: float = 0.0
    """Where the policy places it: the smallest goes first. Set when it is submitted, never changed."""
    is_rewritten: bool = False
    """Its answer was replaced since the last step."""
    last_turn: int = 0
    """When it had rows last, counted over all requests: the smallest has waited the longest."""

    @property
    def deadline_s(self) -> float | None:
        return self.scheduling.deadline_s

    @property
    def max_new_tokens(self) -> int:
        return 0 if self.is_prompt_only else self.sampling.max_new_tokens

    @property
    def num_settled_tokens(self) -> int:
        """Tokens that will not be replaced: an answer that is searched for may be, until it is decided."""
        return len(self.prompt_token_ids) if self.sampling.choices else self.num_tokens + len(self.draft_token_ids)

    @property
    def num_tokens(self) -> int:
        return len(self.prompt_token_ids) + len(self.output_token_ids)

    @property
    def num_pending_tokens(self) -> int:
        """Known tokens that are not in the cache yet; at least 1 in a live request, as the newest is computed last."""
        return len(self.prompt_token_ids) + len(self.output_token_ids) - self.num_computed_tokens

    def token_ids(self, start: int, stop: int) -> Sequence[int]:
        """Return the tokens at positions start ... stop-1 of prompt, answer and draft."""
        num_prompt = len(self.prompt_token_ids)
        if stop <= num_prompt:
            return self.prompt_token_ids[start:stop]
        if start >= num_prompt and stop <= self.num_tokens:
            return self.output_token_ids[start - num_prompt : stop - num_prompt]
        first = min(start, num_prompt)
        known = (*self.prompt_token_ids[first:], *self.output_token_ids, *self.draft_token_ids)
        return known[start - first : stop - first]

    def replace_output(self, token_ids: Sequence[int]) -> None:
        """Put ``token_ids`` in the place of the answer so far; what differs will be computed again."""
        num_same = 0
        for old, new in zip(self.output_token_ids, token_ids, strict=False):
            if old != new:
                break
            num_same += 1
        self.output_token_ids[:] = token_ids
        self.draft_token_ids = ()
        self.is_rewritten = True
        num_kept = len(self.prompt_token_ids) + num_same
        self.num_computed_tokens = min(self.num_computed_tokens, num_kept, self.num_tokens - 1)

    def run(self, num_cached_tokens: int) -> None:
        """Begin, or begin anew, with the first ``num_cached_tokens`` tokens already in the cache."""
        if self.state is RequestState.WAITING:
            self.num_cached_tokens = num_cached_tokens
        self._move(RequestState.RUNNING)
        self.is_rewritten = False
        self.num_computed_tokens = num_cached_tokens

    def preempt(self) -> None:
        self._move(RequestState.PREEMPTED)
        self.num_computed_tokens = 0
        self.draft_token_ids = ()
        self.is_rewritten = False
        self.num_preemptions += 1

    def finish(self, reason: FinishReason) -> None:
        self._move(RequestState.FINISHED)
        self.finish_reason = reason

    def _move(self, state: RequestState) -> None:
        assert state in LEGAL_MOVES[self.state], f"request {self.request_id} may not go from {self.state} to {state}"
        self.state = state
