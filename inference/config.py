"""Settings of one Engine, frozen and checked when they are made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from agentrt.errors import ConfigError

PolicyName = Literal["fcfs", "priority", "slack"]
DType = Literal["float32", "bfloat16", "float16", "float64"]


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """How much one Engine may use, and how it cuts its work into steps.

    A step computes at most ``max_batch_tokens`` rows: one for every stream that decodes, the rest for prompts. What a
    running stream waits for its next token is the length of a step, so while streams decode, the rows for prompts are cut
    to what ``itl_target_s`` allows (see ``step_time``). If more streams decode than a step has rows, they take turns.

    Raises:
        ConfigError: a value that is out of range.
    """

    block_size: int = 16
    """Tokens in one block of the cache."""
    kv_cache_bytes: int = 256 * 2**20
    """Memory for keys and values; read only when ``num_blocks`` is None."""
    num_blocks: int | None = None
    max_batch_tokens: int = 512
    """Rows of one step, all requests together."""
    max_prefill_chunk_tokens: int = 256
    """Rows of one request in one step. Below ``max_batch_tokens`` it leaves room for a short prompt beside a long one."""
    max_sequences: int = 64
    """Requests that hold blocks at the same time; later ones wait."""
    max_waiting: int = 1024
    """Requests that may wait; more are refused with QueueFullError."""
    policy: PolicyName = "fcfs"
    """Who goes first; see ``ranking``."""
    prompt_token_wait_s: float = 0.001
    """A prompt lets others that are shorter by one token pass if they came at most this much later; 0: nobody passes."""
    priority_step_s: float = 10.0
    """With the policy ``priority``: how much earlier one more makes a request stand."""
    patience_s: float = 30.0
    """With the policy ``slack``: how long after its arrival a request without a deadline should be done."""
    itl_target_s: float = 0.08
    """What a running stream should wait at most for its next token while prompts are computed beside it.

    Half of it cost an eighth of the throughput of eight streams on two slow cores: small chunks compute less a second."""
    max_pinned_share: float = 0.5
    """How much of the cache pinned prefixes may hold."""
    num_threads: int | None = None
    """Threads of one step; None leaves torch its default."""
    dtype: DType = "float32"
    """What weights and cache are computed in."""

    def __post_init__(self) -> None:
        for name in (
            "block_size",
            "kv_cache_bytes",
            "max_batch_tokens",
            "max_prefill_chunk_tokens",
            "max_sequences",
            "max_waiting",
            "num_blocks",
            "num_threads",
        ):
            value = getattr(self, name)
            if value is None and name in ("num_blocks", "num_threads"):
                continue
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ConfigError(f"{name} is {value!r}; expected a whole number of at least 1")
        for name, low, high in (
            ("prompt_token_wait_s", 0.0, 1.0),
            ("priority_step_s", 0.0, 3600.0),
            ("patience_s", 0.0, 86400.0),
            ("itl_target_s", 0.001, 60.0),
            ("max_pinned_share", 0.0, 1.0),
        ):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
                raise ConfigError(f"{name} is {value!r}; expected a number from {low:g} to {high:g}")
        if self.policy not in get_args(PolicyName):
            raise ConfigError(f"policy is {self.policy!r}; expected one of {', '.join(get_args(PolicyName))}")
        if self.dtype not in get_args(DType):
            raise ConfigError(f"dtype is {self.dtype!r}; expected one of {', '.join(get_args(DType))}")
