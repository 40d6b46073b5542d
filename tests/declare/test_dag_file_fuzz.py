"""Whatever the bytes: a Dag or diagnostics, never another exception."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentrt.compile.check import check
from agentrt.compile.plan import plan
from agentrt.declare.dag_file import read_dag
from agentrt.errors import Severity
from tests.declare.test_dag_file import GOOD

WORDS = st.sampled_from((
    "name", "inputs", "actions", "outputs", "prompt", "uses", "tool/x", "if", "with", "{{ inputs.a }}", "{{", "}}",
    "*a", "&a", "<<", "!!int", "!x", "|", ">", "- ", ": ", "[", "]", "{", "}", "1s", "true", "null", "'", '"', "\n",
    "  ", "\t", "a == 'b'", "{% for x in inputs.a %}", "{% endfor %}", "#", "---", "%YAML 1.1", "? ", "\u2028",
    "\ufeff", "0x", "\x85", "\x00", "%TAG ! !", "...", "\r", "\\ud800",
))  # fmt: skip
EXAMPLES = tuple(path.read_bytes() for path in sorted((Path(__file__).parents[2] / "dags").rglob("*.yaml")))
HEAD = "name: d\noutputs: {o: 1}\ninputs: {a: {type: integer}}\nactions:\n"
MIB = 2**20


def read_and_check(data: bytes) -> None:
    reading = read_dag(data)
    assert reading.dag is not None or reading.diagnostics
    if reading.dag is None:
        return
    found = check(reading.dag, unread_actions=reading.unread_actions)
    if not reading.diagnostics:
        again = read_dag(reading.dag.to_yaml())
        assert again.dag == reading.dag
        if not any(diagnostic.severity is Severity.ERROR for diagnostic in found):
            plan(reading.dag)


@settings(deadline=None, max_examples=300)
@given(st.binary(max_size=300))
def test_any_bytes(data: bytes) -> None:
    """Noise is told apart from a Dag."""
    read_and_check(data)


@settings(deadline=None, max_examples=400)
@given(st.lists(WORDS, max_size=40).map("".join))
def test_any_words_of_the_language(text: str) -> None:
    """So is noise made of the language's own words."""
    read_and_check(text.encode())


@settings(deadline=None, max_examples=400)
@given(st.integers(0, len(GOOD) - 1), st.integers(0, 40), st.one_of(WORDS, st.text(max_size=5)))
def test_a_good_file_with_a_piece_replaced(start: int, length: int, piece: str) -> None:
    """And a file somebody is in the middle of editing."""
    text = GOOD[:start] + piece + GOOD[start + length :]
    read_and_check(text.encode("utf-8", "surrogatepass"))


@settings(deadline=None, max_examples=200, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_an_example_with_bytes_moved_and_broken(data: st.DataObject) -> None:
    """And the examples people copy, however badly the copy went: lines lost, doubled, swapped, bytes changed."""
    lines = data.draw(st.sampled_from(EXAMPLES)).splitlines(keepends=True)
    for _ in range(data.draw(st.integers(1, 4))):
        at, other = (data.draw(st.integers(0, len(lines) - 1)) for _ in range(2))
        match data.draw(st.integers(0, 3)):
            case 0:
                lines[at] = b"\n"
            case 1:
                lines[at], lines[other] = lines[other], lines[at]
            case 2:
                lines[at] = lines[other] + lines[at]
            case _:
                cut = data.draw(st.integers(0, len(lines[at])))
                lines[at] = lines[at][:cut] + data.draw(st.binary(max_size=3)) + lines[at][cut + 1 :]
    read_and_check(b"".join(lines))


@settings(deadline=None, max_examples=40)
@given(
    st.sampled_from(
        ("[", "{", "- ", "? ", '{"a":', "[[{", "a:\n ", "&a [", "'", '"', "|\n", "!a ", "*a ", "#", "\t", "\n ")
    ),
    st.integers(1, MIB),
)
def test_one_word_over_and_over(word: str, size: int) -> None:
    """Depth and length end in a diagnostic; neither stack nor parser gives way."""
    read_and_check((word * (size // len(word) + 1))[:MIB].encode())


@pytest.mark.parametrize(
    ("text", "code"),
    [
        # a ninth power of nine in 9 lines
        ("".join(f"a{i}: &a{i} [{','.join([f'*a{i - 1}'] * 9)}]\n" if i else "a0: &a0 [x]\n" for i in range(9)), "DAG002"),
        (
            HEAD
            + " a: {uses: tool/x, if: &g '"
            + "inputs.a>1&&" * 300
            + "true'}\n"
            + "".join(f" b{i}: {{uses: tool/x, if: *g}}\n" for i in range(300)),
            "DAG002",
        ),
        (
            HEAD
            + f" a: {{prompt: &p '{'{{1}}' * 10_000}'}}\n"
            + "".join(f" b{i}: {{prompt: *p}}\n" for i in range(25)),
            "DAG002",
        ),
        (HEAD + " a: {prompt: '" + "x" * (MIB - 100) + "'}\n", None),
        (HEAD + " a: {prompt: '" + "x" * MIB + "'}\n", "DAG002"),
        (HEAD + " a: {prompt: '" + "{{ 1 }}" * 20_000 + "'}\n", "DAG007"),
        (HEAD + " a: {prompt: '" + "{" * 60_000 + "'}\n", "DAG020"),
        (HEAD + " a: {prompt: '{{ " + "(" * 5_000 + "1" + ")" * 5_000 + " }}'}\n", "DAG020"),
        (HEAD + " a: {prompt: '{{ " + "-" * 9_000 + "1 }}'}\n", "DAG020"),
        (HEAD + " a: {prompt: '{{ " + "9" * 9_000 + " }}'}\n", "DAG020"),
        (HEAD + " a: {prompt: '" + "{% if 1 %}" * 3_000 + "'}\n", "DAG020"),
        (HEAD + " a: {prompt: '" + "{% for x in [1] %}" * 6 + "x" + "{% endfor %}" * 6 + "'}\n", "DAG023"),
        (HEAD + " a: {uses: tool/x, if: '" + "(" * 2_000 + "true" + ")" * 2_000 + "'}\n", "DAG007"),
        (HEAD + " a: {uses: tool/x, if: '" + "[" * 40 + "]" * 40 + " == []'}\n", "DAG007"),
        (HEAD + " a: {uses: tool/x, if: '" + "!" * 4_000 + "true'}\n", "DAG007"),
        (HEAD + " a: {uses: tool/x, if: '" + "x" * 5_000 + "'}\n", "DAG007"),
        (
            HEAD + " a: {uses: tool/x, if: '" + "[1,2,3,4,5,6,7,8,9,10].all(x, " * 6 + "true" + ")" * 6 + "'}\n",
            "DAG007",
        ),
    ],
    ids=range(17),
)  # fmt: skip
def test_what_is_made_to_blow_up(text: str, code: str | None) -> None:
    """Alias bombs, huge scalars, and guards and templates nested without end are refused by a count, before the work."""
    reading = read_dag(text)
    if reading.dag is not None:
        check(reading.dag, unread_actions=reading.unread_actions)
    codes = {diagnostic.code for diagnostic in reading.diagnostics}
    assert code in codes if code else not codes
