"""Every error a user of agentrt can meet, drawn once.

    AgentrtError
    ├── UsageError                 the caller's mistake, found before anything ran        (CLI exit 2)
    │   ├── ConfigError            an unknown or malformed setting
    │   ├── DeclarationError       a Dag that is wrong; carries every diagnostic at once
    │   ├── InputError             inputs of a run that do not fit the Dag
    │   ├── UnknownModelError      a model name that nothing answers to
    │   ├── UnknownToolError       a tool name that nothing answers to
    │   ├── UnknownRunError        a run that the trace store does not hold
    │   ├── ModelFileError         a model file cut short, damaged, or of an architecture not supported
    │   └── RequestError           a model call whose parameters cannot be served
    │       └── PromptTooLongError the prompt does not fit the model's context window
    └── ExecutionError             something failed while it ran                          (CLI exit 1)
        ├── RunError               a run that ended without all of its outputs
        │   ├── ActionError        one action failed; names it, its place and its cause
        │   └── DeadlineError      the run's deadline passed                              (CLI exit 3)
        ├── TimeoutExpiredError    an action's own timeout passed
        ├── TemplateError          a template or a guard met a value it cannot work with
        ├── ModelError             a model call failed
        │   ├── ModelConnectionError   no connection, or it broke before the answer began
        │   ├── ModelStreamError       the answer broke off in the middle
        │   ├── ModelOverloadedError   the endpoint asked us to come back later (429, 503)
        │   └── ModelResponseError     the endpoint answered with an error, or with something unreadable
        ├── EngineError            the embedded engine stopped or could not go on
        │   └── QueueFullError     too many requests wait for the engine already (a server answers 429)
        ├── ToolError              a tool raised; the cause is chained
        ├── DownloadError          a model file could not be fetched, or did not match its checksum
        └── TraceStoreError        the local trace store could not be read or written

A message says what went wrong, where, the value seen, and what to do next. Data sits in attributes; causes are
chained with ``raise ... from``. Cancellation is not an error here and is never swallowed.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

__all__ = [
    "ActionError",
    "AgentrtError",
    "ConfigError",
    "DeadlineError",
    "DeclarationError",
    "Diagnostic",
    "DownloadError",
    "EngineError",
    "ExecutionError",
    "InputError",
    "ModelConnectionError",
    "ModelError",
    "ModelFileError",
    "ModelOverloadedError",
    "ModelResponseError",
    "ModelStreamError",
    "Place",
    "PromptTooLongError",
    "QueueFullError",
    "RequestError",
    "RunError",
    "Severity",
    "TemplateError",
    "TimeoutExpiredError",
    "ToolError",
    "TraceStoreError",
    "UnknownModelError",
    "UnknownRunError",
    "UnknownToolError",
    "UsageError",
    "nearest_match",
]


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """Where something was written: a file, and a 1-based line and column inside it."""

    file: str
    line: int | None = None
    column: int | None = None

    def __str__(self) -> str:
        parts = [self.file]
        if self.line is not None:
            parts.append(str(self.line))
            if self.column is not None:
                parts.append(str(self.column))
        return ":".join(parts)


class Severity(enum.StrEnum):
    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One thing wrong with a Dag: a stable code, a sentence, and where possible its place, value and a hint."""

    code: str
    message: str
    place: Place | None = None
    hint: str | None = None
    severity: Severity = Severity.ERROR

    def __str__(self) -> str:
        where = f"{self.place}: " if self.place else ""
        hint = f" ({self.hint})" if self.hint else ""
        return f"{where}{self.severity.value} {self.code}: {self.message}{hint}"

    def at(self, place: Place | None) -> Diagnostic:
        """Return the same diagnostic at ``place``."""
        return replace(self, place=place)


class AgentrtError(Exception):
    """The root: catch this to catch everything agentrt raises on purpose."""


class UsageError(AgentrtError):
    """The caller's mistake; nothing was run and nothing was written."""


class ConfigError(UsageError):
    """A setting that is unknown or malformed."""


class DeclarationError(UsageError):
    """A Dag that is wrong. ``diagnostics`` holds everything found, not only the first."""

    def __init__(self, diagnostics: Sequence[Diagnostic]) -> None:
        if not diagnostics:
            raise ValueError("a DeclarationError needs at least one diagnostic")
        self.diagnostics = tuple(diagnostics)
        super().__init__("\n".join(str(diagnostic) for diagnostic in self.diagnostics))


