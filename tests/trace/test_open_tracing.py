"""Choosing how runs are recorded, and what stays untouched when they are not."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path

import pytest

from agentrt.config import RuntimeConfig
from agentrt.errors import ModelResponseError
from agentrt.trace.open import NullTracing, open_tracing
from agentrt.trace.store import TraceStore


@pytest.fixture(autouse=True)
def _no_collector(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_SDK_DISABLED"):
        monkeypatch.delenv(name, raising=False)


def test_switched_off_nothing_is_recorded_and_nothing_loaded(tmp_path: Path) -> None:
    """Without traces there is no trace id, no file, and OpenTelemetry is not even imported."""
    source = """
import sys
from pathlib import Path
from agentrt.config import RuntimeConfig
from agentrt.trace.open import open_tracing
tracing = open_tracing(RuntimeConfig(data_dir=Path(sys.argv[1]), trace=False))
run = tracing.start_run(run_id="r", dag="d", deadline_s=None, slo_p99_s=None)
action = run.action(name="a", action_type="llm", agent="w", tool=None)
call = action.model_call(model="m", provider="p", max_tokens=1, temperature=0.0)
call.token(1, 2, None, "x")
call.end(finish_reason="stop")
action.end(status="succeeded")
run.end(status="succeeded")
tracing.close()
print(run.trace_id, call.traceparent, any(name.startswith("opentelemetry") for name in sys.modules))
"""
    done = subprocess.run(
        [sys.executable, "-c", source, str(tmp_path)],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "None None False\n"
    assert list(tmp_path.iterdir()) == []


def test_a_disabled_sdk_is_respected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``OTEL_SDK_DISABLED=true`` switches recording off, as it does for every program with OpenTelemetry."""
    monkeypatch.setenv("OTEL_SDK_DISABLED", "True")
    assert isinstance(open_tracing(RuntimeConfig(data_dir=tmp_path)), NullTracing)


def test_a_run_is_in_the_store_after_close(tmp_path: Path) -> None:
    """What ended before ``close`` is stored when it returns; closing twice is safe and nothing was made before a run."""
    tracing = open_tracing(RuntimeConfig(data_dir=tmp_path / "data"))
    assert not (tmp_path / "data").exists()
    run = tracing.start_run(run_id="r", dag="d", deadline_s=None, slo_p99_s=None)
    action = run.action(name="a", action_type="http", agent=None, tool=None)
    action.attempt_failed(1, ModelResponseError("503"), 0.5)
    action.end(status="succeeded")
    run.end(status="succeeded")
    tracing.close()
    tracing.close()
    loaded = TraceStore(tmp_path / "data" / "traces.sqlite3").load_run("r")
    assert loaded.summary.trace_id == run.trace_id
    assert len(loaded.spans) == 2


def test_a_process_that_ends_without_close_still_keeps_its_traces(tmp_path: Path) -> None:
    """A program that just falls off its end hands over what has finished."""
    source = """
import sys
from pathlib import Path
from agentrt.config import RuntimeConfig
from agentrt.trace.open import open_tracing
run = open_tracing(RuntimeConfig(data_dir=Path(sys.argv[1]))).start_run(
    run_id="r", dag="d", deadline_s=None, slo_p99_s=None
)
run.end(status="succeeded")
"""
    subprocess.run(
        [sys.executable, "-c", source, str(tmp_path)], cwd=Path(__file__).parents[2], check=True, capture_output=True
    )
    assert len(TraceStore(tmp_path / "traces.sqlite3").list_runs()) == 1


def test_a_forked_child_records_its_own_runs(tmp_path: Path) -> None:
    """After a fork parent and child both go on recording, on connections of their own, under ids that never meet."""
    source = """
import os, random, sys
from pathlib import Path
from agentrt.config import RuntimeConfig
from agentrt.trace.open import open_tracing
from agentrt.trace.store import TraceStore
config = RuntimeConfig(data_dir=Path(sys.argv[1]))
tracing = open_tracing(config)
def record(run_id):
    random.seed(0)
    tracing.start_run(run_id=run_id, dag="d", deadline_s=None, slo_p99_s=None).end(status="succeeded")
record("before")
while not TraceStore(config.trace_db).list_runs():
    pass
child = os.fork()
for number in range(20):
    record(f"parent{number}" if child else f"child{number}")
tracing.close()
if child:
    assert os.waitpid(child, 0)[1] == 0
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", source, str(tmp_path)],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    runs = {run.run_id for run in TraceStore(tmp_path / "traces.sqlite3").list_runs(100)}
    assert runs == {"before"} | {f"{who}{number}" for who in ("parent", "child") for number in range(20)}


def test_a_store_that_cannot_be_written_hurts_no_run(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Runs go on and have their trace ids; the log tells once what is wrong with the store, and how many were lost."""
    (tmp_path / "data").write_text("a file where the folder should be")
    tracing = open_tracing(RuntimeConfig(data_dir=tmp_path / "data"))
    for number in range(3):
        run = tracing.start_run(run_id=f"r{number}", dag="d", deadline_s=None, slo_p99_s=None)
        assert run.trace_id is not None
        run.end(status="succeeded")
    tracing.close()
    told = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(told) == 2
    assert "cannot be written" in told[0]
    assert "AGENTRT_DATA_DIR" in told[0]
    assert told[1] == "agentrt-trace-store: 3 of the finished traces were not delivered"
