"""The inputs of a run as a command line gives them: ``--input name=text`` and ``--input-file``."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from agentrt.errors import DeclarationError, InputError


def given_inputs(pairs: Sequence[str], file: str | None) -> dict[str, Any]:
    """Return the inputs by name; ``--input`` wins over the file.

    Raises:
        InputError: a pair without ``=``, a name given twice, or a file that holds no mapping.
    """
    inputs = read_input_file(file) if file is not None else {}
    named: dict[str, str] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not name.strip():
            raise InputError(f"--input {pair!r:.80}: expected name=value, for instance --input question='...'")
        if name in named:
            raise InputError(f"--input {name} is given twice: {named[name]!r:.40} and {text!r:.40}")
        named[name] = text
    return {**inputs, **named}


def read_input_file(file: str) -> dict[str, Any]:
    """Read a JSON or YAML mapping from a file, or from stdin when it is ``-``.

    Raises:
        InputError: it cannot be read, or is no mapping with text keys.
    """
    shown = "stdin" if file == "-" else file
    try:
        data = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except OSError as error:
        raise InputError(f"--input-file {shown}: {error.strerror or error}") from error
    value = _parse(data, shown)
    if not isinstance(value, dict):
        raise InputError(f"--input-file {shown}: expected a mapping of input names to values, got {_kind(value)}")
    return value


def _parse(data: bytes, shown: str) -> Any:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"--input-file {shown}: byte {error.start} is not UTF-8") from error
    if not text.strip():
        raise InputError(f"--input-file {shown}: it is empty")
    if text.lstrip().startswith(("{", "[")):
        try:
            return json.loads(text)
        except (ValueError, RecursionError) as error:
            # Braces may begin a YAML mapping as well; when it is none either, JSON was meant.
            try:
                return _parse_yaml(data, shown)
            except InputError:
                raise InputError(f"--input-file {shown}: this is not JSON: {error}") from error
    return _parse_yaml(data, shown)


def _parse_yaml(data: bytes, shown: str) -> Any:
    from agentrt.declare.yaml_nodes import read_yaml

    try:
        node, diagnostics = read_yaml(data, shown)
    except DeclarationError as error:
        diagnostics = list(error.diagnostics)
    if diagnostics:
        first = diagnostics[0]
        raise InputError(f"--input-file {first.place or shown}: {first.message}")
    return node.plain()


def _kind(value: Any) -> str:
    match value:
        case list():
            return "a list"
        case str():
            return "a text"
        case Mapping():
            return "a mapping"
        case None:
            return "nothing"
    return f"{value!r:.40}"
