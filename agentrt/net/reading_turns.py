"""Many tasks wait for news from one connection: one of them reads, the others are woken by what it read.

A background task that reads would need an owner, and could outlive its callers. A lock around "read once,
look whether it was for me" has each task queue for the lock although its data lies there: with 50 streams on
a connection, a token waits for up to 49 reads that have nothing to do with it. Here the reader wakes exactly
those concerned, and whoever stops reading, by being served or by being cancelled, passes the turn on.

Invariant: while tasks wait, either one of them is reading or one of them has been woken and not yet run.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable

import anyio
import anyio.lowlevel


class ReadingTurns:
    """Shares the work of calling ``read`` among the tasks that wait for what it brings.

    ``read`` must be safe to cancel, and call ``wake`` for those it has news for.
    """

    def __init__(self, read: Callable[[], Awaitable[None]]) -> None:
        self._read = read
        self._is_reading = False
        self._has_woken = False
        self._waiting: dict[Hashable, anyio.Event] = {}

    @property
    def is_reading(self) -> bool:
        return self._is_reading

    async def wait_until(self, waiter: Hashable, ready: Callable[[], bool]) -> None:
        """Return when ``ready()``, which is asked again each time ``waiter`` is woken.

        Raises what ``read`` raises. ``waiter`` names the calling task among those that wait; no two may wait
        under one name.
        """
        try:
            while not ready():
                if not self._is_reading:
                    await self._take_turn()
                    continue
                event = self._waiting[waiter] = anyio.Event()
                try:
                    await event.wait()
                finally:
                    del self._waiting[waiter]
        finally:
            self._pass_on()

    async def read_once(self) -> None:
        """Read in this task; nobody may be reading."""
        assert not self._is_reading
        try:
            await self._take_turn()
        finally:
            self._pass_on()

    def wake(self, waiter: Hashable | None = None) -> None:
        """Have ``waiter`` look again, or everybody for None."""
        events = self._waiting.values() if waiter is None else filter(None, [self._waiting.get(waiter)])
        for event in events:
            event.set()
            self._has_woken = True

    async def _take_turn(self) -> None:
        self._is_reading = True
        try:
            self._has_woken = False
            await self._read()
            if self._has_woken:
                # A read may return at once while bytes are buffered (TLS hands out one record at a time). Without
                # a pause those just woken would wait until the buffer is empty; and were the turn free during the
                # pause, each of them would read before its neighbours have run.
                await anyio.lowlevel.checkpoint()
        finally:
            self._is_reading = False

    def _pass_on(self) -> None:
        if not self._is_reading and self._waiting:
            next(iter(self._waiting.values())).set()
