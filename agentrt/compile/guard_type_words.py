"""The words for parts of a guard that do not fit together: what met, and what to write instead."""

from __future__ import annotations

from collections.abc import Sequence

from agentrt.compile.guard_expression import Call, Constant, Expression
from agentrt.compile.guard_value_type import ValueType

_WHOLE = frozenset({"int", "uint"})
_NUMBERS = _WHOLE | {"double"}
_SIZED = frozenset({"list", "map"})
_METHODS_OF_TEXT = frozenset({"startsWith", "endsWith", "matches", "contains"})
_MAX_SHOWN = 60


def shown(source: str, expression: Expression) -> str:
    """Quote a part of a guard on one line."""
    text = " ".join(source[expression.span.start : expression.span.end].split())
    return text if len(text) <= _MAX_SHOWN else f"{text[: _MAX_SHOWN - 3]}..."


def what_fails(function: str, arguments: Sequence[ValueType]) -> str:
    """Say which kinds met in an operation that has no meaning for them."""
    if function == "_in_":
        item, container = arguments
        if container.never_empty:
            return f"'in' looks for {item} in a list of {' or '.join(container.item().names)}"
        return f"'in' does not look for {item} in {container}"
    if function == "_[_]":
        return f"{arguments[0]} has no index that is {arguments[1]}"
    if function in ("-_", "!_"):
        return f"{function[0]!r} does not work on {arguments[0]}"
    if function.startswith("_"):
        return f"{function.strip('_')!r} does not work between {arguments[0]} and {arguments[1]}"
    if not arguments:
        return f"{function}() needs an argument"
    return f"{function}() does not work on {' with '.join(str(argument) for argument in arguments)}"


def how_to_mend(source: str, call: Call, arguments: Sequence[ValueType]) -> str | None:
    """Name a conversion that gives the operation a meaning."""
    texts = [shown(source, argument) for argument in call.arguments]
    if call.function in _METHODS_OF_TEXT:
        fixed = [
            text if "string" in argument.names else f"string({text})"
            for text, argument in zip(texts, arguments, strict=True)
        ]
        return f"write {fixed[0]}.{call.function}({', '.join(fixed[1:])})" if fixed != texts else None
    if len(arguments) == 1 and call.function == "size":
        return f"size(string({texts[0]})) is the length of its text"
    if len(arguments) == 1 and call.function == "!_":
        return how_to_ask(texts[0], arguments[0])
    if len(arguments) != 2:
        return None
    if call.function == "_in_":
        wanted = arguments[1].item().names if arguments[1].never_empty else ()
        return f"write {wanted[0]}({texts[0]})" if wanted in (("double",), ("int",), ("string",)) else None
    one, other = call.arguments
    return _conversion(one, texts[0], arguments[0], other, texts[1], arguments[1]) or _conversion(
        other, texts[1], arguments[1], one, texts[0], arguments[0]
    )


def how_to_ask(text: str, found: ValueType) -> str | None:
    """Say how to ask of a value that is neither true nor false."""
    names = set(found.names)
    if names <= {"string", "list", "map", "bytes"}:
        return f"write size({text}) > 0 to ask whether there is something in it"
    if names <= {"int"}:
        return f"write {text} != 0"
    return None


def _conversion(
    one: Expression, text: str, kinds: ValueType, other: Expression, other_text: str, other_kinds: ValueType
) -> str | None:
    """Say how ``one`` is brought to the other's kind."""
    names, other_names = set(kinds.names), set(other_kinds.names)
    if names <= _WHOLE and other_names == {"double"}:
        return f"write {text}.0" if isinstance(one, Constant) else f"write double({text})"
    if names == {"uint"} and other_names == {"int"}:
        return f"write {text.rstrip('uU')}" if isinstance(one, Constant) else f"write int({text})"
    if names == {"string"} and other_names <= _NUMBERS | {"bool"}:
        return _text_or_not(one, text, other, other_text, other_names)
    if names <= _SIZED and other_names <= _NUMBERS:
        return f"write size({text}) for the number of its items"
    return None


def _text_or_not(one: Expression, text: str, other: Expression, other_text: str, other_names: set[str]) -> str:
    """Say how a text and something else are made alike; a literal is written the other way."""
    conversion = "bool" if other_names == {"bool"} else "double" if "double" in other_names else "int"
    if isinstance(one, Constant):
        return f"write string({other_text})"
    if isinstance(other, Constant):
        return f"write '{other_text}', with quotes, or {conversion}({text})"
    return f"write {conversion}({text}) or string({other_text})"
