"""Fixtures that several folders of tests share."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def model_path() -> Path:
    """The default model's file, fetched once into the user's cache folder (or AGENTRT_CACHE_DIR). It never skips."""
    from agentrt.config import RuntimeConfig
    from agentrt.models.catalog import CATALOG
    from agentrt.models.download import pull

    return pull(CATALOG["smollm2-135m"], RuntimeConfig.from_env().models_dir)


@pytest.fixture(scope="session")
def tiny_gguf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A whole model in a GGUF file of some hundred kilobytes; see tests/support/model_files.py."""
    from tests.support.model_files import write_tiny_gguf

    path = tmp_path_factory.mktemp("model") / "tiny.gguf"
    write_tiny_gguf(path)
    return path
