"""A Model that says what it is told to: for tests of what stands around a model, never of a model."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import anyio

from agentrt.models.model import ChatRequest, FinishEvent, ModelEvent, TokenEvent


class ScriptedModel:
    """Answers with ``answer(request)``, a token a word, with ``delay_s`` before each; counts what is open."""

    def __init__(self, answer: Callable[[ChatRequest], str], *, delay_s: float = 0.0, name: str = "scripted") -> None:
        self.name = name
        self.provider = "test"
        self.requests: list[ChatRequest] = []
        self.num_open = 0
        self.is_closed = False
        self._answer = answer
        self._delay_s = delay_s

    @asynccontextmanager
    async def stream(self, request: ChatRequest) -> AsyncIterator[AsyncIterator[ModelEvent]]:
        self.requests.append(request)
        self.num_open += 1
        try:
            yield self._events(request)
        finally:
            self.num_open -= 1

    async def _events(self, request: ChatRequest) -> AsyncIterator[ModelEvent]:
        words = self._answer(request).split(" ")
        for index, word in enumerate(words):
            await anyio.sleep(self._delay_s)
            yield TokenEvent(word if index == 0 else f" {word}", time.time_ns(), token_id=index, logprob=-0.5)
        yield FinishEvent("stop", num_prompt_tokens=7, num_completion_tokens=len(words))

    async def aclose(self) -> None:
        self.is_closed = True
