"""``agentrt schema``."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

Cli = Callable[..., Any]
SHIPPED = files("agentrt.declare").joinpath("dag.schema.json")


def test_it_prints_what_the_package_ships(cli: Cli) -> None:
    """stdout is the schema and nothing else, so it can be piped."""
    ended = cli("schema")
    assert (ended.code, ended.err) == (0, "")
    assert json.loads(ended.out)["title"] == "agentrt DAG file"
    assert ended.out == SHIPPED.read_text("utf-8")


def test_it_writes_a_file(cli: Cli, folder: Path) -> None:
    """With --out nothing is printed; a dash means stdout."""
    ended = cli("schema", "--out", "dag.schema.json")
    assert (ended.code, ended.out, ended.err) == (0, "", "")
    assert (folder / "dag.schema.json").read_text("utf-8") == SHIPPED.read_text("utf-8")
    assert cli("schema", "--out", "-").out == SHIPPED.read_text("utf-8")


def test_a_file_that_cannot_be_written_is_the_callers_mistake(cli: Cli) -> None:
    """It ends with 2 and one line that names the file and the reason."""
    ended = cli("schema", "--out", os.path.join("missing", "dag.schema.json"))
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.splitlines() == ["error: --out missing/dag.schema.json: No such file or directory"]


@pytest.mark.parametrize("arguments", [("schema", "surplus"), ("schema", "--output", "x")])
def test_what_it_does_not_know_is_refused(cli: Cli, arguments: tuple[str, ...]) -> None:
    """A misspelt option writes nothing."""
    ended = cli(*arguments)
    assert (ended.code, ended.out) == (2, "")
