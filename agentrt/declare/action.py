"""An Action: one step of a Dag, and what it does."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from agentrt.declare.call import Call, DagCall, Fallback, FunctionCall, HumanCall, LlmCall, ToolCall
from agentrt.declare.codes import Code, diagnose
from agentrt.declare.guard import Guard
from agentrt.declare.json_schema import schema_problem
from agentrt.declare.origin import Origin, place_of_caller
from agentrt.declare.parameters import parameter_problems
from agentrt.declare.policy import ALL, CacheTier, Effects, ForEach, Join, LatencyPrior, RetryPolicy
from agentrt.declare.template import Reference, Template, ValueTemplate
from agentrt.errors import DeclarationError, Place

if TYPE_CHECKING:
    from agentrt.declare.dag import Dag


class ActionType(enum.StrEnum):
    """What kind of work an action is; the ``action.type`` of its span."""

    LLM = "llm"
    RETRIEVAL = "retrieval"
    RERANK = "rerank"
    TOOL = "tool"
    HTTP = "http"
    FORMAT = "format"
    VALIDATE = "validate"
    FUNCTION = "function"
    DAG = "dag"
    AGENT = "agent"
    HUMAN = "human"


DEFAULT_AGENT = "default"
"""Name of the agent of a Dag that declares none; in a Dag with one agent it stands for that one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionOptions:
    """What may be said of any action, whatever it does."""

    needs: Iterable[str] = ()
    condition: str | None = None
    """In CEL, over ``inputs`` and ``actions``; ``if`` in a DAG file."""
    timeout_s: float | None = None
    retry: RetryPolicy | None = None
    latency: LatencyPrior | None = None
    effects: Effects | None = None
    type: ActionType | None = None
    join: Join = ALL
    optional: bool = False
    fallback: Fallback | None = None
    for_each: ForEach | None = None
    writes: Mapping[str, str] = field(default_factory=dict)
    """State field -> a template of what is written to it once the action has succeeded."""
    ignore: Mapping[str, str] = field(default_factory=dict)
    """Code of a warning -> why it does not matter here."""

    def action(self, name: str, default_type: ActionType, call: Call, place: Place | None) -> Action:
        """Make an Action with these options.

        Raises:
            DeclarationError: the condition cannot be read.
        """
        return Action(
            name=name,
            type=self.type or default_type,
            call=call,
            needs=frozenset(self.needs),
            guard=None if self.condition is None else Guard.parse(self.condition, Origin(place) if place else None),
            timeout_s=self.timeout_s,
            retry=self.retry,
            latency=self.latency,
            effects=self.effects,
            join=self.join,
            optional=self.optional,
            fallback=self.fallback,
            for_each=self.for_each,
            writes={field: ValueTemplate.parse(template) for field, template in self.writes.items()},
            ignore=self.ignore,
            place=place,
        )


