"""The servers that are measured, as data: how each is started, when it is ready, what it wants in a request.

One server is up at a time. Each run starts a fresh process, warms it, measures it and ends it: an idle neighbour would
hold memory and cache, and llama.cpp's threads poll for work after a batch; its slots and context have to fit the case
anyway; and a fresh process's peak memory is that of the one case. Servers take turns within each repeat instead, in an
order that rotates, so that what else the machine does falls on all of them.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from benchmarks.peers.exchange import HOST

READY_WITHIN_S = 300.0
STOPPED_WITHIN_S = 15.0


@dataclass(frozen=True, slots=True)
class Server:
    """``command`` may hold {port}, {threads}, {model} (the file), {slots} (requests at once) and {context} (tokens that
    fit all slots together). ``fields`` are added to every request. ``version``: a command that prints it."""

    name: str
    command: tuple[str, ...]
    model_file: Path | None = None
    model: str = "default"
    ready_path: str = "/health"
    fields: Mapping[str, object] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    version: tuple[str, ...] = ()

    def command_line(self, *, port: int, threads: int, slots: int, slot_context: int) -> list[str]:
        values = {"port": port, "threads": threads, "slots": slots, "context": slots * slot_context}
        return [part.format(model=self.model_file, **values) for part in self.command]

    def say_version(self) -> str:
        if not self.version:
            return "unknown"
        answer = subprocess.run(self.version, capture_output=True, text=True, check=False)
        lines = (answer.stdout + answer.stderr).strip().splitlines()
        return next((line for line in lines if "version" in line), lines[0] if lines else "unknown")


def agentrt_server() -> Server:
    python = sys.executable
    return Server(
        "agentrt",
        (python, "-m", "agentrt", "serve", "--model", "smollm2-135m", "--port", "{port}", "--threads", "{threads}"),
        model="smollm2-135m",
        version=(python, "-m", "agentrt", "--version"),
    )


def llama_server(name: str, program: Path, model_file: Path) -> Server:
    """llama.cpp's server, as fast as its options make it: a slot with enough context for each request at once, no page,
    no log, and no copies of finished slots in memory, which would cost it time and count as memory."""
    address = ("--host", HOST, "--port", "{port}")
    size = ("-t", "{threads}", "-tb", "{threads}", "-np", "{slots}", "-c", "{context}")
    extra = ("--cache-ram", "0", "--no-ui", "--log-disable", "--offline")
    return Server(
        name,
        (str(program), "-m", "{model}", *address, *size, *extra),
        model_file,
        version=(str(program), "--version"),
    )


def described_server(path: Path) -> Server:
    """Read a server from a JSON file whose keys are the fields of ``Server``. Raises SystemExit when it does not fit."""
    try:
        given = json.loads(path.read_text())
        for name in ("command", "version"):
            given[name] = tuple(given.get(name, ()))
        if given.get("model_file"):
            given["model_file"] = Path(given["model_file"])
        return Server(**given)
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise SystemExit(f"{path}: does not describe a server: {error}") from error


def find_program(name: str, given: Path | None) -> Path | None:
    """Return the program: the one given, else that of PATH, else None."""
    if given is not None:
        return given if given.is_file() and os.access(given, os.X_OK) else None
    found = shutil.which(name)
    return Path(found) if found else None


def requantise(quantise: Path, source: Path, folder: Path, kind: str = "Q4_0") -> Path:
    """Return ``source`` in another quantisation, made once by llama-quantize and kept in ``folder``."""
    target = folder / f"{source.stem}.to-{kind}.gguf"
    if not target.exists():
        folder.mkdir(parents=True, exist_ok=True)
        unfinished = target.with_suffix(".unfinished")
        command = [str(quantise), "--allow-requantize", str(source), str(unfinished), kind]
        made = subprocess.run(command, capture_output=True, text=True, check=False)
        if made.returncode != 0:
            raise SystemExit(f"{' '.join(command)} failed: {made.stderr[-500:]}")
        unfinished.rename(target)
    return target


@dataclass(frozen=True, slots=True)
class Running:
    """A server that takes requests."""

    server: Server
    port: int
    process_id: int


@contextmanager
def running(server: Server, *, threads: int, slots: int, slot_context: int) -> Iterator[Running]:
    """Start a server, wait until it is ready, and end it and what it started afterwards.

    Raises:
        RuntimeError: it ended or did not become ready; the message holds the end of what it printed.
    """
    port = _free_port()
    command = server.command_line(port=port, threads=threads, slots=slots, slot_context=slot_context)
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, **server.environment},
            start_new_session=True,
        )
        try:
            _wait_until_ready(server, process, port, log)
            yield Running(server, port, process.pid)
        finally:
            _end(process)


def _wait_until_ready(server: Server, process: subprocess.Popen[bytes], port: int, log: IO[bytes]) -> None:
    deadline = time.monotonic() + READY_WITHIN_S
    while process.poll() is None and time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(f"http://{HOST}:{port}{server.ready_path}", timeout=5) as answer:
                if answer.status == 200:
                    return
        except (urllib.error.URLError, OSError):
            pass
        time.sleep(0.1)
    log.seek(0)
    printed = log.read()[-2000:].decode(errors="replace")
    state = "is not ready" if process.poll() is None else f"ended with {process.returncode}"
    raise RuntimeError(f"{server.name} {state}; it printed:\n{printed}")


def _end(process: subprocess.Popen[bytes]) -> None:
    for which in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is None:
            os.killpg(process.pid, which)
            try:
                process.wait(STOPPED_WITHIN_S)
            except subprocess.TimeoutExpired:
                continue
            return


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind((HOST, 0))
        port: int = listener.getsockname()[1]
        return port
