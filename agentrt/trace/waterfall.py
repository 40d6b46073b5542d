"""A trace laid out as a waterfall: which rows, in which order, and which cells of a row are inked.

Pure, so that a terminal and a web page draw the same picture. Cells follow one rule: a bar begins in the cell
its start falls into and ends in the cell its end falls into, and is one cell long at least. So nothing that
happened is invisible, and a span that lies inside another one in time is inside it on the screen. Clocks of
several processes may disagree: the window reaches from the first start to the last end of all spans, wherever
the run's own span lies.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from agentrt.trace import names
from agentrt.trace.record import RunTraceRecord, SpanKind, SpanRecord
from agentrt.trace.token_timing import TokenTiming


@dataclass(frozen=True, slots=True)
class Row:
    """One span in the picture; ``start_s`` counts from the beginning of the window."""

    span: SpanRecord
    kind: SpanKind
    label: str
    depth: int
    start_s: float
    duration_s: float
    status: str
    """``agentrt.status`` where the span has one, else OpenTelemetry's status."""
    is_parent: bool
    """Whether rows below belong to it."""
    tokens: TokenTiming | None = None
    """TTFT and ITL of a model call."""
    failed_attempts_s: tuple[float, ...] = ()
    """When attempts failed that were followed by another one, from the beginning of the window."""


@dataclass(frozen=True, slots=True)
class Waterfall:
    window_s: float
    rows: tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class Bar:
    """Cells of one row: ``before`` empty ones, ``wait`` until the first token, ``work`` after it (or of
    anything else)."""

    before: int
    wait: int
    work: int


def waterfall(trace: RunTraceRecord, *, with_tokens: bool = False) -> Waterfall:
    """Lay out ``trace``, parents above their children, siblings by their start; token spans only when asked
    for."""
    if not trace.spans:
        return Waterfall(0.0, ())
    began_ns = min(span.start_ns for span in trace.spans)
    ended_ns = max(max(span.start_ns, span.end_ns) for span in trace.spans)
    timing = trace.token_timing()
    shown = [(depth, span) for depth, span in trace.tree() if with_tokens or span.kind is not SpanKind.TOKEN]
    following = [depth for depth, _ in shown[1:]] + [0]
    rows = tuple(
        Row(
            span=span,
            kind=span.kind,
            label=_label(span),
            depth=depth,
            start_s=(span.start_ns - began_ns) / 1e9,
            duration_s=span.duration_s,
            status=str(span.attributes.get(names.STATUS, span.status.value)),
            is_parent=next_depth > depth,
            tokens=timing.get(span.span_id),
            failed_attempts_s=tuple(
                (event.time_ns - began_ns) / 1e9 for event in span.events if event.name == names.ATTEMPT_FAILED_EVENT
            ),
        )
        for (depth, span), next_depth in zip(shown, following, strict=True)
    )
    return Waterfall((ended_ns - began_ns) / 1e9, rows)


def bar(row: Row, window_s: float, width: int) -> Bar:
    """Return the cells of ``row`` on a line of ``width`` cells (at least one) that stands for
    ``window_s``."""
    start = cell_at(row.start_s, window_s, width)
    end = cell_at(row.start_s + row.duration_s, window_s, width, is_end=True)
    length = max(1, end - start)
    wait = 0
    if row.tokens is not None:
        if row.tokens.ttft_s is None:
            wait = length
        else:
            first = cell_at(row.start_s + row.tokens.ttft_s, window_s, width)
            wait = min(max(0, first - start), length - 1)
    elif row.kind is SpanKind.TOKEN and row.span.attributes.get(names.TOKEN_STEP) == 0:
        wait = length
    return Bar(start, wait, length - wait)


def cell_at(time_s: float, window_s: float, width: int, *, is_end: bool = False) -> int:
    """Return the cell a moment falls into, counted from 0; as an end, the first cell that lies behind it."""
    share = min(1.0, max(0.0, time_s / window_s)) if window_s > 0 else 0.0
    return min(width, math.ceil(share * width)) if is_end else min(width - 1, math.floor(share * width))


def _label(span: SpanRecord) -> str:
    attributes = span.attributes
    match span.kind:
        case SpanKind.RUN:
            return str(attributes.get(names.DAG, span.name))
        case SpanKind.AGENT:
            return f"agent {attributes.get(names.AGENT_NAME, span.name)}"
        case SpanKind.ACTION:
            return str(attributes.get(names.ACTION_NAME, span.name))
        case SpanKind.MODEL_CALL:
            return str(attributes.get(names.REQUEST_MODEL, span.name))
        case SpanKind.TOKEN:
            parts = [f"#{attributes.get(names.TOKEN_STEP, '?')}"]
            if names.TOKEN_ID in attributes:
                parts.append(f"id {attributes[names.TOKEN_ID]}")
            logprob = attributes.get(names.TOKEN_LOGPROB)
            if isinstance(logprob, int | float):
                parts.append(f"p {math.exp(min(0.0, logprob)):.2f}")
            return " ".join(parts)
        case SpanKind.OTHER:
            return span.name
