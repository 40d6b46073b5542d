"""The tools that are always there."""

from __future__ import annotations

from agentrt.tools.retrieval import make_retrieval
from agentrt.tools.tool import Tool


def builtin_tools() -> tuple[Tool, ...]:
    """Make the tools that are always there; what they keep in memory is theirs alone."""
    return (make_retrieval(),)
