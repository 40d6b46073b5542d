"""Guards whose parts do not fit together: what is told of them, and that it is never told of one that works."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentrt.compile.guard_expression import Expression
from agentrt.compile.guard_operations import FAILED, apply, kinds_of_result
from agentrt.compile.guard_types import failing_parts, guard_problems
from agentrt.declare.codes import Code
from agentrt.declare.guard import Guard
from agentrt.declare.origin import Origin
from agentrt.declare.reference import Reference
from agentrt.errors import DeclarationError, Place, TemplateError

SCHEMAS: Mapping[str, Any] = {
    "count": {"type": "integer"},
    "text": {"type": "string"},
    "score": {"type": "number"},
    "flag": {"type": "boolean"},
    "names": {"type": "array", "items": {"type": "string"}},
    "some": {"type": "array", "items": {"type": "integer"}, "minItems": 1},
    "order": {"type": "object", "properties": {"total": {"type": "integer"}}},
    "nothing": {"type": "null"},
    "level": {"enum": [1, 2]},
    "kind": {"enum": ["a", "b"]},
    "maybe": {"type": ["integer", "null"]},
    "either": {"anyOf": [{"type": "string"}, {"type": "boolean"}]},
    "any": {},
}


def schema_of(reference: Reference) -> Mapping[str, Any]:
    """Tell the schema of an input; of its parts nothing."""
    return {} if reference.path else SCHEMAS[reference.name]


@pytest.mark.parametrize(
    ("source", "column", "says", "hint"),
    [
        ("inputs.count == 'a'", 1, "'==' does not work between an int and a string", "write string(inputs.count)"),
        ("inputs.text > 3", 1, "between a string and an int", "write '3', with quotes, or int(inputs.text)"),
        ("inputs.count > 2.5", 1, "between an int and a double", "write double(inputs.count)"),
        ("inputs.score == 'a'", 1, "between a double or int and a string", "write string(inputs.score)"),
        ("inputs.count == 1u", 1, "between an int and a uint", "write 1"),
        ("inputs.names > 3", 1, "between a list and an int", "write size(inputs.names) for the number of its items"),
        ("inputs.text == inputs.count", 1, "string and an int", "write int(inputs.text) or string(inputs.count)"),
        ("inputs.count == null", 1, "between an int and null", None),
        ("inputs.count in ['a', 'b']", 1, "'in' looks for an int in a list of string", "write string(inputs.count)"),
        ("inputs.text in inputs.some", 1, "'in' looks for a string in a list of int", "write int(inputs.text)"),
        ("'a' in inputs.count", 1, "'in' does not look for a string in an int", None),
        ("inputs.flag && inputs.text", 16, "'&&' wants true or false, and inputs.text is a string", "write size("),
        ("inputs.count || inputs.flag", 1, "'||' wants true or false", "write inputs.count != 0"),
        ("inputs.flag && inputs.count > 'a'", 16, "'>' does not work", "write string(inputs.count)"),
        ("!inputs.names", 1, "'!' does not work on a list", "write size(inputs.names) > 0"),
        ("inputs.text ? true : false", 1, "'?' wants true or false", "write size(inputs.text) > 0"),
        ("inputs.flag ? 'a' : 'b'", 1, "a guard wants true or false", "write size("),
        ("inputs.count", 1, "a guard wants true or false, and inputs.count is an int", "write inputs.count != 0"),
        ("size(inputs.flag) > 1", 1, "size() does not work on a bool", "size(string(inputs.flag))"),
        (
            "inputs.count.matches('a')",
            1,
            "matches() does not work on an int",
            "write string(inputs.count).matches('a')",
        ),
        ("inputs.text.startsWith(3)", 1, "on a string with an int", "write inputs.text.startsWith(string(3))"),
        ("(inputs.text + 'x').part == 1", 1, "inputs.text + 'x' is a string, and has no part 'part'", None),
        ("inputs.names[inputs.text] == 'a'", 1, "a list has no index that is a string", None),
        ("inputs.names.exists(n, n == 1)", 24, "between a string and an int", "or int(n)"),
        ("inputs.order['total'] in inputs.some && inputs.some.all(n, n.matches('a'))", 60, "matches()", "string(n)"),
        ("inputs.count.all(x, true)", 1, "all() goes over a list, and inputs.count is an int", None),
        ("inputs.names.map(n, size(n))[0] == 'a'", 1, "between an int and a string", "string("),
        ("-inputs.text == 'a'", 1, "'-' does not work on a string", None),
        ("inputs.text + 1 == 'a'", 1, "'+' does not work between a string and an int", "write '1', with quotes"),
        ("9999999999999999999 == inputs.count", 1, "9999999999999999999 is out of range", None),
        ("duration(inputs.text) > '5s'", 1, "between a duration and a string", None),
        ("inputs.flag ||\n  inputs.count == 'a'", 3, "between an int and a string", "string(inputs.count)"),
    ],
)
def test_a_part_that_can_only_fail_is_told_with_its_place(
    source: str, column: int, says: str, hint: str | None
) -> None:
    """With the kinds that meet and, where there is one, the conversion that helps."""
    problems = list(guard_problems(Guard.parse(source), schema_of))
    assert len(problems) == 1, problems
    (problem,) = problems
    assert problem.code is Code.GUARD_TYPE
    assert says in problem.message
    assert hint in (problem.hint or "") if hint else problem.hint is None
    assert problem.column == column
    place = problem.diagnostic(Origin(Place("d.yaml", 7, 9), 4)).place
    assert place == (Place("d.yaml", 7, 8 + column) if problem.line == 1 else Place("d.yaml", 8, 4 + column))


@pytest.mark.parametrize(
    "source",
    [
        "inputs.count == 3",
        "inputs.count in []",
        "inputs.count in inputs.names",
        "inputs.score > 2.5 && inputs.score > 2",
        "inputs.level == 1.0",
        "inputs.maybe == null || inputs.maybe > 3",
        "inputs.text == null",
        "inputs.names == null",
        "inputs.either == 'a' || inputs.either",
        "inputs.any == 1 || inputs.any == 'a' || inputs.any.part[0].more > 2",
        "inputs.flag == 'true'",
        "inputs.names.exists(n, n == 'a') && inputs.some.all(n, n > 1)",
        "inputs.names.filter(n, n != '').map(n, size(n)).exists(n, n == 3)",
        "inputs.text[0] == 'a'",
        "inputs.names[inputs.count] == 'a'",
        "has(inputs.order.total) && inputs.order.total > 3",
        "type(inputs.any) == int",
        "timestamp(inputs.text) < timestamp('2020-01-01T00:00:00Z')",
        "timestamp(inputs.text).getHours('UTC') == 3",
        "inputs.score + 0.5 == 3",
        "int(inputs.text) == inputs.count && double(inputs.count) > 2.5",
        "inputs.flag ? inputs.count == 1 : inputs.text == 'a'",
        "(inputs.flag ? 1 : 'a') == 1",
        "{'a': 1}.a == 1 && {1: 'x'}[1] == 'x'",
        "b'x' == b'y' && 1u + 2u == 3u",
        "dyn(inputs.any) == 1",
    ],
)
def test_what_may_work_is_not_told(source: str) -> None:
    """One value for which a part works is enough."""
    assert list(guard_problems(Guard.parse(source), schema_of)) == []


def test_an_operation_fails_for_kinds_only_if_cel_python_says_so() -> None:
    """The rules are cel-python's, also the odd ones."""
    from celpy import celtypes as cel

    assert kinds_of_result("_==_", (cel.IntType, cel.DoubleType)) == frozenset()
    assert kinds_of_result("_==_", (float, cel.IntType)) == {cel.BoolType}
    assert kinds_of_result("_<_", (cel.DoubleType, cel.IntType)) == {cel.BoolType}
    assert kinds_of_result("_<_", (cel.IntType, cel.DoubleType)) == frozenset()
    assert kinds_of_result("_+_", (cel.DoubleType, cel.DoubleType)) == {float}


