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
        list[str] | None,
        typer.Argument(metavar="FILE...", help="DAG files, or folders to search for .yaml and .yml files."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")] = False,
    as_sarif: Annotated[bool, typer.Option("--sarif", help="Print a SARIF 2.1.0 log, as code hosts read it.")] = False,
    tools: Annotated[
        list[str] | None,
        typer.Option("--tools", metavar="PYTHON", help="Import a .py file or a module for its tools; repeatable."),
    ] = None,
    codes: Annotated[
        list[str] | None,
        typer.Option("--explain", metavar="CODE", help="Explain a code with an example. Arguments are further codes."),
    ] = None,
    debug: DebugOption = False,
) -> None:
    """Check DAG files without running them. Exits with 2 when one of them is wrong."""
    from agentrt.errors import UsageError

    if codes:
        if as_json or as_sarif:
            raise UsageError("--explain prints text; leave --json and --sarif away")
        _explain([*codes, *(paths or [])])
        return
    if not paths:
        raise UsageError("nothing to check: name a DAG file or a folder, '.' for this one")
    if as_json and as_sarif:
        raise UsageError("--json and --sarif exclude each other: only one of them can go to stdout")
    checked = _check_files(paths, tools or [])
    if as_json or as_sarif:
        _print_json(checked, as_sarif=as_sarif)
    else:
        _print_text(checked)
    if any(file.is_wrong for file in checked):
        raise typer.Exit(ExitCode.USAGE)


def _check_files(paths: list[str], tools: list[str]) -> list[CheckedFile]:
    from agentrt.cli.checked import check_one, find_files
    from agentrt.cli.tool_files import load_tools
    from agentrt.config import RuntimeConfig
    from agentrt.models.facts import ModelFileFacts
    from agentrt.tools.builtin import builtin_tools
    from agentrt.tools.registry import ToolRegistry

    registry = ToolRegistry([*builtin_tools(), *load_tools(tools)])
    models = ModelFileFacts(RuntimeConfig.from_env())
    return [check_one(path, registry, models) for path in find_files(paths)]


def _explain(given: list[str]) -> None:
    from rich.console import Console

    from agentrt.cli.diagnostics import code_named, print_explanation
    from agentrt.declare.explanations import EXPLANATIONS

    # All of them are looked up first: a mistyped one is told alone, not below what the others mean.
    codes = list(dict.fromkeys(code_named(name) for name in given))
    console = Console(markup=False, highlight=False, emoji=False)
    for number, code in enumerate(codes):
        if number:
            console.print()
        print_explanation(console, EXPLANATIONS[code])


def _print_json(checked: list[CheckedFile], *, as_sarif: bool) -> None:
    import json

    if as_sarif:
        from pathlib import Path

        from agentrt import __version__
        from agentrt.cli.sarif import checked_to_sarif

        print(json.dumps(checked_to_sarif(checked, version=__version__, folder=Path.cwd()), indent=2))
    else:
        from agentrt.cli.checked import checked_to_json

        print(json.dumps(checked_to_json(checked)))


def _print_text(checked: list[CheckedFile]) -> None:
    from rich.console import Console
    from rich.text import Text

    from agentrt.cli.checked import all_diagnostics
    from agentrt.cli.diagnostics import count_of, diagnostic_text, where_explained

    console = Console(markup=False, highlight=False, emoji=False)
    found = all_diagnostics(checked)
    for diagnostic in found:
        console.print(diagnostic_text(diagnostic), soft_wrap=True)
    if found and console.is_terminal:
        console.print(Text(where_explained(found), "dim"), soft_wrap=True)
    files = f"{len(checked)} file{'' if len(checked) == 1 else 's'}"
    told = sum(bool(file.diagnostics) for file in checked)
    where = f" in {told} of them" if found and len(checked) > 1 else ""
    style = "red" if any(file.is_wrong for file in checked) else "yellow" if found else "green"
    console.print(Text(f"{files} checked: {count_of(found)}{where}", style), soft_wrap=True)
