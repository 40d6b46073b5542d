"""Text of others on a terminal: shown, never obeyed."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrt.cli.printable import limit, one_line, preview, printable, seconds


@given(st.text(st.characters(codec=None)))
def test_no_control_character_is_left(text: str) -> None:
    """What is printed holds no control, override or surrogate character, whatever a model said."""
    for char in one_line(text):
        assert unicodedata.category(char) not in {"Cc", "Cs", "Zl", "Zp"}
        assert char not in "\u202e\u2066\ufeff"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[2Jgone", r"\x1b[2Jgone"),
        ("over\rwritten", r"over\rwritten"),
        ("\u202eabc", r"\u202eabc"),
        ("\x9b31m", r"\x9b31m"),
        ("你好 naïve 👩\u200d💻", "你好 naïve 👩\u200d💻"),
    ],
)
def test_escapes_are_shown_and_letters_stay(text: str, shown: str) -> None:
    """Control sequences become visible; letters of every script and joined emoji stay as they are."""
    assert printable(text) == shown


def test_one_line_is_one_line() -> None:
    """Every kind of line break, with the white space around it, becomes one space."""
    assert one_line("a \r\n\t b\u2028c\x0bd\x85e") == "a b c d e"


@given(st.text(st.characters(codec=None)), st.integers(8, 100))
def test_a_preview_keeps_to_its_length(text: str, max_chars: int) -> None:
    """A preview is never longer than asked for."""
    assert len(preview(text, max_chars)) <= max_chars


def test_a_preview_of_a_value_is_json() -> None:
    """A value that is no text is shown as JSON on one line."""
    assert preview({"a": [1, None]}) == '{"a": [1, null]}'


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0.0, "0.0ms"), (0.00312, "3.1ms"), (0.0156, "16ms"), (0.52, "0.52s"), (12.34, "12.3s"), (125.0, "2m05s")],
)
def test_durations_have_about_three_digits(value: float, shown: str) -> None:
    """A duration is short enough for a column and never without its unit."""
    assert seconds(value) == shown


def test_a_limit_is_shown_as_declared() -> None:
    """An SLO of 20s does not become 20.0s."""
    assert [limit(20.0), limit(0.5)] == ["20s", "0.5s"]
