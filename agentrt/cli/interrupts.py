"""Ctrl-C and SIGTERM during a run: the first asks it to end, the second ends the process.

The handler is Python's own and not the event loop's: a tool that holds up the event loop holds up its handlers as well,
and Ctrl-C must work then most of all.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType, TracebackType
from typing import Self

from agentrt.cli.exit_code import ExitCode

_EXIT_CODES = {signal.SIGINT: ExitCode.INTERRUPTED, signal.SIGTERM: ExitCode.TERMINATED}


class Interrupts:
    """Takes the signals of the process while it is entered, in the thread of the running event loop.

    ``code`` is the exit code that the first signal asks for, None as long as there was none.
    """

    def __init__(self) -> None:
        self.code: ExitCode | None = None
        self._stop: Callable[[], None] | None = None
        self._leave: Callable[[], None] | None = None

    def __enter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        # Only the main thread may set handlers; elsewhere signals are somebody else's.
        is_main = threading.current_thread() is threading.main_thread()
        self._before = {number: signal.signal(number, self._on_signal) for number in _EXIT_CODES} if is_main else {}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    @contextlib.contextmanager
    def handled_by(self, stop: Callable[[], None], *, leave: Callable[[], None]) -> Iterator[None]:
        """Have the first signal call ``stop`` in the event loop, and a second ``leave`` before the process ends.

        ``leave`` runs inside the signal handler and must not wait for anything.
        """
        self._stop, self._leave = stop, leave
        if self.code is not None:
            stop()
        try:
            yield
        finally:
            self._stop = self._leave = None

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self.code is not None:
            if self._leave is not None:
                self._leave()
            os._exit(self.code)
        self.code = _EXIT_CODES[signal.Signals(number)]
        if self._stop is not None:
            self._loop.call_soon_threadsafe(self._call_stop)

    def _call_stop(self) -> None:
        # By now the run may have ended.
        if self._stop is not None:
            self._stop()
