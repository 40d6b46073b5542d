"""What is known of a value before anything runs: the JSON Schema of what an action gives, and of what a reference reads.

``{}`` stands for "anything". That an action may be skipped, and its output then is null, is not part of its schema: what
may be missing on some branch is another question than what kind of value an action gives.
"""

from __future__ import annotations

import typing
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from agentrt.compile.schema_parts import (
    Schema,
    SchemaReader,
    TooMuchWorkError,
    Work,
    closed_object,
    item_schema,
    property_schema,
)
from agentrt.declare.action import Action
from agentrt.declare.call import Call, DagCall, Fallback, FunctionCall, HumanCall, LlmCall, ToolCall
from agentrt.declare.dag import Dag
from agentrt.declare.policy import ForEach, OnItemError
from agentrt.declare.reference import ITEM_KINDS, Reference
from agentrt.declare.template import Position, ValueTemplate
from agentrt.declare.template_program import Path, Pieces, Program
from agentrt.tools.annotations import describe
from agentrt.tools.registry import ToolRegistry

ANYTHING: Schema = {}
TEXT: Schema = {"type": "string"}
LIST: Schema = {"type": "array"}
_INDEX: Schema = {"type": "integer", "minimum": 0}
_APPROVAL: Schema = {
    "type": "object",
    "properties": {"approved": {"const": True}, "comment": {"type": ["string", "null"]}},
    "required": ["approved"],
}
_PLAIN_ANNOTATIONS: Mapping[Any, Schema] = {
    Any: ANYTHING,
    str: TEXT,
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    None: {"type": "null"},
    type(None): {"type": "null"},
    list: LIST,
    dict: {"type": "object"},
}
"""The commonest, for which pydantic (0.1 s to load) need not be asked."""
_MAX_FALLBACKS_IN_A_ROW = 50
_OWN_REFERENCES = ("$ref", "$defs", "definitions", "$id")


def output_schema_of(action: Action, tools: ToolRegistry | None) -> Schema:
    """Return what is known of an action's output: the answer of a model is a text, a tool's result has its schema."""
    return EdgeSchemas(None, tools).of_output(action)


def schema_of(dag: Dag, reference: Reference, tools: ToolRegistry | None, *, reader: Action | None = None) -> Schema:
    """Return what is known of what a reference reads; ``item`` is that of ``reader``."""
    return EdgeSchemas(dag, tools).of_reference(reference, reader)


