"""Seeded mistakes: each small file in ``mistakes`` has some, and exactly these are found.

The first line of a file says which: ``# expect: DAG034 at 12``, several with commas between them.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from agentrt.compile.check import check_file
from agentrt.declare.codes import Code
from agentrt.tools.builtin import builtin_tools
from agentrt.tools.registry import ToolRegistry
from agentrt.tools.tool import tool
from tests.support.pending_codes import PENDING, PENDING_MISTAKES

MISTAKES = Path(__file__).parent / "mistakes"
FILES = {path.stem: path for path in sorted(MISTAKES.glob("*.yaml"))}
EXAMPLES = sorted((Path(__file__).parents[2] / "dags").glob("*.yaml"))

ONLY_IN_PYTHON = {
    Code.BAD_FUNCTION,
    Code.UNKNOWN_PARAMETER,
    Code.DUPLICATE_ACTION,
    Code.NOT_WRITABLE,
    Code.AMBIGUOUS_NAME,
}
NOT_IN_A_SMALL_TEXT = {
    Code.UNREADABLE_FILE,
    Code.FILE_TOO_LARGE,
    Code.NOT_UTF8,
    Code.TOO_DEEP,
    Code.CONTEXT_OVERFLOW,
    Code.SUB_DAG_TOO_DEEP,
}


@tool(effects="write")
def charge(amount: int, note: str = "") -> dict[str, int]:
    """Charge an amount."""
    return {"amount": amount}


TOOLS = ToolRegistry([*builtin_tools(), charge])


def expected(path: Path) -> set[tuple[str, int]]:
    first = path.read_text().partition("\n")[0]
    assert re.fullmatch(r"# expect: DAG\d{3} at \d+(, DAG\d{3} at \d+)*", first), path
    return {(code, int(line)) for code, line in re.findall(r"(DAG\d{3}) at (\d+)", first)}


def marked(name: str) -> object:
    pending = pytest.mark.xfail(reason="its check is not written yet", strict=True, raises=AssertionError)
    return pytest.param(name, marks=pending if name in PENDING_MISTAKES else ())


@pytest.mark.parametrize("name", [marked(name) for name in FILES])
def test_exactly_the_seeded_mistakes_are_found(name: str) -> None:
    """Each with its code, at its line, and nothing else: neither an error nor a warning."""
    _, diagnostics = check_file(FILES[name], TOOLS)
    found = [(d.code, d.place.line if d.place is not None else None) for d in diagnostics]
    assert set(found) == expected(FILES[name])
    assert len(diagnostics) == len(set(diagnostics))
    assert all(d.place is not None and d.place.file == str(FILES[name]) for d in diagnostics)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_nothing_is_found_in_what_people_copy(path: Path) -> None:
    """The examples are silent: no error and no warning."""
    assert check_file(path, TOOLS)[1] == ()


def test_every_code_that_a_file_can_give_is_seeded() -> None:
    """A new check comes with a mistake that it finds."""
    seeded = {code for path in FILES.values() for code, _ in expected(path)}
    assert seeded == {str(code) for code in Code} - {str(code) for code in ONLY_IN_PYTHON | NOT_IN_A_SMALL_TEXT}
    assert len(FILES) >= 40


def test_what_is_pending_is_there() -> None:
    """A file that was renamed, or is no longer pending, is not forgotten in the list."""
    assert set(FILES) >= PENDING_MISTAKES
    for name in PENDING_MISTAKES:
        assert {code for code, _ in expected(FILES[name])} & {str(code) for code in PENDING}
