"""Guards: what they read, when they hold, and what they refuse."""

from __future__ import annotations

import dataclasses
import pickle
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentrt.declare.guard import Guard
from agentrt.declare.origin import Origin
from agentrt.declare.reference import Reference
from agentrt.errors import DeclarationError, Place, TemplateError


@dataclasses.dataclass
class Verdict:
    score: float


SCOPE: dict[str, Any] = {
    "inputs": {
        "question": "Why?",
        "limit": 3,
        "ratio": 1.5,
        "urgent": True,
        "names": ["a", "b"],
        "order": {"total": 7, "items": [1], "note": None},
        "many": list(range(20_000)),
        "huge": 2**70,
    },
    "actions": {
        "classify": {"output": "billing", "status": "succeeded"},
        "judge": {"output": Verdict(0.5), "status": "succeeded"},
        "odd": {"output": object(), "status": "succeeded"},
    },
}


@pytest.mark.parametrize(
    ("source", "holds"),
    [
        ("actions.classify.output == 'billing'", True),
        ("actions['classify'].output in ['other', 'billing']", True),
        ("inputs.limit > 3", False),
        ("inputs.ratio >= 1.5 && inputs.urgent", True),
        ("!inputs.urgent || inputs.names.size() == 2", True),
        ("size(inputs.names) == 3", False),
        ("inputs.question.startsWith('W') && inputs.question.matches('^W.*[?]$')", True),
        ("inputs.names.exists(name, name == 'b')", True),
        ("inputs.names.all(name, size(name) == 2)", False),
        ("inputs.names.map(name, name + '!')[0] == 'a!'", True),
        ("has(inputs.order.total) && !has(inputs.order.missing)", True),
        ("inputs.order.note == null", True),
        ("inputs.order == {'total': 7, 'items': [1], 'note': null} && inputs.order.total == 7", True),
        ("inputs.order.items[inputs.limit - 3] == 1", True),
        ("type(inputs.limit) == int", True),
        ("actions.judge.output.score < 0.6", True),
        ("inputs.limit == 3 ? true : false", True),
        ("inputs.question == 'Why?' // always", True),
        ("true", True),
    ],
)
def test_a_guard_holds_or_does_not(source: str, holds: bool) -> None:
    """CEL means what CEL says."""
    assert Guard.parse(source).holds(SCOPE) is holds


def test_what_a_guard_reads_is_known_without_evaluating() -> None:
    """Every reference is found; variables of macros are none."""
    guard = Guard.parse(
        "inputs.names.exists(n, n == actions.a.output[0]['k']) && (inputs.x ? actions.b.status == 's' : inputs.l[inputs.i])"
    )
    assert {str(reference) for reference in guard.references} == {
        "inputs.names",
        "actions.a.output.0.k",
        "inputs.x",
        "actions.b.status",
        "inputs.l",
        "inputs.i",
    }


@pytest.mark.parametrize(
    ("source", "code", "column", "says"),
    [
        ("", "DAG021", None, "empty"),
        ("inputs.limit = 3", "DAG021", 14, "write =="),
        ("inputs.limit > 1 and true", "DAG021", 18, "&&"),
        ("inputs.question == 'x", "DAG021", 20, "closing quote"),
        ("inputs.limit >", "DAG021", 14, ""),
        ("{{ inputs.limit }}", "DAG021", None, "without {{ }}"),
        ("input.limit > 1", "DAG022", 1, "did you mean 'inputs'"),
        ("inputs.kind == billing", "DAG022", 16, "quotes"),
        ("inputs.names.exist(n, n == 'a')", "DAG022", 14, "did you mean 'exists'"),
        ("length(inputs.names) > 1", "DAG022", 1, "unknown function"),
        ("inputs == 1", "DAG024", 1, "write inputs.NAME"),
        ("actions[inputs.x].output", "DAG024", 1, "computed name"),
        ("inputs.names.all(n)", "DAG021", None, "needs a variable"),
        ("inputs.names.all(1, true)", "DAG021", None, "needs a variable"),
        ("Thing{a: 1} == 1", "DAG023", 1, "messages"),
        ("inputs.question.matches('(')", "DAG021", 25, "RE2"),
        ("(" * 100 + "true" + ")" * 100, "DAG007", None, "nested"),
        ("||".join(["true"] * 400), "DAG007", None, "operators"),
        ("true || " * 600 + "true", "DAG007", None, "characters"),
        ("[" + ",".join(["1"] * 200) + "].all(a, [1].all(b, true))", "DAG007", None, "passes"),
        ("\x00", "DAG021", None, ""),
    ],
)
def test_what_is_wrong_with_a_guard_is_told_when_it_is_read(
    source: str, code: str, column: int | None, says: str
) -> None:
    """With its column, and with what would have been right."""
    with pytest.raises(DeclarationError) as caught:
        Guard.parse(source, Origin(Place("d.yaml", 5, 1)))
    told = [d for d in caught.value.diagnostics if d.code == code and says in str(d)]
    assert told, str(caught.value)
    if column is not None:
        assert told[0].place == Place("d.yaml", 5, column)
    assert "\n" not in str(told[0])


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("actions.classify.output == 3", "different or unsuitable types"),
        ("inputs.limit > 2.5", "different or unsuitable types"),
        ("inputs.missing == 'x'", "missing"),
        ("inputs.order.missing == 'x'", "missing"),
        ("inputs.names[7] == 'a'", ""),
        ("inputs.question", "must be true or false, not string"),
        ("inputs.question && true", "must be true or false"),
        ("inputs.limit / 0 == 1", "divide by zero"),
        ("inputs.limit + 9223372036854775807 > 0", "overflow"),
        ("inputs.huge > 1", ""),
        ("inputs.many.exists(n, n == 3)", "passes"),
        ("actions.odd.output == 1", "CEL has no form"),
    ],
)
def test_a_guard_that_cannot_be_decided_fails_loudly(source: str, says: str) -> None:
    """A value of the wrong kind never skips an action in silence; the error has the guard's place."""
    with pytest.raises(TemplateError) as caught:
        Guard.parse(source, Origin(Place("d.yaml", 5, 9))).holds(SCOPE)
    assert says in str(caught.value)
    assert str(caught.value).startswith("d.yaml:5:")
    assert len(str(caught.value)) < 600


