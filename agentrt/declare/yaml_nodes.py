"""YAML as nodes that know where they stand: every key and value with its line and column.

Only what a DAG file needs is taken from YAML 1.2: mappings with text keys, lists, texts, numbers, booleans and null. Tags,
merge keys and several documents are refused with their place. Events come from ``yaml_events``; they are put together
here, without recursion, so that depth and size are bounded while reading. An alias stands for the node itself and counts
as many values and characters as that has, so a small file cannot grow into a large value, nor into much to be parsed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from agentrt.declare.codes import Code, diagnose
from agentrt.declare.limits import MAX_DIAGNOSTICS, MAX_FILE_BYTES, MAX_YAML_DEPTH, MAX_YAML_NODES
from agentrt.declare.origin import Origin
from agentrt.declare.yaml_events import decode, failure, lines_of, read_events
from agentrt.declare.yaml_scalars import plain_scalar
from agentrt.errors import DeclarationError, Diagnostic, Place


@dataclass(frozen=True, slots=True)
class Node:
    """A value with its place. ``value``: a dict of name -> Entry, a list of Nodes, or a scalar."""

    value: Any
    place: Place
    origin: Origin
    size: int = 1
    """How many values it is made of, itself included."""
    num_chars: int = 0
    """How many characters its keys and texts have, all together."""

    @property
    def kind(self) -> str:
        """What it is, in a user's words."""
        match self.value:
            case dict():
                return "a mapping"
            case list():
                return "a list"
            case bool():
                return "a boolean"
            case int() | float():
                return "a number"
            case None:
                return "nothing"
        return "a text"

    def plain(self) -> Any:
        """Return the value without places."""
        if isinstance(self.value, dict):
            return {name: entry.node.plain() for name, entry in self.value.items()}
        if isinstance(self.value, list):
            return [item.plain() for item in self.value]
        return self.value

    def origins(self, at: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], Origin]]:
        """Go through the texts in it, with the keys and indexes that lead to each."""
        if isinstance(self.value, dict):
            for name, entry in self.value.items():
                yield from entry.node.origins((*at, name))
        elif isinstance(self.value, list):
            for index, item in enumerate(self.value):
                yield from item.origins((*at, index))
        elif isinstance(self.value, str):
            yield at, self.origin


@dataclass(frozen=True, slots=True)
class Entry:
    """One key of a mapping: where the key stands, and its value."""

    place: Place
    node: Node


def read_yaml(data: bytes, file: str) -> tuple[Node, list[Diagnostic]]:
    """Read one YAML document; returns it with the mistakes that do not keep the rest from being read.

    Raises:
        DeclarationError: there is nothing to go on with: too large, not UTF-8, not YAML, empty.
    """
    text = decode(data, file)
    composer = _Composer(file, lines_of(text))
    for event in read_events(text, file):
        composer.take(event)
    if composer.root is None:
        raise failure(Code.EMPTY_FILE, "the file is empty", Place(file, 1), hint="a DAG file begins with 'name:'")
    return composer.root, composer.diagnostics


@dataclass(slots=True)
class _Open:
    """A mapping or list whose end has not come yet."""

    value: dict[str, Entry] | list[Node]
    place: Place
    anchor: str | None
    size: int = 1
    num_chars: int = 0
    key: tuple[str | None, Place] | None = None
    """In a mapping, the key whose value comes next; its name is None where the pair is left out."""

    @property
    def awaits_key(self) -> bool:
        return isinstance(self.value, dict) and self.key is None


