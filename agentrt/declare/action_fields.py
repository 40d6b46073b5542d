"""Reading one action of a DAG file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from agentrt.declare.action import Action
from agentrt.declare.agent import Agent
from agentrt.declare.call import Fallback
from agentrt.declare.call_fields import CALL_KEYS, CallReader
from agentrt.declare.codes import Code
from agentrt.declare.dag_fields import read_guard, read_ignore
from agentrt.declare.fields import Fields
from agentrt.declare.policy import (
    ALL,
    CacheTier,
    Effects,
    ForEach,
    Join,
    JoinKind,
    LatencyPrior,
    OnItemError,
    RetryCause,
    RetryPolicy,
)
from agentrt.declare.sub_dags import SubDags
from agentrt.declare.template import ValueTemplate
from agentrt.declare.yaml_nodes import Entry, Node

ACTION_KEYS = (
    *CALL_KEYS, "needs", "if", "join", "for_each", "optional", "fallback", "timeout", "retry", "latency", "effects",
    "writes", "cache", "ignore",
)  # fmt: skip
MAX_PARALLEL = 100_000


class ActionReader:
    """Reads the actions of one file."""

    def __init__(self, fields: Fields, agents: Mapping[str, Agent], sub_dags: SubDags) -> None:
        self._fields = fields
        self._calls = CallReader(fields, agents, sub_dags)

    def read(self, name: str, entry: Entry) -> Action | None:
        """Read an action; None when what it does cannot be told."""
        fields = self._fields
        what = f"action {name!r}"
        entries = fields.mapping(entry.node, what, ACTION_KEYS)
        if not isinstance(entry.node.value, dict):
            return None
        call = self._calls.read(what, entries, entry.place)
        needs = fields.texts(entries["needs"].node, f"'needs' of {what}") if "needs" in entries else []
        effects = self._one_of(entries, "effects", what, Effects)
        cache = self._one_of(entries, "cache", what, CacheTier)
        given: dict[str, Any] = {
            "needs": frozenset(need for need, _ in needs),
            "guard": read_guard(fields, entries["if"].node, f"'if' of {what}") if "if" in entries else None,
            "timeout_s": fields.duration(entries["timeout"].node, f"'timeout' of {what}")
            if "timeout" in entries
            else None,
            "retry": _read_retry(fields, entries["retry"].node, what) if "retry" in entries else None,
            "latency": _read_latency(fields, entries["latency"].node, what) if "latency" in entries else None,
            "effects": Effects(effects) if effects else None,
            "join": _read_join(fields, entries["join"].node, what) if "join" in entries else ALL,
            "for_each": _read_for_each(fields, entries["for_each"].node, what) if "for_each" in entries else None,
            "fallback": self._read_fallback(entries["fallback"], what) if "fallback" in entries else None,
            "optional": bool(
                "optional" in entries and fields.boolean(entries["optional"].node, f"'optional' of {what}")
            ),
            "writes": self._read_writes(entries["writes"], what) if "writes" in entries else {},
            "cache": CacheTier(cache) if cache else None,
            "ignore": read_ignore(fields, entries["ignore"].node, what) if "ignore" in entries else {},
        }
        if call is None:
            return None
        return Action(
            name=name,
            type=call[1],
            call=call[0],
            **given,
            place=entry.place,
            key_places={
                **{key: item.node.place for key, item in entries.items()},
                **{f"needs.{need}": place for need, place in reversed(needs)},
            },
        )

    def _one_of(self, entries: Mapping[str, Entry], key: str, what: str, known: Iterable[str]) -> str | None:
        return self._fields.one_of(entries[key].node, f"{key!r} of {what}", known) if key in entries else None

    def _read_fallback(self, entry: Entry, what: str) -> Fallback | None:
        what = f"'fallback' of {what}"
        entries = self._fields.mapping(entry.node, what, ("value", *CALL_KEYS))
        if "value" in entries:
            for key in entries.keys() & set(CALL_KEYS):
                message = f"{what} has 'value' and {key!r}: it is a value or a call"
                self._fields.note(Code.CONFLICTING_KEYS, message, entries[key].place)
            node = entries["value"].node
            value = self._fields.parse(ValueTemplate.parse, node.plain(), dict(node.origins()))
            return None if value is None else Fallback(value=value)
        if not isinstance(entry.node.value, dict):
            return None
        call = self._calls.read(what, entries, entry.place)
        return None if call is None else Fallback(call=call[0])

    def _read_writes(self, entry: Entry, what: str) -> dict[str, ValueTemplate]:
        written = {}
        for field, item in self._fields.mapping(entry.node, f"'writes' of {what}").items():
            value = self._fields.parse(ValueTemplate.parse, item.node.plain(), dict(item.node.origins()))
            if value is not None:
                written[field] = value
        return written


def _read_join(fields: Fields, node: Node, what: str) -> Join:
    what = f"'join' of {what}"
    if isinstance(node.value, dict):
        entries = fields.mapping(node, what, ("n_of",))
        if "n_of" not in entries:
            fields.note(Code.MISSING_KEY, f"{what} lacks 'n_of'", node.place, hint="write join: {n_of: 2}")
        count = fields.whole_number(entries["n_of"].node, f"'n_of' in {what}", 1, 10_000) if "n_of" in entries else None
        return ALL if count is None else Join(JoinKind.N_OF, count)
    kinds = [kind for kind in JoinKind if kind is not JoinKind.N_OF]
    if node.value == JoinKind.N_OF:
        fields.note(Code.BAD_VALUE, f"{what} does not say how many", node.place, hint="write join: {n_of: 2}")
        return ALL
    kind = fields.one_of(node, what, kinds)
    return Join(JoinKind(kind)) if kind else ALL


def _read_for_each(fields: Fields, node: Node, what: str) -> ForEach | None:
    what = f"'for_each' of {what}"
    if not isinstance(node.value, dict):
        items = _read_items(fields, node, what)
        return None if items is None else ForEach(items)
    entries = fields.mapping(node, what, ("items", "max_parallel", "on_error"))
    if "items" not in entries:
        fields.note(Code.MISSING_KEY, f"{what} lacks 'items'", node.place, hint="write items: '{{ ... }}'")
        return None
    items = _read_items(fields, entries["items"].node, f"'items' in {what}")
    max_parallel = None
    if "max_parallel" in entries:
        node = entries["max_parallel"].node
        max_parallel = fields.whole_number(node, f"'max_parallel' in {what}", 1, MAX_PARALLEL)
    on_error = None
    if "on_error" in entries:
        on_error = fields.one_of(entries["on_error"].node, f"'on_error' in {what}", OnItemError)
    return None if items is None else ForEach(items, max_parallel, OnItemError(on_error or OnItemError.FAIL))


def _read_items(fields: Fields, node: Node, what: str) -> ValueTemplate | None:
    """Read a list, or a template that gives one."""
    items = fields.parse(ValueTemplate.parse, node.plain(), dict(node.origins()))
    if items is None or isinstance(node.value, list) or (isinstance(node.value, str) and items.programs):
        return items
    message = f"{what} is {node.kind}; expected a list, or a template that gives one"
    fields.note(Code.WRONG_TYPE, message, node.place, hint="write, for instance, '{{ actions.search.output }}'")
    return None


def _read_retry(fields: Fields, node: Node, what: str) -> RetryPolicy | None:
    what = f"'retry' of {what}"
    if not isinstance(node.value, dict):
        attempts = fields.whole_number(node, what, 1, 100)
        return None if attempts is None else RetryPolicy(attempts)
    entries = fields.mapping(node, what, ("attempts", "on", "backoff", "max_backoff"))
    given: dict[str, Any] = {}
    if "attempts" in entries:
        given["attempts"] = fields.whole_number(entries["attempts"].node, f"'attempts' in {what}", 1, 100)
    if "on" in entries:
        node = entries["on"].node
        items = node.value if isinstance(node.value, list) else [node]
        causes = [fields.one_of(item, f"'on' in {what}", RetryCause) for item in items]
        given["on"] = frozenset(RetryCause(cause) for cause in causes if cause)
    for key, name in (("backoff", "backoff_s"), ("max_backoff", "max_backoff_s")):
        if key in entries:
            given[name] = fields.duration(entries[key].node, f"{key!r} in {what}")
    return RetryPolicy(**{name: value for name, value in given.items() if value is not None})


def _read_latency(fields: Fields, node: Node, what: str) -> LatencyPrior | None:
    what = f"'latency' of {what}"
    entries = fields.mapping(node, what, ("p50", "p99"))
    for key in ("p50", "p99"):
        if key not in entries and isinstance(node.value, dict):
            fields.note(
                Code.MISSING_KEY, f"{what} lacks {key!r}", node.place, hint="write latency: {p50: 200ms, p99: 1s}"
            )
    if len(entries) < 2:
        return None
    p50_s = fields.duration(entries["p50"].node, f"'p50' in {what}")
    p99_s = fields.duration(entries["p99"].node, f"'p99' in {what}")
    if p50_s is None or p99_s is None:
        return None
    if p50_s > p99_s:
        fields.note(Code.BAD_VALUE, f"{what}: p50 is longer than p99", node.place, hint="exchange them")
    return LatencyPrior(p50_s, p99_s)
