"""Handing finished traces over: in order, bounded, and never at a run's cost."""

from __future__ import annotations

import logging
import threading

import pytest

from agentrt.trace.finished import FinishedTrace
from agentrt.trace.outbox import Outbox
from tests.support.traces import Recording, record_support_run


def some_traces(count: int) -> list[FinishedTrace]:
    recording = Recording()
    for number in range(count):
        record_support_run(recording, run_id=f"r{number}")
    recording.tracing.close()
    return recording.finished


def test_traces_are_delivered_in_the_order_of_their_runs_ends() -> None:
    """Closing delivers everything that waits, oldest first, and releases what the delivery used, in its own thread."""
    delivered: list[FinishedTrace] = []
    released: list[str] = []
    outbox = Outbox("test", delivered.append, release=lambda: released.append(threading.current_thread().name))
    traces = some_traces(5)
    for trace in traces:
        outbox.put(trace)
    outbox.close(30)
    assert delivered == traces
    assert (outbox.num_delivered, outbox.num_dropped) == (5, 0)
    assert released == ["test"]


def test_a_full_outbox_turns_traces_away_whole_and_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    """While a delivery hangs, what fits waits; the rest is dropped, counted and told once, and nobody waits for it."""
    traces = some_traces(6)
    size = traces[0].num_spans
    is_delivering, may_go_on = threading.Event(), threading.Event()
    delivered: list[FinishedTrace] = []

    def deliver(trace: FinishedTrace) -> None:
        is_delivering.set()
        may_go_on.wait(30)
        delivered.append(trace)

    outbox = Outbox("test", deliver, max_waiting_spans=3 * size)
    outbox.put(traces[0])
    assert is_delivering.wait(30)
    for trace in traces[1:]:
        outbox.put(trace)
    assert outbox.num_dropped == 3
    told = [record.getMessage() for record in caplog.records]
    assert told == ["test: a finished trace was dropped, because 2 others wait already; the runs are not affected"]
    may_go_on.set()
    outbox.close(30)
    assert delivered == traces[:3]


def test_a_trace_larger_than_the_bound_is_taken_when_nothing_else_waits() -> None:
    """The longest run of all is not the one that is never recorded."""
    delivered: list[FinishedTrace] = []
    outbox = Outbox("test", delivered.append, max_waiting_spans=1)
    (trace,) = some_traces(1)
    outbox.put(trace)
    outbox.close(30)
    assert delivered == [trace]


def test_a_delivery_that_fails_costs_its_own_trace_and_one_line_of_log(caplog: pytest.LogCaptureFixture) -> None:
    """The next trace is tried again; the log has one line, not one a run, and no traceback."""
    delivered: list[FinishedTrace] = []

    def deliver(trace: FinishedTrace) -> None:
        if len(delivered) + outbox.num_dropped < 3:
            raise OSError("no room left")
        delivered.append(trace)

    outbox = Outbox("test", deliver)
    traces = some_traces(5)
    with caplog.at_level(logging.DEBUG):
        for trace in traces:
            outbox.put(trace)
        outbox.close(30)
    assert delivered == traces[3:]
    assert (outbox.num_delivered, outbox.num_dropped) == (2, 3)
    assert [record.getMessage() for record in caplog.records] == [
        "test: no room left",
        "test: 3 of the finished traces were not delivered",
    ]
    assert all(record.exc_info is None for record in caplog.records)


def test_closing_gives_up_on_a_delivery_that_hangs(caplog: pytest.LogCaptureFixture) -> None:
    """After its timeout ``close`` tells the delivery to stop, counts what is lost and returns; twice is safe."""
    is_delivering, told_to_stop = threading.Event(), threading.Event()

    def deliver(trace: FinishedTrace) -> None:
        is_delivering.set()
        told_to_stop.wait(30)
        raise OSError("stopped")

    outbox = Outbox("test", deliver, stop=told_to_stop.set)
    traces = some_traces(3)
    for trace in traces:
        outbox.put(trace)
    assert is_delivering.wait(30)
    outbox.close(0.0)
    assert told_to_stop.is_set()
    assert outbox.num_dropped >= 1
    outbox.close(0.0)
    outbox.put(traces[0])
    assert outbox.num_delivered == 0


def test_an_outbox_that_was_never_used_starts_no_thread() -> None:
    """A program that runs nothing pays for nothing."""
    before = threading.active_count()
    Outbox("test", lambda trace: None).close(30)
    assert threading.active_count() == before
