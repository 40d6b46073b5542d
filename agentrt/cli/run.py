"""``agentrt run``: read a DAG file, run it, print its outputs and where the time went."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from agentrt.cli.invocation import DebugOption

if TYPE_CHECKING:
    from agentrt.declare.dag import Dag
    from agentrt.tools.registry import ToolRegistry


def run(
    file: Annotated[str, typer.Argument(metavar="FILE", help="The DAG file to run.")],
    inputs: Annotated[
        list[str] | None,
        typer.Option("--input", "-i", metavar="NAME=VALUE", help="An input of the Dag; may be repeated."),
    ] = None,
    input_file: Annotated[
        str | None,
        typer.Option("--input-file", metavar="FILE", help="Inputs as a JSON or YAML mapping; - reads stdin."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")] = False,
    deadline: Annotated[
        str | None,
        typer.Option("--deadline", metavar="DURATION", help="Stop the run after this time, e.g. 500ms or 2s."),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option("--model", metavar="NAME", help="The model of every agent, whatever the file says."),
    ] = None,
    tools: Annotated[
        list[str] | None,
        typer.Option("--tools", metavar="PYTHON", help="Import a .py file or a module for its tools; repeatable."),
    ] = None,
    trace: Annotated[
        bool | None, typer.Option("--trace/--no-trace", help="Record the run (default), or leave no trace of it.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Approve whatever a Dag asks a person for.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress and no times.")] = False,
    debug: DebugOption = False,
) -> None:
    """Run a Dag: outputs go to stdout, progress and times to stderr."""
    from agentrt.cli.approval import approver
    from agentrt.cli.fetching import fetch_models
    from agentrt.cli.inputs import given_inputs
    from agentrt.cli.run_to_end import Presentation, run_to_end
    from agentrt.cli.tool_files import load_tools
    from agentrt.cli.watch import stderr_console
    from agentrt.compile.inputs import bind_inputs
    from agentrt.compile.plan import plan
    from agentrt.config import RuntimeConfig
    from agentrt.run.wiring import Runtime
    from agentrt.tools.builtin import builtin_tools
    from agentrt.tools.registry import ToolRegistry

    deadline_s = None if deadline is None else _seconds(deadline)
    config = RuntimeConfig.from_env(model=None if model is None else _absolute(model), trace=trace)
    own_tools = load_tools(tools or [])
    registry = ToolRegistry([*builtin_tools(), *own_tools])
    dag = _checked(file, registry)
    if model is not None:
        dag = _with_model(dag)
    given = given_inputs(inputs or [], input_file)
    bound = bind_inputs(dag, given, coerce_text=True)
    planned = plan(dag, registry, known_inputs=bound)
    fetch_models(dag, config, None if quiet else stderr_console())
    code = run_to_end(
        Runtime(config, tools=own_tools, approver=approver(approve_all=yes)),
        planned,
        # Defaults are left to the Runtime, which binds again.
        {name: bound[name] for name in given},
        deadline_s=deadline_s,
        presentation=Presentation(as_json=as_json, quiet=quiet),
    )
    raise typer.Exit(code)


def _checked(file: str, tools: ToolRegistry) -> Dag:
    """Return the Dag of a file; everything that is wrong in it is told at once."""
    from agentrt.compile.check import check_file
    from agentrt.errors import DeclarationError, Severity

    dag, diagnostics = check_file(file, tools)
    if dag is None or any(diagnostic.severity is Severity.ERROR for diagnostic in diagnostics):
        raise DeclarationError(diagnostics)
    return dag


def _seconds(text: str) -> float:
    from agentrt.declare.duration import parse_duration
    from agentrt.errors import UsageError

    try:
        return parse_duration(text)
    except ValueError as error:
        raise UsageError(f"--deadline: {error}") from error


def _with_model(dag: Dag) -> Dag:
    """Return the Dag, and those inside it, with no model of their own, so that the configured one serves every agent."""
    from dataclasses import replace

    from agentrt.declare.call import Call, DagCall, Fallback

    def changed(call: Call) -> Call:
        return replace(call, dag=_with_model(call.dag)) if isinstance(call, DagCall) else call

    def fallback_of(fallback: Fallback | None) -> Fallback | None:
        return fallback if fallback is None or fallback.call is None else Fallback(call=changed(fallback.call))

    return replace(
        dag,
        agents={name: replace(agent, model=None) for name, agent in dag.agents.items()},
        actions={
            name: replace(action, call=changed(action.call), fallback=fallback_of(action.fallback))
            for name, action in dag.actions.items()
        },
    )


def _absolute(model: str) -> str:
    """Return a path as seen from here; in a DAG file's own agents paths start from its folder."""
    from pathlib import Path

    from agentrt.models.catalog import CATALOG

    path = Path(model).expanduser()
    return str(path.absolute()) if model not in CATALOG and path.exists() else model
