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
        ("9" * 100, int("9" * 100)),
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


def test_lines_end_where_yaml_1_2_and_editors_end_them() -> None:
    """U+0085, U+2028 and U+2029 are characters of a text, whatever YAML 1.1 took them for; the three real ends count."""
    node = read("a: x\x85y:\u2028\u2029\U000f0000\r\nb: '\u2028 é'\rc: 3\nd: {e: \x85}")
    assert node.plain() == {"a": "x\x85y:\u2028\u2029\U000f0000", "b": "\u2028 é", "c": 3, "d": {"e": "\x85"}}
    assert [entry.place.line for entry in node.value.values()] == [1, 2, 3, 4]
    assert str(node.value["b"].node.place) == "d.yaml:2:4"


def test_a_byte_order_mark_is_no_part_of_the_text() -> None:
    """Columns begin after it."""
    node, diagnostics = read_yaml(b"\xef\xbb\xbfa: 1", "d.yaml")
    assert (node.plain(), diagnostics, str(node.value["a"].node.place)) == ({"a": 1}, [], "d.yaml:1:4")


def test_both_parsers_of_pyyaml_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where libyaml is missing nothing changes but the speed: not a value, not a place, not a code."""
    good = (
        "a: |\n  é\n  b\n\u2028c: [1, 'x', \"y\", {k: *a}]\n".replace("*a", "&a z"),
        "? x\n: - 1\n  - >-\n    f\n    g\n",
        "%YAML 1.1\n---\na: !!str 3\n...\n",
    )
    bad = ("a: \x07", "é: b: c", "a: 'x", "\ta: 1", "a: @b", "a: [1,\nb: 2", "[" * 2000, "a: *x", "a: 1\n---\nb", "")

    def found() -> list[object]:
        read_all: list[object] = [(read(text), list(read(text).origins())) for text in good]
        for text in bad:
            with pytest.raises(DeclarationError) as caught:
                read_yaml(text.encode(), "d.yaml")
            (diagnostic,) = caught.value.diagnostics
            assert diagnostic.place is not None
            read_all.append((diagnostic.code, diagnostic.place.line))
        return read_all

    with_libyaml = found()
    monkeypatch.setattr("yaml.__with_libyaml__", False)
    assert found() == with_libyaml


def test_an_alias_is_the_value_it_stands_for() -> None:
    """Plain anchors are fine, also one that is given twice; nothing warns."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert read("a: &x [1]\nb: *x\nc: &x 2\nd: *x\n").plain() == {"a": [1], "b": [1], "c": 2, "d": 2}
        assert read("&k 3: &v {}\nb: [*k, *v]").plain() == {"3": {}, "b": [3, {}]}


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
        ("a: [1, 2", "DAG004", "d.yaml:1:9"),
        ("a:\n\tb: 1", "DAG004", "d.yaml:2:1"),
        ("a: @b", "DAG004", "d.yaml:1:4"),
        ("é: 'x\ny\x07", "DAG004", "d.yaml:2:2"),
        ("a: \x00", "DAG004", "d.yaml:1:4"),
        ("a: x\u2028y: z: 1", "DAG004", "d.yaml:1:7"),
        ('a: "\\ud800"', "DAG004", "d.yaml:1:7"),
        ("%YAML 2.0\n---\na: 1", "DAG004", "d.yaml:1:1"),
        ("a: 1\n...\nb", "DAG004", "d.yaml:3:1"),
        ("# c\n", "DAG008", "d.yaml:1"),
        ("[" * 65 + "]" * 65, "DAG007", "d.yaml:1:65"),
        ("[" * 2**20, "DAG007", None),
        ('{"a":' * 2**17, "DAG007", None),
        ("- " * 2**19, "DAG007", "d.yaml:1:129"),
        ("? " * 2**19, "DAG007", "d.yaml:1:129"),
        ("".join(f"%TAG !{i:x}! b\n" for i in range(50_000)) + "---\na: 1", "DAG006", "d.yaml:1:1"),
        ("a: &a [x, x]\n" + "b: [" + "*a, " * 40_000 + "]", "DAG002", None),
        (f"a: &a {'x' * 2**16}\n" + "b: [" + "*a, " * 17 + "]", "DAG002", "d.yaml:2:69"),
        (f"a: &a {{k: {{{'x' * 1000}: 1}}}}\nb: [" + "*a, " * 1100 + "]", "DAG002", None),
        ("".join(f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}]\n" if i else "a0: &a0 x\n" for i in range(60)), "DAG002", None),
    ],
)
def test_what_stops_the_reading_is_told_with_its_place(text: str, code: str, place: str | None) -> None:
    """There is one finding, and it is where the trouble is."""
    with pytest.raises(DeclarationError) as caught:
        read_yaml(text.encode(), "d.yaml")
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.code == code
    assert place is None or str(diagnostic.place) == place


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("a:\n\tb: 1", "'\\t' cannot begin anything", "indent with spaces"),
        ("a: @b", "'@' cannot begin anything", "a text that begins with '@' needs quotes"),
        ("a: b: c", "mapping values are not allowed", "a text with ': ' in it needs quotes"),
        ("a:\n  b: 'x\nc: 1\n", "end of stream", "this happened scanning a quoted scalar that begins on line 2"),
        ("a: \x07", "the character U+0007 is not allowed", 'in a text in double quotes write "\\x07"'),
    ],
)
def test_what_is_no_yaml_is_told_with_the_way_out(text: str, message: str, hint: str) -> None:
    """The parser's own words are for those who know its insides; the hint is for everybody else."""
    with pytest.raises(DeclarationError) as caught:
        read_yaml(text.encode(), "d.yaml")
    (diagnostic,) = caught.value.diagnostics
    assert message in diagnostic.message
    assert diagnostic.hint == hint
