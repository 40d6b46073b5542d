"""Tokenizers from GGUF metadata and from tokenizer.json: text round trips, and no text becomes a control
token."""

from __future__ import annotations

import heapq
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers

from agentrt.errors import ModelFileError
from agentrt.inference.byte_level import BYTE_OF_CHARACTER, bytes_of
from agentrt.inference.file_fields import Fields
from agentrt.inference.tokenizer import ControlToken, Tokenizer, Vocabulary
from agentrt.inference.tokenizer_gguf import PRE_TOKENIZERS, tokenizer_from_gguf
from agentrt.inference.tokenizer_json import tokenizer_from_folder
from tests.support.model_files import MERGES, byte_alphabet, vocabulary, write_tiny_folder

PATH = Path("m.gguf")
TEXT = st.text(st.characters(codec="utf-8"), max_size=60)


def byte_level_fields(**changes: Any) -> Fields:
    tokens = [*vocabulary(), "<tool>"]
    values = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": np.array([3] * 3 + [1] * (len(tokens) - 4) + [4], np.int32),
        "tokenizer.ggml.merges": list(MERGES),
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
    }
    values.update({f"tokenizer.ggml.{name}": value for name, value in changes.items()})
    return Fields(PATH, values)


@pytest.fixture(scope="module")
def byte_level() -> Tokenizer:
    return tokenizer_from_gguf(byte_level_fields())


def text_of(tokenizer: Tokenizer, ids: list[int]) -> str:
    return b"".join(map(tokenizer.token_bytes, ids)).decode("utf-8")


def spellings(tokenizer: Tokenizer, text: str, *, allow_special: bool = False) -> list[str]:
    return [text_of(tokenizer, [each]) for each in tokenizer.encode(text, allow_special=allow_special)]


def test_the_byte_alphabet_is_that_of_the_tokenizers_library() -> None:
    """All 256 bytes have a character, the same ones the library uses."""
    assert sorted(BYTE_OF_CHARACTER) == byte_alphabet()
    assert sorted(BYTE_OF_CHARACTER.values()) == list(range(256))
    for text in ("a b\n", "é🙂\x00\x7f\xad"):
        (piece,) = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False).pre_tokenize_str(text)
        assert bytes_of(piece[0]) == text.encode()


@given(text=TEXT)
@example("hello world  hello 1234 <tool> <|im_end|>\r\n\n 🙂🇸🇪 e\u0301")
def test_byte_level_text_comes_back_from_its_tokens(byte_level: Tokenizer, text: str) -> None:
    """The bytes of the ids of any text are the bytes of the text."""
    assert text_of(byte_level, byte_level.encode(text, allow_special=False)) == text


def test_control_tokens_are_known_by_their_ids_alone(byte_level: Tokenizer) -> None:
    """With allow_special a spelling is the token; without it the same text is ordinary letters."""
    assert byte_level.encode("<|im_start|>hello<|im_end|>", allow_special=True) == [1, 262, 2]
    plain = byte_level.encode("<|im_start|>hello<|im_end|>", allow_special=False)
    assert not {0, 1, 2} & set(plain)
    assert text_of(byte_level, plain) == "<|im_start|>hello<|im_end|>"
    assert byte_level.control_token_ids == {0, 1, 2}
    assert byte_level.eos_token_ids == {0, 2}
    assert (byte_level.bos_token, byte_level.eos_token) == ("<|im_start|>", "<|im_end|>")


def test_user_defined_tokens_are_found_whole_in_any_text(byte_level: Tokenizer) -> None:
    """A token the file calls user-defined is matched in ordinary text too, as the model was trained to see
    it."""
    assert "<tool>" in spellings(byte_level, "a<tool>b")


def test_ids_past_the_vocabulary_have_no_text(byte_level: Tokenizer) -> None:
    """A model may have more rows than tokens; such an id is empty, a negative one a mistake."""
    assert byte_level.vocab_size == 274
    assert byte_level.token_bytes(274) == b""
    with pytest.raises(IndexError, match="-1"):
        byte_level.token_bytes(-1)


