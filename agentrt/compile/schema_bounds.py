"""Bounds of two JSON Schemas that do not meet: numbers, the lengths of texts, the lengths of lists.

Each function takes demands (see ``schema_parts``) and says in words why no value keeps to both, or gives None. A bound that
is no number is no bound.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from agentrt.compile.schema_parts import Schema, prefix_items

_Bound = tuple[float, bool]
"""A bound, and whether it is itself outside."""


def lengths(demands: Iterable[Schema]) -> tuple[float, float]:
    """Return how many items a list has at least and at most."""
    least, most = 0.0, math.inf
    for demand in demands:
        least = max(least, _count(demand, "minItems", 0))
        most = min(most, _count(demand, "maxItems", math.inf))
        if demand.get("items") is False:
            most = min(most, len(prefix_items(demand)))
    return least, most


def clash_of_lengths(given: Iterable[Schema], wanted: Iterable[Schema]) -> str | None:
    least_given, most_given = lengths(given)
    least_wanted, most_wanted = lengths(wanted)
    if least_given > most_wanted:
        return f"{_items('at least', least_given)} where at most {_shown(most_wanted)} are wanted"
    if most_given < least_wanted:
        return f"{_items('at most', most_given)} where at least {_shown(least_wanted)} are wanted"
    return None


def clash_of_texts(given: Schema, wanted: Schema) -> str | None:
    least_given, most_given = _count(given, "minLength", 0), _count(given, "maxLength", math.inf)
    least_wanted, most_wanted = _count(wanted, "minLength", 0), _count(wanted, "maxLength", math.inf)
    if least_given > most_wanted:
        told = _const(given) or f"at least {_shown(least_given)} characters"
        return f"{told} where at most {_shown(most_wanted)} characters are wanted"
    if most_given < least_wanted:
        told = _const(given) or f"at most {_shown(most_given)} characters"
        return f"{told} where at least {_shown(least_wanted)} characters are wanted"
    return None


def clash_of_numbers(given: Schema, wanted: Schema) -> str | None:
    least_given, least_wanted = _least(given), _least(wanted)
    most_given, most_wanted = _most(given), _most(wanted)
    if _is_beyond(least_given, most_wanted):
        told = _const(given) or f"{'above' if least_given[1] else 'at least'} {_shown(least_given[0])}"
        return f"{told} where {'less than' if most_wanted[1] else 'at most'} {_shown(most_wanted[0])} is wanted"
    if _is_beyond(least_wanted, most_given):
        told = _const(given) or f"{'less than' if most_given[1] else 'at most'} {_shown(most_given[0])}"
        return f"{told} where {'more than' if least_wanted[1] else 'at least'} {_shown(least_wanted[0])} is wanted"
    return None


def _least(demand: Schema) -> _Bound:
    bounds = [(_number(demand, "minimum"), False), (_number(demand, "exclusiveMinimum"), True)]
    return max(((bound, is_open) for bound, is_open in bounds if bound is not None), default=(-math.inf, False))


def _most(demand: Schema) -> _Bound:
    bounds = [(_number(demand, "maximum"), False), (_number(demand, "exclusiveMaximum"), True)]
    found = [(bound, not is_open) for bound, is_open in bounds if bound is not None]
    bound, is_closed = min(found, default=(math.inf, True))
    return bound, not is_closed


def _is_beyond(least: _Bound, most: _Bound) -> bool:
    return least[0] > most[0] or (least[0] == most[0] and (least[1] or most[1]))


def _number(demand: Schema, word: str) -> float | None:
    value = demand.get(word)
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and value == value
    return value if is_number else None


def _count(demand: Schema, word: str, default: float) -> float:
    value = _number(demand, word)
    return default if value is None else value


def _items(bound: str, count: float) -> str:
    return f"{bound} {_shown(count)} item{'' if count == 1 else 's'}"


def _shown(number: float) -> str:
    """Write a number down, one of a thousand digits too."""
    if isinstance(number, float) and number.is_integer() and abs(number) < 2**53:
        number = int(number)
    return f"{number!r:.40}" if abs(number) < 10**100 else "a number of more than 100 digits"


def _const(demand: Schema) -> str | None:
    return f"{demand['const']!r:.60}" if "const" in demand else None
