"""A Model behind any endpoint that speaks OpenAI's chat completions: OpenAI itself, vLLM, llama-server, SGLang, ...

What is sent: ``model``, ``messages``, ``stream`` with ``stream_options.include_usage``, ``max_tokens``,
``temperature``, and ``top_p``, ``seed``, ``stop``, ``top_k`` when they are set. ``top_k`` is not OpenAI's, and OpenAI
refuses it with a clear error; most compatible servers take it, and whoever sets it means it.

The caller's remaining time goes along as ``x-request-timeout-ms`` (whole milliseconds; there is no standard header,
gRPC has ``grpc-timeout``), its trace context as ``traceparent``. Leaving the call closes the HTTP/2 stream, which is how
the server learns that nobody listens.

The key is read from the environment when a call begins, is sent to the endpoint's own host only (redirects are not
followed), and stands in no error message.

A call with choices emits its answer as one token, once it is known to be one of them (see ``openai_choices``).
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import anyio
import httpx2

from agentrt.errors import ConfigError, RequestError
from agentrt.models import openai_choices
from agentrt.models.model import ChatRequest, Message, ModelEvent, TokenEvent
from agentrt.models.openai_answer import Answer, ChunkError
from agentrt.models.openai_failures import Failures
from agentrt.models.server_sent_events import EventParser, EventStreamError
from agentrt.net.http_pool import HttpPool, StreamedResponse

MAX_ERROR_BYTES = 2**16
MAX_WHOLE_ANSWER_BYTES = 2**22
DRAIN_S = 1.0
"""How long the end of an HTTP body may lag behind the end of the answer before its connection is given up."""


class OpenAIModel:
    """``name`` on the server at ``endpoint`` (``https://host/v1``), over connections of ``pool``.

    ``api_key_env`` names the environment variable that holds the key; None sends none.

    Raises:
        ConfigError: ``endpoint`` is not an http(s) URL, or holds a password.
    """

    def __init__(self, name: str, *, endpoint: str, api_key_env: str | None, pool: HttpPool) -> None:
        self._name = name
        self._url, self._host, self._provider = _parse_endpoint(endpoint)
        self._api_key_env = api_key_env
        self._pool = pool
        self._takes_response_format = True

    @property
    def name(self) -> str:
        return self._name

    @property
    def provider(self) -> str:
        return self._provider

    async def aclose(self) -> None:
        """Nothing to close: the connections are the pool's."""

    @asynccontextmanager
    async def stream(self, request: ChatRequest) -> AsyncIterator[AsyncIterator[ModelEvent]]:
        """Begin a call; see ``Model.stream``."""
        secret = self._key()
        failures = Failures(self._host, self._name, api_key_env=self._api_key_env, secret=secret, request=request)
        timeout_s = request.timeout_s
        end = None if timeout_s is None else anyio.current_time() + timeout_s
        is_structured = bool(request.sampling.choices) and self._takes_response_format
        async with AsyncExitStack() as stack:
            try:
                response = await stack.enter_async_context(
                    self._send(request, secret, failures, timeout_s, is_structured=is_structured)
                )
            except RequestError as error:
                if not (is_structured and error.field == "response_format"):
                    raise
                # The endpoint has refused the request, so that asking once more does nothing twice.
                self._takes_response_format = False
                left_s = None if end is None else end - anyio.current_time()
                response = await stack.enter_async_context(
                    self._send(request, secret, failures, left_s, is_structured=False)
                )
            events = self._events(response, request, failures)
            stack.push_async_callback(events.aclose)
            yield events

    @asynccontextmanager
    async def _send(
        self,
        request: ChatRequest,
        secret: str | None,
        failures: Failures,
        timeout_s: float | None,
        *,
        is_structured: bool,
    ) -> AsyncIterator[StreamedResponse]:
        """Send the request; give the response once it is known to be an answer."""
        headers = {
            "content-type": "application/json",
            "accept": "text/event-stream, application/json",
            "accept-encoding": "identity",
            "user-agent": "agentrt",
        }
        if secret is not None:
            headers["authorization"] = f"Bearer {secret}"
        if request.traceparent is not None:
            headers["traceparent"] = request.traceparent
        if timeout_s is not None:
            headers["x-request-timeout-ms"] = str(max(0, round(timeout_s * 1000)))
        body = json.dumps(self._body(request, is_structured=is_structured), ensure_ascii=False)
        async with AsyncExitStack() as stack:
            try:
                response = await stack.enter_async_context(
                    self._pool.stream(
                        "POST",
                        self._url,
                        headers=headers,
                        content=body.encode("utf-8", errors="replace"),
                        timeout_s=timeout_s,
                    )
                )
                said = b"" if response.status == 200 else await response.read(MAX_ERROR_BYTES)
            except httpx2.RequestError as error:
                raise failures.of_transport(error, has_begun=False) from error
            if response.status != 200:
                raise failures.of_status(response.status, response.headers, said)
            yield response

    def _body(self, request: ChatRequest, *, is_structured: bool) -> dict[str, Any]:
        sampling = request.sampling
        messages: tuple[Message, ...] = request.messages
        body: dict[str, Any] = {
            "model": self._name,
            "stream": True,
            "stream_options": {"include_usage": True},
            "max_tokens": sampling.max_tokens,
            "temperature": sampling.temperature,
        }
        optional = {"top_p": sampling.top_p, "top_k": sampling.top_k, "seed": sampling.seed}
        body |= {name: value for name, value in optional.items() if value is not None}
        if sampling.choices:
            messages = openai_choices.ask(messages, sampling.choices)
            body["max_tokens"] = openai_choices.max_tokens(sampling.max_tokens, sampling.choices)
            if is_structured:
                body["response_format"] = openai_choices.response_format(sampling.choices)
        elif sampling.stop:
            body["stop"] = list(sampling.stop)
        body["messages"] = [{"role": message.role, "content": message.content} for message in messages]
        return body

    async def _events(
        self, response: StreamedResponse, request: ChatRequest, failures: Failures
    ) -> AsyncGenerator[ModelEvent]:
        answer = Answer()
        choices = request.sampling.choices
        text = ""
        tokens = self._tokens(response, answer, failures)
        try:
            async for token in tokens:
                if choices:
                    text += token.text
                else:
                    yield token
        finally:
            await tokens.aclose()
        if answer.finish is None:
            raise failures.of_stream("the answer ended without saying why, so it may be cut off")
        if answer.finish == "content_filter":
            raise failures.of_content("the endpoint's content filter stopped the answer; change the prompt")
        if choices:
            choice = openai_choices.chosen(text, choices)
            if choice is None:
                raise failures.of_content(
                    f"the answer {text[:80]!r} is none of the choices {', '.join(map(repr, choices))}; make the "
                    "prompt clearer, or use a model that follows instructions better"
                )
            yield TokenEvent(choice, time.time_ns())
        yield answer.finish_event("choice" if choices else None)
        # Only a body read to its end leaves an HTTP/1.1 connection for the next call.
        with suppress(httpx2.RequestError), anyio.move_on_after(DRAIN_S):
            async for _ in response:
                pass

    async def _tokens(
        self, response: StreamedResponse, answer: Answer, failures: Failures
    ) -> AsyncGenerator[TokenEvent]:
        """Yield the tokens of ``response`` until its answer is over."""
        content_type = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        if content_type == "text/html":
            raise failures.of_content("it answered with a web page; check the endpoint (it usually ends in /v1)")
        parser = EventParser()
        try:
            if content_type == "application/json":
                body = await response.read(MAX_WHOLE_ANSWER_BYTES)
                for token in answer.read(body.decode("utf-8")):
                    yield token
                return
            async for chunk in response:
                for event in parser.feed(chunk):
                    if event.data.strip() == "[DONE]":
                        return
                    if event.type == "error":
                        raise ChunkError("the server reported an error", reported=event.data)
                    for token in answer.read(event.data):
                        yield token
        except httpx2.RequestError as error:
            raise failures.of_transport(error, has_begun=answer.has_begun) from error
        except ChunkError as error:
            raise failures.of_stream(f"{error}{failures.quote(error.reported)}") from None
        except (EventStreamError, UnicodeDecodeError) as error:
            reason = str(error) if isinstance(error, EventStreamError) else "it is not UTF-8"
            raise failures.of_stream(f"the answer cannot be read: {reason}") from None

    def _key(self) -> str | None:
        if self._api_key_env is None:
            return None
        key = os.environ.get(self._api_key_env, "").strip()
        if not key:
            raise RequestError(
                f"{self._host} needs a key, and the environment variable {self._api_key_env} is not set",
                field="api_key_env",
            )
        if not (key.isascii() and key.isprintable()):
            raise RequestError(
                f"the key in the environment variable {self._api_key_env} holds characters that no key has; was "
                "more than the key copied?",
                field="api_key_env",
            )
        return key


def _parse_endpoint(endpoint: str) -> tuple[str, str, str]:
    """Return the URL to post to, the host with its port for messages, and the host."""
    try:
        parts = urlsplit(endpoint)
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if not host or parts.scheme not in ("http", "https"):
        raise ConfigError(f"the endpoint {endpoint!r} is not an http:// or https:// URL")
    if parts.username is not None or parts.password is not None:
        raise ConfigError(
            f"the endpoint for {host} holds a user name or password; put the key into an environment variable and "
            "name that in api_key_env"
        )
    path = f"{parts.path.rstrip('/')}/chat/completions"
    url = urlunsplit((parts.scheme, parts.netloc, path, parts.query, ""))
    return url, host if port is None else f"{host}:{port}", host