class EdgeSchemas:
    """The schemas of one Dag, each worked out once; asked twice, it gives the same object."""

    def __init__(self, dag: Dag | None, tools: ToolRegistry | None) -> None:
        self._dag = dag
        self._tools = tools
        self._outputs: dict[str, Schema] = {}
        self._on_the_way: set[str] = set()
        """Actions whose output is being worked out."""
        self._references: dict[tuple[Reference, str | None], Schema] = {}
        self._hints: dict[int, tuple[Mapping[str, Any], Callable[..., Any]]] = {}
        self._paths: dict[tuple[str | int, ...], Schema] = {}
        self._made: dict[Any, tuple[Schema, Any]] = {}
        self._annotations: dict[Any, Schema] = dict(_PLAIN_ANNOTATIONS)

    def of_reference(self, reference: Reference, reader: Action | None = None) -> Schema:
        # Only an item means something else to each reader.
        key = reference, reader.name if reader is not None and reference.kind in ITEM_KINDS else None
        if key not in self._references:
            self._references[key] = self._of_reference(reference, reader)
        return self._references[key]

    def _of_reference(self, reference: Reference, reader: Action | None) -> Schema:
        dag, path = self._dag, reference.path
        schema: Schema = ANYTHING
        match reference.kind:
            case "inputs" if dag is not None and reference.name in dag.inputs:
                schema = dag.inputs[reference.name].schema
            case "state" if dag is not None and reference.name in dag.state:
                schema = dag.state[reference.name].schema
            case "actions" if dag is not None and reference.name in dag.actions:
                if path[:1] == ("status",):
                    schema = TEXT
                elif path[:1] == ("output",):
                    schema = self.of_output(dag.actions[reference.name])
                path = path[1:]
            case "item" if reader is not None and reader.for_each is not None:
                schema = part_schema(self.of_template(reader.for_each.items, reader), "0")
            case "item_index":
                schema = _INDEX
        for key in path:
            schema = part_schema(schema, key)
        return schema

    def of_output(self, action: Action) -> Schema:
        if action.name not in self._outputs:
            # A fallback may read an action whose fallback reads this one (a cycle, told elsewhere), or a long row of such.
            if len(self._on_the_way) >= _MAX_FALLBACKS_IN_A_ROW or action.name in self._on_the_way:
                return ANYTHING
            self._on_the_way.add(action.name)
            schema = self._of_call(action.call)
            if action.fallback is not None:
                schema = one_of([schema, self._of_fallback(action.fallback, action)])
            self._on_the_way.remove(action.name)
            self._outputs[action.name] = schema if action.for_each is None else _collected(schema, action.for_each)
        return self._outputs[action.name]

    def _of_fallback(self, fallback: Fallback, action: Action) -> Schema:
        if fallback.call is not None:
            return self._of_call(fallback.call)
        return ANYTHING if fallback.value is None else self.of_template(fallback.value, action)

    def _of_call(self, call: Call) -> Schema:
        match call:
            case LlmCall(output_schema=schema) if schema is not None:
                return schema
            case LlmCall(choices=choices):
                return {"type": "string", "enum": list(choices)} if choices else TEXT
            case ToolCall(tool=name):
                return (self._tools[name].result or ANYTHING) if self._tools and name in self._tools else ANYTHING
            case FunctionCall(function=function):
                return self.of_annotation(self.annotations_of(function).get("return", Any))
            case DagCall(dag=dag):
                inner = EdgeSchemas(dag, self._tools)
                outputs = {name: inner.of_template(template) for name, template in dag.outputs.items()}
                return closed_object({name: embeddable(schema) for name, schema in outputs.items()})
            case HumanCall():
                return _APPROVAL

    def of_template(self, template: ValueTemplate, reader: Action | None = None) -> Schema:
        return self.of_value(template.source, (), template.programs, reader)

    def of_value(
        self, value: Any, at: Position, programs: Mapping[Position, Program | None], reader: Action | None
    ) -> Schema:
        """Return the schema of a part of a ValueTemplate: ``value``, which stands at ``at``.

        A program that is None may give anything.
        """
        # Whether a part holds templates is asked for each, so it must not take a walk through all of them.
        templated = {position[:size] for position in programs for size in range(len(position) + 1)}

        def of_part(value: Any, at: Position) -> Schema:
            if at not in templated:
                return self._constant(value)
            if isinstance(value, Mapping):
                return self._mapping({key: of_part(part, (*at, key)) for key, part in value.items()})
            if isinstance(value, list):
                return self._list([of_part(part, (*at, index)) for index, part in enumerate(value)])
            program = programs[at]
            return ANYTHING if program is None else self.of_program(program, reader)

        return of_part(value, at)

    # Thousands of actions hand on values of the same few shapes. Each shape is made once, so that what was compared before
    # is known again by its identity; the parts are kept too, so that an id stays that of one object.

    def _constant(self, value: Any) -> Schema:
        if not isinstance(value, str | int | bool):
            return {"const": value}
        key = type(value), value
        if key not in self._made:
            self._made[key] = {"const": value}, None
        return self._made[key][0]

    def _mapping(self, parts: Mapping[str, Schema]) -> Schema:
        key = tuple((name, id(schema)) for name, schema in parts.items())
        if key not in self._made:
            embedded = {name: embeddable(schema) for name, schema in parts.items()}
            self._made[key] = closed_object(embedded), parts
        return self._made[key][0]

    def _list(self, items: list[Schema]) -> Schema:
        key = tuple(map(id, items))
        if key not in self._made:
            size, embedded = len(items), [embeddable(schema) for schema in items]
            schema = {"type": "array", "prefixItems": embedded, "minItems": size, "maxItems": size}
            self._made[key] = schema, items
        return self._made[key][0]

    def of_program(self, program: Program, reader: Action | None) -> Schema:
        path = _only_path(program)
        if path is None:
            return TEXT if isinstance(program, Pieces) else ANYTHING
        # By its keys: making a Reference of them and hashing it takes longer than all the rest.
        schema = self._paths.get(path.keys)
        if schema is None:
            schema = self.of_reference(path.reference, reader)
            if path.keys[0] not in ITEM_KINDS:
                self._paths[path.keys] = schema
        return schema

    def annotations_of(self, function: Callable[..., Any]) -> Mapping[str, Any]:
        """Return the annotations of a function, evaluated; none when they cannot be."""
        if id(function) not in self._hints:
            try:
                hints = typing.get_type_hints(function, include_extras=True)
            except Exception:
                # Evaluating annotations runs the user's code. What fails is told where the function is read.
                hints = {}
            self._hints[id(function)] = hints, function
        return self._hints[id(function)][0]

    def of_annotation(self, annotation: Any) -> Schema:
        """Return the schema of a Python annotation; ANYTHING for one that has none."""
        try:
            if annotation in self._annotations:
                return self._annotations[annotation]
            described = describe({"value": annotation}, "annotation")
            schema: Schema = {**described.properties["value"], **described.definitions}
            self._annotations[annotation] = schema
        except Exception:
            # As above; a type without a JSON Schema is no mistake between two functions.
            return ANYTHING
        return schema


