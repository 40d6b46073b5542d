"""``agentrt run`` in this process: what it prints, where, and how it ends."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

WriteDag = Callable[..., str]
Cli = Callable[..., Any]

SAY_ALL = "{uses: tool/say, with: {text: '{{ inputs.text }} {{ inputs.number + 1 }}'}}"
A_OUT = "{a: '{{ actions.a.output }}'}"


def strict_json(text: str) -> Any:
    """Read exactly one JSON value, without the NaN that Python would let pass."""

    def refuse(constant: str) -> Any:
        raise AssertionError(f"{constant} is not JSON")

    return json.loads(text, parse_constant=refuse)


def test_outputs_go_to_stdout_and_the_rest_to_stderr(cli: Cli, write_dag: WriteDag) -> None:
    """A pipe receives the outputs alone; progress and times are for whoever watches."""
    file = write_dag(a=SAY_ALL, outputs=A_OUT)
    ended = cli("run", file, "--tools", "my_tools.py", "--no-trace")
    assert (ended.code, ended.out) == (0, "a: hello 4\n")
    assert "a  started" in ended.err
    assert ended.err.splitlines()[-1].startswith("succeeded in ")


def test_quiet_shows_the_outputs_alone(cli: Cli, write_dag: WriteDag) -> None:
    """``--quiet`` leaves stderr for errors."""
    ended = cli("run", write_dag(a=SAY_ALL, outputs=A_OUT), "--tools", "my_tools.py", "-q")
    assert (ended.code, ended.out, ended.err) == (0, "a: hello 4\n", "")


def test_inputs_take_the_type_that_is_declared(cli: Cli, write_dag: WriteDag, folder: Path) -> None:
    """A number given as text becomes a number; the command line wins over the file."""
    (folder / "in.yaml").write_text("text: from the file\nnumber: 10\n")
    file = write_dag(a=SAY_ALL, outputs=A_OUT)
    arguments = ("run", file, "--tools", "my_tools.py", "-q", "--input-file", "in.yaml")
    assert cli(*arguments).out == "a: from the file 11\n"
    assert cli(*arguments, "-i", "number=41").out == "a: from the file 42\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("-i", "txet=x"), "there is no input 'txet' (did you mean 'text'?)"),
        (("-i", "number=many"), "input 'number': 'many' is not of type 'integer'"),
        (("-i", "number"), "expected name=value"),
        (("--input-file", "nowhere.json"), "No such file"),
        (("--deadline", "2"), "--deadline: '2' is no duration"),
        (("--deadline", "0s"), "--deadline: '0s' is not between"),
        (("--tools", "my_nowhere.py"), "there is no such file"),
    ],
)
def test_a_mistake_is_one_line_and_exit_2(
    cli: Cli, write_dag: WriteDag, arguments: tuple[str, ...], message: str
) -> None:
    """Before anything runs: one line on stderr, nothing on stdout, also with --json."""
    file = write_dag(a=SAY_ALL, outputs=A_OUT)
    ended = cli("run", file, "--tools", "my_tools.py", "--json", *arguments)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith("error: ")
    assert message in ended.err
    assert ended.err.count("\n") == 1


def test_a_wrong_dag_tells_every_mistake_and_their_number(cli: Cli, write_dag: WriteDag) -> None:
    """One line a diagnostic, then a count; nothing ran."""
    file = write_dag(a="{uses: tool/nope, with: {text: '{{ inputs.tex }}'}}", outputs=A_OUT)
    ended = cli("run", file)
    *diagnostics, last = ended.err.splitlines()
    assert (ended.code, ended.out) == (2, "")
    assert any("DAG040" in line for line in diagnostics)
    assert any("DAG030" in line for line in diagnostics)
    assert last.startswith("error: 2 errors")
    assert last.endswith("; nothing was run")


def test_json_is_one_object_with_every_promised_key(cli: Cli, write_dag: WriteDag) -> None:
    """The form that scripts rely on; stderr stays empty."""
    file = write_dag(
        extra="slo: 30s\n",
        a=SAY_ALL,
        b="{uses: tool/say, if: 'inputs.number > 5', with: {text: '{{ actions.a.output }}'}}",
        outputs="{a: '{{ actions.a.output }}', b: '{{ actions.b.output }}'}",
    )
    ended = cli("run", file, "--tools", "my_tools.py", "--json")
    result = strict_json(ended.out)
    assert (ended.code, ended.err) == (0, "")
    assert set(result) >= {
        "run_id", "status", "outputs", "duration_s", "trace_id", "error", "slo_p99_s", "actions",
    }  # fmt: skip
    assert (result["status"], result["outputs"], result["slo_p99_s"]) == (
        "succeeded",
        {"a": "hello 4", "b": None},
        30.0,
    )
    first, second = result["actions"]
    assert set(first) == {
        "name", "status", "duration_s", "started_s", "num_attempts", "output", "error", "reason", "tokens",
    }  # fmt: skip
    assert (first["name"], first["status"], first["output"], first["num_attempts"]) == ("a", "succeeded", "hello 4", 1)
    assert (second["status"], second["duration_s"]) == ("skipped", None)
    assert "inputs.number > 5" in second["reason"]


@pytest.mark.parametrize("kind", ["nan", "bytes", "set", "object", "surrogate"])
def test_json_is_valid_whatever_a_tool_returned(cli: Cli, write_dag: WriteDag, kind: str) -> None:
    """Values that JSON has no word for do not break what a program reads."""
    file = write_dag(a=f"{{uses: tool/value, with: {{kind: {kind}}}}}", outputs="{n: '{{ inputs.number }}'}")
    ended = cli("run", file, "--tools", "my_tools.py", "--json", "--no-trace")
    assert ended.code == 0
    assert strict_json(ended.out)["status"] == "succeeded"


def test_a_failed_action_is_an_error_and_what_had_finished_is_kept(cli: Cli, write_dag: WriteDag) -> None:
    """Exit code 1, the cause and its place on one line, the finished work shown."""
    file = write_dag(
        a=SAY_ALL,
        b="{uses: tool/fail, with: {text: 'broke: {{ actions.a.output }}'}}",
        outputs="{b: '{{ actions.b.output }}'}",
    )
    ended = cli("run", file, "--tools", "my_tools.py")
    assert (ended.code, ended.out) == (1, "")
    assert "finished before the end:\na: hello 4\n" in ended.err
    assert ended.err.splitlines()[-1] == ("error: dag.yaml:8:3: action 'b' failed: ValueError: broke: hello 4")
    result = strict_json(cli("run", file, "--tools", "my_tools.py", "--json").out)
    assert (result["status"], result["outputs"]) == ("failed", {})
    assert result["error"]["type"] == "ActionError"
    assert [action["status"] for action in result["actions"]] == ["succeeded", "failed"]
    assert result["actions"][0]["output"] == "hello 4"


def test_debug_shows_the_chain_of_causes(cli: Cli, write_dag: WriteDag) -> None:
    """The traceback leads from the failed action to the line of the tool that raised."""
    file = write_dag(a="{uses: tool/fail, with: {text: '{{ inputs.text }}'}}", outputs=A_OUT)
    err = cli("run", file, "--tools", "my_tools.py", "--debug").err
    assert "raise ValueError(text)" in err
    assert "The above exception was the direct cause" in err


def test_a_deadline_ends_the_run_with_3(cli: Cli, write_dag: WriteDag) -> None:
    """The deadline of the command line stops the run; the unfinished actions are named."""
    file = write_dag(a=SAY_ALL, b="{uses: tool/wait_for_ever, needs: a}", outputs="{b: '{{ actions.b.output }}'}")
    ended = cli("run", file, "--tools", "my_tools.py", "--deadline", "300ms", "--json")
    result = strict_json(ended.out)
    assert ended.code == 3
    assert ended.err == "error: the deadline of 0.3 s passed; unfinished actions: b\n"
    assert (result["status"], result["error"]["type"]) == ("deadline_exceeded", "DeadlineError")
    assert [action["status"] for action in result["actions"]] == ["succeeded", "cancelled"]


def test_outputs_cannot_control_the_terminal(cli: Cli, write_dag: WriteDag) -> None:
    """Neither escape sequences nor rich markup in an output are obeyed."""
    file = write_dag(a=SAY_ALL, outputs=A_OUT)
    ended = cli("run", file, "--tools", "my_tools.py", "-i", "text=\x1b[31m[bold]x[/bold] :smile:")
    assert ended.out == "a: \\x1b[31m[bold]x[/bold] :smile: 4\n"
    assert "\x1b" not in ended.err


def test_a_run_is_recorded_unless_told_not_to(cli: Cli, write_dag: WriteDag) -> None:
    """The trace id leads to the recorded run; with --no-trace nothing is written."""
    file = write_dag(a=SAY_ALL, outputs=A_OUT)
    arguments = ("run", file, "--tools", "my_tools.py", "--json")
    assert strict_json(cli(*arguments, "--no-trace").out)["trace_id"] is None
    assert cli("trace", "list").out == ""
    run = strict_json(cli(*arguments).out)
    assert strict_json(cli("trace", "show", run["run_id"], "--json").out)["trace_id"] == run["trace_id"]


def test_an_unknown_model_is_found_before_anything_runs(cli: Cli, write_dag: WriteDag) -> None:
    """``--model`` replaces the model of every agent, so a misspelt one is the caller's mistake."""
    file = write_dag(a="{prompt: '{{ inputs.text }} {{ inputs.number }}'}", outputs=A_OUT)
    ended = cli("run", file, "--model", "smolm2-135m")
    assert (ended.code, ended.out) == (2, "")
    assert "unknown model 'smolm2-135m': did you mean smollm2-135m?" in ended.err
