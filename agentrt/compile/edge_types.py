"""Types along edges: whether what an action gives can be what the next one takes.

A finding is a certainty (see ``schema_fit``), with one exception: lists and mappings are taken to hold something, because
an action that can only work on an empty list is a mistake too. Values that stand written in the Dag are checked elsewhere,
when no template is among them; what a template computes is known only where it is a plain reference or a text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from agentrt.compile.edge_schemas import LIST, EdgeSchemas, only_reference
from agentrt.compile.schema_fit import clash
from agentrt.compile.schema_parts import Schema
from agentrt.declare.action import Action
from agentrt.declare.call import Call, DagCall, FunctionCall, ToolCall
from agentrt.declare.codes import Code, diagnose
from agentrt.declare.dag import Dag
from agentrt.declare.policy import Reducer
from agentrt.declare.template import Position, ValueTemplate
from agentrt.declare.template_program import Program
from agentrt.errors import Diagnostic, Place
from agentrt.tools.registry import ToolRegistry


def edge_problems(dag: Dag, tools: ToolRegistry | None, *, schemas: EdgeSchemas | None = None) -> Iterator[Diagnostic]:
    """Go through the values that cannot be what is wanted of them; without ``tools`` those of tools are not known.

    ``schemas`` are those of ``dag``, where they are at hand.
    """
    checker = _Checker(dag, tools, schemas or EdgeSchemas(dag, tools))
    for action in dag.actions.values():
        yield from checker.check(action)


class _Checker:
    def __init__(self, dag: Dag, tools: ToolRegistry | None, schemas: EdgeSchemas) -> None:
        self._dag = dag
        self._tools = tools
        self._schemas = schemas
        self._wanted: dict[tuple[str, str], Schema] = {}
        # A large Dag compares the same few schemas thousands of times. They are kept with the result, so that an id stays
        # that of one object.
        self._compared: dict[tuple[int, int], tuple[str | None, Schema, Schema]] = {}

    def check(self, action: Action) -> Iterator[Diagnostic]:
        yield from self._check_call(action, action.call, action.place_of("with"))
        if action.fallback is not None and action.fallback.call is not None:
            yield from self._check_call(action, action.fallback.call, action.place_of("fallback"))
        if action.for_each is not None and action.for_each.items.programs:
            what = f"'for_each' of action {action.name!r}"
            yield from self._check_value(action, what, action.for_each.items, (), LIST, action.place_of("for_each"))
        for name, template in action.writes.items():
            if name in self._dag.state and template.programs:
                wanted = self._wanted_by_state(name)
                what = f"state field {name!r}, written by action {action.name!r},"
                yield from self._check_value(action, what, template, (), wanted, action.place_of("writes"))

    def _check_call(self, action: Action, call: Call, place: Place | None) -> Iterator[Diagnostic]:
        match call:
            case ToolCall(tool=name) if self._tools is not None and name in self._tools:
                parameters = self._tools[name].parameters
                properties = parameters.get("properties", {})
                schemas = {key: self._property(name, parameters, key) for key in properties}
                yield from self._check_arguments(action, f"tool {name!r}", call.arguments, schemas, place)
            case DagCall(dag=dag):
                schemas = {key: declared.schema for key, declared in dag.inputs.items()}
                yield from self._check_arguments(action, f"Dag {dag.name!r}", call.arguments, schemas, place)
            case FunctionCall():
                yield from self._check_parameters(action, call)

    def _property(self, tool: str, parameters: Mapping[str, Any], key: str) -> Schema:
        if (tool, key) not in self._wanted:
            schema = parameters["properties"][key]
            definitions = {"$defs": parameters["$defs"]} if "$defs" in parameters else {}
            self._wanted[tool, key] = {**schema, **definitions} if isinstance(schema, Mapping) else {}
        return self._wanted[tool, key]

    def _wanted_by_state(self, name: str) -> Schema:
        field = self._dag.state[name]
        match field.reducer:
            case Reducer.REPLACE:
                return field.schema
            case Reducer.APPEND:
                items = field.schema.get("items", {})
                return items if isinstance(items, Mapping) else {}
            case Reducer.EXTEND:
                return LIST
            case Reducer.MERGE:
                return {"type": "object"}
        return {}

    def _check_arguments(
        self, action: Action, owner: str, arguments: ValueTemplate, wanted: Mapping[str, Schema], place: Place | None
    ) -> Iterator[Diagnostic]:
        unfit = {}
        for at, program in arguments.programs.items():
            name = str(at[0]) if at else ""
            schema = wanted.get(name)
            # Nearly every argument is one text, and nearly all are fine.
            if schema and (len(at) > 1 or self._clash(self._schemas.of_program(program, action), schema) is not None):
                unfit[name] = schema
        for name, schema in unfit.items():
            what = f"argument {name!r} of {owner}"
            yield from self._check_value(action, what, arguments, (name,), schema, place)

    def _check_value(
        self, action: Action, what: str, template: ValueTemplate, at: Position, wanted: Schema, place: Place | None
    ) -> Iterator[Diagnostic]:
        """Compare the part of a template at ``at`` with what is wanted there; ``place`` is where it stands, if need be."""
        if at in template.programs:
            value, programs = None, {at: template.programs[at]}
            given = self._schemas.of_program(programs[at], action)
        else:
            value = template.source
            for key in at:
                value = value[key]
            programs = {where: program for where, program in template.programs.items() if where[: len(at)] == at}
            given = self._schemas.of_value(value, at, programs, action)
        reason = self._clash(given, wanted)
        if reason is None:
            return
        origin = template.origins.get(self._culprit(action, value, at, programs, wanted))
        reference = only_reference(programs[at]) if at in programs else None
        read = f" ({reference})" if reference is not None else ""
        hint = _hint(reason, str(reference)) if reference is not None else None
        yield diagnose(Code.TYPE_MISMATCH, f"{what} gets {reason}{read}", origin.place if origin else place, hint=hint)

    def _culprit(
        self, action: Action, value: Any, at: Position, programs: Mapping[Position, Program], wanted: Schema
    ) -> Position:
        """Return where the template stands that alone makes a value unfit."""
        if len(programs) > 1:
            for position in programs:
                # A value of which only one text is known; the others may be anything.
                known = {where: program if where == position else None for where, program in programs.items()}
                if self._clash(self._schemas.of_value(value, at, known, action), wanted) is not None:
                    return position
            return at
        return next(iter(programs), at)

    def _check_parameters(self, action: Action, call: FunctionCall) -> Iterator[Diagnostic]:
        annotations = self._schemas.annotations_of(call.function)
        for name, reference in call.arguments.items():
            # An input that is converted may be of another type than what the conversion makes of it.
            if name not in annotations or name in call.converters:
                continue
            producer = self._dag.actions.get(reference.name) if reference.path == ("output",) else None
            if producer is not None and isinstance(producer.call, FunctionCall) and producer.for_each is None:
                returned = self._schemas.annotations_of(producer.call.function).get("return", Any)
                if _is_related(returned, annotations[name]):
                    continue
            wanted = self._schemas.of_annotation(annotations[name])
            reason = self._clash(self._schemas.of_reference(reference, action), wanted)
            if reason is not None:
                message = f"parameter {name!r} of function {action.name!r} gets {reason} ({reference})"
                yield diagnose(Code.TYPE_MISMATCH, message, action.place)

    def _clash(self, given: Schema, wanted: Schema) -> str | None:
        if not given or not wanted:
            return None
        key = id(given), id(wanted)
        if key not in self._compared:
            self._compared[key] = clash(given, wanted, filled=True), given, wanted
        return self._compared[key][0]


def _is_related(one: Any, other: Any) -> bool:
    """Whether two annotations are the same, or one class is a kind of the other."""
    try:
        if one == other:
            return True
        both_classes = isinstance(one, type) and isinstance(other, type)
        return both_classes and (issubclass(one, other) or issubclass(other, one))
    except Exception:
        # Comparing may run the user's code, and some classes refuse the question.
        return False


def _hint(reason: str, reference: str) -> str | None:
    """Say how a template makes the value one of the wanted kind, where there is a usual way."""
    match reason:
        case "text where a whole number is wanted":
            return f"if it spells a number: {{{{ {reference} | int }}}}"
        case "text where a number is wanted":
            return f"if it spells a number: {{{{ {reference} | float }}}}"
        case _ if reason.endswith("where text is wanted"):
            return f"to write it as text: {{{{ {reference} | tojson }}}}"
    return None
