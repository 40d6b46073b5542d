"""A Dag: what was declared, in Python or YAML. Immutable; one model behind both forms."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentrt.declare.action import Action
from agentrt.declare.agent import Agent
from agentrt.declare.call import DagCall
from agentrt.declare.guard import Guard
from agentrt.declare.policy import Reducer
from agentrt.declare.template import ValueTemplate
from agentrt.errors import Diagnostic, Place

if TYPE_CHECKING:
    from agentrt.compile.plan import Plan
    from agentrt.tools.registry import ToolRegistry


@dataclass(frozen=True, slots=True)
class Input:
    """One input of a Dag. ``schema`` is its JSON Schema; an input with a default may be left out."""

    name: str
    schema: Mapping[str, Any]
    description: str = ""
    default: Any = None
    required: bool = True
    place: Place | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Slo:
    """What is promised: 99 of 100 runs within ``p99_s``; every run stopped at ``deadline_s``. Seconds."""

    p99_s: float | None = None
    deadline_s: float | None = None


@dataclass(frozen=True, slots=True)
class Edge:
    """An edge stated on its own: ``target`` waits for ``source``, and counts on it only when ``guard`` holds.

    With ``stream`` the target may begin at the source's first token.
    """

    source: str
    target: str
    guard: Guard | None = None
    stream: bool = False
    place: Place | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class StateField:
    """A field of the state that the actions of a run share. ``initial`` is its value when the run begins."""

    name: str
    schema: Mapping[str, Any] = field(default_factory=dict)
    reducer: Reducer = Reducer.REPLACE
    initial: Any = None
    place: Place | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Dag:
    """Agents and their actions. Most edges are not listed: they follow from what each action refers to and needs."""

    name: str
    actions: Mapping[str, Action]
    outputs: Mapping[str, ValueTemplate]
    inputs: Mapping[str, Input] = field(default_factory=dict)
    agents: Mapping[str, Agent] = field(default_factory=dict)
    description: str = ""
    slo: Slo = field(default_factory=Slo)
    edges: tuple[Edge, ...] = ()
    state: Mapping[str, StateField] = field(default_factory=dict)
    ignore: Mapping[str, str] = field(default_factory=dict)
    """Code of a warning -> why it does not matter in this Dag."""
    place: Place | None = field(default=None, compare=False)
    base_dir: Path | None = field(default=None, compare=False)
    """Folder that relative paths in the Dag start from: that of its file."""

    @classmethod
    def from_functions(
        cls,
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
        """Make a Dag of functions and Actions; see ``agentrt.declare.functions``.

        Raises:
            DeclarationError: something is wrong; tells everything that is, with file and line.
        """
        from agentrt.declare.functions import dag_from_functions

        return dag_from_functions(
            name,
            actions,
            inputs=inputs,
            outputs=outputs,
            agents=agents,
            slo=slo,
            edges=edges,
            state=state,
            description=description,
        )

    def check(self, tools: ToolRegistry | None = None) -> tuple[Diagnostic, ...]:
        """Return everything that is wrong; see ``agentrt.check``."""
        from agentrt.compile.check import check

        return check(self, tools)

    def plan(
        self, tools: ToolRegistry | None = None, *, known_inputs: Mapping[str, Any] | None = None, prune: bool = True
    ) -> Plan:
        """Check the Dag, prune it and put it in order; see ``agentrt.plan``.

        Raises:
            DeclarationError: the Dag is wrong.
        """
        from agentrt.compile.plan import plan

        return plan(self, tools, known_inputs=known_inputs, prune=prune)

    def with_inner(self) -> Iterator[Dag]:
        """Go through the Dag and those inside it, each once."""
        stack, seen = [self], {id(self)}
        while stack:
            each = stack.pop()
            yield each
            for call in (call for action in each.actions.values() for call in action.calls):
                if isinstance(call, DagCall) and id(call.dag) not in seen:
                    seen.add(id(call.dag))
                    stack.append(call.dag)

    def to_yaml(self) -> str:
        """Write the Dag as a DAG file.

        Raises:
            DeclarationError: an action is a Python function, which a file has no word for.
        """
        from agentrt.declare.dag_text import dag_to_yaml

        return dag_to_yaml(self)
