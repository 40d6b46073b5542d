"""A run in the foreground: shown while it goes on, stopped by Ctrl-C, its result printed when it ends."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, TextIO

import anyio
from rich.console import Console

from agentrt.cli.exit_code import ExitCode
from agentrt.cli.interrupts import Interrupts
from agentrt.cli.json_form import result_to_json
from agentrt.cli.result_stream import stdout_for_results
from agentrt.cli.summary import print_finished, print_outputs, print_time_spent
from agentrt.cli.watch import stderr_console, watching
from agentrt.compile.plan import Plan
from agentrt.run.events import RunFinished, RunResult, RunStatus
from agentrt.run.wiring import RunStream, Runtime


@dataclass(frozen=True, slots=True)
class Presentation:
    """How a run is shown. ``quiet``: the result alone, no progress and no times."""

    as_json: bool = False
    quiet: bool = False


def run_to_end(
    runtime: Runtime,
    planned: Plan,
    inputs: Mapping[str, Any],
    *,
    deadline_s: float | None = None,
    presentation: Presentation = Presentation(),
) -> ExitCode:
    """Run a Plan, print what came of it, close ``runtime``; return the exit code of a run that did not fail.

    Raises:
        InputError: nothing was run.
        RunError: the run failed; what had finished has been printed.
    """
    with stdout_for_results() as stdout:
        return anyio.run(_run_to_end, runtime, planned, inputs, deadline_s, presentation, stdout)


async def _run_to_end(
    runtime: Runtime,
    planned: Plan,
    inputs: Mapping[str, Any],
    deadline_s: float | None,
    presentation: Presentation,
    stdout: TextIO,
) -> ExitCode:
    console = stderr_console()
    # Progress beside JSON is for somebody who watches; a program that reads stderr wants errors alone.
    quiet = presentation.quiet or (presentation.as_json and not console.is_terminal)
    with Interrupts() as interrupts:
        async with runtime:
            run = runtime.stream(planned, inputs, deadline_s=deadline_s)
            result = await _watch(run, console, interrupts, quiet=quiet)
            _present(result, console, stdout, presentation)
    if result.error is not None:
        raise result.error
    if result.status is RunStatus.CANCELLED:
        return interrupts.code or ExitCode.FAILED
    return ExitCode.SUCCEEDED


async def _watch(
    run: AbstractAsyncContextManager[RunStream], console: Console, interrupts: Interrupts, *, quiet: bool
) -> RunResult:
    result: RunResult | None = None
    with watching(console, quiet=quiet) as watcher:
        async with run as stream:

            def stop() -> None:
                watcher.say("stopping the run; interrupt again to quit at once")
                stream.cancel()

            with interrupts.handled_by(stop, leave=watcher.leave):
                async for event in stream:
                    watcher.show(event)
                    if isinstance(event, RunFinished):
                        result = event.result
    assert result is not None, "a run's last event is RunFinished"
    return result


def _present(result: RunResult, console: Console, stdout: TextIO, presentation: Presentation) -> None:
    if presentation.as_json:
        # Escapes instead of letters: valid in every encoding a pipe may have.
        print(json.dumps(result_to_json(result), allow_nan=False), file=stdout, flush=True)
        return
    print_outputs(result, stdout)
    if not presentation.quiet:
        console.print()
        print_finished(result, console)
        print_time_spent(result, console)
