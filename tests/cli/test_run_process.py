"""``agentrt run`` as a real process: signals, terminals, and threads that do not end."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

WriteDag = Callable[..., str]

FIRST_THEN_WAIT = {
    "a": "{uses: tool/say, with: {text: '{{ inputs.text }} {{ inputs.number }}'}}",
    "b": "{uses: tool/wait_for_ever, needs: [a]}",
    "outputs": "{a: '{{ actions.a.output }}', b: '{{ actions.b.output }}'}",
}
GIVE_UP_S = 60.0


def read_until(stream: Any, text: str) -> str:
    """Read lines until one holds ``text``; return all of them."""
    lines = []
    for line in stream:
        lines.append(line)
        if text in line:
            return "".join(lines)
    raise AssertionError(f"{text!r} never came: {lines}")


class Terminal:
    """The master side of a pseudo-terminal that a process was started on."""

    def __init__(self, start: Callable[..., subprocess.Popen[str]], arguments: tuple[str, ...], **env: str) -> None:
        self._master, slave = pty.openpty()
        self.process = start(
            *arguments,
            stdin=slave, stdout=slave, stderr=slave,
            start_new_session=True,
            env={"TERM": "xterm-256color", "COLUMNS": "80", "LINES": "24", **env},
        )  # fmt: skip
        os.close(slave)
        self.text = ""

    def read_until(self, pattern: str) -> None:
        """Wait until the output holds ``pattern``; an empty one waits for its end."""
        while not pattern or not re.search(pattern, self.text):
            ready, _, _ = select.select([self._master], [], [], GIVE_UP_S)
            assert ready, f"{pattern!r} never came: {self.text!r}"
            try:
                data = os.read(self._master, 65536)
            except OSError:
                # The other side is closed.
                assert not pattern, f"{pattern!r} never came: {self.text!r}"
                break
            self.text += data.decode()

    def close(self) -> None:
        os.close(self._master)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_run_shows_what_was_done(
    start_cli: Any, write_dag: WriteDag, number: signal.Signals, code: int
) -> None:
    """Ctrl-C and SIGTERM end the run cleanly: what had finished is shown, and no traceback."""
    process = start_cli("run", write_dag(**FIRST_THEN_WAIT), "--tools", "my_tools.py")
    read_until(process.stderr, "b  started")
    process.send_signal(number)
    out, err = process.communicate(timeout=GIVE_UP_S)
    assert (process.returncode, out) == (code, "")
    assert "finished before the end:\na: hello 3\n" in err
    assert "cancelled in " in err
    assert "Traceback" not in err


def test_an_interrupted_run_is_one_json_object(start_cli: Any, write_dag: WriteDag) -> None:
    """With --json the object still comes, complete, with what had finished."""
    file = write_dag(**{**FIRST_THEN_WAIT, "b": "{uses: tool/wait_and_tell, needs: [a]}"})
    process = start_cli("run", file, "--tools", "my_tools.py", "--json")
    read_until(process.stderr, "waiting")
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=GIVE_UP_S)
    result = json.loads(out)
    assert process.returncode == 130
    assert (result["status"], result["outputs"]) == ("cancelled", {})
    assert [(action["status"], action["output"]) for action in result["actions"]] == [
        ("succeeded", "hello 3"),
        ("cancelled", None),
    ]


def test_a_second_interrupt_quits_at_once(start_cli: Any, write_dag: WriteDag) -> None:
    """Even a tool that holds up the event loop cannot keep the process from ending."""
    file = write_dag(a="{uses: tool/hold_the_loop}", outputs="{a: '{{ actions.a.output }}'}")
    process = start_cli("run", file, "--tools", "my_tools.py", "--json")
    read_until(process.stderr, "holding the loop")
    process.send_signal(signal.SIGINT)
    read_until(process.stderr, "interrupted")
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=GIVE_UP_S)
    assert (process.returncode, out) == (130, "")


@pytest.mark.parametrize("how", ["deadline", "interrupt"])
def test_a_thread_that_does_not_end_is_left_behind(start_cli: Any, write_dag: WriteDag, how: str) -> None:
    """A tool stuck in a thread delays neither a deadline nor Ctrl-C; the result is whole."""
    file = write_dag(a="{uses: tool/thread_for_ever}", outputs="{a: '{{ actions.a.output }}'}")
    arguments = ("--deadline", "200ms") if how == "deadline" else ()
    process = start_cli("run", file, "--tools", "my_tools.py", "--json", *arguments)
    if how == "interrupt":
        read_until(process.stderr, "in a thread")
        process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=GIVE_UP_S)
    assert process.returncode == (3 if how == "deadline" else 130)
    assert json.loads(out)["actions"][0]["status"] == "cancelled"


def test_a_terminal_sees_a_live_view_and_gets_its_cursor_back(start_cli: Any, write_dag: WriteDag) -> None:
    """On a terminal actions are drawn while they run; Ctrl-C typed there ends the run with the summary."""
    terminal = Terminal(start_cli, ("run", write_dag(**FIRST_THEN_WAIT), "--tools", "my_tools.py"))
    terminal.read_until(r"✓.*hello 3[^\n]*\r\n.*[⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏].* b ")
    os.killpg(terminal.process.pid, signal.SIGINT)
    terminal.read_until("")
    assert terminal.process.wait(GIVE_UP_S) == 130
    assert terminal.text.rindex("\x1b[?25h") > terminal.text.rindex("\x1b[?25l")
    assert "stopping the run" in terminal.text
    last = terminal.text[terminal.text.rindex("finished before the end:") :]
    assert "a: hello 3" in last
    assert "cancelled" in last
    terminal.close()


def test_no_color_is_respected(start_cli: Any, write_dag: WriteDag) -> None:
    """With NO_COLOR the live view and the summary use no colours."""
    file = write_dag(a=FIRST_THEN_WAIT["a"], outputs="{a: '{{ actions.a.output }}'}")
    terminal = Terminal(start_cli, ("run", file, "--tools", "my_tools.py"), NO_COLOR="1")
    terminal.read_until("")
    assert terminal.process.wait(GIVE_UP_S) == 0
    assert "a: hello 3" in terminal.text
    assert not re.search(r"\x1b\[[0-9;]*3[0-9]m", terminal.text)
    terminal.close()


def test_a_dumb_terminal_gets_plain_lines(start_cli: Any, write_dag: WriteDag) -> None:
    """Where the cursor cannot be moved, progress comes line by line."""
    file = write_dag(a=FIRST_THEN_WAIT["a"], outputs="{a: '{{ actions.a.output }}'}")
    terminal = Terminal(start_cli, ("run", file, "--tools", "my_tools.py"), TERM="dumb")
    terminal.read_until("")
    assert terminal.process.wait(GIVE_UP_S) == 0
    assert "a  started" in terminal.text
    assert "\x1b" not in terminal.text
    terminal.close()


def test_an_ascii_only_stream_gets_escapes(start_cli: Any, write_dag: WriteDag) -> None:
    """A stream that cannot carry a letter gets its escape instead of an error."""
    file = write_dag(a=FIRST_THEN_WAIT["a"], outputs="{a: '{{ actions.a.output }}'}")
    process = start_cli(
        "run", file, "--tools", "my_tools.py", "-i", "text=naïve 你好", env={"PYTHONIOENCODING": "ascii"}
    )
    out, err = process.communicate(timeout=GIVE_UP_S)
    assert (process.returncode, out) == (0, "a: na\\xefve \\u4f60\\u597d 3\n")
    assert err.isascii()


def test_a_reader_that_goes_away_is_no_error(start_cli: Any, write_dag: WriteDag) -> None:
    """When nobody reads the outputs any more the run ends without a traceback."""
    read, write = os.pipe()
    os.close(read)
    file = write_dag(a=FIRST_THEN_WAIT["a"], outputs="{a: '{{ actions.a.output }}'}")
    process = start_cli("run", file, "--tools", "my_tools.py", "-q", stdout=write)
    os.close(write)
    _, err = process.communicate(timeout=GIVE_UP_S)
    assert (process.returncode, err) == (1, "")


def test_stdin_is_piped_in_and_outputs_out(start_cli: Any, write_dag: WriteDag) -> None:
    """``producer | agentrt run FILE --input-file - -q | consumer`` works."""
    file = write_dag(a=FIRST_THEN_WAIT["a"], outputs="{a: '{{ actions.a.output }}'}")
    process = start_cli("run", file, "--tools", "my_tools.py", "-q", "--input-file", "-", stdin=subprocess.PIPE)
    out, err = process.communicate('{"text": "piped", "number": 5}', timeout=GIVE_UP_S)
    assert (process.returncode, out, err) == (0, "a: piped 5\n", "")


def test_what_tools_print_does_not_reach_stdout(start_cli: Any, write_dag: WriteDag) -> None:
    """A tool's print and a child program's output go to stderr, and stdout stays one JSON object."""
    file = write_dag(a="{uses: tool/noisy}", outputs="{a: '{{ actions.a.output }}'}")
    process = start_cli("run", file, "--tools", "my_tools.py", "--json")
    out, err = process.communicate(timeout=GIVE_UP_S)
    assert json.loads(out)["outputs"] == {"a": "quiet"}
    assert err == "printed by a tool\nprinted by a child\n"


def test_what_tools_print_stands_above_the_live_view(start_cli: Any, write_dag: WriteDag) -> None:
    """On a terminal prints of tools and their children are whole lines, not scraps inside the picture."""
    file = write_dag(a="{uses: tool/noisy}", outputs="{a: '{{ actions.a.output }}'}")
    terminal = Terminal(start_cli, ("run", file, "--tools", "my_tools.py"))
    terminal.read_until("")
    assert terminal.process.wait(GIVE_UP_S) == 0
    # Each stands on a line that was erased before, and ends it.
    lines = re.split(r"\r\n|\x1b\[2K", terminal.text)
    assert "printed by a tool" in lines
    assert "printed by a child" in lines
    terminal.close()
