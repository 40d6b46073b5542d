"""A guard as a small tree, for whoever reasons about it before a run.

cel-python's syntax tree has a node for each level of precedence: about twenty for one comparison. Here a comparison is one
node, and a path that starts at ``inputs``, ``actions`` or ``state`` is one node too, with the same Reference that the guard
itself names. Two equal parts of a guard, or of two guards, are equal here wherever they stand; so what was found out about
one holds for the other.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from agentrt.declare.guard import Guard
from agentrt.declare.guard_syntax import MACROS, constant_key, unwrap
from agentrt.declare.reference import NAMED_KINDS, Reference

if TYPE_CHECKING:
    from lark import Token

_OPERATORS = {
    "relation_lt": "_<_",
    "relation_le": "_<=_",
    "relation_gt": "_>_",
    "relation_ge": "_>=_",
    "relation_eq": "_==_",
    "relation_ne": "_!=_",
    "relation_in": "_in_",
    "addition_add": "_+_",
    "addition_sub": "_-_",
    "multiplication_mul": "_*_",
    "multiplication_div": "_/_",
    "multiplication_mod": "_%_",
    "unary_not": "!_",
    "unary_neg": "-_",
}
_LINKS = frozenset({"member_dot", "member_index"})
_NAMES = frozenset({"ident", "dot_ident"})


@dataclass(frozen=True, slots=True)
class Span:
    """Where a part of a guard stands: its 1-based line and column, and from where to where in the source."""

    line: int
    column: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Constant:
    """A literal; ``value`` is what cel-python makes of it. CEL's values raise when compared, so their text is compared."""

    token: str
    type: str
    value: Any = field(compare=False)
    span: Span = field(compare=False)


@dataclass(frozen=True, slots=True)
class Broken:
    """A literal that stands for no value, such as a number out of range."""

    token: str
    span: Span = field(compare=False)


@dataclass(frozen=True, slots=True)
class Read:
    """A path into the inputs, the actions or the state."""

    reference: Reference
    span: Span = field(compare=False)


@dataclass(frozen=True, slots=True)
class Name:
    """The variable of a macro, or the name of a type."""

    name: str
    is_variable: bool
    span: Span = field(compare=False)


@dataclass(frozen=True, slots=True)
class Call:
    """An operator, a function or a method, named as cel-python names it: ``_==_``, ``size``; ``_[_]`` is an index."""

    function: str
    arguments: tuple[Expression, ...]
    span: Span = field(compare=False)


@dataclass(frozen=True, slots=True)
class Field:
    """``of.name`` where ``of`` is no path."""

    of: Expression
    name: str
    span: Span = field(compare=False)


@dataclass(frozen=True, slots=True)
class ListOf:
    items: tuple[Expression, ...]
    span: Span = field(compare=False)


@dataclass(frozen=True, slots=True)
class MapOf:
    keys: tuple[Expression, ...]
    values: tuple[Expression, ...]
    span: Span = field(compare=False)


@dataclass(frozen=True, slots=True)
class Has:
    argument: Expression
    span: Span = field(compare=False)


@dataclass(frozen=True, slots=True)
class Macro:
    """``over.name(variable, body)``."""

    name: str
    over: Expression
    variable: str
    body: Expression
    span: Span = field(compare=False)


@dataclass(frozen=True, slots=True, eq=False)
class Opaque:
    """Something of which nothing is known; no two are equal."""

    span: Span


Expression = Constant | Broken | Read | Name | Call | Field | ListOf | MapOf | Has | Macro | Opaque


@functools.lru_cache(maxsize=16_384)
def expression_of(guard: Guard) -> Expression:
    """Return a guard's tree; the spans are the same for all guards of the same source."""
    return _lower(guard.tree, frozenset())


def children_of(expression: Expression) -> tuple[Expression, ...]:
    """Return the parts one level down."""
    match expression:
        case Call():
            return expression.arguments
        case Field():
            return (expression.of,)
        case ListOf():
            return expression.items
        case MapOf():
            return (*expression.keys, *expression.values)
        case Has():
            return (expression.argument,)
        case Macro():
            return (expression.over, expression.body)
        case _:
            return ()


