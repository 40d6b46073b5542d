"""YAML that is written: read back as the same value, and the same to readers of YAML 1.1."""

from __future__ import annotations

import math
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from agentrt.declare.yaml_nodes import read_yaml
from agentrt.declare.yaml_text import write_yaml
from tests.support.random_dags import AWKWARD

ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
LINES = st.lists(st.one_of(AWKWARD, st.text(" \ta:#-'\"é", max_size=4)), max_size=5).map("\n".join)
TEXTS = st.one_of(AWKWARD, ANY_TEXT, LINES)
SCALARS = st.one_of(st.none(), st.booleans(), st.integers(-(10**60), 10**60), st.floats(allow_nan=False), TEXTS)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(TEXTS, inner, max_size=4)),
    max_leaves=12,
)


def read(text: str) -> Any:
    node, diagnostics = read_yaml(text.encode(), "d.yaml")
    assert diagnostics == []
    return node.plain()


def is_same(one: Any, other: Any) -> bool:
    """Compare with types, the sign of zero and the order of keys."""
    return repr(one) == repr(other)


@settings(deadline=None, max_examples=400)
@given(VALUES)
def test_what_is_written_is_read_back(value: Any) -> None:
    """Nothing is lost: no type, no character, no order, wherever in a value it stands."""
    assert is_same(read(write_yaml(value)), value)


@settings(deadline=None, max_examples=200)
@given(TEXTS)
def test_readers_of_yaml_1_1_see_the_same_text(text: str) -> None:
    """Also as a key, and in a list."""
    assert yaml.safe_load(write_yaml({"a": [text]})) == {"a": [text]}
    assert yaml.safe_load(write_yaml({text: None})) == {text: None}


@settings(deadline=None, max_examples=200)
@given(TEXTS)
def test_equal_parts_are_written_out(text: str) -> None:
    """An anchor would be a puzzle to whoever edits the file."""
    part = {"k": [text]}
    assert is_same(read(write_yaml([part, part])), [part, part])
    assert not any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(write_yaml([part, part])))


def test_it_reads_as_people_write_it() -> None:
    """Blocks for lines, plain texts where they are safe, quotes where they are not, and no folding."""
    long = "word " * 60 + "{{ inputs.a }}"
    value = {
        "name": "triage",
        "prompt": "Facts:  \n\n  {{ x | default('') }}\nend\n",
        "with": {"stop": ["END", "{{ inputs.it's }}"], "k": 2, "p": 0.5, "flag": True, "no": None},
        "yes": "on",
        "version": "1.0",
        "empty": [{}, [], ""],
        "long": long,
    }
    assert write_yaml(value) == (
        "name: triage\n"
        "prompt: |\n"
        "  Facts:  \n"
        "\n"
        "    {{ x | default('') }}\n"
        "  end\n"
        "with:\n"
        "  stop:\n"
        "    - END\n"
        '    - "{{ inputs.it\'s }}"\n'
        "  k: 2\n"
        "  p: 0.5\n"
        "  flag: true\n"
        "  'no': null\n"
        "'yes': 'on'\n"
        "version: '1.0'\n"
        "empty:\n"
        "  - {}\n"
        "  - []\n"
        "  - ''\n"
        f"long: {long}\n"
    )


@pytest.mark.parametrize("number", [-0.0, 1e16, 1.5e-7, 5e-324, math.inf, -math.inf, 10**99, -(10**98)])
def test_numbers_keep_value_and_kind(number: float) -> None:
    """YAML 1.1 wants a point where YAML 1.2 needs none."""
    assert is_same(read(write_yaml(number)), number)
    assert is_same(yaml.safe_load(write_yaml(number)), number)


def test_no_number_stays_no_number() -> None:
    """It is not equal to itself, and is still written."""
    assert math.isnan(read(write_yaml([math.nan]))[0])


@pytest.mark.parametrize(
    ("value", "error"),
    [
        ({1: 2}, "a key must be a text, not 1"),
        ([{1}], "is a set"),
        ([b"x"], "is a bytes"),
        (10**100, "more than 100 characters"),
        pytest.param(-(10**5000), "more than 100 characters", id="huge"),
        ({"a": "\ud800"}, "half a surrogate pair"),
        ({"\udfff": 1}, "half a surrogate pair"),
    ],
)
def test_what_would_not_come_back_is_not_written(value: Any, error: str) -> None:
    """It is said here and not found out by the next reader."""
    with pytest.raises((TypeError, ValueError), match=error):
        write_yaml(value)
