"""An Action: one step of a Dag, and what it does."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from agentrt.declare.codes import Code, diagnose
from agentrt.declare.guard import Guard
from agentrt.declare.origin import Origin, place_of_caller
from agentrt.declare.parameters import parameter_problems
from agentrt.declare.template import Reference, Template, ValueTemplate
from agentrt.errors import DeclarationError, Place


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


class Effects(enum.StrEnum):
    """What running an action twice would do to the world."""

    NONE = "none"
    IDEMPOTENT = "idempotent"
    WRITE = "write"


class RetryCause(enum.StrEnum):
    """The kinds of failure an action may be tried again on."""

    CONNECTION = "connection"
    """No connection, or it broke before or during the answer."""
    TIMEOUT = "timeout"
    """The action's own timeout passed."""
    OVERLOADED = "overloaded"
    """The endpoint answered 429 or 503."""
    ERROR = "error"
    """Any failure at all."""


DEFAULT_AGENT = "default"
"""Name of the agent of a Dag that declares none; in a Dag with one agent it stands for that one."""

DEFAULT_RETRY_CAUSES = frozenset({RetryCause.CONNECTION, RetryCause.TIMEOUT, RetryCause.OVERLOADED})


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often and on what an action is tried again.

    ``attempts`` counts the first try. Waits grow from ``backoff_s`` by a factor of two up to ``max_backoff_s``, with
    full jitter. ``on`` names kinds of failure (see ``RetryCause``).
    """

    attempts: int = 3
    on: frozenset[RetryCause] = DEFAULT_RETRY_CAUSES
    backoff_s: float = 0.2
    max_backoff_s: float = 10.0


@dataclass(frozen=True, slots=True)
class LatencyPrior:
    """What the author expects this action to take, in seconds, before anything was measured."""

    p50_s: float
    p99_s: float


@dataclass(frozen=True, slots=True)
class LlmCall:
    """Ask the agent's model; the output is the text of the answer."""

    agent: str
    prompt: Template
    choices: tuple[str, ...] = ()
    """When not empty, the answer is exactly one of these."""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    """Sampling parameters: ``max_tokens``, ``temperature``, ``top_k``, ``top_p``, ``seed``, ``stop``."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """Call a registered tool; the output is what it returns."""

    tool: str
    arguments: ValueTemplate


@dataclass(frozen=True, slots=True)
class FunctionCall:
    """Call a Python function; the output is what it returns. Only a Dag declared in Python has these."""

    function: Callable[..., Any]
    arguments: Mapping[str, Reference]
    """Parameter name -> the input or action output it stands for."""
    converters: Mapping[str, Callable[[Any], Any]] = field(default_factory=dict)
    """Turn an input from its JSON form into what the function's annotation says (a dataclass, a date)."""


Call = LlmCall | ToolCall | FunctionCall


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
            place=place,
        )


@dataclass(frozen=True, slots=True)
class Action:
    """One step of a Dag.

    What an action waits for is ``dependencies``: every action its call or guard refers to, and those in ``needs``,
    which are for order alone.
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
    place: Place | None = field(default=None, compare=False)
    key_places: Mapping[str, Place] = field(default_factory=dict, compare=False, repr=False)
    """Where the values of its keys stand in a DAG file, such as ``timeout``; ``needs.NAME`` for each name it needs."""

    @classmethod
    def llm(
        cls,
        name: str,
        prompt: str,
        *,
        agent: str = DEFAULT_AGENT,
        choices: Iterable[str] = (),
        options: ActionOptions | None = None,
        **parameters: Any,
    ) -> Action:
        """Make an action that asks an agent's model; ``parameters`` are sampling parameters (``max_tokens``, ...).

        Without ``agent`` it asks the only agent of its Dag.

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
        if problems:
            raise DeclarationError(problems)
        call = LlmCall(agent, Template.parse(prompt, Origin(place)), choices, parameters)
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

    @property
    def references(self) -> frozenset[Reference]:
        """Everything the call and the guard read."""
        match self.call:
            case LlmCall(prompt=prompt):
                read = prompt.references
            case ToolCall(arguments=arguments):
                read = arguments.references
            case FunctionCall(arguments=arguments):
                read = frozenset(arguments.values())
        return read | self.guard.references if self.guard else read

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
        """Where the call and the guard read what they read, as far as that is known."""
        places: dict[Reference, Place] = dict(self.guard.places) if self.guard else {}
        if isinstance(self.call, LlmCall):
            places.update(self.call.prompt.places)
        elif isinstance(self.call, ToolCall):
            places.update(self.call.arguments.places)
        return places

    @property
    def agent(self) -> str | None:
        return self.call.agent if isinstance(self.call, LlmCall) else None
