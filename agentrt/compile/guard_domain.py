"""Which values are worth trying for something that guards read, so that trying them is as good as trying all.

A guard that only compares a value with constants cannot tell apart two values that lie between the same constants. So a few
representatives stand for every value there is: each constant, one value in each gap between two, one of each further kind.
A schema takes some away. It may take away a constant that does not fit, and a number outside its bounds; it must not take
away the representative of a gap for any other reason, since another value of the gap may fit.

Where a schema lists its values (``enum``, ``const``, ``boolean``), those are all, whatever a guard does with them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agentrt.compile.guard_value_type import says_integer
from agentrt.compile.schema_parts import KINDS, SchemaReader, TooMuchWorkError, Work
from agentrt.declare.json_schema import misfit

_MAX_LISTED = 256
_PLAIN_WORDS = frozenset({"type", "enum", "title", "description", "default", "examples"})
_BOUNDS = ("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum")
_PLAIN_NUMBER_WORDS = _PLAIN_WORDS.union(_BOUNDS) - {"enum"}


@dataclass(frozen=True, slots=True)
class Domain:
    """The values that something read may have: those that fit ``schema``, and null where ``nullable``."""

    schema: Mapping[str, Any] = field(default_factory=dict)
    nullable: bool = False


@dataclass(slots=True)
class Constants:
    """What something read is compared with."""

    texts: set[str] = field(default_factory=set)
    numbers: set[int | float] = field(default_factory=set)
    is_ordered: bool = False

    def add(self, values: Iterable[Any], *, is_ordered: bool) -> None:
        """Note constants; those that are neither texts nor numbers divide nothing."""
        for value in values:
            if isinstance(value, str):
                self.texts.add(str(value))
            elif isinstance(value, int):
                self.numbers.add(int(value))
            elif isinstance(value, float):
                self.numbers.add(float(value))
        self.is_ordered |= is_ordered

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self.texts) + len(self.numbers)


def listed_values(domain: Domain) -> tuple[Any, ...] | None:
    """Return all values of a domain that lists them; None for one that does not."""
    listed = _listed(domain.schema)
    if listed is None or len(listed) > _MAX_LISTED:
        return None
    found = [value for value in listed if _fits(value, domain.schema)]
    if not says_integer(domain.schema):
        found += [other for value in found if (other := _other_number(value)) is not None]
    return (*found, *((None,) if domain.nullable else ())) if found else None


def representatives(domain: Domain, constants: Constants) -> tuple[Any, ...]:
    """Return values that stand for all of a domain, for comparisons with ``constants`` and with nothing else."""
    schema = domain.schema
    kinds, demands = _kinds_and_demands(schema)
    found: list[Any] = []
    if "string" in kinds:
        found += _texts(constants, schema)
    if "integer" in kinds:
        found += _whole_numbers(constants.numbers, schema, demands)
    if "fraction" in kinds or ("integer" in kinds and not any(says_integer(demand) for demand in demands)):
        found += _doubles(constants.numbers, schema, demands)
    if "boolean" in kinds:
        found += [False, True]
    # All lists are alike to a comparison with a text or a number, and so are all mappings.
    found += [value for kind, value in (("array", []), ("object", {}), ("null", None)) if kind in kinds]
    if domain.nullable and "null" not in kinds:
        found.append(None)
    # A schema that nothing fits is told elsewhere; here it would prove anything.
    return tuple(found) or representatives(Domain({}), constants)


def _kinds_and_demands(schema: Mapping[str, Any]) -> tuple[frozenset[str], list[Mapping[str, Any]]]:
    if schema == {"type": "string"}:
        return frozenset({"string"}), []
    reader = SchemaReader(schema, Work())
    try:
        return reader.kinds(schema), reader.parts(schema).demands
    except TooMuchWorkError:
        return frozenset(KINDS), []


def _listed(schema: Any) -> Sequence[Any] | None:
    """Return values among which all that fit a schema are; None when it does not list any."""
    if not isinstance(schema, Mapping):
        return None
    if "const" in schema:
        return [schema["const"]]
    if isinstance(schema.get("enum"), list):
        return list(schema["enum"])
    types = schema.get("type")
    types = [types] if isinstance(types, str) else types
    if isinstance(types, list) and types and set(types) <= {"boolean", "null"}:
        return [*((False, True) if "boolean" in types else ()), *((None,) if "null" in types else ())]
    for part in schema.get("allOf", ()):
        if (listed := _listed(part)) is not None:
            return listed
    for word in ("anyOf", "oneOf"):
        choices = [_listed(choice) for choice in schema.get(word, ())]
        if choices and None not in choices:
            return [value for choice in choices for value in choice or ()]
    return None


def _fits(value: Any, schema: Mapping[str, Any]) -> bool:
    if schema.keys() <= _PLAIN_WORDS:
        # The commonest schemas, without loading jsonschema; its answer is the same.
        if "enum" in schema and value not in schema["enum"]:
            return False
        if schema.get("type", "string") == "string" and isinstance(value, str):
            return True
        if schema.get("type") == "boolean" and isinstance(value, bool) and "enum" not in schema:
            return True
    return misfit(value, schema) is None


def _number_fits(number: int | float, schema: Mapping[str, Any]) -> bool:
    """Say whether a number that is within a schema's bounds fits it."""
    if schema.keys() <= _PLAIN_NUMBER_WORDS:
        wanted = schema.get("type", "number")
        if wanted == "number" or (wanted == "integer" and isinstance(number, int)):
            return True
    return misfit(number, schema) is None