def parts_of(expression: Expression) -> Iterator[Expression]:
    """Go through an expression and everything inside it."""
    stack = [expression]
    while stack:
        part = stack.pop()
        yield part
        stack.extend(children_of(part))


def _lower(node: Any, bound: frozenset[str]) -> Expression:
    node = unwrap(node)
    children = node.children
    # A name in the tree is a token, which is slow to compare.
    match rule := str(node.data):
        case "literal":
            return _literal(children[0])
        case "ident" | "dot_ident" | "member_dot" | "member_index":
            return _path(node, bound)
        case "relation" | "addition" | "multiplication" | "unary":
            operator, right = children
            left = [_lower(part, bound) for part in operator.children]
            return Call(_OPERATORS[operator.data], (*left, _lower(right, bound)), _span(node))
        case "conditionalor" | "conditionaland" | "expr":
            function = {"conditionalor": "_||_", "conditionaland": "_&&_", "expr": "_?_:_"}[rule]
            return Call(function, tuple(_lower(part, bound) for part in children), _span(node))
        case "ident_arg":
            arguments = _all_lowered(children[1:], bound)
            if str(children[0]) == "has" and arguments:
                return Has(arguments[0], _span(node))
            if str(children[0]) == "dyn" and arguments:
                return arguments[0]
            return Call(str(children[0]), arguments, _span(node))
        case "member_dot_arg":
            receiver, name, *rest = children
            if name in MACROS:
                variable, body = rest[0].children
                variable_name = str(unwrap(variable).children[0])
                within = _lower(body, bound | {variable_name})
                return Macro(str(name), _lower(receiver, bound), variable_name, within, _span(node))
            return Call(str(name), (_lower(receiver, bound), *_all_lowered(rest, bound)), _span(node))
        case "list_lit":
            return ListOf(_all_lowered(children, bound), _span(node))
        case "map_lit":
            entries = _all_lowered(children, bound)
            return MapOf(entries[0::2], entries[1::2], _span(node))
    return Opaque(_span(node))


def _all_lowered(lists: list[Any], bound: frozenset[str]) -> tuple[Expression, ...]:
    return tuple(_lower(part, bound) for each in lists for part in each.children)


def _path(node: Any, bound: frozenset[str]) -> Expression:
    """Read a name with the parts behind it, by the rule that ``guard_syntax`` finds references by."""
    links: list[Any] = []
    while node.data in _LINKS:
        links.append(node)
        node = unwrap(node.children[0])
    links.reverse()
    found: Expression
    if node.data not in _NAMES:
        found = _lower(node, bound)
    elif (name := str(node.children[0])) in bound or name not in NAMED_KINDS:
        found = Name(name, name in bound, _span(node))
    else:
        path: list[str] = []
        for link in links:
            key = str(link.children[1]) if link.data == "member_dot" else constant_key(link.children[1])
            if key is None:
                break
            path.append(key)
        found = Read(Reference(name, path[0], tuple(path[1:])), _span(links[len(path) - 1]))
        links = links[len(path) :]
    for link in links:
        if link.data == "member_dot":
            found = Field(found, str(link.children[1]), _span(link))
        else:
            found = Call("_[_]", (found, _lower(link.children[1], bound)), _span(link))
    return found


def _literal(token: Token) -> Expression:
    from celpy import celtypes
    from celpy.evaluation import celbytes, celstr

    span = Span(token.line or 1, token.column or 1, token.start_pos or 0, token.end_pos or 0)
    text = str(token)
    value: Any = None
    try:
        match token.type:
            case "FLOAT_LIT":
                value = celtypes.DoubleType(text)
            case "INT_LIT":
                value = celtypes.IntType(text)
            case "UINT_LIT":
                value = celtypes.UintType(text[:-1])
            case "STRING_LIT" | "MLSTRING_LIT":
                value = celstr(token)
            case "BYTES_LIT":
                value = celbytes(token)
            case "BOOL_LIT":
                value = celtypes.BoolType(text == "true")
    except ValueError:
        return Broken(text, span)
    return Constant(text, token.type, value, span)


def _span(node: Any) -> Span:
    meta = node.meta
    return Span(meta.line, meta.column, meta.start_pos, meta.end_pos)
