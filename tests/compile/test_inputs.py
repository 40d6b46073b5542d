"""Binding inputs: what is given, what is left out, and everything wrong at once."""

from __future__ import annotations

from typing import Any

import pytest

from agentrt.compile.inputs import bind_inputs
from agentrt.declare.dag import Dag, Input
from agentrt.declare.dag_file import parse_dag
from agentrt.errors import InputError

DAG = parse_dag("""
name: d
inputs:
  question: string
  limit: {type: integer, default: 3, minimum: 1}
  tags: {type: array, items: {type: string}, default: []}
  flag: {type: boolean, default: false}
  ratio: {type: number, default: 0.5}
  either: {type: [integer, string], default: x}
  one_of: {enum: [1, two, null], default: 1}
  code: {type: string, pattern: "^[A-Z]+$", default: A, description: the code}
outputs: {a: hi}
actions: {x: {prompt: "{{ inputs.question }}"}}
""")


def test_defaults_fill_in_what_is_left_out() -> None:
    """Every input has a value, and no run changes the default of the next."""
    bound = bind_inputs(DAG, {"question": "Why?"})
    assert bound == {
        "question": "Why?",
        "limit": 3,
        "tags": [],
        "flag": False,
        "ratio": 0.5,
        "either": "x",
        "one_of": 1,
        "code": "A",
    }
    bound["tags"].append("changed")
    assert bind_inputs(DAG, {"question": "Why?"})["tags"] == []


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("question", "7", "7"),
        ("question", "", ""),
        ("limit", "7", 7),
        ("tags", '["a", "b"]', ["a", "b"]),
        ("flag", "true", True),
        ("ratio", "2", 2),
        ("either", "7", "7"),
        ("one_of", "null", None),
        ("one_of", "two", "two"),
        ("code", "ABC", "ABC"),
    ],
)
def test_texts_from_a_command_line_become_what_the_schema_asks_for(name: str, text: str, value: Any) -> None:
    """A text stays one wherever a text is allowed; anything else is read as JSON."""
    bound = bind_inputs(DAG, {"question": "q", name: text}, coerce_text=True)
    assert bound[name] == value
    assert type(bound[name]) is type(value)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({}, "input 'question' is missing"),
        ({"question": "q", "limti": 1}, "did you mean 'limit'"),
        ({"question": 7}, "7 is not of type 'string'"),
        ({"question": "q", "limit": 0}, "less than the minimum"),
        ({"question": "q", "limit": "3"}, "'3' is not of type 'integer'"),
        ({"question": "q", "limit": True}, "True is not of type 'integer'"),
        ({"question": "q", "tags": ["a", 1]}, "[1]: 1 is not of type 'string'"),
        ({"question": "q", "code": "abc"}, "does not match"),
    ],
)
def test_what_does_not_fit_is_told_with_its_path(given: dict[str, Any], says: str) -> None:
    """Before anything runs, with the name, the value seen and what was expected."""
    with pytest.raises(InputError) as caught:
        bind_inputs(DAG, given)
    assert says in str(caught.value)


def test_every_problem_is_told_at_once() -> None:
    """One error for three mistakes."""
    with pytest.raises(InputError) as caught:
        bind_inputs(DAG, {"limit": "x", "colour": 1}, coerce_text=True)
    for part in ("'question' is missing", "input 'limit'", "no input 'colour'"):
        assert part in str(caught.value)


def test_a_text_that_is_no_json_is_told_as_what_it_is() -> None:
    """The message shows the text that was given, also when it is deeply nested JSON."""
    with pytest.raises(InputError, match="'seven' is not of type 'integer'"):
        bind_inputs(DAG, {"question": "q", "limit": "seven"}, coerce_text=True)
    with pytest.raises(InputError):
        bind_inputs(DAG, {"question": "q", "tags": "[" * 100_000}, coerce_text=True)


def test_a_whole_number_written_with_a_point_is_a_whole_number() -> None:
    """JSON Schema takes 3.0 for an integer; a condition `inputs.n == 3` must agree."""
    dag = Dag("d", {}, {}, inputs={"n": Input("n", {"type": "integer"})})
    value = bind_inputs(dag, {"n": 3.0})["n"]
    assert (value, type(value)) == (3, int)
