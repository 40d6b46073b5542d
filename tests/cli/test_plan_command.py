"""``agentrt plan``."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

WriteDag = Callable[..., str]
Cli = Callable[..., Any]

ROOT = Path(__file__).resolve().parents[2]
SAY = "{{uses: tool/say, with: {{text: '{text}'}}{more}}}"
TOOLS = ("--tools", "my_tools.py")


def say(text: str = "{{ inputs.text }}{{ inputs.number }}", more: str = "") -> str:
    return SAY.format(text=text, more=more)


@pytest.fixture
def file(write_dag: WriteDag) -> str:
    """``a`` and ``b`` meet in ``c``, which waits for ``b`` without reading it; ``d`` runs on a condition.

    a --> c --> d
    b --/
    """
    return write_dag(
        a=say(),
        b=say("x {{ inputs.text }}"),
        c=say("{{ actions.a.output }}", ", needs: [b]"),
        d=say("{{ actions.c.output }}", ", if: inputs.number > 3"),
        outputs="{both: '{{ actions.d.output or actions.b.output }}'}",
    )


def test_it_tells_size_and_order(cli: Cli, file: str) -> None:
    """Actions that can run at the same time share a line."""
    ended = cli("plan", file, *TOOLS, "--no-prune")
    assert (ended.code, ended.err) == (0, "")
    lines = ended.out.splitlines()
    assert lines[0] == "test: 4 actions, 3 edges"
    assert lines[2:5] == ["   1  a, b", "   2  c", "   3  d"]


def test_what_is_left_out_is_told_with_its_reason(cli: Cli, write_dag: WriteDag) -> None:
    """Counts before and after, and a line for each action that is gone; --no-prune leaves everything in."""
    file = write_dag(
        a=say(),
        loose=say("{{ actions.a.output }}"),
        outputs="{a: '{{ actions.a.output }}'}",
    )
    ended = cli("plan", file, *TOOLS)
    assert ended.code == 0
    lines = ended.out.splitlines()
    assert lines[0] == "test: 2 actions, 1 edge -> 1 action, 0 edges"
    assert "pruned" in lines
    assert any(re.fullmatch(r"  loose \(unused\): .+", line) for line in lines)
    assert cli("plan", file, *TOOLS, "--no-prune").out.startswith("test: 2 actions, 1 edge\n")
    (gone,) = json.loads(cli("plan", file, *TOOLS, "--json").out)["pruned"]
    assert (gone["action"], gone["cause"], gone["into"]) == ("loose", "unused", None)


def test_inputs_that_are_known_settle_conditions(cli: Cli, file: str) -> None:
    """A branch that the given input rules out is gone; with another input, or none, it stays."""
    shut = json.loads(cli("plan", file, *TOOLS, "--json", "--input", "number=1").out)
    assert [(one["action"], one["cause"]) for one in shut["pruned"] if one["action"] == "d"] == [("d", "never_runs")]
    for given in (("--input", "number=4"), ()):
        plan = json.loads(cli("plan", file, *TOOLS, "--json", *given).out)
        assert "d" not in [one["action"] for one in plan["pruned"]]


def test_json_holds_the_same(cli: Cli, file: str) -> None:
    """One JSON object: sizes before and after, levels, every edge and what it is for."""
    plan = json.loads(cli("plan", file, *TOOLS, "--json", "--no-prune").out)
    assert (plan["dag"], plan["num_declared_actions"], plan["num_declared_edges"]) == ("test", 4, 3)
    assert (plan["num_actions"], plan["num_edges"]) == (4, 3)
    assert plan["levels"] == [["a", "b"], ["c"], ["d"]]
    assert plan["actions"][3] == {"name": "d", "type": "tool", "agent": None, "if": "inputs.number > 3"}
    edges = {(edge["source"], edge["target"]): edge["reads"] for edge in plan["edges"]}
    assert edges == {("a", "c"): True, ("b", "c"): False, ("c", "d"): True}


def test_pictures_and_graphs_are_written(cli: Cli, file: str, folder: Path) -> None:
    """--svg into a file or to stdout, --mermaid and --dot to stdout; nothing else is printed."""
    ended = cli("plan", file, *TOOLS, "--svg", "out.svg")
    assert (ended.code, ended.out, ended.err) == (0, "", "")
    svg = (folder / "out.svg").read_text(encoding="utf-8")
    assert ElementTree.fromstring(svg).tag.endswith("svg")
    assert cli("plan", file, *TOOLS, "--svg", "-").out == svg
    assert cli("plan", file, *TOOLS, "--mermaid").out.startswith("flowchart TD\n")
    assert cli("plan", file, *TOOLS, "--dot").out.startswith('digraph "test" {\n')


def test_what_is_left_out_can_be_drawn(cli: Cli, write_dag: WriteDag) -> None:
    """--show-pruned adds it to every kind of drawing."""
    file = write_dag(a=say(), loose=say("{{ actions.a.output }}"), outputs="{a: '{{ actions.a.output }}'}")
    for form in (("--mermaid",), ("--dot",), ("--svg", "-")):
        assert "loose" not in cli("plan", file, *TOOLS, *form).out
        assert "pruned: unused" in cli("plan", file, *TOOLS, *form, "--show-pruned").out


def test_warnings_go_to_stderr(cli: Cli, write_dag: WriteDag) -> None:
    """So that what is printed can be piped on."""
    file = write_dag(a=say("x"), outputs="{a: '{{ actions.a.output }}'}")
    ended = cli("plan", file, *TOOLS, "--mermaid")
    assert ended.code == 0
    assert "warning DAG051" in ended.err
    assert "warning" not in ended.out


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--svg", "-", "--dot"], "--dot and --svg: only one form"),
        (["--svg", "nowhere/x.svg"], "--svg nowhere/x.svg: No such file or directory"),
        (["--input", "numbr=3"], "did you mean 'number'?"),
        (["--input", "number=x"], "input 'number'"),
    ],
)
def test_mistakes_are_told_in_one_line(cli: Cli, file: str, arguments: list[str], told: str) -> None:
    """Exit code 2 and nothing on stdout."""
    ended = cli("plan", file, *TOOLS, *arguments)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith("error: ")
    assert ended.err.count("\n") == 1
    assert told in ended.err


def test_a_wrong_file_is_told_as_check_tells_it(cli: Cli, write_dag: WriteDag) -> None:
    """Every mistake with its place and code; nothing is planned."""
    file = write_dag(a="{uses: tool/sya}", outputs="{a: '{{ actions.b.output }}'}")
    ended = cli("plan", file, *TOOLS)
    assert (ended.code, ended.out) == (2, "")
    assert "dag.yaml:7:13: error DAG040" in ended.err
    assert "error DAG031" in ended.err


def test_planning_never_loads_torch(folder: Path, file: str) -> None:
    """A plan is for editors and CI: it must not pay for the engine."""
    code = (
        "import sys\nfrom agentrt.cli.main import call\ncode = call(sys.argv[1:])\n"
        "assert 'torch' not in sys.modules\nsys.exit(code)"
    )
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    ended = subprocess.run(
        [sys.executable, "-c", code, "plan", file, *TOOLS, "--svg", "out.svg"],
        env={**os.environ, "PYTHONPATH": path},
        check=False,
        capture_output=True,
        text=True,
    )
    assert (ended.returncode, ended.stderr) == (0, "")


def test_the_pictures_in_the_docs_are_the_real_ones() -> None:
    """docs/pictures holds a picture of each example, and docs/plan.md shows each."""
    ended = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "draw_examples.py"), "--check"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
        capture_output=True,
        text=True,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    page = (ROOT / "docs" / "plan.md").read_text(encoding="utf-8")
    shown = set(re.findall(r"\(pictures/(\w+)\.svg\)", page))
    assert shown == {path.stem for path in (ROOT / "dags").glob("*.yaml")}


def test_the_plan_in_the_docs_is_the_real_one(cli: Cli) -> None:
    """docs/plan.md shows what the command prints for the example it names."""
    page = (ROOT / "docs" / "plan.md").read_text(encoding="utf-8")
    ((path, shown),) = re.findall(r"<!-- plan: (\S+) -->\n```text\n(.*?)```", page, re.DOTALL)
    assert cli("plan", str(ROOT / path)).out == shown
