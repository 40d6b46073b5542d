"""``agentrt models``."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from agentrt.cli.fetching import fetch, fetch_models
from agentrt.config import RuntimeConfig
from agentrt.declare.dag_file import parse_dag
from agentrt.errors import UnknownModelError
from agentrt.models.catalog import CATALOG, ModelSource
from agentrt.models.download import Progress

Cli = Callable[..., Any]


def test_the_list_tells_what_is_there(cli: Cli) -> None:
    """Each model with its size, whether it was pulled, its licence, and which one is the default."""
    ended = cli("models", "list")
    assert ended.code == 0
    assert ended.out.startswith("smollm2-135m      98 MB  not pulled  Apache-2.0  (default)\n")


def test_the_list_as_json(cli: Cli) -> None:
    """One JSON object; a model that is not there has no path."""
    (model,) = json.loads(cli("models", "list", "--json").out)["models"]
    assert (model["name"], model["path"], model["is_default"]) == ("smollm2-135m", None, True)
    assert model["size_bytes"] == CATALOG["smollm2-135m"].member_size_bytes


def test_pulling_an_unknown_model_is_the_callers_mistake(cli: Cli) -> None:
    """The error names what there is; nothing is fetched."""
    ended = cli("models", "pull", "smolm2-135m")
    assert (ended.code, ended.out) == (2, "")
    assert "did you mean smollm2-135m?" in ended.err


def test_pulling_prints_where_the_file_is(cli: Cli, folder: Path) -> None:
    """A path that is there already is printed and nothing is fetched; a script can use the output."""
    (folder / "own.gguf").write_bytes(b"GGUF")
    ended = cli("models", "pull", "./own.gguf")
    assert (ended.code, ended.err) == (0, "")
    assert Path(ended.out.strip()).samefile(folder / "own.gguf")


def _reports(*reports: tuple[int, int | None]) -> ModelSource:
    def fetch_it(progress: Progress | None) -> Path:
        for num_bytes, num_total_bytes in reports:
            assert progress is not None
            progress(num_bytes, num_total_bytes)
        return Path("model.gguf")

    return ModelSource("big", fetch_it)


def test_a_download_in_a_log_is_two_lines() -> None:
    """One line when it begins and one when it is there, however often it reports."""
    stream = io.StringIO()
    console = Console(file=stream, width=80)
    fetch(
        _reports((0, 10_000_000), (5_000_000, 10_000_000), (10_000_000, 10_000_000), (10_000_000, 10_000_000)), console
    )
    first, second = stream.getvalue().splitlines()
    assert first == "fetching model big (10 MB) ..."
    assert second.startswith("fetched in ")


def test_a_download_on_a_terminal_is_a_bar_that_goes_away() -> None:
    """The bar shows bytes and speed, and the terminal is given back."""
    stream = io.StringIO()
    console = Console(file=stream, width=80, force_terminal=True, color_system=None)
    fetch(_reports((5_000_000, None), (5_000_000, 10_000_000)), console)
    assert "fetching model big" in stream.getvalue()
    assert "5.0/10.0 MB" in stream.getvalue()
    assert stream.getvalue().endswith("\x1b[1A\x1b[2K")


def test_nothing_is_said_when_the_file_is_there() -> None:
    """Most runs fetch nothing and see nothing of this."""
    stream = io.StringIO()
    fetch(_reports(), Console(file=stream))
    assert stream.getvalue() == ""


def test_every_name_is_resolved_before_anything_is_fetched(folder: Path) -> None:
    """A misspelt model of the last agent is found before the first agent's model is downloaded."""
    dag = parse_dag(
        "name: d\nagents:\n  first: {}\n  second: {model: nope}\n  remote: {model: {name: x, endpoint: 'http://h'}}\n"
        "actions:\n  a: {agent: first, prompt: hi}\n  b: {agent: second, prompt: hi}\n  c: {agent: remote, prompt: hi}\n"
        "outputs: {a: '{{ actions.a.output }}'}\n"
    )
    config = RuntimeConfig(cache_dir=folder / "cache")
    with pytest.raises(UnknownModelError, match="nope"):
        fetch_models(dag, config, None)
    assert not (folder / "cache").exists()
