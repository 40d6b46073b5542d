"""Choices on an endpoint that cannot be made to keep to them as the embedded engine can. Pure.

Three things together, from the weakest to the strongest: the prompt asks for one of the choices and nothing else; a
``response_format`` with a JSON schema makes endpoints that know it decode under that constraint; and the answer is
checked. Nothing is guessed: an answer that is not one of the choices is an error, because a branch taken on a guess is a
wrong answer handed out as right.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from agentrt.models.model import Message

EXTRA_TOKENS = 32
"""Room for the JSON around a choice."""


def ask(messages: tuple[Message, ...], choices: tuple[str, ...]) -> tuple[Message, ...]:
    """Return ``messages`` with the last one asking for one of ``choices``."""
    listed = "\n".join(f"- {choice}" for choice in choices)
    last = messages[-1]
    asked = f"{last.content}\n\nAnswer with exactly one of these and nothing else:\n{listed}"
    return (*messages[:-1], replace(last, content=asked))


def response_format(choices: tuple[str, ...]) -> dict[str, Any]:
    """Return the ``response_format`` that holds an endpoint to ``choices``."""
    schema = {
        "type": "object",
        "properties": {"choice": {"type": "string", "enum": list(choices)}},
        "required": ["choice"],
        "additionalProperties": False,
    }
    return {"type": "json_schema", "json_schema": {"name": "choice", "strict": True, "schema": schema}}


def max_tokens(asked: int, choices: tuple[str, ...]) -> int:
    """Return enough tokens for any of ``choices`` in JSON: a token is at least a byte."""
    return max(asked, EXTRA_TOKENS + max(len(choice.encode()) for choice in choices))


def chosen(answer: str, choices: tuple[str, ...]) -> str | None:
    """Return the choice that ``answer`` is, alone, quoted, or in JSON; None when it is none of them."""
    text = answer.strip()
    candidates: list[Any] = [text, text.strip("\"'`*.").strip()]
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        pass
    else:
        candidates.append(value.get("choice") if isinstance(value, dict) else value)
    return next((choice for candidate in candidates for choice in choices if candidate == choice), None)
