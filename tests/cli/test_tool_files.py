"""``--tools``: a user's own Python, imported because they said so."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentrt.cli.tool_files import load_tools
from agentrt.errors import UsageError

ONE_TOOL = "from agentrt.tools.tool import tool\n\n@tool(effects='none')\ndef one() -> int:\n    return 1\n"


@pytest.fixture(autouse=True)
def _own_modules(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if name.startswith("my_"):
            del sys.modules[name]


def test_a_file_and_a_module_give_their_tools(folder: Path) -> None:
    """A path and a dotted name both work, and a module beside the file can be imported by it."""
    (folder / "my_package").mkdir()
    (folder / "my_package" / "things.py").write_text(ONE_TOOL)
    (folder / "my_file.py").write_text("from my_other import one as first\n")
    (folder / "my_other.py").write_text(ONE_TOOL)
    assert [tool.name for tool in load_tools(["my_file.py", "my_package.things"])] == ["one", "one"]


def test_a_tool_under_two_names_is_one_tool(folder: Path) -> None:
    """Importing a tool into another file does not make a second one of it."""
    (folder / "my_both.py").write_text(ONE_TOOL + "again = one\n")
    assert len(load_tools(["my_both.py"])) == 1


def test_a_users_tools_py_does_not_meet_ours(folder: Path) -> None:
    """A file of the name of a loaded module is imported all the same, and that module stays as it was."""
    (folder / "json.py").write_text(ONE_TOOL)
    import json

    assert [tool.name for tool in load_tools(["./json.py"])] == ["one"]
    assert sys.modules["json"] is json


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("my_missing.py", None, "there is no such file (did you mean 'my_missng.py'?)"),
        ("my_missing_module", None, "there is no module 'my_missing_module'"),
        ("my_empty.py", "x = 1\n", "there is no tool in it"),
        ("my_syntax.py", "def (:\n", "my_syntax.py:1: SyntaxError"),
        ("my_broken.py", "x = 1\n1 / 0\n", "my_broken.py:2: ZeroDivisionError: division by zero"),
        ("my_import.py", "import my_nowhere\n", "my_import.py:1: ModuleNotFoundError: No module named 'my_nowhere'"),
        ("my_exit.py", "import sys\nsys.exit(3)\n", "my_exit.py:2: SystemExit: 3"),
    ],
)
def test_each_way_to_fail_is_one_clear_error(folder: Path, name: str, text: str | None, message: str) -> None:
    """The error names the argument, the place in the user's file, and the cause."""
    (folder / "my_missng.py").write_text("")
    if text is not None:
        (folder / name).write_text(text)
    with pytest.raises(UsageError) as caught:
        load_tools([name])
    assert str(caught.value).startswith(f"--tools {name}: ")
    assert message in str(caught.value)
