"""The alphabet in which byte-level vocabularies (GPT-2's and its heirs') write their tokens: one character a
byte.

Bytes that print as Latin-1 stand for themselves; the 68 others are numbered from U+0100 on in their own
order.
"""

from __future__ import annotations

from collections.abc import Mapping


def _alphabet() -> dict[str, int]:
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in set(printable)]
    alphabet = {chr(byte): byte for byte in printable}
    alphabet.update({chr(0x100 + number): byte for number, byte in enumerate(others)})
    return alphabet


BYTE_OF_CHARACTER: Mapping[str, int] = _alphabet()


def bytes_of(token: str) -> bytes:
    """Return the bytes a token stands for; a token with a character outside the alphabet is taken as plain
    text."""
    try:
        return bytes([BYTE_OF_CHARACTER[character] for character in token])
    except KeyError:
        return token.encode("utf-8")
