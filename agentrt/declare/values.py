"""How templates take values apart and write them down.

Two rules differ from plain jinja, because a prompt is read by a model and not by Python:

- A part is looked up in the data first: ``output.items`` is the key ``items`` of a mapping, never its method. A part of
  null is null, so that an output may refer into an action that was skipped; any other missing part is an error.
- In a text, null is nothing, a boolean is ``true`` or ``false``, and a list or mapping is JSON.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from agentrt.declare.limits import MAX_TEXT_CHARS, MAX_VALUE_DEPTH, MAX_VALUE_NODES
from agentrt.errors import nearest_match


class MissingPartError(LookupError):
    """A value has no such part; the message says what it has instead."""


class ValueTooLargeError(ValueError):
    """A value is too large or too deeply nested to be written down."""


def part_of(value: Any, key: str | int) -> Any:
    """Return ``value[key]`` or, for an object that is no container, its public data attribute.

    Raises:
        MissingPartError: there is no such part.
    """
    if value is None:
        return None
    if isinstance(value, Mapping):
        if key in value:
            return value[key]
        raise MissingPartError(f"there is no key {key!r}{_suggestion(key, value)}")
    if isinstance(value, Sequence):
        if isinstance(key, int):
            try:
                return value[key]
            except IndexError:
                raise MissingPartError(f"there is no item {key}: {_kind(value)} has {len(value)}") from None
        if not isinstance(value, tuple) or not hasattr(value, "_fields"):
            raise MissingPartError(f"{_kind(value)} has no part {key!r}")
    if isinstance(key, str) and not key.startswith("_"):
        try:
            part = getattr(value, key)
        except AttributeError:
            part = _part_missing
        except Exception as error:
            raise MissingPartError(f"reading {key!r} of {_kind(value)} failed: {error}") from error
        if not callable(part):
            return part
    raise MissingPartError(f"{_kind(value)} has no part {key!r}")


def text_of(value: Any) -> str:
    """Write a value as it stands in a text.

    Raises:
        ValueTooLargeError: it is too large or too deeply nested.
    """
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    if value is True:
        return "true"
    if value is False:
        return "false"
    if isinstance(value, (int, float)):
        return str(value)
    return json_of(value)


def json_of(value: Any, *, indent: int | None = None) -> str:
    """Write a value as JSON on one line, or indented; letters of any script stand as themselves.

    Raises:
        ValueTooLargeError: it is too large or too deeply nested.
    """
    check_size(value)
    return json.dumps(value, ensure_ascii=False, indent=indent, default=_json_default)


def check_size(value: Any, *, max_chars: int = MAX_TEXT_CHARS) -> None:
    """Refuse a value with too many parts, too much text in it, or nested too deeply.

    A list that holds another one many times counts as long as it would be when written down.

    Raises:
        ValueTooLargeError: it is.
    """
    num_nodes = num_chars = 0
    level: list[Any] = [value]
    for _ in range(MAX_VALUE_DEPTH):
        deeper: list[Any] = []
        for node in level:
            if isinstance(node, str):
                num_chars += len(node)
                if num_chars > max_chars:
                    raise ValueTooLargeError(f"the value holds more than {max_chars} characters")
                continue
            if isinstance(node, Mapping):
                children: Any = node.values()
            elif isinstance(node, (list, tuple)):
                children = node
            else:
                continue
            num_nodes += len(children)
            if num_nodes > MAX_VALUE_NODES:
                raise ValueTooLargeError(f"the value has more than {MAX_VALUE_NODES} parts")
            deeper.extend(children)
        if not deeper:
            return
        level = deeper
    raise ValueTooLargeError(f"the value is nested deeper than {MAX_VALUE_DEPTH} levels")


def _part_missing() -> None:
    """Stands for an attribute that is not there; callable, so it is never handed out."""


def plain_value(value: Any) -> Any:
    """Turn an object into the JSON value it is most like, one level deep; leave all else as it is."""
    import dataclasses

    if value is None or isinstance(value, (str, int, float, dict, list)):
        return value
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, (set, frozenset)):
        return sorted(value, key=repr)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    dump = getattr(value, "model_dump", None)
    if callable(dump) and not isinstance(value, type):
        return dump(mode="json")
    return value


def _json_default(value: Any) -> Any:
    plain = plain_value(value)
    return str(value) if plain is value else plain


def _kind(value: Any) -> str:
    if isinstance(value, str):
        return "the text"
    if isinstance(value, bool):
        return "the boolean"
    if isinstance(value, (int, float)):
        return "the number"
    if isinstance(value, Sequence):
        return "the list"
    return f"the {type(value).__name__}"


def _suggestion(key: str | int, value: Mapping[Any, Any]) -> str:
    names = [name for name in list(value)[:1000] if isinstance(name, str)]
    match = nearest_match(key, names) if isinstance(key, str) else None
    if match:
        return f" (did you mean {match!r}?)"
    if not names:
        return ""
    shown = ", ".join(repr(name) for name in names[:8])
    return f" (it has {shown}{', ...' if len(names) > 8 else ''})"
