"""Whether what one JSON Schema describes can ever be what another asks for.

Containment ("everything that fits this fits that") would be the wrong question: a tool that returns ``number`` may well be
used where ``integer`` is wanted, and a checker that cries at this is switched off. What is told here is a certainty: the
two schemas have no value in common. Both are taken apart into demands that hold at once (see ``schema_parts``), and they
clash when

- they share no kind of value (text, number, list, ...), or
- for each kind they share, two demands exclude each other: bounds that do not meet, a property that the one always has and
  the other never may, an item or property that is always there and whose schemas clash in turn, or
- every alternative of an ``anyOf`` clashes with the other side.

Words that are not looked at (``pattern``, ``not``, ``if``, anything unknown) only make values fewer, so leaving them out
can miss a clash and never invents one. Depth and work are bounded; what is too large to compare may fit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from agentrt.compile.schema_bounds import clash_of_lengths, clash_of_numbers, clash_of_texts, lengths
from agentrt.compile.schema_parts import (
    KINDS,
    Parts,
    Schema,
    SchemaReader,
    TooMuchWorkError,
    Work,
    item_schema,
    prefix_items,
    property_schema,
    required_names,
)

_MAX_DEPTH = 24
_MAX_ITEMS = 64
"""Items of a list that are looked at one by one."""
_NAMES = {
    "string": "text",
    "integer": "a whole number",
    "fraction": "a number",
    "boolean": "a boolean",
    "array": "a list",
    "object": "a mapping",
    "null": "null",
}


class _Clash(NamedTuple):
    path: tuple[str, ...]
    reason: str
    is_of_kind: bool = False
    """Whether not even the kinds agree: of several alternatives, the others tell more."""

    def under(self, key: str) -> _Clash:
        return _Clash((key, *self.path), self.reason)


def clash(given: Schema, wanted: Schema, *, filled: bool = False) -> str | None:
    """Say in one line why no value that fits ``given`` can fit ``wanted``; None when one may.

    With ``filled`` only values count in which no list and no mapping is empty. ``list[str]`` and ``list[int]`` have the
    empty list in common, which is seldom what was meant.
    """
    work = Work()
    comparison = _Comparison(SchemaReader(given, work), SchemaReader(wanted, work), work, filled)
    try:
        found = comparison.clash(given, wanted)
    except (TooMuchWorkError, RecursionError):
        return None
    if found is None:
        return None
    path = "".join(part if part.startswith("[") else f".{part}" for part in found.path).lstrip(".")
    return f"{path}: {found.reason}" if path else found.reason


class _Comparison:
    def __init__(self, given: SchemaReader, wanted: SchemaReader, work: Work, filled: bool) -> None:
        self._given = given
        self._wanted = wanted
        self._work = work
        self._filled = filled

    def clash(self, given: Any, wanted: Any, depth: int = 0) -> _Clash | None:
        self._work.charge()
        if depth > _MAX_DEPTH or given is True or wanted is True:
            return None
        given_kinds, wanted_kinds = self._given.kinds(given), self._wanted.kinds(wanted)
        shared = given_kinds & wanted_kinds
        if not shared:
            return _Clash((), f"{_named(given_kinds)} where {_named(wanted_kinds)} is wanted", is_of_kind=True)
        given_parts, wanted_parts = self._given.parts(given), self._wanted.parts(wanted)
        first: _Clash | None = None
        for kind in sorted(shared, key=KINDS.index):
            found = self._clash_of_kind(kind, given_parts.demands, wanted_parts.demands, depth)
            if found is None:
                break
            first = first or found
        else:
            return first
        return self._clash_of_choices(given, wanted, given_parts, wanted_parts, depth)

    def _clash_of_choices(
        self, given: Any, wanted: Any, given_parts: Parts, wanted_parts: Parts, depth: int
    ) -> _Clash | None:
        if given_parts.values is not None and wanted_parts.values is not None:
            if _have_none_in_common(given_parts.values, wanted_parts.values):
                return _Clash((), f"{_told(given_parts.values)} where {_told(wanted_parts.values)} is wanted")
        elif given_parts.values is not None and len(given_parts.values) > 1:
            given_parts.choices.append([{"const": value} for value in given_parts.values])
        elif wanted_parts.values is not None and len(wanted_parts.values) > 1:
            wanted_parts.choices.append([{"const": value} for value in wanted_parts.values])
        for choice in given_parts.choices:
            found = _all(self.clash(alternative, wanted, depth + 1) for alternative in choice)
            if found is not None:
                return found
        for choice in wanted_parts.choices:
            found = _all(self.clash(given, alternative, depth + 1) for alternative in choice)
            if found is not None:
                return found
        return None

    def _clash_of_kind(self, kind: str, given: list[Schema], wanted: list[Schema], depth: int) -> _Clash | None:
        match kind:
            case "array":
                return self._clash_of_items(given, wanted, depth)
            case "object":
                return self._clash_of_properties(given, wanted, depth)
            case "string":
                return self._pairwise(clash_of_texts, given, wanted)
            case "integer" | "fraction":
                return self._pairwise(clash_of_numbers, given, wanted)
        return None

    def _pairwise(
        self, compare: Callable[[Schema, Schema], str | None], given: list[Schema], wanted: list[Schema]
    ) -> _Clash | None:
        self._work.charge(len(given) * len(wanted))
        for one in given:
            for other in wanted:
                reason = compare(one, other)
                if reason is not None:
                    return _Clash((), reason)
        return None

    def _clash_of_items(self, given: list[Schema], wanted: list[Schema], depth: int) -> _Clash | None:
        reason = clash_of_lengths(given, wanted)
        if reason is not None:
            return _Clash((), reason)
        num_certain, num_possible = lengths([*given, *wanted])
        if self._filled and num_possible >= 1:
            num_certain = max(num_certain, 1)
        num_prefixed = max(len(prefix_items(demand)) for demand in (*given, *wanted, {}))
        # After the items that are listed one by one, all are alike.
        for index in range(int(min(num_certain, num_prefixed + 1, _MAX_ITEMS))):
            self._work.charge(len(given) + len(wanted))
            of_given = [item_schema(demand, index) for demand in given]
            found = self._first_clash(of_given, [item_schema(demand, index) for demand in wanted], depth)
            if found is not None:
                return found.under(f"[{index}]" if num_prefixed else "items")
        return None

    def _clash_of_properties(self, given: list[Schema], wanted: list[Schema], depth: int) -> _Clash | None:
        for name in dict.fromkeys(required_names([*wanted, *given])):
            self._work.charge(len(given) + len(wanted))
            of_given = [property_schema(demand, name) for demand in given]
            of_wanted = [property_schema(demand, name) for demand in wanted]
            if any(schema is False for schema in of_given):
                return _Clash((), f"there is no {name!r:.60}, which is wanted")
            if any(schema is False for schema in of_wanted):
                return _Clash((), f"there is {name!r:.60}, which is not wanted")
            found = self._first_clash(of_given, of_wanted, depth)
            if found is not None:
                return found.under(f"{name:.60}")
        if self._filled:
            found = self._first_clash(list(_map_values(given)), list(_map_values(wanted)), depth)
            if found is not None:
                return found.under("values")
        return None

    def _first_clash(self, given: list[Any], wanted: list[Any], depth: int) -> _Clash | None:
        for one in given:
            for other in wanted:
                found = self.clash(one, other, depth + 1)
                if found is not None:
                    return found
        return None


def _all(found: Iterable[_Clash | None]) -> _Clash | None:
    """Return the clash that tells most, when every alternative clashes."""
    best: _Clash | None = None
    for one in found:
        if one is None:
            return None
        if best is None or (best.is_of_kind and not one.is_of_kind):
            best = one
    return best


def _map_values(demands: Iterable[Schema]) -> Iterator[Any]:
    """Go through the schemas that every value of a mapping must fit."""
    for demand in demands:
        if not demand.get("properties") and not demand.get("patternProperties"):
            values = demand.get("additionalProperties")
            if isinstance(values, Mapping):
                yield values


def _have_none_in_common(values: list[Any], others: list[Any]) -> bool:
    """Whether no value stands in both lists; only when both hold plain values, as nearly all do."""
    plain = (str, int, float, bool, type(None))
    if not all(isinstance(value, plain) and value == value for value in (*values, *others)):
        return False
    # 1 and 1.0 are the same number, and neither is true.
    return {(isinstance(value, bool), value) for value in values}.isdisjoint(
        {(isinstance(value, bool), value) for value in others}
    )


def _named(kinds: Iterable[str]) -> str:
    kinds = set(kinds)
    names = [
        _NAMES[kind if kind != "integer" or "fraction" not in kinds else "fraction"] for kind in KINDS if kind in kinds
    ]
    return " or ".join(dict.fromkeys(names)) or "nothing"


def _told(values: list[Any]) -> str:
    shown = ", ".join(f"{value!r:.40}" for value in values[:5]) + (", ..." if len(values) > 5 else "")
    return f"one of {shown}" if len(values) > 1 else shown
