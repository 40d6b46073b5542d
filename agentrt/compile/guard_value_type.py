"""What is known of a value in a guard before a run: the kinds it may be of, and what is in it.

It comes from the JSON Schema of what is read, as far as that is plain: ``type``, ``enum``, ``const``, ``properties``,
``items``. Where a schema says more than is understood here, the value may be more than it can; it is never less.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agentrt.compile.guard_operations import UNKNOWN_KIND, Kind, name_of_kind
from agentrt.compile.schema_parts import SchemaReader, TooMuchWorkError, Work, prefix_items


@dataclass(frozen=True, slots=True)
class ValueType:
    """The kinds a value may be of, and what its parts are like."""

    kinds: frozenset[Kind]
    items: ValueType | None = None
    """What a list holds, where it was written out or made by a macro."""
    schema: Any = None
    reader: SchemaReader | None = None
    never_empty: bool = False

    def item(self) -> ValueType:
        """Tell what is known of the items of a list."""
        if self.items is not None:
            return self.items
        for demand in self._demands():
            if "items" in demand and not prefix_items(demand):
                return type_of_schema(demand["items"], self.reader)
        return any_json() if self.reader else ANYTHING

    def part(self, name: str) -> ValueType:
        """Tell what is known of the value under a key."""
        for demand in self._demands():
            properties = demand.get("properties")
            if isinstance(properties, Mapping) and name in properties:
                return type_of_schema(properties[name], self.reader)
        return any_json() if self.reader else ANYTHING

    def gone_over(self) -> ValueType | None:
        """Tell what a macro finds in it; None when it is nothing to go over."""
        found = [each for kind in self.kinds if (each := self._gone_over(kind)) is not None]
        return either(found) if found else None

    def _gone_over(self, kind: Kind) -> ValueType | None:
        from celpy import celtypes as cel

        if kind is cel.ListType:
            return self.item()
        if kind is cel.MapType and self.reader is not None:
            return ValueType(frozenset({cel.StringType}))
        if issubclass(kind, str):
            return ValueType(frozenset({str}))
        return ANYTHING if kind is UNKNOWN_KIND or hasattr(kind, "__iter__") else None

    def _demands(self) -> list[Mapping[str, Any]]:
        try:
            return self.reader.parts(self.schema).demands if self.reader else []
        except TooMuchWorkError:
            return []

    @property
    def names(self) -> tuple[str, ...]:
        """CEL's names of the kinds, sorted."""
        return tuple(sorted({name_of_kind(kind) for kind in self.kinds}))

    def __str__(self) -> str:
        told = " or ".join(self.names)
        if self.names[0] == "null":
            return told
        return f"an {told}" if told.startswith(("int", "any")) else f"a {told}"


ANYTHING = ValueType(frozenset({UNKNOWN_KIND}))


def any_json() -> ValueType:
    """Tell what is known of a value without a schema."""
    return ValueType(frozenset(_kinds_of_json().values()), None, {}, SchemaReader({}, Work()))


def either(types: list[ValueType]) -> ValueType:
    """Tell what is known of a value that is like one of these."""
    if len(types) == 1:
        return types[0]
    return ValueType(frozenset().union(*(each.kinds for each in types)))


def type_of_schema(schema: Any, reader: SchemaReader | None = None) -> ValueType:
    """Tell what is known of a value that fits a schema; ``reader`` is the one of the schema around it.

    A number without a fraction may arrive as an int or a double, except where the schema says ``integer``.
    """
    from celpy import celtypes as cel

    reader = reader or SchemaReader(schema if isinstance(schema, Mapping) else {}, Work())
    try:
        names = reader.kinds(schema)
        demands = reader.parts(schema).demands
    except TooMuchWorkError:
        return any_json()
    kinds = {_kinds_of_json()[name] for name in names}
    if "integer" in names and not any(says_integer(demand) for demand in demands):
        kinds.add(cel.DoubleType)
    never_empty = any(_at_least_one(demand) for demand in demands)
    # A schema that nothing fits is told elsewhere; of no value anything could be said.
    return ValueType(frozenset(kinds), None, schema, reader, never_empty) if kinds else any_json()


def says_integer(schema: Mapping[str, Any]) -> bool:
    """Whether a schema asks for whole numbers by name, so that they are taken to arrive as such."""
    types = schema.get("type")
    types = [types] if isinstance(types, str) else types
    return isinstance(types, list) and "integer" in types and "number" not in types


def _at_least_one(demand: Mapping[str, Any]) -> bool:
    least = demand.get("minItems")
    return isinstance(least, int) and least >= 1


@functools.cache
def _kinds_of_json() -> Mapping[str, Kind]:
    from celpy import celtypes as cel

    return {
        "string": cel.StringType,
        "integer": cel.IntType,
        "fraction": cel.DoubleType,
        "boolean": cel.BoolType,
        "array": cel.ListType,
        "object": cel.MapType,
        "null": type(None),
    }
