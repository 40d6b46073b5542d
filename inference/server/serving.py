"""Running the application: sockets, HTTP/1.1 and HTTP/2, and an end that lets streams finish.

Hypercorn does the protocols: it speaks HTTP/2 with and without TLS, in the event loop of the process that has the engine.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from hypercorn.asyncio import serve
from hypercorn.config import Config
from starlette.applications import Starlette

MAX_HEADER_BYTES = 32 * 1024


@dataclass(frozen=True, slots=True)
class Listening:
    """Where to listen. ``certfile`` and ``keyfile`` (PEM) turn on TLS. ``drain_timeout_s``: how long streams may go on
    when the server ends."""

    host: str = "127.0.0.1"
    port: int = 8000
    certfile: Path | None = None
    keyfile: Path | None = None
    drain_timeout_s: float = 30.0


async def serve_until(app: Starlette, listening: Listening, ended: Callable[[], Awaitable[object]]) -> None:
    """Serve until ``ended`` returns, then until all streams are over or the drain timeout has passed."""
    config = Config()
    host = f"[{listening.host}]" if ":" in listening.host else listening.host
    config.bind = [f"{host}:{listening.port}"]
    if listening.certfile is not None:
        config.certfile = str(listening.certfile)
        config.keyfile = str(listening.keyfile)
    config.graceful_timeout = listening.drain_timeout_s
    config.shutdown_timeout = listening.drain_timeout_s
    config.keep_alive_timeout = 120.0
    config.h11_max_incomplete_size = MAX_HEADER_BYTES
    config.h2_max_header_list_size = MAX_HEADER_BYTES
    config.include_server_header = False
    config.accesslog = None
    config.errorlog = None
    await serve(app, config, shutdown_trigger=ended)  # type: ignore[arg-type]
