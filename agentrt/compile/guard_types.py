"""Guards whose parts do not fit together, found from the JSON Schemas of what they read.

A guard is an error at run time where an operation meets kinds of values it has no meaning for; that a run comes by may take
weeks. Here each part of a guard gets the set of all kinds its value may be of, and a part is reported when it fails for
every combination of them: an integer compared with a text, the size of a boolean, a text where true or false is wanted.
What may work for some value is not reported, so nothing is that would have gone well. A part whose failure ``&&`` or ``||``
can cover is reported too: it never has any effect but failing.

Which operations work is not written here; see ``guard_operations``.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from agentrt.compile.guard_expression import (
    Broken,
    Call,
    Constant,
    Expression,
    Field,
    Has,
    ListOf,
    Macro,
    MapOf,
    Name,
    Opaque,
    Read,
    Span,
    expression_of,
)
from agentrt.compile.guard_operations import UNKNOWN_KIND, Kind, kinds_of_result
from agentrt.compile.guard_type_words import how_to_ask, how_to_mend, shown, what_fails
from agentrt.compile.guard_value_type import ANYTHING, ValueType, either, type_of_schema
from agentrt.declare.codes import Code
from agentrt.declare.guard import Guard
from agentrt.declare.reference import Problem, Reference

SchemaOf = Callable[[Reference], Mapping[str, Any]]
Variables = Mapping[str, ValueType]

_MAX_ARGUMENTS = 2
"""No function that a guard may call is made for more; what is given too many is left to the run."""


def guard_problems(guard: Guard, schema_of: SchemaOf) -> Iterator[Problem]:
    """Find the parts of a guard that fail whatever the values are, in the order of the guard.

    ``schema_of`` tells the JSON Schema of what a reference leads to, ``{}`` where nothing is known. What may also be null,
    as the output of an action that can be skipped, must say so in its schema.
    """
    parts = failing_parts(guard, schema_of)
    for part in sorted(parts, key=lambda part: (part.span.line, part.span.column)):
        yield Problem(Code.GUARD_TYPE, f"guard: {part.message}", part.span.line, part.span.column, part.hint)


@dataclass(frozen=True, slots=True)
class FailingPart:
    """A part of a guard that fails for all values; with ``is_value``, one that gives values, none of them true or false."""

    expression: Expression
    message: str
    hint: str | None = None
    is_value: bool = False

    @property
    def span(self) -> Span:
        return self.expression.span


def failing_parts(guard: Guard, schema_of: SchemaOf) -> list[FailingPart]:
    """Return the parts of a guard that fail whatever the values are, each with nothing inside it that does."""
    inference = _Inference(guard.source, schema_of)
    inference.expect_bool(expression_of(guard), {}, "a guard")
    return inference.found


@dataclass(slots=True)
class _Inference:
    """Goes through one guard from the inside out and notes what fails."""

    source: str
    schema_of: SchemaOf
    found: list[FailingPart] = field(default_factory=list)

    def type_of(self, expression: Expression, variables: Variables) -> ValueType:
        """Tell what is known of a part's value; what was noted may be anything, so that a mistake is told once."""
        match expression:
            case Constant():
                return ValueType(frozenset({type(expression.value)}))
            case Broken():
                return self._fails(expression, f"{expression.token[:40]} is out of range")
            case Read():
                return type_of_schema(self.schema_of(expression.reference))
            case Name():
                return variables[expression.name] if expression.is_variable else ValueType(frozenset({type}))
            case Has():
                # That its argument fails is just what it asks about.
                return _bool()
            case ListOf():
                return self._list(expression, variables)
            case MapOf():
                return self._map(expression, variables)
            case Field():
                return self._field(expression, variables)
            case Macro():
                return self._macro(expression, variables)
            case Call(function="_&&_" | "_||_"):
                for argument in expression.arguments:
                    self.expect_bool(argument, variables, f"'{expression.function.strip('_')}'")
                return _bool()
            case Call(function="_?_:_"):
                self.expect_bool(expression.arguments[0], variables, "'?'")
                return either([self.type_of(branch, variables) for branch in expression.arguments[1:]])
            case Call():
                return self._call(expression, variables)
            case Opaque():
                return ANYTHING

    def expect_bool(self, expression: Expression, variables: Variables, who: str) -> None:
        """Look at a part that must be true or false."""
        found = self.type_of(expression, variables)
        if not found.kinds & (_bool().kinds | {bool, UNKNOWN_KIND}):
            text = shown(self.source, expression)
            hint = how_to_ask(text, found)
            self._fails(expression, f"{who} wants true or false, and {text} is {found}", hint, is_value=True)

    def _list(self, expression: ListOf, variables: Variables) -> ValueType:
        from celpy import celtypes as cel

        items = [self.type_of(item, variables) for item in expression.items]
        return ValueType(frozenset({cel.ListType}), either(items) if items else ANYTHING, never_empty=bool(items))

    def _map(self, expression: MapOf, variables: Variables) -> ValueType:
        from celpy import celtypes as cel

        for part in (*expression.keys, *expression.values):
            self.type_of(part, variables)
        return ValueType(frozenset({cel.MapType}))

    def _field(self, expression: Field, variables: Variables) -> ValueType:
        from celpy import celtypes as cel

        of = self.type_of(expression.of, variables)
        if not of.kinds & {cel.MapType, UNKNOWN_KIND}:
            message = f"{shown(self.source, expression.of)} is {of}, and has no part {expression.name!r}"
            return self._fails(expression, message)
        return of.part(expression.name)

    def _macro(self, expression: Macro, variables: Variables) -> ValueType:
        from celpy import celtypes as cel

        over = self.type_of(expression.over, variables)
        item = over.gone_over()
        if item is None:
            text = shown(self.source, expression.over)
            return self._fails(expression, f"{expression.name}() goes over a list, and {text} is {over}")
        body = self.type_of(expression.body, {**variables, expression.variable: item})
        match expression.name:
            case "map":
                return ValueType(frozenset({cel.ListType}), body)
            case "filter":
                return ValueType(frozenset({cel.ListType}), item)
            case "exists_one":
                return _bool()
        # Over a single item, all() and exists() give what was found for it, be it true or false or not.
        return ValueType(_bool().kinds | body.kinds)

    def _call(self, expression: Call, variables: Variables) -> ValueType:
        function = expression.function
        arguments = [self.type_of(argument, variables) for argument in expression.arguments]
        if len(arguments) > _MAX_ARGUMENTS:
            return ANYTHING
        kinds: frozenset[Kind] = frozenset().union(
            *(kinds_of_result(function, each) for each in itertools.product(*(known.kinds for known in arguments)))
        )
        if not kinds or (function == "_in_" and not _may_be_in(*arguments)):
            hint = how_to_mend(self.source, expression, arguments)
            return self._fails(expression, what_fails(function, arguments), hint)
        return self._indexed(expression, arguments[0], kinds) if function == "_[_]" else ValueType(kinds)

    def _indexed(self, expression: Call, of: ValueType, kinds: frozenset[Kind]) -> ValueType:
        from celpy import celtypes as cel

        index = expression.arguments[1]
        if of.kinds == {cel.ListType}:
            return of.item()
        if of.kinds == {cel.MapType} and isinstance(index, Constant) and isinstance(index.value, str):
            return of.part(str(index.value))
        return ValueType(kinds) if of.kinds <= {cel.StringType, str, cel.BytesType, bytes} else ANYTHING

    def _fails(
        self, expression: Expression, message: str, hint: str | None = None, *, is_value: bool = False
    ) -> ValueType:
        self.found.append(FailingPart(expression, message, hint, is_value))
        return ANYTHING


def _bool() -> ValueType:
    from celpy import celtypes as cel

    return ValueType(frozenset({cel.BoolType}))


def _may_be_in(item: ValueType, container: ValueType) -> bool:
    """Say whether ``in`` can be decided: not when there are items and none can be compared with what is looked for."""
    from celpy import celtypes as cel

    if not container.never_empty or container.kinds != {cel.ListType}:
        return True
    return any(kinds_of_result("_==_", (held, sought)) for held in container.item().kinds for sought in item.kinds)
