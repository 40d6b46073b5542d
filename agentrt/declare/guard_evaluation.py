"""Guards at work: a run's values into CEL, and CEL's answer back.

Only what a guard refers to is converted, and only up to a bound: another action's output may be large, or nothing that CEL
has a form for. Errors are told in one line with the guard's place; cel-python's own may quote every value in scope.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agentrt.declare.guard_syntax import GuardSyntax, environment
from agentrt.declare.limits import MAX_GUARD_PARTS, MAX_VALUE_DEPTH
from agentrt.declare.origin import Origin
from agentrt.declare.reference import NAMED_KINDS, Reference
from agentrt.declare.values import MissingPartError, part_of, plain_value
from agentrt.errors import TemplateError


def evaluate(syntax: GuardSyntax, scope: Mapping[str, Any], origin: Origin | None) -> bool:
    """Evaluate a guard that had no problems; see ``Guard.holds``."""
    import celpy
    from celpy.evaluation import CELEvalError

    assert syntax.tree is not None, "a guard with problems is never evaluated"
    place = origin.place if origin else None
    try:
        values = _Values()
        activation: dict[str, Any] = {kind: values.empty() for kind in NAMED_KINDS}
        for reference in syntax.references:
            values.add(activation, reference, scope)
        syntax.loops.check(longest_list=values.longest_list, num_chars=values.num_chars)
        runner = celpy.InterpretedRunner(environment(), syntax.tree)
        result = runner.evaluate(activation)
    except CELEvalError as error:
        if origin and error.line:
            place = origin.at(error.line, error.column)
        raise TemplateError(f"guard {syntax.source!r}: {_reason(error)}", place=place) from error
    except RecursionError as error:
        raise TemplateError(f"guard {syntax.source!r}: it is nested too deeply", place=place) from error
    except Exception as error:
        # A value that CEL has no form for, or one of cel-python's functions met a kind it was not made for.
        raise TemplateError(f"guard {syntax.source!r}: {error}", place=place) from error
    if not isinstance(result, celpy.celtypes.BoolType | bool):
        message = f"guard {syntax.source!r}: the result must be true or false, not {_shown(result)}"
        raise TemplateError(message, place=place)
    return bool(result)


class _Values:
    """Turns what a guard refers to, and nothing else of the run, into CEL values."""

    def __init__(self) -> None:
        self._num_parts = 0
        self.longest_list = 0
        self.num_chars = 0

    def empty(self) -> Any:
        from celpy import celtypes

        return celtypes.MapType({})

    def add(self, activation: Mapping[str, Any], reference: Reference, scope: Mapping[str, Any]) -> None:
        """Put what ``reference`` stands for into ``activation``, under the same path.

        Where a part is missing the mapping above it is put without it, so that ``has()`` can ask and CEL tells.
        """
        from celpy import celtypes

        value: Any = scope[reference.kind]
        target: Any = activation[reference.kind]
        for key in (reference.name, *reference.path):
            name = celtypes.StringType(key)
            if name in target and not isinstance(target[name], celtypes.MapType):
                return
            value = plain_value(value)
            try:
                value = part_of(value, key) if isinstance(value, Mapping) else value
            except MissingPartError:
                return
            plain = plain_value(value)
            if not isinstance(plain, Mapping):
                target[name] = self._convert(plain)
                return
            value = plain
            target = target.setdefault(name, celtypes.MapType({}))
        for key, part in value.items():
            target[celtypes.StringType(str(key))] = self._convert(plain_value(part))

    def _convert(self, value: Any, depth: int = 0) -> Any:
        from celpy import celtypes

        self._num_parts += 1
        if self._num_parts > MAX_GUARD_PARTS:
            raise ValueError(f"it reads a value of more than {MAX_GUARD_PARTS} parts")
        if depth > MAX_VALUE_DEPTH:
            raise ValueError(f"it reads a value nested deeper than {MAX_VALUE_DEPTH} levels")
        value = plain_value(value)
        match value:
            case None:
                return None
            case bool():
                return celtypes.BoolType(value)
            case int():
                return celtypes.IntType(value)
            case float():
                return celtypes.DoubleType(value)
            case str():
                self.num_chars += len(value)
                return celtypes.StringType(value)
            case list() | tuple():
                self.longest_list = max(self.longest_list, len(value))
                return celtypes.ListType([self._convert(item, depth + 1) for item in value])
            case Mapping():
                self.longest_list = max(self.longest_list, len(value))
                return celtypes.MapType(
                    {celtypes.StringType(str(key)): self._convert(part, depth + 1) for key, part in value.items()}
                )
        raise ValueError(f"CEL has no form for {type(value).__name__} {value!r:.80}")


def _reason(error: Any) -> str:
    """Say in one line what cel-python found."""
    message = str(error.args[0]) if error.args else "it cannot be evaluated"
    if "no matching overload" in message:
        detail = error.args[2] if len(error.args) > 2 and error.args[2] else ()
        return f"values of different or unsuitable types meet: {_named(detail[0])}" if detail else message
    return message.split(" (in activation")[0]


def _named(detail: Any) -> str:
    """Write cel-python's type names as CEL spells them."""
    text = str(detail).removeprefix("no such overload: ")
    for python, cel in (
        ("StringType", "string"), ("IntType", "int"), ("DoubleType", "double"), ("BoolType", "bool"),
        ("ListType", "list"), ("MapType", "map"), ("UintType", "uint"), ("BytesType", "bytes"),
    ):  # fmt: skip
        text = text.replace(f" <class 'celpy.celtypes.{python}'>", "").replace(
            f"<class 'celpy.celtypes.{python}'>", cel
        )
        text = text.replace(python, cel)
    return text[:300]


def _shown(result: Any) -> str:
    return "null" if result is None else _named(repr(result))[:100]
