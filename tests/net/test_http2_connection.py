from __future__ import annotations

import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.abc
import anyio.lowlevel
import anyio.to_thread
import h2.config
import h2.connection
import h2.errors
import h2.events
import h2.exceptions
import h2.settings
import httpcore2
import hyperframe.frame as frames
import pytest

from agentrt.net import http2_connection
from agentrt.net.http2_connection import Http2Connection
from tests.support.http_servers import happened, listening_socket, running_tcp_server

pytestmark = pytest.mark.anyio
OK = [(":status", "200")]


class Server:
    """The server's end of one connection, driven by the test's script through ``h2``."""

    def __init__(self, client: anyio.abc.SocketStream) -> None:
        self.client = client
        self.h2 = h2.connection.H2Connection(
            config=h2.config.H2Configuration(client_side=False, header_encoding="utf-8")
        )
        self.unread: list[h2.events.Event] = []

    async def start(self, **settings: int) -> None:
        self.h2.initiate_connection()
        if settings:
            self.h2.update_settings({h2.settings.SettingCodes[name]: v for name, v in settings.items()})
        await self.flush()

    async def flush(self) -> None:
        if data := self.h2.data_to_send():
            await self.client.send(data)

    async def next(self, kind: type[h2.events.Event]) -> Any:
        """Return the next event of ``kind``, dropping others before it."""
        while True:
            while self.unread:
                event = self.unread.pop(0)
                if isinstance(event, kind):
                    return event
            self.unread += self.h2.receive_data(await self.client.receive())
            await self.flush()

    async def request(self) -> int:
        stream_id: int = (await self.next(h2.events.RequestReceived)).stream_id
        return stream_id

    async def answer(self, stream_id: int, *body: bytes, end: bool = True) -> None:
        self.h2.send_headers(stream_id, OK)
        for data in body:
            self.h2.send_data(stream_id, data)
        if end:
            self.h2.end_stream(stream_id)
        await self.flush()

    async def goaway(self, last_stream_id: int) -> None:
        """Send a GOAWAY past ``h2``, whose state machine would let nothing follow it."""
        frame = frames.GoAwayFrame(0)
        frame.last_stream_id = last_stream_id
        await self.client.send(frame.serialize())


Script = Callable[[Server], Awaitable[None]]


@asynccontextmanager
async def connected(script: Script) -> AsyncIterator[Http2Connection]:
    """Give a connection to a server that follows ``script``; HTTP/2 without TLS, which is the pool's business."""

    async def talk(client: anyio.abc.SocketStream) -> None:
        await script(Server(client))

    with running_tcp_server(talk) as port:
        stream = await httpcore2.AnyIOBackend().connect_tcp("127.0.0.1", port)
        origin = httpcore2.Origin(b"https", b"localhost", port)
        connection = Http2Connection(origin, stream, keepalive_s=120)
        try:
            with anyio.fail_after(20):
                yield connection
        finally:
            await connection.aclose()


def request_to(
    connection: Http2Connection, body: bytes = b"", extensions: dict[str, Any] | None = None
) -> httpcore2.Request:
    url = httpcore2.URL(scheme=b"https", host=b"localhost", port=connection._origin.port, target=b"/")
    headers = [(b"Host", b"localhost")] + ([(b"Content-Length", b"%d" % len(body))] if body else [])
    return httpcore2.Request(
        b"POST" if body else b"GET", url, headers=headers, content=body, extensions=extensions or {}
    )


async def call(connection: Http2Connection, body: bytes = b"") -> tuple[int, bytes]:
    response = await connection.handle_async_request(request_to(connection, body))
    try:
        return response.status, await response.aread()
    finally:
        await response.aclose()


