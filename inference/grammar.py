"""What a constrained answer may be: a JSON value that fits a schema, a text that fits a regular expression, tool calls.

A Grammar is a declaration, checked when it is made for what it costs to look at it: its size and how deeply it is nested.
``grammar_compiler`` makes it into something that says which tokens may come next.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeGuard

from agentrt.errors import RequestError

MAX_GRAMMAR_BYTES = 64 * 1024
MAX_DEPTH = 64

GrammarKind = Literal["json_schema", "regex", "tool_calls"]


@dataclass(frozen=True, slots=True)
class ToolShape:
    """A tool that may be called, by its name and the JSON Schema of its arguments."""

    name: str
    parameters: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Grammar:
    """What an answer may be. Make one with ``json_schema``, ``json_object``, ``regex`` or ``tool_calls``.

    ``text`` is the schema as JSON, the regular expression, or the schema of one call; ``is_lenient`` leaves out what
    cannot be enforced instead of refusing it; ``begin`` and ``end`` stand around a call.
    """

    kind: GrammarKind
    text: str
    is_lenient: bool = False
    begin: str = ""
    end: str = ""
    must_call: bool = False

    @classmethod
    def json_schema(cls, schema: Mapping[str, Any] | bool, *, is_lenient: bool = False) -> Grammar:
        """Allow the JSON values that fit ``schema`` (Draft 2020-12), with the properties in the order it has them.

        Keywords that cannot be enforced are refused when it is compiled; with ``is_lenient`` they are ignored, for a
        caller who validates the answer afterwards.

        Raises:
            RequestError: it is no JSON, too large or nested too deeply.
        """
        return cls("json_schema", _schema_text(schema), is_lenient)

    @classmethod
    def json_object(cls) -> Grammar:
        """Allow any JSON object."""
        return cls.json_schema({"type": "object"})

    @classmethod
    def regex(cls, pattern: str) -> Grammar:
        r"""Allow the texts that the whole of ``pattern`` matches (the syntax of Rust's regex, without look-around).

        ``\d``, ``\w`` and ``\s`` mean their ASCII characters.

        Raises:
            RequestError: it is empty or too large.
        """
        if not isinstance(pattern, str) or not pattern:
            raise RequestError(f"the regex is {pattern!r:.100}; expected a text", field="grammar")
        _check_size("regex", pattern)
        return cls("regex", pattern)

    @classmethod
    def tool_calls(
        cls,
        tools: Sequence[ToolShape],
        *,
        begin: str = "<tool_call>\n",
        end: str = "\n</tool_call>",
        must_call: bool = False,
        arguments_key: str = "arguments",
    ) -> Grammar:
        """Allow free text with calls of ``tools`` in it: ``{"name": ..., "arguments": {...}}`` in ``begin`` and ``end``.

        With ``must_call`` there is at least one call, and nothing but calls. Where ``begin`` or ``end`` contains the
        spelling of a control token, that token is what is meant.

        Raises:
            RequestError: no tools, a name twice, parameters that are no schema, or too much of it.
        """
        names = [tool.name for tool in tools]
        if not names or len(set(names)) != len(names):
            raise RequestError(f"tools are named {names!r:.200}; expected one or more different names", field="tools")
        if not begin or not end:
            raise RequestError("begin and end of a tool call are texts of at least one character", field="tools")
        calls = [
            {
                "type": "object",
                "properties": {"name": {"const": tool.name}, arguments_key: dict(tool.parameters)},
                "required": ["name", arguments_key],
                "additionalProperties": False,
            }
            for tool in tools
        ]
        for tool in tools:
            if _has_key(tool.parameters, "$ref"):
                raise RequestError(f"the parameters of tool {tool.name!r} have a $ref; write it out", field="tools")
        return cls("tool_calls", _schema_text({"anyOf": calls}), True, begin, end, must_call)


def _schema_text(schema: Any) -> str:
    if not isinstance(schema, Mapping | bool):
        raise RequestError(f"the schema is {schema!r:.100}; expected a JSON Schema, a mapping", field="grammar")
    _check_depth(schema)
    try:
        text = json.dumps(schema, allow_nan=False, separators=(",", ":"), default=_plain)
    except (TypeError, ValueError) as error:
        raise RequestError(f"the schema is no JSON: {error}", field="grammar") from error
    _check_size("schema", text)
    return text


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    if _is_list(value):
        return list(value)
    raise TypeError(f"it holds {value!r:.100}")


def _is_list(value: Any) -> TypeGuard[Sequence[Any]]:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def _check_depth(schema: Any) -> None:
    level, depth, num_seen = [schema], 0, 0
    while level:
        depth += 1
        num_seen += len(level)
        if depth > MAX_DEPTH:
            raise RequestError(f"the schema is nested more than {MAX_DEPTH} levels deep", field="grammar")
        if num_seen > MAX_GRAMMAR_BYTES:  # each takes at least a byte
            raise RequestError(f"the schema has more than {MAX_GRAMMAR_BYTES} bytes", field="grammar")
        level = [child for node in level for child in _children(node)]


def _children(node: Any) -> Sequence[Any]:
    if isinstance(node, Mapping):
        return list(node.values())
    return node if _is_list(node) else ()


def _has_key(node: Any, key: str) -> bool:
    return (isinstance(node, Mapping) and key in node) or any(_has_key(child, key) for child in _children(node))


def _check_size(what: str, text: str) -> None:
    if len(text) > MAX_GRAMMAR_BYTES:
        raise RequestError(
            f"the {what} has {len(text)} characters; at most {MAX_GRAMMAR_BYTES} are allowed", field="grammar"
        )
