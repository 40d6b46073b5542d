"""A corpus: passages in a file or a folder, read with bounds and with every fault told by its line.

JSON lines: one object a line with ``text`` and, if wanted, ``id`` and ``title``. A folder: each ``.md`` and ``.txt`` file
in it is a passage, with its first heading or its name as the title.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentrt.errors import ToolError, nearest_match

MAX_CORPUS_BYTES = 64 * 2**20
MAX_PASSAGES = 200_000


Fingerprint = tuple[tuple[str, int, int], ...]
"""Name, time of change and size of every file a corpus consists of: what changes when the corpus does."""


@dataclass(frozen=True, slots=True)
class Passage:
    id: str
    title: str
    text: str


def locate(name: str, base_dir: Path | None) -> Path:
    """Return the file or folder that ``name`` stands for.

    With ``base_dir`` (the folder of a DAG file) a corpus must lie inside it, links followed: a file that somebody was sent
    is not to read what lies elsewhere on the machine.

    Raises:
        ToolError: it lies outside, or there is nothing of that name.
    """
    try:
        path = (Path(name) if base_dir is None else base_dir / name).resolve()
        inside = base_dir is None or path.is_relative_to(base_dir.resolve())
        exists = path.exists()
    except (OSError, ValueError, RuntimeError) as error:
        raise ToolError(f"corpus {name!r:.200} cannot be opened: {error}") from error
    if not inside:
        raise ToolError(f"corpus {name!r:.200} lies outside the DAG file's folder {base_dir}; put it beside the file")
    if not exists:
        beside = [entry.name for entry in path.parent.iterdir()] if path.parent.is_dir() else []
        match = nearest_match(path.name, beside)
        hint = f"; did you mean {match!r}?" if match else ""
        raise ToolError(f"there is no corpus {name!r:.200} in {path.parent}{hint}")
    return path


def fingerprint(path: Path) -> Fingerprint:
    """Return what tells one state of a corpus from another.

    Raises:
        ToolError: a file went away meanwhile.
    """
    try:
        return tuple(
            (file.name, status.st_mtime_ns, status.st_size)
            for file in (_files_in(path) if path.is_dir() else [path])
            for status in [file.stat()]
        )
    except OSError as error:
        raise ToolError(f"the corpus {path} cannot be read: {error.strerror or error}") from error


def read_corpus(path: Path) -> list[Passage]:
    """Read all passages.

    Raises:
        ToolError: too large, not UTF-8, or a line that holds no passage; tells which.
    """
    found = _from_folder(path) if path.is_dir() else _from_lines(_text_of(path, MAX_CORPUS_BYTES), path)
    passages = list(found)
    if not passages:
        raise ToolError(f"the corpus {path} holds no passages")
    if len(passages) > MAX_PASSAGES:
        raise ToolError(f"the corpus {path} holds {len(passages)} passages; {MAX_PASSAGES} are allowed")
    return passages


def _text_of(path: Path, max_bytes: int) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(max_bytes + 1)
    except OSError as error:
        raise ToolError(f"the corpus {path} cannot be read: {error.strerror or error}") from error
    if len(data) > max_bytes:
        raise ToolError(f"the corpus {path} is larger than {MAX_CORPUS_BYTES // 2**20} MiB; split it")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ToolError(f"{path}:{line}: the corpus is not UTF-8 (byte at offset {error.start})") from error


def _from_lines(text: str, path: Path) -> Iterator[Passage]:
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            item = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise ToolError(f"{path}:{number}: this line is no JSON: {error}") from error
        yield _passage(item, path, number)


def _passage(item: Any, path: Path, number: int) -> Passage:
    if not isinstance(item, dict) or not isinstance(item.get("text"), str):
        raise ToolError(f"{path}:{number}: expected an object with a text under 'text'")
    title, key = item.get("title", ""), item.get("id", str(number))
    if not isinstance(title, str) or not isinstance(key, str | int):
        raise ToolError(f"{path}:{number}: 'title' must be a text, 'id' a text or a number")
    return Passage(str(key), title, item["text"])


def _files_in(folder: Path) -> list[Path]:
    """Return the files of a folder that are passages, by name. A link may lead out of the folder: it is none of them."""
    return [
        path
        for path in sorted(folder.iterdir())
        if path.suffix in (".md", ".txt") and not path.is_symlink() and path.is_file()
    ]


def _from_folder(folder: Path) -> Iterator[Passage]:
    left = MAX_CORPUS_BYTES
    for path in _files_in(folder):
        text = _text_of(path, left)
        left -= len(text.encode())
        first = text.lstrip().partition("\n")[0]
        title = first.lstrip("# ").strip() if first.startswith("#") else path.stem
        yield Passage(path.name, title, text)