async def test_a_graceful_goaway_loses_no_answer() -> None:
    """A server that says goodbye in the middle of an answer still delivers its rest; then the connection closes."""

    async def script(server: Server) -> None:
        await server.start()
        stream_id = await server.request()
        await server.answer(stream_id, b"first ", end=False)
        await server.goaway(stream_id)
        server.h2.send_data(stream_id, b"second", end_stream=True)
        await server.flush()
        await server.client.receive()

    async with connected(script) as connection:
        assert await call(connection) == (200, b"first second")
        assert not connection.is_available()
        assert connection.is_closed()


async def test_a_request_that_a_goaway_leaves_out_may_go_elsewhere() -> None:
    """A request above the GOAWAY's last stream was not begun: the pool is told to send it elsewhere."""

    async def script(server: Server) -> None:
        await server.start()
        await server.request()
        await server.goaway(0)
        await server.client.receive()

    async with connected(script) as connection:
        with pytest.raises(httpcore2.ConnectionNotAvailable):
            await call(connection)


async def test_a_refused_stream_is_sent_again_only_so_often() -> None:
    """REFUSED_STREAM means "not begun": repeat it, but not for ever."""

    async def script(server: Server) -> None:
        await server.start()
        while True:
            server.h2.reset_stream(await server.request(), h2.errors.ErrorCodes.REFUSED_STREAM)
            await server.flush()

    async with connected(script) as connection:
        request = request_to(connection)
        for _ in range(http2_connection.MAX_REFUSALS - 1):
            with pytest.raises(httpcore2.ConnectionNotAvailable):
                await connection.handle_async_request(request)
        with pytest.raises(httpcore2.RemoteProtocolError, match="REFUSED_STREAM"):
            await connection.handle_async_request(request)


async def test_a_reset_breaks_one_stream_only() -> None:
    """A stream that the server resets fails with the server's reason; its neighbours go on."""

    async def script(server: Server) -> None:
        await server.start()
        first, second = await server.request(), await server.request()
        server.h2.reset_stream(first, h2.errors.ErrorCodes.INTERNAL_ERROR)
        await server.answer(second, b"fine")
        await server.client.receive()

    async with connected(script) as connection:
        outcomes: list[object] = []

        async def one() -> None:
            try:
                outcomes.append(await call(connection))
            except httpcore2.RemoteProtocolError as error:
                outcomes.append(str(error))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(one)
            tasks.start_soon(one)
    assert len(outcomes) == 2
    assert (200, b"fine") in outcomes
    assert "the server reset the stream (INTERNAL_ERROR)" in outcomes


async def test_one_stream_until_the_server_has_said_how_many() -> None:
    """Until the server's SETTINGS arrive, later requests wait; what then is too many may go elsewhere."""
    num_begun = []

    async def script(server: Server) -> None:
        first = await server.request()
        num_begun.append(len(server.h2.streams))
        await server.start(MAX_CONCURRENT_STREAMS=2)
        second = await server.request()
        await server.answer(first)
        await server.answer(second)
        await server.client.receive()

    async with connected(script) as connection:
        outcomes = []

        async def one() -> None:
            try:
                outcomes.append(await call(connection))
            except httpcore2.ConnectionNotAvailable:
                outcomes.append((0, b"elsewhere"))

        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(one)
        assert num_begun == [1]
        assert sorted(outcomes) == [(0, b"elsewhere"), (200, b""), (200, b"")]


async def test_an_answer_before_the_body_ends_the_sending() -> None:
    """A server that answers without wanting the body gets no more of it."""

    async def script(server: Server) -> None:
        await server.start(INITIAL_WINDOW_SIZE=1000)
        stream_id = await server.request()
        await server.answer(stream_id, b"too large")
        await server.next(h2.events.StreamReset)
        await server.answer(await server.request(), b"fine")
        await server.client.receive()

    async with connected(script) as connection:
        assert await call(connection, b"x" * 200_000) == (200, b"too large")
        assert await call(connection) == (200, b"fine")


