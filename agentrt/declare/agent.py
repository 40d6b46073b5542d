"""An Agent: who acts. A name, instructions and the Model it speaks with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from agentrt.errors import Place


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
    """Who acts.

    ``parameters`` are defaults for the sampling parameters of every llm action of this agent (the keys of an action's
    ``with``).
    """

    name: str
    instructions: str = ""
    model: ModelRef | None = None
    """None: the model that the configuration names."""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    place: Place | None = field(default=None, compare=False)
