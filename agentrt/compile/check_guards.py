"""Mistakes in conditions: types that never go together, what can never or always hold, branches that exclude each other."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import combinations

from agentrt.compile.guard_analysis import exclude_each_other, may_hold, never_holds, possible_results
from agentrt.compile.guard_domain import Domain
from agentrt.compile.guard_outcome import Outcome
from agentrt.compile.guard_types import guard_problems
from agentrt.compile.subject import Finding, Findings, Subject
from agentrt.declare.codes import Code, diagnose
from agentrt.declare.guard import Guard
from agentrt.declare.policy import JoinKind
from agentrt.declare.reference import Problem, Reference
from agentrt.errors import Diagnostic, Place

MAX_PAIRS = 1000
"""Pairs of different conditions that are compared in one Dag; each takes up to some milliseconds."""
MAX_GUARDS_TOGETHER = 8
"""Conditions on the way to one action that are looked at together; with more, nothing is said of them."""


@dataclass(frozen=True, slots=True)
class _Condition:
    """A guard, of an action or of an edge to it."""

    action: str
    guard: Guard
    place: Place | None
    what: str


def guard_findings(subject: Subject, missing: frozenset[str]) -> Findings:
    """Go through what is wrong with conditions. ``missing``: actions whose output may be null."""
    never: set[str] = set()
    verdicts: dict[tuple[str, bool], tuple[list[Problem], bool, bool]] = {}
    """By source and kind of join: Dags repeat their conditions."""
    dead_edges: set[tuple[str, str]] = set()
    for condition, source in _conditions(subject):
        action = subject.dag.actions[condition.action]
        waits_for_all = action.join.kind is JoinKind.ALL
        key = (condition.guard.source, waits_for_all)
        if key not in verdicts:
            verdicts[key] = _verdict(subject, condition.guard, frozenset() if waits_for_all else missing)
        problems, is_never, is_always = verdicts[key]
        for problem in problems:
            found = problem.diagnostic(condition.guard.origin)
            yield Finding(condition.action, found if found.place else found.at(condition.place))
        if is_never:
            message = f"{condition.what} never holds: {condition.guard.source}"
            yield Finding(condition.action, diagnose(Code.GUARD_NEVER_HOLDS, message, condition.place))
            if source is None:
                never.add(condition.action)
            else:
                dead_edges.add((source, condition.action))
        elif is_always:
            message = f"{condition.what} always holds: {condition.guard.source}"
            yield Finding(
                condition.action, diagnose(Code.GUARD_ALWAYS_HOLDS, message, condition.place, hint="remove it")
            )
    yield from _unreachable_findings(subject, never, dead_edges)
    yield from _exclusive_findings(subject, lambda reference: _domain(subject, reference, missing))


_Domains = tuple[tuple[Reference, str, bool], ...]
"""What may be read: reference, JSON Schema as JSON, whether it may be null. In this form it can be remembered by."""


def _domains(guards: Iterable[Guard], domain_of: Callable[[Reference], Domain]) -> _Domains:
    found = []
    for reference in sorted({reference for guard in guards for reference in guard.references}):
        domain = domain_of(reference)
        found.append((reference, json.dumps(domain.schema, sort_keys=True, default=str), domain.nullable))
    return tuple(found)


def _domain_of(domains: _Domains) -> Callable[[Reference], Domain]:
    known = {reference: Domain(json.loads(schema), nullable) for reference, schema, nullable in domains}
    return known.__getitem__


def _verdict(subject: Subject, guard: Guard, missing: frozenset[str]) -> tuple[list[Problem], bool, bool]:
    """Say what is wrong with a guard's types or else whether it never or always holds."""
    problems = list(guard_problems(guard, subject.schemas.of_reference))
    if problems:
        return problems, False, False
    return [], *_never_always(guard, _domains([guard], lambda reference: _domain(subject, reference, missing)))


# A Dag is checked again when it is planned, and files of one folder repeat their conditions.
@functools.lru_cache(maxsize=4096)
def _never_always(guard: Guard, domains: _Domains) -> tuple[bool, bool]:
    results = possible_results([guard], _domain_of(domains))
    return not any(may_hold(outcome) for (outcome,) in results), results == {(Outcome.HOLDS,)}


@functools.lru_cache(maxsize=4096)
def _exclude(one: Guard, other: Guard, domains: _Domains) -> bool:
    """Say whether two conditions cannot both hold, where each alone can."""
    domain_of = _domain_of(domains)
    return exclude_each_other([one, other], domain_of) and not any(never_holds(g, domain_of) for g in (one, other))


