"""How the trace store lays a trace out in SQLite: its tables, and records to rows and back.

One row a run, one row a span. Ids are text, times integers, attributes and events JSON, so that the file can
be read with ``sqlite3`` and SQL's JSON functions as well.
"""

from __future__ import annotations

import json
from typing import Any

from agentrt.trace.record import EventRecord, RunSummary, SpanRecord, SpanStatus

SCHEMA_VERSION = 1
APPLICATION_ID = 0x61675274  # "agRt": tells this file from any other program's SQLite file.
SCHEMA = """
CREATE TABLE runs (
    id INTEGER PRIMARY KEY,
    run_id TEXT NOT NULL,
    trace_id TEXT NOT NULL UNIQUE,
    dag TEXT NOT NULL,
    status TEXT NOT NULL,
    started_ns INTEGER NOT NULL,
    duration_s REAL NOT NULL,
    deadline_s REAL,
    slo_p99_s REAL,
    error TEXT NOT NULL,
    num_actions INTEGER NOT NULL,
    num_model_calls INTEGER NOT NULL,
    num_prompt_tokens INTEGER NOT NULL,
    num_completion_tokens INTEGER NOT NULL,
    num_spans INTEGER NOT NULL
);
CREATE INDEX runs_by_start ON runs (started_ns);
CREATE INDEX runs_by_run_id ON runs (run_id);
CREATE TABLE spans (
    run INTEGER NOT NULL REFERENCES runs (id),
    ordinal INTEGER NOT NULL,
    span_id TEXT NOT NULL,
    parent_id TEXT,
    name TEXT NOT NULL,
    start_ns INTEGER NOT NULL,
    end_ns INTEGER NOT NULL,
    attributes TEXT NOT NULL,
    status TEXT NOT NULL,
    status_message TEXT NOT NULL,
    is_client INTEGER NOT NULL,
    events TEXT NOT NULL,
    PRIMARY KEY (run, ordinal)
) WITHOUT ROWID;
"""
SUMMARY_COLUMNS = (
    "run_id, trace_id, dag, status, started_ns, duration_s, deadline_s, slo_p99_s, error, "
    "num_actions, num_model_calls, num_prompt_tokens, num_completion_tokens, num_spans"
)
SPAN_COLUMNS = "span_id, parent_id, name, start_ns, end_ns, attributes, status, status_message, is_client, events"

_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def summary_row(summary: RunSummary) -> tuple[Any, ...]:
    return tuple(getattr(summary, column.strip()) for column in SUMMARY_COLUMNS.split(","))


def to_summary(row: tuple[Any, ...]) -> RunSummary:
    return RunSummary(*row)


def span_row(span: SpanRecord) -> tuple[Any, ...]:
    events = [[event.name, event.time_ns, event.attributes] for event in span.events]
    return (
        span.span_id,
        span.parent_id,
        span.name,
        span.start_ns,
        span.end_ns,
        _to_json(span.attributes),
        span.status.value,
        span.status_message,
        span.is_client,
        _to_json(events) if events else "[]",
    )


def _to_json(value: Any) -> str:
    try:
        return _ENCODER.encode(value)
    except ValueError:
        # JSON has no word for infinity, the log probability of a token that a constraint forbade: null stands
        # for it.
        return _ENCODER.encode(json.loads(json.dumps(value), parse_constant=lambda _: None))


def to_span(row: tuple[Any, ...]) -> SpanRecord:
    span_id, parent_id, name, start_ns, end_ns, attributes, status, message, is_client, events = row
    return SpanRecord(
        span_id=span_id,
        parent_id=parent_id,
        name=name,
        start_ns=start_ns,
        end_ns=end_ns,
        attributes=json.loads(attributes),
        status=SpanStatus(status),
        status_message=message,
        is_client=bool(is_client),
        events=tuple(EventRecord(*event) for event in json.loads(events)),
    )
