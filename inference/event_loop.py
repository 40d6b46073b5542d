"""Running something in an event loop from another thread, on asyncio and trio alike."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class EventLoop:
    """A running event loop, seen from outside. Two are equal when they are the same loop."""

    native: object
    _post: Callable[[Callable[[], None]], object] = field(compare=False)

    def post(self, callback: Callable[[], None]) -> bool:
        """Run ``callback`` in the loop soon; any thread may call this. Returns False if the loop has ended."""
        try:
            self._post(callback)
        except RuntimeError:  # asyncio: the loop is closed; trio: RunFinishedError, which is one
            return False
        return True


def current_event_loop() -> EventLoop:
    """Return the event loop this is called in."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        import trio

        token = trio.lowlevel.current_trio_token()
        return EventLoop(token, token.run_sync_soon)
    return EventLoop(loop, loop.call_soon_threadsafe)
