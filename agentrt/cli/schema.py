"""``agentrt schema``: the JSON Schema of the DAG file format, for an editor."""

from __future__ import annotations

from typing import Annotated

import typer

from agentrt.cli.invocation import DebugOption


def schema(
    out: Annotated[str, typer.Option("--out", metavar="FILE", help="Write it into a file; - writes to stdout.")] = "-",
    debug: DebugOption = False,
) -> None:
    """Print the JSON Schema of DAG files, for editors."""
    from pathlib import Path

    from agentrt.declare.file_schema import file_schema_text
    from agentrt.errors import UsageError

    text = file_schema_text()
    if out == "-":
        print(text, end="")
        return
    try:
        Path(out).write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"--out {out}: {error.strerror or error}") from error
