"""``agentrt trace``: what it prints for readers and for programs."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.console import Console
from typer.testing import CliRunner

from agentrt.cli.trace import trace_app
from agentrt.cli.trace_view import print_runs, print_trace
from agentrt.errors import UnknownRunError
from agentrt.trace.record import RunTraceRecord
from agentrt.trace.store import TraceStore
from tests.support.traces import Recording, record_support_run

Invoke = Callable[..., str]


def recorded(*, fails: bool = False, run_id: str = "9f3c2a1b4d5e") -> RunTraceRecord:
    recording = Recording()
    record_support_run(recording, run_id=run_id, fails=fails)
    (trace,) = recording.records()
    return trace


@pytest.fixture
def invoke(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Invoke:
    """Run a trace command on a store of two runs, and return what it printed on stdout."""
    store = TraceStore(tmp_path / "traces.sqlite3")
    store.write(recorded())
    failed = recorded(fails=True, run_id="77aa00c3d2f1")
    store.write(replace(failed, summary=replace(failed.summary, started_ns=failed.summary.started_ns + 10**9)))
    store.close()
    monkeypatch.setenv("AGENTRT_DATA_DIR", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "80")

    def run(*arguments: str) -> str:
        result = CliRunner().invoke(trace_app, arguments, catch_exceptions=False)
        assert result.exit_code == 0
        return result.stdout

    return run


def test_list_shows_the_latest_first(invoke: Invoke) -> None:
    """One line a run: id, Dag, how it ended, how long it took against its SLO, how many tokens it made."""
    head, first, second = invoke("list").splitlines()
    assert head.split() == ["run", "dag", "status", "started", "time", "SLO", "tokens"]
    assert first.split()[:3] == ["77aa00c3d2f1", "support_triage", "failed"]
    assert second.split()[:3] == ["9f3c2a1b4d5e", "support_triage", "succeeded"]
    assert second.split()[-3:] == ["3.38s", "4s", "64"]


def test_list_filters_and_prints_json(invoke: Invoke) -> None:
    """``--json`` prints one object, and the filters are the store's."""
    (run,) = json.loads(invoke("list", "--json", "--status", "failed"))["runs"]
    assert run["run_id"] == "77aa00c3d2f1"
    assert run["kept_slo"] is False
    assert len(json.loads(invoke("list", "--json", "--limit", "1"))["runs"]) == 1
    assert json.loads(invoke("list", "--json", "--dag", "other")) == {"runs": []}


