"""Checking what is read: that the input, the action, and the part of it are there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from agentrt.declare.action import Action
from agentrt.declare.codes import Code, diagnose
from agentrt.declare.limits import MAX_NAMES_COMPARED
from agentrt.declare.reference import Reference
from agentrt.errors import Diagnostic, Place, nearest_match

if TYPE_CHECKING:
    from agentrt.compile.subject import Subject

PARTS_OF_AN_ACTION = ("output", "status")
_TEXT: Mapping[str, Any] = {"type": "string"}
_SCALARS = {"string": "text", "integer": "a number", "number": "a number", "boolean": "a boolean", "null": "null"}


def did_you_mean(name: str, known: Iterable[str], kind: str) -> str:
    """Return a hint: the nearest known name, or else the known ones."""
    known = list(known)
    match = nearest_match(name, known[:MAX_NAMES_COMPARED])
    if match is not None:
        return f"did you mean {match!r}?"
    shown = ", ".join(known[:10]) or "none"
    return f"known {kind}: {shown}{', ...' if len(known) > 10 else ''}"


def check_reference(
    subject: Subject, reference: Reference, place: Place | None, *, reader: Action | None
) -> Iterator[Diagnostic]:
    """Say what is wrong with one reference of ``reader``, or of the outputs when that is None."""
    dag = subject.dag
    match reference.kind:
        case "inputs":
            if reference.name not in dag.inputs:
                hint = did_you_mean(reference.name, dag.inputs, "inputs")
                yield diagnose(Code.UNKNOWN_INPUT, f"there is no input {reference.name!r}", place, hint=hint)
                return
            schema = dag.inputs[reference.name].schema
            yield from _check_path(f"inputs.{reference.name}", reference.path, schema, place)
        case "state":
            if reference.name not in dag.state:
                hint = did_you_mean(reference.name, dag.state, "state fields")
                yield diagnose(Code.UNKNOWN_STATE, f"there is no state field {reference.name!r}", place, hint=hint)
                return
            yield from _check_path(f"state.{reference.name}", reference.path, dag.state[reference.name].schema, place)
        case "actions":
            yield from _check_action_reference(subject, reference, place, reader)
        case _:
            if reader is None:
                yield diagnose(Code.UNKNOWN_NAME, f"{reference.kind!r} is there only in a 'for_each'", place)


def _check_action_reference(
    subject: Subject, reference: Reference, place: Place | None, reader: Action | None
) -> Iterator[Diagnostic]:
    if reader is not None and reference.name == reader.name:
        yield self_reference(reader, place)
    elif reference.name not in subject.known_actions:
        hint = did_you_mean(reference.name, subject.dag.actions, "actions")
        yield diagnose(Code.UNKNOWN_ACTION, f"there is no action {reference.name!r}", place, hint=hint)
    elif not reference.path:
        hint = f"write actions.{reference.name}.output"
        message = f"'actions.{reference.name}' does not say which part of the action is read"
        yield diagnose(Code.INCOMPLETE_REFERENCE, message, place, hint=hint)
    elif reference.path[0] not in PARTS_OF_AN_ACTION:
        part = reference.path[0]
        match = nearest_match(part, PARTS_OF_AN_ACTION)
        hint = f"did you mean {match!r}?" if match else f"write actions.{reference.name}.output.{part}"
        yield diagnose(Code.UNKNOWN_PART, f"an action has 'output' and 'status', and no {part!r}", place, hint=hint)
    elif reference.name in subject.dag.actions:
        part, *path = reference.path
        whole = Reference("actions", reference.name, (part,))
        schema = _TEXT if part == "status" else subject.schemas.of_reference(whole)
        yield from _check_path(f"actions.{reference.name}.{part}", path, schema, place)


def self_reference(action: Action, place: Place | None) -> Diagnostic:
    return diagnose(Code.SELF_REFERENCE, f"action {action.name!r} depends on itself", place)


def _check_path(what: str, path: Iterable[str], schema: Mapping[str, Any], place: Place | None) -> Iterator[Diagnostic]:
    """Follow a path through a schema as far as the schema decides; say where it leads into nothing."""
    for part in path:
        kind = schema.get("type")
        if isinstance(kind, str) and kind in _SCALARS and not (kind == "string" and part.isdecimal()):
            yield diagnose(Code.UNKNOWN_PART, f"{what} is {_SCALARS[kind]}, and has no part {part!r}", place)
            return
        properties = schema.get("properties")
        if kind == "array" and part.isdecimal() and isinstance(schema.get("items"), Mapping):
            schema = schema["items"]
        elif kind == "object" and isinstance(properties, Mapping) and isinstance(properties.get(part), Mapping):
            schema = properties[part]
        elif kind == "object" and isinstance(properties, Mapping) and schema.get("additionalProperties") is False:
            hint = did_you_mean(part, properties, "parts")
            yield diagnose(Code.UNKNOWN_PART, f"{what} has no part {part!r}", place, hint=hint)
            return
        else:
            return
        what = f"{what}.{part}"
