"""Text from models, tools and files, made safe to print on a terminal.

A model's answer may hold anything: an escape sequence that clears the screen or renames the window, a carriage return
that overwrites a line, an override that shows text backwards. Such characters are shown as escapes (``\\x1b``); letters
of every script, emoji and their joiners stay as they are.
"""

from __future__ import annotations

import json
import re
import unicodedata
from typing import Any

from agentrt.cli.json_form import to_json

_UNSAFE_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
_LINE_BREAK = re.compile(r"\s*[\t\n\v\f\r\x1c-\x1e\x85\u2028\u2029]\s*")
_JOINERS = frozenset("\u200c\u200d")


def printable(text: str, *, keep: str = "") -> str:
    """Return ``text`` with control, format and lone surrogate characters escaped, except those in ``keep``."""
    if text.isprintable():
        return text
    return "".join(char if char in keep or _is_safe(char) else char.encode("unicode_escape").decode() for char in text)


def one_line(text: str) -> str:
    """Return ``text`` as a single printable line: each line break, with the white space around it, becomes a space."""
    return printable(_LINE_BREAK.sub(" ", text))


def preview(value: Any, max_chars: int = 80) -> str:
    """Show a value in one printable line of at most ``max_chars`` characters: a text in quotes, the rest as JSON."""
    if isinstance(value, str):
        text = one_line(value[: 4 * max_chars].strip())
        return f'"{text}"' if len(text) + 2 <= max_chars else f'"{text[: max_chars - 3]}…"'
    text = one_line(json.dumps(to_json(value), ensure_ascii=False))
    return text if len(text) <= max_chars else f"{text[: max_chars - 1]}…"


def seconds(value: float) -> str:
    """Show a duration to about three digits: ``3.1ms``, ``0.52s``, ``12.3s``, ``2m05s``."""
    if value < 0.00995:
        return f"{value * 1000:.1f}ms"
    if value < 0.0995:
        return f"{value * 1000:.0f}ms"
    if value < 9.995:
        return f"{value:.2f}s"
    if value < 99.95:
        return f"{value:.1f}s"
    minutes, rest = divmod(round(value), 60)
    return f"{minutes}m{rest:02d}s"


def limit(value: float) -> str:
    """Show a limit as it was declared: ``20s``, ``0.5s``."""
    return f"{value:g}s"


def _is_safe(char: str) -> bool:
    return char in _JOINERS or unicodedata.category(char) not in _UNSAFE_CATEGORIES
