"""Servers are data: commands filled in, programs found or said to be missing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.peers.servers import described_server, find_program, llama_server


def test_llama_server_gets_context_for_all_its_slots() -> None:
    """`-c` is the context of all slots together."""
    server = llama_server("llama-server Q4_1", Path("/opt/llama-server"), Path("/models/a.gguf"))
    command = server.command_line(port=8080, threads=2, slots=32, slot_context=768)
    assert command[:3] == ["/opt/llama-server", "-m", "/models/a.gguf"]
    options = dict(zip(command[3:-3:2], command[4:-3:2], strict=True))
    assert {name: options[name] for name in ("--port", "-t", "-tb", "-np", "-c")} == {
        "--port": "8080", "-t": "2", "-tb": "2", "-np": "32", "-c": str(32 * 768),
    }  # fmt: skip


def test_a_program_that_is_not_there_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a wrong path nor an empty PATH is an error; the caller says what is missing."""
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_program("llama-server", None) is None
    assert find_program("llama-server", tmp_path / "llama-server") is None


def test_a_server_may_be_described_in_a_file(tmp_path: Path) -> None:
    """Any server that speaks the dialect can be measured without code."""
    path = tmp_path / "other.json"
    path.write_text(json.dumps({"name": "other", "command": ["serve", "{model}", "{port}"], "model_file": "/m"}))
    server = described_server(path)
    assert server.command_line(port=1, threads=2, slots=1, slot_context=768) == ["serve", "/m", "1"]


@pytest.mark.parametrize("text", ["", "[]", '{"command": ["serve"]}', '{"name": "a", "command": ["b"], "colour": 1}'])
def test_a_file_that_describes_no_server_is_one_clear_line(tmp_path: Path, text: str) -> None:
    """It names the file."""
    path = tmp_path / "other.json"
    path.write_text(text)
    with pytest.raises(SystemExit, match=r"other\.json: does not describe a server"):
        described_server(path)
