"""What the engine hands out: tokens, how a request ended, and how the engine is doing."""

from __future__ import annotations

from dataclasses import dataclass

from agentrt.errors import AgentrtError
from agentrt.inference.request import FinishReason


@dataclass(frozen=True, slots=True)
class Finished:
    """How a request ended that got its answer. Durations are seconds.

    ``queue_s``: submitted -> first admitted. ``prefill_s``: admitted -> first token.
    """

    reason: FinishReason
    num_prompt_tokens: int
    num_output_tokens: int
    num_cached_tokens: int
    """Prompt tokens that did not have to be computed."""
    num_preemptions: int
    queue_s: float
    prefill_s: float


@dataclass(frozen=True, slots=True)
class TokenOutput:
    """One generated token.

    ``text`` is what became certain with it: never half a character, nothing of a stop string or after one; often, and for
    the token that ends an answer, it is empty. ``logprob`` is the model's own, see ``sampler``, and so are those of
    ``top_logprobs``: (token id, log-probability) of the most probable tokens, as many as were asked for, the best first.
    ``time_ns`` is wall-clock time.
    """

    request_id: int
    token_id: int
    text: str
    logprob: float
    time_ns: int
    finished: Finished | None = None
    """Set on the last token of a request."""
    top_logprobs: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True)
class RequestFailed:
    """The end of a request that gets no further tokens."""

    request_id: int
    error: AgentrtError


Output = TokenOutput | RequestFailed


@dataclass(frozen=True, slots=True)
class EngineStats:
    """The engine between two steps; counters count from its beginning."""

    num_waiting: int
    num_running: int
    num_blocks: int
    num_used_blocks: int
    payload_share: float
    """Of the slots in used blocks, how many hold a token: 1 means no waste."""
    num_steps: int
    num_preemptions: int
    num_computed_tokens: int
    """Rows that went through the model; above prompt and output tokens by what preemption and choices cost."""
    num_cached_tokens: int
    num_output_tokens: int
