"""What CEL's operators and functions do, asked of cel-python itself.

A table of "an int and a double are not compared, but a double is less than an int" would have to be kept true by hand, and
cel-python has more of such rules than the language: the sum of two doubles is a plain Python float, which compares with an
int although a double does not. So no table is written here: an operation is tried on sample values of each kind, once, and
the answers are kept. A kind is the exact Python class of a value, because that is what decides.

The samples are chosen so that an operation that works for any value of a kind works for a sample: a text that is a number,
a text that is a date, an empty list and one with an item, a zero and a number to divide by.
"""

from __future__ import annotations

import datetime
import enum
import functools
import itertools
import operator
from collections.abc import Mapping
from typing import Any, Final, Literal

Kind = type
"""The exact class of a value in an evaluation."""

UNKNOWN_KIND: Final[Kind] = object
"""Stands for any kind at all."""


class Failed(enum.Enum):
    FAILED = "failed"


FAILED: Final = Failed.FAILED
"""What an operation gives that cannot be done on these values."""


def apply(function: str, *arguments: Any) -> Any | Literal[Failed.FAILED]:
    """Return what a function or operator gives; FAILED when it raises or gives an error."""
    from celpy.evaluation import CELEvalError

    try:
        if (compare := _COMPARISONS.get(function)) is not None:
            # What cel-python does too, but by a function that it wraps anew each time.
            return _bool_type()(bool(compare(*arguments)))
        result = _functions()[function](*arguments)
    except Exception:
        # Also what cel-python does not expect itself: some of its functions meet a kind they were not made for.
        return FAILED
    return FAILED if isinstance(result, CELEvalError) else result


@functools.cache
def kinds_of_result(function: str, kinds: tuple[Kind, ...]) -> frozenset[Kind]:
    """Return which kinds of result there are for arguments of these kinds: none when it fails for all values."""
    from celpy import celtypes

    samples = _samples()
    if any(kind not in samples for kind in kinds):
        return frozenset({celtypes.BoolType if function in _GIVE_BOOL else UNKNOWN_KIND})
    found = set()
    for arguments in itertools.product(*(samples[kind] for kind in kinds)):
        result = apply(function, *arguments)
        if result is not FAILED:
            found.add(type(result) if type(result) in samples else UNKNOWN_KIND)
    return frozenset(found)


def name_of_kind(kind: Kind) -> str:
    """Return CEL's name of a kind."""
    return next((name for known, name in _names() if issubclass(kind, known)), "any")


_GIVE_BOOL = frozenset(
    {"_<_", "_<=_", "_>_", "_>=_", "_==_", "_!=_", "_in_", "!_", "startsWith", "endsWith", "matches"}
)


_COMPARISONS: Mapping[str, Any] = {
    "_<_": operator.lt,
    "_<=_": operator.le,
    "_>_": operator.gt,
    "_>=_": operator.ge,
    "_==_": operator.eq,
    "_!=_": operator.ne,
}


@functools.cache
def _bool_type() -> Any:
    from celpy.celtypes import BoolType

    return BoolType


@functools.cache
def _functions() -> Mapping[str, Any]:
    from celpy.evaluation import base_functions

    return base_functions


@functools.cache
def _samples() -> Mapping[Kind, tuple[Any, ...]]:
    from celpy import celtypes as cel

    text, number = cel.StringType("5"), cel.IntType(1)
    moment, hour = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC), datetime.timedelta(hours=1)
    texts = ("", "5", "true", "10s", "2020-01-01T00:00:00Z", "UTC")
    return {
        type(None): (None,),
        cel.BoolType: (cel.BoolType(False), cel.BoolType(True)),
        cel.IntType: (cel.IntType(0), number),
        cel.UintType: (cel.UintType(0), cel.UintType(1)),
        cel.DoubleType: (cel.DoubleType(0.0), cel.DoubleType(1.5)),
        cel.StringType: tuple(cel.StringType(each) for each in texts),
        cel.BytesType: (cel.BytesType(b""), cel.BytesType(b"5")),
        cel.ListType: (cel.ListType(), cel.ListType([text]), cel.ListType([number])),
        cel.MapType: (
            cel.MapType(),
            *(cel.MapType({key: text}) for key in (text, number, cel.UintType(1), cel.BoolType(True))),
        ),
        cel.TimestampType: (cel.TimestampType(moment),),
        cel.DurationType: (cel.DurationType(hour),),
        # An index of a class of containers makes sense to Python, and so to cel-python.
        type: (cel.IntType, cel.StringType, cel.ListType, cel.MapType, list, dict, type, type(None)),
        # What arithmetic, an index and a macro give are plain values of Python.
        int: (0, 1),
        float: (0.0, 1.5),
        str: texts,
        bytes: (b"", b"5"),
        list: ([], [text], [number]),
        datetime.datetime: (moment,),
        datetime.timedelta: (hour,),
    }


@functools.cache
def _names() -> tuple[tuple[Kind, str], ...]:
    """Kinds with their names; of a class and its base the class comes first."""
    from celpy import celtypes as cel

    return (
        (type(None), "null"),
        (cel.BoolType, "bool"),
        (cel.UintType, "uint"),
        (int, "int"),
        (float, "double"),
        (str, "string"),
        (bytes, "bytes"),
        (list, "list"),
        (dict, "map"),
        (datetime.datetime, "timestamp"),
        (datetime.timedelta, "duration"),
        (type, "type"),
    )
