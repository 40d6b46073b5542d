"""How the tokens of one answer are chosen and where it ends: what a caller may ask for, checked when it is made."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from agentrt.errors import RequestError

MAX_STOP_STRINGS = 64
MAX_STOP_LENGTH = 1024
MAX_CHOICES = 1024
MAX_CHOICE_BYTES = 16 * 1024


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
