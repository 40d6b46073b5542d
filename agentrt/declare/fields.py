"""Reading fields of a DAG file: each of the right kind, every mistake noted, and reading goes on after it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NoReturn, TypeVar

from agentrt.declare.codes import Code, diagnose
from agentrt.declare.duration import parse_duration
from agentrt.declare.limits import (
    MAX_DIAGNOSTICS,
    MAX_FILE_GUARD_CHARS,
    MAX_FILE_GUARDS,
    MAX_FILE_SCHEMA_PARTS,
    MAX_FILE_TEMPLATE_CHARS,
    MAX_FILE_TEMPLATES,
)
from agentrt.declare.yaml_nodes import Entry, Node
from agentrt.errors import DeclarationError, Diagnostic, Place, nearest_match

T = TypeVar("T")

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
RESERVED_NAMES = frozenset({"inputs", "actions", "true", "false", "null", "in", "as", "and", "or", "not", "if", "else"})
"""Words that mean something of their own in a template or a condition."""


class TooManyMistakesError(Exception):
    """A file with so many mistakes that reading on is no use."""


class Fields:
    """Reads nodes and collects what is wrong with them. What cannot be read comes back as None."""

    def __init__(self, diagnostics: list[Diagnostic]) -> None:
        self.diagnostics = diagnostics
        self._num_guards = self._num_guard_chars = self._num_schema_parts = 0

    def note(self, code: Code, message: str, place: Place | None, *, hint: str | None = None) -> None:
        """Note a mistake.

        Raises:
            TooManyMistakesError: there are MAX_DIAGNOSTICS of them.
        """
        self.diagnostics.append(diagnose(code, message, place, hint=hint))
        if len(self.diagnostics) >= MAX_DIAGNOSTICS:
            raise TooManyMistakesError

    def extend(self, diagnostics: Iterable[Diagnostic]) -> None:
        """Take over mistakes found elsewhere.

        Raises:
            TooManyMistakesError: there are MAX_DIAGNOSTICS of them.
        """
        self.diagnostics.extend(diagnostics)
        if len(self.diagnostics) >= MAX_DIAGNOSTICS:
            raise TooManyMistakesError

    def mapping(self, node: Node, what: str, known: Iterable[str] | None = None) -> Mapping[str, Entry]:
        """Return the entries of a mapping; with ``known``, others are noted with the nearest match and left out."""
        if not isinstance(node.value, dict):
            self._wrong_kind(node, what, "a mapping")
            return {}
        if known is None:
            return node.value
        known = tuple(known)
        entries = {}
        for name, entry in node.value.items():
            if name in known:
                entries[name] = entry
                continue
            match = nearest_match(name, known)
            hint = f"did you mean {match!r}?" if match else f"known keys: {', '.join(known)}"
            self.note(Code.UNKNOWN_KEY, f"{what} has no key {name!r:.60}", entry.place, hint=hint)
        return entries

    def named(self, node: Node, what: str) -> Mapping[str, Entry]:
        """Return the entries of a mapping whose keys are names of the user's choice."""
        entries = {}
        for name, entry in self.mapping(node, what).items():
            if NAME.fullmatch(name) and name.lower() not in RESERVED_NAMES:
                entries[name] = entry
                continue
            mended = re.sub(r"[^A-Za-z0-9_]", "_", name)[:60]
            if name.lower() in RESERVED_NAMES:
                hint = "it means something in templates and conditions; choose another"
            else:
                example = mended if NAME.fullmatch(mended) else "a_name"
                hint = f"use letters, digits and underscores, for instance {example!r}"
            self.note(Code.BAD_NAME, f"{name!r:.60} cannot be a name in {what}", entry.place, hint=hint)
        return entries

    def text(self, node: Node, what: str) -> str | None:
        if isinstance(node.value, str):
            return node.value
        self._wrong_kind(node, what, "a text", hint="put it in quotes" if _is_scalar(node) else None)
        return None

    def one_of(self, node: Node, what: str, known: Iterable[str]) -> str | None:
        known = [str(name) for name in known]
        if isinstance(node.value, str) and node.value in known:
            return node.value
        match = nearest_match(node.value, known) if isinstance(node.value, str) else None
        hint = f"did you mean {match!r}?" if match else None
        message = f"{what} is {_shown(node)}; expected one of {', '.join(known)}"
        self.note(Code.BAD_VALUE, message, node.place, hint=hint)
        return None

    def texts(self, node: Node, what: str) -> list[tuple[str, Place]]:
        """Return a list of texts with their places; one text alone counts as a list of one."""
        items = node.value if isinstance(node.value, list) else [node]
        found = []
        for item in items:
            text = self.text(item, f"{what}, each item," if items is node.value else what)
            if text is not None:
                found.append((text, item.place))
        return found

    def whole_number(self, node: Node, what: str, low: int, high: int) -> int | None:
        if isinstance(node.value, int) and not isinstance(node.value, bool) and low <= node.value <= high:
            return node.value
        self.note(Code.BAD_VALUE, f"{what} is {_shown(node)}; expected a whole number from {low} to {high}", node.place)
        return None

    def boolean(self, node: Node, what: str) -> bool | None:
        if isinstance(node.value, bool):
            return node.value
        self._wrong_kind(node, what, "true or false")
        return None

    def duration(self, node: Node, what: str) -> float | None:
        try:
            return parse_duration(node.value)
        except ValueError as error:
            self.note(Code.BAD_DURATION, f"{what}: {error}", node.place)
            return None

    def parse(self, parser: Callable[..., T], *arguments: Any) -> T | None:
        """Call a parser that raises DeclarationError, and keep what it says."""
        try:
            return parser(*arguments)
        except DeclarationError as error:
            self.extend(error.diagnostics)
            return None

    def charge_guard(self, text: str, place: Place) -> None:
        """Count a guard before it is read.

        Raises:
            TooManyMistakesError: the file has more of them than anybody writes.
        """
        self._num_guards += 1
        self._num_guard_chars += len(text)
        if self._num_guards > MAX_FILE_GUARDS or self._num_guard_chars > MAX_FILE_GUARD_CHARS:
            limits = f"{MAX_FILE_GUARDS:,} with {MAX_FILE_GUARD_CHARS:,} characters"
            self.give_up(f"the guards of a file may be {limits}, all together", place)

    def charge_schema(self, node: Node) -> None:
        """Count a JSON Schema before it is read.

        Raises:
            TooManyMistakesError: the file has more of them than anybody writes.
        """
        self._num_schema_parts += node.size
        if self._num_schema_parts > MAX_FILE_SCHEMA_PARTS:
            message = f"the JSON Schemas of a file may have {MAX_FILE_SCHEMA_PARTS:,} values, all together"
            self.give_up(message, node.place)

    def charge_templates(self, root: Node) -> None:
        """Count all texts with expressions in them before any is read.

        Raises:
            TooManyMistakesError: there are more than anybody writes.
        """
        num_templates = num_chars = 0
        stack = [root]
        while stack:
            node = stack.pop()
            if isinstance(node.value, dict):
                stack.extend(entry.node for entry in node.value.values())
            elif isinstance(node.value, list):
                stack.extend(node.value)
            elif isinstance(node.value, str) and ("{{" in node.value or "{%" in node.value):
                num_templates += 1
                num_chars += len(node.value)
                if num_templates > MAX_FILE_TEMPLATES or num_chars > MAX_FILE_TEMPLATE_CHARS:
                    limits = f"{MAX_FILE_TEMPLATES:,} with {MAX_FILE_TEMPLATE_CHARS:,} characters"
                    self.give_up(f"the templates of a file may be {limits}, all together", node.place)

    def give_up(self, message: str, place: Place) -> NoReturn:
        """Note that the file is too large to read on."""
        self.note(Code.FILE_TOO_LARGE, message, place, hint="split it into several files; see 'uses: dag/FILE'")
        raise TooManyMistakesError

    def _wrong_kind(self, node: Node, what: str, expected: str, *, hint: str | None = None) -> None:
        message = f"{what} is {_shown(node)}; expected {expected}"
        self.note(Code.WRONG_TYPE, message, node.place, hint=hint)


def _is_scalar(node: Node) -> bool:
    return isinstance(node.value, bool | int | float)


def _shown(node: Node) -> str:
    """Show a value in a message: a scalar as it is, anything else by its kind."""
    if isinstance(node.value, str | bool | int | float):
        return f"{node.value!r:.60}"
    return node.kind
