"""Diagnostics for a reader: one line each, their number, and what a code means."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import fill, indent

from rich.console import Console
from rich.syntax import Syntax
from rich.text import Text

from agentrt.cli.printable import one_line
from agentrt.declare.codes import Code
from agentrt.declare.explanations import Explanation
from agentrt.errors import Diagnostic, Severity, UsageError, nearest_match

_STYLES = {Severity.ERROR: "bold red", Severity.WARNING: "bold yellow"}
_PROSE_WIDTH = 100
_MAX_CODES_NAMED = 3


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


def where_explained(diagnostics: Sequence[Diagnostic]) -> str:
    """Return the command that explains the first of the codes that were found."""
    codes = list(dict.fromkeys(diagnostic.code for diagnostic in diagnostics))
    return f"agentrt check --explain {' '.join(codes[:_MAX_CODES_NAMED])}"


def code_named(name: str) -> Code:
    """Return the code that is written so, in letters of either case.

    Raises:
        UsageError: there is none; tells the nearest.
    """
    codes = {str(code): code for code in Code}
    written = name.strip().upper()
    if written in codes:
        return codes[written]
    nearest = nearest_match(f"DAG{written.removeprefix('DAG').zfill(3)}", codes)
    hint = f"did you mean {nearest}?" if nearest else f"codes are {min(codes)} to {max(codes)}"
    raise UsageError(f"there is no code {one_line(name)!r:.60} ({hint})")


def print_explanation(console: Console, explanation: Explanation) -> None:
    """Print what a code means; plain text where the console has no colours."""
    severity = explanation.code.severity
    heading = Text.assemble(
        (f"{severity.value} {explanation.code}", _STYLES[severity]), (f": {explanation.title}", "bold")
    )
    console.print(heading, end="\n\n")
    width = min(console.width, _PROSE_WIDTH)
    prose = Text("\n\n".join(fill(paragraph, width) for paragraph in explanation.text.split("\n\n")))
    prose.highlight_regex(r"`[^`]+`", "cyan")
    console.print(prose)
    for says, example in explanation.examples:
        console.print(Text(f"\n{says}\n", "bold"))
        source = indent(example.source.rstrip(), "    ")
        lines = Syntax("", example.language, theme="ansi_dark", background_color="default").highlight(source)
        lines.rstrip()
        lines.highlight_regex(r"# <-- DAG\d+", "bold red")
        console.print(lines, soft_wrap=True)
