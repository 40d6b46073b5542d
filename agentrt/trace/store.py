"""The local store of traces: one SQLite file that many processes write and anybody may read.

WAL mode lets readers and one writer work at the same time; writers of different processes take turns, each
for one short transaction that holds a whole trace, so a process that is killed leaves either all of a trace
or nothing. A line per run answers ``trace list`` without touching spans.

The store bounds itself: with each trace it writes, the oldest go when there are more than ``MAX_RUNS`` or the
file holds more than ``MAX_BYTES``. Both are constants, not settings: a month of a developer's runs fits in
easily, and traces that must be kept for longer or in greater numbers belong into a collector (OTLP), not into
a file in a home folder.

Traces may hold prompts when that was asked for, so the folder and the file are their owner's alone.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from agentrt.errors import TraceStoreError, UnknownRunError, nearest_match
from agentrt.trace.record import RunSummary, RunTraceRecord
from agentrt.trace.store_layout import (
    APPLICATION_ID,
    SCHEMA,
    SCHEMA_VERSION,
    SPAN_COLUMNS,
    SUMMARY_COLUMNS,
    span_row,
    summary_row,
    to_span,
    to_summary,
)

MAX_RUNS = 10_000
MAX_BYTES = 2**30
BUSY_TIMEOUT_S = 5.0
"""How long a writer waits for the writers of other processes; a trace takes milliseconds."""

_MOVE = "move it away (mv {0} {0}.damaged) and the next run makes a new one"


class TraceStore:
    """Traces of runs in the SQLite file ``path``. Nothing is created before the first ``write``."""

    def __init__(self, path: Path, *, max_runs: int = MAX_RUNS, max_bytes: int = MAX_BYTES) -> None:
        self.path = path
        self._max_runs = max_runs
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._writer: sqlite3.Connection | None = None
        self._closes_before_forks = False
        self._written_file: tuple[int, int] | None = None

    def write(self, trace: RunTraceRecord) -> None:
        """Store a trace in one transaction and let go of the oldest beyond the store's bounds.

        Raises:
            TraceStoreError: it could not be written; the store holds nothing of it.
        """
        with self._lock, self._explained("written"):
            if not self._closes_before_forks:
                self._close_before_forks()
            if self._writer is None or self._written_file != _identity(self.path):
                self._close_writer()
                self._writer = self._open_for_writing()
                self._written_file = _identity(self.path)
            try:
                with _transaction(self._writer) as connection:
                    self._insert(connection, trace)
                    self._forget_oldest(connection)
            except BaseException:
                # Whatever it was, the next trace begins with a fresh look at the file.
                self._close_writer()
                raise

    def list_runs(self, limit: int = 20, *, dag: str | None = None, status: str | None = None) -> list[RunSummary]:
        """Return the latest runs, latest first; none when nothing was ever recorded.

        Raises:
            TraceStoreError: the store cannot be read.
        """
        query = (
            f"SELECT {SUMMARY_COLUMNS} FROM runs WHERE dag = coalesce(?, dag) "
            "AND status = coalesce(?, status) ORDER BY started_ns DESC, id DESC LIMIT ?"
        )
        with self._reading() as connection:
            if connection is None:
                return []
            return [to_summary(row) for row in connection.execute(query, (dag, status, limit))]

    def load_run(self, run: str) -> RunTraceRecord:
        """Load the run whose id is or begins with ``run`` (or whose trace id does), or the ``last`` one.

        Raises:
            UnknownRunError: no run fits, or more than one does.
            TraceStoreError: the store cannot be read.
        """
        with self._reading() as connection:
            if connection is None:
                raise UnknownRunError(f"no run {run!r}: {self.path} does not exist, so no run was recorded yet")
            row_id = _find(connection, run, self.path)
            (summary,) = connection.execute(f"SELECT {SUMMARY_COLUMNS} FROM runs WHERE id = ?", (row_id,))
            spans = connection.execute(f"SELECT {SPAN_COLUMNS} FROM spans WHERE run = ? ORDER BY ordinal", (row_id,))
            return RunTraceRecord(to_summary(summary), tuple(map(to_span, spans)))

    def close(self) -> None:
        """Release the file; safe to call twice, and a later ``write`` opens it again."""
        with self._lock:
            self._close_writer()

    def _close_writer(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _close_before_forks(self) -> None:
        """Make sure that no fork copies an open connection.

        SQLite keeps its locks by process: a child that has a copy believes it holds its parent's locks, and both lose
        what they write, even through connections they open afterwards.
        """
        self._closes_before_forks = True
        this = weakref.ref(self)

        def before() -> None:
            if (store := this()) is not None:
                store._lock.acquire()
                store._close_writer()

        def after() -> None:
            if (store := this()) is not None:
                store._lock.release()

        os.register_at_fork(before=before, after_in_parent=after, after_in_child=after)

    def _insert(self, connection: sqlite3.Connection, trace: RunTraceRecord) -> None:
        cursor = connection.execute(
            f"INSERT INTO runs ({SUMMARY_COLUMNS}) VALUES ({_marks(14)})", summary_row(trace.summary)
        )
        connection.executemany(
            f"INSERT INTO spans (run, ordinal, {SPAN_COLUMNS}) VALUES ({_marks(12)})",
            ((cursor.lastrowid, ordinal, *span_row(span)) for ordinal, span in enumerate(trace.spans)),
        )

    def _open_for_writing(self) -> sqlite3.Connection:
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        # Created here, because SQLite would let others read it; its -wal and -shm files take the same mode.
        os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        connection = sqlite3.connect(self.path, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False)
        try:
            # The first process makes the tables while the others wait for it, and looks in the same
            # transaction.
            with _transaction(connection):
                if not self._check_is_ours(connection):
                    for statement in SCHEMA.split(";"):
                        connection.execute(statement)
                    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
            _switch_to_wal(connection)
            # In WAL mode NORMAL can lose the last traces in a power cut, never damages the file, and spares
            # an fsync a run.
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute(f"PRAGMA journal_size_limit = {64 * 2**20}")
        except BaseException:
            connection.close()
            raise
        return connection

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection | None]:
        """Open the store read-only, so that looking at traces can neither change nor hold up anything."""
        with self._explained("read"):
            if not self.path.exists():
                yield None
                return
            uri = f"{self.path.absolute().as_uri()}?mode=ro"
            with closing(sqlite3.connect(uri, uri=True, timeout=BUSY_TIMEOUT_S, isolation_level=None)) as connection:
                # One snapshot for all the questions asked inside.
                connection.execute("BEGIN")
                yield connection if self._check_is_ours(connection) else None

    def _check_is_ours(self, connection: sqlite3.Connection) -> bool:
        """Return False for an empty file; raise for one that is not a trace store this version can use."""
        (application_id,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        (num_tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if application_id == 0 and num_tables == 0:
            return False
        if application_id != APPLICATION_ID:
            raise TraceStoreError(
                f"{self.path} is another program's SQLite file; move it away, or set AGENTRT_DATA_DIR to another folder"
            )
        if version != SCHEMA_VERSION:
            raise TraceStoreError(
                f"{self.path} has version {version} of the trace store's layout and this agentrt knows "
                f"version {SCHEMA_VERSION}; use the agentrt that wrote it, or move it away and the next run "
                "makes a new one"
            )
        return True

    def _forget_oldest(self, connection: sqlite3.Connection) -> None:
        (num_runs,) = connection.execute("SELECT count(*) FROM runs").fetchone()
        while num_runs > 1 and (num_runs > self._max_runs or _used_bytes(connection) > self._max_bytes):
            num_forgotten = num_runs - self._max_runs
            if num_forgotten <= 0:
                # A twentieth at once, so that a full file is not full again at the very next run.
                num_forgotten = max(1, num_runs // 20)
            num_forgotten = min(num_forgotten, num_runs - 1)
            oldest = "(SELECT id FROM runs ORDER BY id LIMIT ?)"
            connection.execute(f"DELETE FROM spans WHERE run IN {oldest}", (num_forgotten,))
            connection.execute(f"DELETE FROM runs WHERE id IN {oldest}", (num_forgotten,))
            num_runs -= num_forgotten

    @contextmanager
    def _explained(self, done: str) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise TraceStoreError(
                f"the trace store {self.path} cannot be {done}: {error}; {_advice(error, self.path)}"
            ) from error
        except (ValueError, TypeError, KeyError) as error:
            raise TraceStoreError(
                f"the trace store {self.path} holds something that cannot be {done}: {error}; "
                + _MOVE.format(self.path)
            ) from error


def _advice(error: Exception, path: Path) -> str:
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CANTOPEN) & 0xFF
    match code:
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return "another process has kept it busy; try again when that one is done"
        case sqlite3.SQLITE_FULL | sqlite3.SQLITE_IOERR:
            return "check that its disk has room and works"
        case sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_READONLY | sqlite3.SQLITE_PERM:
            return "check that its folder exists and is yours, or set AGENTRT_DATA_DIR to another one"
    return _MOVE.format(path)


@contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    """Hold the write lock from the start, so that waiting for it happens here and nowhere later."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield connection
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _switch_to_wal(connection: sqlite3.Connection) -> None:
    """Set WAL mode, which stays set; SQLite's own waiting does not cover this one statement."""
    give_up = time.monotonic() + BUSY_TIMEOUT_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > give_up:
                raise
            time.sleep(0.01)


