"""``agentrt check``: everything that is wrong in DAG files, without running them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from agentrt.cli.exit_code import ExitCode
from agentrt.cli.invocation import DebugOption

if TYPE_CHECKING:
    from agentrt.cli.checked import CheckedFile


def check(
    paths: Annotated[
        list[str], typer.Argument(metavar="FILE...", help="DAG files, or folders to search for .yaml and .yml files.")
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")] = False,
    tools: Annotated[
        list[str] | None,
        typer.Option("--tools", metavar="PYTHON", help="Import a .py file or a module for its tools; repeatable."),
    ] = None,
    debug: DebugOption = False,
) -> None:
    """Check DAG files without running them. Exits with 2 when one of them is wrong."""
    from agentrt.cli.checked import check_one, find_files
    from agentrt.cli.tool_files import load_tools
    from agentrt.tools.builtin import builtin_tools
    from agentrt.tools.registry import ToolRegistry

    registry = ToolRegistry([*builtin_tools(), *load_tools(tools or [])])
    checked = [check_one(path, registry) for path in find_files(paths)]
    if as_json:
        import json

        from agentrt.cli.checked import checked_to_json

        print(json.dumps(checked_to_json(checked)))
    else:
        _print(checked)
    if any(file.is_wrong for file in checked):
        raise typer.Exit(ExitCode.USAGE)


def _print(checked: list[CheckedFile]) -> None:
    from rich.console import Console
    from rich.text import Text

    from agentrt.cli.diagnostics import count_of, diagnostic_text

    console = Console(markup=False, highlight=False, emoji=False)
    found = [diagnostic for file in checked for diagnostic in file.diagnostics]
    for diagnostic in found:
        console.print(diagnostic_text(diagnostic), soft_wrap=True)
    num_files, num_wrong = len(checked), sum(file.is_wrong for file in checked)
    files = f"{num_files} file{'' if num_files == 1 else 's'}"
    style = "red" if num_wrong else "yellow" if found else "green"
    console.print(Text(f"{files} checked: {count_of(found)}", style), soft_wrap=True)
