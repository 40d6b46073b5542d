"""Tools of the user's own: a Python file or module, imported because the command line names it."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import traceback
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

from agentrt.errors import UsageError, nearest_match
from agentrt.tools.tool import Tool


def load_tools(names: Iterable[str]) -> list[Tool]:
    """Import each file (``my_tools.py``) or module (``my_package.tools``) and return the Tools that stand in it.

    Raises:
        UsageError: it is not there, raises while it is imported, or holds no Tool.
    """
    tools: dict[int, Tool] = {}
    for name in names:
        found = [value for value in vars(_import(name)).values() if isinstance(value, Tool)]
        if not found:
            raise UsageError(f"--tools {name}: there is no tool in it; put @tool over a function (agentrt.tools.tool)")
        tools.update({id(tool): tool for tool in found})
    return list(tools.values())


def _import(name: str) -> ModuleType:
    is_file = name.endswith(".py") or "/" in name
    # As for a script that python itself starts: modules beside it are importable.
    folder = str(Path(name).resolve().parent if is_file else Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        return _import_file(Path(name)) if is_file else importlib.import_module(name)
    except UsageError:
        raise
    except ModuleNotFoundError as error:
        if not is_file and error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            hint = _file_hint(name)
            raise UsageError(f"--tools {name}: there is no module {error.name!r}{hint}") from error
        raise _failure(name, error) from error
    except (Exception, SystemExit) as error:
        raise _failure(name, error) from error


def _import_file(path: Path) -> ModuleType:
    if not path.is_file():
        names = [entry.name for entry in path.parent.glob("*.py")] if path.parent.is_dir() else []
        match = nearest_match(path.name, names)
        hint = f" (did you mean {str(path.parent / match)!r}?)" if match else ""
        raise UsageError(f"--tools {path}: there is no such file{hint}")
    # Registered under its own name, as pickling and dataclasses look there; another module of that name is left alone.
    name = path.stem if path.stem not in sys.modules else f"agentrt_tools_{abs(hash(path.resolve())):x}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"--tools {path}: this is no Python file; its name must end in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _file_hint(name: str) -> str:
    path = Path(*name.split(".")).with_suffix(".py")
    return f" (did you mean the file {str(path)!r}?)" if path.is_file() else ""


def _failure(name: str, error: BaseException) -> UsageError:
    if isinstance(error, SyntaxError) and error.filename:
        return UsageError(f"--tools {name}: {error.filename}:{error.lineno}: SyntaxError: {error.msg}")
    frames = traceback.extract_tb(error.__traceback__)
    where = f"{frames[-1].filename}:{frames[-1].lineno}: " if frames else ""
    return UsageError(f"--tools {name}: {where}{type(error).__name__}: {error}")