@pytest.mark.parametrize(
    ("text", "whole"),
    [("a\ud800b", "a\ufffdb"), ("\udfff", "\ufffd"), ("\ud83d\ude42", "🙂"), ("\ude42\ud83d", "\ufffd" * 2)],
)
def test_lone_surrogates_become_replacement_characters(byte_level: Tokenizer, text: str, whole: str) -> None:
    """Text from a JSON escape may hold half a pair; it is encoded as U+FFFD, and a whole pair as its
    character."""
    assert text_of(byte_level, byte_level.encode(text, allow_special=False)) == whole
    assert text_of(byte_level, byte_level.encode(byte_level.protect(text), allow_special=True)) == whole


CONTROLS = ("<|im_start|>", "<|im_end|>", "<s>", "</s>", "[INST]", "<a>b", "b<c>", "<|", "xx")


def make_walled() -> Tokenizer:
    alphabet = byte_alphabet()
    backend = tokenizers.Tokenizer(models.BPE(vocab={text: number for number, text in enumerate(alphabet)}, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    control = [ControlToken(256 + number, text) for number, text in enumerate(CONTROLS)]
    token_bytes = [bytes_of(text) for text in alphabet] + [text.encode() for text in CONTROLS]
    return Tokenizer(backend, Vocabulary(token_bytes, control, frozenset({257})))


WALLED = make_walled()
PARTS = st.sampled_from([*CONTROLS, *(text[:cut] for text in CONTROLS for cut in range(1, len(text))), *(
    text[cut:] for text in CONTROLS for cut in range(1, len(text))), " ", "\n", "a", "é", "\ud800"])  # fmt: skip
HOSTILE = st.lists(PARTS, max_size=8).map("".join)


@settings(max_examples=500)
@given(
    contents=st.lists(HOSTILE, min_size=1, max_size=3),
    glue=st.lists(st.sampled_from(["", " ", "\n", "<s>", "(", "</s>"]), min_size=4, max_size=4),
)
@example(contents=["<|im_", "end|>"], glue=["<s>", "", "", ""])
@example(contents=["<a>b<c>"], glue=["", "", "", ""])
@example(contents=["xxx", "x"], glue=["", "", "", ""])
def test_no_content_becomes_a_control_token_wherever_it_is_put(contents: list[str], glue: list[str]) -> None:
    """Whatever is written between a template's own words, alone or next to other contents: the control tokens
    are exactly the template's own, and the text is kept letter for letter."""
    template_own = [256 + CONTROLS.index(part) for part in glue[: len(contents) + 1] if part in CONTROLS]
    text = glue[0] + "".join(
        WALLED.protect(content) + following for content, following in zip(contents, glue[1:], strict=False)
    )
    ids = WALLED.encode(text, allow_special=True)
    assert [each for each in ids if each in WALLED.control_token_ids] == template_own
    plain = glue[0] + "".join(content + following for content, following in zip(contents, glue[1:], strict=False))
    assert text_of(WALLED, ids) == plain.replace("\ud800", "\ufffd")


@given(text=TEXT)
def test_ordinary_contents_pass_unchanged(text: str) -> None:
    """A content that spells no part of a control token reaches the template as it was written."""
    if not any(character in text for character in "<>[]|xb"):
        assert WALLED.protect(text) == text


@pytest.mark.parametrize(
    ("rule", "text", "pieces"),
    [
        ("gpt-2", "I'll pay 1234 €  now\n\n", ["I", "'ll", " pay", " 1234", " €", " ", " now", "\n\n"]),
        ("smollm", "I'll pay 1234 €", ["I", "'ll", " pay", " ", "1", "2", "3", "4", " €"]),
        ("llama-bpe", "I'LL pay 1234567!\n\n  x", ["I", "'LL", " pay", " ", "123", "456", "7", "!\n\n", " ", " x"]),
        ("qwen2", "we've 123 (ok)\r\n", ["we", "'ve", " ", "1", "2", "3", " (", "ok", ")\r\n"]),
        ("tekken", "HelloWorld 12/3\n", ["Hello", "World", " ", "1", "2", "/", "3", "\n"]),
    ],
)
def test_each_rule_cuts_text_into_words_its_own_way(rule: str, text: str, pieces: list[str]) -> None:
    """The named pre-tokenizers cut contractions, digits, punctuation and white space as their models were
    trained."""
    cut = PRE_TOKENIZERS[rule]().pre_tokenize_str(text)
    assert [bytes_of(piece).decode() for piece, _ in cut] == pieces


def test_llama_3s_rule_takes_a_known_word_whole() -> None:
    """Under llama-bpe a word of the vocabulary is one token even where merges would not make it."""
    tokens = [*vocabulary(), "hey"]
    types = np.array([3] * 3 + [1] * (len(tokens) - 3), np.int32)
    by_rule = {
        rule: tokenizer_from_gguf(byte_level_fields(pre=rule, tokens=tokens, token_type=types))
        for rule in ("llama-bpe", "gpt-2")
    }
    assert spellings(by_rule["llama-bpe"], "hey") == ["hey"]
    assert spellings(by_rule["gpt-2"], "hey") == ["he", "y"]


def test_qwens_rule_composes_characters() -> None:
    """Under qwen2 a letter and its combining accent are one character, as in its own tokenizer."""
    tokenizer = tokenizer_from_gguf(byte_level_fields(pre="qwen2"))
    assert text_of(tokenizer, tokenizer.encode("e\u0301", allow_special=False)) == "é"


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"model": "bert"}, "tokenizer.ggml.model = 'bert': the supported tokenizers are gpt2 and llama"),
        ({"pre": "smolm"}, "the nearest is smollm; the supported pre-tokenizers are"),
        ({"pre": None}, "tokenizer.ggml.pre is missing"),
        ({"tokens": []}, "at least one token is expected"),
        ({"tokens": None}, "tokenizer.ggml.tokens is missing"),
        ({"token_type": np.array([1, 1], np.int32)}, "a list of 274 is expected"),
        ({"merges": ["h e", "he"]}, "holds 'he', whose parts are not tokens"),
        ({"merges": ["h qq"]}, "holds 'h qq', whose parts are not tokens"),
        ({"merges": ["h z"]}, "holds 'h z', whose parts are not tokens"),
        ({"eos_token_id": 999}, "an id below 274, the number of tokens, is expected"),
        ({"bos_token_id": -1}, "a whole number from 0"),
    ],
)
def test_a_damaged_or_unknown_tokenizer_is_one_line(changes: dict[str, Any], says: str) -> None:
    """What is missing, unknown or impossible in the metadata is named with its key and value."""
    with pytest.raises(ModelFileError) as caught:
        tokenizer_from_gguf(byte_level_fields(**changes))
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


