"""Real servers on loopback for tests: each runs in a thread with an event loop of its own and ends with its
block.

Nothing here waits for a server to come up: the socket listens before the thread starts, so a connection made
at once is served as soon as the loop runs.
"""

from __future__ import annotations

import json
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import anyio.abc
import anyio.from_thread
import anyio.to_thread
import trustme
from hypercorn.asyncio import serve
from hypercorn.config import Config
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

WAIT_S = 20.0
"""How long a test waits for something that a correct program does at once."""


async def happened(event: threading.Event) -> bool:
    """Wait for an event of a server's thread."""
    return await anyio.to_thread.run_sync(event.wait, WAIT_S, abandon_on_cancel=True)


@dataclass
class Seen:
    """One request as the server saw it."""

    headers: dict[str, str]
    body: dict[str, Any]
    http_version: str
    client: tuple[str, int]


@dataclass
class Endpoint:
    """An endpoint that speaks OpenAI's chat completions; the model's name chooses how it behaves (see
    BEHAVIOURS).

    ``started`` is set when a stream that goes on for long has begun, ``gone`` when its client left before the
    end. ``go_on`` lets the behaviours that stop in the middle continue.
    """

    seen: list[Seen] = field(default_factory=list)
    started: threading.Event = field(default_factory=threading.Event)
    gone: threading.Event = field(default_factory=threading.Event)
    go_on: threading.Event = field(default_factory=threading.Event)
    num_gone: int = 0

    def app(self) -> Starlette:
        return Starlette(routes=[Route("/v1/chat/completions", self.answer, methods=["POST"])])

    async def answer(self, request: Request) -> Response:
        body = await request.json()
        assert request.client is not None
        self.seen.append(Seen(dict(request.headers), body, request.scope["http_version"], tuple(request.client)))
        name, _, argument = body["model"].partition(":")
        return await BEHAVIOURS[name](self, body, argument)

    async def left(self, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """Pass ``chunks`` on, and note when the client leaves before they are over."""
        try:
            async for chunk in chunks:
                yield chunk
        except BaseException:
            self.num_gone += 1
            self.gone.set()
            raise


def event(data: Any) -> bytes:
    return b"data: " + (data if isinstance(data, str) else json.dumps(data)).encode() + b"\n\n"


def delta(text: str | None, *, finish: str | None = None, **choice: Any) -> dict[str, Any]:
    content = {} if text is None else {"content": text}
    return {
        "object": "chat.completion.chunk",
        "choices": [{"index": 0, "delta": content, "finish_reason": finish, **choice}],
    }


USAGE = {
    "choices": [],
    "usage": {
        "prompt_tokens": 12,
        "completion_tokens": 3,
        "prompt_tokens_details": {"cached_tokens": 8},
    },
}
GREETING = [delta(""), delta("Grüß"), delta(" dich, "), delta("世界"), delta(None, finish="stop")]


def stream(chunks: AsyncIterator[bytes]) -> StreamingResponse:
    return StreamingResponse(chunks, media_type="text/event-stream")


async def each(*chunks: bytes) -> AsyncIterator[bytes]:
    for chunk in chunks:
        yield chunk


async def normal(endpoint: Endpoint, body: dict[str, Any], _: str) -> Response:
    asked = bool(body.get("stream_options", {}).get("include_usage"))
    usage = [event(USAGE)] if asked else []
    return stream(each(*map(event, GREETING), *usage, event("[DONE]")))


async def without_usage(endpoint: Endpoint, body: dict[str, Any], _: str) -> Response:
    return stream(each(*map(event, GREETING), event("[DONE]")))


async def bytewise(endpoint: Endpoint, body: dict[str, Any], _: str) -> Response:
    """Every byte in a chunk of its own, lines ended by CRLF, comments in between."""
    chunks = [event(chunk) for chunk in [*GREETING, "[DONE]"]]
    raw = b": hello\r\n\r\n" + b"".join(chunks).replace(b"\n", b"\r\n")
    return stream(each(*(raw[i : i + 1] for i in range(len(raw)))))


async def with_logprobs(endpoint: Endpoint, body: dict[str, Any], _: str) -> Response:
    chunks = [
        delta("a", logprobs={"content": [{"token": "a", "logprob": -0.5}]}),
        delta("bc", logprobs={"content": [{"token": "b", "logprob": -1.0}, {"token": "c", "logprob": -2.0}]}),
        delta("de", logprobs={"content": [{"token": "something else", "logprob": -1.0}]}),
        delta(None, finish="length"),
    ]
    return stream(each(*map(event, chunks), event("[DONE]")))


async def endless(endpoint: Endpoint, body: dict[str, Any], _: str) -> Response:
    async def chunks() -> AsyncIterator[bytes]:
        yield event(delta("one"))
        endpoint.started.set()
        await anyio.sleep_forever()

    return stream(endpoint.left(chunks()))


async def silent(endpoint: Endpoint, body: dict[str, Any], _: str) -> Response:
    """Never begin to answer."""

    class Never(Response):
        async def __call__(self, scope: Any, receive: Callable[[], Awaitable[Any]], send: Any) -> None:
            endpoint.started.set()
            while (await receive())["type"] != "http.disconnect":
                pass
            endpoint.num_gone += 1
            endpoint.gone.set()

    return Never()


async def gated(endpoint: Endpoint, body: dict[str, Any], _: str) -> Response:
    """One token; the rest once ``go_on`` is set."""

    async def chunks() -> AsyncIterator[bytes]:
        yield event(delta("one"))
        endpoint.started.set()
        assert await happened(endpoint.go_on)
        yield event(delta(" two", finish="stop")) + event("[DONE]")

    return stream(endpoint.left(chunks()))


async def broken(endpoint: Endpoint, body: dict[str, Any], kind: str) -> Response:
    """Begin well and end badly."""
    ends = {
        "no-finish": b"",
        "done-too-early": event("[DONE]"),
        "garbage": event("{not json"),
        "not-an-object": event("[1, 2]"),
        "latin-1": b'data: {"choices": "\xe9"}\n\n',
        "error": event({"error": {"message": "CUDA out of memory", "type": "server_error"}}),
        "error-text": b"event: error\ndata: upstream went away\n\n",
        "filter": event(delta(None, finish="content_filter")),
        "long-line": b"data: " + b"x" * (2**21),
    }

    async def chunks() -> AsyncIterator[bytes]:
        yield event(delta("one"))
        yield ends[kind]

    return stream(chunks())


async def failing(endpoint: Endpoint, body: dict[str, Any], argument: str) -> Response:
    """``STATUS`` or ``STATUS,SHAPE``: an error answer."""
    status, _, shape = argument.partition(",")
    prompt = body["messages"][-1]["content"]
    shapes: dict[str, Any] = {
        "": {"error": {"message": "it did not work", "type": "x", "param": None, "code": None}},
        "param": {"error": {"message": "temperature must be at most 2", "param": "temperature"}},
        "context": {"error": {"message": "too many tokens", "code": "context_length_exceeded"}},
        "quota": {"error": {"message": "you have used it up", "code": "insufficient_quota"}},
        "text": {"error": "it did not work"},
        "message": {"object": "error", "message": "it did not work"},
        "detail": {"detail": [{"loc": ["body", "top_p"], "msg": "it did not work"}]},
        "echo": {"error": {"message": f"cannot read the prompt {prompt!r}"}},
        "key": {"error": {"message": "wrong key " + endpoint.seen[-1].headers.get("authorization", "")}},
        "wrapped": [{"error": {"message": "it did not work"}}],
    }
    if shape == "html":
        return Response("<html><h1>Bad gateway</h1></html>", int(status), media_type="text/html")
    if shape == "binary":
        return Response(b"\xff\xfe\x00 it did not work", int(status))
    if shape.startswith("after="):
        return JSONResponse(shapes[""], int(status), headers={"Retry-After": shape.removeprefix("after=")})
    return JSONResponse(shapes[shape], int(status))


async def redirecting(endpoint: Endpoint, body: dict[str, Any], _: str) -> Response:
    return RedirectResponse("https://elsewhere.example/v1/chat/completions?token=s3cret", 307)


async def html(endpoint: Endpoint, body: dict[str, Any], _: str) -> Response:
    return Response("<html>Welcome</html>", media_type="text/html")


async def whole(endpoint: Endpoint, body: dict[str, Any], _: str) -> Response:
    """An endpoint that does not know ``stream``."""
    answer = {"message": {"role": "assistant", "content": "All at once."}, "finish_reason": "stop"}
    return JSONResponse({"choices": [answer], "usage": {"prompt_tokens": 5, "completion_tokens": 4}})


async def choosing(endpoint: Endpoint, body: dict[str, Any], answer: str) -> Response:
    """Answer with ``answer`` in two pieces; ``json`` obeys the response format and takes its last choice."""
    if answer.startswith("only-plain="):
        if "response_format" in body:
            message = "'response_format' of type 'json_schema' is not supported"
            return JSONResponse({"error": {"message": message, "param": "response_format"}}, 400)
        answer = answer.removeprefix("only-plain=")
    if answer == "json":
        schema = body["response_format"]["json_schema"]["schema"]
        answer = json.dumps({"choice": schema["properties"]["choice"]["enum"][-1]})
    pieces = [delta(answer[:3]), delta(answer[3:], finish="stop")]
    return stream(each(*map(event, pieces), event("[DONE]")))


BEHAVIOURS: dict[str, Callable[[Endpoint, dict[str, Any], str], Awaitable[Response]]] = {
    "normal": normal,
    "without-usage": without_usage,
    "bytewise": bytewise,
    "logprobs": with_logprobs,
    "endless": endless,
    "silent": silent,
    "gated": gated,
    "broken": broken,
    "failing": failing,
    "redirecting": redirecting,
    "html": html,
    "whole": whole,
    "choosing": choosing,
}


@dataclass
class Certificates:
    """A certificate authority of our own, and files for a server called localhost."""

    authority: trustme.CA
    certificate: Path
    key: Path

    @classmethod
    def made_in(cls, folder: Path, *names: str) -> Certificates:
        authority = trustme.CA()
        issued = authority.issue_cert(*(names or ("localhost", "127.0.0.1")))
        certificate, key = folder / "certificate.pem", folder / "key.pem"
        issued.private_key_pem.write_to_path(key)
        certificate.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
        return cls(authority, certificate, key)

    def client_context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self.authority.configure_trust(context)
        return context


def listening_socket() -> socket.socket:
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(256)
    return listener


@contextmanager
def running_app(
    app: Any, *, certificates: Certificates | None = None, h2_max_concurrent_streams: int = 100
) -> Iterator[str]:
    """Serve an ASGI app through hypercorn and give its URL.

    HTTP/2 over TLS with ``certificates``, else HTTP/1.1.
    """
    listener = listening_socket()
    port = listener.getsockname()[1]
    config = Config()
    config.bind = [f"fd://{listener.detach()}"]
    config.graceful_timeout = 0.0
    config.shutdown_timeout = 5.0
    config.errorlog = None
    config.h2_max_concurrent_streams = h2_max_concurrent_streams
    if certificates is not None:
        config.certfile, config.keyfile = str(certificates.certificate), str(certificates.key)
    with anyio.from_thread.start_blocking_portal() as portal:
        stop = portal.call(anyio.Event)
        served = portal.start_task_soon(lambda: serve(app, config, shutdown_trigger=stop.wait))
        try:
            yield f"{'https' if certificates else 'http'}://localhost:{port}"
        finally:
            portal.call(stop.set)
            served.result(WAIT_S)


Talk = Callable[[anyio.abc.SocketStream], Awaitable[None]]


@contextmanager
def running_tcp_server(talk: Talk) -> Iterator[int]:
    """Hand every connection to ``talk`` and give the port; what still talks at the end is cancelled."""

    async def accept(*, task_status: anyio.abc.TaskStatus[int]) -> None:
        async def handle(client: anyio.abc.SocketStream) -> None:
            async with client:
                with suppress(anyio.BrokenResourceError, anyio.EndOfStream):
                    await talk(client)

        async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener:
            task_status.started(listener.extra(anyio.abc.SocketAttribute.local_port))
            await listener.serve(handle)

    with anyio.from_thread.start_blocking_portal() as portal:
        serving, port = portal.start_task(accept)
        try:
            yield port
        finally:
            serving.cancel()


def unused_port() -> int:
    """Return a port on which nothing listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


async def plain(request: Request) -> Response:
    """Tell a caller which connection it came over."""
    assert request.client is not None
    return PlainTextResponse(f"{request.scope['http_version']} {request.client.port}")
