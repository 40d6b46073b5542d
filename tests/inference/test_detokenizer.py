"""Token ids to text, one by one."""

from __future__ import annotations

import pytest
import tokenizers
from hypothesis import example, given
from hypothesis import strategies as st
from tokenizers import models

from agentrt.inference.detokenizer import IncrementalDetokenizer
from agentrt.inference.tokenizer import ControlToken, Tokenizer, Vocabulary

PIECES = [bytes([byte]) for byte in range(256)] + [
    "é".encode(),
    "🙂".encode()[:3],
    b"\x99\x82 a",
    b"ab\xf0\x9f",
    b"",
    "日本".encode(),
]
END = len(PIECES)
TOKENIZER = Tokenizer(
    tokenizers.Tokenizer(models.BPE(vocab={}, merges=[])),
    Vocabulary([*PIECES, b"<|end|>"], [ControlToken(END, "<|end|>")], frozenset({END})),
)


def pushed(ids: list[int]) -> list[str]:
    detokenizer = IncrementalDetokenizer(TOKENIZER)
    return [*(detokenizer.push(each) for each in ids), detokenizer.flush()]


@given(
    ids=st.lists(
        st.one_of(st.integers(0, END + 3), st.sampled_from(range(256, END)), st.integers(0x80, 0xFF)), max_size=40
    )
)
@example(ids=list("🙂".encode()))
@example(ids=[0xF0, 0x9F, END, 0x99, 0x82])
@example(ids=[0xE2, 0x82])
@example(ids=[0xF0, 0x9F, 0x41, 0xC3, 0xC3, 0xA9, 0xED, 0xA0, 0x80])
def test_the_pieces_add_up_to_the_whole_decoded_at_once(ids: list[int]) -> None:
    """For any tokens at all, pushes and flush together are the decoding of all bytes at once; no piece holds
    half a character, so each can be sent on as it is."""
    pieces = pushed(ids)
    whole = b"".join(TOKENIZER.token_bytes(each) for each in ids if each != END).decode("utf-8", errors="replace")
    assert "".join(pieces) == whole
    for piece in pieces:
        piece.encode("utf-8")


@pytest.mark.parametrize("text", ["é", "日", "🙂", "👩‍👩‍👧", "e\u0301"])
def test_a_character_arrives_with_its_last_byte(text: str) -> None:
    """Byte by byte, each character comes out exactly when it is complete, never as a replacement character."""
    pieces = pushed(list(text.encode()))
    expected = [piece for character in text for piece in ["" for _ in character.encode()[1:]] + [character]]
    assert pieces == [*expected, ""]


def test_what_is_complete_is_not_held_back() -> None:
    """Text before an unfinished character is handed on at once."""
    detokenizer = IncrementalDetokenizer(TOKENIZER)
    assert detokenizer.push(PIECES.index(b"ab\xf0\x9f")) == "ab"
    assert detokenizer.push(PIECES.index(b"\x99\x82 a")) == "🙂 a"
    assert detokenizer.flush() == ""


def test_a_character_that_never_became_whole_ends_as_one_replacement() -> None:
    """An answer that stops inside a character ends with U+FFFD, once."""
    assert pushed([0xF0, 0x9F, 0x99]) == ["", "", "", "\ufffd"]


def test_control_tokens_have_no_text() -> None:
    """A control token adds nothing, not even in the middle of a character."""
    assert "".join(pushed([*b"a", END, *b"b"])) == "ab"
    assert "".join(pushed([0xC3, END, 0xA9])) == "é"
