"""A Dag: what was declared, in Python or YAML. Immutable; one model behind both forms."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agentrt.declare.action import Action
from agentrt.declare.agent import Agent
from agentrt.declare.template import ValueTemplate
from agentrt.errors import Place


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
class Dag:
    """Agents and their actions. Edges are not listed: they follow from what each action refers to and needs."""

    name: str
    actions: Mapping[str, Action]
    outputs: Mapping[str, ValueTemplate]
    inputs: Mapping[str, Input] = field(default_factory=dict)
    agents: Mapping[str, Agent] = field(default_factory=dict)
    description: str = ""
    slo: Slo = field(default_factory=Slo)
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
            description=description,
        )

    def to_yaml(self) -> str:
        """Write the Dag as a DAG file.

        Raises:
            DeclarationError: an action is a Python function, which a file has no word for.
        """
        from agentrt.declare.dag_text import dag_to_yaml

        return dag_to_yaml(self)
