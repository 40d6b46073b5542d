"""Texts of a Dag, made fit for a picture: one line, of a known width, with nothing in it that acts.

Names and prompts may hold anything. XML has no way to write most control characters, an override can turn a line around,
and a guard may be a page long. What is not printable becomes its escape (``\\x1b``), line breaks become spaces, and a long
text is cut. Width is counted in cells: every picture is set in a monospace font, so that boxes fit their texts on any
machine without measuring fonts, of which no two machines have the same.
"""

from __future__ import annotations

import re
import unicodedata

_WHITE_SPACE = re.compile(r"\s+")
_OUTPUT = re.compile(r"\bactions\.(\w+)(?:\.output\b)?")


def plain(text: str) -> str:
    """Return ``text`` as one printable line."""
    text = _WHITE_SPACE.sub(" ", text).strip()
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def shortened(text: str, max_cells: int) -> str:
    """Return ``text``, or as much of its beginning as fits before an ellipsis."""
    if num_cells(text) <= max_cells:
        return text
    left = max_cells - 1
    for index, char in enumerate(text):
        left -= _cells(char)
        if left < 0:
            return f"{text[:index].rstrip()}…"
    raise AssertionError("a text wider than the limit passes it somewhere")


def condition_label(guard: str, max_cells: int) -> str:
    """Return a guard as it stands in a picture: ``if`` and the guard, with outputs called by the names of their actions."""
    return shortened(f"if {_OUTPUT.sub(lambda match: match[1], guard)}", max_cells) if guard else ""


def num_cells(text: str) -> int:
    """Return how many cells of a monospace font ``text`` takes: two for a wide letter, none for a combining one."""
    return len(text) if text.isascii() else sum(map(_cells, text))


def _cells(char: str) -> int:
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1
