"""How every command ends: exit codes, one-line errors, and what is loaded on the way."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import agentrt
from agentrt.cli.exit_code import ExitCode, exit_code_of
from agentrt.errors import (
    ActionError,
    ConfigError,
    DeadlineError,
    DownloadError,
    InputError,
    RequestError,
    TraceStoreError,
)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigError("x"), 2),
        (InputError("x"), 2),
        (RequestError("x"), 2),
        (ActionError("a", "x"), 1),
        (DownloadError("x"), 1),
        (TraceStoreError("x"), 1),
        (DeadlineError(1.0, []), 3),
        (RuntimeError("x"), 1),
    ],
)
def test_an_exit_code_says_whose_fault_it_was(error: Exception, code: int) -> None:
    """2 for the caller's mistakes, 3 for a deadline, 1 for everything else that failed."""
    assert exit_code_of(error) == code


def test_version(cli: Callable[..., Any]) -> None:
    """``--version`` names the program and the version of the package."""
    ended = cli("--version")
    assert (ended.code, ended.out) == (0, f"agentrt {agentrt.__version__}\n")


@pytest.mark.parametrize("command", [(), ("run",), ("check",), ("models",), ("models", "pull"), ("trace",)])
@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_every_command_has_help(cli: Callable[..., Any], command: tuple[str, ...], flag: str) -> None:
    """Both spellings of help work everywhere and go to stdout."""
    ended = cli(*command, flag)
    assert ended.code == 0
    assert ended.out.startswith(f"Usage: {' '.join(('agentrt', *command))} ")


@pytest.mark.parametrize("arguments", [("nope",), ("run",), ("run", "x.yaml", "--nope"), ("trace", "show")])
def test_a_malformed_command_line_exits_with_2(cli: Callable[..., Any], arguments: tuple[str, ...]) -> None:
    """An unknown command or option, or a missing argument, is the caller's mistake and is told on stderr."""
    ended = cli(*arguments)
    assert (ended.code, ended.out) == (ExitCode.USAGE, "")
    assert "Usage: agentrt" in ended.err


def test_a_misspelt_setting_is_one_line(cli: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """An unknown AGENTRT_ name stops every command that reads settings, with the nearest match."""
    monkeypatch.setenv("AGENTRT_CACHEDIR", "/tmp")
    ended = cli("models", "list")
    assert ended.code == ExitCode.USAGE
    assert ended.err == (
        "error: unknown setting AGENTRT_CACHEDIR in the environment (did you mean AGENTRT_CACHE_DIR?)\n"
    )


@pytest.mark.parametrize("position", ["before", "after"])
def test_debug_shows_where_it_went_wrong(cli: Callable[..., Any], position: str) -> None:
    """``--debug`` adds the traceback before the line, wherever it stands; without it there is none."""
    plain = cli("run", "nowhere.yaml")
    debug = cli(*(("--debug", "run") if position == "before" else ("run", "--debug")), "nowhere.yaml")
    assert "Traceback" not in plain.err
    assert "Traceback (most recent call last)" in debug.err
    assert debug.err.endswith(plain.err)


def test_a_fault_of_our_own_is_one_line_with_a_hint(cli: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """An exception nobody expected names its type and how to see more, and exits with 1."""

    def broken(*_: Any, **__: Any) -> None:
        raise LookupError("lost\nfor good")

    monkeypatch.setattr("agentrt.config.RuntimeConfig.from_env", broken)
    ended = cli("models", "list")
    assert ended.code == ExitCode.FAILED
    assert ended.err == "error: LookupError: lost for good (agentrt --debug COMMAND shows where)\n"


def test_ctrl_c_outside_a_run_exits_with_130(cli: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """An interrupt during any other command ends it without a traceback."""

    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("agentrt.config.RuntimeConfig.from_env", interrupted)
    ended = cli("models", "list")
    assert (ended.code, ended.err) == (ExitCode.INTERRUPTED, "")


@pytest.mark.parametrize("arguments", [("--help",), ("run", "--help"), ("check", "--help"), ("--version",)])
def test_help_loads_nothing_heavy(folder: Path, arguments: tuple[str, ...]) -> None:
    """Help answers without loading what only a run needs."""
    code = (
        "import sys\nfrom agentrt.cli.main import call\ncall(sys.argv[1:])\n"
        "print(sorted({m.partition('.')[0] for m in sys.modules}), file=sys.stderr)"
    )
    environ = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    ended = subprocess.run(
        [sys.executable, "-c", code, *arguments], env=environ, check=True, capture_output=True, text=True
    )
    for heavy in ("torch", "numpy", "opentelemetry", "jsonschema", "yaml", "rich", "anyio", "httpx"):
        assert f"'{heavy}'" not in ended.stderr


def test_a_reader_that_goes_away_is_no_error(start_cli: Any) -> None:
    """``agentrt ... | head`` ends without a traceback."""
    read, write = os.pipe()
    os.close(read)
    process = start_cli("models", "list", "--json", stdout=write)
    os.close(write)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (ExitCode.FAILED, "")
