"""How the tokens of one answer are chosen and where it ends: what a caller may ask for, checked when it is made."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agentrt.errors import RequestError
from agentrt.inference.grammar import Grammar

MAX_STOP_STRINGS = 64
MAX_STOP_LENGTH = 1024
MAX_CHOICES = 1024
MAX_CHOICE_BYTES = 16 * 1024
MAX_STOP_TOKENS = 64
MAX_BIASED_TOKENS = 1024
MAX_LOGPROBS = 20

_NOT_WITH_CHOICES = (
    "grammar", "presence_penalty", "frequency_penalty", "repetition_penalty", "logit_bias", "num_logprobs", "ignore_eos",
    "stop_token_ids",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How the tokens of one request are chosen.

    Penalties and ``logit_bias`` change the logits first, see ``penalties``; neutral values leave them alone.
    ``temperature`` 0 is greedy. Otherwise logits are divided by it, then cut to the tokens at least ``min_p`` times as
    probable as the best, then to the ``top_k`` largest, then to the smallest set whose probability reaches ``top_p``;
    None turns a cut off. ``seed`` makes the draws repeatable whatever else runs; without one they are not.

    ``stop`` ends the answer before the first stop string to appear, ``stop_token_ids`` at such a token, which has no
    text. With ``ignore_eos`` the model's own end does not end the answer. ``skip_special_tokens`` keeps control tokens
    out of the text. ``num_logprobs``: how many of the most probable tokens are told with each.
    With ``grammar`` the answer is one that it allows, if ``max_tokens`` does not cut it. With ``choices`` the answer is
    exactly one of them, and ``max_tokens`` and ``stop`` do not cut it.

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
    min_p: float | None = None
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    """(token id, what is added to its logit); a mapping is taken too."""
    num_logprobs: int = 0
    ignore_eos: bool = False
    stop_token_ids: tuple[int, ...] = ()
    skip_special_tokens: bool = True
    grammar: Grammar | None = None

    def __post_init__(self) -> None:
        _check_int("max_tokens", self.max_tokens, 1, 2**31)
        _check_number("temperature", self.temperature, 0.0, 100.0)
        if self.top_k is not None:
            _check_int("top_k", self.top_k, 1, 2**31, hint="leave it out to consider every token")
        if self.top_p is not None:
            _check_number("top_p", self.top_p, 0.0, 1.0, hint="1 or leaving it out considers every token")
            if self.top_p == 0:
                raise RequestError("top_p is 0; expected a number above 0, up to 1", field="top_p")
        if self.min_p is not None:
            _check_number("min_p", self.min_p, 0.0, 1.0, hint="0 or leaving it out considers every token")
        if self.seed is not None:
            _check_int("seed", self.seed, 0, 2**64 - 1)
        _check_number("presence_penalty", self.presence_penalty, -2.0, 2.0)
        _check_number("frequency_penalty", self.frequency_penalty, -2.0, 2.0)
        _check_number("repetition_penalty", self.repetition_penalty, 0.01, 100.0, hint="1 changes nothing")
        object.__setattr__(self, "logit_bias", _checked_bias(self.logit_bias))
        _check_int("num_logprobs", self.num_logprobs, 0, MAX_LOGPROBS)
        for name in ("ignore_eos", "skip_special_tokens"):
            if not isinstance(getattr(self, name), bool):
                raise RequestError(f"{name} is {getattr(self, name)!r}; expected true or false", field=name)
        object.__setattr__(self, "stop_token_ids", _checked_token_ids("stop_token_ids", self.stop_token_ids))
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
        self._check_company()

    def _check_company(self) -> None:
        if self.grammar is not None and not isinstance(self.grammar, Grammar):
            raise RequestError(f"grammar is {self.grammar!r:.100}; expected a Grammar", field="grammar")
        if self.choices:
            for name in _NOT_WITH_CHOICES:
                if getattr(self, name) != type(self).__dataclass_fields__[name].default:
                    raise RequestError(
                        f"{name} and choices cannot be had together: choices are told apart by what the model itself "
                        f"says of them; leave out one",
                        field=name,
                    )
        if self.grammar is not None and self.ignore_eos:
            raise RequestError(
                "ignore_eos and a grammar cannot be had together: where a grammar is complete the answer ends; leave "
                "out one",
                field="ignore_eos",
            )

    @property
    def changes_logits(self) -> bool:
        """Whether anything is added to, or taken from, what the model says."""
        return (
            self.presence_penalty != 0
            or self.frequency_penalty != 0
            or self.repetition_penalty != 1
            or bool(self.logit_bias)
        )

    @property
    def max_new_tokens(self) -> int:
        """The most tokens an answer can have. A token of a choice spells at least one byte of it, or the one space
        that may come before."""
        if self.choices:
            return max(len(choice.encode()) for choice in self.choices) + 1
        return self.max_tokens


def seed_of_sample(seed: int | None, sample: int) -> int | None:
    """Return the seed of sample ``sample`` of a request that asks for several: a pure function of the two.

    Sample 0 has the request's own seed, so that asking for more samples does not change the first. The others have 64
    bits of BLAKE2b over both numbers: streams that have nothing to do with each other, nor with those of the next seed.
    Without a seed there is none.
    """
    if seed is None or sample == 0:
        return seed
    both = seed.to_bytes(8, "little") + sample.to_bytes(8, "little")
    return int.from_bytes(hashlib.blake2b(both, digest_size=8, person=b"agentrt sample").digest(), "little")


def _check_int(name: str, value: Any, low: int, high: int, *, hint: str = "") -> None:
    if isinstance(value, int) and not isinstance(value, bool) and low <= value <= high:
        return
    raise RequestError(f"{name} is {value!r}; expected a whole number from {low} to {high}{_also(hint)}", field=name)


def _check_number(name: str, value: Any, low: float, high: float, *, hint: str = "") -> None:
    if isinstance(value, int | float) and not isinstance(value, bool) and low <= value <= high:
        return  # a NaN fails both comparisons
    shown = repr(value) if not isinstance(value, float) or math.isfinite(value) else str(value)
    raise RequestError(f"{name} is {shown}; expected a number from {low:g} to {high:g}{_also(hint)}", field=name)


def _checked_bias(value: Any) -> tuple[tuple[int, float], ...]:
    if isinstance(value, Mapping):
        value = value.items()
    try:
        pairs = [(token_id, bias) for token_id, bias in value]
    except (TypeError, ValueError):
        message = f"logit_bias is {value!r:.100}; expected a mapping from token id to number"
        raise RequestError(message, field="logit_bias") from None
    if len(pairs) > MAX_BIASED_TOKENS:
        message = f"logit_bias has {len(pairs)} entries; at most {MAX_BIASED_TOKENS} are allowed"
        raise RequestError(message, field="logit_bias")
    for token_id, bias in pairs:
        _check_token_id("logit_bias", token_id)
        _check_number("logit_bias", bias, -100.0, 100.0)
    return tuple(sorted({token_id: float(bias) for token_id, bias in pairs}.items()))


def _checked_token_ids(name: str, value: Any) -> tuple[int, ...]:
    if not isinstance(value, tuple | list):
        raise RequestError(f"{name} is {value!r:.100}; expected a list of token ids", field=name)
    if len(value) > MAX_STOP_TOKENS:
        raise RequestError(f"{name} has {len(value)} entries; at most {MAX_STOP_TOKENS} are allowed", field=name)
    for token_id in value:
        _check_token_id(name, token_id)
    return tuple(dict.fromkeys(value))


def _check_token_id(name: str, value: Any) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**31:
        raise RequestError(f"{name} holds {value!r:.100}; expected token ids, whole numbers from 0", field=name)


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