VALUES = st.sampled_from([None, True, False, 0, 1, -3, 2.5, 0.0, "", "a", "5", [], ["a"], [1], {}, {"a": 1}])


@settings(deadline=None, max_examples=150)
@given(VALUES, VALUES, st.sampled_from(["_<_", "_<=_", "_>_", "_>=_", "_==_", "_!=_"]))
def test_comparisons_are_those_of_cel_python(one: Any, other: Any, operator: str) -> None:
    """An operation done here gives what cel-python's own function gives."""
    import celpy
    from celpy.evaluation import CELEvalError, base_functions

    left, right = celpy.json_to_cel(one), celpy.json_to_cel(other)
    try:
        expected = base_functions[operator](left, right)
    except TypeError:
        expected = None
    found = apply(operator, left, right)
    if expected is None or isinstance(expected, CELEvalError):
        assert found is FAILED
    else:
        assert found is not FAILED
        assert type(found) is type(expected)
        assert bool(found) is bool(expected)


# -- soundness

SAMPLES: Mapping[str, st.SearchStrategy[Any]] = {
    "count": st.integers(-3, 6),
    "text": st.sampled_from(["", "a", "b", "5", "true", "10s"]),
    "score": st.one_of(st.integers(-3, 6), st.sampled_from([0.0, 1.0, 2.5])),
    "flag": st.booleans(),
    "names": st.lists(st.sampled_from(["a", "b", ""]), max_size=3),
    "some": st.lists(st.integers(0, 3), min_size=1, max_size=3),
    "order": st.fixed_dictionaries({"total": st.integers(0, 3)}),
    "nothing": st.none(),
    "level": st.sampled_from([1, 2, 1.0]),
    "kind": st.sampled_from(["a", "b"]),
    "maybe": st.one_of(st.none(), st.integers(0, 3)),
    "either": st.one_of(st.sampled_from(["a", "true"]), st.booleans()),
    "any": VALUES,
}
LEAVES = st.sampled_from(
    [
        *(f"inputs.{name}" for name in SCHEMAS),
        "1",
        "2.5",
        "'a'",
        "'5'",
        "true",
        "null",
        "[1]",
        "['a', 1]",
        "[]",
        "{'a': 1}",
        "1u",
    ]
)


