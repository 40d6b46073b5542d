"""An Agent: who acts. A name, instructions and the Model it speaks with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from agentrt.errors import Place

if TYPE_CHECKING:
    from agentrt.declare.dag import Dag

Function = TypeVar("Function", bound=Callable[..., Any])
AGENT_MARK = "__agentrt_agent__"
"""Under this name a function carries the agent whose action it is."""


@dataclass(frozen=True, slots=True)
class ModelRef:
    """Which model an agent speaks with.

    ``name`` alone is looked up in the model catalog (or is a path, or ``hf:owner/name``). With ``endpoint`` it is the
    name an OpenAI-compatible server knows; the key is read from the environment variable ``api_key_env`` at the time
    of the call, so that no secret stands in a file or a trace.
    """

    name: str
    endpoint: str | None = None
    api_key_env: str | None = None


@dataclass(frozen=True, slots=True)
class Agent:
    """Who acts, by asking a model or by running a Dag of its own (``uses: agent/NAME``).

    ``parameters`` are defaults for the sampling parameters of every llm action of this agent (the keys of an action's
    ``with``).
    """

    name: str
    instructions: str = ""
    model: ModelRef | None = None
    """None: the model that the configuration names."""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    dag: Dag | None = None
    dag_source: str | None = None
    """Path of the file its Dag came from."""
    place: Place | None = field(default=None, compare=False)

    def action(self, function: Function, /) -> Function:
        """Mark a function as an action of this agent; ``@action(...)`` below it may say more.

        writer = Agent("writer")

        @writer.action
        async def draft(search: list[str]) -> str: ...
        """
        setattr(function, AGENT_MARK, self)
        return function