async def test_a_body_waits_for_the_servers_window() -> None:
    """A body larger than the window is sent as the server makes room, byte for byte."""
    received = bytearray()

    async def script(server: Server) -> None:
        await server.start(INITIAL_WINDOW_SIZE=1000)
        stream_id = await server.request()
        while len(received) < 50_000:
            event = await server.next(h2.events.DataReceived)
            received.extend(event.data)
            server.h2.acknowledge_received_data(event.flow_controlled_length, stream_id)
            await server.flush()
        await server.answer(stream_id)
        await server.client.receive()

    body = bytes(range(250)) * 200
    async with connected(script) as connection:
        assert await call(connection, body) == (200, b"")
    assert bytes(received) == body


async def test_a_ping_on_an_idle_connection_costs_no_new_one() -> None:
    """What arrives while a connection is idle is read before the next request, which uses it all the same."""
    idle = threading.Event()

    async def script(server: Server) -> None:
        await server.start()
        await server.answer(await server.request(), b"one")
        assert await happened(idle)
        server.h2.ping(b"12345678")
        await server.flush()
        await server.next(h2.events.PingAckReceived)
        await server.answer(await server.request(), b"two")
        await server.client.receive()

    async with connected(script) as connection:
        assert await call(connection) == (200, b"one")
        idle.set()
        while not connection._is_readable:
            await anyio.lowlevel.checkpoint()
        assert await call(connection) == (200, b"two")


async def test_an_idle_connection_that_ended_is_found_before_sending() -> None:
    """A connection closed while idle costs the next request no error: it may go elsewhere."""

    async def script(server: Server) -> None:
        await server.start()
        await server.answer(await server.request(), b"one")

    async with connected(script) as connection:
        assert await call(connection) == (200, b"one")
        while not connection._is_readable:
            await anyio.lowlevel.checkpoint()
        with pytest.raises(httpcore2.ConnectionNotAvailable):
            await call(connection)
        assert connection.has_expired()


async def test_leaving_gives_the_flow_control_window_back() -> None:
    """Answers that lie here unread, more than the connection's window in all, do not use it up when they are left."""
    size = http2_connection.STREAM_WINDOW_BYTES // 2

    async def script(server: Server) -> None:
        await server.start()
        while True:
            large = await server.request()
            await server.answer(large, end=False)
            for _ in range(size // 2**14):
                while server.h2.local_flow_control_window(large) < 2**14:
                    await server.next(h2.events.WindowUpdated)
                server.h2.send_data(large, b"x" * 2**14)
                await server.flush()
            await server.answer(await server.request(), b"small")

    async with connected(script) as connection:
        for _ in range(2 * http2_connection.CONNECTION_WINDOW_BYTES // size):
            response = await connection.handle_async_request(request_to(connection))
            # Whoever reads the small answer has to read all of the large one on the way.
            assert await call(connection) == (200, b"small")
            await response.aclose()
        assert connection.is_idle()


async def test_a_write_is_not_cut_by_cancelling() -> None:
    """A call cancelled while its bytes are stuck half-way leaves whole frames behind: the connection goes on."""
    read_on = threading.Event()
    bodies: dict[int, int] = {}

    def serve(listener: socket.socket) -> None:
        server = h2.connection.H2Connection(config=h2.config.H2Configuration(client_side=False))
        server.initiate_connection()
        server.update_settings({h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: 2**24})
        server.increment_flow_control_window(2**24)
        with listener.accept()[0] as client:
            while True:
                client.sendall(server.data_to_send())
                data = client.recv(2**16)
                if not data:
                    return
                for event in server.receive_data(data):
                    if isinstance(event, h2.events.DataReceived):
                        bodies[event.stream_id] = bodies.get(event.stream_id, 0) + len(event.data)
                    elif isinstance(event, h2.events.StreamEnded):
                        server.send_headers(event.stream_id, OK, end_stream=True)
                        client.sendall(server.data_to_send())
                        assert read_on.wait(20)

    with listening_socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2**14)
        port = listener.getsockname()[1]
        stream = await httpcore2.AnyIOBackend().connect_tcp("127.0.0.1", port)
        stream.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2**14)
        connection = Http2Connection(httpcore2.Origin(b"https", b"localhost", port), stream, keepalive_s=120)
        async with anyio.create_task_group() as serving:
            serving.start_soon(anyio.to_thread.run_sync, serve, listener)
            with anyio.fail_after(20):
                assert await call(connection) == (200, b"")
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(call, connection, b"x" * 2**22)
                    await anyio.wait_all_tasks_blocked()
                    tasks.cancel_scope.cancel()
                    read_on.set()
                assert await call(connection) == (200, b"")
            await connection.aclose()
    assert 0 < bodies[3] < 2**22


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "broke the HTTP/2 protocol"),
        (b"\xff\xff\xff\x00\x00\x00\x00\x00\x01", "16777215 bytes"),
        (b"\x00\x00\x04\x08\x00\x00\x00\x00\x01\x00\x00\x00\x00", "broke the HTTP/2 protocol"),
        (b"", "the server closed the connection|the connection broke"),
    ],
)
async def test_a_server_that_speaks_nonsense_is_left(raw: bytes, reason: str) -> None:
    """What is not HTTP/2 is an error that says so, and the end of the connection."""

    async def script(server: Server) -> None:
        await server.client.receive()
        await server.client.send(raw or b"\x00\x00\x00\x04\x00\x00\x00\x00\x00")

    async with connected(script) as connection:
        with pytest.raises(httpcore2.RemoteProtocolError, match=reason):
            await call(connection)
        assert connection.is_closed()


