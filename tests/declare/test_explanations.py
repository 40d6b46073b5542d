"""Explanations of diagnostics: there for every code, and true."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from agentrt.compile.check import check, check_file
from agentrt.compile.context_fit import ModelFacts
from agentrt.config import RuntimeConfig
from agentrt.declare.codes import Code
from agentrt.declare.dag import Dag
from agentrt.declare.explanations import EXPLANATIONS, Example, Explanation, diagnostics_page, parse_explanation
from agentrt.errors import DeclarationError, Diagnostic
from agentrt.models.facts import ModelFileFacts
from agentrt.tools.builtin import builtin_tools
from agentrt.tools.registry import ToolRegistry
from agentrt.tools.tool import Tool
from tests.support.pending_codes import PENDING

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "agentrt" / "declare" / "explanations_text"


def codes_with_pending_marked() -> list[object]:
    pending = pytest.mark.xfail(reason="its check is not written yet", strict=True, raises=AssertionError)
    return [pytest.param(code, marks=pending if code in PENDING else ()) for code in Code]


def lines_of(diagnostics: tuple[Diagnostic, ...], file_name: str) -> set[tuple[str, int | None]]:
    """Return code and line of each diagnostic; one that stands in another file has the line None."""
    return {(d.code, d.place.line if d.place is not None and d.place.file == file_name else None) for d in diagnostics}


def found_in_yaml(example: Example, explanation: Explanation) -> set[tuple[str, int | None]]:
    tools = list(builtin_tools())
    for file in explanation.files:
        if file.language == "python":
            scope: dict[str, object] = {"__name__": "example"}
            exec(file.source, scope)  # noqa: S102 - our own example
            tools += [value for value in scope.values() if isinstance(value, Tool)]
    return lines_of(check_file(example.file_name, ToolRegistry(tools))[1], example.file_name)


def found_in_python(example: Example, models: ModelFacts) -> set[tuple[str, int | None]]:
    scope: dict[str, object] = {"__name__": "example"}
    try:
        exec(compile(example.source, example.file_name, "exec"), scope)  # noqa: S102 - our own example
    except DeclarationError as error:
        return lines_of(error.diagnostics, example.file_name)
    dag = scope.get("dag")
    if not isinstance(dag, Dag):
        return set()
    return lines_of(check(dag, ToolRegistry(builtin_tools()), models=models), example.file_name)


def found_by_command(example: Example) -> set[tuple[str, int | None]]:
    """Return what the last command tells, as if it stood at that command."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    script = f'agentrt() {{ "{sys.executable}" -m agentrt "$@"; }}\n{example.source}'
    ended = subprocess.run(
        ["bash", "-c", script], env={**os.environ, "PYTHONPATH": path}, check=False, capture_output=True, text=True
    )
    assert ended.stderr == ""
    codes = set(re.findall(r"(?:error|warning) (DAG\d{3}): ", ended.stdout))
    assert ended.returncode == (2 if codes else 0)
    return {(code, example.source.count("\n")) for code in codes}


def found(example: Example, explanation: Explanation, models: ModelFacts) -> set[tuple[str, int | None]]:
    for file in (*explanation.files, example):
        Path(file.file_name).write_text(file.source)
    if example.language == "yaml":
        return found_in_yaml(example, explanation)
    return found_in_python(example, models) if example.language == "python" else found_by_command(example)


def test_every_code_is_explained_and_nothing_else() -> None:
    """One file for each code, no code twice, and no file that nobody reads."""
    assert list(EXPLANATIONS) == list(Code)
    assert len({str(code) for code in Code}) == len(Code)
    assert {path.name for path in FOLDER.iterdir()} == {f"{code}.md" for code in Code}


@pytest.mark.model
@pytest.mark.parametrize("code", codes_with_pending_marked())
def test_the_bad_example_gives_the_code_and_the_mended_one_nothing(
    code: Code, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model_path: Path
) -> None:
    """At exactly the marked lines, and nothing else is wrong with either of them."""
    monkeypatch.chdir(tmp_path)
    explanation = EXPLANATIONS[code]
    models = ModelFileFacts(RuntimeConfig(model=str(model_path)))
    assert code in [marked for marked, _ in explanation.bad.marks]
    assert found(explanation.bad, explanation, models) == set(explanation.bad.marks)
    assert found(explanation.mended, explanation, models) == set()


@pytest.mark.parametrize("code", list(Code))
def test_an_explanation_is_short_and_of_the_asked_form(code: Code) -> None:
    """A title of one line, at most two paragraphs, and no mark in what is mended."""
    explanation = EXPLANATIONS[code]
    assert len(explanation.title) <= 60
    assert not explanation.title.endswith(".")
    assert explanation.text.count("\n\n") <= 1
    assert explanation.text.endswith((".", "`."))
    assert explanation.mended.marks == ()
    assert explanation.bad.language == explanation.mended.language
    assert all(len(line) <= 124 for line in (FOLDER / f"{code}.md").read_text().splitlines())


def test_the_page_is_what_the_explanations_make() -> None:
    """docs/diagnostics.md is never edited by hand."""
    assert (ROOT / "docs" / "diagnostics.md").read_text() == diagnostics_page()


def test_a_warning_is_called_one() -> None:
    """A reader of the page sees which mistakes keep a Dag from running."""
    page = diagnostics_page()
    for code, explanation in EXPLANATIONS.items():
        section = page.partition(f"## {code}: ")[2].partition("\n## ")[0]
        assert ("*A warning.*" in section) == (code.severity == "warning")
        assert explanation.title in section


@pytest.mark.parametrize(
    "text",
    [
        "# title\n\nText.\n\n```yaml bad\na: 1\n```\n",
        "# title\n\n```yaml bad\na: 1\n```\n\n```yaml mended\na: 1\n```\n",
        "title\n\nText.\n\n```yaml bad\na: 1\n```\n\n```yaml mended\na: 1\n```\n",
    ],
)
def test_an_explanation_that_lacks_something_is_refused(text: str) -> None:
    """A title, a text and both examples."""
    with pytest.raises(ValueError, match="DAG001 lacks"):
        parse_explanation(Code.UNREADABLE_FILE, text)
