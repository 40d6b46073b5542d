"""What a template or a guard reads, and what is wrong with one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from agentrt.declare.codes import Code, diagnose
from agentrt.declare.origin import Origin
from agentrt.declare.values import MissingPartError, part_of
from agentrt.errors import Diagnostic, Place, TemplateError


@dataclass(frozen=True, slots=True, order=True)
class Reference:
    """One thing read: ``inputs.question`` is Reference("inputs", "question", ()); ``actions.search.output[0].text`` is
    Reference("actions", "search", ("output", "0", "text"))."""

    kind: Literal["inputs", "actions"]
    name: str
    path: tuple[str, ...] = ()

    def __str__(self) -> str:
        return ".".join((self.kind, self.name, *self.path))

    def look_up(self, scope: Mapping[str, Any]) -> Any:
        """Return what it stands for in ``scope``: ``{"inputs": {...}, "actions": {name: {"output", "status"}}}``.

        Raises:
            TemplateError: the value has no such part.
        """
        value: Any = scope
        try:
            for key in (self.kind, self.name, *self.path):
                is_index = isinstance(value, (list, tuple)) and key.isdecimal()
                value = part_of(value, int(key) if is_index else key)
        except MissingPartError as error:
            raise TemplateError(f"{self}: {error}") from error
        return value


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong with a text: what a diagnostic says, with the line and column inside the text."""

    code: Code
    message: str
    line: int | None = None
    column: int | None = None
    hint: str | None = None

    def diagnostic(self, origin: Origin | None) -> Diagnostic:
        """Tell it as a diagnostic at its place in the file; without a file, the line is told in words."""
        place: Place | None = None
        message = self.message
        if origin is not None:
            place = origin.at(self.line or 1, self.column) if self.line else origin.place
        elif self.line and self.line > 1:
            message = f"{message} (line {self.line})"
        return diagnose(self.code, message, place, hint=self.hint)
