"""`agentrt serve` as a process: it comes up, answers, and ends as it says."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest

from tests.support.http_servers import unused_port

WAIT_S = 60.0


@contextmanager
def serving(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "agentrt", "serve", *arguments], stderr=subprocess.PIPE, text=True, env=dict(os.environ)
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def wait_until_up(process: subprocess.Popen[str], url: str) -> None:
    end = time.monotonic() + WAIT_S
    while time.monotonic() < end:
        assert process.poll() is None, process.communicate()[1]
        try:
            if httpx2.get(f"{url}/health").status_code == 200:
                return
        except httpx2.TransportError:
            time.sleep(0.05)
    raise AssertionError("the server did not come up")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_streams_end_and_exits_with_0(tiny_gguf: Path, number: signal.Signals) -> None:
    """A stream that runs when the signal comes is finished; new connections are not taken; the exit code is 0."""
    port = unused_port()
    url = f"http://127.0.0.1:{port}"
    with serving("--model", str(tiny_gguf), "--port", str(port), "--threads", "1") as process:
        wait_until_up(process, url)
        body = {"model": str(tiny_gguf), "prompt": "Hi", "max_tokens": 400, "ignore_eos": True, "stream": True}
        with httpx2.stream("POST", f"{url}/v1/completions", json=body, timeout=WAIT_S) as answer:
            lines = answer.iter_lines()
            next(lines)
            process.send_signal(number)
            assert [line for line in lines if line][-1] == "data: [DONE]"
        assert process.wait(WAIT_S) == 0
        assert process.stderr is not None
        assert f"serving {tiny_gguf} at {url}/v1" in process.stderr.read()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--certfile", "x.pem"], "--certfile and --keyfile belong together"),
        (["--certfile", "x.pem", "--keyfile", "y.pem"], "x.pem: there is no such file"),
        (["--api-key-file", "no-such-file"], "no-such-file: the API key cannot be read"),
        (["--host", "203.0.113.7"], "203.0.113.7 port"),
        (["--model", "no-such-model"], "no-such-model"),
    ],
)
def test_what_cannot_be_served_is_said(tmp_path: Path, arguments: list[str], message: str) -> None:
    """A mistake of the caller's is one line on stderr and exit code 2, before anything is loaded."""
    port = str(unused_port())
    command = [sys.executable, "-m", "agentrt", "serve", "--port", port, *arguments]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment, check=False)
    assert done.returncode == 2
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_port_that_is_taken_is_said(tiny_gguf: Path) -> None:
    """Another server on the port is the caller's to know: exit code 2, and the port in the text."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        command = [sys.executable, "-m", "agentrt", "serve", "--model", str(tiny_gguf), "--port", str(port)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert f"127.0.0.1 port {port} cannot be listened on" in done.stderr
