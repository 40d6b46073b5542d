"""Durations as people write them: ``250ms``, ``2s``, ``1.5m``, ``1h``. Seconds inside."""

from __future__ import annotations

import re

_UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_PATTERN = re.compile(r"(\d+(?:\.\d+)?) ?(ms|s|m|h)")
MAX_DURATION_S = 30 * 24 * 3600.0


def parse_duration(text: object) -> float:
    """Return the seconds of ``text``.

    Raises:
        ValueError: it is no duration, is zero, or is longer than 30 days; says what to write instead.
    """
    if isinstance(text, int | float) and not isinstance(text, bool):
        raise ValueError(f"{text} has no unit; write {text}s or {text}ms")
    found = _PATTERN.fullmatch(text.strip()) if isinstance(text, str) else None
    if found is None:
        raise ValueError(f"{text!r:.60} is no duration; write, for instance, 250ms, 2s or 1.5m")
    seconds = float(found[1]) * _UNITS_S[found[2]]
    if not 0 < seconds <= MAX_DURATION_S:
        raise ValueError(f"{text!r:.60} is not between 1ms and 30 days")
    return seconds


def format_duration(seconds: float) -> str:
    """Write seconds so that ``parse_duration`` gives exactly the same number back."""
    for unit in ("h", "m", "s", "ms"):
        number = seconds / _UNITS_S[unit]
        text = f"{number:.0f}{unit}"
        if number >= 1 and number == int(number) and parse_duration(text) == seconds:
            return text
    return f"{seconds!r}s" if "e" not in repr(seconds) else f"{seconds:.12f}s"
