"""The command line, called in this process or as a real one, with folders of its own and no settings from outside."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]

TOOLS = """
import signal
import subprocess
import sys
import threading
import time

import anyio

from agentrt.tools.tool import tool


@tool(effects="none")
def say(text: str) -> str:
    return text


@tool(effects="none")
def value(kind: str) -> object:
    return {"nan": float("nan"), "bytes": b"\\xff", "set": {1, 2}, "object": object, "surrogate": "\\ud800"}[kind]


@tool(effects="none")
def fail(text: str) -> str:
    raise ValueError(text)


@tool(effects="none")
def noisy() -> str:
    print("printed by a tool")
    subprocess.run([sys.executable, "-c", "print('printed by a child')"], check=True)
    return "quiet"


@tool(effects="none")
async def wait_for_ever() -> str:
    await anyio.sleep_forever()


@tool(effects="none")
async def wait_and_tell() -> str:
    print("waiting", flush=True)
    await anyio.sleep_forever()


@tool(effects="none")
def thread_for_ever() -> str:
    print("in a thread", flush=True)
    threading.Event().wait()


@tool(effects="none")
async def hold_the_loop() -> str:
    before = signal.getsignal(signal.SIGINT)

    def on_signal(number, frame):
        before(number, frame)
        print("interrupted", flush=True)

    signal.signal(signal.SIGINT, on_signal)
    print("holding the loop", flush=True)
    while True:
        time.sleep(0.01)
"""

_HEAD = "name: test\ninputs:\n  text: {type: string, default: hello}\n  number: {type: integer, default: 3}\n"


@dataclass(frozen=True)
class Ended:
    code: int
    out: str
    err: str


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to work in, with ``my_tools.py`` in it."""
    for name in [name for name in os.environ if name.startswith(("AGENTRT_", "OTEL_"))]:
        monkeypatch.delenv(name)
    for name in ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AGENTRT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("AGENTRT_DATA_DIR", str(tmp_path / "data"))
    work = tmp_path / "work"
    work.mkdir()
    (work / "my_tools.py").write_text(TOOLS)
    monkeypatch.chdir(work)
    return work


@pytest.fixture
def write_dag(folder: Path) -> Callable[..., str]:
    """Write a DAG file whose actions are ``{name: what it does}`` in YAML's flow form; return its name."""

    def write(name: str = "dag.yaml", *, outputs: str, extra: str = "", **actions: str) -> str:
        lines = "".join(f"  {action}: {does}\n" for action, does in actions.items())
        (folder / name).write_text(f"{_HEAD}{extra}outputs: {outputs}\nactions:\n{lines}")
        return name

    return write


@pytest.fixture
def cli(folder: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Ended]:
    """Call the command line in this process."""
    from agentrt.cli.main import call

    # Importing a user's tools adds their folder and their module.
    monkeypatch.setattr(sys, "path", list(sys.path))

    def run(*arguments: str) -> Ended:
        modules = set(sys.modules)
        code = call(arguments)
        for name in set(sys.modules) - modules:
            if name.startswith(("my_", "agentrt_tools_")):
                del sys.modules[name]
        return Ended(code, *capfd.readouterr())

    return run


@pytest.fixture
def start_cli(folder: Path) -> Any:
    """Start the command line as a real process; what still runs at the end of the test is killed."""
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: str, **options: Any) -> subprocess.Popen[str]:
        path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        environ = {**os.environ, "PYTHONPATH": path, **options.pop("env", {})}
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        process = subprocess.Popen(
            [sys.executable, "-m", "agentrt", *arguments], env=environ, text=True, **{**pipes, **options}
        )
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                stream.close()
