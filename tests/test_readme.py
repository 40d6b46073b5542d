"""What the README shows is real."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from agentrt import ToolRegistry, check, parse_dag
from agentrt.tools.builtin import builtin_tools

README = (Path(__file__).resolve().parent.parent / "README.md").read_text(encoding="utf-8")


def test_the_dag_in_the_readme_is_right() -> None:
    """It is read and checked without a word."""
    found = re.search(r"```yaml\n(.*?)```", README, re.DOTALL)
    assert found is not None
    assert check(parse_dag(found[1]), ToolRegistry(builtin_tools())) == ()


@pytest.mark.model
def test_the_program_in_the_readme_runs(model_path: Path, tmp_path: Path) -> None:
    """It prints an answer and its token timing, from any folder."""
    found = re.search(r"<!-- python -->\n```python\n(.*?)```", README, re.DOTALL)
    assert found is not None
    program = tmp_path / "program.py"
    program.write_text(found[1], encoding="utf-8")
    ended = subprocess.run(
        [sys.executable, "-W", "error", str(program)], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert "days" in ended.stdout
    assert "ttft_s=" in ended.stdout


def test_every_link_in_the_readme_leads_somewhere() -> None:
    """Pages and folders that are named exist."""
    root = Path(__file__).resolve().parent.parent
    for target in re.findall(r"\]\(([^)#:]+)\)", README):
        assert (root / target).exists(), target
