"""``agentrt plan``: what would be run of a DAG file, in which order, and what would not and why; as text or a picture."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from agentrt.cli.invocation import DebugOption

if TYPE_CHECKING:
    from agentrt.compile.plan import Plan
    from agentrt.declare.dag import Dag
    from agentrt.errors import Diagnostic
    from agentrt.tools.registry import ToolRegistry


def plan(
    file: Annotated[str, typer.Argument(metavar="FILE", help="The DAG file to plan.")],
    inputs: Annotated[
        list[str] | None,
        typer.Option("--input", "-i", metavar="NAME=VALUE", help="An input that is known already; may be repeated."),
    ] = None,
    tools: Annotated[
        list[str] | None,
        typer.Option("--tools", metavar="PYTHON", help="Import a .py file or a module for its tools; repeatable."),
    ] = None,
    prune: Annotated[bool, typer.Option("--prune/--no-prune", help="Leave out what is useless.")] = True,
    show_pruned: Annotated[bool, typer.Option("--show-pruned", help="Draw what is left out too, in grey.")] = False,
    as_mermaid: Annotated[bool, typer.Option("--mermaid", help="Print a Mermaid flowchart.")] = False,
    as_dot: Annotated[bool, typer.Option("--dot", help="Print a graph for Graphviz.")] = False,
    svg: Annotated[
        str | None, typer.Option("--svg", metavar="OUT", help="Draw a picture into a file; - writes to stdout.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")] = False,
    debug: DebugOption = False,
) -> None:
    """Show what a Dag comes to: its order, and what is left out and why."""
    from agentrt.cli.tool_files import load_tools
    from agentrt.cli.watch import stderr_console
    from agentrt.compile import plan as planning
    from agentrt.errors import UsageError
    from agentrt.tools.builtin import builtin_tools
    from agentrt.tools.registry import ToolRegistry

    formats = {"--mermaid": as_mermaid, "--dot": as_dot, "--svg": svg is not None, "--json": as_json}
    chosen = [name for name, is_chosen in formats.items() if is_chosen]
    if len(chosen) > 1:
        raise UsageError(f"{' and '.join(chosen)}: only one form can be written at a time")
    registry = ToolRegistry([*builtin_tools(), *load_tools(tools or [])])
    dag, diagnostics = _checked(file, registry)
    planned = planning.plan(dag, registry, known_inputs=_known(dag, inputs or []), prune=prune)
    if diagnostics:
        from agentrt.cli.diagnostics import diagnostic_text

        console = stderr_console()
        for diagnostic in diagnostics:
            console.print(diagnostic_text(diagnostic), soft_wrap=True)
    _show(planned, chosen[0] if chosen else "", svg, show_pruned=show_pruned)


def _show(planned: Plan, form: str, out: str | None, *, show_pruned: bool) -> None:
    from agentrt.cli import plan_view
    from agentrt.compile import draw

    match form:
        case "--mermaid":
            print(draw.to_mermaid(planned, show_pruned=show_pruned), end="")
        case "--dot":
            print(draw.to_dot(planned, show_pruned=show_pruned), end="")
        case "--json":
            import json

            print(json.dumps(plan_view.plan_to_json(planned)))
        case "--svg":
            from agentrt.compile.draw_svg import to_svg

            assert out is not None
            _write(to_svg(planned, show_pruned=show_pruned), out)
        case _:
            from rich.console import Console

            console = Console(markup=False, highlight=False, emoji=False)
            for line in plan_view.plan_lines(planned):
                console.print(line, soft_wrap=True)


def _checked(file: str, tools: ToolRegistry) -> tuple[Dag, tuple[Diagnostic, ...]]:
    """Return the Dag of a file and the warnings about it; everything that is wrong in it is told at once."""
    from agentrt.compile.check import check_file
    from agentrt.errors import DeclarationError, Severity

    dag, diagnostics = check_file(file, tools)
    if dag is None or any(diagnostic.severity is Severity.ERROR for diagnostic in diagnostics):
        raise DeclarationError(diagnostics)
    return dag, diagnostics


def _known(dag: Dag, pairs: list[str]) -> dict[str, object]:
    """Return the values of the inputs that are given; a run may give others than the defaults of the rest."""
    from dataclasses import replace

    from agentrt.cli.inputs import given_inputs
    from agentrt.compile.inputs import bind_inputs

    given = given_inputs(pairs, None)
    declared = {name: replace(one, required=False) for name, one in dag.inputs.items()}
    bound = bind_inputs(replace(dag, inputs=declared), given, coerce_text=True)
    return {name: bound[name] for name in given}


def _write(picture: str, out: str) -> None:
    from pathlib import Path

    from agentrt.errors import UsageError

    if out == "-":
        print(picture, end="")
        return
    try:
        Path(out).write_text(picture, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"--svg {out}: {error.strerror or error}") from error
