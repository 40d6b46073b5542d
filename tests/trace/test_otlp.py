"""Sending traces to a collector: the real exporter over loopback, to one that works and to ones that do not."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# Imported before any test, as a program that sends would have it by its second run.
import opentelemetry.exporter.otlp.proto.http.trace_exporter  # noqa: F401
import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from agentrt.config import RuntimeConfig
from agentrt.trace.open import open_tracing
from agentrt.trace.otel import OtelTracing
from agentrt.trace.otlp import OtlpSender, endpoint_from_env
from agentrt.trace.outbox import Outbox
from agentrt.trace.spans import Tracing
from agentrt.trace.store import TraceStore
from tests.support.otlp_collector import Collector, running_collector


@pytest.fixture(autouse=True)
def _no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    for name in list(os.environ):
        if name.startswith("OTEL_"):
            monkeypatch.delenv(name)


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    with running_collector() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.endpoint)
        yield collector


def run_once(tracing: Tracing, *, run_id: str = "r1", num_tokens: int = 3, fails: bool = False) -> str | None:
    run = tracing.start_run(run_id=run_id, dag="support", deadline_s=None, slo_p99_s=1.5)
    action = run.action(name="answer", action_type="llm", agent="writer", tool=None)
    call = action.model_call(model="m", provider="agentrt", max_tokens=9, temperature=0.0, prompt="hello")
    for step in range(num_tokens):
        call.token(10**18 + step, step, -0.5, "x")
    call.end(finish_reason="stop", num_prompt_tokens=7)
    error = ValueError("it broke") if fails else None
    action.end(status="failed" if fails else "succeeded", error=error)
    run.end(status="failed" if fails else "succeeded", error=error)
    return run.trace_id


def attributes(span: Span) -> dict[str, Any]:
    values = {}
    for attribute in span.attributes:
        kind = attribute.value.WhichOneof("value")
        values[attribute.key] = getattr(attribute.value, kind)
    return values


def test_a_collector_gets_the_whole_tree(collector: Collector, tmp_path: Path) -> None:
    """Over the wire a run is run > agent > action > model call > token, the same spans that the store keeps."""
    tracing = open_tracing(RuntimeConfig(data_dir=tmp_path))
    trace_id = run_once(tracing, num_tokens=1000)
    tracing.close()
    spans = {span.span_id.hex(): span for span in collector.spans}
    assert len(spans) == len(collector.spans) == 1004
    assert {span.trace_id.hex() for span in spans.values()} == {trace_id}
    token = next(span for span in spans.values() if attributes(span).get("llm.step") == 999)
    chain = [token]
    while chain[-1].parent_span_id:
        chain.append(spans[chain[-1].parent_span_id.hex()])
    assert [span.name for span in chain] == [
        "llm.token.generate",
        "chat m",
        "action answer",
        "invoke_agent writer",
        "invoke_workflow support",
    ]
    internal, client = Span.SpanKind.SPAN_KIND_INTERNAL, Span.SpanKind.SPAN_KIND_CLIENT
    assert [span.kind for span in chain] == [internal, client, internal, internal, internal]
    assert attributes(token) == {"llm.step": 999, "llm.token_id": 999, "llm.logprob": -0.5}
    assert attributes(chain[1])["gen_ai.usage.output_tokens"] == 1000
    assert attributes(chain[4])["agentrt.slo_p99_s"] == 1.5
    stored = TraceStore(tmp_path / "traces.sqlite3").load_run("r1")
    assert {span.span_id for span in stored.spans} == set(spans)
    assert {(span.span_id, span.parent_id, span.start_ns, span.end_ns) for span in stored.spans} == {
        (span_id, span.parent_span_id.hex() or None, span.start_time_unix_nano, span.end_time_unix_nano)
        for span_id, span in spans.items()
    }


def test_the_standard_variables_are_obeyed(
    collector: Collector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Headers, resource and service name are set the way every OpenTelemetry program sets them."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-tenant=blue")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=staging")
    monkeypatch.setenv("OTEL_SERVICE_NAME", "helpdesk")
    tracing = open_tracing(RuntimeConfig(data_dir=tmp_path))
    run_once(tracing)
    tracing.close()
    assert collector.paths == ["/v1/traces"]
    assert collector.headers[0]["x-tenant"] == "blue"
    assert collector.headers[0]["content-type"] == "application/x-protobuf"
    (resource_spans,) = collector.requests[0].resource_spans
    resource = {attribute.key: attribute.value.string_value for attribute in resource_spans.resource.attributes}
    assert resource["service.name"] == "helpdesk"
    assert resource["deployment.environment.name"] == "staging"
    (scope_spans,) = resource_spans.scope_spans
    assert scope_spans.scope.name == "agentrt"
    assert scope_spans.scope.attributes[0].value.string_value == "0.1.0"


def test_an_error_arrives_as_an_error(collector: Collector, tmp_path: Path) -> None:
    """Status, message and ``error.type`` of a failed run are what the collector gets."""
    tracing = open_tracing(RuntimeConfig(data_dir=tmp_path))
    run_once(tracing, fails=True)
    tracing.close()
    root = next(span for span in collector.spans if not span.parent_span_id)
    assert root.status.code == Status.StatusCode.STATUS_CODE_ERROR
    assert root.status.message == "it broke"
    assert attributes(root)["error.type"] == "ValueError"


def test_nothing_is_sent_unless_an_endpoint_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """No default endpoint is guessed, the one for traces wins, and ``OTEL_TRACES_EXPORTER=none`` switches sending off."""
    assert endpoint_from_env() is None
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://anna:hunter2@all:4318")
    assert endpoint_from_env() == "http://all:4318"
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://traces:4318/v1/traces")
    assert endpoint_from_env() == "http://traces:4318/v1/traces"
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "none")
    assert endpoint_from_env() is None


def log_lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    assert all(record.exc_info is None for record in caplog.records), "no traceback is shown"
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.mark.parametrize("status", [400, 500])
def test_a_collector_that_refuses_costs_a_line_of_log(
    collector: Collector, tmp_path: Path, caplog: pytest.LogCaptureFixture, status: int
) -> None:
    """Runs are stored as ever; the log tells once what the collector answered, and when it works again it gets the next."""
    collector.status = status
    tracing = open_tracing(RuntimeConfig(data_dir=tmp_path))
    run_once(tracing, run_id="r1")
    run_once(tracing, run_id="r2")
    tracing.close()
    first, second = log_lines(caplog)
    assert first.startswith(f"agentrt-trace-otlp: a trace could not be sent to {collector.endpoint} (")
    assert str(status) in first
    assert second == "agentrt-trace-otlp: 2 of the finished traces were not delivered"
    assert len(TraceStore(tmp_path / "traces.sqlite3").list_runs()) == 2
    collector.status = 200
    tracing = open_tracing(RuntimeConfig(data_dir=tmp_path))
    run_once(tracing, run_id="r3")
    tracing.close()
    assert len(collector.requests) == 1


def test_a_collector_that_is_down_costs_a_line_of_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With nobody at the endpoint a run succeeds, is stored, and the key in the endpoint is not in the log."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
        # Bound but not listening: connections are refused.
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", f"http://127.0.0.1:{port}/v1/traces?key=hunter2")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
        tracing = open_tracing(RuntimeConfig(data_dir=tmp_path))
        assert run_once(tracing) is not None
        tracing.close()
    lines = log_lines(caplog)
    assert lines
    assert all(line.startswith("agentrt-trace-otlp: ") for line in lines)
    assert "hunter2" not in "".join(lines)
    assert len(TraceStore(tmp_path / "traces.sqlite3").list_runs()) == 1


def test_a_collector_that_hangs_holds_up_neither_runs_nor_the_end(
    collector: Collector, caplog: pytest.LogCaptureFixture
) -> None:
    """While a request hangs, runs go on and end; closing gives up after its timeout and counts what was lost."""
    collector.hangs = True
    sender = OtlpSender(collector.endpoint)
    outbox = Outbox("otlp", sender.send, stop=sender.stop)
    tracing = OtelTracing([outbox], close_timeout_s=0.0)
    run_once(tracing, run_id="r1")
    assert collector.is_asked.wait(30)
    for number in range(2, 5):
        run_once(tracing, run_id=f"r{number}")
    tracing.close()
    assert outbox.num_dropped >= 4
    assert "otlp: 4 of the finished traces were not delivered" in log_lines(caplog)


def test_other_programs_log_lines_pass(collector: Collector, caplog: pytest.LogCaptureFixture) -> None:
    """Only what the exporter says in our own thread is kept off the log: the program's own exporter may still complain."""
    collector.hangs = True
    sender = OtlpSender(collector.endpoint)
    outbox = Outbox("otlp", sender.send, stop=sender.stop)
    tracing = OtelTracing([outbox], close_timeout_s=30.0)
    run_once(tracing)
    assert collector.is_asked.wait(30)
    logging.getLogger("opentelemetry.exporter.otlp.proto.http.trace_exporter").error("theirs")
    collector.may_answer.set()
    tracing.close()
    assert log_lines(caplog) == ["theirs"]
    assert threading.current_thread().name != "otlp"


def test_a_protocol_that_is_not_spoken_is_told(
    collector: Collector, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who asks for gRPC is told that traces go out as http/protobuf."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
    tracing = open_tracing(RuntimeConfig(data_dir=tmp_path))
    run_once(tracing)
    tracing.close()
    assert log_lines(caplog) == ["traces are sent as http/protobuf; 'grpc' is not supported"]
    assert len(collector.spans) == 7