@dataclass(slots=True)
class _Composer:
    """Puts events together into nodes."""

    file: str
    lines: list[str]
    root: Node | None = None
    diagnostics: list[Diagnostic] = field(default_factory=list)
    _stack: list[_Open] = field(default_factory=list)
    _anchors: dict[str, Node | None] = field(default_factory=dict)
    """Nodes with an anchor; None while the node is still open."""

    def take(self, event: Any) -> None:
        match type(event).__name__:
            case "ScalarEvent":
                self._take_scalar(event, self._place(event))
            case "MappingStartEvent":
                self._open({}, event, self._place(event))
            case "SequenceStartEvent":
                self._open([], event, self._place(event))
            case "MappingEndEvent" | "SequenceEndEvent":
                ended = self._stack.pop()
                place, origin = ended.place, Origin(ended.place)
                self._add(Node(ended.value, place, origin, ended.size, ended.num_chars), place, ended.anchor)
            case "AliasEvent":
                place = self._place(event)
                self._add(self._anchored_node(event.anchor, place), place, None)
            case "DocumentStartEvent" if self.root is not None:
                hint = "remove the line '---'"
                raise failure(Code.YAML_FEATURE, "a DAG file holds one document", self._place(event), hint=hint)

    def _place(self, event: Any) -> Place:
        mark = event.start_mark
        return Place(self.file, mark.line + 1, mark.column + 1)

    def _take_scalar(self, event: Any, place: Place) -> None:
        if event.tag is not None:
            self._check_tag(event.tag, place)
        if event.style or event.tag is not None:
            node = Node(event.value, place, self._origin(event.style, place), 1, len(event.value))
        else:
            node = Node(plain_scalar(event.value), place, Origin(place), 1, len(event.value))
        if self._stack and self._stack[-1].awaits_key:
            if event.anchor is not None:
                self._anchors[event.anchor] = node
            self._take_key(event.value, place, is_plain=not event.style)
        else:
            self._add(node, place, event.anchor)

    def _open(self, value: dict[str, Entry] | list[Node], event: Any, place: Place) -> None:
        if event.tag is not None:
            self._check_tag(event.tag, place)
        if len(self._stack) >= MAX_YAML_DEPTH:
            raise failure(Code.TOO_DEEP, f"nested deeper than {MAX_YAML_DEPTH} levels", place)
        if event.anchor is not None:
            self._anchors[event.anchor] = None
        self._stack.append(_Open(value, place, event.anchor))

    def _add(self, node: Node, place: Place, anchor: str | None) -> None:
        """Put a node that is complete where it belongs; ``place`` is where it, or an alias to it, stands."""
        if anchor is not None:
            self._anchors[anchor] = node
        if not self._stack:
            self.root = node
            return
        parent = self._stack[-1]
        parent.size += node.size
        parent.num_chars += node.num_chars
        if parent.size > MAX_YAML_NODES:
            message = f"more than {MAX_YAML_NODES:,} values, aliases counted as often as they are used"
            raise failure(Code.FILE_TOO_LARGE, message, place)
        if parent.num_chars > MAX_FILE_BYTES:
            message = f"more than {MAX_FILE_BYTES:,} characters, aliases counted as often as they are used"
            raise failure(Code.FILE_TOO_LARGE, message, place)
        if isinstance(parent.value, list):
            parent.value.append(node)
        elif parent.key is None:
            self._note(Code.WRONG_TYPE, "a key must be a text", place)
            parent.key = (None, place)
        else:
            (name, key_place), parent.key = parent.key, None
            if name is not None:
                parent.value[name] = Entry(key_place, node)

    def _take_key(self, name: str, place: Place, *, is_plain: bool) -> None:
        parent = self._stack[-1]
        assert isinstance(parent.value, dict)
        parent.num_chars += len(name)
        parent.key = (None, place)
        if name == "<<" and is_plain:
            self._note(Code.YAML_FEATURE, "merge keys ('<<') are not used in DAG files", place)
        elif name in parent.value:
            first = parent.value[name].place.line
            self._note(Code.DUPLICATE_KEY, f"the key {name!r:.80} stands twice; first on line {first}", place)
        else:
            parent.key = (name, place)

    def _anchored_node(self, anchor: str, place: Place) -> Node:
        if anchor not in self._anchors:
            message = f"there is no anchor {anchor!r:.80} before this alias"
            raise failure(Code.YAML_SYNTAX, message, place, hint="a text that begins with '*' needs quotes")
        node = self._anchors[anchor]
        if node is None:
            raise failure(Code.YAML_FEATURE, "this alias stands for something it is itself a part of", place)
        return node

    def _check_tag(self, tag: str, place: Place) -> None:
        if tag not in ("!", "tag:yaml.org,2002:str"):
            shown = tag.removeprefix("tag:yaml.org,2002:")
            self._note(Code.YAML_FEATURE, f"the tag {shown!r:.80} is not used in DAG files", place)

    def _origin(self, style: str | None, place: Place) -> Origin:
        """Tell where the characters of a text stand: exactly for one-line texts and literal blocks."""
        assert place.line is not None
        assert place.column is not None
        if style == "|":
            first = next((line for line in self.lines[place.line :] if line.strip()), "")
            indent = len(first) - len(first.lstrip(" "))
            return Origin(Place(self.file, place.line + 1, indent + 1), indent)
        if style in ("'", '"'):
            return Origin(Place(self.file, place.line, place.column + 1))
        return Origin(place)

    def _note(self, code: Code, message: str, place: Place) -> None:
        self.diagnostics.append(diagnose(code, message, place))
        if len(self.diagnostics) >= MAX_DIAGNOSTICS:
            raise DeclarationError(self.diagnostics)
