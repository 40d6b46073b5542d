"""Exit codes: whose fault it was, for a script that must decide what to do next."""

from __future__ import annotations

import enum

from agentrt.errors import DeadlineError, UsageError


class ExitCode(enum.IntEnum):
    SUCCEEDED = 0
    FAILED = 1
    """Something failed while it ran."""
    USAGE = 2
    """The caller's mistake; nothing was run."""
    DEADLINE = 3
    """The run's deadline passed."""
    INTERRUPTED = 130
    """SIGINT (Ctrl-C); what had finished was shown."""
    TERMINATED = 143
    """SIGTERM; treated like SIGINT."""


def exit_code_of(error: BaseException) -> ExitCode:
    match error:
        case UsageError():
            return ExitCode.USAGE
        case DeadlineError():
            return ExitCode.DEADLINE
    return ExitCode.FAILED
