"""A finished trace as plain data: what the store keeps, what the waterfall draws.

Nothing here knows OpenTelemetry's SDK, so that looking at traces does not load it. What a span is (a run, an
agent, an action, a model call, a token) follows from its public attributes, not from a mark of our own: the
same reading works for any program's spans that keep to the conventions.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agentrt.trace import names
from agentrt.trace.token_timing import TokenTiming


class SpanKind(enum.StrEnum):
    RUN = "run"
    AGENT = "agent"
    ACTION = "action"
    MODEL_CALL = "model_call"
    TOKEN = "token"
    OTHER = "other"


class SpanStatus(enum.StrEnum):
    """OpenTelemetry's status; how a run or an action ended stands in the attribute ``agentrt.status``."""

    UNSET = "unset"
    OK = "ok"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class EventRecord:
    name: str
    time_ns: int
    attributes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SpanRecord:
    """One span. Ids are lower-case hex, times wall-clock nanoseconds; ``parent_id`` is None for a root."""

    span_id: str
    parent_id: str | None
    name: str
    start_ns: int
    end_ns: int
    attributes: Mapping[str, Any] = field(default_factory=dict)
    status: SpanStatus = SpanStatus.UNSET
    status_message: str = ""
    is_client: bool = False
    """OpenTelemetry's span kind: client if true, else internal."""
    events: tuple[EventRecord, ...] = ()

    @property
    def kind(self) -> SpanKind:
        if self.name == names.TOKEN_SPAN:
            return SpanKind.TOKEN
        match self.attributes.get(names.OPERATION):
            case names.INVOKE_WORKFLOW:
                return SpanKind.RUN
            case names.INVOKE_AGENT:
                return SpanKind.AGENT
            case names.CHAT:
                return SpanKind.MODEL_CALL
        return SpanKind.ACTION if names.ACTION_TYPE in self.attributes else SpanKind.OTHER

    @property
    def duration_s(self) -> float:
        """Never negative, whatever the clocks did."""
        return max(0, self.end_ns - self.start_ns) / 1e9


@dataclass(frozen=True, slots=True)
class RunSummary:
    """One run in a line, as a list of runs shows it."""

    run_id: str
    trace_id: str
    dag: str
    status: str
    started_ns: int
    duration_s: float
    deadline_s: float | None = None
    slo_p99_s: float | None = None
    error: str = ""
    num_actions: int = 0
    num_model_calls: int = 0
    num_prompt_tokens: int = 0
    num_completion_tokens: int = 0
    num_spans: int = 0

    @property
    def kept_slo(self) -> bool | None:
        """Whether the run ended well within the Dag's SLO; None without an SLO."""
        if self.slo_p99_s is None:
            return None
        return self.status == "succeeded" and self.duration_s <= self.slo_p99_s


@dataclass(frozen=True, slots=True)
class RunTraceRecord:
    """One run's whole trace, spans in no particular order."""

    summary: RunSummary
    spans: tuple[SpanRecord, ...]

    @classmethod
    def from_spans(cls, trace_id: str, spans: Iterable[SpanRecord]) -> RunTraceRecord:
        """Sum up the spans of one run; the root is the span without a parent."""
        spans = tuple(spans)
        root = next(span for span in spans if span.parent_id is None)
        # Nearly all spans are tokens: they are passed over at the price of a look at their name.
        others = [(span, span.kind) for span in spans if span.name != names.TOKEN_SPAN]
        calls = [span for span, kind in others if kind is SpanKind.MODEL_CALL]
        summary = RunSummary(
            run_id=str(root.attributes.get(names.RUN_ID, trace_id)),
            trace_id=trace_id,
            dag=str(root.attributes.get(names.DAG, root.name)),
            status=str(root.attributes.get(names.STATUS, root.status.value)),
            started_ns=root.start_ns,
            duration_s=root.duration_s,
            deadline_s=root.attributes.get(names.DEADLINE_S),
            slo_p99_s=root.attributes.get(names.SLO_P99_S),
            error=root.status_message,
            num_actions=sum(kind is SpanKind.ACTION for _, kind in others),
            num_model_calls=len(calls),
            num_prompt_tokens=sum(call.attributes.get(names.INPUT_TOKENS, 0) for call in calls),
            num_completion_tokens=sum(call.attributes.get(names.OUTPUT_TOKENS, 0) for call in calls),
            num_spans=len(spans),
        )
        return cls(summary, spans)

    def tree(self) -> list[tuple[int, SpanRecord]]:
        """Return every span once with its depth, parents before children, siblings by their start.

        A span whose parent is missing stands at depth 0, and so does one member of a ring of parents: nothing
        that was recorded is hidden because another span was lost.
        """
        known = {span.span_id for span in self.spans}
        children: dict[str | None, list[SpanRecord]] = {}
        by_start = sorted(self.spans, key=lambda span: (span.start_ns, span.end_ns))
        for span in by_start[::-1]:
            parent = span.parent_id if span.parent_id in known else None
            children.setdefault(parent, []).append(span)
        ordered: list[tuple[int, SpanRecord]] = []
        shown: set[str] = set()

        def descend(roots: Sequence[SpanRecord]) -> None:
            stack = [(0, span) for span in roots]
            while stack:
                depth, span = stack.pop()
                if span.span_id in shown:
                    continue
                shown.add(span.span_id)
                ordered.append((depth, span))
                stack += [(depth + 1, child) for child in children.get(span.span_id, ())]

        descend(children.get(None, []))
        for span in self.spans:
            descend([span])
        return ordered

    def token_timing(self) -> dict[str, TokenTiming]:
        """Return TTFT and ITL of each model call, by its span id, taken from its token spans.

        A call whose token spans were not kept (another program's trace) is read from its attributes.
        """
        times: dict[str | None, list[int]] = {}
        for span in self.spans:
            if span.kind is SpanKind.TOKEN:
                times.setdefault(span.parent_id, []).append(span.end_ns)
        return {
            call.span_id: TokenTiming.from_times(call.start_ns, sorted(times[call.span_id]))
            if call.span_id in times
            else TokenTiming(
                call.attributes.get(names.OUTPUT_TOKENS, 0),
                call.attributes.get(names.TIME_TO_FIRST_CHUNK),
                call.attributes.get(names.ITL_MEAN_S),
                call.attributes.get(names.ITL_P99_S),
            )
            for call in self.spans
            if call.kind is SpanKind.MODEL_CALL
        }
