"""Reading what a DAG file says of the Dag as a whole: inputs, SLO, edges, state, and warnings to ignore."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agentrt.declare.codes import Code
from agentrt.declare.dag import Edge, Input, Slo, StateField
from agentrt.declare.fields import Fields
from agentrt.declare.guard import Guard
from agentrt.declare.json_schema import misfit, schema_problem
from agentrt.declare.policy import Reducer
from agentrt.declare.yaml_nodes import Entry, Node
from agentrt.errors import Severity

SCHEMA_TYPES = ("string", "integer", "number", "boolean", "array", "object", "null")
INITIAL_OF_REDUCER: Mapping[Reducer, Any] = {Reducer.APPEND: [], Reducer.EXTEND: [], Reducer.ADD: 0, Reducer.MERGE: {}}


def read_input(fields: Fields, name: str, entry: Entry) -> Input | None:
    what = f"input {name!r}"
    if isinstance(entry.node.value, str):
        type_name = fields.one_of(entry.node, what, SCHEMA_TYPES)
        return Input(name, {"type": type_name}, place=entry.place) if type_name else None
    fields.charge_schema(entry.node)
    schema = {key: item.node.plain() for key, item in fields.mapping(entry.node, what).items()}
    description = schema.pop("description", "")
    has_default, default = "default" in schema, schema.pop("default", None)
    if not isinstance(description, str):
        fields.note(Code.WRONG_TYPE, f"the description of {what} is no text", entry.place)
        description = ""
    problem = schema_problem(schema)
    if problem is not None:
        fields.note(Code.BAD_SCHEMA, f"{what}: {problem}", entry.place)
        return None
    if has_default and (problem := misfit(default, schema)) is not None:
        fields.note(Code.BAD_DEFAULT, f"the default of {what} does not fit: {problem}", entry.place)
    return Input(name, schema, description, default, required=not has_default, place=entry.place)


def read_slo(fields: Fields, node: Node) -> Slo:
    if not isinstance(node.value, dict):
        return Slo(p99_s=fields.duration(node, "'slo'"))
    entries = fields.mapping(node, "'slo'", ("p99", "deadline"))
    p99_s = fields.duration(entries["p99"].node, "'p99' in 'slo'") if "p99" in entries else None
    deadline_s = fields.duration(entries["deadline"].node, "'deadline' in 'slo'") if "deadline" in entries else None
    if p99_s is not None and deadline_s is not None and p99_s > deadline_s:
        hint = "a run is stopped at its deadline, so the p99 cannot be longer"
        fields.note(Code.BAD_VALUE, "'p99' in 'slo' is longer than 'deadline'", entries["p99"].node.place, hint=hint)
    return Slo(p99_s, deadline_s)


def read_edges(fields: Fields, node: Node) -> tuple[Edge, ...]:
    if not isinstance(node.value, list):
        fields.note(Code.WRONG_TYPE, "'edges' is a list of {from, to, guard}", node.place)
        return ()
    edges = []
    for item in node.value:
        entries = fields.mapping(item, "an edge", ("from", "to", "guard", "stream"))
        ends = {}
        for key in ("from", "to"):
            if key in entries:
                ends[key] = fields.text(entries[key].node, f"{key!r} of an edge")
            elif isinstance(item.value, dict):
                fields.note(Code.MISSING_KEY, f"an edge lacks {key!r}", item.place, hint="write {from: a, to: b}")
        source, target = ends.get("from"), ends.get("to")
        guard = read_guard(fields, entries["guard"].node, "'guard' of an edge") if "guard" in entries else None
        stream = fields.boolean(entries["stream"].node, "'stream' of an edge") if "stream" in entries else False
        if source is not None and target is not None:
            edges.append(Edge(source, target, guard, bool(stream), item.place))
    return tuple(edges)


def read_guard(fields: Fields, node: Node, what: str) -> Guard | None:
    if isinstance(node.value, bool):
        # `if: true` is a condition too, and YAML has made a boolean of it.
        return fields.parse(Guard.parse, str(node.value).lower(), node.origin)
    text = fields.text(node, what)
    if text is None:
        return None
    fields.charge_guard(text, node.place)
    return fields.parse(Guard.parse, text, node.origin)


def read_state_field(fields: Fields, name: str, entry: Entry) -> StateField | None:
    what = f"state field {name!r}"
    if isinstance(entry.node.value, str):
        type_name = fields.one_of(entry.node, what, SCHEMA_TYPES)
        return StateField(name, {"type": type_name}, place=entry.place) if type_name else None
    entries = fields.mapping(entry.node, what)
    reducer = Reducer.REPLACE
    if "reducer" in entries:
        reducer = Reducer(fields.one_of(entries["reducer"].node, f"'reducer' of {what}", Reducer) or Reducer.REPLACE)
    initial = entries["initial"].node.plain() if "initial" in entries else INITIAL_OF_REDUCER.get(reducer)
    fields.charge_schema(entry.node)
    schema = {key: item.node.plain() for key, item in entries.items() if key not in ("reducer", "initial")}
    problem = schema_problem(schema)
    if problem is not None:
        fields.note(Code.BAD_SCHEMA, f"{what}: {problem}", entry.place)
        return None
    if "initial" in entries and (problem := misfit(initial, schema)) is not None:
        fields.note(Code.BAD_DEFAULT, f"the initial value of {what} does not fit: {problem}", entry.place)
    return StateField(name, schema, reducer, initial, place=entry.place)


def read_ignore(fields: Fields, node: Node, what: str) -> dict[str, str]:
    """Read the warnings that are not to be told, each with the reason why."""
    codes = {str(code): code for code in Code}
    ignored = {}
    for name, entry in fields.mapping(node, f"'ignore' of {what}").items():
        code = codes.get(name.upper())
        reason = entry.node.value
        if code is None:
            fields.note(Code.CANNOT_BE_IGNORED, f"there is no code {name!r:.60} to ignore", entry.place)
        elif code.severity is Severity.ERROR:
            message = f"{code} is an error, and only warnings can be ignored"
            fields.note(Code.CANNOT_BE_IGNORED, message, entry.place, hint=f"agentrt check --explain {code}")
        elif not isinstance(reason, str) or not reason.strip():
            message = f"{code} is ignored without a reason"
            fields.note(Code.CANNOT_BE_IGNORED, message, entry.place, hint=f"write {code}: why it does not matter here")
        else:
            ignored[str(code)] = reason.strip()
    return ignored
