"""What can become of guards: certain verdicts, and no outcome of a run that was not foreseen."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentrt.compile.guard_analysis import (
    MAX_COMBINATIONS,
    always_holds,
    exclude_each_other,
    fold,
    may_hold,
    never_holds,
    possible_results,
)
from agentrt.compile.guard_domain import Constants, Domain, listed_values, representatives
from agentrt.compile.guard_outcome import Outcome
from agentrt.declare.guard import Guard
from agentrt.declare.json_schema import misfit
from agentrt.declare.reference import Reference
from agentrt.errors import DeclarationError, TemplateError

DOMAINS: Mapping[str, Domain] = {
    "text": Domain({"type": "string"}),
    "topic": Domain({"enum": ["billing", "shipping", "other"]}),
    "skipped": Domain({"enum": ["billing", "other"]}, nullable=True),
    "count": Domain({"type": "integer", "minimum": 0, "maximum": 5}),
    "score": Domain({"type": "number", "minimum": 0}),
    "level": Domain({"enum": [1, 2]}),
    "flag": Domain({"type": "boolean"}),
    "maybe": Domain({"type": ["integer", "null"]}),
    "either": Domain({"anyOf": [{"const": "a"}, {"type": "boolean"}]}),
    "word": Domain({"type": "string", "pattern": "^b"}),
    "any": Domain(),
}


def domain_of(reference: Reference) -> Domain:
    """Tell the domain of an input; of its parts nothing."""
    return Domain() if reference.path else DOMAINS[reference.name]


@pytest.mark.parametrize(
    "source",
    [
        "false",
        "1 == 2",
        "inputs.topic == 'refund'",
        "inputs.topic in ['x', 'y']",
        "inputs.topic.startsWith('z') || inputs.topic.size() > 8",
        "inputs.text == 'a' && inputs.text == 'b'",
        "inputs.text < 'a' && inputs.text > 'b'",
        "inputs.count < 0 || inputs.count > 5",
        "inputs.count > 2 && inputs.count < 3",
        "inputs.score < 0",
        "inputs.flag && !inputs.flag",
        "inputs.text.matches('a') && false",
        "inputs.flag ? inputs.topic == 'x' : inputs.topic == 'y'",
        "inputs.word == 'a'",
    ],
)
def test_a_guard_that_no_value_makes_true_never_holds(source: str) -> None:
    """Found from the constants it compares with and from the schemas."""
    assert never_holds(Guard.parse(source), domain_of)
    assert not always_holds(Guard.parse(source), domain_of)


@pytest.mark.parametrize(
    "source",
    [
        "true",
        "inputs.count >= 0",
        "inputs.topic in ['billing', 'shipping', 'other']",
        "inputs.topic != 'refund'",
        "inputs.text == 'a' || inputs.text != 'a'",
        "inputs.text <= 'm' || inputs.text > 'm'",
        "inputs.flag || !inputs.flag",
        "inputs.skipped == null || inputs.skipped in ['billing', 'other']",
        "true || inputs.any.part.exists(x, x == 1)",
        "size(inputs.topic) > 4",
    ],
)
def test_a_guard_that_every_value_makes_true_always_holds(source: str) -> None:
    """For all values of the schemas, and for null where there may be one."""
    assert always_holds(Guard.parse(source), domain_of)
    assert not never_holds(Guard.parse(source), domain_of)


@pytest.mark.parametrize(
    "source",
    [
        "inputs.text == 'a'",
        "inputs.count > 4",
        "inputs.skipped == null",
        "inputs.word > 'a'",
        "inputs.word < 'bb'",
        "inputs.text.startsWith('a') && inputs.text.startsWith('b')",
        "inputs.any == 'a' && inputs.any == 'b'",
        "inputs.any == 1 && inputs.any.part == 2",
        "inputs.score >= 0",
        "inputs.score < 0.0",
        "has(inputs.any.part)",
        "inputs.level == 1 || inputs.level == 2",
    ],
)
def test_what_is_not_certain_is_not_said(source: str) -> None:
    """An error for some value, a part of a value, and a NaN are enough to leave it open."""
    assert not never_holds(Guard.parse(source), domain_of)
    assert not always_holds(Guard.parse(source), domain_of)


def test_a_guard_that_fails_or_is_false_never_holds_for_who_counts_it_so() -> None:
    """A whole number is not compared with 0.0, and no number is less."""
    guard = Guard.parse("inputs.score < 0.0")
    assert possible_results([guard], domain_of) == {(Outcome.FAILS,), (Outcome.DOES_NOT_HOLD,)}
    assert never_holds(guard, domain_of, failures_may_hold=False)


@pytest.mark.parametrize(
    ("sources", "excluded", "excluded_but_for_failures"),
    [
        (["inputs.topic == 'billing'", "inputs.topic == 'other'", "inputs.topic == 'shipping'"], True, True),
        (["inputs.topic == 'billing'", "inputs.topic != 'billing'"], True, True),
        (["inputs.topic == 'billing'", "inputs.topic != 'other'"], False, False),
        (["inputs.count < 3", "inputs.count >= 3"], True, True),
        (["inputs.count < 3", "inputs.count >= 2"], False, False),
        (["inputs.flag", "!inputs.flag"], True, True),
        (["inputs.text.startsWith('a')", "!inputs.text.startsWith('a')"], False, True),
        (["inputs.any == 'a'", "inputs.any == 'b'"], False, True),
        (["inputs.text.startsWith('a')", "inputs.text.startsWith('b')"], False, False),
        (["state.flag", "!state.flag"], False, False),
        (["inputs.flag"], True, True),
    ],
)
def test_guards_exclude_each_other_when_no_run_makes_two_true(
    sources: list[str], excluded: bool, excluded_but_for_failures: bool
) -> None:
    """What two guards read of inputs and actions is the same for both; of the state it need not be."""
    guards = [Guard.parse(source) for source in sources]
    assert exclude_each_other(guards, domain_of) is excluded
    assert exclude_each_other(guards, domain_of, failures_may_hold=False) is excluded_but_for_failures


@pytest.mark.parametrize(
    ("source", "known", "expected"),
    [
        ("inputs.a == 1", {"a": 1}, True),
        ("inputs.a == 1", {"a": 2}, False),
        ("inputs.a == 1", {}, None),
        ("inputs.a == 'x' && inputs.b", {"a": "y"}, False),
        ("inputs.a == 'x' || inputs.b", {"a": "x"}, True),
        ("inputs.a == 'x' && inputs.b", {"a": "x"}, None),
        ("inputs.a.b.c > 2", {"a": {"b": {"c": 3}}}, True),
        ("inputs.a[1] == 2", {"a": [1, 2]}, True),
        ("inputs.a.exists(x, x == 2)", {"a": [1, 2]}, True),
        ("has(inputs.a.b)", {"a": {"c": 1}}, False),
        ("inputs.a.b == 1", {"a": {"c": 1}}, None),
        ("inputs.a.b == 1 && false", {"a": None}, False),
        ("inputs.a == 1", {"a": "text"}, None),
        ("inputs.a == 1", {"a": 2**70}, None),
        ("inputs.a ? inputs.b : inputs.c == 1", {"a": False, "c": 1}, True),
        ("inputs.a", {"a": "text"}, None),
        ("type(inputs.a) == string", {"a": "text"}, True),
        ("'a' * 1000000000 == inputs.a", {"a": "x" * 3}, None),
    ],
)
def test_known_values_decide_a_guard_or_do_not(source: str, known: Mapping[str, Any], expected: bool | None) -> None:
    """What fails for the known values is left to the run."""
    if "1000000000" in source:
        source = "inputs.b && " + source
    assert fold(Guard.parse(source), {Reference("inputs", name): value for name, value in known.items()}) is expected


def test_known_values_take_part_in_the_other_questions() -> None:
    """Given one input, what depends on the others is still open or is not."""
    known = {Reference("inputs", "count"): 3}
    assert never_holds(Guard.parse("inputs.count > 3 && inputs.flag"), domain_of, known)
    assert always_holds(Guard.parse("inputs.count > 2 && inputs.topic != 'x'"), domain_of, known)
    assert exclude_each_other([Guard.parse("inputs.flag"), Guard.parse("inputs.count == 4")], domain_of, known)


def test_values_that_no_guard_tells_apart_are_no_combinations() -> None:
    """Ten numbers with a dozen representatives each come to two cases each."""
    guard = Guard.parse(" || ".join(f"inputs.n{index} > {index}" for index in range(10)))
    schema = {"type": "integer", "maximum": 0}
    assert never_holds(guard, lambda _: Domain(schema))
    assert len(representatives(Domain({"type": "integer"}), Constants({"a"}, {1, 5}))) >= 5


def test_too_many_combinations_leave_it_open() -> None:
    """Work is bounded; what is cheap is still found."""
    many = " && ".join(f"inputs.f{index}" for index in range(40))
    boolean = Domain({"type": "boolean"})
    assert MAX_COMBINATIONS < 2**40
    assert not never_holds(Guard.parse(many), lambda _: boolean)
    assert never_holds(Guard.parse(f"{many} && false"), lambda _: boolean)
    listed = ", ".join(str(number) for number in range(600))
    assert not never_holds(Guard.parse(f"inputs.a in [{listed}]"), lambda _: Domain({"type": "integer"}))


@pytest.mark.parametrize("schema", [{"type": "integer", "minimum": 5, "maximum": 3}, {"enum": [1], "type": "string"}])
def test_a_schema_that_nothing_fits_proves_nothing(schema: Mapping[str, Any]) -> None:
    """It is a mistake of its own, told elsewhere."""
    guard = Guard.parse("inputs.x == 1")
    assert not never_holds(guard, lambda _: Domain(schema))
    assert not always_holds(guard, lambda _: Domain(schema))


# -- representatives

SCHEMAS = st.sampled_from(
    [
        {},
        {"type": "string"},
        {"type": "string", "minLength": 2},
        {"type": "integer"},
        {"type": "integer", "minimum": 1, "exclusiveMaximum": 4},
        {"type": "number", "exclusiveMinimum": 1, "maximum": 2.5},
        {"type": "number", "multipleOf": 2},
        {"type": ["string", "null"]},
        {"enum": ["a", 1, None, True]},
        {"enum": ["a", "b"], "type": "string", "pattern": "a"},
        {"const": 1.0},
        {"type": "boolean"},
        {"anyOf": [{"const": "a"}, {"type": "integer", "minimum": 2}]},
        {"allOf": [{"enum": [1, 2, 3]}, {"minimum": 2}]},
        {"not": {"type": "string"}},
    ]
)
VALUES = st.one_of(
    st.sampled_from([None, True, False, "", "a", "ab", "b", "a\0", "c", [], ["a"], {}, {"a": 1}, math.nan]),
    st.integers(-2, 6),
    st.sampled_from([0.0, 0.5, 1.0, 2.0, 2.5, 2.25, 4.0]),
)
CONSTANTS = st.sampled_from(["'a'", "'b'", "''", "1", "2", "2.5", "1.0", "true", "null", "-1", "3u"])


@settings(deadline=None, max_examples=400)
@given(SCHEMAS, VALUES, st.lists(CONSTANTS, min_size=2, max_size=3), st.sampled_from(["==", "!=", "<", "<=", ">"]))
def test_some_representative_compares_like_any_value_that_fits(
    schema: Mapping[str, Any], value: Any, constants: list[str], operator: str
) -> None:
    """With each of the constants at once; a whole number that is asked for by name is taken to arrive as one."""
    if misfit(value, schema) is not None or (schema.get("type") == "integer" and isinstance(value, float)):
        return
    guards = [Guard.parse(f"inputs.x {operator} {constant}") for constant in constants]
    found = possible_results(guards, lambda _: Domain(schema))
    assert tuple(_run(guard, {"x": value}) for guard in guards) in found


@settings(deadline=None, max_examples=200)
@given(SCHEMAS, VALUES)
def test_listed_values_are_all_there_are(schema: Mapping[str, Any], value: Any) -> None:
    """A schema that lists its values admits no other; a whole number may be written either way."""
    listed = listed_values(Domain(schema))
    if listed is not None:
        fits = misfit(value, schema) is None
        assert fits is any(type(value) is type(other) and value == other for other in listed)


def test_a_nullable_domain_has_null() -> None:
    """Whether its values are listed or stood for."""
    assert None in (listed_values(Domain({"enum": ["a"]}, nullable=True)) or ())
    assert None in representatives(Domain({"type": "string"}, nullable=True), Constants())


# -- soundness

ATOMS = st.one_of(
    st.sampled_from([f"inputs.{name}" for name in DOMAINS]),
    st.tuples(st.sampled_from(sorted(DOMAINS)), st.sampled_from(["==", "!=", "<", ">="]), CONSTANTS).map(
        lambda each: "inputs.{} {} {}".format(*each)
    ),
    st.tuples(CONSTANTS, st.sampled_from(["==", "<", ">="]), st.sampled_from(sorted(DOMAINS))).map(
        lambda each: "{} {} inputs.{}".format(*each)
    ),
    st.tuples(st.sampled_from(sorted(DOMAINS)), st.lists(CONSTANTS, max_size=3)).map(
        lambda each: f"inputs.{each[0]} in [{', '.join(each[1])}]"
    ),
    st.sampled_from(
        [
            "inputs.topic == 'billing'", "inputs.topic in ['other', 'x']", "inputs.topic.startsWith('b')",
            "inputs.skipped == null", "inputs.skipped == 'other'", "has(inputs.any.a)", "inputs.any.a == 1",
            "inputs.text.matches('a')", "inputs.text.size() == 1", "inputs.level + 1 == 2", "true", "false",
            "inputs.text == inputs.topic", "(inputs.flag ? 1 : 'a') == 1", "(inputs.flag && 5) == 5",
            "type(inputs.either) == string", "[inputs.topic].exists(x, x == 'billing')", "inputs.flag == inputs.either",
        ]
    ),
)  # fmt: skip
GUARDS = st.recursive(
    ATOMS,
    lambda parts: st.one_of(
        st.tuples(parts, st.sampled_from(["&&", "||"]), parts).map(lambda each: "({} {} {})".format(*each)),
        parts.map(lambda part: f"!({part})"),
        st.tuples(parts, parts, parts).map(lambda each: "({} ? {} : {})".format(*each)),
    ),
    max_leaves=5,
)
FITTING: Mapping[str, list[Any]] = {
    "text": ["", "a", "b", "ab", "billing"],
    "topic": ["billing", "shipping", "other"],
    "skipped": ["billing", "other", None],
    "count": [0, 1, 2, 3, 5],
    "score": [0, 1, 2, 0.0, 1.0, 2.5, 7, math.nan],
    "level": [1, 2, 1.0, 2.0],
    "flag": [True, False],
    "maybe": [None, -1, 0, 1, 2],
    "either": ["a", True, False],
    "word": ["b", "bb", "b\0"],
    "any": [None, "a", 1, 2.5, True, [], {}, {"a": 1}, {"a": "x"}],
}
INPUTS = st.fixed_dictionaries({name: st.sampled_from(values) for name, values in FITTING.items()})


@settings(deadline=None, max_examples=400)
@given(st.lists(GUARDS, min_size=1, max_size=3), INPUTS, st.sets(st.sampled_from(sorted(FITTING)), max_size=3))
def test_every_outcome_of_a_run_is_among_the_possible(
    sources: list[str], inputs: Mapping[str, Any], known_names: set[str]
) -> None:
    """Whatever guards there are, whatever fits the schemas, whatever of it is known before."""
    guards = [guard for source in sources if (guard := _parsed(source)) is not None]
    known = {Reference("inputs", name): inputs[name] for name in known_names}
    outcomes = [_run(guard, inputs) for guard in guards]
    found = possible_results(guards, domain_of, known)
    assert any(all(map(_covers, possible, outcomes)) for possible in found), (found, outcomes)
    if exclude_each_other(guards, domain_of, known):
        assert outcomes.count(Outcome.HOLDS) <= 1
    for guard, outcome in zip(guards, outcomes, strict=True):
        if (decided := fold(guard, known)) is not None:
            assert outcome is (Outcome.HOLDS if decided else Outcome.DOES_NOT_HOLD)


@settings(deadline=None, max_examples=60)
@given(GUARDS)
def test_verdicts_agree_with_trying_everything(source: str) -> None:
    """Never is never and always is always, over all combinations of values of what is read."""
    guard = _parsed(source)
    if guard is None:
        return
    names = sorted({reference.name for reference in guard.references})
    never, always = never_holds(guard, domain_of), always_holds(guard, domain_of)
    if not (never or always) or math.prod(len(FITTING[name]) for name in names) > 400:
        return
    for values in itertools.product(*(FITTING[name] for name in names)):
        outcome = _run(guard, dict(zip(names, values, strict=True)))
        assert outcome is (Outcome.HOLDS if always else Outcome.DOES_NOT_HOLD)


def _parsed(source: str) -> Guard | None:
    try:
        return Guard.parse(source)
    except DeclarationError:
        return None


def _run(guard: Guard, inputs: Mapping[str, Any]) -> Outcome:
    try:
        holds = guard.holds({"inputs": inputs, "actions": {}, "state": {}})
    except TemplateError:
        return Outcome.FAILS
    return Outcome.HOLDS if holds else Outcome.DOES_NOT_HOLD


def _covers(possible: Outcome, outcome: Outcome) -> bool:
    return possible in (outcome, Outcome.UNKNOWN)


def test_may_hold_is_about_what_a_caller_fears() -> None:
    """A guard that fails may hold for one caller and not for another; one that is not known may for both."""
    asked: Callable[[bool], list[bool]] = lambda failures: [may_hold(outcome, failures) for outcome in Outcome]  # noqa: E731
    assert asked(True) == [True, False, True, True]
    assert asked(False) == [True, False, False, True]
