"""Stop strings: nothing of them or after them is emitted, nothing before them is lost, and pieces do not matter."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from agentrt.inference.stop import StopStream, StopStrings


def cut_at_first_stop(text: str, stops: list[str]) -> str:
    """The rule, spelled out: read on character by character until some stop string is complete."""
    for end in range(1, len(text) + 1):
        lengths = [len(stop) for stop in stops if text[:end].endswith(stop)]
        if lengths:
            return text[: end - max(lengths)]
    return text


def emitted_pieces(pieces: list[str], stops: list[str]) -> list[str]:
    stream = StopStream(StopStrings(stops))
    return [*(stream.push(piece) for piece in pieces), stream.flush()]


# Two letters: overlaps, self-overlaps and stop strings inside one another are the rule here, not the exception.
few_letters = st.text(alphabet="ab", max_size=12)
stop_lists = st.lists(st.text(alphabet="ab", min_size=1, max_size=5), max_size=5)


@given(pieces=st.lists(few_letters, max_size=8), stops=stop_lists)
@example(pieces=["a", "b", "a", "b", "b"], stops=["abb"])
@example(pieces=["aab", "ab"], stops=["aba"])
@example(pieces=["abab"], stops=["babb", "ba"])
def test_what_is_emitted_is_the_whole_text_cut_at_the_first_stop(pieces: list[str], stops: list[str]) -> None:
    """Whatever the pieces, the emitted text is that of the rule applied to the whole text."""
    assert "".join(emitted_pieces(pieces, stops)) == cut_at_first_stop("".join(pieces), stops)


@given(pieces=st.lists(few_letters, max_size=8), stops=stop_lists)
def test_no_more_is_held_back_than_may_become_a_stop(pieces: list[str], stops: list[str]) -> None:
    """After every piece, what is held back begins a stop string, so a reader sees text as early as is safe."""
    stream = StopStream(StopStrings(stops))
    text, emitted = "", ""
    for piece in pieces:
        text += piece
        emitted += stream.push(piece)
        if stream.stopped:
            break
        held = text[len(emitted) :]
        assert held == "" or any(stop.startswith(held) and stop != held for stop in stops)


@given(pieces=st.lists(few_letters, max_size=8), stops=stop_lists)
def test_stopped_tells_whether_a_stop_appeared(pieces: list[str], stops: list[str]) -> None:
    """``stopped`` is true exactly when some stop string is part of the text."""
    stream = StopStream(StopStrings(stops))
    for piece in pieces:
        stream.push(piece)
    assert stream.stopped == any(stop in "".join(pieces) for stop in stops)


def test_a_stop_across_token_borders_is_found() -> None:
    """A stop string that arrives in three tokens stops the text, and none of it is emitted."""
    assert emitted_pieces(["Hello", "\n", "Us", "er:", " more"], ["\nUser:"]) == ["Hello", "", "", "", "", ""]


def test_a_false_beginning_is_emitted_late_but_whole() -> None:
    """Text held back as the beginning of a stop string comes out once it turns out not to be one."""
    assert emitted_pieces(["Hello\n", "Use", " it"], ["\nUser:"]) == ["Hello", "", "\nUse it", ""]


def test_held_back_text_is_flushed_at_the_end() -> None:
    """An answer that ends in the middle of what could have become a stop string loses nothing."""
    assert emitted_pieces(["a STO"], ["STOP"]) == ["a ", "STO"]


def test_nothing_is_held_back_without_stop_strings() -> None:
    """No stop strings: every piece goes straight through."""
    assert emitted_pieces(["ab", "", "c"], []) == ["ab", "", "c", ""]
