"""The ASGI application: routes, bodies within limits, answers whole or as they come, and clients that leave.

One request is one task, so that whatever ends it (the client went away, the deadline, a fault) also leaves the blocks of
its streams, and the engine frees their memory at its next step. A reader that is slow makes its own task wait and nobody
else's: tokens wait in its streams, which hold no more than it asked for.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import anyio
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from agentrt.errors import AgentrtError
from agentrt.inference.request import SchedulingParams
from agentrt.inference.server.access import Access
from agentrt.inference.server.api_error import ApiError, api_error_of
from agentrt.inference.server.fields import ChatCompletionRequest, CompletionRequest
from agentrt.inference.server.forms import ChatForm, CompletionForm, Envelope, Form, Sample, Shown, event, usage_of
from agentrt.inference.server.metrics import Metrics
from agentrt.inference.server.models import ServedModel, find_model
from agentrt.inference.server.openapi import describe_api
from agentrt.inference.server.parameters import (
    Order,
    chat_orders,
    completion_orders,
    parse_body,
    scheduling_of,
    timeout_of,
)
from agentrt.inference.server.samples import open_samples


@dataclass(frozen=True, slots=True)
class Limits:
    max_body_bytes: int = 16 * 2**20
    body_timeout_s: float = 30.0
    """From the first header to the last byte of the body."""


@dataclass(slots=True)
class State:
    is_draining: bool = False


def make_app(
    models: Mapping[str, ServedModel],
    *,
    access: Access | None = None,
    limits: Limits | None = None,
    state: State | None = None,
) -> Starlette:
    """Return the application that serves ``models``, which must outlive it."""
    limits, state, metrics = limits or Limits(), state or State(), Metrics(models)
    access = access or Access(None)

    async def health(_: Request) -> Response:
        return JSONResponse({"status": "draining" if state.is_draining else "ok"}, 503 if state.is_draining else 200)

    async def list_models(request: Request) -> Response:
        access.check(request.headers)
        return JSONResponse({"object": "list", "data": [_card(model) for model in models.values()]})

    async def show_model(request: Request) -> Response:
        access.check(request.headers)
        return JSONResponse(_card(find_model(models, request.path_params["name"])))

    async def show_metrics(_: Request) -> Response:
        return Response(metrics.render(), media_type="text/plain; version=0.0.4")

    async def show_api(_: Request) -> Response:
        return JSONResponse(describe_api())

    async def fail(_: Request, error: Exception) -> Response:
        return _failed(
            error if isinstance(error, ApiError) else ApiError(500, "the server failed", kind="server_error")
        )

    async def not_found(request: Request, _: Exception) -> Response:
        return _failed(ApiError(404, f"there is no {request.method} {request.url.path[:200]}", code="not_found"))

    async def not_allowed(request: Request, _: Exception) -> Response:
        return _failed(ApiError(405, f"{request.url.path} does not take {request.method}", code="method_not_allowed"))

    completions = Endpoint("completions", models, access, limits, metrics)
    chat = Endpoint("chat", models, access, limits, metrics)
    return Starlette(
        routes=[
            Route("/health", health),
            Route("/metrics", show_metrics),
            Route("/openapi.json", show_api),
            Route("/v1/models", list_models),
            Route("/v1/models/{name:path}", show_model),
            Route("/v1/completions", completions, methods=["POST"]),
            Route("/v1/chat/completions", chat, methods=["POST"]),
        ],
        exception_handlers={ApiError: fail, 404: not_found, 405: not_allowed, Exception: fail},
    )


class Endpoint:
    """`completions` or `chat`, as an ASGI application."""

    def __init__(
        self, kind: str, models: Mapping[str, ServedModel], access: Access, limits: Limits, metrics: Metrics
    ) -> None:
        self._kind = kind
        self._models = models
        self._access = access
        self._limits = limits
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = _Answer(send)
        model_name = ""
        status = 499  # the client left
        try:
            async with anyio.create_task_group() as group:
                try:
                    headers = Headers(scope=scope)
                    self._access.check(headers)
                    timeout_s, scheduling = timeout_of(headers), scheduling_of(headers)
                    began = anyio.current_time()
                    value = await _read_json(receive, self._limits)
                    group.start_soon(_cancel_when_gone, receive, group.cancel_scope)
                    call = await anyio.to_thread.run_sync(self._understand, value)
                    model_name = call.model.name
                    await self._serve(call, answer, began, timeout_s, scheduling)
                    status = 200
                except (ApiError, AgentrtError) as error:
                    failure = error if isinstance(error, ApiError) else api_error_of(error)
                    status = failure.status
                    await answer.fail(failure)
                except _ClientGoneError:
                    pass
                group.cancel_scope.cancel()
        finally:
            self._metrics.requests.labels(model_name, self._kind, str(status)).inc()

    def _understand(self, value: Any) -> _Call:
        """Check a body and encode its prompts. In a thread: a long prompt takes a while."""
        if self._kind == "chat":
            chat = parse_body(ChatCompletionRequest, value)
            model = find_model(self._models, chat.model)
            shown = Shown(chat.logprobs, chat.return_token_ids)
            return _Call(model, ChatForm(model, shown), shown, chat_orders(chat, model), chat)
        body = parse_body(CompletionRequest, value)
        model = find_model(self._models, body.model)
        shown = Shown(body.logprobs is not None, body.return_token_ids)
        return _Call(model, CompletionForm(model, shown), shown, completion_orders(body, model), body)

    async def _serve(
        self, call: _Call, answer: _Answer, began: float, timeout_s: float | None, scheduling: SchedulingParams
    ) -> None:
        samples = [Sample() for _ in call.orders]
        envelope = Envelope(call.form, call.model.name)
        latest = [began] * len(samples)
        ttft, itl = self._metrics.ttft.labels(call.model.name), self._metrics.itl.labels(call.model.name)
        async with open_samples(call.model, call.orders, timeout_s, scheduling) as tokens:
            if call.streams:
                await answer.begin_events()
                for index in range(len(samples)):
                    if (opening := call.form.begin(index)) is not None:
                        await answer.write(envelope.event([opening]))
            async for token in tokens:
                index, output = token.index, token.output
                now = anyio.current_time()
                sample = samples[index]
                (itl if sample.outputs else ttft).observe(now - latest[index])
                latest[index] = now
                if call.streams and (output.text or output.finished or call.shown.tokens):
                    await answer.write(envelope.event([call.form.delta(index, output, sample.num_characters)]))
                sample.take(output)
        if call.streams:
            ending = envelope.event([], usage_of(samples)) if call.includes_usage else b""
            await answer.end_events(ending + b"data: [DONE]\n\n")
        else:
            choices = [call.form.choice(index, sample) for index, sample in enumerate(samples)]
            await answer.send_json(200, envelope.whole(choices, usage_of(samples)))


@dataclass(frozen=True, slots=True)
class _Call:
    model: ServedModel
    form: Form
    shown: Shown
    orders: Sequence[Order]
    body: ChatCompletionRequest | CompletionRequest

    @property
    def streams(self) -> bool:
        return self.body.stream

    @property
    def includes_usage(self) -> bool:
        return self.body.stream_options is not None and self.body.stream_options.include_usage


class _ClientGoneError(Exception):
    """The client left before its request was whole."""


class _Answer:
    """What has been sent of an answer."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._has_begun = False

    async def begin_events(self) -> None:
        await self._begin(
            200, [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-cache")]
        )

    async def write(self, body: bytes) -> None:
        await self._send({"type": "http.response.body", "body": body, "more_body": True})

    async def end_events(self, body: bytes) -> None:
        await self._send({"type": "http.response.body", "body": body, "more_body": False})

    async def send_json(self, status: int, value: dict[str, Any], headers: Sequence[tuple[bytes, bytes]] = ()) -> None:
        body = json.dumps(value, separators=(",", ":")).encode()
        length = (b"content-length", str(len(body)).encode())
        await self._begin(status, [(b"content-type", b"application/json"), length, *headers])
        await self._send({"type": "http.response.body", "body": body, "more_body": False})

    async def fail(self, failure: ApiError) -> None:
        """Answer with an error; in a stream that has begun, as its last event."""
        if self._has_begun:
            await self.end_events(event(failure.body()))
            return
        await self.send_json(failure.status, failure.body(), _headers_of(failure))

    async def _begin(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        self._has_begun = True
        await self._send({"type": "http.response.start", "status": status, "headers": headers})


async def _read_json(receive: Receive, limits: Limits) -> Any:
    """Read the whole body. Raises ApiError for one that is too large, too slow or not JSON."""
    body = bytearray()
    with anyio.move_on_after(limits.body_timeout_s) as limit:
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise _ClientGoneError
            body += message.get("body", b"")
            if len(body) > limits.max_body_bytes:
                raise ApiError(413, f"the body is larger than {limits.max_body_bytes} bytes", code="body_too_large")
            if not message.get("more_body", False):
                break
    if limit.cancelled_caught:
        raise ApiError(408, f"the body did not arrive within {limits.body_timeout_s:g} s", code="body_timeout")
    try:
        return json.loads(body, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        reason = str(error).splitlines()[0][:200] if str(error) else "it is nested too deeply"
        raise ApiError(400, f"the body is not JSON: {reason}", code="invalid_json") from None


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON number")


async def _cancel_when_gone(receive: Receive, scope: anyio.CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()


def _card(model: ServedModel) -> dict[str, Any]:
    return {
        "id": model.name,
        "object": "model",
        "created": model.created_s,
        "owned_by": "agentrt",
        "max_model_len": model.engine.max_context_tokens,
    }


def _headers_of(failure: ApiError) -> list[tuple[bytes, bytes]]:
    if failure.retry_after_s is None:
        return []
    return [(b"retry-after", str(max(1, round(failure.retry_after_s))).encode())]


def _failed(failure: ApiError) -> JSONResponse:
    headers = {name.decode(): value.decode() for name, value in _headers_of(failure)}
    return JSONResponse(failure.body(), failure.status, headers)
