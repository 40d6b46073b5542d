"""One answer of the chat completions API, put together from its chunks. Pure.

What servers do beyond the letter: the first delta holds only the role; usage comes in a chunk without choices, in the
last one, in every one, or never; a server that does not know ``stream`` sends the whole answer with ``message`` for
``delta``; the reason for finishing has other words than OpenAI's.
"""

from __future__ import annotations

import json
import time
from typing import Any

from agentrt.models.model import FinishEvent, FinishReason, TokenEvent
from agentrt.models.openai_failures import ServerMessage


class ChunkError(ValueError):
    """A chunk that cannot be used. ``reported`` is what the server said, when it said that something went wrong."""

    def __init__(self, reason: str, *, reported: str = "") -> None:
        super().__init__(reason)
        self.reported = reported


class Answer:
    """Collects the chunks of one answer."""

    def __init__(self) -> None:
        self.has_begun = False
        self.finish: str | None = None
        """Why the model stopped, in the server's word."""
        self._usage: dict[str, Any] = {}

    def read(self, data: str) -> list[TokenEvent]:
        """Take in one chunk, as JSON, and return its tokens.

        Raises:
            ChunkError: it is not JSON, not a chunk, or reports an error.
        """
        try:
            chunk = json.loads(data)
        except (ValueError, RecursionError):
            raise ChunkError("a part of the answer is not JSON") from None
        if not isinstance(chunk, dict):
            raise ChunkError("a part of the answer is not a JSON object")
        if chunk.get("error"):
            raise ChunkError("the server reported an error", reported=ServerMessage.of_value(chunk).text)
        if isinstance(usage := chunk.get("usage"), dict):
            self._usage = usage
        choices = chunk.get("choices")
        if not isinstance(choices, list) or not all(isinstance(choice, dict) for choice in choices):
            if usage is None:
                raise ChunkError("a part of the answer has no choices")
            return []
        self.has_begun = True
        if not choices:
            return []
        choice = choices[0]
        if isinstance(finish := choice.get("finish_reason"), str):
            self.finish = finish
        return _tokens(choice)

    def finish_event(self, reason: FinishReason | None = None) -> FinishEvent:
        """Return the answer's last event; ``reason`` overrides the server's."""
        details = self._usage.get("prompt_tokens_details")
        cached = details.get("cached_tokens") if isinstance(details, dict) else None
        length: FinishReason = "length" if self.finish in ("length", "max_tokens") else "stop"
        return FinishEvent(
            reason or length,
            num_prompt_tokens=_count(self._usage.get("prompt_tokens")),
            num_completion_tokens=_count(self._usage.get("completion_tokens")),
            num_cached_tokens=_count(cached) or 0,
        )


def _tokens(choice: dict[str, Any]) -> list[TokenEvent]:
    part = choice.get("delta") or choice.get("message")
    if not isinstance(part, dict):
        return []
    # A refusal is the model's answer too, in a field of its own.
    text = part.get("content") or part.get("refusal")
    if not isinstance(text, str) or not text:
        return []
    now = time.time_ns()
    logprobs = choice.get("logprobs")
    listed = logprobs.get("content") if isinstance(logprobs, dict) else None
    if isinstance(listed, list) and all(isinstance(token, dict) for token in listed):
        texts = [token.get("token") for token in listed]
        if all(isinstance(token, str) for token in texts) and "".join(map(str, texts)) == text:
            return [TokenEvent(str(token["token"]), now, logprob=_number(token.get("logprob"))) for token in listed]
    return [TokenEvent(text, now)]


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
