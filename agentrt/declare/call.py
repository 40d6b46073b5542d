"""What an action does: ask a model, use a tool, call a function, run another Dag, or ask a person."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from agentrt.declare.reference import Reference
from agentrt.declare.template import Template, ValueTemplate
from agentrt.errors import Place

if TYPE_CHECKING:
    from agentrt.declare.dag import Dag


@dataclass(frozen=True, slots=True)
class LlmCall:
    """Ask the agent's model; the output is the text of the answer, or with ``output_schema`` the value it stands for."""

    agent: str
    prompt: Template
    choices: tuple[str, ...] = ()
    """When not empty, the answer is exactly one of these."""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    """Sampling parameters: ``max_tokens``, ``temperature``, ``top_k``, ``top_p``, ``seed``, ``stop``."""
    output_schema: Mapping[str, Any] | None = None
    """The answer is read as JSON and must fit this JSON Schema."""

    @property
    def references(self) -> frozenset[Reference]:
        return self.prompt.references

    @property
    def places(self) -> Mapping[Reference, Place]:
        return self.prompt.places


@dataclass(frozen=True, slots=True)
class ToolCall:
    """Call a registered tool; the output is what it returns."""

    tool: str
    arguments: ValueTemplate

    @property
    def references(self) -> frozenset[Reference]:
        return self.arguments.references

    @property
    def places(self) -> Mapping[Reference, Place]:
        return self.arguments.places


@dataclass(frozen=True, slots=True)
class FunctionCall:
    """Call a Python function; the output is what it returns. Only a Dag declared in Python has these."""

    function: Callable[..., Any]
    arguments: Mapping[str, Reference]
    """Parameter name -> the input or action output it stands for."""
    converters: Mapping[str, Callable[[Any], Any]] = field(default_factory=dict)
    """Turn an input from its JSON form into what the function's annotation says (a dataclass, a date)."""
    agent: str | None = None
    """The agent whose work it is, where it was declared as one's."""

    @property
    def references(self) -> frozenset[Reference]:
        return frozenset(self.arguments.values())

    @property
    def places(self) -> Mapping[Reference, Place]:
        return {}


@dataclass(frozen=True, slots=True)
class DagCall:
    """Run another Dag to its end; the output is the mapping of its outputs.

    ``source`` is the path of its file, from the folder of the file that uses it; None for one declared in Python.
    ``agent`` is the agent whose Dag it is (``uses: agent/NAME``), or None (``uses: dag/FILE``).
    """

    dag: Dag
    arguments: ValueTemplate
    source: str | None = None
    agent: str | None = None

    @property
    def references(self) -> frozenset[Reference]:
        return self.arguments.references

    @property
    def places(self) -> Mapping[Reference, Place]:
        return self.arguments.places


@dataclass(frozen=True, slots=True)
class HumanCall:
    """Ask a person for approval; the output is ``{"approved": true, "comment": ...}``. A refusal fails the action."""

    question: Template

    @property
    def references(self) -> frozenset[Reference]:
        return self.question.references

    @property
    def places(self) -> Mapping[Reference, Place]:
        return self.question.places


Call = LlmCall | ToolCall | FunctionCall | DagCall | HumanCall


@dataclass(frozen=True, slots=True)
class Fallback:
    """What stands in for an action that failed for good: another call, or else a value.

    A fallback is tried once.
    """

    call: Call | None = None
    value: ValueTemplate | None = None

    @property
    def references(self) -> frozenset[Reference]:
        stands_in = self.call or self.value
        return stands_in.references if stands_in else frozenset()

    @property
    def places(self) -> Mapping[Reference, Place]:
        stands_in = self.call or self.value
        return stands_in.places if stands_in else {}