PIECES = ["▁", "▁a", "a", "b", "c", "ab", "bc", "abc", "▁ab", "ba", "aa", "cc", "▁▁", "é"]
SCORES = [-9.0, -3.0, -10.0, -11.0, -12.0, -1.0, -2.0, -4.0, -5.0, -6.0, -7.0, -8.0, -13.0, -14.0]


def sentencepiece_fields(**changes: Any) -> Fields:
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *PIECES]
    values = {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.scores": np.array([0.0] * 259 + SCORES, np.float32),
        "tokenizer.ggml.token_type": np.array([2, 3, 3] + [6] * 256 + [1] * len(PIECES), np.int32),
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
    }
    values.update({f"tokenizer.ggml.{name}": value for name, value in changes.items()})
    return Fields(PATH, values)


SENTENCEPIECE = tokenizer_from_gguf(sentencepiece_fields())


def best_first(text: str) -> list[str]:
    """Merge the neighbours whose union scores best, leftmost first, until none is a piece; bytes for unknown
    characters."""
    scores = dict(zip(PIECES, SCORES, strict=True))
    parts = list("▁" + text.replace(" ", "▁")) if text else []
    while True:
        joined = [
            (-scores[left + right], place)
            for place, (left, right) in enumerate(pairwise(parts))
            if left + right in scores
        ]
        if not joined:
            break
        _, place = heapq.nsmallest(1, joined)[0]
        parts[place : place + 2] = [parts[place] + parts[place + 1]]
    return [
        token
        for part in parts
        for token in ([part] if part in scores else [f"<0x{byte:02X}>" for byte in part.encode()])
    ]


