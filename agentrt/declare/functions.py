"""A Dag out of ordinary Python functions: parameters name what a function needs, annotations are its schema.

    async def search(question: str) -> list[str]: ...
    async def rank(search: list[str], question: str) -> list[str]: ...

    dag = Dag.from_functions("find", [search, rank])

``rank`` waits for ``search``, because a parameter has its name; ``question`` is no action, so it is an input of the Dag. A
parameter with a default is an input that may be left out. Functions stay ordinary functions: they can be called and tested
alone.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from agentrt.declare.action import DEFAULT_AGENT, Action, ActionOptions, ActionType
from agentrt.declare.agent import AGENT_MARK, Agent
from agentrt.declare.call import FunctionCall, LlmCall
from agentrt.declare.codes import Code, diagnose
from agentrt.declare.dag import Dag, Edge, Input, Slo, StateField
from agentrt.declare.fields import NAME, RESERVED_NAMES
from agentrt.declare.origin import place_of_caller, place_of_function
from agentrt.declare.reference import Reference
from agentrt.declare.template import ValueTemplate
from agentrt.errors import DeclarationError, Diagnostic, Place, nearest_match
from agentrt.tools.annotations import describe

Function = TypeVar("Function", bound=Callable[..., Any])
_OPTIONS, _NAME = "__agentrt_options__", "__agentrt_name__"
_JSON_TYPES = (str, int, float, bool, list, dict, type(None))


def action(*, name: str | None = None, **options: Any) -> Callable[[Function], Function]:
    """Say more of a function that is to be an action, by the fields of ``ActionOptions``; it stays as it is.

        @action(timeout_s=2, retry=RetryPolicy(attempts=3), effects=Effects.NONE)
        async def search(question: str) -> list[str]: ...

    The action is named like the function unless ``name`` says otherwise.

    Raises:
        TypeError: there is no such option.
    """
    given = ActionOptions(**options)

    def mark(function: Function) -> Function:
        setattr(function, _OPTIONS, given)
        if name is not None:
            setattr(function, _NAME, name)
        return function

    return mark


def dag_from_functions(
    name: str,
    actions: Iterable[Callable[..., Any] | Action],
    *,
    inputs: Mapping[str, Any] | None = None,
    outputs: Mapping[str, str] | None = None,
    agents: Iterable[Agent] = (),
    slo: Slo | None = None,
    edges: Iterable[Edge] = (),
    state: Iterable[StateField] = (),
    description: str = "",
) -> Dag:
    """Make a Dag of functions and Actions.

    ``inputs``: name -> annotation or Input; left out, they are the parameters that no action has the name of, those with
    a default optional.
    ``outputs``: name -> the name of an action, or a template; left out, every action whose output nobody reads.

    Raises:
        DeclarationError: a function cannot be an action, or a name is unknown; tells everything, with file and line.
    """
    place = place_of_caller()
    reader = _Reader(list(actions), inputs)
    made = {item.name: item for item in reader.actions}
    templates = reader.outputs(outputs, place)
    if reader.diagnostics:
        raise DeclarationError(reader.diagnostics)
    by_name = {**reader.agents, **{agent.name: agent for agent in agents}}
    if not by_name and any(isinstance(item.call, LlmCall) for item in reader.actions):
        by_name = {DEFAULT_AGENT: Agent(DEFAULT_AGENT)}
    return Dag(
        name=name,
        actions={name: _with_agent(item, by_name) for name, item in made.items()},
        outputs=templates,
        inputs=reader.inputs,
        agents=by_name,
        description=description,
        slo=slo or Slo(),
        edges=tuple(edges),
        state={field.name: field for field in state},
        place=place,
    )


def _with_agent(action: Action, agents: Mapping[str, Agent]) -> Action:
    """Let an action that names no agent ask the only one there is."""
    call = action.call
    if not isinstance(call, LlmCall) or call.agent != DEFAULT_AGENT or DEFAULT_AGENT in agents or len(agents) != 1:
        return action
    return replace(action, call=replace(call, agent=next(iter(agents))))


class _Reader:
    def __init__(self, items: list[Callable[..., Any] | Action], inputs: Mapping[str, Any] | None) -> None:
        self.diagnostics: list[Diagnostic] = []
        self.inputs: dict[str, Input] = {}
        self.agents: dict[str, Agent] = {}
        """Those that functions were marked with."""
        self._inputs_are_given = inputs is not None
        self._names: set[str] = set()
        for item in items:
            self._take_name(item)
        for name, annotation in (inputs or {}).items():
            if name in self._names:
                message = (
                    f"{name!r} is the name of an action and of an input: a parameter of that name could mean either"
                )
                self.note(Code.AMBIGUOUS_NAME, message, place_of_caller(), hint="rename one of them")
            self.inputs[name] = (
                annotation if isinstance(annotation, Input) else _input(name, annotation, f"input {name!r}")
            )
        self.actions = [item if isinstance(item, Action) else self._action(item) for item in items]
        if not self._inputs_are_given:
            for made in self.actions:
                for reference in sorted(made.references):
                    if reference.kind == "inputs" and reference.name not in self.inputs:
                        self.inputs[reference.name] = Input(reference.name, {}, place=made.place)

    def note(self, code: Code, message: str, place: Place | None, *, hint: str | None = None) -> None:
        self.diagnostics.append(diagnose(code, message, place, hint=hint))

    def _take_name(self, item: Callable[..., Any] | Action) -> None:
        name, place = (item.name, item.place) if isinstance(item, Action) else (_name(item), place_of_function(item))
        if not NAME.fullmatch(name) or name.lower() in RESERVED_NAMES:
            self.note(
                Code.BAD_NAME, f"{name!r:.60} cannot be the name of an action", place, hint="give the function a name"
            )
        if name in self._names:
            self.note(Code.DUPLICATE_ACTION, f"there are two actions named {name!r}", place)
        self._names.add(name)

    def _action(self, function: Callable[..., Any]) -> Action:
        place = place_of_function(function)
        arguments: dict[str, Reference] = {}
        annotations: dict[str, Any] = {}
        defaults: dict[str, Any] = {}
        hints = self._hints(function, place)
        for parameter in self._parameters(function, place):
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.POSITIONAL_ONLY):
                message = f"parameter {parameter.name!r} of {_name(function)!r} cannot be given by name"
                self.note(Code.BAD_FUNCTION, message, place)
            elif parameter.kind is parameter.VAR_KEYWORD:
                continue
            elif parameter.name in self._names:
                arguments[parameter.name] = Reference("actions", parameter.name, ("output",))
            elif parameter.name in self.inputs or (not self._inputs_are_given and _may_be_input(parameter)):
                arguments[parameter.name] = Reference("inputs", parameter.name)
                annotations[parameter.name] = hints.get(parameter.name, Any)
                if parameter.default is not parameter.empty:
                    defaults[parameter.name] = parameter.default
            elif parameter.default is parameter.empty:
                known = [*self.inputs, *self._names]
                match = nearest_match(parameter.name, known)
                hint = f"did you mean {match!r}?" if match else f"there are {', '.join(known)}"
                message = f"parameter {parameter.name!r} of {_name(function)!r} names no action and no input"
                self.note(Code.UNKNOWN_PARAMETER, message, place, hint=hint)
        converters = self._describe_inputs(annotations, defaults, function, place)
        options: ActionOptions = getattr(function, _OPTIONS, ActionOptions())
        agent: Agent | None = getattr(function, AGENT_MARK, None)
        if agent is not None:
            self.agents.setdefault(agent.name, agent)
        return options.action(
            _name(function),
            ActionType.FUNCTION,
            FunctionCall(function, arguments, converters, None if agent is None else agent.name),
            place,
        )

    def _parameters(self, function: Callable[..., Any], place: Place) -> list[inspect.Parameter]:
        try:
            return list(inspect.signature(function).parameters.values())
        except (TypeError, ValueError) as error:
            self.note(Code.BAD_FUNCTION, f"{_name(function)!r} cannot be an action: {error}", place)
            return []

    def _hints(self, function: Callable[..., Any], place: Place) -> dict[str, Any]:
        try:
            return typing.get_type_hints(function, include_extras=True)
        except Exception as error:
            # Evaluating annotations runs the user's code: anything may come out of it.
            self.note(Code.BAD_FUNCTION, f"the annotations of {_name(function)!r} cannot be read: {error}", place)
            return {}

    def _describe_inputs(
        self, annotations: Mapping[str, Any], defaults: Mapping[str, Any], function: Callable[..., Any], place: Place
    ) -> Mapping[str, Callable[[Any], Any]]:
        try:
            described = describe(annotations, f"function {_name(function)!r}")
        except TypeError as error:
            self.note(Code.BAD_FUNCTION, str(error), place)
            return {}
        for name, schema in described.properties.items():
            schema = {**schema, **described.definitions}
            read = Input(name, schema, default=defaults.get(name), required=name not in defaults, place=place)
            known = self.inputs.setdefault(name, read)
            if self._inputs_are_given:
                continue
            if known.required != read.required or known.default != read.default:
                message = f"input {name!r} has another default in {_name(function)!r} than before"
                self.note(Code.BAD_FUNCTION, message, place, hint="use the same default, or declare 'inputs'")
            elif known.schema != schema and known.schema and schema:
                message = f"input {name!r} is annotated differently by {_name(function)!r} than before"
                self.note(Code.BAD_FUNCTION, message, place, hint="use the same annotation, or declare 'inputs'")
        return described.converters

    def outputs(self, given: Mapping[str, str] | None, place: Place) -> dict[str, ValueTemplate]:
        if given is None:
            read = {name for made in self.actions for name in made.dependencies}
            given = {made.name: made.name for made in self.actions if made.name not in read}
        templates = {}
        for name, source in given.items():
            if source in self._names:
                source = f"{{{{ actions.{source}.output }}}}"
            elif isinstance(source, str) and "{{" not in source:
                match = nearest_match(source, self._names)
                hint = f"did you mean {match!r}?" if match else None
                self.note(
                    Code.UNKNOWN_ACTION, f"output {name!r} names {source!r:.60}, which is no action", place, hint=hint
                )
                continue
            try:
                templates[name] = ValueTemplate.parse(source)
            except DeclarationError as error:
                self.diagnostics += [diagnostic.at(place) for diagnostic in error.diagnostics]
        return templates


def _may_be_input(parameter: inspect.Parameter) -> bool:
    """Whether a parameter that names no action can be an input: a default must have a form in JSON."""
    return parameter.default is parameter.empty or isinstance(parameter.default, _JSON_TYPES)


def _name(function: Callable[..., Any]) -> str:
    name = getattr(function, _NAME, None) or getattr(function, "__name__", type(function).__name__)
    return str(name)


def _input(name: str, annotation: Any, where: str) -> Input:
    described = describe({name: annotation}, where)
    return Input(name, {**described.properties[name], **described.definitions})
