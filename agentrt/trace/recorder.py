"""Opening and ending one span: explicit parents, honest times, a status that tells failed from cancelled.

The TracerProvider is our own and is never made the global one: a program that has OpenTelemetry set up keeps
its spans to itself and we keep ours. Everything is recorded; which traces are kept is decided when a run has
ended, not by the SDK's samplers, and the SDK's limits (128 events, 128 attributes) are lifted because they
would drop what was measured without a word.

A span begins by the wall clock and lasts by the monotonic one: a clock that is set during a run moves no end
before its beginning.
"""

from __future__ import annotations

import asyncio
import secrets
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version

from opentelemetry.context import Context
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import Span, SpanLimits, TracerProvider
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.trace import SpanKind, Status, StatusCode, set_span_in_context

from agentrt.errors import ActionError
from agentrt.trace import names
from agentrt.trace.finished import TraceCollector
from agentrt.trace.redact import redact

CANCELLED = "cancelled"
NOT_FAILED = frozenset({"succeeded", "skipped", CANCELLED})

Attributes = Mapping[str, str | int | float | bool | Sequence[str] | None]
"""Attributes of a span; those that are None are left out."""


@dataclass(frozen=True, slots=True)
class Clock:
    """Where times come from, in nanoseconds: ``wall_ns`` says when, ``monotonic_ns`` how long."""

    wall_ns: Callable[[], int] = time.time_ns
    monotonic_ns: Callable[[], int] = time.perf_counter_ns


class Recorder:
    """Opens spans: the tracer, the clock and the rule on content, shared by all spans of one OtelTracing."""

    def __init__(self, collector: TraceCollector, *, content: bool, clock: Clock) -> None:
        provider = TracerProvider(
            sampler=ALWAYS_ON,
            resource=_resource(),
            id_generator=_SystemIds(),
            span_limits=_unlimited(),
            shutdown_on_exit=False,
        )
        provider.add_span_processor(collector)
        self._tracer = provider.get_tracer(
            "agentrt", _version(), attributes={names.SEMCONV: names.SEMCONV_GENAI_VERSION}
        )
        self._clock = clock
        self.collector = collector
        self.content = content

    def open(
        self, name: str, parent: Span | None, attributes: Attributes, *, kind: SpanKind = SpanKind.INTERNAL
    ) -> OpenSpan:
        # An empty Context, not None: None would make the SDK look for an ambient span.
        context = Context() if parent is None else set_span_in_context(parent, Context())
        start_ns = self._clock.wall_ns()
        span = self._tracer.start_span(name, context, kind, _present(attributes), start_time=start_ns)
        assert isinstance(span, Span), "our own provider records every span"
        return OpenSpan(span, start_ns, self._clock.monotonic_ns(), self._clock)


@dataclass(slots=True)
class OpenSpan:
    span: Span
    start_ns: int
    _began_ns: int
    _clock: Clock
    has_ended: bool = False
    end_ns: int = field(default=0, init=False)

    def elapsed_ns(self) -> int:
        return self._clock.monotonic_ns() - self._began_ns

    def now_ns(self) -> int:
        return self.start_ns + self.elapsed_ns()

    def end(
        self,
        status: str,
        error: BaseException | None,
        attributes: Attributes | None = None,
        *,
        end_ns: int | None = None,
    ) -> None:
        """End the span once; ``status`` goes into ``agentrt.status`` and decides whether the span counts as
        failed."""
        if self.has_ended:
            return
        self.has_ended = True
        self.end_ns = self.now_ns() if end_ns is None else end_ns
        self.span.set_attributes({**_present(attributes or {}), names.STATUS: status})
        if status not in NOT_FAILED:
            self.span.set_attribute(names.ERROR_TYPE, error_type(error) if error is not None else status)
            message = redact(str(error) or type(error).__name__) if error is not None else status
            self.span.set_status(Status(StatusCode.ERROR, message))
        self.span.end(self.end_ns)


def is_cancellation(error: BaseException | None) -> bool:
    """Tell whether ``error`` is a cancellation or an interrupt, on asyncio or trio, alone or in a group of
    its like."""
    if isinstance(error, BaseExceptionGroup):
        return all(map(is_cancellation, error.exceptions))
    if isinstance(error, asyncio.CancelledError | KeyboardInterrupt | GeneratorExit):
        return True
    trio = sys.modules.get("trio")
    return trio is not None and isinstance(error, trio.Cancelled)


def error_type(error: BaseException) -> str:
    """Return the class of the reason: an ActionError only says where."""
    cause = error.__cause__ if isinstance(error, ActionError) and error.__cause__ is not None else error
    return type(cause).__name__


class _SystemIds(RandomIdGenerator):
    """Ids from the operating system: the SDK takes them from ``random``, and programs seed that.

    Two processes with the same seed, or two children of one, would write the same trace ids.
    """

    def generate_trace_id(self) -> int:
        return secrets.randbits(128) or 1

    def generate_span_id(self) -> int:
        return secrets.randbits(64) or 1


def _present(attributes: Attributes) -> dict[str, str | int | float | bool | Sequence[str]]:
    return {name: value for name, value in attributes.items() if value is not None}


def _resource() -> Resource:
    """Describe this process; OTEL_RESOURCE_ATTRIBUTES and OTEL_SERVICE_NAME win."""
    ours = Resource({"service.name": "agentrt", "service.version": _version()})
    return Resource.create().merge(ours).merge(OTELResourceDetector().detect())


def _version() -> str:
    try:
        return version("agentrt")
    except PackageNotFoundError:
        return "not installed"


def _unlimited() -> SpanLimits:
    unset = SpanLimits.UNSET
    return SpanLimits(
        max_attributes=unset,
        max_events=unset,
        max_links=unset,
        max_span_attributes=unset,
        max_event_attributes=unset,
        max_link_attributes=unset,
        max_attribute_length=unset,
        max_span_attribute_length=unset,
    )
