"""What a template can call: filters, methods and tests, each metered.

They change texts, numbers and lists without asking the clock, dice or the network; what writes HTML is left out, because
nothing here is HTML. jinja's own are used where they do the same thing; texts of values are made as in ``values``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from jinja2 import filters as jinja_filters
from jinja2.runtime import Context, Undefined
from jinja2.utils import pass_context

from agentrt.declare.limits import MAX_RANGE
from agentrt.declare.template_budget import BUDGET, PART_WORK, Budget, BudgetExceededError
from agentrt.declare.values import json_of, part_of, text_of


def _metered(function: Callable[..., Any], first: str | None = None) -> Callable[..., Any]:
    """Make a filter that charges for its value, its arguments once an item, and its result."""

    @pass_context
    def filter_(context: Context, value: Any, *args: Any, **kwargs: Any) -> Any:
        budget: Budget = context[BUDGET]
        if isinstance(value, Undefined):
            str(value)
        budget.charge_value(value)
        if args or kwargs:
            before = budget.left
            budget.charge_value([*args, *kwargs.values()])
            if isinstance(value, (list, tuple, Mapping)):
                budget.charge((before - budget.left) * len(value))
        if first == "context":
            result = function(context, value, *args, **kwargs)
        elif first == "environment":
            result = function(context.environment, value, *args, **kwargs)
        elif first == "budget":
            result = function(budget, value, *args, **kwargs)
        else:
            result = function(value, *args, **kwargs)
        if not isinstance(result, (str, int, float, list, tuple, Mapping, Undefined, type(None))):
            result = list(result) if isinstance(result, Iterable) else result
        budget.charge_value(result)
        return result

    return filter_


def _default(value: Any, default_value: Any = "", boolean: bool = False) -> Any:
    if isinstance(value, Undefined) or value is None or (boolean and not value):
        return default_value
    return value


def _join(budget: Budget, value: Any, separator: str = "", attribute: str | int | None = None) -> str:
    if isinstance(value, (str, int, float)):
        raise TypeError(f"join needs a list, not {value!r:.80}")
    items = list(value or ())
    if attribute is not None:
        items = [part_of(item, attribute) for item in items]
    texts = [text_of(item) for item in items]
    separator = text_of(separator)
    budget.charge_text(sum(map(len, texts)) + len(separator) * len(texts))
    return separator.join(texts)


def _replace(budget: Budget, value: Any, old: str, new: str, count: int = -1) -> str:
    text, old, new = text_of(value), text_of(old), text_of(new)
    num = text.count(old) if count < 0 else min(text.count(old), count)
    budget.charge_text(len(text) + num * max(len(new) - len(old), 0))
    return text.replace(old, new, count)


def _indent(budget: Budget, value: Any, width: int = 4, first: bool = False, blank: bool = False) -> str:
    if not isinstance(width, int) or width < 0:
        raise TypeError(f"indent needs a width of 0 or more, not {width!r:.80}")
    text = text_of(value)
    budget.charge_text(len(text) + width * (text.count("\n") + 1))
    lines = text.split("\n")
    padded = [" " * width + line if line.strip() or blank else line for line in lines]
    if not first:
        padded[0] = lines[0]
    return "\n".join(padded)


def _wordwrap(value: Any, width: int = 79) -> str:
    import textwrap

    if not isinstance(width, int) or width < 1:
        raise TypeError(f"wordwrap needs a width of 1 or more, not {width!r:.80}")
    return "\n".join("\n".join(textwrap.wrap(line, width, drop_whitespace=True)) for line in text_of(value).split("\n"))


def _truncate(value: Any, length: int = 255, killwords: bool = False, end: str = "...") -> str:
    text = text_of(value)
    if len(text) <= length:
        return text
    kept = text[: max(length - len(end), 0)]
    return (kept if killwords else kept.rsplit(None, 1)[0] if kept.split() else kept) + end


def _round(value: float, precision: int = 0) -> float:
    if not isinstance(precision, int) or abs(precision) > 100:
        raise TypeError(f"round needs a precision from -100 to 100, not {precision!r:.80}")
    return round(value, precision)


def _sum(value: Any, attribute: str | int | None = None) -> Any:
    items = list(value or ())
    if attribute is not None:
        items = [part_of(item, attribute) for item in items]
    if not all(isinstance(item, (int, float)) for item in items):
        raise TypeError("sum needs a list of numbers")
    return sum(items)


def _tojson(value: Any, indent: int | None = None) -> str:
    if indent is not None and (not isinstance(indent, int) or not 0 <= indent <= 8):
        raise TypeError(f"tojson needs an indent from 0 to 8, not {indent!r:.80}")
    return json_of(value, indent=indent)


def _items(value: Any) -> list[tuple[Any, Any]]:
    if not isinstance(value, Mapping):
        raise TypeError("items needs a mapping")
    return list(value.items())


def _length(value: Any) -> int:
    return len(value)


def _text_filter(method: Callable[..., str]) -> Callable[..., Any]:
    return _metered(lambda value, *args: method(text_of(value), *args))


def _of_jinja(name: str, first: str | None = None) -> Callable[..., Any]:
    return _metered(jinja_filters.FILTERS[name], first)


FILTERS: Mapping[str, Callable[..., Any]] = {
    "abs": _metered(abs),
    "batch": _metered(lambda value, size: [value[i : i + size] for i in range(0, len(value), size)]),
    "capitalize": _text_filter(str.capitalize),
    "count": _metered(_length),
    "d": _default,
    "default": _default,
    "dictsort": _of_jinja("dictsort"),
    "first": _of_jinja("first", "environment"),
    "float": _of_jinja("float"),
    "groupby": _of_jinja("groupby", "environment"),
    "indent": _metered(_indent, "budget"),
    "int": _of_jinja("int"),
    "items": _metered(_items),
    "join": _metered(_join, "budget"),
    "last": _of_jinja("last", "environment"),
    "length": _metered(_length),
    "list": _metered(list),
    "lower": _text_filter(str.lower),
    "map": _of_jinja("map", "context"),
    "max": _of_jinja("max", "environment"),
    "min": _of_jinja("min", "environment"),
    "reject": _of_jinja("reject", "context"),
    "rejectattr": _of_jinja("rejectattr", "context"),
    "replace": _metered(_replace, "budget"),
    "reverse": _metered(lambda value: value[::-1] if isinstance(value, str) else list(value)[::-1]),
    "round": _metered(_round),
    "select": _of_jinja("select", "context"),
    "selectattr": _of_jinja("selectattr", "context"),
    "sort": _of_jinja("sort", "environment"),
    "string": _metered(text_of),
    "sum": _metered(_sum),
    "title": _text_filter(str.title),
    "tojson": _metered(_tojson),
    "trim": _text_filter(str.strip),
    "truncate": _metered(_truncate),
    "unique": _of_jinja("unique", "environment"),
    "upper": _text_filter(str.upper),
    "urlencode": _of_jinja("urlencode"),
    "wordcount": _of_jinja("wordcount"),
    "wordwrap": _metered(_wordwrap),
}

TESTS = frozenset((
    "boolean", "defined", "divisibleby", "eq", "equalto", "even", "false", "float", "ge", "greaterthan", "gt", "in",
    "integer", "iterable", "le", "lessthan", "lower", "lt", "mapping", "ne", "none", "number", "odd", "sequence", "string",
    "true", "undefined", "upper", "==", "!=", ">", ">=", "<", "<=",
))  # fmt: skip
FREE_TESTS = frozenset({"defined", "undefined"})
"""Tests that ask about a value that may be missing."""

METHODS: Mapping[str, Callable[..., Any]] = {
    "capitalize": _text_filter(str.capitalize),
    "count": _metered(lambda value, part: value.count(part)),
    "endswith": _metered(lambda value, *args: str.endswith(value, *args)),
    "find": _metered(lambda value, *args: str.find(value, *args)),
    "get": _metered(lambda value, key, default=None: value.get(key, default) if value else default),
    "index": _metered(lambda value, *args: value.index(*args)),
    "items": _metered(_items),
    "keys": _metered(lambda value: list(dict(value).keys())),
    "lower": _text_filter(str.lower),
    "lstrip": _text_filter(str.lstrip),
    "removeprefix": _text_filter(str.removeprefix),
    "removesuffix": _text_filter(str.removesuffix),
    "replace": _metered(_replace, "budget"),
    "rsplit": _metered(lambda value, *args: str.rsplit(value, *args)),
    "rstrip": _text_filter(str.rstrip),
    "split": _metered(lambda value, *args: str.split(value, *args)),
    "splitlines": _metered(lambda value: str.splitlines(value)),
    "startswith": _metered(lambda value, *args: str.startswith(value, *args)),
    "strip": _text_filter(str.strip),
    "title": _text_filter(str.title),
    "upper": _text_filter(str.upper),
    "values": _metered(lambda value: list(dict(value).values())),
}
"""What may be called on a value."""

METHOD_PREFIX, LOOP, CONCAT, SLICE, MEASURE, RANGE = "_method_", "_loop", "_concat", "_slice", "_measure", "_range"
"""Names of the filters that a template's tree is rewritten to."""


