"""Who shows a run while it goes on: a live view on a terminal, plain lines in a log or a pipe, or nobody.

Progress is always on stderr, so that stdout holds the result alone.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Iterator
from typing import Protocol

from rich.console import Console
from rich.live import Live
from rich.text import Text

from agentrt.cli.live import FRAMES_PER_SECOND, LiveView
from agentrt.cli.plain_lines import PlainLines
from agentrt.cli.printable import one_line, printable
from agentrt.cli.progress import RunProgress
from agentrt.run.events import RunEvent, RunStarted


class Watcher(Protocol):
    def show(self, event: RunEvent) -> None: ...

    def say(self, text: str) -> None:
        """Tell something that is no event of the run."""
        ...

    def leave(self) -> None:
        """Give the terminal back as it was; the process is about to end."""
        ...


def stderr_console() -> Console:
    """Return a console for text that others wrote: neither markup nor emoji codes in it are read."""
    return Console(stderr=True, markup=False, highlight=False, emoji=False)


@contextlib.contextmanager
def watching(console: Console, *, quiet: bool) -> Iterator[Watcher]:
    """Give what shows a run's events on ``console``, and take it off the screen at the end."""
    if quiet:
        yield _Nobody()
    elif console.is_terminal and not console.is_dumb_terminal:
        watcher = _LiveWatcher(console)
        with watcher.live, _prints_above(console):
            yield watcher
    else:
        yield PlainLines(sys.stderr)


class _Nobody:
    def show(self, event: RunEvent) -> None:
        return

    def say(self, text: str) -> None:
        return

    def leave(self) -> None:
        return


class _LiveWatcher:
    def __init__(self, console: Console) -> None:
        self._console = console
        self._progress = RunProgress()
        self._began = time.monotonic()
        view = LiveView(self._progress, lambda: time.monotonic() - self._began)
        self.live = Live(view, console=console, refresh_per_second=FRAMES_PER_SECOND, transient=True)

    def show(self, event: RunEvent) -> None:
        if isinstance(event, RunStarted):
            self._began = time.monotonic()
        self._progress.apply(event)

    def say(self, text: str) -> None:
        self._console.print(Text(one_line(text), "yellow"))

    def leave(self) -> None:
        # The console's lock may be held by the thread that was interrupted: write past it.
        self._console.file.write("\x1b[?25h\n")
        self._console.file.flush()


_STDOUT = 1
_WAIT_FOR_PRINTS_S = 0.5


@contextlib.contextmanager
def _prints_above(console: Console) -> Iterator[None]:
    """Print what programs that tools start write to standard output above the live view, not into it."""
    source, sink = os.pipe()
    before = os.dup(_STDOUT)
    os.dup2(sink, _STDOUT)
    os.close(sink)

    def copy() -> None:
        with os.fdopen(source, encoding="utf-8", errors="replace") as lines:
            for line in lines:
                console.print(Text(printable(line.rstrip("\n"), keep="\t")), soft_wrap=True)

    copier = threading.Thread(target=copy, name="agentrt-prints", daemon=True)
    copier.start()
    try:
        yield
    finally:
        os.dup2(before, _STDOUT)
        os.close(before)
        # The pipe ends when its last writer does; a program that was left behind is not waited for.
        copier.join(_WAIT_FOR_PRINTS_S)
