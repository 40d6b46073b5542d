"""Handing finished traces over without ever holding up a run.

A run's end only puts its trace into an outbox; a thread of its own stores or sends it. The outbox is bounded,
in spans, so that a collector that is down for an hour costs a fixed amount of memory: when it is full new
traces are turned away whole, counted, and the first one is told to the log. A trace is handed over whole or
not at all, for half a trace explains nothing.
"""

from __future__ import annotations

import logging
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable

from agentrt.trace.finished import FinishedTrace

logger = logging.getLogger(__name__)

MAX_WAITING_SPANS = 250_000
"""At about 100 bytes a token span that waits, some 25 MB."""


class Outbox:
    """Delivers traces, oldest first, through ``deliver`` in a thread called ``name``.

    ``deliver`` may take long and may raise: what it raises is logged once and the trace counts as dropped.
    ``stop`` is called from the closing thread and should make a delivery under way end soon; ``release`` is
    called in the delivering thread as the last thing it does.
    """

    def __init__(
        self,
        name: str,
        deliver: Callable[[FinishedTrace], None],
        *,
        stop: Callable[[], None] = lambda: None,
        release: Callable[[], None] = lambda: None,
        max_waiting_spans: int = MAX_WAITING_SPANS,
    ) -> None:
        self._name = name
        self._deliver = deliver
        self._stop = stop
        self._release = release
        self._max_waiting_spans = max_waiting_spans
        self._begin()
        # A forked child has neither the thread nor a say about what waited for it: the parent delivers that.
        begin = weakref.WeakMethod(self._begin)
        os.register_at_fork(after_in_child=lambda: (alive := begin()) and alive())

    def _begin(self) -> None:
        self._changed = threading.Condition()
        self._waiting: deque[FinishedTrace] = deque()
        self._num_waiting_spans = 0
        self._closing = False
        self._thread: threading.Thread | None = None
        self._warned = False
        self.num_delivered = 0
        self.num_dropped = 0

    def put(self, trace: FinishedTrace) -> None:
        """Take a trace over; returns at once, whether or not there was room."""
        with self._changed:
            # A trace larger than the whole bound is taken when nothing else waits.
            is_full = self._waiting and self._num_waiting_spans + trace.num_spans > self._max_waiting_spans
            if self._closing or is_full:
                self.num_dropped += 1
                why = "tracing was closed" if self._closing else f"{len(self._waiting)} others wait already"
            else:
                self._waiting.append(trace)
                self._num_waiting_spans += trace.num_spans
                if self._thread is None:
                    # A daemon, so that a collector that hangs cannot keep the process from ending.
                    self._thread = threading.Thread(target=self._work, name=self._name, daemon=True)
                    self._thread.start()
                self._changed.notify_all()
                return
        self._warn(f"a finished trace was dropped, because {why}; the runs are not affected")

    def close(self, timeout_s: float) -> None:
        """Deliver what waits for at most ``timeout_s``, then give up on the rest and say how much was not
        delivered."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
            thread, self._thread = self._thread, None
        if thread is None:
            return
        thread.join(timeout_s)
        self._stop()
        with self._changed:
            if thread.is_alive():
                self.num_dropped += len(self._waiting) + 1
                self._waiting.clear()
            num_dropped = self.num_dropped
        if num_dropped:
            logger.warning("%s: %d of the finished traces were not delivered", self._name, num_dropped)

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._closing)
                if not self._waiting:
                    break
                trace = self._waiting.popleft()
            try:
                self._deliver(trace)
            except Exception as error:
                with self._changed:
                    self.num_dropped += 1
                self._warn(str(error) or type(error).__name__)
            else:
                with self._changed:
                    self.num_delivered += 1
            finally:
                with self._changed:
                    self._num_waiting_spans -= trace.num_spans
        self._release()

    def _warn(self, text: str) -> None:
        with self._changed:
            if self._warned:
                return
            self._warned = True
        logger.warning("%s: %s", self._name, text)