@settings(max_examples=300)
@given(text=st.text("abcé d🙂", max_size=20))
def test_sentencepiece_merges_by_score(text: str) -> None:
    """A vocabulary with scores is used as SentencePiece uses it: best union first; unknown characters as
    bytes."""
    tokens = sentencepiece_fields().texts("tokenizer.ggml.tokens")
    assert [tokens[each] for each in SENTENCEPIECE.encode(text, allow_special=False)] == best_first(text)


def test_sentencepiece_text_has_its_spaces_and_bytes() -> None:
    """A piece's ▁ is a space, a byte token its byte; the space before the first word is the tokenizer's own."""
    ids = SENTENCEPIECE.encode("ab 🙂", allow_special=False)
    assert text_of(SENTENCEPIECE, ids) == " ab 🙂"
    assert SENTENCEPIECE.token_bytes(3 + 0x0A) == b"\n"
    assert SENTENCEPIECE.encode("<s>ab</s>", allow_special=True) == [
        1,
        *SENTENCEPIECE.encode("ab", allow_special=False),
        2,
    ]
    assert not {0, 1, 2} & set(SENTENCEPIECE.encode("<s></s><0x0A>", allow_special=False))
    without = tokenizer_from_gguf(sentencepiece_fields(add_space_prefix=False))
    assert text_of(without, without.encode("ab a", allow_special=False)) == "ab a"


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"scores": None}, "tokenizer.ggml.scores is missing"),
        ({"scores": np.zeros(3, np.float32)}, "a list of 273 is expected"),
        ({"scores": np.zeros(3, np.int32)}, "a list of numbers is expected"),
        ({"remove_extra_whitespaces": True}, "only false is supported"),
    ],
)
def test_a_damaged_sentencepiece_vocabulary_is_one_line(changes: dict[str, Any], says: str) -> None:
    """Scores that are missing or of another length, and rules not supported, are named."""
    with pytest.raises(ModelFileError) as caught:
        tokenizer_from_gguf(sentencepiece_fields(**changes))
    assert says in str(caught.value)


def folder_tokenizer(
    folder: Path, backend: tokenizers.Tokenizer | str, *, config: dict[str, Any] | None = None, **tokenizer_config: Any
) -> Tokenizer:
    folder.mkdir(exist_ok=True)
    if isinstance(backend, str):
        (folder / "tokenizer.json").write_text(backend)
    else:
        backend.save(str(folder / "tokenizer.json"))
    return tokenizer_from_folder(
        folder,
        Fields(folder / "config.json", config or {"eos_token_id": 2}),
        Fields(folder / "tokenizer_config.json", tokenizer_config),
    )


def metaspace_backend(scheme: str) -> tokenizers.Tokenizer:
    pieces = ["<unk>", "<s>", "</s>", *PIECES]
    merges = [("a", "b"), ("▁", "a"), ("▁a", "b")]
    vocab = {text: number for number, text in enumerate(pieces)} | {
        f"<0x{byte:02X}>": len(pieces) + byte for byte in range(256)
    }
    backend = tokenizers.Tokenizer(models.BPE(vocab=vocab, merges=merges, unk_token="<unk>", byte_fallback=True))
    if scheme == "legacy":
        backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    else:
        backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme, split=False)
    backend.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    backend.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in ("<unk>", "<s>", "</s>")])
    return backend


@pytest.mark.parametrize("scheme", ["first", "always", "never", "legacy"])
@pytest.mark.parametrize("text", ["ab", "<s>ab", "ab<s>ab ab</s>", "<s>", "", " ab", "<s> ab🙂"])
def test_pieces_between_control_tokens_are_encoded_as_the_library_would(tmp_path: Path, scheme: str, text: str) -> None:
    """Cutting at control tokens here gives the ids the tokenizers library gives for trusted text, whatever
    its rule for the space before a first word."""
    backend = metaspace_backend(scheme)
    tokenizer = folder_tokenizer(tmp_path / "m", backend)
    assert tokenizer.encode(text, allow_special=True) == backend.encode(text, add_special_tokens=False).ids


