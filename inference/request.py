"""A Request: what was asked of the engine, how far it got, and the moves its state may make.

    WAITING ──> RUNNING ──> FINISHED
                 │   ^          ^
                 v   │          │
               PREEMPTED ───────┘        (and WAITING ──> FINISHED: cancelled, or its time was over)

A running request holds blocks of the cache. ``num_pending_tokens`` says what it needs next: one token means that it
decodes, more that its prompt (or, after a preemption, its prompt and answer so far) is still being computed. There is no
state of its own for that, because nothing but this number depends on it.

No tensors here: tokens are ints.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

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


LEGAL_MOVES: Mapping[RequestState, frozenset[RequestState]] = MappingProxyType(
    {
        RequestState.WAITING: frozenset({RequestState.RUNNING, RequestState.FINISHED}),
        RequestState.RUNNING: frozenset({RequestState.PREEMPTED, RequestState.FINISHED}),
        RequestState.PREEMPTED: frozenset({RequestState.RUNNING, RequestState.FINISHED}),
        RequestState.FINISHED: frozenset(),
    }
)


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
    deadline_s: float | None = None
    state: RequestState = RequestState.WAITING
    finish_reason: FinishReason | None = None
    output_token_ids: list[int] = field(default_factory=list)
    num_computed_tokens: int = 0
    num_cached_tokens: int = 0
    """Prompt tokens found in the cache at the first admission."""
    num_preemptions: int = 0
    admitted_s: float | None = None
    first_token_s: float | None = None

    @property
    def num_tokens(self) -> int:
        return len(self.prompt_token_ids) + len(self.output_token_ids)

    @property
    def num_pending_tokens(self) -> int:
        """Known tokens that are not in the cache yet; at least 1 in a live request, as the newest is computed last."""
        return self.num_tokens - self.num_computed_tokens

    def token_ids(self, start: int, stop: int) -> Sequence[int]:
        """Return the tokens at positions start ... stop-1 of prompt and answer."""
        num_prompt = len(self.prompt_token_ids)
        if stop <= num_prompt:
            return self.prompt_token_ids[start:stop]
        if start >= num_prompt:
            return self.output_token_ids[start - num_prompt : stop - num_prompt]
        return (*self.prompt_token_ids[start:], *self.output_token_ids[: stop - num_prompt])

    def replace_output(self, token_ids: Sequence[int]) -> None:
        """Put ``token_ids`` in the place of the answer so far; what differs will be computed again."""
        num_same = 0
        for old, new in zip(self.output_token_ids, token_ids, strict=False):
            if old != new:
                break
            num_same += 1
        self.output_token_ids[:] = token_ids
        num_kept = len(self.prompt_token_ids) + num_same
        self.num_computed_tokens = min(self.num_computed_tokens, num_kept, self.num_tokens - 1)

    def run(self, num_cached_tokens: int) -> None:
        """Begin, or begin anew, with the first ``num_cached_tokens`` tokens already in the cache."""
        if self.state is RequestState.WAITING:
            self.num_cached_tokens = num_cached_tokens
        self._move(RequestState.RUNNING)
        self.num_computed_tokens = num_cached_tokens

    def preempt(self) -> None:
        self._move(RequestState.PREEMPTED)
        self.num_computed_tokens = 0
        self.num_preemptions += 1

    def finish(self, reason: FinishReason) -> None:
        self._move(RequestState.FINISHED)
        self.finish_reason = reason

    def _move(self, state: RequestState) -> None:
        assert state in LEGAL_MOVES[self.state], f"request {self.request_id} may not go from {self.state} to {state}"
        self.state = state
