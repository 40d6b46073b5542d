"""The local store: what goes in comes out, for many processes at once, whatever happened to the file."""

from __future__ import annotations

import os
import signal
import sqlite3
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from agentrt.errors import TraceStoreError, UnknownRunError
from agentrt.trace.record import RunTraceRecord, SpanRecord, SpanStatus
from agentrt.trace.store import TraceStore
from tests.support.traces import EPOCH_NS, Recording, record_support_run


def a_trace(
    run_id: str, *, number: int = 0, dag: str = "d", status: str = "succeeded", num_spans: int = 1
) -> RunTraceRecord:
    started_ns = EPOCH_NS + number * 10**9
    root = SpanRecord(
        f"{number + 1:016x}",
        None,
        f"invoke_workflow {dag}",
        started_ns,
        started_ns + 10**9,
        {
            "gen_ai.operation.name": "invoke_workflow",
            "agentrt.run_id": run_id,
            "agentrt.dag": dag,
            "agentrt.status": status,
        },
    )
    rest = [
        SpanRecord(f"{index:016x}", root.span_id, "x" * 200, started_ns, started_ns)
        for index in range(10**6, 10**6 + num_spans - 1)
    ]
    return RunTraceRecord.from_spans(f"{number + 1:032x}", [root, *rest])


