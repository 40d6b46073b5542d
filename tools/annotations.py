"""From Python annotations to JSON Schema and back: what a function takes, and how a JSON value becomes that."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

_JSON_TYPES = (str, int, float, bool, dict, list, type(None), Any)
"""Annotations whose values arrive as JSON has them: nothing to convert."""


@dataclass(frozen=True, slots=True)
class Described:
    """Schemas by parameter, the definitions they share, and the converters of those that are no plain JSON."""

    properties: Mapping[str, Mapping[str, Any]]
    definitions: Mapping[str, Any]
    """``{"$defs": ...}`` or empty; belongs beside what uses the properties."""
    converters: Mapping[str, Callable[[Any], Any]]
    """Raise ValueError for a value that does not fit."""


def describe(annotations: Mapping[str, Any], where: str) -> Described:
    """Describe parameters by their annotations.

    Raises:
        TypeError: an annotation has no JSON Schema; names ``where`` and the parameter.
    """
    from pydantic import TypeAdapter

    adapters: dict[str, TypeAdapter[Any]] = {}
    for name, annotation in annotations.items():
        with _telling(f"{where}, parameter {name!r}", annotation):
            adapters[name] = TypeAdapter(annotation)
            adapters[name].json_schema()
    if not adapters:
        return Described({}, {}, {})
    schemas, shared = TypeAdapter.json_schemas([(name, "validation", adapter) for name, adapter in adapters.items()])
    return Described(
        properties={name: schemas[name, "validation"] for name in adapters},
        definitions={"$defs": shared["$defs"]} if "$defs" in shared else {},
        converters={
            name: adapter.validate_python for name, adapter in adapters.items() if annotations[name] not in _JSON_TYPES
        },
    )


def result_schema(annotation: Any, where: str) -> dict[str, Any]:
    """Return the JSON Schema of what a function returns.

    Raises:
        TypeError: the annotation has none.
    """
    from pydantic import TypeAdapter

    with _telling(f"{where}, result", annotation):
        schema = TypeAdapter(annotation).json_schema(mode="serialization")
    return schema


@contextmanager
def _telling(where: str, annotation: Any) -> Iterator[None]:
    """Say which annotation has no schema."""
    from pydantic.errors import PydanticUserError

    try:
        yield
    except PydanticUserError as error:
        raise TypeError(f"{where}: {annotation!r} has no JSON Schema") from error
