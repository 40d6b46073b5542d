"""DAG files and what is wrong with them, for ``agentrt check``."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentrt.cli.json_form import to_json
from agentrt.compile.check import check_file
from agentrt.compile.context_fit import ModelFacts
from agentrt.errors import Diagnostic, Severity, UsageError
from agentrt.tools.registry import ToolRegistry

DAG_SUFFIXES = (".yaml", ".yml")


@dataclass(frozen=True, slots=True)
class CheckedFile:
    path: str
    dag: str | None
    """The Dag's name, where the file could be read that far."""
    num_actions: int
    diagnostics: tuple[Diagnostic, ...]

    @property
    def is_wrong(self) -> bool:
        return any(diagnostic.severity is Severity.ERROR for diagnostic in self.diagnostics)


def find_files(paths: Iterable[str]) -> list[str]:
    """Return the files that ``paths`` name: a file as it is, a folder as the DAG files in and below it, in order.

    Hidden folders are left out. A file named twice is checked once.

    Raises:
        UsageError: a folder without a DAG file.
    """
    found: dict[str, None] = {}
    for path in paths:
        if not os.path.isdir(path):
            found[path] = None
            continue
        inside: list[str] = []
        for folder, folders, files in os.walk(path):
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            inside += [str(Path(folder, name)) for name in sorted(files) if name.endswith(DAG_SUFFIXES)]
        if not inside:
            raise UsageError(f"{path}: there is no .yaml or .yml file in this folder")
        found.update(dict.fromkeys(inside))
    return list(found)


def check_one(path: str, tools: ToolRegistry, models: ModelFacts) -> CheckedFile:
    """Read a DAG file and check what could be read of it."""
    dag, diagnostics = check_file(path, tools, models=models)
    return CheckedFile(
        path, dag.name if dag is not None else None, len(dag.actions) if dag is not None else 0, diagnostics
    )


def all_diagnostics(checked: Iterable[CheckedFile]) -> list[Diagnostic]:
    """Return what is wrong in any of the files, once each: what is wrong in a file is told by those that use it as well."""
    return list(dict.fromkeys(diagnostic for file in checked for diagnostic in file.diagnostics))


def checked_to_json(checked: Sequence[CheckedFile]) -> dict[str, Any]:
    found = all_diagnostics(checked)
    return {
        "num_files": len(checked),
        "num_errors": sum(diagnostic.severity is Severity.ERROR for diagnostic in found),
        "num_warnings": sum(diagnostic.severity is Severity.WARNING for diagnostic in found),
        "files": [
            {
                "path": to_json(file.path),
                "dag": to_json(file.dag),
                "num_actions": file.num_actions,
                "diagnostics": [_diagnostic_to_json(diagnostic) for diagnostic in file.diagnostics],
            }
            for file in checked
        ],
    }


def _diagnostic_to_json(diagnostic: Diagnostic) -> dict[str, Any]:
    place = diagnostic.place
    form: dict[str, Any] = to_json(
        {
            "severity": diagnostic.severity,
            "code": diagnostic.code,
            "message": diagnostic.message,
            "hint": diagnostic.hint,
            "file": place.file if place else None,
            "line": place.line if place else None,
            "column": place.column if place else None,
        }
    )
    return form
