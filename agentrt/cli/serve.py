"""``agentrt serve``: a model behind OpenAI's API."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from agentrt.cli.invocation import DebugOption


def serve(
    model: Annotated[
        str | None, typer.Option(help="A name from `agentrt models list`, a path, or hf:owner/name.")
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on.", min=1, max=65535)] = 8000,
    threads: Annotated[int | None, typer.Option(help="Threads of the engine; by default one a core.", min=1)] = None,
    kv_cache_mib: Annotated[int | None, typer.Option(help="Memory for keys and values, in MiB.", min=1)] = None,
    certfile: Annotated[Path | None, typer.Option(help="Certificate chain (PEM); turns on TLS.")] = None,
    keyfile: Annotated[Path | None, typer.Option(help="Private key (PEM) of the certificate.")] = None,
    api_key_file: Annotated[Path | None, typer.Option(help="File that holds the key callers must send.")] = None,
    drain_timeout: Annotated[float, typer.Option(help="Seconds that streams may go on after SIGTERM.", min=0)] = 30.0,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")] = False,
    debug: DebugOption = False,
) -> None:
    """Serve a model behind OpenAI's API.

    It speaks HTTP/1.1 and HTTP/2 until SIGINT or SIGTERM; then running streams may end first.
    """
    from agentrt.cli.fetching import fetch, prepare_engine
    from agentrt.cli.serving import ServeOptions, load_served_model, read_api_key, run_server
    from agentrt.cli.watch import stderr_console
    from agentrt.config import RuntimeConfig
    from agentrt.models.catalog import resolve

    kv_cache_bytes = None if kv_cache_mib is None else kv_cache_mib * 2**20
    config = RuntimeConfig.from_env(engine_threads=threads, kv_cache_bytes=kv_cache_bytes)
    options = ServeOptions(host, port, certfile, keyfile, read_api_key(api_key_file), drain_timeout)
    options.check()
    console = None if quiet else stderr_console()
    source = resolve(model or config.model, config)
    path = fetch(source, console)
    prepare_engine(console)
    if console is not None:
        console.print(f"loading {source.name} ...", soft_wrap=True)
    served = load_served_model(source.name, path, config)
    raise typer.Exit(run_server(served, options, console))