def _conditions(subject: Subject) -> Iterator[tuple[_Condition, str | None]]:
    """Go through all conditions; with one of an edge, the edge's source."""
    for name, action in subject.dag.actions.items():
        if action.guard is not None:
            yield _Condition(name, action.guard, action.place_of("if"), f"the condition of action {name!r}"), None
    for edge in subject.dag.edges:
        if edge.guard is not None and edge.target in subject.dag.actions:
            what = f"the guard of the edge from {edge.source!r} to {edge.target!r}"
            place = edge.guard.origin.place if edge.guard.origin else edge.place
            yield _Condition(edge.target, edge.guard, place, what), edge.source


def _domain(subject: Subject, reference: Reference, missing: frozenset[str]) -> Domain:
    action = subject.dag.actions.get(reference.name) if reference.kind == "actions" else None
    is_nullable = action is not None and (action.optional or reference.name in missing)
    return Domain(subject.schemas.of_reference(reference), is_nullable and reference.path[:1] == ("output",))


def _unreachable_findings(subject: Subject, never: set[str], dead_edges: set[tuple[str, str]]) -> Findings:
    """Tell of what waits for what never runs; the first cause itself was told of before."""
    never = set(never)
    if not never and not dead_edges:
        return
    for name in subject.order:
        if name in never:
            continue
        action, edges = subject.dag.actions[name], subject.incoming[name]
        dead = [
            edge.source
            for edge in edges
            if (edge.source, name) in dead_edges
            or (edge.source in never and not subject.dag.actions[edge.source].optional)
        ]
        if len(edges) - len(dead) < action.join.num_wanted(len(edges)):
            never.add(name)
            message = f"action {name!r} never runs, as {', '.join(map(repr, dead[:3]))} never comes through"
            place = subject.place_of_edge(name, dead[0])
            yield Finding(name, diagnose(Code.UNREACHABLE_ACTION, message, place))


def _exclusive_findings(subject: Subject, domain_of: Callable[[Reference], Domain]) -> Findings:
    """Tell of actions that want branches which cannot both be taken.

    What must hold for an action is collected on the way down; where two such sets meet they are looked at together.
    """
    required: dict[str, dict[str, Guard]] = {}
    told: set[str] = set()
    compared: dict[tuple[str, str], bool] = {}
    for name in subject.order:
        action = subject.dag.actions[name]
        own: dict[str, Guard] = {}
        sources = []
        if action.join.kind is JoinKind.ALL:
            for edge in subject.incoming[name]:
                if edge.guard is not None:
                    own[edge.guard.source] = edge.guard
                if not subject.dag.actions[edge.source].optional:
                    sources.append(edge.source)
        meeting = [set(required[source]) for source in sources if required[source]]
        for source in sources:
            own |= required[source]
        if action.guard is not None:
            own[action.guard.source] = action.guard
            meeting.append({action.guard.source})
        required[name] = own if len(own) <= MAX_GUARDS_TOGETHER else {}
        is_told = any(source in told for source in sources)
        if is_told:
            told.add(name)
        elif len(meeting) > 1 and 1 < len(own) <= MAX_GUARDS_TOGETHER:
            pair = _excluding_pair(list(own.values()), domain_of, compared)
            if pair is not None:
                told.add(name)
                yield Finding(name, _exclusive(name, pair, action.place))


def _excluding_pair(
    guards: list[Guard], domain_of: Callable[[Reference], Domain], compared: dict[tuple[str, str], bool]
) -> tuple[Guard, Guard] | None:
    """Return two conditions that cannot both hold, where each alone can."""
    for one, other in combinations(guards, 2):
        key = (one.source, other.source)
        if key not in compared:
            if len(compared) >= MAX_PAIRS:
                return None
            shares = not one.references.isdisjoint(other.references)
            compared[key] = shares and _exclude(one, other, _domains((one, other), domain_of))
        if compared[key]:
            return one, other
    return None


def _exclusive(name: str, guards: tuple[Guard, Guard], place: Place | None) -> Diagnostic:
    conditions = " and ".join(repr(guard.source) for guard in guards)
    message = f"action {name!r} never runs: it waits for branches whose conditions exclude each other, {conditions}"
    return diagnose(Code.JOIN_NEVER_RUNS, message, place, hint="write 'join: any' to go on with the one that was taken")
