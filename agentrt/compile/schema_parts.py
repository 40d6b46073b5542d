"""JSON Schemas taken apart: what a schema demands at once, what it leaves a choice of, and what its parts look like.

``$ref``, ``allOf``, ``const`` and ``enum`` are four ways to say things that ``type``, bounds, ``properties`` and ``anyOf``
can say too. Here they are said in the latter, so that whoever compares schemas knows few words. A word that is not known,
and a reference that leads out of the schema, demand nothing: whoever reasons from what is demanded then errs on the side
of "may be".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

Schema = Mapping[str, Any]

KINDS = ("string", "integer", "fraction", "boolean", "array", "object", "null")
"""What a JSON value can be; a number is an integer (1.0 is one too) or has a fraction."""

_KINDS_OF_TYPE: Mapping[str, frozenset[str]] = {
    "number": frozenset({"integer", "fraction"}),
    **{kind: frozenset({kind}) for kind in KINDS if kind != "fraction"},
}
_ALL_KINDS = frozenset(KINDS)
_NOTHING: Schema = {"not": {}}
_MAX_DEPTH = 40


class TooMuchWorkError(Exception):
    """The schemas are larger than is worth looking at."""


@dataclass(slots=True)
class Work:
    """How many more steps may be spent; a hostile schema can ask for more than a process lives."""

    left: int = 4000

    def charge(self, steps: int = 1) -> None:
        self.left -= steps
        if self.left < 0:
            raise TooMuchWorkError


@dataclass(slots=True)
class Parts:
    """A schema taken apart.

    A value fits when it fits every one of ``demands`` and one of each of ``choices``, and is one of ``values`` unless
    those are None.
    """

    demands: list[Schema] = field(default_factory=list)
    choices: list[list[Any]] = field(default_factory=list)
    values: list[Any] | None = None


class SchemaReader:
    """Reads one schema and those inside it; ``root`` is where its references lead."""

    def __init__(self, root: Schema, work: Work) -> None:
        self._root = root
        self._work = work

    def parts(self, schema: Any) -> Parts:
        """Take a schema apart, following references and ``allOf``."""
        found = Parts()
        seen: set[str] = set()
        stack = [schema]
        while stack:
            part = stack.pop()
            self._work.charge()
            if part is False:
                found.demands.append(_NOTHING)
            # A schema with an address of its own has references of its own, which are not followed here.
            if not isinstance(part, Mapping) or ("$id" in part and part is not self._root):
                continue
            found.demands.append(part)
            reference = part.get("$ref")
            if isinstance(reference, str) and reference not in seen:
                seen.add(reference)
                stack.append(self._target(reference))
            if isinstance(part.get("allOf"), list):
                stack.extend(part["allOf"])
            for word in ("anyOf", "oneOf"):
                if isinstance(part.get(word), list) and part[word]:
                    found.choices.append(part[word])
            if "const" in part:
                found.values = [part["const"]]
                self._work.charge(_size(part["const"]))
                found.demands.append(of_value(part["const"]))
            elif isinstance(part.get("enum"), list) and part["enum"]:
                found.values = part["enum"]
                self._work.charge(len(part["enum"]))
        return found

    def kinds(self, schema: Any, depth: int = 0) -> frozenset[str]:
        """Return the kinds a fitting value may be of: none left out that could be, maybe some too many."""
        if depth > _MAX_DEPTH:
            return _ALL_KINDS
        parts = self.parts(schema)
        kinds = _ALL_KINDS
        for demand in parts.demands:
            kinds &= _demanded_kinds(demand)
        if parts.values is not None:
            kinds &= {kind_of(value) for value in parts.values}
        for choice in parts.choices:
            kinds &= frozenset().union(*(self.kinds(alternative, depth + 1) for alternative in choice))
        return kinds

    def _target(self, reference: str) -> Any:
        if reference == "#":
            return self._root
        for word in ("$defs", "definitions"):
            prefix, definitions = f"#/{word}/", self._root.get(word)
            if reference.startswith(prefix) and isinstance(definitions, Mapping):
                name = unquote(reference.removeprefix(prefix))
                return {} if "/" in name else definitions.get(name.replace("~1", "/").replace("~0", "~"), {})
        return {}


def kind_of(value: Any) -> str:
    """Return which of KINDS a value is."""
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case str():
            return "string"
        case int():
            return "integer"
        case float():
            return "integer" if value.is_integer() else "fraction"
        case list() | tuple():
            return "array"
        case _:
            return "object"


def of_value(value: Any) -> Schema:
    """Describe one value as a schema, one level deep; ``const`` is kept for telling."""
    match kind_of(value):
        case "array":
            size = len(value)
            items = [{"const": item} for item in value]
            return {"type": "array", "minItems": size, "maxItems": size, "prefixItems": items, "items": False}
        case "object":
            return closed_object({name: {"const": part} for name, part in value.items()})
        case "string":
            return {"type": "string", "minLength": len(value), "maxLength": len(value), "const": value}
        case "integer" | "fraction":
            return {"type": "number", "minimum": value, "maximum": value, "const": value}
        case kind:
            return {"type": kind}


def closed_object(properties: Mapping[str, Any]) -> Schema:
    """Describe a mapping with exactly these keys."""
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def property_schema(demand: Schema, name: str) -> Any:
    """Return what a demand says of a property that is there; False when it must not be."""
    properties = demand.get("properties")
    if isinstance(properties, Mapping) and name in properties:
        return properties[name]
    return True if "patternProperties" in demand else demand.get("additionalProperties", True)


def item_schema(demand: Schema, index: int) -> Any:
    """Return what a demand says of an item that is there; False when it must not be."""
    prefix = prefix_items(demand)
    return prefix[index] if index < len(prefix) else demand.get("items", True)


def prefix_items(demand: Schema) -> list[Any]:
    prefix = demand.get("prefixItems")
    return prefix if isinstance(prefix, list) else []


def required_names(demands: Iterable[Schema]) -> Iterator[str]:
    for demand in demands:
        required = demand.get("required")
        if isinstance(required, list | tuple):
            yield from (name for name in required if isinstance(name, str))


def _demanded_kinds(demand: Schema) -> frozenset[str]:
    types = demand.get("type")
    if demand is _NOTHING:
        return frozenset()
    types = [types] if isinstance(types, str) else types
    if not isinstance(types, list) or not types:
        return _ALL_KINDS
    kinds: frozenset[str] = frozenset()
    for name in types:
        kinds |= _KINDS_OF_TYPE.get(name, _ALL_KINDS) if isinstance(name, str) else _ALL_KINDS
    return kinds


def _size(value: Any) -> int:
    return len(value) if isinstance(value, list | tuple | Mapping) else 1
