"""Which tool answers to a name. Fixed once made: a run never meets a registry that changes under it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from agentrt.errors import UnknownToolError, UsageError, nearest_match
from agentrt.tools.tool import Tool


class ToolRegistry(Mapping[str, Tool]):
    """Tools by name.

    Raises:
        UsageError: two tools have the same name.
    """

    def __init__(self, tools: Iterable[Tool] = ()) -> None:
        self._tools: dict[str, Tool] = {}
        for tool in tools:
            if tool.name in self._tools:
                raise UsageError(f"there are two tools named {tool.name!r}; give one of them another name")
            self._tools[tool.name] = tool

    def __getitem__(self, name: str) -> Tool:
        """Return the tool of that name.

        Raises:
            UnknownToolError: there is none; the message has the nearest match.
        """
        try:
            return self._tools[name]
        except KeyError:
            match = nearest_match(name, self._tools)
            known = ", ".join(sorted(self._tools)) or "none"
            hint = f"did you mean {match!r}?" if match else f"known tools: {known}"
            raise UnknownToolError(f"there is no tool {name!r} ({hint})") from None

    def __contains__(self, name: object) -> bool:
        return name in self._tools

    def __iter__(self) -> Iterator[str]:
        return iter(self._tools)

    def __len__(self) -> int:
        return len(self._tools)