def _used_bytes(connection: sqlite3.Connection) -> int:
    (num_pages,) = connection.execute("PRAGMA page_count").fetchone()
    (num_free,) = connection.execute("PRAGMA freelist_count").fetchone()
    (page_bytes,) = connection.execute("PRAGMA page_size").fetchone()
    return int((num_pages - num_free) * page_bytes)


def _find(connection: sqlite3.Connection, run: str, path: Path) -> int:
    if run == "last":
        row = connection.execute("SELECT id FROM runs ORDER BY started_ns DESC, id DESC LIMIT 1").fetchone()
        if row is None:
            raise UnknownRunError(f"no run was recorded in {path} yet")
        return int(row[0])
    for column in ("run_id", "trace_id") if run else ():
        # A run that was resumed has several traces; the latest stands for it.
        found = connection.execute(
            f"SELECT run_id, max(id) FROM runs WHERE substr({column}, 1, ?) = ? GROUP BY run_id ORDER BY 2 DESC",
            (len(run), run),
        ).fetchall()
        exact = [row_id for run_id, row_id in found if run_id == run]
        if exact or len(found) == 1:
            return int(exact[0] if exact else found[0][1])
        if found:
            some = ", ".join(run_id for run_id, _ in found[:5])
            raise UnknownRunError(
                f"{len(found)} runs begin with {run!r}: {some}{', ...' if len(found) > 5 else ''}; "
                "give more characters of the one you mean"
            )
    recent = [row[0] for row in connection.execute("SELECT run_id FROM runs ORDER BY id DESC LIMIT 1000")]
    match = nearest_match(run, recent)
    hint = f"did you mean {match}?" if match else "`agentrt trace list` shows what there is"
    raise UnknownRunError(f"no run {run!r} in {path} ({hint})")


def _identity(path: Path) -> tuple[int, int] | None:
    """Tell one file from another under the same name: it may be moved away while a server has it open."""
    try:
        stat = path.stat()
    except OSError:
        return None
    return (stat.st_dev, stat.st_ino)


def _marks(count: int) -> str:
    return ", ".join("?" * count)
