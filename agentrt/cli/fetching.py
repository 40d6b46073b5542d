"""Fetching model files where somebody can watch: a bar on a terminal, a line at the start and the end in a log."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

from agentrt.cli.printable import one_line, seconds
from agentrt.config import RuntimeConfig
from agentrt.declare.call import LlmCall
from agentrt.declare.dag import Dag
from agentrt.errors import EngineError
from agentrt.models.catalog import ModelSource, resolve
from agentrt.models.download import Progress as Report


def fetch_models(dag: Dag, config: RuntimeConfig, console: Console | None) -> None:
    """Fetch the model files that the Dag's actions need and that are not there yet, before its clock starts.

    Raises:
        UnknownModelError: an agent names a model that nothing answers to.
        DownloadError: a file could not be fetched.
    """
    wanted: dict[tuple[str, Path | None], None] = {}
    for each in dag.with_inner():
        calls = (call for action in each.actions.values() for call in action.calls)
        agents = {call.agent for call in calls if isinstance(call, LlmCall)}
        for agent in (agent for name, agent in each.agents.items() if name in agents):
            if agent.model is None:
                wanted[config.model, each.base_dir] = None
            elif agent.model.endpoint is None:
                wanted[agent.model.name, each.base_dir] = None
    # Every name is looked at before the first byte is fetched.
    for source in [resolve(name, config, base_dir) for name, base_dir in wanted]:
        fetch(source, console)
    if wanted:
        prepare_engine(console)


def prepare_engine(console: Console | None) -> None:
    """Compile the engine's C++ part if that is still to be done, so that no action waits for it."""
    from agentrt.inference.cpu.build import find_library, needs_build

    if not needs_build():
        return
    if console is not None:
        console.print("compiling the CPU engine (once; about 15 s on two cores) ...", soft_wrap=True)
    # Where it fails models run on torch, and whoever loads one says so.
    with contextlib.suppress(EngineError):
        find_library()


def fetch(source: ModelSource, console: Console | None) -> Path:
    """Return a model's file or folder, fetched first if need be; without ``console`` in silence."""
    if console is None:
        return source.fetch()
    with _reporting(source.name, console) as report:
        return source.fetch(report)


@contextlib.contextmanager
def _reporting(name: str, console: Console) -> Iterator[Report]:
    """Give what a download reports to. Nothing is shown before it does: most files are there already."""
    label = f"fetching model {one_line(name)}"
    if not console.is_terminal or console.is_dumb_terminal:
        yield _Lines(label, console).report
        return
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), DownloadColumn())
    bar = Progress(*columns, TransferSpeedColumn(), TimeRemainingColumn(), console=console, transient=True)
    with contextlib.ExitStack() as stack:

        def report(num_bytes: int, num_total_bytes: int | None) -> None:
            if not bar.task_ids:
                stack.enter_context(bar)
                bar.add_task(label, total=num_total_bytes)
            bar.update(bar.task_ids[0], completed=num_bytes, total=num_total_bytes)

        yield report


class _Lines:
    """One line when a download begins, one when it is there."""

    def __init__(self, label: str, console: Console) -> None:
        self._label = label
        self._console = console
        self._began: float | None = None
        self._is_told = False

    def report(self, num_bytes: int, num_total_bytes: int | None) -> None:
        if self._began is None:
            self._began = time.monotonic()
            size = "" if num_total_bytes is None else f" ({num_total_bytes / 1e6:.0f} MB)"
            self._console.print(f"{self._label}{size} ...", soft_wrap=True)
        if num_bytes == num_total_bytes and not self._is_told:
            self._is_told = True
            self._console.print(f"fetched in {seconds(time.monotonic() - self._began)}", soft_wrap=True)