@pytest.mark.parametrize(
    ("source", "place"),
    [
        ("true + 'a' == 1", Place("d.yaml", 5, 9)),
        ("inputs.urgent &&\n  (true) + 'a' == 1", Place("d.yaml", 6, 7)),
        ("inputs.urgent && inputs.limit == true", Place("d.yaml", 5, 26)),
    ],
)
def test_an_error_beside_true_or_false_has_its_place(source: str, place: Place) -> None:
    """cel-python's parser does not note where these two words stand; a guard does."""
    with pytest.raises(TemplateError) as caught:
        Guard.parse(source, Origin(Place("d.yaml", 5, 9), 4)).holds(SCOPE)
    assert caught.value.place == place


def test_the_syntax_tree_of_a_guard_can_be_looked_into() -> None:
    """Its places count from the beginning of the guard, also for the words true and false."""
    tree = Guard.parse("inputs.a == 1 ||\n true").tree
    literals = [(str(node.children[0]), node.meta.line, node.meta.column) for node in tree.find_data("literal")]
    assert sorted(literals) == [("1", 1, 13), ("true", 2, 2)]


def test_only_what_a_guard_reads_is_converted() -> None:
    """An output that CEL has no form for does not matter to a guard that does not read it."""
    scope = {"inputs": {"a": {"x": 1, "y": object()}}, "actions": {"b": {"output": object(), "status": "succeeded"}}}
    assert Guard.parse("inputs.a.x == 1 && actions.b.status == 'succeeded'").holds(scope)


def test_guards_leave_the_process_as_it_was() -> None:
    """cel-python raises the recursion limit of the whole process; that is taken back."""
    limit = sys.getrecursionlimit()
    assert Guard.parse("inputs.a == 1").holds({"inputs": {"a": 1}, "actions": {}})
    assert sys.getrecursionlimit() == limit


def test_guards_travel_between_processes() -> None:
    """A guard is pickled as its source."""
    guard = pickle.loads(pickle.dumps(Guard.parse("inputs.limit == 3")))  # noqa: S301 - our own bytes
    assert guard.holds(SCOPE)
    assert guard.references == {Reference("inputs", "limit")}


def test_the_deepest_guard_that_is_read_can_be_evaluated() -> None:
    """The limit on nesting is one that evaluation lives with."""
    deepest = ""
    for size in range(1, 60):
        source = "(" * size + "inputs.urgent" + ")" * size
        try:
            Guard.parse(source)
        except DeclarationError:
            break
        deepest = source
    assert deepest.startswith("((((((((")
    assert Guard.parse(deepest).holds(SCOPE)
    longest = "&&".join(["inputs.urgent"] * 180)
    assert Guard.parse(longest).holds(SCOPE)


TOKENS = st.sampled_from((
    "inputs", "actions", ".question", ".limit", ".names", ".classify", ".output", "['a']", "[0]", "==", "!=", "<",
    ">", "<=", ">=", "&&", "||", "!", "?", ":", "+", "-", "*", "/", "%", "in", "(", ")", "[", "]", "{", "}", ",", ".",
    "'a'", "'b'", "1", "2.5", "true", "false", "null", "has", "size", ".exists(n,", ".all(n,", ".map(n,", "n", ")",
    "matches('(')", "1u", "b'x'", "//", "\n",
))  # fmt: skip


@settings(deadline=None, max_examples=250)
@given(st.lists(TOKENS, max_size=15).map(" ".join))
def test_any_guard_is_decided_or_refused(source: str) -> None:
    """Whatever stands in a guard ends in true, false, a DeclarationError or a TemplateError."""
    try:
        guard = Guard.parse(source)
    except DeclarationError:
        return
    try:
        assert guard.holds(SCOPE) in (True, False)
    except TemplateError:
        return
