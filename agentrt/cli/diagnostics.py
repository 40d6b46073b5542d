"""Diagnostics for a reader: one line each, and their number."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from agentrt.cli.printable import one_line
from agentrt.errors import Diagnostic, Severity

_STYLES = {Severity.ERROR: "bold red", Severity.WARNING: "bold yellow"}


def count_of(diagnostics: Sequence[Diagnostic]) -> str:
    """Return ``2 errors, 1 warning``."""
    counts = []
    for severity in Severity:
        number = sum(1 for diagnostic in diagnostics if diagnostic.severity is severity)
        if number:
            counts.append(f"{number} {severity.value}{'' if number == 1 else 's'}")
    return ", ".join(counts) or "nothing wrong"


def diagnostic_text(diagnostic: Diagnostic) -> Text:
    """Return a diagnostic as one coloured line; without colours it reads as ``str(diagnostic)``."""
    text = Text()
    if diagnostic.place is not None:
        text.append(f"{one_line(str(diagnostic.place))}: ", "bold")
    text.append(f"{diagnostic.severity.value} {diagnostic.code}", _STYLES[diagnostic.severity])
    text.append(f": {one_line(diagnostic.message)}")
    if diagnostic.hint:
        text.append(f" ({one_line(diagnostic.hint)})", "cyan")
    return text
