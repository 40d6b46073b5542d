"""Settings of one Engine, frozen and checked when they are made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from agentrt.errors import ConfigError

DType = Literal["float32", "bfloat16", "float16", "float64"]


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """How much one Engine may use, and how it cuts its work into steps.

    A step computes at most ``max_batch_tokens`` rows: one for every stream that decodes, the rest for prompts. What a
    running stream waits for its next token is the length of a step, so on a CPU both bounds on prompt rows are small.
    ``max_batch_tokens`` is at least ``max_sequences``: then every stream can be in every step and none is left behind.

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
            "num_blocks",
            "num_threads",
        ):
            value = getattr(self, name)
            if value is None and name in ("num_blocks", "num_threads"):
                continue
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ConfigError(f"{name} is {value!r}; expected a whole number of at least 1")
        if self.max_batch_tokens < self.max_sequences:
            raise ConfigError(
                f"max_batch_tokens is {self.max_batch_tokens}, less than max_sequences ({self.max_sequences}); "
                "a step must have a row for every running stream, so raise the one or lower the other"
            )
        if self.dtype not in get_args(DType):
            raise ConfigError(f"dtype is {self.dtype!r}; expected one of {', '.join(get_args(DType))}")
