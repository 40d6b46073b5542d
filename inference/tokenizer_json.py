"""The tokenizer of a Hugging Face folder: `tokenizer.json`, with `tokenizer_config.json` and the stated end
tokens.

`tokenizer.json` is the `tokenizers` library's own format, so the library reads it whole: rules, merges and
added tokens. Two things are changed. Its post-processor is dropped, because a chat template says itself where
the text begins. And special tokens are not searched for in text (see `tokenizer.py` for the reason); this is
checked once, token by token.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import tokenizers

from agentrt.errors import ModelFileError
from agentrt.inference.byte_level import bytes_of
from agentrt.inference.file_fields import Fields, read_json, shorten
from agentrt.inference.tokenizer import ControlToken, Tokenizer, Vocabulary
from agentrt.inference.tokenizer_gguf import EOS_TEXTS, sentencepiece_bytes


def tokenizer_from_folder(folder: Path, config: Fields, tokenizer_config: Fields) -> Tokenizer:
    """Build the tokenizer of ``folder``; ``config`` is its config.json.

    Raises:
        ModelFileError: tokenizer.json is missing, damaged, or of a kind that is not supported.
    """
    path = folder / "tokenizer.json"
    if not path.exists() and (folder / "tokenizer.model").exists():
        raise ModelFileError(
            f"{folder}: has tokenizer.model but no tokenizer.json; save the tokenizer again with a recent transformers"
        )
    fields = read_json(path)
    byte_level = _is_byte_level(fields)
    control = _control_tokens(fields)
    first = _backend(fields, {})
    inner = _backend(fields, {"prepend_scheme": "never"}) if _prepends_to_first_word(fields) else first
    token_bytes = _token_bytes(path, first, fields, byte_level=byte_level)
    _check_typed_text_is_plain(path, first, control, _unknown_token(fields))
    bos, eos = _spelling(tokenizer_config, "bos_token"), _spelling(tokenizer_config, "eos_token")
    stated = set(_eos_ids(config))
    generation = folder / "generation_config.json"
    if generation.exists():
        stated.update(_eos_ids(read_json(generation)))
    known = {token.token_id for token in control if token.text in EOS_TEXTS or token.text == eos}
    if beyond := [token_id for token_id in stated if token_id >= len(token_bytes)]:
        raise config.error("eos_token_id", f"an id below {len(token_bytes)} is expected, not {beyond[0]}")
    return Tokenizer(
        first,
        Vocabulary(token_bytes, control, frozenset(stated | known), bos_token=bos, eos_token=eos),
        inner=inner,
    )


def _backend(fields: Fields, metaspace: dict[str, Any]) -> tokenizers.Tokenizer:
    document = {key: fields.raw(key) for key in ("added_tokens", "normalizer", "pre_tokenizer", "model")}
    document["version"] = "1.0"
    if metaspace:
        document["pre_tokenizer"] = _changed(document["pre_tokenizer"], metaspace)
    try:
        backend = tokenizers.Tokenizer.from_str(json.dumps(document))
    except Exception as error:
        # What the library raises has no class of its own.
        raise ModelFileError(f"{fields.path}: is not a tokenizer the tokenizers library reads: {error}") from error
    backend.encode_special_tokens = True
    return backend


def _changed(pre_tokenizer: Any, metaspace: dict[str, Any]) -> Any:
    if not isinstance(pre_tokenizer, dict):
        return pre_tokenizer
    if pre_tokenizer.get("type") == "Metaspace":
        return {**pre_tokenizer, **metaspace}
    if isinstance(parts := pre_tokenizer.get("pretokenizers"), list):
        return {**pre_tokenizer, "pretokenizers": [_changed(part, metaspace) for part in parts]}
    return pre_tokenizer


def _prepends_to_first_word(fields: Fields) -> bool:
    return any(
        part.get("type") == "Metaspace" and part.get("prepend_scheme") == "first"
        for part in _parts(fields.raw("pre_tokenizer"))
    )


def _is_byte_level(fields: Fields) -> bool:
    kinds = {part.get("type") for key in ("pre_tokenizer", "normalizer", "decoder") for part in _parts(fields.raw(key))}
    if "ByteLevel" in kinds:
        return True
    if kinds & {"Metaspace", "ByteFallback", "Prepend"}:
        return False
    raise ModelFileError(
        f"{fields.path}: is neither a byte-level nor a SentencePiece tokenizer, the kinds that are supported"
    )


def _parts(node: Any) -> list[dict[str, Any]]:
    """Return a component and, where it is a sequence, everything in it."""
    found: list[dict[str, Any]] = []
    stack = [node]
    while stack:
        part = stack.pop()
        if isinstance(part, dict):
            found.append(part)
            for key in ("pretokenizers", "normalizers", "decoders"):
                if isinstance(part.get(key), list):
                    stack.extend(part[key])
    return found


def _added_tokens(fields: Fields) -> list[dict[str, Any]]:
    added = fields.raw("added_tokens") or []
    if not isinstance(added, list) or not all(
        isinstance(token, dict) and isinstance(token.get("content"), str) and type(token.get("id")) is int
        for token in added
    ):
        raise fields.error("added_tokens", "a list of tokens with id and content is expected")
    return added


def _control_tokens(fields: Fields) -> list[ControlToken]:
    return [
        ControlToken(
            token["id"],
            token["content"],
            eats_left=bool(token.get("lstrip")),
            eats_right=bool(token.get("rstrip")),
        )
        for token in _added_tokens(fields)
        if token.get("special")
    ]


def _token_bytes(path: Path, backend: tokenizers.Tokenizer, fields: Fields, *, byte_level: bool) -> list[bytes]:
    by_text = backend.get_vocab(with_added_tokens=True)
    size = max(by_text.values(), default=-1) + 1
    if not 0 < size <= 4 * len(by_text) + 1024:
        raise ModelFileError(f"{path}: {len(by_text)} tokens with ids up to {size - 1}: the ids are damaged")
    added = {token["content"] for token in _added_tokens(fields)}
    table = [b""] * size
    for text, token_id in by_text.items():
        if text in added:
            table[token_id] = text.encode("utf-8", "replace")
        elif byte_level:
            table[token_id] = bytes_of(text)
        else:
            table[token_id] = sentencepiece_bytes(text, is_byte=True)
    return table


def _unknown_token(fields: Fields) -> str | None:
    model = fields.raw("model")
    unknown = model.get("unk_token") if isinstance(model, dict) else None
    return unknown if isinstance(unknown, str) else None


def _check_typed_text_is_plain(
    path: Path, backend: tokenizers.Tokenizer, control: list[ControlToken], unknown: str | None
) -> None:
    for token in control:
        if token.text != unknown and token.token_id in backend.encode(token.text, add_special_tokens=False).ids:
            raise ModelFileError(
                f"{path}: text that spells the special token {shorten(token.text)} becomes that token by the "
                "tokenizer's own merges, so that whoever writes a message could forge one; it is not loaded"
            )


def _spelling(tokenizer_config: Fields, key: str) -> str:
    value = tokenizer_config.raw(key)
    if isinstance(value, dict):
        value = value.get("content")
    if value is None:
        return ""
    if not isinstance(value, str):
        raise tokenizer_config.error(key, "a text is expected")
    return value


def _eos_ids(fields: Fields) -> list[int]:
    value = fields.raw("eos_token_id")
    ids = value if isinstance(value, list) else [] if value is None else [value]
    if not all(type(token_id) is int and token_id >= 0 for token_id in ids):
        raise fields.error("eos_token_id", "a token id, or a list of them, is expected")
    return ids
