"""YAML nodes: values by YAML 1.2, and places that point at the right line and column."""

from __future__ import annotations

import math
import warnings
from typing import Any

import pytest

from agentrt.declare.yaml_nodes import Node, read_yaml
from agentrt.declare.yaml_scalars import plain_scalar
from agentrt.errors import DeclarationError


def read(text: str) -> Node:
    node, diagnostics = read_yaml(text.encode(), "d.yaml")
    assert diagnostics == []
    return node


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3", 3),
        ("-0", 0),
        ("007", 7),
        ("0x1F", 31),
        ("0o17", 15),
        ("2.50", 2.5),
        ("1e3", 1000.0),
        ("-.5", -0.5),
        (".inf", math.inf),
        ("-.INF", -math.inf),
        ("true", True),
        ("False", False),
        ("null", None),
        ("~", None),
        ("", None),
        ("yes", "yes"),
        ("on", "on"),
        ("1_000", "1_000"),
        ("1:30", "1:30"),
        ("2026-01-02", "2026-01-02"),
        ("1.2.3", "1.2.3"),
        ("-", "-"),
        ("+", "+"),
        ("9" * 200, "9" * 200),
        ("tRue", "tRue"),
        ("٣", "٣"),
    ],
)
def test_plain_scalars_follow_the_core_schema(text: str, value: Any) -> None:
    """Nothing is guessed beyond YAML 1.2: dates, times and yes are texts."""
    assert plain_scalar(text) == value
    assert type(plain_scalar(text)) is type(value)


def test_quotes_and_blocks_make_texts() -> None:
    """A quoted number is a text; so is what a %YAML 1.1 directive would have turned into a boolean."""
    assert read("[3, '3', \"3\", !!str 3, ! 3]").plain() == [3, "3", "3", "3", "3"]
    assert read("%YAML 1.1\n---\n- yes\n- |\n  3\n").plain() == ["yes", "3\n"]


def test_places_are_those_of_the_file() -> None:
    """Every key, value and character of a text is found again, also in blocks and after wide characters."""
    node = read("""\
key: value
"quoted": "é {{ x }}"
block: |

    first
      second
list: [a,
  b]
""")
    entries = node.value
    assert [str(entry.place) for entry in entries.values()] == ["d.yaml:1:1", "d.yaml:2:1", "d.yaml:3:1", "d.yaml:7:1"]
    assert str(entries["key"].node.place) == "d.yaml:1:6"
    assert str(entries["quoted"].node.origin.at(1, 3)) == "d.yaml:2:14"
    assert entries["block"].node.value == "\nfirst\n  second\n"
    assert str(entries["block"].node.origin.at(2, 1)) == "d.yaml:5:5"
    assert str(entries["block"].node.origin.at(3, 3)) == "d.yaml:6:7"
    assert str(entries["list"].node.value[1].place) == "d.yaml:8:3"


def test_an_alias_is_the_value_it_stands_for() -> None:
    """Plain anchors are fine, also one that is given twice; nothing warns."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert read("a: &x [1]\nb: *x\nc: &x 2\nd: *x\n").plain() == {"a": [1], "b": [1], "c": 2, "d": 2}


@pytest.mark.parametrize(
    ("text", "code", "place"),
    [
        ("a: 1\na: 2", "DAG005", "d.yaml:2:1"),
        ("? [a]\n: 1", "DAG012", "d.yaml:1:3"),
        ("a: 1\n<<: {b: 1}", "DAG006", "d.yaml:2:1"),
        ("a: !!set {b}", "DAG006", "d.yaml:1:4"),
        ("a: !!binary aGk=", "DAG006", "d.yaml:1:4"),
    ],
)
def test_what_is_refused_does_not_stop_the_reading(text: str, code: str, place: str) -> None:
    """The rest of the file is still read, so that its mistakes are told as well."""
    node, diagnostics = read_yaml((text + "\nz: 1\n").encode(), "d.yaml")
    assert [(d.code, str(d.place)) for d in diagnostics] == [(code, place)]
    assert node.value["z"].node.value == 1


@pytest.mark.parametrize(
    ("text", "code", "place"),
    [
        ("a: *x", "DAG004", "d.yaml:1:4"),
        ("a: &x {b: *x}", "DAG006", "d.yaml:1:11"),
        ("a: 'x", "DAG004", "d.yaml:1:6"),
        ("a: b: c", "DAG004", "d.yaml:1:5"),
        ("a: 1\n---\nb: 1", "DAG006", "d.yaml:2:1"),
        ("[" * 65 + "]" * 65, "DAG007", "d.yaml:1:65"),
        ("a: &a [x, x]\n" + "b: [" + "*a, " * 40_000 + "]", "DAG002", None),
    ],
)
def test_what_stops_the_reading_is_told_with_its_place(text: str, code: str, place: str | None) -> None:
    """There is one finding, and it is where the trouble is."""
    with pytest.raises(DeclarationError) as caught:
        read_yaml(text.encode(), "d.yaml")
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.code == code
    assert place is None or str(diagnostic.place) == place
