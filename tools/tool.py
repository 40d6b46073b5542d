"""A Tool: an operation an action can call, described by JSON Schema.

The schemas come from the function's annotations, so what is declared is what is checked: arguments are validated before
the function is called, and a mistake is told with its path instead of as a TypeError from inside.
"""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, overload

from agentrt.errors import ToolError
from agentrt.tools.annotations import describe, result_schema

EFFECTS = ("none", "idempotent", "write")
NAME_PATTERN = r"[a-z_][a-z0-9_]*"


@dataclass(frozen=True, slots=True)
class ToolContext:
    """What a tool may know about the call. A tool function with a parameter annotated ``ToolContext`` is given it."""

    base_dir: Path | None = None
    """Folder that relative paths in arguments start from: that of the DAG file."""


@dataclass(frozen=True)
class Tool:
    """A named function with schemas.

    ``parameters`` is the JSON Schema (an object) of its keyword arguments; ``result`` that of what it returns, or None
    when nothing is known. ``effects`` is ``none``, ``idempotent`` or ``write``; ``action_type`` is the type an action
    that uses it has unless it says otherwise. ``context_parameter`` names the parameter that takes the ToolContext.
    """

    name: str
    function: Callable[..., Any]
    description: str = ""
    parameters: Mapping[str, Any] = field(default_factory=lambda: {"type": "object"})
    result: Mapping[str, Any] | None = None
    effects: str = "write"
    action_type: str = "tool"
    context_parameter: str | None = None
    converters: Mapping[str, Callable[[Any], Any]] = field(default_factory=dict)
    """Turn a checked argument from its JSON form into what the function's annotation says (a dataclass, a date)."""

    def bind(self, arguments: Mapping[str, Any], context: ToolContext) -> dict[str, Any]:
        """Check ``arguments`` and return the keyword arguments to call ``function`` with.

        Raises:
            ToolError: an argument does not fit; tells its path and what was expected.
        """
        from jsonschema.exceptions import best_match

        error = best_match(self._validator.iter_errors(dict(arguments)))
        if error is not None:
            at = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in error.path)
            where = f"argument {at.lstrip('.')!r}: " if at else ""
            raise ToolError(f"tool {self.name!r}: {where}{error.message[:500]}")
        bound = dict(arguments)
        for name, convert in self.converters.items():
            if name in bound:
                try:
                    bound[name] = convert(bound[name])
                except ValueError as error:
                    raise ToolError(f"tool {self.name!r}: argument {name!r}: {error}") from error
        if self.context_parameter is not None:
            bound[self.context_parameter] = context
        return bound

    @cached_property
    def _validator(self) -> Any:
        from jsonschema import Draft202012Validator

        return Draft202012Validator(dict(self.parameters))


@overload
def tool(function: Callable[..., Any], /) -> Tool: ...
@overload
def tool(
    *,
    name: str | None = None,
    effects: Literal["none", "idempotent", "write"] = "write",
    type: str = "tool",
) -> Callable[[Callable[..., Any]], Tool]: ...
def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    effects: Literal["none", "idempotent", "write"] = "write",
    type: str = "tool",  # noqa: A002 - the word users know from the DAG file
) -> Tool | Callable[[Callable[..., Any]], Tool]:
    """Make a Tool of a function, plain or async; its name, annotations and docstring describe it.

        @tool(effects="none")
        def order_status(order_id: int) -> str:
            "Look up where an order is."

    ``effects`` says what calling it twice does to the world; unless told otherwise a tool is taken to write.

    Raises:
        TypeError: the function takes ``*args`` or positional-only parameters, or an annotation has no JSON Schema.
        ValueError: the name or ``effects`` is malformed.
    """

    def make(function: Callable[..., Any]) -> Tool:
        return tool_from_function(function, name=name, effects=effects, action_type=type)

    return make if function is None else make(function)


def tool_from_function(
    function: Callable[..., Any],
    *,
    name: str | None = None,
    effects: str = "write",
    action_type: str = "tool",
) -> Tool:
    """Make a Tool of a function; see ``tool``."""
    name = name or function.__name__
    if not re.fullmatch(NAME_PATTERN, name):
        raise ValueError(f"tool name {name!r}: expected lower-case letters, digits and underscores")
    if effects not in EFFECTS:
        raise ValueError(f"tool {name!r}: effects is {effects!r}; expected one of {', '.join(EFFECTS)}")
    hints = typing.get_type_hints(function, include_extras=True)
    result = hints.pop("return", None)
    context_parameter = next((parameter for parameter, hint in hints.items() if hint is ToolContext), None)
    annotations: dict[str, Any] = {}
    required: list[str] = []
    takes_more = False
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.POSITIONAL_ONLY):
            raise TypeError(f"tool {name!r}: parameter {parameter.name!r} cannot be given by name")
        if parameter.kind is parameter.VAR_KEYWORD:
            takes_more = True
        elif parameter.name != context_parameter:
            annotations[parameter.name] = hints.get(parameter.name, Any)
            if parameter.default is parameter.empty:
                required.append(parameter.name)
    described = describe(annotations, f"tool {name!r}")
    return Tool(
        name=name,
        function=function,
        description=inspect.getdoc(function) or "",
        parameters={
            "type": "object",
            "properties": described.properties,
            "required": required,
            "additionalProperties": takes_more,
            **described.definitions,
        },
        result=None if result is None else result_schema(result, f"tool {name!r}"),
        effects=effects,
        action_type=action_type,
        context_parameter=context_parameter,
        converters=described.converters,
    )
