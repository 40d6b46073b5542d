"""Whatever the bytes: a Dag or diagnostics, never another exception."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from agentrt.compile.check import check
from agentrt.declare.dag_file import read_dag
from tests.declare.test_dag_file import GOOD

WORDS = st.sampled_from((
    "name", "inputs", "actions", "outputs", "prompt", "uses", "tool/x", "if", "with", "{{ inputs.a }}", "{{", "}}",
    "*a", "&a", "<<", "!!int", "!x", "|", ">", "- ", ": ", "[", "]", "{", "}", "1s", "true", "null", "'", '"', "\n",
    "  ", "\t", "a == 'b'", "{% for x in inputs.a %}", "{% endfor %}", "#", "---", "%YAML 1.1", "? ", "\u2028",
    "\ufeff", "0x",
))  # fmt: skip


def read_and_check(data: bytes) -> None:
    reading = read_dag(data)
    assert reading.dag is not None or reading.diagnostics
    if reading.dag is not None:
        check(reading.dag, unread_actions=reading.unread_actions)
    if not reading.diagnostics:
        assert reading.dag is not None
        again = read_dag(reading.dag.to_yaml())
        assert again.dag == reading.dag


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
