"""Where a text inside a file stands, so that a line and column of the text can be told as a Place of the file.

A YAML file holds templates and guards. Their own parsers count lines and columns from the start of the text; a reader of
the message needs the line and column of the file. Where YAML folds lines or resolves escapes the way back is not known
exactly; then the place is where the text begins.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentrt.errors import Place


@dataclass(frozen=True, slots=True)
class Origin:
    """The place of a text's first character, and how its further lines are indented.

    ``indent`` is the number of columns before each further line, or None when only the beginning is known.
    """

    place: Place
    indent: int | None = None

    def at(self, line: int = 1, column: int | None = None) -> Place:
        """Return the place of a 1-based line and column of the text; of the whole line when ``column`` is None."""
        first = self.place
        if first.line is None:
            return first
        if line <= 1:
            if column is None or first.column is None:
                return first
            return Place(first.file, first.line, first.column + column - 1)
        if self.indent is None:
            return first
        return Place(first.file, first.line + line - 1, self.indent + (column or 1))


def place_of_caller() -> Place:
    """Return the place in the user's code that led here: the innermost one outside this package."""
    here = str(Path(__file__).parent)
    frame = inspect.currentframe()
    while frame is not None and frame.f_code.co_filename.startswith(here):
        frame = frame.f_back
    return Place(frame.f_code.co_filename, frame.f_lineno) if frame else Place("<python>")


def place_of_function(function: Callable[..., Any]) -> Place:
    """Return where a Python function is written."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    return Place(code.co_filename, code.co_firstlineno) if code else Place("<python>")
