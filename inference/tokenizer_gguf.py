"""The tokenizer that a GGUF file carries in its metadata.

Two kinds of vocabulary occur in the supported architectures: byte-level BPE (`gpt2`) with a list of merges
and a named rule for cutting text into words first, and SentencePiece BPE (`llama`), where scores take the
place of merges. Both are handed to the `tokenizers` library. A rule that is not known is refused: with a
wrong one the model still answers, only worse, and nobody finds out why.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import tokenizers
from tokenizers import AddedToken, Regex, models, normalizers, pre_tokenizers

from agentrt.errors import ModelFileError, nearest_match
from agentrt.inference.byte_level import bytes_of
from agentrt.inference.file_fields import Fields, shorten
from agentrt.inference.tokenizer import ControlToken, Tokenizer, Vocabulary

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
"""`tokenizer.ggml.token_type`. Control tokens come from no text; user-defined ones are found in any text,
whole."""

EOS_IDS = ("eos_token_id", "eot_token_id", "eom_token_id")
EOS_TEXTS = frozenset(
    "<|im_end|> <|eot_id|> <|eom_id|> <|end|> <|endoftext|> <|end_of_text|> <|end_of_turn|> "  # noqa: SIM905
    "<end_of_turn> <|EOT|> <EOT> </s>".split()
)
"""Control tokens that end an answer in every model that has them, whether or not its file says so."""

SPACE = "\u2581"
"""How SentencePiece writes a space."""

_CONTRACTION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_TAIL = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_LLAMA_3 = rf"{_CONTRACTION}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}|{_TAIL}"
_QWEN_2 = rf"{_CONTRACTION}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}|{_TAIL}"
_TEKKEN = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def _gpt_2() -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)


def _single_digits() -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), _gpt_2()])


def _split(pattern: str) -> Callable[[], pre_tokenizers.PreTokenizer]:
    def make() -> pre_tokenizers.PreTokenizer:
        return pre_tokenizers.Sequence(
            [
                pre_tokenizers.Split(Regex(pattern), behavior="isolated"),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
            ]
        )

    return make


PRE_TOKENIZERS: dict[str, Callable[[], pre_tokenizers.PreTokenizer]] = {
    "gpt-2": _gpt_2,
    "smollm": _single_digits,
    "starcoder": _single_digits,
    "refact": _single_digits,
    "llama-bpe": _split(_LLAMA_3),
    "llama3": _split(_LLAMA_3),
    "llama-v3": _split(_LLAMA_3),
    "smaug-bpe": _split(_LLAMA_3),
    "dbrx": _split(_LLAMA_3),
    "qwen2": _split(_QWEN_2),
    "deepseek-r1-qwen": _split(_QWEN_2),
    "tekken": _split(_TEKKEN),
}
WHOLE_WORDS_FIRST = frozenset({"llama-bpe", "llama3", "llama-v3", "tekken"})
"""Rules under which a word that is in the vocabulary is taken whole, whatever the merges would make of it."""
COMPOSED = frozenset({"qwen2", "deepseek-r1-qwen"})
"""Rules that compose characters (Unicode NFC) first."""


def tokenizer_from_gguf(fields: Fields) -> Tokenizer:
    """Build the tokenizer of a GGUF file from its metadata.

    Raises:
        ModelFileError: it has none, one of a kind that is not supported, or a damaged one.
    """
    model = fields.text("tokenizer.ggml.model")
    if model not in ("gpt2", "llama"):
        raise fields.error("tokenizer.ggml.model", "the supported tokenizers are gpt2 and llama")
    tokens = fields.texts("tokenizer.ggml.tokens")
    if not tokens:
        raise fields.error("tokenizer.ggml.tokens", "at least one token is expected")
    types = [NORMAL] * len(tokens)
    if "tokenizer.ggml.token_type" in fields:
        types = fields.integers("tokenizer.ggml.token_type")
        if len(types) != len(tokens):
            raise fields.error("tokenizer.ggml.token_type", f"a list of {len(tokens)} is expected")
    for name in ("bos_token_id", *EOS_IDS):
        if (token_id := _token_id(fields, name, len(tokens))) is not None and types[token_id] == NORMAL:
            types[token_id] = CONTROL
    try:
        backend = _byte_level(fields, tokens, types) if model == "gpt2" else _sentencepiece(fields, tokens, types)
    except ModelFileError:
        raise
    except Exception as error:
        # What the library raises has no class of its own.
        raise ModelFileError(f"{fields.path}: its tokenizer cannot be built: {error}") from error
    backend.add_tokens(
        [AddedToken(text, normalized=False) for text, kind in zip(tokens, types, strict=True)
         if kind == USER_DEFINED and text]
    )  # fmt: skip
    return Tokenizer(backend, _vocabulary(fields, tokens, types, byte_level=model == "gpt2"))


def _byte_level(fields: Fields, tokens: list[str], types: list[int]) -> tokenizers.Tokenizer:
    if "tokenizer.ggml.pre" not in fields:
        raise ModelFileError(
            f"{fields.path}: tokenizer.ggml.pre is missing, so how the model cuts text into words is not known; "
            "the file was made by an old converter: use a newer one"
        )
    rule = fields.text("tokenizer.ggml.pre")
    if rule not in PRE_TOKENIZERS:
        match = nearest_match(rule, PRE_TOKENIZERS)
        hint = f"the nearest is {match}; " if match else ""
        raise fields.error(
            "tokenizer.ggml.pre",
            f"{hint}the supported pre-tokenizers are {', '.join(sorted(PRE_TOKENIZERS))}",
        )
    vocabulary = _mergeable(tokens, types)
    merges = []
    for merge in fields.texts("tokenizer.ggml.merges"):
        left, space, right = merge.partition(" ")
        if not space or left not in vocabulary or right not in vocabulary or left + right not in vocabulary:
            raise ModelFileError(
                f"{fields.path}: tokenizer.ggml.merges holds {shorten(merge)}, whose parts are not tokens"
            )
        merges.append((left, right))
    backend = tokenizers.Tokenizer(models.BPE(vocab=vocabulary, merges=merges, ignore_merges=rule in WHOLE_WORDS_FIRST))
    backend.pre_tokenizer = PRE_TOKENIZERS[rule]()
    if rule in COMPOSED:
        backend.normalizer = normalizers.NFC()
    return backend


def _sentencepiece(fields: Fields, tokens: list[str], types: list[int]) -> tokenizers.Tokenizer:
    scores = fields.numbers("tokenizer.ggml.scores")
    if len(scores) != len(tokens):
        raise fields.error("tokenizer.ggml.scores", f"a list of {len(tokens)} is expected")
    if "tokenizer.ggml.remove_extra_whitespaces" in fields and fields.boolean(
        "tokenizer.ggml.remove_extra_whitespaces"
    ):
        raise fields.error("tokenizer.ggml.remove_extra_whitespaces", "only false is supported")
    vocabulary = _mergeable(tokens, types)
    pieces = {text: token_id for text, token_id in vocabulary.items() if types[token_id] == NORMAL}
    # SentencePiece joins the neighbours whose union has the best score; BPE those whose pair stands first in
    # a list.
    merges = sorted(
        (-scores[token_id], token_id, text[:cut], text[cut:])
        for text, token_id in pieces.items()
        for cut in range(1, len(text))
        if text[:cut] in pieces and text[cut:] in pieces
    )
    unknown = next((text for text, kind in zip(tokens, types, strict=True) if kind == UNKNOWN), None)
    backend = tokenizers.Tokenizer(
        models.BPE(
            vocab=vocabulary if unknown is None else {**vocabulary, unknown: tokens.index(unknown)},
            merges=[(left, right) for _, _, left, right in merges],
            unk_token=unknown,
            fuse_unk=True,
            byte_fallback=True,
        )
    )
    steps: list[normalizers.Normalizer] = [normalizers.Replace(" ", SPACE)]
    if fields.boolean("tokenizer.ggml.add_space_prefix", True):
        steps.insert(0, normalizers.Prepend(SPACE))
    backend.normalizer = normalizers.Sequence(steps)
    return backend


def _mergeable(tokens: Sequence[str], types: Sequence[int]) -> dict[str, int]:
    """Return the tokens that text may become. Where a file holds one twice, the first counts."""
    vocabulary: dict[str, int] = {}
    for token_id, (text, kind) in enumerate(zip(tokens, types, strict=True)):
        if kind in (NORMAL, USER_DEFINED, BYTE):
            vocabulary.setdefault(text, token_id)
    return vocabulary


def _vocabulary(fields: Fields, tokens: Sequence[str], types: Sequence[int], *, byte_level: bool) -> Vocabulary:
    token_bytes = []
    for text, kind in zip(tokens, types, strict=True):
        if byte_level:
            token_bytes.append(bytes_of(text) if kind == NORMAL else text.encode("utf-8"))
        else:
            token_bytes.append(sentencepiece_bytes(text, is_byte=kind == BYTE))
    control = [
        ControlToken(token_id, text)
        for token_id, (text, kind) in enumerate(zip(tokens, types, strict=True))
        if kind in (CONTROL, UNKNOWN, UNUSED)
    ]
    bos = _token_id(fields, "bos_token_id", len(tokens))
    stated = [_token_id(fields, name, len(tokens)) for name in EOS_IDS]
    eos = frozenset(token_id for token_id in stated if token_id is not None)
    return Vocabulary(
        token_bytes=token_bytes,
        control_tokens=control,
        eos_token_ids=eos | {token.token_id for token in control if token.text in EOS_TEXTS},
        bos_token="" if bos is None else tokens[bos],
        eos_token="" if stated[0] is None else tokens[stated[0]],
    )


def sentencepiece_bytes(text: str, *, is_byte: bool) -> bytes:
    """Return the bytes of a SentencePiece token: `<0x0A>` is one byte when the vocabulary says it is a byte."""
    if is_byte and (match := re.fullmatch(r"<0x([0-9A-Fa-f]{2})>", text)):
        return bytes([int(match[1], 16)])
    return text.replace(SPACE, " ").encode("utf-8")


def _token_id(fields: Fields, name: str, num_tokens: int) -> int | None:
    """Return a token id the file states, or None; 2**32 - 1 is how some converters write "none"."""
    key = f"tokenizer.ggml.{name}"
    if key not in fields:
        return None
    token_id = fields.integer(key, high=2**32 - 1)
    if token_id == 2**32 - 1:
        return None
    if token_id >= num_tokens:
        raise fields.error(key, f"an id below {num_tokens}, the number of tokens, is expected")
    return token_id
