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
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from agentrt.errors import RequestError

MAX_STOP_STRINGS = 64
MAX_STOP_LENGTH = 1024
MAX_CHOICES = 1024
MAX_CHOICE_BYTES = 16 * 1024


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


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How the tokens of one request are chosen.

    ``temperature`` 0 is greedy. Otherwise logits are divided by it, then cut to the ``top_k`` largest, then to the
    smallest set whose probability reaches ``top_p``; None turns a cut off. ``seed`` makes the draws repeatable whatever
    else runs; without one they are not. ``stop`` ends the answer before the first stop string to appear.
    With ``choices`` the answer is exactly one of them, and ``max_tokens`` and ``stop`` do not cut it.

    Raises:
        RequestError: a value that cannot be served; ``field`` names it.
    """

    max_tokens: int = 256
    temperature: float = 0.0
    top_k: int | None = None
    top_p: float | None = None
    seed: int | None = None
    stop: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _check_int("max_tokens", self.max_tokens, 1, 2**31)
        _check_number("temperature", self.temperature, 0.0, 100.0)
        if self.top_k is not None:
            _check_int("top_k", self.top_k, 1, 2**31, hint="leave it out to consider every token")
        if self.top_p is not None:
            _check_number("top_p", self.top_p, 0.0, 1.0, hint="1 or leaving it out considers every token")
            if self.top_p == 0:
                raise RequestError("top_p is 0; expected a number above 0, up to 1", field="top_p")
        if self.seed is not None:
            _check_int("seed", self.seed, 0, 2**64 - 1)
        object.__setattr__(self, "stop", _checked_texts("stop", self.stop, MAX_STOP_STRINGS))
        object.__setattr__(self, "choices", _checked_texts("choices", self.choices, MAX_CHOICES))
        for text in self.stop:
            if len(text) > MAX_STOP_LENGTH:
                raise RequestError(
                    f"a stop string has {len(text)} characters; at most {MAX_STOP_LENGTH} are allowed", field="stop"
                )
        size_bytes = sum(len(choice.encode()) for choice in self.choices)
        if size_bytes > MAX_CHOICE_BYTES:
            raise RequestError(
                f"the choices have {size_bytes} bytes together; at most {MAX_CHOICE_BYTES} are allowed", field="choices"
            )

    @property
    def max_new_tokens(self) -> int:
        """The most tokens an answer can have. A token of a choice spells at least one byte of it, or the one space
        that may come before."""
        if self.choices:
            return max(len(choice.encode()) for choice in self.choices) + 1
        return self.max_tokens


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


def _check_int(name: str, value: Any, low: int, high: int, *, hint: str = "") -> None:
    if isinstance(value, int) and not isinstance(value, bool) and low <= value <= high:
        return
    raise RequestError(f"{name} is {value!r}; expected a whole number from {low} to {high}{_also(hint)}", field=name)


def _check_number(name: str, value: Any, low: float, high: float, *, hint: str = "") -> None:
    if isinstance(value, int | float) and not isinstance(value, bool) and low <= value <= high:
        return  # a NaN fails both comparisons
    shown = repr(value) if not isinstance(value, float) or math.isfinite(value) else str(value)
    raise RequestError(f"{name} is {shown}; expected a number from {low:g} to {high:g}{_also(hint)}", field=name)


def _checked_texts(name: str, value: Any, max_texts: int) -> tuple[str, ...]:
    if not isinstance(value, tuple | list):
        raise RequestError(f"{name} is {value!r}; expected a list of texts", field=name)
    if len(value) > max_texts:
        raise RequestError(f"{name} has {len(value)} entries; at most {max_texts} are allowed", field=name)
    for text in value:
        if not isinstance(text, str) or not text:
            raise RequestError(f"{name} holds {text!r}; expected texts of at least one character", field=name)
        if not _is_encodable(text):
            raise RequestError(f"{name} holds {text!r}, which is not valid Unicode", field=name)
    return tuple(dict.fromkeys(value))


def _is_encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _also(hint: str) -> str:
    return f"; {hint}" if hint else ""
