"""``agentrt check``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

WriteDag = Callable[..., str]
Cli = Callable[..., Any]


def test_a_good_file_says_so(cli: Cli, write_dag: WriteDag) -> None:
    """Nothing wrong: one line, exit code 0."""
    file = write_dag(
        a="{uses: tool/say, with: {text: '{{ inputs.text }} {{ inputs.number }}'}}",
        outputs="{a: '{{ actions.a.output }}'}",
    )
    ended = cli("check", file, "--tools", "my_tools.py")
    assert (ended.code, ended.out, ended.err) == (0, "1 file checked: nothing wrong\n", "")


def test_every_mistake_has_its_place_code_and_hint(cli: Cli, write_dag: WriteDag) -> None:
    """One line a mistake, all of them at once, and exit code 2."""
    file = write_dag(
        a="{uses: tool/sya, with: {text: '{{ inputs.txt }} {{ inputs.number }}'}}",
        b="{uses: tool/say, with: {text: '{{ inputs.text }}'}, needs: [A]}",
        outputs="{a: '{{ actions.a.output }}'}",
    )
    ended = cli("check", file, "--tools", "my_tools.py")
    lines = ended.out.splitlines()
    assert ended.code == 2
    assert len(lines) == 5
    assert any(line.startswith("dag.yaml:7:") and "DAG030" in line and "did you mean 'text'?" in line for line in lines)
    assert any(line.startswith("dag.yaml:7:") and "DAG040" in line and "did you mean 'say'?" in line for line in lines)
    assert any(line.startswith("dag.yaml:8:") and "DAG031" in line for line in lines)
    assert any(line.startswith("dag.yaml:8:") and "warning DAG054" in line for line in lines)
    assert lines[-1] == "1 file checked: 3 errors, 1 warning"


def test_warnings_do_not_fail(cli: Cli, write_dag: WriteDag) -> None:
    """What is only a warning is told, and the exit code stays 0."""
    file = write_dag(a="{uses: tool/say, with: {text: x}}", outputs="{a: '{{ actions.a.output }}'}")
    ended = cli("check", file, "--tools", "my_tools.py")
    assert ended.code == 0
    assert "warning DAG051" in ended.out
    assert ended.out.endswith("1 file checked: 2 warnings\n")


def test_a_folder_is_searched(cli: Cli, write_dag: WriteDag, folder: Path) -> None:
    """DAG files in and below a folder are checked in order; hidden folders are left alone."""
    (folder / "deep" / "er").mkdir(parents=True)
    (folder / ".hidden").mkdir()
    for name in ("b.yaml", "deep/er/a.yml", ".hidden/c.yaml"):
        write_dag(name, a="{uses: tool/nope}", outputs="{a: '{{ actions.a.output }}'}")
    ended = cli("check", ".", "--json")
    assert [file["path"] for file in json.loads(ended.out)["files"]] == ["b.yaml", "deep/er/a.yml"]
    assert ended.code == 2


def test_a_folder_without_dag_files_is_told(cli: Cli, folder: Path) -> None:
    """Checking nothing is not success."""
    ended = cli("check", ".")
    assert (ended.code, ended.err) == (2, "error: .: there is no .yaml or .yml file in this folder\n")


def test_json_holds_the_same(cli: Cli, write_dag: WriteDag) -> None:
    """One JSON object, with every part of a diagnostic by name."""
    file = write_dag(a="{uses: tool/nope}", outputs="{a: '{{ actions.a.output }}'}")
    report = json.loads(cli("check", file, "nowhere.yaml", "--json").out)
    assert (report["num_files"], report["num_errors"], report["num_warnings"]) == (2, 2, 2)
    first, second = report["files"]
    assert (first["dag"], first["num_actions"]) == ("test", 1)
    assert first["diagnostics"][-1] == {
        "severity": "error",
        "code": "DAG040",
        "message": "there is no tool 'nope'",
        "hint": first["diagnostics"][-1]["hint"],
        "file": "dag.yaml",
        "line": 7,
        "column": 13,
    }
    assert (second["dag"], second["diagnostics"][0]["code"]) == (None, "DAG001")


def test_text_of_a_file_cannot_control_the_terminal(cli: Cli, folder: Path) -> None:
    """Names and values in a DAG file are shown as they are."""
    (folder / "dag.yaml").write_text('"na\\e[2Jme [red]": x\n')
    out = cli("check", "dag.yaml").out
    assert "[red]" in out
    assert "\x1b" not in out


def test_checking_never_loads_torch(folder: Path, write_dag: WriteDag) -> None:
    """A check is for editors and CI: it must not pay for the engine."""
    file = write_dag(a="{prompt: 'Say {{ inputs.text }} {{ inputs.number }}'}", outputs="{a: '{{ actions.a.output }}'}")
    code = (
        "import sys\nfrom agentrt.cli.main import call\ncode = call(sys.argv[1:])\n"
        "assert 'torch' not in sys.modules\nsys.exit(code)"
    )
    path = os.pathsep.join(filter(None, [str(Path(__file__).resolve().parents[2]), os.environ.get("PYTHONPATH")]))
    ended = subprocess.run(
        [sys.executable, "-c", code, "check", file],
        env={**os.environ, "PYTHONPATH": path},
        check=False,
        capture_output=True,
        text=True,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout == "1 file checked: nothing wrong\n"


def test_what_is_wrong_in_a_used_file_is_told_once(cli: Cli, folder: Path) -> None:
    """A folder holds a file and another that uses it: its mistake is one mistake, in text and in numbers."""
    (folder / "a.yaml").write_text(
        "name: a\noutputs: {o: '{{ actions.x.output }}'}\nactions:\n  x: {uses: dag/b.yaml}\n"
    )
    (folder / "b.yaml").write_text("name: b\noutputs: {o: '{{ actions.x.output }}'}\nactions:\n  x: {prompt: 1}\n")
    ended = cli("check", ".")
    assert [line.partition(": ")[0] for line in ended.out.splitlines()[:-1]] == ["b.yaml:4:15"]
    assert ended.out.endswith("2 files checked: 1 error in 2 of them\n")
    assert json.loads(cli("check", ".", "--json").out)["num_errors"] == 1


def test_explain_shows_a_mistake_and_how_it_is_mended(cli: Cli) -> None:
    """What the page says, as plain text in a pipe, in any case of letters, and nothing is checked."""
    ended = cli("check", "--explain", "dag030")
    assert (ended.code, ended.err) == (0, "")
    lines = ended.out.splitlines()
    assert lines[0] == "error DAG030: no such input"
    assert lines[2] == "A template or guard reads an input that is not declared."
    assert '      reply: {prompt: "Answer {{ inputs.qestion }}"}  # <-- DAG030' in lines
    assert lines.index("Wrong:") < lines.index("Right:")
    assert "\x1b" not in ended.out
    assert all(line == line.rstrip() for line in lines)


def test_explain_takes_several_codes(cli: Cli) -> None:
    """In the order they are named, each once."""
    out = cli("check", "--explain", "DAG051", "DAG030", "--explain", "dag051").out
    headings = [line for line in out.splitlines() if line.startswith(("error ", "warning "))]
    assert headings == ["warning DAG051: an input that nothing reads", "error DAG030: no such input"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--explain", "DGA030"], "there is no code 'DGA030' (did you mean DAG030?)"),
        (["--explain", "17"], "there is no code '17' (did you mean DAG017?)"),
        (["--explain", "DAG030", "nonsense"], "there is no code 'nonsense' (codes are DAG001 to DAG"),
        (["--explain", "DAG030", "--json"], "--explain prints text"),
        (["dag.yaml", "--json", "--sarif"], "--json and --sarif exclude each other"),
        ([], "nothing to check"),
    ],
)
def test_what_cannot_be_meant_is_told_and_nothing_is_printed(cli: Cli, arguments: list[str], says: str) -> None:
    """One line on stderr, exit code 2."""
    ended = cli("check", *arguments)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith(f"error: {says}")
    assert ended.err.count("\n") == 1


def test_on_a_terminal_the_codes_found_lead_to_their_explanation(
    cli: Cli, write_dag: WriteDag, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader at a terminal is told the command; a log is not."""
    file = write_dag(a="{uses: tool/nope}", outputs="{a: '{{ actions.a.output }}'}")
    assert "--explain" not in cli("check", file).out
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "agentrt check --explain DAG051 DAG040" in cli("check", file).out