def _grown(parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    operators = ["==", "!=", "<", ">=", "in", "+", "-", "*", "%", "&&", "||"]
    functions = ["size", "string", "int", "double", "bool", "type", "!", "-"]
    return st.one_of(
        st.tuples(parts, st.sampled_from(operators), parts).map(lambda each: "({} {} {})".format(*each)),
        st.tuples(st.sampled_from(functions), parts).map(lambda each: "{}({})".format(*each)),
        st.tuples(parts, st.sampled_from(["startsWith", "matches", "contains"]), parts).map(
            lambda each: "({}).{}({})".format(*each)
        ),
        st.tuples(parts, parts).map(lambda each: "({})[{}]".format(*each)),
        st.tuples(parts, parts, parts).map(lambda each: "({} ? {} : {})".format(*each)),
        parts.map(lambda part: f"({part}).a"),
    )


GUARDS = st.recursive(LEAVES, _grown, max_leaves=5)


@settings(deadline=None, max_examples=400)
@given(GUARDS, st.fixed_dictionaries(dict(SAMPLES)))
def test_what_is_told_of_a_guard_goes_wrong_in_every_run(source: str, inputs: Mapping[str, Any]) -> None:
    """Each part told of fails for whatever fits the schemas, or is a value that is neither true nor false."""
    try:
        guard = Guard.parse(source)
    except DeclarationError:
        return
    for part in failing_parts(guard, schema_of):
        assert _fails(guard.source, part.expression, inputs, is_value=part.is_value), part.message


def _fails(source: str, part: Expression, inputs: Mapping[str, Any], *, is_value: bool) -> bool:
    """Evaluate a part alone; as a value it must not be a boolean, else it must give nothing at all."""
    text = source[part.span.start : part.span.end]
    alone = Guard.parse(text if is_value else f"[{text}].size() == 1")
    try:
        alone.holds({"inputs": inputs, "actions": {}, "state": {}})
    except TemplateError:
        return True
    return False


@settings(deadline=None, max_examples=300)
@given(LEAVES, st.sampled_from(["==", "!=", "<", ">=", "in", "+"]), LEAVES, st.fixed_dictionaries(dict(SAMPLES)))
def test_a_comparison_that_is_told_of_raises(left: str, operator: str, right: str, inputs: Mapping[str, Any]) -> None:
    """Where nothing can cover the failure, the guard itself raises."""
    guard = Guard.parse(f"{left} {operator} {right}")
    if any(guard_problems(guard, schema_of)):
        with pytest.raises(TemplateError):
            guard.holds({"inputs": inputs, "actions": {}, "state": {}})
