"""Building the C++ library: once, whole or not at all, and what is said where it cannot be had."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentrt.errors import EngineError
from agentrt.inference import weights
from agentrt.inference.cpu import build
from agentrt.inference.cpu.library import Library
from agentrt.inference.models.llama import LlamaModel


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def tiny_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Sources that compile in no time; not the library's."""
    folder = tmp_path / "cpu" / "native"
    folder.mkdir(parents=True)
    (folder / "one.cpp").write_text('extern "C" int agentrt_cpu_abi() { return 0; }\n')
    monkeypatch.setattr(build, "SOURCES", folder)
    build._fingerprint.cache_clear()
    yield folder
    build._fingerprint.cache_clear()


def test_it_is_built_once(tiny_sources: Path, own_cache: Path) -> None:
    """The first call compiles into the cache folder, the second finds it; changed sources are another library."""
    assert build.needs_build()
    first = build.find_library()
    made = first.stat().st_mtime_ns
    assert not build.needs_build()
    assert build.find_library() == first
    assert first.stat().st_mtime_ns == made
    (tiny_sources / "one.cpp").write_text('extern "C" int agentrt_cpu_abi() { return 7; }\n')
    build._fingerprint.cache_clear()
    assert build.find_library() != first
    assert {path.suffix for path in (own_cache / "agentrt" / "native").iterdir()} == {".so"}


def test_a_wheels_own_library_comes_first(tiny_sources: Path) -> None:
    """Where the package was installed with a library, nothing is compiled."""
    installed = tiny_sources.parent / build.LIBRARY_NAME
    installed.write_bytes(b"")
    assert not build.needs_build()
    assert build.find_library() == installed


def test_a_compiler_that_fails_leaves_nothing(tiny_sources: Path, own_cache: Path) -> None:
    """What the compiler said is in the error, and no half of a library stays behind."""
    (tiny_sources / "one.cpp").write_text("this is no C++\n")
    with pytest.raises(EngineError, match=r"compiling the CPU engine failed: .*one\.cpp:1"):
        build.find_library()
    assert list((own_cache / "agentrt" / "native").iterdir()) == []


def test_a_folder_that_cannot_be_written_is_said(tiny_sources: Path, own_cache: Path) -> None:
    """A cache folder that is a file, as good as a read-only one, is an error with its path."""
    own_cache.write_text("")
    with pytest.raises(EngineError, match=r"cannot be kept there: .*XDG_CACHE_HOME"):
        build.find_library()


def test_without_a_compiler_torch_serves_and_it_is_said_once(
    tiny_gguf: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """No library and no compiler: models load on the slower path, with one warning however many are loaded."""
    monkeypatch.setattr(weights, "load_library", build.find_library)
    monkeypatch.setattr(build, "LIBRARY_NAME", "no-such-library.so")
    monkeypatch.setenv("CXX", "no-such-compiler")
    weights._has_library.cache_clear()
    try:
        assert not build.needs_build()
        with caplog.at_level(logging.WARNING):
            assert isinstance(weights.load_model(tiny_gguf).model, LlamaModel)
            weights.load_model(tiny_gguf)
    finally:
        weights._has_library.cache_clear()
    (told,) = [record.message for record in caplog.records if "C++ compiler" in record.message]
    assert told.startswith("models run on the slower torch path: no C++ compiler was found (no-such-compiler)")


def test_another_version_is_refused(tiny_sources: Path, tmp_path: Path) -> None:
    """A library without the functions, a damaged one and a missing one are errors that say what to do."""
    with pytest.raises(EngineError, match="is no library of this engine"):
        Library(build.find_library())
    damaged = tmp_path / "damaged.so"
    damaged.write_bytes(b"\x7fELF")
    for path in (damaged, tmp_path / "missing.so"):
        with pytest.raises(EngineError, match="delete it, and it is built anew"):
            Library(path)
