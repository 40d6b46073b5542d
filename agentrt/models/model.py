"""What a Model is: a stream of token events for a chat request, wherever the tokens come from.

The executor knows only this protocol. A call is an async context manager around an async iterator, so that leaving the
block, for whatever reason, stops the work behind it: the engine frees its blocks, the HTTP stream is closed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

Role = Literal["system", "user", "assistant"]
FinishReason = Literal["stop", "length", "choice"]


@dataclass(frozen=True, slots=True)
class Message:
    role: Role
    content: str


@dataclass(frozen=True, slots=True)
class Sampling:
    """How tokens are chosen. ``temperature`` 0 is greedy; ``None`` leaves a value to the model's own default."""

    max_tokens: int = 256
    temperature: float = 0.0
    top_k: int | None = None
    top_p: float | None = None
    seed: int | None = None
    stop: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()
    """When not empty, the answer is exactly one of these."""
    output_schema: Mapping[str, Any] | None = field(default=None, hash=False)
    """JSON Schema of the answer. A model that can holds its tokens to it; the caller validates in any case."""


@dataclass(frozen=True, slots=True)
class ChatRequest:
    messages: tuple[Message, ...]
    sampling: Sampling = field(default_factory=Sampling)
    timeout_s: float | None = None
    """Seconds left of the caller's deadline when the call begins; the model stops working when they are over."""
    traceparent: str | None = None
    """W3C trace context of the model-call span, handed on to remote endpoints."""


@dataclass(frozen=True, slots=True)
class TokenEvent:
    """One token, delivered. ``text`` is never half a character and may be empty; ids are None where a remote endpoint
    does not tell them."""

    text: str
    time_ns: int
    """Wall-clock time of delivery (``time.time_ns``), as OpenTelemetry wants it."""
    token_id: int | None = None
    logprob: float | None = None


@dataclass(frozen=True, slots=True)
class FinishEvent:
    """The last event of a stream that ended cleanly."""

    reason: FinishReason
    num_prompt_tokens: int | None
    num_completion_tokens: int | None
    num_cached_tokens: int = 0
    """Prompt tokens whose keys and values were reused."""
    queue_s: float | None = None
    prefill_s: float | None = None


ModelEvent = TokenEvent | FinishEvent


class Model(Protocol):
    """Where tokens come from."""

    @property
    def name(self) -> str: ...

    @property
    def provider(self) -> str:
        """``gen_ai.provider.name`` of OpenTelemetry: ``agentrt`` for the embedded engine, else the endpoint's host."""
        ...

    def stream(self, request: ChatRequest) -> AbstractAsyncContextManager[AsyncIterator[ModelEvent]]:
        """Begin a call; the iterator ends after one FinishEvent.

        Raises, on entry or while iterating:
            RequestError: the request cannot be served (the prompt is too long, a parameter is out of range).
            ModelError: the call failed; see its subclasses for the ways it can.
            EngineError: the embedded engine stopped.
        """
        ...

    async def aclose(self) -> None: ...
