"""Token ids to text, one by one."""

from __future__ import annotations

from itertools import pairwise

import pytest
import tokenizers
from hypothesis import example, given
from hypothesis import strategies as st
from tokenizers import AddedToken, decoders, models, pre_tokenizers

from agentrt.inference.byte_level import BYTE_OF_CHARACTER
from agentrt.inference.detokenizer import IncrementalDetokenizer
from agentrt.inference.stop import StopStream, StopStrings
from agentrt.inference.tokenizer import ControlToken, Tokenizer, Vocabulary
from agentrt.inference.tokenizer_gguf import sentencepiece_bytes

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


ALPHABET = {byte: character for character, byte in BYTE_OF_CHARACTER.items()}
LONGER = [
    " a", " the", "é", "ü ", "日本", "🙂".encode()[:2], "🙂".encode()[2:], "é".encode()[:1] + b"a", b"\n\n", " 🙂".encode()
]  # fmt: skip
SPELLINGS = [bytes([byte]) for byte in range(256)] + [
    each if isinstance(each, bytes) else each.encode() for each in LONGER
]
CONTROLS = ("<|end|>", "<tool>")


def byte_level_peer() -> tuple[Tokenizer, tokenizers.Tokenizer]:
    vocabulary = {"".join(ALPHABET[byte] for byte in spelling): number for number, spelling in enumerate(SPELLINGS)}
    peer = tokenizers.Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    peer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    peer.decoder = decoders.ByteLevel()
    peer.add_special_tokens([AddedToken(text, special=True) for text in CONTROLS])
    controls = [ControlToken(len(SPELLINGS) + number, text) for number, text in enumerate(CONTROLS)]
    spellings = [*SPELLINGS, *(text.encode() for text in CONTROLS)]
    return Tokenizer(peer, Vocabulary(spellings, controls, frozenset({len(SPELLINGS)}))), peer


def sentencepiece_peer() -> tuple[Tokenizer, tokenizers.Tokenizer]:
    words = ["▁", "▁a", "a", "b", "▁the", "é", "日本", "🙂", "▁▁", "!"]
    tokens = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), *words]
    peer = tokenizers.Tokenizer(
        models.BPE(vocab={text: number for number, text in enumerate(tokens)}, merges=[], byte_fallback=True)
    )
    # As Llama's tokenizer.json has it.
    peer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    peer.add_special_tokens([AddedToken(text, special=True) for text in CONTROLS])
    controls = [ControlToken(0, "<unk>")] + [
        ControlToken(len(tokens) + number, text) for number, text in enumerate(CONTROLS)
    ]
    spellings = [sentencepiece_bytes(text, is_byte=0 < number < 257) for number, text in enumerate(tokens)]
    spellings += [text.encode() for text in CONTROLS]
    return Tokenizer(peer, Vocabulary(spellings, controls, frozenset({len(tokens)}))), peer


BYTE_LEVEL, BYTE_LEVEL_PEER = byte_level_peer()
SENTENCEPIECE, SENTENCEPIECE_PEER = sentencepiece_peer()


def pieces_of(tokenizer: Tokenizer, ids: list[int], *, shows_control: bool = False) -> list[str]:
    detokenizer = IncrementalDetokenizer(tokenizer, shows_control=shows_control)
    return [*(detokenizer.push(each) for each in ids), detokenizer.flush()]


@given(
    ids=st.lists(st.integers(0, len(SPELLINGS) + 1) | st.integers(256, len(SPELLINGS) + 1), max_size=30),
    shows_control=st.booleans(),
)
def test_byte_level_pieces_are_what_the_tokenizers_library_decodes(ids: list[int], shows_control: bool) -> None:
    """Any tokens, valid text or not, control tokens skipped or shown: the library decodes the same from all at once."""
    whole = BYTE_LEVEL_PEER.decode(ids, skip_special_tokens=not shows_control)
    assert "".join(pieces_of(BYTE_LEVEL, ids, shows_control=shows_control)) == whole


@st.composite
def sentencepiece_ids(draw: st.DrawFn) -> list[int]:
    """Words, and characters spelled in bytes; sometimes a control token, but not inside a character."""
    ids: list[int] = []
    for kind in draw(st.lists(st.sampled_from(["word", "bytes", "control"]), max_size=15)):
        if kind == "word":
            ids.append(draw(st.integers(257, 266)))
        elif kind == "bytes":
            ids += [1 + byte for byte in draw(st.sampled_from(["é", "🙂", "x", "\n", " ", "日"])).encode()]
        else:
            ids.append(draw(st.sampled_from([267, 268])))
    return ids


@given(ids=sentencepiece_ids(), shows_control=st.booleans())
@example(ids=[258], shows_control=False)
@example(ids=[257, 257, 2, 268, 258], shows_control=True)
def test_sentencepiece_pieces_are_what_the_tokenizers_library_decodes(ids: list[int], shows_control: bool) -> None:
    """The text an answer adds to its prompt, leading spaces and byte-fallback characters included, is the library's."""
    prompt = [260]
    before = SENTENCEPIECE_PEER.decode(prompt, skip_special_tokens=not shows_control)
    whole = SENTENCEPIECE_PEER.decode(prompt + ids, skip_special_tokens=not shows_control)
    assert before + "".join(pieces_of(SENTENCEPIECE, ids, shows_control=shows_control)) == whole


@given(
    before=st.text(alphabet="ab é日🙂", max_size=8),
    stop=st.text(alphabet="ab é日🙂", min_size=1, max_size=4),
    after=st.text(alphabet="ab é日🙂", max_size=8),
    cuts=st.sets(st.integers(0, 80), max_size=30),
)
def test_a_stop_string_is_found_wherever_tokens_begin_and_end(
    before: str, stop: str, after: str, cuts: set[int]
) -> None:
    """Tokens cut the text anywhere, inside characters too: what is emitted is the text before the first stop string, no
    piece holds half a character, and nothing comes after."""
    spelled = (before + stop + after).encode()
    borders = [0, *sorted(cut for cut in cuts if 0 < cut < len(spelled)), len(spelled)]
    tokens = [spelled[start:end] for start, end in pairwise(borders)]
    tokenizer = Tokenizer(tokenizers.Tokenizer(models.BPE(vocab={}, merges=[])), Vocabulary(tokens, [], frozenset()))
    detokenizer, stream = IncrementalDetokenizer(tokenizer), StopStream(StopStrings([stop]))
    emitted = [stream.push(detokenizer.push(token_id)) for token_id in range(len(tokens))]
    emitted += [stream.push(detokenizer.flush()), stream.flush()]
    assert stream.stopped
    text = before + stop + after
    assert "".join(emitted) == text[: text.index(stop)]
