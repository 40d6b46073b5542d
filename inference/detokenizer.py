"""Token ids to text, one at a time, never half a character.

A token may end inside a character: emoji and most scripts but Latin take two to four bytes, and a byte-level
token may hold any of them. What is complete is handed on at once; the rest waits for the next token. Over the
whole answer the pieces add up to exactly what decoding all of its bytes at once would give, invalid bytes
included (each becomes U+FFFD).

The text of an answer is what its tokens add to the prompt's text. So a space before the first word is kept: only at the
very beginning of a text do SentencePiece vocabularies drop the space that they put there themselves. And an invalid byte
is replaced when it is met: the `tokenizers` library's byte-fallback decoder replaces a whole run of bytes if one of them
is wrong, which cannot be known while the first ones have been handed on.
"""

from __future__ import annotations

import codecs

from agentrt.inference.tokenizer import Tokenizer


class IncrementalDetokenizer:
    """The text of one answer as its tokens arrive.

    Control tokens have no text; with ``shows_control`` they have their spelling.
    """

    def __init__(self, tokenizer: Tokenizer, *, shows_control: bool = False) -> None:
        self._tokenizer = tokenizer
        self._hidden = frozenset[int]() if shows_control else tokenizer.control_token_ids
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def push(self, token_id: int) -> str:
        """Take the next token; return the text that it completes, which may be empty."""
        if token_id in self._hidden:
            return ""
        return self._decoder.decode(self._tokenizer.token_bytes(token_id))

    def flush(self) -> str:
        """End the answer; return what was held back: "" or U+FFFD for a character that never became whole."""
        return self._decoder.decode(b"", final=True)