def _other_number(value: Any) -> int | float | None:
    """Return the other way to write a whole number: 1.0 for 1."""
    if isinstance(value, bool):
        return None
    if isinstance(value, float):
        return int(value) if value.is_integer() else None
    return _as_float(value) if isinstance(value, int) else None


def _texts(constants: Constants, schema: Mapping[str, Any]) -> list[str]:
    """The text right after another one is that with a NUL behind; the first of all is the empty one."""
    texts = constants.texts
    gaps = {"", *(text + "\0" for text in texts)} if constants.is_ordered else {max(texts, default="") + "\0"}
    return [*(text for text in sorted(texts) if _fits(text, schema)), *sorted(gaps - texts)]


def _whole_numbers(numbers: set[int | float], schema: Mapping[str, Any], demands: list[Mapping[str, Any]]) -> list[int]:
    candidates = {0}
    for number in (*numbers, *_bounds(demands)):
        if math.isfinite(number):
            candidates |= {math.floor(number) + step for step in (-1, 0, 1)} | {math.ceil(number)}
    return [
        number
        for number in sorted(candidates)
        if _within(number, demands) and (number not in numbers or _number_fits(number, schema))
    ]


def _doubles(numbers: set[int | float], schema: Mapping[str, Any], demands: list[Mapping[str, Any]]) -> list[float]:
    candidates = {0.0}
    for number in (*numbers, *_bounds(demands)):
        double = _as_float(number)
        if double is not None and not math.isnan(double):
            candidates |= {math.nextafter(double, -math.inf), double, math.nextafter(double, math.inf)}
    found = [
        number
        for number in sorted(candidates)
        if _within(number, demands) and (number not in numbers or _number_fits(number, schema))
    ]
    # No bound keeps a NaN out, and it is neither less than anything nor equal to it.
    return [*found, math.nan]


def _bounds(demands: list[Mapping[str, Any]]) -> list[int | float]:
    return [demand[word] for demand in demands for word in _BOUNDS if _is_number(demand.get(word))]


def _within(number: int | float, demands: list[Mapping[str, Any]]) -> bool:
    for demand in demands:
        low: Any = demand.get("minimum")
        above: Any = demand.get("exclusiveMinimum")
        high: Any = demand.get("maximum")
        below: Any = demand.get("exclusiveMaximum")
        if (_is_number(low) and number < low) or (_is_number(above) and number <= above):
            return False
        if (_is_number(high) and number > high) or (_is_number(below) and number >= below):
            return False
    return True


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _as_float(number: int | float) -> float | None:
    try:
        return float(number)
    except OverflowError:
        return None
