"""Every code a diagnostic can carry; ``explanations`` says what each means.

A code keeps its meaning for good; a new kind of mistake gets a new code.
"""

from __future__ import annotations

import enum

from agentrt.errors import Diagnostic, Place, Severity


class Code(enum.StrEnum):
    UNREADABLE_FILE = "DAG001"
    FILE_TOO_LARGE = "DAG002"
    NOT_UTF8 = "DAG003"
    YAML_SYNTAX = "DAG004"
    DUPLICATE_KEY = "DAG005"
    YAML_FEATURE = "DAG006"
    TOO_DEEP = "DAG007"
    EMPTY_FILE = "DAG008"

    UNKNOWN_KEY = "DAG010"
    MISSING_KEY = "DAG011"
    WRONG_TYPE = "DAG012"
    BAD_NAME = "DAG013"
    BAD_DURATION = "DAG014"
    BAD_VALUE = "DAG015"
    CONFLICTING_KEYS = "DAG016"
    BAD_SCHEMA = "DAG017"
    BAD_DEFAULT = "DAG018"
    SECRET = "DAG019"

    TEMPLATE_SYNTAX = "DAG020"
    GUARD_SYNTAX = "DAG021"
    UNKNOWN_NAME = "DAG022"
    NOT_ALLOWED = "DAG023"
    INCOMPLETE_REFERENCE = "DAG024"
    GUARD_TYPE = "DAG025"
    GUARD_NEVER_HOLDS = "DAG026"
    GUARD_ALWAYS_HOLDS = "DAG027"

    UNKNOWN_INPUT = "DAG030"
    UNKNOWN_ACTION = "DAG031"
    UNKNOWN_PART = "DAG032"
    SELF_REFERENCE = "DAG033"
    CYCLE = "DAG034"
    UNKNOWN_AGENT = "DAG035"
    NO_AGENT = "DAG036"
    AMBIGUOUS_NAME = "DAG037"
    TYPE_MISMATCH = "DAG038"
    DUPLICATE_EDGE = "DAG039"

    UNKNOWN_TOOL = "DAG040"
    UNKNOWN_ARGUMENT = "DAG041"
    MISSING_ARGUMENT = "DAG042"
    WRONG_ARGUMENT = "DAG043"
    UNSAFE_RETRY = "DAG044"
    UNSAFE_RACE = "DAG045"
    NOT_STREAMABLE = "DAG046"

    NO_OUTPUTS = "DAG050"
    UNUSED_INPUT = "DAG051"
    UNUSED_AGENT = "DAG052"
    TIMEOUT_OVER_DEADLINE = "DAG053"
    UNUSED_ACTION = "DAG054"
    JOIN_NEVER_RUNS = "DAG055"
    MAY_BE_MISSING = "DAG056"
    DEADLINE_TOO_SHORT = "DAG057"
    CONTEXT_OVERFLOW = "DAG058"
    UNREACHABLE_ACTION = "DAG059"

    BAD_FUNCTION = "DAG060"
    UNKNOWN_PARAMETER = "DAG061"
    DUPLICATE_ACTION = "DAG062"
    NOT_WRITABLE = "DAG063"

    SUB_DAG_UNREADABLE = "DAG070"
    SUB_DAG_RECURSION = "DAG071"
    SUB_DAG_TOO_DEEP = "DAG072"
    STATE_CONFLICT = "DAG073"
    UNKNOWN_STATE = "DAG074"

    NOT_YET = "DAG080"
    IGNORES_NOTHING = "DAG081"
    CANNOT_BE_IGNORED = "DAG082"

    @property
    def severity(self) -> Severity:
        """Whether it keeps a Dag from running."""
        return Severity.WARNING if self in _WARNINGS else Severity.ERROR


_WARNINGS = frozenset(
    {
        Code.GUARD_NEVER_HOLDS,
        Code.GUARD_ALWAYS_HOLDS,
        Code.UNUSED_INPUT,
        Code.UNUSED_AGENT,
        Code.TIMEOUT_OVER_DEADLINE,
        Code.UNUSED_ACTION,
        Code.MAY_BE_MISSING,
        Code.UNREACHABLE_ACTION,
        Code.NOT_YET,
        Code.IGNORES_NOTHING,
    }
)


def diagnose(code: Code, message: str, place: Place | None = None, *, hint: str | None = None) -> Diagnostic:
    """Make a Diagnostic of ``code``."""
    return Diagnostic(str(code), message, place, hint, code.severity)
