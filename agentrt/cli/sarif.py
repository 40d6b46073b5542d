"""What ``agentrt check`` found as SARIF 2.1.0, which code hosts read to show diagnostics beside the changed lines.

One run, one result for each diagnostic, and a rule with its explanation for each code that was found. Files are named
relative to the folder the command was called in, so that a host finds them in its checkout; one outside of it by its full
address. The same files give the same text, byte for byte: nothing of the machine or the time is in it.

Format: OASIS, "Static Analysis Results Interchange Format (SARIF) Version 2.1.0", sections 3.13 to 3.52.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from agentrt.cli.checked import CheckedFile, all_diagnostics
from agentrt.cli.json_form import to_json
from agentrt.declare.codes import Code
from agentrt.declare.explanations import EXPLANATIONS
from agentrt.errors import Diagnostic, Place

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"


def checked_to_sarif(checked: Sequence[CheckedFile], *, version: str, folder: Path) -> dict[str, Any]:
    """Return the SARIF log of ``checked``. ``version`` is agentrt's own; ``folder`` is what paths are relative to."""
    found = all_diagnostics(checked)
    codes = sorted({diagnostic.code for diagnostic in found})
    log: dict[str, Any] = to_json(
        {
            "$schema": SCHEMA,
            "version": "2.1.0",
            "runs": [
                {
                    "tool": {
                        "driver": {
                            "name": "agentrt",
                            "version": version,
                            "rules": [_rule(Code(code)) for code in codes],
                        }
                    },
                    "columnKind": "unicodeCodePoints",
                    "results": [_result(diagnostic, codes.index(diagnostic.code), folder) for diagnostic in found],
                }
            ],
        }
    )
    return log


def _rule(code: Code) -> dict[str, Any]:
    explanation = EXPLANATIONS[code]
    return {
        "id": code,
        "name": "".join(word.capitalize() for word in code.name.split("_")),
        "shortDescription": {"text": explanation.title},
        "fullDescription": {"text": explanation.text},
        "help": {"text": explanation.plain, "markdown": explanation.markdown},
        "defaultConfiguration": {"level": code.severity},
    }


def _result(diagnostic: Diagnostic, rule_index: int, folder: Path) -> dict[str, Any]:
    hint = f" ({diagnostic.hint})" if diagnostic.hint else ""
    result: dict[str, Any] = {
        "ruleId": diagnostic.code,
        "ruleIndex": rule_index,
        "level": diagnostic.severity,
        "message": {"text": f"{diagnostic.message}{hint}"},
    }
    if diagnostic.place is not None:
        result["locations"] = [{"physicalLocation": _location(diagnostic.place, folder)}]
    return result


def _location(place: Place, folder: Path) -> dict[str, Any]:
    location: dict[str, Any] = {"artifactLocation": _artifact(place.file, folder)}
    if place.line is not None:
        location["region"] = {"startLine": place.line}
        if place.column is not None:
            location["region"]["startColumn"] = place.column
    return location


def _artifact(file: str, folder: Path) -> dict[str, str]:
    # Only the way is tidied: a link is named as the caller named it, which is where the host has the file.
    path = Path(os.path.normpath(Path(folder, file)))
    if path.is_relative_to(folder):
        return {"uri": quote(os.fsencode(path.relative_to(folder).as_posix())), "uriBaseId": "%SRCROOT%"}
    return {"uri": "file://" + quote(os.fsencode(path.as_posix()))}
