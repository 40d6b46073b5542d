"""Loading and running a server for ``agentrt serve``."""

from __future__ import annotations

import asyncio
import signal
import socket
import time
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path

from rich.console import Console

from agentrt.cli.exit_code import ExitCode
from agentrt.config import RuntimeConfig
from agentrt.errors import ConfigError, UsageError
from agentrt.models.embedded import load_engine

try:
    from agentrt.inference.server.access import Access
    from agentrt.inference.server.app import State, make_app
    from agentrt.inference.server.models import ServedModel
    from agentrt.inference.server.serving import Listening, serve_until
except ModuleNotFoundError as error:
    raise UsageError(
        f"`agentrt serve` needs the package {error.name!r}, which is not installed: pip install 'agentrt[serve]'"
    ) from error

MAX_KEY_BYTES = 4096


@dataclass(frozen=True, slots=True)
class ServeOptions:
    host: str
    port: int
    certfile: Path | None
    keyfile: Path | None
    api_key: str | None = field(repr=False)
    drain_timeout_s: float

    def check(self) -> None:
        """Raise ConfigError for what cannot be served: half a certificate, a port that is taken."""
        if (self.certfile is None) != (self.keyfile is None):
            raise ConfigError("--certfile and --keyfile belong together; give both, or neither to serve without TLS")
        for path in (self.certfile, self.keyfile):
            if path is not None and not path.is_file():
                raise ConfigError(f"{path}: there is no such file")
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        try:
            with socket.socket(family) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind((self.host, self.port))
        except OSError as error:
            raise ConfigError(
                f"{self.host} port {self.port} cannot be listened on: {error.strerror or error}"
            ) from error

    @property
    def is_loopback(self) -> bool:
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"


def read_api_key(path: Path | None) -> str | None:
    """Return the key in a file. Raises ConfigError: it cannot be read, or holds none."""
    if path is None:
        return None
    try:
        key = path.read_bytes()[: MAX_KEY_BYTES + 1].decode().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: the API key cannot be read: {error}") from error
    if not key or len(key) > MAX_KEY_BYTES or any(character.isspace() for character in key):
        raise ConfigError(f"{path}: one line with an API key is expected")
    return key


def load_served_model(name: str, path: Path, config: RuntimeConfig) -> ServedModel:
    """Load a model and make its engine."""
    loaded = load_engine(path, config)
    return ServedModel(name, loaded.engine, loaded.model.tokenizer, loaded.model.chat_template, int(time.time()))


def run_server(model: ServedModel, options: ServeOptions, console: Console | None) -> ExitCode:
    """Serve until a signal; a second one ends at once."""
    if console is not None:
        scheme = "http" if options.certfile is None else "https"
        host = f"[{options.host}]" if ":" in options.host else options.host
        console.print(f"serving {model.name} at {scheme}://{host}:{options.port}/v1", soft_wrap=True)
        if not options.is_loopback and options.api_key is None:
            console.print(
                f"warning: {options.host} can be reached from other machines and asks for no key; see --api-key-file",
                soft_wrap=True,
            )
    return asyncio.run(_serve(model, options))


async def _serve(model: ServedModel, options: ServeOptions) -> ExitCode:
    state = State()
    app = make_app({model.name: model}, access=Access(options.api_key), state=state)
    listening = Listening(options.host, options.port, options.certfile, options.keyfile, options.drain_timeout_s)
    loop = asyncio.get_running_loop()
    code = ExitCode.SUCCEEDED
    ended = asyncio.Event()
    # A task of its own: hypercorn cancels what is left of its connections, and that must not reach this one.
    server = asyncio.create_task(serve_until(app, listening, ended.wait))

    def end(number: signal.Signals) -> None:
        nonlocal code
        if ended.is_set():
            code = ExitCode.INTERRUPTED if number == signal.SIGINT else ExitCode.TERMINATED
            server.cancel()
        state.is_draining = True
        ended.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, end, number)
    try:
        await asyncio.wait([server])
        if not server.cancelled():
            server.result()
    finally:
        server.cancel()
        await model.engine.aclose()
    return code
