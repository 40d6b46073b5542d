"""The sampling parameters an agent or an llm action may set under ``with``: names, kinds and ranges in one table."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from agentrt.errors import nearest_match


def _whole(low: int, high: int) -> Callable[[Any], str | None]:
    def check(value: Any) -> str | None:
        is_whole = isinstance(value, int) and not isinstance(value, bool)
        return None if is_whole and low <= value <= high else f"a whole number from {low} to {high}"

    return check


def _number(low: float, high: float, *, above: bool = False) -> Callable[[Any], str | None]:
    def check(value: Any) -> str | None:
        is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        fits = is_number and (low < value if above else low <= value) and value <= high
        return None if fits else f"a number {'above' if above else 'from'} {low:g} {'up ' if above else ''}to {high:g}"

    return check


def _stop(value: Any) -> str | None:
    texts = [value] if isinstance(value, str) else value
    if isinstance(texts, list | tuple) and 0 < len(texts) <= 64 and all(isinstance(t, str) and t for t in texts):
        return None
    return "a text, or a list of up to 64 texts, none of them empty"


PARAMETERS: Mapping[str, Callable[[Any], str | None]] = {
    "max_tokens": _whole(1, 2**31),
    "temperature": _number(0, 100),
    "top_k": _whole(1, 2**31),
    "top_p": _number(0, 1, above=True),
    "seed": _whole(0, 2**64 - 1),
    "stop": _stop,
}
"""Name -> a function that returns what was expected, or None when the value is fine."""


def parameter_problems(parameters: Mapping[str, Any]) -> Iterator[tuple[str, str, str | None]]:
    """Go through what is wrong: name, message, hint."""
    for name, value in parameters.items():
        check = PARAMETERS.get(name)
        if check is None:
            match = nearest_match(name, PARAMETERS)
            hint = f"did you mean {match!r}?" if match else f"there are {', '.join(PARAMETERS)}"
            yield name, f"there is no parameter {name!r}", hint
            continue
        expected = check(value)
        if expected is not None:
            yield name, f"{name} is {value!r:.60}; expected {expected}", None
