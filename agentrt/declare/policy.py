"""What may be said of an action beside what it does: how it is tried again, joined, repeated and replaced."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from agentrt.declare.template import ValueTemplate


class Effects(enum.StrEnum):
    """What running an action twice would do to the world."""

    NONE = "none"
    IDEMPOTENT = "idempotent"
    WRITE = "write"


class RetryCause(enum.StrEnum):
    """The kinds of failure an action may be tried again on."""

    CONNECTION = "connection"
    """No connection, or it broke before or during the answer."""
    TIMEOUT = "timeout"
    """The action's own timeout passed."""
    OVERLOADED = "overloaded"
    """The endpoint answered 429 or 503."""
    ERROR = "error"
    """Any failure at all."""


DEFAULT_RETRY_CAUSES = frozenset({RetryCause.CONNECTION, RetryCause.TIMEOUT, RetryCause.OVERLOADED})


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often and on what an action is tried again.

    ``attempts`` counts the first try. Waits grow from ``backoff_s`` by a factor of two up to ``max_backoff_s``, with
    full jitter. ``on`` names kinds of failure (see ``RetryCause``).
    """

    attempts: int = 3
    on: frozenset[RetryCause] = DEFAULT_RETRY_CAUSES
    backoff_s: float = 0.2
    max_backoff_s: float = 10.0


@dataclass(frozen=True, slots=True)
class LatencyPrior:
    """What the author expects this action to take, in seconds, before anything was measured."""

    p50_s: float
    p99_s: float


class JoinKind(enum.StrEnum):
    """Which of an action's incoming edges it wants. An edge is live when its source succeeded (or is optional and has
    ended) and its guard holds, and dead when it can no longer be."""

    ALL = "all"
    """Waits for every edge; is skipped when one is dead."""
    ANY = "any"
    """Waits until every edge is live or dead; is skipped when all are dead."""
    FIRST_SUCCESS = "first_success"
    """Begins at the first live edge; is skipped when all are dead."""
    N_OF = "n_of"
    """Begins at the n-th live edge; is skipped when fewer can come."""


@dataclass(frozen=True, slots=True)
class Join:
    """When an action with several incoming edges begins. ``count`` belongs to ``n_of`` alone."""

    kind: JoinKind = JoinKind.ALL
    count: int | None = None

    @property
    def waits_for_all(self) -> bool:
        """Whether every source must have ended first."""
        return self.kind in (JoinKind.ALL, JoinKind.ANY)

    def num_wanted(self, num_edges: int) -> int:
        """Return how many of ``num_edges`` edges must be live."""
        match self.kind:
            case JoinKind.ALL:
                return num_edges
            case JoinKind.N_OF:
                assert self.count is not None
                return self.count
        return min(1, num_edges)

    def __str__(self) -> str:
        return f"{self.count} of them" if self.kind is JoinKind.N_OF else self.kind.value.replace("_", " ")


ALL = Join()


class OnItemError(enum.StrEnum):
    """What becomes of a ``for_each`` when one of its items fails for good."""

    FAIL = "fail"
    """The action fails, and items still running are cancelled."""
    SKIP = "skip"
    """The item is left out of the output."""
    COLLECT = "collect"
    """Every item gives ``{"ok": true, "output": ...}`` or ``{"ok": false, "error": "..."}``."""


@dataclass(frozen=True, slots=True)
class ForEach:
    """Do an action once for each item of a list; the output is the list of outputs, in the order of the items.

    Templates of the action read ``item`` and ``item_index``. ``max_parallel`` None: as many as the Runtime has room for.
    """

    items: ValueTemplate
    max_parallel: int | None = None
    on_error: OnItemError = OnItemError.FAIL


class CacheTier(enum.StrEnum):
    """How alike a prompt must be to one answered before for the answer to be used again."""

    OFF = "off"
    EXACT = "exact"
    NORMALIZED = "normalized"
    SEMANTIC = "semantic"


class Reducer(enum.StrEnum):
    """How a value written to a state field meets the one that is there."""

    REPLACE = "replace"
    APPEND = "append"
    """To a list: the value becomes its last item."""
    EXTEND = "extend"
    """To a list: the items of the value follow it."""
    ADD = "add"
    MERGE = "merge"
    """To a mapping: the value's keys are set."""

    @property
    def is_commutative(self) -> bool:
        """Whether several actions may write at the same time and the result is the same, the order of items aside."""
        return self in (Reducer.APPEND, Reducer.EXTEND, Reducer.ADD)