def run_python(source: str, *arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", source, *map(str, arguments)],
        cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_trace_comes_back_as_it_went_in(tmp_path: Path) -> None:
    """Every span, attribute, event and figure of a run survives the store; the summary is the sum of its spans."""
    recording = Recording(content=True)
    record_support_run(recording, fails=True)
    (trace,) = recording.records()
    store = TraceStore(tmp_path / "traces.sqlite3")
    store.write(trace)
    store.close()
    loaded = TraceStore(store.path).load_run("9f3c2a1b4d5e")
    assert loaded.summary == trace.summary
    assert loaded.summary.num_completion_tokens == 64
    assert [replace(span, attributes={}) for span in loaded.spans] == [
        replace(span, attributes={}) for span in trace.spans
    ]
    for one, other in zip(loaded.spans, trace.spans, strict=True):
        # JSON has lists only.
        assert one.attributes == {k: list(v) if isinstance(v, tuple) else v for k, v in other.attributes.items()}


def test_values_that_json_lacks_do_not_lose_a_trace(tmp_path: Path) -> None:
    """A token that a constraint forbade has an infinite log probability: it is stored as null."""
    span = SpanRecord("0" * 15 + "1", None, "x", 1, 2, {"llm.logprob": float("-inf"), "other": 1.5})
    store = TraceStore(tmp_path / "t")
    store.write(RunTraceRecord.from_spans("a" * 32, [span]))
    assert store.load_run("last").spans[0].attributes == {"llm.logprob": None, "other": 1.5}


def test_runs_are_listed_latest_first_and_filtered(tmp_path: Path) -> None:
    """The list is by start, however late a run was written; filters and limit apply together."""
    store = TraceStore(tmp_path / "t")
    for number in (2, 0, 3, 1):
        dag, status = ("even" if number % 2 == 0 else "odd"), ("failed" if number == 3 else "succeeded")
        store.write(a_trace(f"r{number}", number=number, dag=dag, status=status))
    assert [run.run_id for run in store.list_runs()] == ["r3", "r2", "r1", "r0"]
    assert [run.run_id for run in store.list_runs(1, dag="odd")] == ["r3"]
    assert [run.run_id for run in store.list_runs(dag="odd", status="succeeded")] == ["r1"]
    assert store.list_runs(dag="no such") == []


def test_a_run_is_found_by_its_id_its_beginning_its_trace_or_as_the_last(tmp_path: Path) -> None:
    """An exact id wins over a longer one that begins with it; a run with several traces is shown by the latest."""
    store = TraceStore(tmp_path / "t")
    store.write(a_trace("abc", number=1))
    store.write(a_trace("abcdef", number=2))
    store.write(a_trace("xyz", number=4))
    store.write(a_trace("xyz", number=3))
    assert store.load_run("abc").summary.run_id == "abc"
    assert store.load_run("abcd").summary.run_id == "abcdef"
    assert store.load_run(f"{3:032x}").summary.run_id == "abcdef"
    assert store.load_run("xyz").summary.started_ns == EPOCH_NS + 3 * 10**9
    assert store.load_run("last").summary.run_id == "xyz"


def test_an_unknown_run_comes_with_the_nearest_one(tmp_path: Path) -> None:
    """A mistyped id, an id that fits several runs and an empty one are told apart, each with what to do."""
    store = TraceStore(tmp_path / "t")
    with pytest.raises(UnknownRunError, match="does not exist, so no run was recorded yet"):
        store.load_run("last")
    store.write(a_trace("9f3c2a1b", number=1))
    store.write(a_trace("9f77aa00", number=2))
    with pytest.raises(UnknownRunError, match=r"no run '9f3c2a1d' .*did you mean 9f3c2a1b\?"):
        store.load_run("9f3c2a1d")
    with pytest.raises(UnknownRunError, match="2 runs begin with '9f': 9f77aa00, 9f3c2a1b; give more characters"):
        store.load_run("9f")
    with pytest.raises(UnknownRunError, match="`agentrt trace list` shows what there is"):
        store.load_run("")
    with pytest.raises(UnknownRunError):
        store.load_run("9f%")


def test_the_store_is_its_owners_alone(tmp_path: Path) -> None:
    """Traces may hold prompts: nobody else can read the folder, the file or the files beside it."""
    store = TraceStore(tmp_path / "data" / "traces.sqlite3")
    assert store.list_runs() == []
    assert not store.path.parent.exists()
    previous = os.umask(0)
    try:
        store.write(a_trace("r"))
    finally:
        os.umask(previous)
    assert stat.S_IMODE(store.path.parent.stat().st_mode) == 0o700
    assert {stat.S_IMODE(file.stat().st_mode) for file in store.path.parent.iterdir()} == {0o600}


def test_the_oldest_runs_go_when_there_are_too_many(tmp_path: Path) -> None:
    """The store never holds more runs than its bound, and their spans go with them."""
    store = TraceStore(tmp_path / "t", max_runs=3)
    for number in range(5):
        store.write(a_trace(f"r{number}", number=number, num_spans=4))
    assert [run.run_id for run in store.list_runs()] == ["r4", "r3", "r2"]
    with sqlite3.connect(store.path) as connection:
        assert connection.execute("SELECT count(*) FROM spans").fetchone() == (12,)
    connection.close()


def test_the_oldest_runs_go_when_the_file_is_too_large(tmp_path: Path) -> None:
    """The file stays near its bound, and the run just written is always kept."""
    max_bytes = 400_000
    store = TraceStore(tmp_path / "t", max_bytes=max_bytes)
    for number in range(30):
        store.write(a_trace(f"r{number}", number=number, num_spans=100))
    runs = store.list_runs(100)
    store.close()
    assert runs[0].run_id == "r29"
    assert 1 < len(runs) < 30
    assert store.path.stat().st_size < 1.5 * max_bytes
    TraceStore(store.path, max_bytes=1).write(a_trace("last", number=99, num_spans=100))
    assert [run.run_id for run in store.list_runs()] == ["last"]


def test_many_processes_write_one_new_store_at_once(tmp_path: Path) -> None:
    """Processes that start together, on a store that none of them has made yet, take turns and lose nothing."""
    source = """
import sys
from tests.trace.test_trace_store import a_trace
from agentrt.trace.store import TraceStore
from pathlib import Path
first = int(sys.argv[2])
store = TraceStore(Path(sys.argv[1]))
for number in range(first, first + 25):
    store.write(a_trace(f"r{number}", number=number, num_spans=20))
store.close()
"""
    path = tmp_path / "new" / "t"
    writers = [run_python(source, path, first) for first in (0, 25, 50)]
    reader = TraceStore(path)
    while any(writer.poll() is None for writer in writers):
        for run in reader.list_runs(1000):
            assert run.num_spans == 20
    for writer in writers:
        assert writer.communicate() == ("", "")
        assert writer.returncode == 0
    assert {run.run_id for run in reader.list_runs(1000)} == {f"r{number}" for number in range(75)}
    assert all(len(reader.load_run(f"r{number}").spans) == 20 for number in (0, 33, 74))


def test_a_reader_holds_up_no_writer(tmp_path: Path) -> None:
    """A trace is written while somebody has the list open, and the list stays what it was when it was opened."""
    store = TraceStore(tmp_path / "t")
    store.write(a_trace("before", number=1))
    with sqlite3.connect(f"file:{store.path}?mode=ro", uri=True, isolation_level=None) as reader:
        reader.execute("BEGIN")
        assert reader.execute("SELECT count(*) FROM runs").fetchone() == (1,)
        store.write(a_trace("meanwhile", number=2))
        assert reader.execute("SELECT count(*) FROM runs").fetchone() == (1,)
    reader.close()
    assert len(store.list_runs()) == 2


def test_a_process_that_is_killed_loses_only_the_run_it_was_in(tmp_path: Path) -> None:
    """After a SIGKILL in the middle of a run the runs before it are there and the store is sound."""
    source = """
import os, signal, sys
from pathlib import Path
from agentrt.config import RuntimeConfig
from agentrt.trace.open import open_tracing
from agentrt.trace.store import TraceStore
config = RuntimeConfig(data_dir=Path(sys.argv[1]))
tracing = open_tracing(config)
run = tracing.start_run(run_id="first", dag="d", deadline_s=None, slo_p99_s=None)
run.end(status="succeeded")
run = tracing.start_run(run_id="second", dag="d", deadline_s=None, slo_p99_s=None)
run.action(name="a", action_type="function", agent=None, tool=None)
while not TraceStore(config.trace_db).list_runs():
    pass
os.kill(os.getpid(), signal.SIGKILL)
"""
    process = run_python(source, tmp_path)
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    store = TraceStore(tmp_path / "traces.sqlite3")
    assert [run.run_id for run in store.list_runs()] == ["first"]
    store.write(a_trace("third"))
    assert len(store.list_runs()) == 2


@pytest.mark.parametrize("content", [b"this is not a database" * 100, b"SQLite format 3\0" + b"\xff" * 4096])
def test_a_damaged_file_is_told_with_its_path_and_a_way_out(tmp_path: Path, content: bytes) -> None:
    """Reading and writing say which file it is and how to go on, and leave it as it was."""
    path = tmp_path / "t"
    path.write_bytes(content)
    store = TraceStore(path)
    for attempt in (store.list_runs, lambda: store.load_run("last"), lambda: store.write(a_trace("r"))):
        with pytest.raises(TraceStoreError) as caught:
            attempt()
        assert str(path) in str(caught.value)
        assert f"mv {path} {path}.damaged" in str(caught.value)
    assert path.read_bytes() == content
    path.rename(f"{path}.damaged")
    store.write(a_trace("r"))
    assert len(store.list_runs()) == 1


def test_pages_damaged_in_the_middle_are_told(tmp_path: Path) -> None:
    """A store whose spans were overwritten raises a TraceStoreError, never a wrong trace or an error of SQLite."""
    path = tmp_path / "t"
    store = TraceStore(path)
    store.write(a_trace("r", num_spans=500))
    store.close()
    content = bytearray(path.read_bytes())
    page_bytes = 4096
    content[6 * page_bytes : 12 * page_bytes] = b"\xa5" * (6 * page_bytes)
    path.write_bytes(content)
    with pytest.raises(TraceStoreError, match="cannot be read"):
        store.load_run("r")


def test_another_programs_database_is_left_alone(tmp_path: Path) -> None:
    """A SQLite file that is not ours is neither read nor changed."""
    path = tmp_path / "t"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE cookies (name TEXT)")
    connection.close()
    before = path.read_bytes()
    store = TraceStore(path)
    for attempt in (store.list_runs, lambda: store.write(a_trace("r"))):
        with pytest.raises(TraceStoreError, match="another program's SQLite file"):
            attempt()
    assert path.read_bytes() == before


def test_a_store_of_a_later_version_is_left_alone(tmp_path: Path) -> None:
    """An older agentrt does not write into a layout it does not know."""
    store = TraceStore(tmp_path / "t")
    store.write(a_trace("r"))
    store.close()
    with sqlite3.connect(store.path) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    for attempt in (store.list_runs, lambda: store.write(a_trace("r"))):
        with pytest.raises(TraceStoreError, match=r"has version 99 .* and this agentrt knows version 1"):
            attempt()


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    """A data folder below a file cannot exist: the error says so, and says which setting chooses another."""
    (tmp_path / "file").write_text("")
    store = TraceStore(tmp_path / "file" / "data" / "t")
    with pytest.raises(TraceStoreError, match="AGENTRT_DATA_DIR"):
        store.write(a_trace("r"))


def test_a_full_disk_leaves_what_was_there(tmp_path: Path) -> None:
    """A write that finds no room raises, the traces before it stay readable, and smaller ones still go in."""
    source = """
import resource, sys
from pathlib import Path
from agentrt.errors import TraceStoreError
from agentrt.trace.store import TraceStore
from tests.trace.test_trace_store import a_trace
store = TraceStore(Path(sys.argv[1]))
store.write(a_trace("small", number=1))
resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))
try:
    store.write(a_trace("large", number=2, num_spans=5000))
except TraceStoreError as error:
    print(error)
store.write(a_trace("after", number=3))
"""
    path = tmp_path / "t"
    output, errors = run_python(source, path).communicate()
    assert errors == ""
    assert "check that its disk has room" in output
    assert [run.run_id for run in TraceStore(path).list_runs()] == ["after", "small"]


def test_a_file_that_was_moved_away_is_made_anew(tmp_path: Path) -> None:
    """A server that has the store open notices that the file is another one and does not write into the void."""
    store = TraceStore(tmp_path / "t")
    store.write(a_trace("old", number=1))
    store.path.rename(tmp_path / "kept")
    for suffix in ("-wal", "-shm"):
        (tmp_path / f"t{suffix}").rename(tmp_path / f"kept{suffix}")
    store.write(a_trace("new", number=2))
    store.close()
    assert [run.run_id for run in store.list_runs()] == ["new"]
    assert [run.run_id for run in TraceStore(tmp_path / "kept").list_runs()] == ["old"]


def test_statuses_come_back_as_they_were(tmp_path: Path) -> None:
    """Every OpenTelemetry status survives the store."""
    store = TraceStore(tmp_path / "t")
    for number, status in enumerate(SpanStatus):
        span = SpanRecord(f"{number + 1:016x}", None, "x", 1, 2, status=status, status_message="why")
        store.write(RunTraceRecord.from_spans(f"{number + 1:032x}", [span]))
        assert store.load_run(f"{number + 1:032x}").spans == (span,)