async def test_headers_beyond_measure_are_refused() -> None:
    """A response whose headers grow beyond 64 KiB is an error, not memory."""

    async def script(server: Server) -> None:
        await server.start()
        stream_id = await server.request()
        server.h2.send_headers(stream_id, [*OK, *((f"x-{i}", "y" * 1000) for i in range(200))])
        await server.flush()
        await server.client.receive()

    async with connected(script) as connection:
        with pytest.raises(httpcore2.RemoteProtocolError, match="header"):
            await call(connection)


async def test_a_server_that_reads_nothing_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A peer that takes no bytes holds a shielded write up for a bounded time, and is left."""
    monkeypatch.setattr(http2_connection, "WRITE_STALL_S", 0.2)
    server = h2.connection.H2Connection(config=h2.config.H2Configuration(client_side=False))
    server.initiate_connection()
    server.update_settings({h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: 2**31 - 1})
    server.increment_flow_control_window(2**30)
    with listening_socket() as listener:
        # A size that was set is not grown by the kernel, which would else take in tens of megabytes for nobody.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2**16)
        port = listener.getsockname()[1]
        stream = await httpcore2.AnyIOBackend().connect_tcp("127.0.0.1", port)
        with listener.accept()[0] as accepted:
            accepted.sendall(server.data_to_send())
            connection = Http2Connection(httpcore2.Origin(b"https", b"localhost", port), stream, keepalive_s=120)
            with anyio.fail_after(20):
                with pytest.raises(httpcore2.RemoteProtocolError, match=r"took no bytes for 0\.2 s"):
                    await call(connection, b"x" * 2**24)
            assert connection.is_closed()


async def test_closing_fails_what_is_still_open() -> None:
    """Closing a connection ends the answers that still come over it."""

    async def script(server: Server) -> None:
        await server.start()
        await server.answer(await server.request(), b"one", end=False)
        await server.next(h2.events.ConnectionTerminated)

    async with connected(script) as connection:
        response = await connection.handle_async_request(request_to(connection))
        chunks = response.aiter_stream()
        assert await anext(chunks) == b"one"
        await connection.aclose()
        with pytest.raises(httpcore2.RemoteProtocolError, match="was closed"):
            await anext(chunks)
        await response.aclose()
