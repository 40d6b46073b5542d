"""Mistakes with the shared state: fields that are not there, and two actions at one field with nothing to order them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from agentrt.compile.references import did_you_mean
from agentrt.compile.subject import Finding, Findings, Subject
from agentrt.declare.codes import Code, diagnose

MAX_WRITERS = 200
"""Writers and readers of one field that are compared with each other, at most."""


def state_findings(subject: Subject) -> Findings:
    """Go through what is wrong with how actions use the state."""
    writers: dict[str, list[str]] = {}
    readers: dict[str, list[str]] = {}
    for name, action in subject.dag.actions.items():
        for field in action.writes:
            writers.setdefault(field, []).append(name)
            if field not in subject.dag.state:
                hint = did_you_mean(field, subject.dag.state, "state fields")
                message = f"action {name!r} writes the state field {field!r}, which is not declared"
                yield Finding(name, diagnose(Code.UNKNOWN_STATE, message, action.place_of("writes"), hint=hint))
        for reference in action.references:
            if reference.kind == "state":
                readers.setdefault(reference.name, []).append(name)
    if not writers:
        return
    for field, declared in subject.dag.state.items():
        writing = writers.get(field, [])[:MAX_WRITERS]
        behind = {name: _behind(name, subject.children) for name in writing}
        if not declared.reducer.is_commutative:
            for first, second in _unordered(writing, behind):
                message = f"actions {first!r} and {second!r} may write the state field {field!r} at the same time"
                hint = f"let one of them need the other, or declare a reducer such as 'append' for {field!r}"
                place = subject.dag.actions[second].place_of("writes")
                yield Finding(second, diagnose(Code.STATE_CONFLICT, message, place, hint=hint))
        for reader in readers.get(field, [])[:MAX_WRITERS]:
            after_reader = _behind(reader, subject.children)
            for writer in writing:
                if writer != reader and reader not in behind[writer] and writer not in after_reader:
                    message = f"action {reader!r} reads the state field {field!r} while {writer!r} may be writing it"
                    action = subject.dag.actions[reader]
                    place = next((p for r, p in action.reference_places.items() if r.kind == "state"), action.place)
                    hint = f"write needs: {writer} at {reader!r}, or the other way round"
                    yield Finding(reader, diagnose(Code.STATE_CONFLICT, message, place, hint=hint))


def _behind(name: str, children: Mapping[str, tuple[str, ...]]) -> frozenset[str]:
    """Return every action that cannot begin before ``name`` has ended."""
    found: set[str] = set()
    stack = list(children[name])
    while stack:
        child = stack.pop()
        if child not in found:
            found.add(child)
            stack.extend(children[child])
    return frozenset(found)


def _unordered(names: list[str], behind: Mapping[str, frozenset[str]]) -> Iterator[tuple[str, str]]:
    for index, first in enumerate(names):
        for second in names[index + 1 :]:
            if second not in behind[first] and first not in behind[second]:
                yield first, second
