"""What becomes of a guard, or of a part of one, when values are given to some of what it reads.

The logic has four values. CEL itself has three: an error on one side of ``&&`` does not matter when the other is false.
The fourth is not to know. It is kept apart from an error, since what is not known may turn out false, and an error never
does. Whatever is said here of a guard with little known stays true when more becomes known.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from typing import Any, Final

from agentrt.compile.guard_expression import Broken, Call, Constant, Expression, ListOf, Name, Read
from agentrt.compile.guard_operations import FAILED, apply
from agentrt.declare.reference import Reference


class Outcome(enum.Enum):
    HOLDS = "holds"
    DOES_NOT_HOLD = "does not hold"
    FAILS = "fails"
    """It raises at run time, or gives neither true nor false."""
    UNKNOWN = "unknown"
    """Any of the three."""


class _Untold(enum.Enum):
    UNTOLD = "untold"


UNTOLD: Final = _Untold.UNTOLD
"""The value of a part that something not known goes into."""

LOGIC = frozenset({"_&&_", "_||_", "!_", "_?_:_"})
_NUMERIC = frozenset({"_*_", "_-_", "_/_", "_%_"})
"""Only numbers are multiplied here: a text times a billion is a matter for the run, which refuses it or not."""


def outcome_of(expression: Expression, outcome_of_part: Callable[[Expression], Outcome]) -> Outcome:
    """Work out the logic of a guard, from the outcomes of the parts that ``&&``, ``||``, ``!`` and ``?:`` join."""
    if not isinstance(expression, Call) or expression.function not in LOGIC:
        return outcome_of_part(expression)
    first, *others = expression.arguments
    outcome = outcome_of(first, outcome_of_part)
    match expression.function:
        case "!_":
            return _NEGATED[outcome]
        case "_&&_":
            return _joined(outcome, outcome_of(others[0], outcome_of_part), Outcome.DOES_NOT_HOLD)
        case "_||_":
            return _joined(outcome, outcome_of(others[0], outcome_of_part), Outcome.HOLDS)
    if outcome is Outcome.FAILS:
        return outcome
    if outcome is not Outcome.UNKNOWN:
        return outcome_of(others[outcome is Outcome.DOES_NOT_HOLD], outcome_of_part)
    branches = {outcome_of(other, outcome_of_part) for other in others}
    return Outcome.FAILS if branches == {Outcome.FAILS} else Outcome.UNKNOWN


def outcome_with(expression: Expression, values: Mapping[Reference, Any]) -> Outcome:
    """Say what becomes of a guard when some of what it reads has these values, in CEL's own form."""
    return outcome_of(expression, lambda part: outcome_of_value(value_of(part, values)))


def outcome_of_value(value: Any) -> Outcome:
    """Say what a part that gave ``value`` counts as where true or false is wanted."""
    from celpy import celtypes as cel

    if value is UNTOLD or type(value) is bool:
        return Outcome.UNKNOWN
    if isinstance(value, cel.BoolType):
        return Outcome.HOLDS if value else Outcome.DOES_NOT_HOLD
    return Outcome.FAILS


def value_of(expression: Expression, values: Mapping[Reference, Any]) -> Any:
    """Evaluate a part by cel-python's own operations; FAILED for an error, UNTOLD where something is not known."""
    match expression:
        case Constant():
            return expression.value
        case Broken():
            return FAILED
        case Read():
            return values.get(expression.reference, UNTOLD)
        case ListOf():
            return _list_of([value_of(item, values) for item in expression.items])
        case Call(function=function) if function in LOGIC:
            return _logical_value(expression, values)
        case Call():
            return _called(expression, [value_of(argument, values) for argument in expression.arguments])
        case Name() if not expression.is_variable:
            return apply_name(expression.name)
    return UNTOLD


def apply_name(name: str) -> Any:
    """Return the type that a name stands for."""
    from celpy.evaluation import base_functions

    found = base_functions.get(name, UNTOLD)
    return found if isinstance(found, type) else UNTOLD


def cel_value(value: Any) -> Any:
    """Return a JSON value in CEL's form; FAILED when it has none there."""
    from celpy.adapter import json_to_cel

    try:
        return json_to_cel(value)
    except (ValueError, TypeError, OverflowError, RecursionError):
        return FAILED


def _list_of(items: list[Any]) -> Any:
    from celpy import celtypes as cel

    if any(item is FAILED for item in items):
        return FAILED
    return UNTOLD if any(item is UNTOLD for item in items) else cel.ListType(items)


def _logical_value(expression: Call, values: Mapping[Reference, Any]) -> Any:
    from celpy import celtypes as cel

    if expression.function == "_?_:_":
        condition = outcome_of_value(value_of(expression.arguments[0], values))
        if condition is Outcome.FAILS:
            return FAILED
        if condition is Outcome.UNKNOWN:
            return UNTOLD
        return value_of(expression.arguments[1 if condition is Outcome.HOLDS else 2], values)
    outcome = outcome_with(expression, values)
    if outcome in (Outcome.HOLDS, Outcome.DOES_NOT_HOLD):
        return cel.BoolType(outcome is Outcome.HOLDS)
    # ``true && 5`` is 5, which is of no use to a guard, but may be to what stands around it.
    return UNTOLD


def _called(expression: Call, arguments: list[Any]) -> Any:
    function = expression.function
    if any(argument is FAILED for argument in arguments):
        return FAILED
    if any(argument is UNTOLD for argument in arguments):
        return UNTOLD
    if function in _NUMERIC and not all(isinstance(argument, int | float) for argument in arguments):
        return UNTOLD
    if function == "matches" and not isinstance(expression.arguments[-1], Constant):
        return UNTOLD
    return apply(function, *arguments)


_NEGATED: Mapping[Outcome, Outcome] = {
    Outcome.HOLDS: Outcome.DOES_NOT_HOLD,
    Outcome.DOES_NOT_HOLD: Outcome.HOLDS,
    Outcome.FAILS: Outcome.FAILS,
    Outcome.UNKNOWN: Outcome.UNKNOWN,
}


def _joined(one: Outcome, other: Outcome, deciding: Outcome) -> Outcome:
    """Join two sides of ``&&`` or ``||``, where ``deciding`` on either side settles it."""
    if deciding in (one, other):
        return deciding
    if Outcome.UNKNOWN in (one, other):
        return Outcome.UNKNOWN
    return one if one is other else Outcome.FAILS
