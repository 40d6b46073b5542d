"""Mistakes in single actions: what they name, whom they ask, how they are tried again."""

from __future__ import annotations

from collections.abc import Iterator

from agentrt.compile.check_arguments import argument_problems
from agentrt.compile.references import check_reference, did_you_mean, self_reference
from agentrt.compile.subject import Finding, Findings, Subject, writes
from agentrt.declare.action import Action
from agentrt.declare.call import LlmCall, ToolCall
from agentrt.declare.codes import Code, diagnose
from agentrt.declare.policy import CacheTier
from agentrt.errors import Diagnostic, Place


def action_findings(subject: Subject) -> Findings:
    """Go through what is wrong with each action by itself."""
    for name, action in subject.dag.actions.items():
        for diagnostic in _problems(subject, action):
            yield Finding(name, diagnostic)


def _problems(subject: Subject, action: Action) -> Iterator[Diagnostic]:
    yield from _reference_problems(subject, action)
    yield from _need_problems(subject, action)
    for call in action.calls:
        if isinstance(call, LlmCall) and call.agent not in subject.dag.agents:
            hint = did_you_mean(call.agent, subject.dag.agents, "agents")
            message = f"action {action.name!r} names the agent {call.agent!r}, which is not declared"
            yield diagnose(Code.UNKNOWN_AGENT, message, action.place_of("agent"), hint=hint)
        yield from argument_problems(action, call, subject.tools)
    yield from _effect_problems(subject, action)
    yield from _time_problems(subject, action)
    if action.cache not in (None, CacheTier.OFF):
        message = f"'cache' of action {action.name!r}: this version keeps no answers, and asks again each time"
        yield diagnose(Code.NOT_YET, message, action.place_of("cache"))


def _reference_problems(subject: Subject, action: Action) -> Iterator[Diagnostic]:
    places = action.reference_places
    found = []
    for reference in action.references:
        place = places.get(reference, action.place)
        if reference.kind in ("item", "item_index") and action.for_each is None:
            message = f"{reference.kind!r} is there only in an action with 'for_each'"
            found.append(diagnose(Code.UNKNOWN_NAME, message, place, hint="write for_each: '{{ ... }}', a list"))
        else:
            found += check_reference(subject, reference, place, reader=action)
    yield from sorted(found, key=by_place)


def _need_problems(subject: Subject, action: Action) -> Iterator[Diagnostic]:
    for name in sorted(action.needs):
        place = action.place_of_dependency(name)
        if name == action.name:
            yield self_reference(action, place)
        elif name not in subject.known_actions:
            hint = did_you_mean(name, subject.dag.actions, "actions")
            message = f"action {action.name!r} needs {name!r}, which is no action"
            yield diagnose(Code.UNKNOWN_ACTION, message, place, hint=hint)


def _effect_problems(subject: Subject, action: Action) -> Iterator[Diagnostic]:
    if action.retry is None or action.retry.attempts < 2 or not writes(action, subject.tools):
        return
    who = f"tool {action.call.tool!r}" if isinstance(action.call, ToolCall) else "it"
    message = f"action {action.name!r} is tried again on failure, but {who} writes: it could act twice"
    hint = "remove 'retry', or declare 'effects: idempotent' if calling it twice does no harm"
    yield diagnose(Code.UNSAFE_RETRY, message, action.place_of("retry"), hint=hint)


def _time_problems(subject: Subject, action: Action) -> Iterator[Diagnostic]:
    deadline_s = subject.dag.slo.deadline_s
    if deadline_s is not None and action.timeout_s is not None and action.timeout_s > deadline_s:
        message = f"the timeout of action {action.name!r}, {action.timeout_s:g} s, is longer than the deadline"
        hint = f"the run is stopped after {deadline_s:g} s"
        yield diagnose(Code.TIMEOUT_OVER_DEADLINE, message, action.place_of("timeout"), hint=hint)


def by_place(diagnostic: Diagnostic) -> tuple[str, int, int, str, str]:
    place = diagnostic.place or Place("")
    return place.file, place.line or 0, place.column or 0, diagnostic.code, diagnostic.message
