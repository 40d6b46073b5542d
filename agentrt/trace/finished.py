"""Collecting a run's spans until it ends, and handing its trace over whole.

A whole trace is the unit of everything that follows: it is stored in one transaction, kept or dropped as one,
and a rule that looks at how the run ended (failed, missed its SLO, among the slowest) can be put where
``deliver`` is called. A process that is killed loses the traces of the runs it was in, and no other.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from opentelemetry.context import Context
from opentelemetry.sdk.trace import Event, ReadableSpan, Span, SpanProcessor
from opentelemetry.trace import SpanKind, StatusCode

from agentrt.trace.record import EventRecord, RunTraceRecord, SpanRecord, SpanStatus
from agentrt.trace.tokens import TokenLog

_STATUSES = {
    StatusCode.UNSET: SpanStatus.UNSET,
    StatusCode.OK: SpanStatus.OK,
    StatusCode.ERROR: SpanStatus.ERROR,
}


@dataclass(slots=True)
class FinishedTrace:
    """The spans of one run that has ended, the root last, and the tokens of its model calls by the call's
    span id."""

    spans: list[ReadableSpan] = field(default_factory=list)
    tokens: dict[int, TokenLog] = field(default_factory=dict)

    @property
    def num_spans(self) -> int:
        return len(self.spans) + sum(map(len, self.tokens.values()))

    def to_record(self) -> RunTraceRecord:
        """Return the trace as plain data, token spans included."""
        context = self.spans[-1].get_span_context()
        assert context is not None
        return RunTraceRecord.from_spans(f"{context.trace_id:032x}", self._records())

    def readable_spans(self) -> Iterator[ReadableSpan]:
        """Yield the trace as the SDK's exporters take it, token spans included, parents first."""
        for span in reversed(self.spans):
            yield span
            log = self.tokens.get(_span_id(span))
            if log is not None:
                yield from log.readable_spans(span)

    def _records(self) -> Iterator[SpanRecord]:
        for span in reversed(self.spans):
            record = _to_record(span)
            yield record
            log = self.tokens.get(_span_id(span))
            if log is not None:
                yield from log.records(record)


class TraceCollector(SpanProcessor):
    """Keeps each trace's ended spans, and its tokens, until the root ends; then ``deliver`` gets all of them.

    ``deliver`` is called in the thread that ends the root and must return at once.
    """

    def __init__(self, deliver: Callable[[FinishedTrace], None]) -> None:
        self._deliver = deliver
        self._lock = threading.Lock()
        self._open: dict[int, FinishedTrace] = {}

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        if span.parent is None:
            with self._lock:
                self._open[_trace_id(span)] = FinishedTrace()

    def add_tokens(self, call: Span, log: TokenLog) -> None:
        """Keep the tokens of a model call that is about to end."""
        with self._lock:
            trace = self._open.get(_trace_id(call))
            if trace is not None and len(log):
                trace.tokens[_span_id(call)] = log

    def on_end(self, span: ReadableSpan) -> None:
        trace_id = _trace_id(span)
        with self._lock:
            # A span that ends after its root has no trace left to belong to.
            trace = self._open.get(trace_id)
            if trace is None:
                return
            trace.spans.append(span)
            if span.parent is not None:
                return
            del self._open[trace_id]
        self._deliver(trace)


def _trace_id(span: ReadableSpan) -> int:
    context = span.get_span_context()
    assert context is not None
    return context.trace_id


def _span_id(span: ReadableSpan) -> int:
    context = span.get_span_context()
    assert context is not None
    return context.span_id


def _to_record(span: ReadableSpan) -> SpanRecord:
    assert span.start_time is not None
    assert span.end_time is not None
    return SpanRecord(
        span_id=f"{_span_id(span):016x}",
        parent_id=f"{span.parent.span_id:016x}" if span.parent else None,
        name=span.name,
        start_ns=span.start_time,
        end_ns=span.end_time,
        attributes=dict(span.attributes or {}),
        status=_STATUSES[span.status.status_code],
        status_message=span.status.description or "",
        is_client=span.kind is SpanKind.CLIENT,
        events=tuple(map(_to_event, span.events)),
    )


def _to_event(event: Event) -> EventRecord:
    return EventRecord(event.name, event.timestamp, dict(event.attributes or {}))