class InputError(UsageError):
    """Inputs of a run that do not fit what the Dag declares."""


class UnknownModelError(UsageError):
    """A model name that nothing answers to."""


class UnknownToolError(UsageError):
    """A tool name that nothing answers to."""


class UnknownRunError(UsageError):
    """A run id that the trace store does not hold, or that fits more than one run."""


class ModelFileError(UsageError):
    """A model file that is cut short, damaged, or of an architecture that is not supported."""


class RequestError(UsageError):
    """A model call whose parameters cannot be served; ``field`` names the parameter."""

    def __init__(self, message: str, *, field: str | None = None) -> None:
        super().__init__(message)
        self.field = field


class PromptTooLongError(RequestError):
    """The prompt and the tokens asked for do not fit the context window."""

    def __init__(self, num_prompt_tokens: int, max_context_tokens: int) -> None:
        super().__init__(
            f"the prompt has {num_prompt_tokens} tokens and the model's context holds {max_context_tokens}, "
            "of which at least one is needed for the answer; shorten the prompt or choose a model with a "
            "longer context",
            field="messages",
        )
        self.num_prompt_tokens = num_prompt_tokens
        self.max_context_tokens = max_context_tokens


class ExecutionError(AgentrtError):
    """Something failed while it ran."""


class RunError(ExecutionError):
    """A run that ended without all of its outputs.

    ``result`` is the ``RunResult`` with everything that had finished, once the run has ended.
    """

    result: object | None = None


class ActionError(RunError):
    """One action failed; the reason is the chained cause."""

    def __init__(self, action: str, reason: str, *, place: Place | None = None, num_attempts: int = 1) -> None:
        tries = f" after {num_attempts} attempts" if num_attempts > 1 else ""
        where = f"{place}: " if place else ""
        super().__init__(f"{where}action {action!r} failed{tries}: {reason}")
        self.action = action
        self.reason = reason
        self.place = place
        self.num_attempts = num_attempts


class DeadlineError(RunError):
    """The run's deadline passed before its outputs were there."""

    def __init__(self, deadline_s: float, unfinished: Iterable[str]) -> None:
        self.deadline_s = deadline_s
        self.unfinished = tuple(unfinished)
        names = ", ".join(self.unfinished) or "none"
        super().__init__(f"the deadline of {deadline_s:g} s passed; unfinished actions: {names}")


class TimeoutExpiredError(ExecutionError):
    """An action's own timeout passed."""

    def __init__(self, timeout_s: float) -> None:
        super().__init__(f"it took longer than its timeout of {timeout_s:g} s")
        self.timeout_s = timeout_s


class TemplateError(ExecutionError):
    """A template or a guard met a value it cannot work with; ``place`` is where it stands."""

    def __init__(self, message: str, *, place: Place | None = None) -> None:
        super().__init__(f"{place}: {message}" if place else message)
        self.place = place


class ModelError(ExecutionError):
    """A model call failed."""


class ModelConnectionError(ModelError):
    """No connection to the endpoint, or it broke before the answer began."""


class ModelStreamError(ModelError):
    """The answer broke off in the middle."""


class ModelOverloadedError(ModelError):
    """The endpoint asked us to come back later; ``retry_after_s`` is its own estimate, if it gave one."""

    def __init__(self, message: str, *, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class ModelResponseError(ModelError):
    """The endpoint answered with an error status, or with something that cannot be read."""

    def __init__(self, message: str, *, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class EngineError(ExecutionError):
    """The embedded engine stopped or could not go on."""


class QueueFullError(EngineError):
    """Too many requests wait for the engine; ``retry_after_s`` is the engine's estimate of when to come back."""

    def __init__(self, num_waiting: int, *, retry_after_s: float) -> None:
        super().__init__(
            f"{num_waiting} requests wait for the engine, as many as may (max_waiting); try again in {retry_after_s:.2g} s"
        )
        self.num_waiting = num_waiting
        self.retry_after_s = retry_after_s


class ToolError(ExecutionError):
    """A tool raised; the cause is chained."""


class DownloadError(ExecutionError):
    """A model file could not be fetched, or did not match its checksum."""


class TraceStoreError(ExecutionError):
    """The local trace store could not be read or written."""


def nearest_match(name: str, known: Iterable[str]) -> str | None:
    """Return the known name most like ``name``, or None when none is close."""
    import difflib

    matches = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return matches[0] if matches else None
