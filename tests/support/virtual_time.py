"""Run async code in virtual time: every wait is over at once, and the clock shows that it passed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio
from trio.testing import MockClock

T = TypeVar("T")


def run_in_virtual_time(function: Callable[[], Awaitable[T]]) -> T:
    """Run ``function`` on trio with a clock that jumps to the next wake-up whenever nothing else can run."""
    return anyio.run(function, backend="trio", backend_options={"clock": MockClock(autojump_threshold=0)})