@pass_context
def _loop(context: Context, value: Any, pass_work: int) -> list[Any]:
    """Give the items of a loop, charging for all of its passes."""
    if value is None or isinstance(value, (int, float)):
        raise TypeError(f"a loop needs a list, not {text_of(value) or 'null'}")
    items = list(value)
    context[BUDGET].charge(PART_WORK * pass_work * len(items))
    return items


@pass_context
def _concat(context: Context, values: list[Any]) -> str:
    """Do what ``~`` does."""
    texts = [text_of(value if not isinstance(value, Undefined) else str(value)) for value in values]
    context[BUDGET].charge_text(sum(map(len, texts)))
    return "".join(texts)


@pass_context
def _measure(context: Context, value: Any) -> Any:
    """Charge for an operand that a comparison may go through."""
    if not isinstance(value, Undefined):
        context[BUDGET].charge_value(value)
    return value


def _slice(value: Any, start: Any, stop: Any, step: Any) -> Any:
    if value is None:
        return None
    return value[start:stop:step]


def _range(start: int, *more: int) -> list[int]:
    numbers = range(start, *more)
    if len(numbers) > MAX_RANGE:
        raise BudgetExceededError(f"a range holds at most {MAX_RANGE} numbers, not {len(numbers)}")
    return list(numbers)


INTERNAL_FILTERS: Mapping[str, Callable[..., Any]] = {
    LOOP: _loop,
    CONCAT: _concat,
    MEASURE: _measure,
    SLICE: _metered(_slice),
    RANGE: _metered(_range),
    **{METHOD_PREFIX + name: method for name, method in METHODS.items()},
}
