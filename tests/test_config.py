"""Settings: what wins, and what is said of a wrong one."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from agentrt.config import RuntimeConfig
from agentrt.errors import ConfigError


def test_an_explicit_argument_wins_over_the_environment_and_that_over_the_default() -> None:
    """Arguments that are None were not given."""
    environ = {"AGENTRT_MODEL": "from-env", "AGENTRT_TRACE": "no", "PATH": "/bin"}
    config = RuntimeConfig.from_env(environ, model="explicit", trace=None)
    assert (config.model, config.trace) == ("explicit", False)
    assert RuntimeConfig.from_env({}).model == "smollm2-135m"


def test_every_setting_can_be_set_in_the_environment() -> None:
    """Each field has its variable, parsed into the field's type."""
    environ = {
        "AGENTRT_CACHE_DIR": "/c",
        "AGENTRT_DATA_DIR": "~/d",
        "AGENTRT_MODEL": "m",
        "AGENTRT_MAX_CONCURRENCY": "3",
        "AGENTRT_ENGINE_THREADS": "2",
        "AGENTRT_KV_CACHE_BYTES": "64MiB",
        "AGENTRT_TRACE": "off",
        "AGENTRT_TRACE_CONTENT": "1",
    }
    config = RuntimeConfig.from_env(environ)
    assert len(environ) == len(fields(RuntimeConfig))
    assert config == RuntimeConfig(Path("/c"), Path("~/d").expanduser(), "m", 3, 2, 64 * 2**20, False, True)
    assert config.trace_db.is_relative_to(config.data_dir)
    assert config.models_dir.is_relative_to(config.cache_dir)


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("AGENTRT_MODLE", "x", "did you mean AGENTRT_MODEL"),
        ("AGENTRT_ZZZ", "x", "known settings"),
        ("AGENTRT_TRACE", "maybe", "expected true or false"),
        ("AGENTRT_MAX_CONCURRENCY", "0", "at least 1"),
        ("AGENTRT_MAX_CONCURRENCY", "many", "a whole number"),
        ("AGENTRT_KV_CACHE_BYTES", "1 parsec", "a whole number"),
        ("AGENTRT_MODEL", " ", "empty"),
    ],
)
def test_a_wrong_setting_is_told_with_its_name_and_value(name: str, value: str, says: str) -> None:
    """A misspelt or malformed setting stops the start; it is never ignored."""
    with pytest.raises(ConfigError) as caught:
        RuntimeConfig.from_env({name: value})
    assert name in str(caught.value)
    assert says in str(caught.value)


def test_every_setting_is_in_the_docs() -> None:
    """The page of the command line lists all of them."""
    page = (Path(__file__).resolve().parent.parent / "docs" / "cli.md").read_text()
    for field in fields(RuntimeConfig):
        assert f"AGENTRT_{field.name.upper()}" in page


def test_folders_follow_the_xdg_convention(monkeypatch: pytest.MonkeyPatch) -> None:
    """Caches and data lie where the user's system keeps them."""
    monkeypatch.setenv("XDG_CACHE_HOME", "/x/cache")
    monkeypatch.setenv("XDG_DATA_HOME", "/x/data")
    config = RuntimeConfig.from_env({})
    assert (config.cache_dir, config.data_dir) == (Path("/x/cache/agentrt"), Path("/x/data/agentrt"))
