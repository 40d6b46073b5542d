"""YAML bytes as a stream of events: what PyYAML reads, with every way it can fail made one diagnostic with its place.

libyaml, the C parser behind PyYAML, reads a file ten times as fast as any parser written in Python; where PyYAML was
built without it, its own parser takes over and gives the same events. Both are of YAML 1.1, which differs from YAML 1.2
in two things that matter here. What a scalar means is no question of events: ``yaml_scalars`` answers it. And YAML 1.1
ends lines at U+0085, U+2028 and U+2029, which to YAML 1.2, to editors and to users are characters like any other: they
are handed to the parser as private characters the file does not use, and come back out of it as themselves.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

from agentrt.declare.codes import Code, diagnose
from agentrt.declare.limits import MAX_FILE_BYTES, MAX_YAML_DEPTH
from agentrt.errors import DeclarationError, Place

if TYPE_CHECKING:
    from yaml.error import MarkedYAMLError

_LINE_END = re.compile(r"\r\n|\r|\n")
_OLD_LINE_ENDS = "\x85\u2028\u2029"
_UNACCEPTABLE = re.compile("[^\t\n\r -~\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_TAG_DIRECTIVE = re.compile(r"^%TAG\b", re.MULTILINE)
_MAX_TAG_DIRECTIVES = 100
"""libyaml compares each with all before it: a file full of them takes seconds."""


def failure(code: Code, message: str, place: Place, *, hint: str | None = None) -> DeclarationError:
    """Make the error that says why there is nothing to go on with."""
    return DeclarationError([diagnose(code, message, place, hint=hint)])


def decode(data: bytes, file: str) -> str:
    """Return the text of a file.

    Raises:
        DeclarationError: it is too large, or not UTF-8.
    """
    if len(data) > MAX_FILE_BYTES:
        message = f"the file has {len(data):,} bytes; a DAG file may have {MAX_FILE_BYTES:,}"
        raise failure(Code.FILE_TOO_LARGE, message, Place(file), hint="keep data in files of its own")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = data[: error.start]
        place = Place(file, before.count(b"\n") + 1, error.start - (before.rfind(b"\n") + 1) + 1)
        message = f"byte 0x{data[error.start]:02x} at offset {error.start} is not UTF-8"
        raise failure(Code.NOT_UTF8, message, place, hint="save the file as UTF-8") from None


def lines_of(text: str) -> list[str]:
    """Return the lines of a text as YAML 1.2 counts them."""
    return _LINE_END.split(text)


def read_events(text: str, file: str) -> Iterator[Any]:
    """Go through the events of a text: PyYAML's, their scalars as they stand in the text.

    Raises:
        DeclarationError: it is not YAML, or more of it than anybody means.
    """
    import yaml

    if len(found := list(islice(_TAG_DIRECTIVE.finditer(text), _MAX_TAG_DIRECTIVES))) == _MAX_TAG_DIRECTIVES:
        place = Place(file, len(lines_of(text[: found[0].start()])), 1)
        raise failure(Code.YAML_FEATURE, "tags are not used in DAG files", place, hint="remove the lines '%TAG'")
    hidden = _hidden_line_ends(text)
    back = {stand_in: character for character, stand_in in hidden.items()}
    loader = yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader
    shown = text.translate(hidden) if hidden else text
    try:
        for event in yaml.parse(shown, Loader=loader):
            if back and isinstance(event, yaml.ScalarEvent):
                event.value = event.value.translate(back)
            yield event
    except yaml.reader.ReaderError:
        raise _unacceptable_character(text, file) from None
    except yaml.MarkedYAMLError as error:
        raise _syntax_error(error, text, file) from None
    except Exception as error:
        # The parser written in Python has corners where malformed input ends in a plain Python error.
        raise failure(Code.YAML_SYNTAX, f"this is not YAML ({type(error).__name__})", Place(file)) from None


def _hidden_line_ends(text: str) -> dict[int, int]:
    """Give each character that only YAML 1.1 takes for a line end a private character the text does not hold."""
    found = [ord(character) for character in _OLD_LINE_ENDS if character in text]
    if not found:
        return {}
    used = set(text)
    # A file has too few bytes to hold all of these.
    unused = (code for code in range(0xF0000, 0x110000) if chr(code) not in used)
    return dict(zip(found, islice(unused, len(found)), strict=True))


def _unacceptable_character(text: str, file: str) -> DeclarationError:
    # The parsers tell it by offset, one in bytes and one in characters; looking for it again is simpler.
    found = _UNACCEPTABLE.search(text)
    if found is None:
        return failure(Code.YAML_SYNTAX, "this is not YAML: it holds a character that is not allowed", Place(file))
    lines = lines_of(text[: found.start()])
    code = ord(found[0])
    message = f"this is not YAML: the character U+{code:04X} is not allowed"
    hint = f'in a text in double quotes write "\\x{code:02x}"' if code < 0x100 else None
    return failure(Code.YAML_SYNTAX, message, Place(file, len(lines), len(lines[-1]) + 1), hint=hint)


def _syntax_error(error: MarkedYAMLError, text: str, file: str) -> DeclarationError:
    mark = error.problem_mark or error.context_mark
    problem = " ".join((error.problem or error.context or "malformed").split())
    if mark is None:
        return failure(Code.YAML_SYNTAX, f"this is not YAML: {problem}", Place(file))
    lines = lines_of(text)
    line, column = mark.line, mark.column
    if line >= len(lines):
        # libyaml ends a last line that has no end.
        line, column = len(lines) - 1, len(lines[-1])
    place = Place(file, line + 1, column + 1)
    if "nesting depth" in problem:
        return failure(Code.TOO_DEEP, f"nested deeper than {MAX_YAML_DEPTH} levels", place)
    character = lines[line][column : column + 1]
    hint = None
    if "cannot start any token" in problem:
        problem = f"{character!r} cannot begin anything"
        hint = "indent with spaces" if character == "\t" else f"a text that begins with {character!r} needs quotes"
    elif "mapping values are not allowed" in problem:
        hint = "a text with ': ' in it needs quotes"
    elif error.context_mark is not None and error.context_mark.line < line:
        context = " ".join((error.context or "").split()).removeprefix("while ")
        hint = f"this happened {context} that begins on line {error.context_mark.line + 1}"
    return failure(Code.YAML_SYNTAX, f"this is not YAML: {problem}", place, hint=hint)