def test_a_folders_special_tokens_come_from_no_text(tmp_path: Path) -> None:
    """tokenizer.json's special tokens are control tokens; its other added tokens are found in text."""
    write_tiny_folder(tmp_path / "m")
    backend = tokenizers.Tokenizer.from_file(str(tmp_path / "m" / "tokenizer.json"))
    backend.add_tokens([AddedToken("<tool>", normalized=False)])
    tokenizer = folder_tokenizer(tmp_path / "m", backend, eos_token={"content": "<|endoftext|>"})
    assert not tokenizer.control_token_ids & set(tokenizer.encode("<|im_end|>", allow_special=False))
    assert "<tool>" in spellings(tokenizer, "a<tool>b")
    assert tokenizer.encode("<|im_end|>", allow_special=True) == [2]
    assert tokenizer.eos_token == "<|endoftext|>"
    assert tokenizer.eos_token_ids == {0, 2}


def test_white_space_that_belongs_to_a_control_token_goes_with_it(tmp_path: Path) -> None:
    """A special token with lstrip or rstrip takes the white space beside it, as in the tokenizers library."""
    backend = metaspace_backend("never")
    backend.add_special_tokens([AddedToken("<e>", special=True, lstrip=True, rstrip=True, normalized=False)])
    tokenizer = folder_tokenizer(tmp_path / "m", backend)
    for text in ("ab <e>\n ab", "<e>", " <e> <s> <e>", "ab<e>ab"):
        assert tokenizer.encode(text, allow_special=True) == backend.encode(text, add_special_tokens=False).ids


def test_end_tokens_are_collected_from_all_of_a_folders_files(tmp_path: Path) -> None:
    """config.json, generation_config.json and tokenizer_config.json may each name tokens that end an answer."""
    folder = tmp_path / "m"
    folder.mkdir()
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [5, 6]}))
    tokenizer = folder_tokenizer(folder, metaspace_backend("never"), config={"eos_token_id": 4}, eos_token="<s>")
    assert tokenizer.eos_token_ids == {4, 5, 6, 1, 2}


def test_a_tokenizer_whose_merges_spell_a_control_token_is_refused(tmp_path: Path) -> None:
    """Where ordinary letters merge into a special token anyone could forge it, so the folder is not loaded."""
    backend = tokenizers.Tokenizer(models.BPE(vocab={"E": 0, "N": 1, "EN": 2}, merges=[("E", "N")]))
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(["EN"])
    with pytest.raises(ModelFileError, match="could forge one"):
        folder_tokenizer(tmp_path / "m", backend)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            '{"decoder": {"type": "ByteLevel"}, "model": {"type": "Nonsense"}}',
            "is not a tokenizer the tokenizers library",
        ),
        ('{"decoder": {"type": "WordPiece"}, "model": {}}', "is neither a byte-level nor a SentencePiece tokenizer"),
        ('{"decoder": {"type": "ByteLevel"}, "added_tokens": [{"id": "x"}]}', "a list of tokens with id and content"),
        ('{"decoder": {"type": "ByteLevel"}, "added_tokens": 7}', "a list of tokens with id and content"),
    ],
)
def test_a_damaged_tokenizer_json_is_one_line(tmp_path: Path, text: str, says: str) -> None:
    """A tokenizer.json that the library cannot read, or of another kind, is named with the reason."""
    with pytest.raises(ModelFileError) as caught:
        folder_tokenizer(tmp_path / "m", text)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_folder_with_only_a_sentencepiece_model_says_what_to_do(tmp_path: Path) -> None:
    """tokenizer.model alone is not read; the message says how to get a tokenizer.json."""
    (tmp_path / "tokenizer.model").write_bytes(b"")
    with pytest.raises(ModelFileError, match=r"has tokenizer\.model but no tokenizer\.json"):
        tokenizer_from_folder(tmp_path, Fields(tmp_path, {}), Fields(tmp_path, {}))
