"""Text to token ids and back, with a wall between text and control tokens.

A chat model's control tokens (`<|im_end|>`) are spelled as text in its chat template, and a user may type the
same letters. If the rendered chat is simply tokenised, whoever writes a message can end their turn and speak
as the system. So control tokens are kept out of the tokenizer proper altogether: they are not in its
vocabulary of mergeable pieces and not among the added tokens it searches for, and nothing typed can produce
one. A text that may contain them is cut at them here, and the pieces between are encoded as plain text.

A chat is one text, though, and templates trim, split and compare the contents they are given, so contents
cannot be rendered apart. Instead `protect` marks them: wherever a content spells a control token, or could
complete one together with what stands next to it, a guard is put between its characters. The guard is a lone
surrogate, which no well-formed text contains, and `encode` drops it after cutting. A content without such
spellings, which is nearly every one, is passed on unchanged; in all cases the ids are those of the text as it
was written.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import tokenizers

GUARD = "\ud800"


@dataclass(frozen=True, slots=True)
class ControlToken:
    """A token that text cannot produce. ``eats_left``/``eats_right``: white space next to it belongs to it."""

    token_id: int
    text: str
    eats_left: bool = False
    eats_right: bool = False


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """What the ids stand for.

    ``token_bytes``: by id; control tokens have the bytes of their spelling. ``eos_token_ids``: tokens that
    end an answer. ``bos_token``, ``eos_token``: spellings, "" when the model has none.
    """

    token_bytes: Sequence[bytes]
    control_tokens: Sequence[ControlToken]
    eos_token_ids: frozenset[int]
    bos_token: str = ""
    eos_token: str = ""


class Tokenizer:
    """A model's own tokenizer. Immutable; may be used by several threads.

    ``first`` encodes text at the very beginning, ``inner`` text after a control token; they differ only for
    vocabularies that put a space before the first word. Neither knows the control tokens.
    """

    def __init__(
        self,
        first: tokenizers.Tokenizer,
        vocabulary: Vocabulary,
        *,
        inner: tokenizers.Tokenizer | None = None,
    ) -> None:
        self._first = first
        self._inner = inner or first
        self._vocabulary = vocabulary
        self._control_ids = frozenset(token.token_id for token in vocabulary.control_tokens)
        self._speller = _Speller(vocabulary.control_tokens)

    @property
    def vocab_size(self) -> int:
        """The number of ids; a model may have more rows than that, which mean nothing."""
        return len(self._vocabulary.token_bytes)

    @property
    def eos_token_ids(self) -> frozenset[int]:
        return self._vocabulary.eos_token_ids

    @property
    def control_token_ids(self) -> frozenset[int]:
        return self._control_ids

    @property
    def bos_token(self) -> str:
        return self._vocabulary.bos_token

    @property
    def eos_token(self) -> str:
        return self._vocabulary.eos_token

    def encode(self, text: str, *, allow_special: bool) -> list[int]:
        """Return the ids of ``text``; nothing is added before or after it.

        With ``allow_special`` the spellings of control tokens become those tokens, except where `protect` put
        a guard; without it no text does. Lone surrogates become U+FFFD, as they would on their way to UTF-8.
        """
        if not allow_special:
            return self._encode_plain(self._first, text)
        ids: list[int] = []
        encoder = self._first
        for piece, token_id in self._speller.cut(text):
            plain = piece.replace(GUARD, "")
            if plain:
                ids += self._encode_plain(encoder, plain)
            if token_id is not None:
                ids.append(token_id)
            encoder = self._inner
        return ids

    def protect(self, text: str) -> str:
        """Return untrusted ``text`` so marked that no part of it becomes a control token in `encode`,
        wherever it is put."""
        return self._speller.guard(well_formed(text))

    def token_bytes(self, token_id: int) -> bytes:
        """Return the bytes a token stands for: b"" for an id past the vocabulary; a token may be part of a
        character."""
        if token_id < 0:
            raise IndexError(f"a token id is 0 or more, not {token_id}")
        table = self._vocabulary.token_bytes
        return table[token_id] if token_id < len(table) else b""

    @staticmethod
    def _encode_plain(encoder: tokenizers.Tokenizer, text: str) -> list[int]:
        ids: list[int] = encoder.encode(well_formed(text), add_special_tokens=False).ids
        return ids


class _Speller:
    """Finds control tokens in text, and keeps text from being taken for one."""

    def __init__(self, control_tokens: Sequence[ControlToken]) -> None:
        # A token spelled with one character cannot be guarded, and none is meant to be written in a template.
        by_text: Mapping[str, ControlToken] = {
            token.text: token for token in reversed(control_tokens) if len(token.text) > 1
        }
        texts = sorted(by_text, key=len, reverse=True)
        self._ids = {text: token.token_id for text, token in by_text.items()}
        self._pattern = re.compile("|".join(_pattern(by_text[text]) for text in texts)) if texts else None
        self._starts = re.compile(f"(?=(?:{'|'.join(map(re.escape, texts))}))(.)", re.DOTALL) if texts else None
        self._beginnings = frozenset(text[:end] for text in texts for end in range(1, len(text)))
        self._endings = frozenset(text[start:] for text in texts for start in range(1, len(text)))
        self._longest = max(map(len, texts), default=0)

    def cut(self, text: str) -> list[tuple[str, int | None]]:
        """Return (text before, token id), in order; the last has no token."""
        pieces: list[tuple[str, int | None]] = []
        position = 0
        for match in self._pattern.finditer(text) if self._pattern else ():
            spelling = match[match.lastindex or 0]
            pieces.append((text[position : match.start()], self._ids[spelling]))
            position = match.end()
        pieces.append((text[position:], None))
        return pieces

    def guard(self, text: str) -> str:
        if self._starts is None:
            return text
        text = self._starts.sub(rf"\1{GUARD}", text)
        core = text.strip()
        if not core:
            return text
        lengths = range(1, min(self._longest, len(core) + 1))
        before = GUARD if any(core[:length] in self._endings for length in lengths) else ""
        after = GUARD if any(core[-length:] in self._beginnings for length in lengths) else ""
        if not before and not after:
            return text
        start = text.index(core)
        return f"{text[:start]}{before}{core}{after}{text[start + len(core) :]}"


def _pattern(token: ControlToken) -> str:
    left = r"\s*" if token.eats_left else ""
    right = r"\s*" if token.eats_right else ""
    return f"{left}({re.escape(token.text)}){right}"


def well_formed(text: str) -> str:
    """Return ``text`` with lone surrogates replaced by U+FFFD, and paired ones joined."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text