def test_an_empty_list_prints_nothing_on_stdout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the first run there is nothing to list; a line on stderr says where it looked, and nothing is created."""
    monkeypatch.setenv("AGENTRT_DATA_DIR", str(tmp_path / "none"))
    result = CliRunner().invoke(trace_app, ["list"])
    assert result.exit_code == 0
    assert result.stdout == ""
    assert f"no runs in {tmp_path}/none/traces.sqlite3" in result.stderr
    assert not (tmp_path / "none").exists()


def test_a_wrong_status_or_limit_is_a_usage_error(invoke: Invoke) -> None:
    """A status that no run can have is refused with the ones there are."""
    result = CliRunner().invoke(trace_app, ["list", "--status", "fine"])
    assert result.exit_code == 2
    assert "deadline_exceeded" in result.stderr
    assert CliRunner().invoke(trace_app, ["list", "--limit", "0"]).exit_code == 2


def test_show_draws_the_waterfall_in_plain_ascii_when_piped(invoke: Invoke) -> None:
    """A pipe gets ASCII of the width it asks for: the tree with bars, and TTFT and ITL of each call apart."""
    output = invoke("show", "9f3c")
    assert output.isascii()
    assert "\x1b" not in output
    lines = output.splitlines()
    assert lines[0] == "support_triage 9f3c2a1b4d5e  succeeded in 3.38s, within its SLO of 4s"
    shown = [line[:24].split() for line in lines[5:16]]
    assert shown == [
        ["+", "support_triage"],
        ["+", "search"],
        ["+", "agent", "triage"],
        ["+", "classify"],
        ["+", "smollm2-135m"],
        ["+", "agent", "writer"],
        ["+", "draft"],
        ["x", "smollm2-135m"],
        ["+", "smollm2-135m"],
        ["+", "check"],
        ["-", "escalate"],
    ]
    assert lines[9].split()[-1] == "------=="
    assert lines[17].split() == ["model", "calls", "TTFT", "ITL", "ITL", "p99", "queue", "prefill", "tokens"]
    assert lines[20].split() == ["draft", "0.90s", "24ms", "24ms", "0.20s", "0.65s", "60"]
    assert max(map(len, lines[:21])) <= 80


def test_show_says_what_went_wrong(invoke: Invoke) -> None:
    """Each reason is told once, at the action it struck, attempts included; a skipped action says why."""
    output = invoke("show", "last")
    assert output.count("the connection to https://llm.example.com/v1?key=*** was closed") == 1
    assert "x draft ModelConnectionError: the connection to" in output
    assert "draft attempt 1 failed, another followed after 0.25s: 429 from https://llm.example.com" in output
    assert "- escalate skipped: its condition does not hold: " in invoke("show", "9f3c")


def test_tokens_are_shown_when_asked_for(invoke: Invoke) -> None:
    """``--tokens`` adds a row a token, in the drawing and in the JSON."""
    assert "#59" not in invoke("show", "9f3c")
    assert "#59 id 1059 p 0.67" in invoke("show", "9f3c", "--tokens")
    kinds = [span["kind"] for span in json.loads(invoke("show", "9f3c", "--json", "--tokens"))["spans"]]
    assert kinds.count("token") == 64


def test_show_json_is_one_object(invoke: Invoke) -> None:
    """Programs get the summary and every span with its kind, depth, attributes and, for a call, TTFT and ITL."""
    trace = json.loads(invoke("show", "9f3c", "--json"))
    assert trace["run_id"] == "9f3c2a1b4d5e"
    assert trace["kept_slo"] is True
    assert [span["kind"] for span in trace["spans"]][:4] == ["run", "action", "agent", "action"]
    call = next(span for span in trace["spans"] if span["kind"] == "model_call")
    assert call["depth"] == 3
    assert call["tokens"] == {"num_tokens": 4, "ttft_s": 0.42, "itl_mean_s": 0.018, "itl_p99_s": 0.018}
    assert call["attributes"]["gen_ai.response.finish_reasons"] == ["choice"]
    assert not any(span["kind"] == "token" for span in trace["spans"])


def test_an_unknown_run_is_an_error_with_the_nearest_match(invoke: Invoke) -> None:
    """The error is agentrt's own, for the command line to print in a line."""
    with pytest.raises(UnknownRunError, match="did you mean 9f3c2a1b4d5e"):
        invoke("show", "9f3c2a1b4d5f")


@pytest.mark.parametrize("width", [20, 60, 80, 99, 100, 120, 200])
def test_the_drawing_fits_the_terminal(width: int, capsys: pytest.CaptureFixture[str]) -> None:
    """From 60 columns no row of the waterfall is wider than the terminal, with wide characters in names as well."""
    trace = recorded()
    spans = tuple(
        replace(span, attributes=span.attributes | {"agentrt.action.name": "检索知识库并重新排序所有结果"})
        if span.name == "action draft"
        else span
        for span in trace.spans
    )
    console = Console(width=width, force_terminal=True, color_system=None)
    print_trace(RunTraceRecord(trace.summary, spans), console, with_tokens=True)
    lines = capsys.readouterr().out.splitlines()
    rows = [line for line in lines if set(line) & set("━─░█")][:-1]
    assert len(rows) >= 70
    if width >= 60:
        assert max(map(cell_len, rows)) <= width
    print_runs([trace.summary], console)
    listed = capsys.readouterr().out.splitlines()
    if width >= 80:
        assert max(map(cell_len, listed)) <= width