def only_reference(program: Program) -> Reference | None:
    """Return the one reference a text consists of, white space around it aside; its value is then passed on as it is."""
    path = _only_path(program)
    return None if path is None else path.reference


def _only_path(program: Program) -> Path | None:
    if not isinstance(program, Pieces):
        return None
    parts = program.pieces
    if len(parts) > 1:
        parts = tuple(piece for piece in parts if not isinstance(piece, str) or piece.strip())
    return parts[0] if len(parts) == 1 and isinstance(parts[0], Path) else None


def one_of(schemas: Iterable[Schema]) -> Schema:
    """Return the schema of what fits one of several."""
    alternatives = list(schemas)
    if all(alternative is alternatives[0] for alternative in alternatives):
        return alternatives[0]
    return {"anyOf": [embeddable(schema) for schema in alternatives]}


def embeddable(schema: Schema) -> Schema:
    """Return a schema that may stand inside another: one with references of its own is reduced to its kinds of value."""
    if not any(word in schema for word in _OWN_REFERENCES):
        return schema
    try:
        kinds = SchemaReader(schema, Work()).kinds(schema)
    except TooMuchWorkError:
        return ANYTHING
    return {"type": sorted("number" if kind == "fraction" else kind for kind in kinds)}


def part_schema(schema: Schema, key: str) -> Schema:
    """Return the schema of what ``key`` leads to in a value of ``schema``; ANYTHING when that is not known."""
    try:
        found = _part(schema, key, SchemaReader(schema, Work()), 8)
    except TooMuchWorkError:
        return ANYTHING
    definitions = {word: schema[word] for word in ("$defs", "definitions") if word in schema}
    return {**found, **definitions} if found else ANYTHING


def _part(schema: Any, key: str, reader: SchemaReader, depth: int) -> Schema:
    if depth == 0:
        return ANYTHING
    parts = reader.parts(schema)
    for demand in parts.demands:
        kinds = reader.kinds(demand)
        found: Any = True
        if kinds == {"object"}:
            found = property_schema(demand, key)
        elif kinds == {"array"} and key.isdecimal():
            found = item_schema(demand, int(key))
        elif kinds == {"string"} and key.isdecimal():
            found = TEXT
        if isinstance(found, Mapping):
            return found
    for choice in parts.choices:
        # A null or a number has no parts; when it is met, reading one gives null or fails.
        able = [other for other in choice if reader.kinds(other) & {"object", "array", "string"}]
        found = [_part(other, key, reader, depth - 1) for other in able]
        if found and all(found):
            return found[0] if len(found) == 1 else {"anyOf": found}
    return ANYTHING


def _collected(schema: Schema, each: ForEach) -> Schema:
    """Return the schema of the list a ``for_each`` gives."""
    if each.on_error is OnItemError.COLLECT:
        ok = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}
        return {"type": "array", "items": ok}
    return {"type": "array", "items": embeddable(schema)}
