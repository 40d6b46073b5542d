"""The ``agentrt`` command: its parts, and how every one of them ends.

An error is one line on stderr and an exit code that says whose it is: 2 the caller's mistake (nothing ran), 1 something
failed while it ran, 3 the run's deadline passed, 130 and 143 interrupted by SIGINT and SIGTERM. ``--debug`` adds the
traceback with its causes. A reader that went away (``| head``) ends the command without a word.
"""

from __future__ import annotations

import io
import os
import sys
import threading
import traceback
from collections.abc import Sequence
from typing import Annotated

import typer

from agentrt.cli.check import check
from agentrt.cli.exit_code import ExitCode, exit_code_of
from agentrt.cli.invocation import DebugOption, Invocation
from agentrt.cli.models import models_app
from agentrt.cli.plan import plan
from agentrt.cli.run import run
from agentrt.cli.schema import schema
from agentrt.cli.serve import serve
from agentrt.cli.trace import trace_app

app = typer.Typer(
    help="Declare agents as action DAGs, run them, and see where every millisecond and every token went.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(run)
app.command()(check)
app.command()(plan)
app.command()(schema)
app.command()(serve)
app.add_typer(models_app, name="models")
app.add_typer(trace_app, name="trace")

_WAIT_FOR_THREAD_S = 0.25


def _print_version(value: bool) -> None:
    if value:
        from agentrt import __version__

        print(f"agentrt {__version__}")
        raise typer.Exit


@app.callback()
def _before_every_command(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
    debug: DebugOption = False,
) -> None:
    """Options that stand before the command."""


def main() -> None:
    """Run the command line of this process and leave it."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A terminal that cannot show a letter gets its escape; a run does not fail for it.
            stream.reconfigure(errors="backslashreplace")
    code = call(sys.argv[1:])
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        # What is still in the buffer has no reader; the interpreter must not try again when it exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = ExitCode.FAILED
    _leave(code)


def call(arguments: Sequence[str]) -> int:
    """Carry out one command line, tell its error if there is one, and return its exit code."""
    invocation = Invocation()
    try:
        app(list(arguments), prog_name="agentrt", obj=invocation)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else ExitCode.SUCCEEDED
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except Exception as error:
        if invocation.debug:
            traceback.print_exception(error)
        _tell(error, debug=invocation.debug)
        return exit_code_of(error)
    return ExitCode.SUCCEEDED


def _tell(error: Exception, *, debug: bool) -> None:
    """Say what went wrong, on stderr."""
    from agentrt.cli.printable import one_line
    from agentrt.errors import AgentrtError, DeclarationError

    if isinstance(error, DeclarationError):
        from agentrt.cli.diagnostics import count_of

        for diagnostic in error.diagnostics:
            print(one_line(str(diagnostic)), file=sys.stderr)
        print(f"error: {count_of(error.diagnostics)}; nothing was run", file=sys.stderr)
    elif isinstance(error, AgentrtError):
        print(f"error: {one_line(str(error))}", file=sys.stderr)
    else:
        hint = "" if debug else " (agentrt --debug COMMAND shows where)"
        print(f"error: {type(error).__name__}: {one_line(str(error)) or 'no message'}{hint}", file=sys.stderr)


def _leave(code: int) -> None:
    """End the process, even where a tool's thread goes on.

    A plain function runs in a thread, and a thread cannot be stopped from outside. The interpreter would wait for one
    that a deadline or an interrupt left behind, perhaps for ever.
    """
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join(_WAIT_FOR_THREAD_S)
            if thread.is_alive():
                sys.stderr.flush()
                os._exit(code)
    sys.exit(code)
