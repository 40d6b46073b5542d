"""Sending finished traces to a collector: OTLP over HTTP, protobuf, set up by the standard ``OTEL_*``
variables.

Traces are sent only when an endpoint is set. The exporter is made in the sending thread at the first trace:
its imports cost a quarter of a second, and a wrong setting must show as a warning, not as a run that fails.
It retries by itself; what it logs on the way is kept off the terminal and told once, as the reason why a
trace was dropped.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Mapping
from itertools import islice
from typing import TYPE_CHECKING

from agentrt.errors import ExecutionError
from agentrt.trace.finished import FinishedTrace
from agentrt.trace.redact import redact

if TYPE_CHECKING:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

logger = logging.getLogger(__name__)

BATCH_SIZE = 512
"""Spans in a request, the SDK's own default: about 100 KB of token spans."""

_EXPORTER_LOGGER = "opentelemetry.exporter.otlp.proto.http.trace_exporter"


def endpoint_from_env(environ: Mapping[str, str] | None = None) -> str | None:
    """Return the endpoint that ``OTEL_*`` names, fit to be shown, or None when nothing is to be sent."""
    environ = os.environ if environ is None else environ
    if environ.get("OTEL_TRACES_EXPORTER", "").strip().lower() == "none":
        return None
    endpoint = environ.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") or environ.get("OTEL_EXPORTER_OTLP_ENDPOINT")
    return redact(endpoint) if endpoint else None


class OtlpSender:
    """Sends traces to ``endpoint``, which is only shown; the exporter reads its settings itself."""

    def __init__(self, endpoint: str) -> None:
        self._endpoint = endpoint
        self._lock = threading.Lock()
        self._exporter: OTLPSpanExporter | None = None
        self._has_stopped = False

    def send(self, trace: FinishedTrace) -> None:
        """Send a trace in batches, retrying within the exporter's timeout.

        Raises:
            ExecutionError: the collector did not take it; what was sent of it before stays there.
        """
        from opentelemetry.context import _SUPPRESS_INSTRUMENTATION_KEY, attach, detach, set_value
        from opentelemetry.sdk.trace.export import SpanExportResult

        # Tells instrumented HTTP clients that these requests are not the program's own.
        token = attach(set_value(_SUPPRESS_INSTRUMENTATION_KEY, True))
        try:
            exporter = self._ready_exporter()
            spans = trace.readable_spans()
            with _LastWords() as said:
                while batch := list(islice(spans, BATCH_SIZE)):
                    if exporter.export(batch) is not SpanExportResult.SUCCESS:
                        raise ExecutionError(
                            f"a trace could not be sent to {self._endpoint} ({said.text}); the runs are not "
                            "affected, check that the collector answers there, or unset "
                            "OTEL_EXPORTER_OTLP_ENDPOINT"
                        )
        finally:
            detach(token)

    def stop(self) -> None:
        """Make a sending under way give up."""
        with self._lock:
            if not self._has_stopped and self._exporter is not None:
                self._exporter.shutdown()  # type: ignore[no-untyped-call]
            self._has_stopped = True

    def _ready_exporter(self) -> OTLPSpanExporter:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

        protocol = os.environ.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL") or os.environ.get("OTEL_EXPORTER_OTLP_PROTOCOL")
        with self._lock:
            if self._has_stopped:
                raise ExecutionError(f"a trace could not be sent to {self._endpoint}: tracing was closed")
            if self._exporter is None:
                if protocol and protocol != "http/protobuf":
                    logger.warning("traces are sent as http/protobuf; %r is not supported", protocol)
                self._exporter = OTLPSpanExporter()
            return self._exporter


class _LastWords(logging.Filter):
    """Keeps what the exporter logs in this thread off the terminal, and remembers the last of it."""

    def __init__(self) -> None:
        super().__init__()
        self._thread_id = threading.get_ident()
        self.text = "no reason given"

    def filter(self, record: logging.LogRecord) -> bool:
        if record.thread != self._thread_id:
            return True
        self.text = redact(record.getMessage())
        return False

    def __enter__(self) -> _LastWords:
        logging.getLogger(_EXPORTER_LOGGER).addFilter(self)
        return self

    def __exit__(self, *_: object) -> None:
        logging.getLogger(_EXPORTER_LOGGER).removeFilter(self)
