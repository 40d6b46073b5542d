"""``agentrt trace``: the runs that were recorded on this machine."""

from __future__ import annotations

from typing import Annotated

import typer

from agentrt.cli.invocation import DebugOption
from agentrt.run.events import RunStatus

trace_app = typer.Typer(help="Look at recorded runs.", no_args_is_help=True)


@trace_app.command("list")
def list_runs(
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="Show at most this many runs.")] = 20,
    dag: Annotated[str | None, typer.Option("--dag", help="Only runs of this Dag.")] = None,
    status: Annotated[RunStatus | None, typer.Option("--status", help="Only runs that ended so.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    debug: DebugOption = False,
) -> None:
    """List the latest runs, latest first."""
    from agentrt.config import RuntimeConfig
    from agentrt.trace.store import TraceStore

    store = TraceStore(RuntimeConfig.from_env().trace_db)
    runs = store.list_runs(limit, dag=dag, status=None if status is None else status.value)
    if as_json:
        import json

        from agentrt.cli.trace_view import summary_to_json

        print(json.dumps({"runs": [summary_to_json(run) for run in runs]}))
        return
    from rich.console import Console

    from agentrt.cli.trace_view import print_runs

    if not runs:
        which = " such" if dag is not None or status is not None else ""
        Console(stderr=True).print(f"no{which} runs in {store.path}", soft_wrap=True, markup=False)
        return
    print_runs(runs, Console())


@trace_app.command("show")
def show_run(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run's id, how it begins, or 'last'.")],
    tokens: Annotated[bool, typer.Option("--tokens", help="Show every token as well.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    debug: DebugOption = False,
) -> None:
    """Draw a run as a waterfall: where its time went, with TTFT and ITL told apart."""
    from agentrt.config import RuntimeConfig
    from agentrt.trace.store import TraceStore

    trace = TraceStore(RuntimeConfig.from_env().trace_db).load_run(run)
    if as_json:
        import json

        from agentrt.cli.trace_view import trace_to_json

        print(json.dumps(trace_to_json(trace, with_tokens=tokens)))
        return
    from rich.console import Console

    from agentrt.cli.trace_view import print_trace

    print_trace(trace, Console(), with_tokens=tokens)