def test_wide_terminals_have_the_figures_beside_the_bars(capsys: pytest.CaptureFixture[str]) -> None:
    """With a hundred columns TTFT, ITL, ITL p99 and the number of tokens stand in the row of their model call."""
    print_trace(recorded(), Console(width=120, force_terminal=True, color_system=None), with_tokens=False)
    lines = capsys.readouterr().out.splitlines()
    assert lines[4].split()[-5:] == ["TTFT", "ITL", "ITL", "p99", "tokens"]
    assert lines[9].split()[-5:] == ["░░░░░░░█", "0.42s", "18ms", "18ms", "4"]
    assert not any("model calls " in line for line in lines[5:])


def test_the_guide_shows_what_is_really_drawn(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The drawing in docs/traces.md is the command's own, and its query runs on a real store."""
    guide = (Path(__file__).parents[2] / "docs" / "traces.md").read_text()
    trace = recorded()
    print_trace(trace, Console(width=80, force_terminal=True, color_system=None), with_tokens=False)
    first, facts, trace_id, *drawing = capsys.readouterr().out.splitlines()
    assert "\n".join(drawing) in guide
    assert first in guide
    assert facts.partition(" · ")[2] in guide
    assert trace_id == f"trace {trace.summary.trace_id}"
    store = TraceStore(tmp_path / "t")
    store.write(trace)
    query = guide.partition('traces.sqlite3 "\n')[2].partition('"\n```')[0].replace('\\"', '"')
    with sqlite3.connect(store.path) as connection:
        assert connection.execute(query).fetchall()[:2] == [("draft", 1, 2866.0), ("classify", 1, 474.0)]
    connection.close()


def test_errors_are_red_on_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """What failed is told by colour as well as by its mark."""
    print_trace(
        recorded(fails=True), Console(width=80, force_terminal=True, color_system="standard"), with_tokens=False
    )
    row = next(line for line in capsys.readouterr().out.splitlines() if "draft" in line)
    assert "\x1b[31mdraft\x1b[0m" in row


def test_nothing_from_a_trace_reaches_the_terminal_as_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    """Escape sequences and markup in names and messages are shown, not obeyed."""
    recording = Recording()
    run = recording.tracing.start_run(run_id="r\x1b[2J", dag="d\x1b]0;x\x07[red]\n", deadline_s=None, slo_p99_s=None)
    action = run.action(name="a\x1b[31m[bold]", action_type="x", agent="\x9b2J", tool=None)
    error = ValueError("boom\x1b[2J\r[link=x]")
    action.end(status="failed", error=error)
    run.end(status="failed", error=error)
    (trace,) = recording.records()
    console = Console(width=100, force_terminal=True, color_system=None)
    print_trace(trace, console, with_tokens=True)
    print_runs([trace.summary], console)
    output = capsys.readouterr().out
    assert not set(output) & set("\x1b\x07\x9b\r")
    assert "boom\\x1b[2J [link=x]" in output


def test_looking_at_traces_loads_neither_torch_nor_opentelemetry(tmp_path: Path) -> None:
    """Both commands stay quick: what records and what computes is not imported to look at what was recorded."""
    source = """
import sys
from agentrt.cli.trace import trace_app
before = {name.partition(".")[0] for name in sys.modules}
trace_app(["list"], standalone_mode=False)
after = {name.partition(".")[0] for name in sys.modules}
print(sorted(before & {"sqlite3", "opentelemetry", "torch"}), sorted(after & {"opentelemetry", "torch"}))
"""
    done = subprocess.run(
        [sys.executable, "-c", source],
        cwd=Path(__file__).parents[2],
        env={"AGENTRT_DATA_DIR": str(tmp_path), "PATH": ""},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "[] []\n"
