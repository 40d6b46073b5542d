"""``agentrt models``: the model files of this machine."""

from __future__ import annotations

from typing import Annotated

import typer

from agentrt.cli.invocation import DebugOption

models_app = typer.Typer(help="List and fetch models.", no_args_is_help=True)


@models_app.command("list")
def list_catalog(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    debug: DebugOption = False,
) -> None:
    """List the models that can be named without a path, and which of them are on this machine."""
    from agentrt.cli.json_form import to_json
    from agentrt.config import RuntimeConfig
    from agentrt.models.catalog import list_models

    config = RuntimeConfig.from_env()
    entries = list_models(config)
    if as_json:
        import json

        forms = [{**to_json(entry), "is_default": entry.name == config.model} for entry in entries]
        print(json.dumps({"models": forms}))
        return
    from rich.console import Console
    from rich.text import Text

    console = Console(markup=False, highlight=False, emoji=False)
    name_width = max(len(entry.name) for entry in entries)
    for entry in entries:
        line = Text().append(f"{entry.name:<{name_width}}", "bold").append(f"  {entry.size_bytes / 1e6:>6.0f} MB  ")
        line.append(f"{'pulled' if entry.pulled else 'not pulled':<10}", "green" if entry.pulled else "dim")
        line.append(f"  {entry.license}").append("  (default)" if entry.name == config.model else "", "cyan")
        console.print(line, soft_wrap=True)
        console.print(Text(f"  {entry.description}", "dim"), soft_wrap=True)


@models_app.command("pull")
def pull_model(
    name: Annotated[
        str | None,
        typer.Argument(metavar="[NAME]", help="A name from the list, or hf:owner/name; by default the default model."),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")] = False,
    debug: DebugOption = False,
) -> None:
    """Fetch a model, unless it is there already, and print where it is."""
    from agentrt.cli.fetching import fetch
    from agentrt.cli.watch import stderr_console
    from agentrt.config import RuntimeConfig
    from agentrt.models.catalog import resolve

    config = RuntimeConfig.from_env()
    print(fetch(resolve(name or config.model, config), None if quiet else stderr_console()))