@dataclass(frozen=True, slots=True)
class Action:
    """One step of a Dag.

    What an action waits for is ``dependencies``: every action that its templates and its guard refer to, and those in
    ``needs``, which are for order alone; edges that the Dag lists come on top.
    """

    name: str
    type: ActionType
    call: Call
    needs: frozenset[str] = frozenset()
    guard: Guard | None = None
    timeout_s: float | None = None
    retry: RetryPolicy | None = None
    latency: LatencyPrior | None = None
    effects: Effects | None = None
    """None: as the tool declares; an llm call has none."""
    join: Join = ALL
    optional: bool = False
    """Others do without it: where it fails or is skipped, its output is null and nobody else is stopped or skipped."""
    fallback: Fallback | None = None
    for_each: ForEach | None = None
    writes: Mapping[str, ValueTemplate] = field(default_factory=dict)
    cache: CacheTier | None = None
    ignore: Mapping[str, str] = field(default_factory=dict)
    """Code of a warning -> why it does not matter here."""
    place: Place | None = field(default=None, compare=False)
    key_places: Mapping[str, Place] = field(default_factory=dict, compare=False, repr=False)
    """Where the values of its keys stand in a DAG file, such as ``timeout``; ``needs.NAME`` for each name it needs."""
    references: frozenset[Reference] = field(init=False, compare=False, repr=False)
    """Everything it reads. What it writes to the state may be made of its own output."""

    def __post_init__(self) -> None:
        read = frozenset().union(*(reader.references for reader in self._readers))
        if self.writes:
            own = frozenset().union(*(template.references for template in self.writes.values()))
            read -= {r for r in own if r.kind == "actions" and r.name == self.name and r not in self.call.references}
        object.__setattr__(self, "references", read)

    @classmethod
    def llm(
        cls,
        name: str,
        prompt: str,
        *,
        agent: str = DEFAULT_AGENT,
        choices: Iterable[str] = (),
        output_schema: Mapping[str, Any] | None = None,
        options: ActionOptions | None = None,
        **parameters: Any,
    ) -> Action:
        """Make an action that asks an agent's model; ``parameters`` are sampling parameters (``max_tokens``, ...).

        Without ``agent`` it asks the only agent of its Dag. With ``output_schema``, a JSON Schema, the answer is read as
        JSON and must fit it.

        Raises:
            DeclarationError: the prompt, the choices or a parameter is wrong; tells everything that is.
        """
        place = place_of_caller()
        problems = [
            diagnose(Code.BAD_VALUE, f"action {name!r}: {message}", place, hint=hint)
            for _, message, hint in parameter_problems(parameters)
        ]
        choices = tuple(choices)
        if len(set(choices)) < len(choices) or not all(isinstance(choice, str) and choice for choice in choices):
            problems.append(diagnose(Code.BAD_VALUE, f"action {name!r}: choices must be different texts", place))
        if output_schema is not None and (problem := schema_problem(output_schema)) is not None:
            problems.append(diagnose(Code.BAD_SCHEMA, f"action {name!r}: output_schema: {problem}", place))
        if output_schema is not None and choices:
            problems.append(diagnose(Code.CONFLICTING_KEYS, f"action {name!r} has choices and an output_schema", place))
        if problems:
            raise DeclarationError(problems)
        call = LlmCall(agent, Template.parse(prompt, Origin(place)), choices, parameters, output_schema)
        return (options or ActionOptions()).action(name, ActionType.LLM, call, place)

    @classmethod
    def tool(cls, name: str, tool: str, *, options: ActionOptions | None = None, **arguments: Any) -> Action:
        """Make an action that calls a registered tool; texts in ``arguments`` may hold ``{{ ... }}``.

        Raises:
            DeclarationError: an argument cannot be read.
        """
        place = place_of_caller()
        call = ToolCall(tool, ValueTemplate.parse(arguments))
        return (options or ActionOptions()).action(name, ActionType.TOOL, call, place)

    @classmethod
    def dag(cls, name: str, dag: Dag, *, options: ActionOptions | None = None, **arguments: Any) -> Action:
        """Make an action that runs another Dag with ``arguments`` as its inputs; its output is a mapping of the outputs.

        Raises:
            DeclarationError: an argument cannot be read.
        """
        place = place_of_caller()
        return (options or ActionOptions()).action(
            name, ActionType.DAG, DagCall(dag, ValueTemplate.parse(arguments)), place
        )

    @classmethod
    def human(cls, name: str, question: str, *, options: ActionOptions | None = None) -> Action:
        """Make an action that waits for a person's approval.

        Raises:
            DeclarationError: the question cannot be read.
        """
        place = place_of_caller()
        call = HumanCall(Template.parse(question, Origin(place)))
        return (options or ActionOptions()).action(name, ActionType.HUMAN, call, place)

    @property
    def calls(self) -> tuple[Call, ...]:
        """What it may do: its call, and that of its fallback."""
        own = (self.call,)
        return own if self.fallback is None or self.fallback.call is None else (*own, self.fallback.call)

    @property
    def _readers(self) -> Iterator[Call | Guard | Fallback | ValueTemplate]:
        """Everything in an action that reads something."""
        yield self.call
        if self.guard is not None:
            yield self.guard
        if self.for_each is not None:
            yield self.for_each.items
        if self.fallback is not None:
            yield self.fallback
        yield from self.writes.values()

    @property
    def dependencies(self) -> frozenset[str]:
        return self.needs | {reference.name for reference in self.references if reference.kind == "actions"}

    def place_of(self, key: str) -> Place | None:
        """Return where the value of a key stands, or else the action."""
        return self.key_places.get(key, self.place)

    def place_of_dependency(self, name: str) -> Place | None:
        """Return where the action says that it depends on another."""
        if name in self.needs:
            return self.place_of(f"needs.{name}")
        for reference, place in sorted(self.reference_places.items(), key=lambda item: item[1]):
            if reference.kind == "actions" and reference.name == name:
                return place
        return self.place

    @property
    def reference_places(self) -> Mapping[Reference, Place]:
        """Where it reads what it reads, as far as that is known."""
        places: dict[Reference, Place] = {}
        for reader in self._readers:
            places.update(reader.places)
        return places

    @property
    def agent(self) -> str | None:
        """The agent whose work it is, if it is one's."""
        return self.call.agent if isinstance(self.call, LlmCall | FunctionCall | DagCall) else None
