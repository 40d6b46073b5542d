"""What a template or a guard reads, and what is wrong with one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from agentrt.declare.codes import Code, diagnose
from agentrt.declare.origin import Origin
from agentrt.declare.values import MissingPartError, part_of
from agentrt.errors import Diagnostic, Place, TemplateError

ReferenceKind = Literal["inputs", "actions", "state", "item", "item_index"]
NAMED_KINDS: tuple[ReferenceKind, ...] = ("inputs", "actions", "state")
"""What is followed by a name."""
ITEM_KINDS: tuple[ReferenceKind, ...] = ("item", "item_index")
"""What is there only in the templates of an action with ``for_each``, and has no name behind it."""


@dataclass(frozen=True, slots=True, order=True)
class Reference:
    """One thing read: ``inputs.question`` is Reference("inputs", "question", ()); ``actions.search.output[0].text`` is
    Reference("actions", "search", ("output", "0", "text")); ``item.text`` is Reference("item", "", ("text",))."""

    kind: ReferenceKind
    name: str
    path: tuple[str, ...] = ()

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys to follow from the scope."""
        return (self.kind, self.name, *self.path) if self.kind in NAMED_KINDS else (self.kind, *self.path)

    def __str__(self) -> str:
        return ".".join(self.keys)

    def look_up(self, scope: Mapping[str, Any]) -> Any:
        """Return what it stands for in ``scope``: ``{"inputs": {...}, "actions": {name: {"output", "status"}}}``, with
        ``state`` where the Dag has one, and ``item`` and ``item_index`` inside ``for_each``.

        Raises:
            TemplateError: the value has no such part.
        """
        value: Any = scope
        try:
            for key in self.keys:
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
