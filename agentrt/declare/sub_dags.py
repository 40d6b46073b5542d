"""The files that a DAG file uses: found beside it, read once each, never in a circle.

A path is relative to the folder of the file that names it, and stays inside the folder of the first file, links followed:
a DAG file is data, and must not make its reader open what it chooses elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from agentrt.declare.codes import Code
from agentrt.declare.fields import Fields
from agentrt.declare.limits import MAX_FILE_BYTES, MAX_SUB_DAG_DEPTH, MAX_SUB_DAGS
from agentrt.errors import Diagnostic, Place

if TYPE_CHECKING:
    from agentrt.declare.dag import Dag


class Reading(Protocol):
    @property
    def dag(self) -> Dag | None: ...
    @property
    def diagnostics(self) -> tuple[Diagnostic, ...]: ...


class SubDags:
    """Loads the files that one file uses. ``chain``: the files on the way to it, itself last."""

    def __init__(
        self,
        read: Callable[[bytes, str, Path, SubDags], Reading],
        base_dir: Path | None,
        chain: tuple[Path, ...] = (),
        *,
        root: Path | None = None,
        known: dict[Path, Dag | None] | None = None,
    ) -> None:
        self._read = read
        self._base_dir = base_dir
        self._chain = chain
        self._root = root or base_dir
        self._known: dict[Path, Dag | None] = {} if known is None else known

    def load(self, fields: Fields, source: str, place: Place) -> Dag | None:
        """Read the Dag of a file; what is wrong with it is noted, and None is returned when nothing can be read."""
        path = self._find(fields, source, place)
        if path is None:
            return None
        if path in self._chain:
            circle = " uses ".join(repr(file.name) for file in (*self._chain[self._chain.index(path) :], path))
            fields.note(Code.SUB_DAG_RECURSION, f"a Dag cannot use itself: {circle}", place)
            return None
        if path in self._known:
            return self._known[path]
        if len(self._chain) >= MAX_SUB_DAG_DEPTH or len(self._known) >= MAX_SUB_DAGS:
            limits = f"{MAX_SUB_DAG_DEPTH} in a row and {MAX_SUB_DAGS} in all may be used"
            message = f"{source!r:.80} is one file too many: {limits}"
            fields.note(Code.SUB_DAG_TOO_DEEP, message, place)
            return None
        self._known[path] = None
        try:
            with path.open("rb") as file:
                data = file.read(MAX_FILE_BYTES + 1)
        except OSError as error:
            fields.note(Code.SUB_DAG_UNREADABLE, f"{source!r:.80} cannot be read: {error.strerror or error}", place)
            return None
        shown = str(Path(place.file).parent / source)
        inner = SubDags(self._read, path.parent, (*self._chain, path), root=self._root, known=self._known)
        reading = self._read(data, shown, path.parent, inner)
        fields.extend(reading.diagnostics)
        self._known[path] = None if reading.diagnostics else reading.dag
        return self._known[path]

    def _find(self, fields: Fields, source: str, place: Place) -> Path | None:
        reason = hint = None
        if self._base_dir is None or self._root is None:
            reason, hint = "this text is in no folder", "pass base_dir to parse_dag"
        elif "\0" in source or not source.strip():
            reason = "that is no path"
        elif Path(source).is_absolute():
            reason, hint = "the path is absolute", "write it from the folder of this file"
        else:
            try:
                path = (self._base_dir / source).resolve()
            except (OSError, RuntimeError) as error:
                reason = str(error)
            else:
                if not path.is_relative_to(self._root):
                    reason = f"it is outside the folder {str(self._root)!r}"
                elif not path.is_file():
                    reason = "there is no such file"
                else:
                    return path
        fields.note(Code.SUB_DAG_UNREADABLE, f"the Dag {source!r:.80} cannot be used: {reason}", place, hint=hint)
        return None
