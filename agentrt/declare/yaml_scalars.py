"""What a plain scalar means, by the core schema of YAML 1.2: ``true``, ``null``, ``3`` and ``2.5`` are no texts.

Nothing else is: ``yes``, ``on``, ``2026-01-02``, ``1:30`` and ``1_000`` are texts, whatever YAML 1.1 made of them.
"""

from __future__ import annotations

import re

_CONSTANTS: dict[str, bool | float | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), float("inf")),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), float("-inf")),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), float("nan")),
}
_DECIMAL = re.compile(r"[-+]?[0-9]+")
_OTHER_BASE = re.compile(r"0o[0-7]{1,40}|0x[0-9a-fA-F]{1,40}")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]{1,40})?")
MAX_NUMBER_CHARS = 100
"""A longer run of digits is a text: it is no number anybody counts with."""


def plain_scalar(text: str) -> str | int | float | bool | None:
    """Return the value of a scalar without quotes."""
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if len(text) > MAX_NUMBER_CHARS or text[0] not in "-+.0123456789":
        return text
    if _DECIMAL.fullmatch(text):
        return int(text)
    if _OTHER_BASE.fullmatch(text):
        return int(text, 0)
    if _FLOAT.fullmatch(text):
        return float(text)
    return text
