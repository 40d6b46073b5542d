from __future__ import annotations

import os
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.abc
import anyio.lowlevel
import anyio.to_thread
import httpx2
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from agentrt.net.http_pool import HttpPool
from tests.support.http_servers import (
    Certificates,
    plain,
    running_app,
    running_tcp_server,
    unused_port,
)

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates.made_in(tmp_path_factory.mktemp("tls"))


class Counting:
    """An app that counts what is open: / answers with protocol and client port, /endless goes on until
    left."""

    def __init__(self) -> None:
        self.started = threading.Semaphore(0)
        self.gone = threading.Semaphore(0)
        self.app = Starlette(
            routes=[
                Route("/", plain, methods=["GET", "POST"]),
                Route("/endless", self.endless, methods=["GET"]),
                Route("/elsewhere", self.elsewhere),
                Route("/cookie", self.cookie),
            ]
        )

    async def endless(self, request: Request) -> Response:
        async def chunks() -> AsyncIterator[bytes]:
            try:
                yield b"x"
                self.started.release()
                await anyio.sleep_forever()
            finally:
                self.gone.release()

        return StreamingResponse(chunks())

    async def elsewhere(self, request: Request) -> Response:
        return RedirectResponse("https://elsewhere.example/", 302)

    async def cookie(self, request: Request) -> Response:
        response = Response(request.headers.get("cookie", "none"))
        response.set_cookie("session", "1")
        return response


async def acquired(semaphore: threading.Semaphore, times: int = 1) -> None:
    for _ in range(times):
        assert await anyio.to_thread.run_sync(semaphore.acquire, True, 20.0, abandon_on_cancel=True)


@pytest.fixture
def counting() -> Counting:
    return Counting()


@pytest.fixture
def https(counting: Counting, certificates: Certificates) -> Iterator[str]:
    with running_app(counting.app, certificates=certificates) as url:
        yield url


@pytest.fixture
def http(counting: Counting) -> Iterator[str]:
    with running_app(counting.app) as url:
        yield url


@asynccontextmanager
async def pool_of(certificates: Certificates, **options: Any) -> AsyncIterator[HttpPool]:
    pool = HttpPool(ssl_context=certificates.client_context(), **options)
    try:
        yield pool
    finally:
        await pool.aclose()


async def get(pool: HttpPool, url: str, **options: Any) -> str:
    async with pool.stream("GET", url, **options) as response:
        return (await response.read(10_000)).decode()


async def test_calls_share_one_http2_connection(https: str, certificates: Certificates) -> None:
    """Calls to one host, one after another or all at once from a cold start, share one connection."""
    async with pool_of(certificates) as pool:
        answers = set()

        async def call() -> None:
            answers.add(await get(pool, https))

        async with anyio.create_task_group() as tasks:
            for _ in range(50):
                tasks.start_soon(call)
        for _ in range(10):
            await call()
        async with pool.stream("GET", https) as response:
            assert response.http_version == "HTTP/2"
        assert len(answers) == 1
        assert answers.pop().startswith("2 ")


async def test_plain_http_keeps_its_connection(http: str, certificates: Certificates) -> None:
    """An http:// endpoint is spoken to in HTTP/1.1, over a connection that is used again."""
    async with pool_of(certificates) as pool:
        answers = {await get(pool, http) for _ in range(5)}
        assert len(answers) == 1
        assert answers.pop().startswith("1.1 ")


@pytest.mark.parametrize("scheme", ["https", "http"])
async def test_leaving_in_the_middle_stops_the_server(
    scheme: str, counting: Counting, certificates: Certificates, request: pytest.FixtureRequest
) -> None:
    """Whoever leaves an answer in the middle leaves no server working for nobody."""
    url = request.getfixturevalue(scheme)
    async with pool_of(certificates) as pool:
        async with pool.stream("GET", f"{url}/endless") as response:
            assert await anext(response) == b"x"
        await acquired(counting.gone)


async def test_many_left_answers_do_no_harm(https: str, counting: Counting, certificates: Certificates) -> None:
    """More answers left in the middle than a connection has streams: the connection goes on as before."""
    async with pool_of(certificates) as pool:
        before = await get(pool, https)
        for _ in range(120):
            async with pool.stream("GET", f"{https}/endless") as response:
                assert response.status == 200
        await acquired(counting.gone, 120)
        assert await get(pool, https) == before


async def test_waiting_for_headers_can_be_cancelled(counting: Counting, certificates: Certificates, https: str) -> None:
    """A cancelled call disturbs none of those that share its connection."""
    async with pool_of(certificates) as pool, pool.stream("GET", f"{https}/endless") as other:
        assert await anext(other) == b"x"
        async with anyio.create_task_group() as tasks:
            for _ in range(20):
                tasks.start_soon(get, pool, https)
            await anyio.lowlevel.checkpoint()
            tasks.cancel_scope.cancel()
        assert (await get(pool, https)).startswith("2 ")


@pytest.mark.parametrize("scheme", ["https", "http"])
async def test_the_deadline_bounds_a_body_that_stops(
    scheme: str, certificates: Certificates, counting: Counting, request: pytest.FixtureRequest
) -> None:
    """A server that falls silent in the middle is left at the call's deadline."""
    url = request.getfixturevalue(scheme)
    async with pool_of(certificates) as pool:
        with pytest.raises(httpx2.ReadTimeout, match=r"no more of the answer within the call's 0\.2 s"):
            await get(pool, f"{url}/endless", timeout_s=0.2)
        await acquired(counting.gone)


async def test_silence_ends_a_call_without_deadline(https: str, certificates: Certificates) -> None:
    """Without a deadline, silence has an end all the same."""
    async with pool_of(certificates, silence_s=0.2) as pool:
        with pytest.raises(httpx2.ReadTimeout, match=r"within 0\.2 s"):
            await get(pool, f"{https}/endless")


async def test_the_deadline_bounds_a_silent_server(certificates: Certificates) -> None:
    """A server that accepts and never answers is left at the call's deadline."""

    async def hang(client: anyio.abc.SocketStream) -> None:
        await anyio.sleep_forever()

    with running_tcp_server(hang) as port:
        async with pool_of(certificates) as pool:
            with pytest.raises(httpx2.ReadTimeout, match=r"no answer within the call's 0\.2 s"):
                await get(pool, f"http://127.0.0.1:{port}/", timeout_s=0.2)


async def test_a_handshake_that_hangs_is_given_up_and_closed(certificates: Certificates) -> None:
    """A server that never shakes hands costs the connect timeout, and its socket is closed."""
    closed = threading.Semaphore(0)

    async def hang(client: anyio.abc.SocketStream) -> None:
        async for _ in client:
            pass
        closed.release()

    with running_tcp_server(hang) as port:
        async with pool_of(certificates, connect_timeout_s=0.2) as pool:
            with pytest.raises(httpx2.ConnectTimeout, match=r"no connection within 0\.2 s"):
                await get(pool, f"https://localhost:{port}/")
            await acquired(closed)


async def test_those_who_wait_for_a_failed_connect_fail_with_it(certificates: Certificates) -> None:
    """Calls that share a connection attempt share its failure: a host that is down is asked once for all."""
    connections = []

    async def refuse(client: anyio.abc.SocketStream) -> None:
        connections.append(client)
        await client.receive()

    async def call(pool: HttpPool, url: str) -> None:
        with pytest.raises(httpx2.ConnectError):
            await get(pool, url)

    with running_tcp_server(refuse) as port:
        async with pool_of(certificates) as pool, anyio.create_task_group() as tasks:
            for _ in range(20):
                tasks.start_soon(call, pool, f"https://localhost:{port}/")
    assert len(connections) == 1


async def test_a_call_cancelled_before_its_connection_poisons_nothing(http: str, certificates: Certificates) -> None:
    """Calls cancelled between getting and using the only connection leave its place free (httpcore#1093)."""
    async with pool_of(certificates, max_connections_per_host=1) as pool:
        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(get, pool, http)
            await anyio.lowlevel.checkpoint()
            tasks.cancel_scope.cancel()
        assert (await get(pool, http, timeout_s=10)).startswith("1.1 ")


async def test_cancelled_at_every_step_poisons_nothing(https: str, certificates: Certificates) -> None:
    """Wherever in its life a call is cancelled, the pool serves the next one."""
    for num_steps in range(0, 40, 3):
        async with pool_of(certificates, max_connections_per_host=1) as pool:
            async with anyio.create_task_group() as tasks:
                for _ in range(3):
                    tasks.start_soon(get, pool, https)
                for _ in range(num_steps):
                    await anyio.lowlevel.checkpoint()
                tasks.cancel_scope.cancel()
            assert (await get(pool, https, timeout_s=10)).startswith("2 ")


async def test_streams_that_run_out_open_another_connection(counting: Counting, certificates: Certificates) -> None:
    """When a server takes two streams a connection, the third call gets a connection of its own."""
    with running_app(counting.app, certificates=certificates, h2_max_concurrent_streams=2) as url:
        async with pool_of(certificates) as pool:
            first = await get(pool, url)
            async with (
                pool.stream("GET", f"{url}/endless"),
                pool.stream("GET", f"{url}/endless"),
            ):
                assert await get(pool, url) != first
            assert await get(pool, url) == first


async def test_waiting_for_a_stream_is_bounded(counting: Counting, certificates: Certificates) -> None:
    """With every stream of every allowed connection taken, a call waits no longer than its deadline."""
    with running_app(counting.app, certificates=certificates, h2_max_concurrent_streams=1) as url:
        async with pool_of(certificates, max_connections_per_host=1) as pool:
            async with pool.stream("GET", f"{url}/endless"):
                with pytest.raises(httpx2.ReadTimeout, match="no answer within"):
                    await get(pool, url, timeout_s=0.2)
            assert (await get(pool, url)).startswith("2 ")


async def test_a_burst_beyond_the_servers_streams_is_served(counting: Counting, certificates: Certificates) -> None:
    """A cold burst larger than what the server takes at once is queued, not refused."""
    with running_app(counting.app, certificates=certificates, h2_max_concurrent_streams=3) as url:
        async with pool_of(certificates, max_connections_per_host=2) as pool:
            answers = []

            async def call() -> None:
                answers.append(await get(pool, url))

            async with anyio.create_task_group() as tasks:
                for _ in range(60):
                    tasks.start_soon(call)
            assert len(answers) == 60
            assert len(set(answers)) <= 2


async def test_large_bodies_pass(counting: Counting, certificates: Certificates, https: str) -> None:
    """A request body larger than the server's flow-control window is sent whole."""
    body = os.urandom(300_000)

    async def echo(request: Request) -> Response:
        return Response(await request.body())

    app = Starlette(routes=[Route("/", echo, methods=["POST"])])
    with running_app(app, certificates=certificates) as url:
        async with pool_of(certificates) as pool, pool.stream("POST", url, content=body) as response:
            assert await response.read(10**6) == body


async def test_an_unknown_authority_is_refused(https: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    """A certificate that nobody vouches for is an error, with or without other connections open."""
    others = Certificates.made_in(tmp_path_factory.mktemp("others"))
    async with pool_of(others) as pool:
        with pytest.raises(httpx2.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
            await get(pool, https)


async def test_a_certificate_for_another_name_is_refused(
    counting: Counting, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A certificate for another host is an error."""
    others = Certificates.made_in(tmp_path_factory.mktemp("others"), "other.example")
    with running_app(counting.app, certificates=others) as url:
        async with pool_of(others) as pool:
            with pytest.raises(httpx2.ConnectError, match="Hostname mismatch"):
                await get(pool, url)


def test_verification_cannot_be_turned_off(certificates: Certificates) -> None:
    """A context that would trust anybody is refused at once."""
    context = certificates.client_context()
    context.check_hostname = False
    with pytest.raises(ValueError, match="must verify"):
        HttpPool(ssl_context=context)


async def test_the_environments_certificates_are_used(
    https: str, certificates: Certificates, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SSL_CERT_FILE names the authorities to trust."""
    authority = tmp_path / "authority.pem"
    certificates.authority.cert_pem.write_to_path(authority)
    monkeypatch.setenv("SSL_CERT_FILE", str(authority))
    pool = HttpPool()
    assert (await get(pool, https)).startswith("2 ")
    await pool.aclose()


async def test_nobody_there_is_a_connect_error(certificates: Certificates) -> None:
    """A port on which nothing listens is a ConnectError, caused by the refusal."""
    async with pool_of(certificates) as pool:
        with pytest.raises(httpx2.ConnectError):
            await get(pool, f"http://127.0.0.1:{unused_port()}/")


async def test_redirects_are_not_followed(https: str, certificates: Certificates) -> None:
    """A redirect is handed to the caller, credentials and all kept here."""
    async with pool_of(certificates) as pool, pool.stream("GET", f"{https}/elsewhere") as response:
        assert response.status == 302


async def test_cookies_are_not_kept(https: str, certificates: Certificates) -> None:
    """Nothing a server sets comes back with another call."""
    async with pool_of(certificates) as pool:
        assert await get(pool, f"{https}/cookie") == "none"
        assert await get(pool, f"{https}/cookie") == "none"


async def test_the_environments_proxy_is_used(
    certificates: Certificates, http: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Calls go through HTTP_PROXY, except to the hosts of NO_PROXY."""
    asked = []

    async def proxy(client: anyio.abc.SocketStream) -> None:
        asked.append((await client.receive()).split(b"\r\n")[0])
        await client.send(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nby proxy!")

    with running_tcp_server(proxy) as port:
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{port}")
        monkeypatch.setenv("no_proxy", "localhost")
        async with pool_of(certificates) as pool:
            assert await get(pool, "http://far.example/x") == "by proxy!"
            assert (await get(pool, http)).startswith("1.1 ")
    assert asked == [b"GET http://far.example/x HTTP/1.1"]


async def test_a_closed_connection_is_replaced(certificates: Certificates) -> None:
    """A server that closes an idle kept-alive connection costs the next call nothing but a new connection."""
    ports = []
    closed = threading.Semaphore(0)

    async def once(client: anyio.abc.SocketStream) -> None:
        ports.append(client.extra(anyio.abc.SocketAttribute.remote_port))
        await client.receive()
        await client.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        await client.aclose()
        closed.release()

    with running_tcp_server(once) as port:
        async with pool_of(certificates) as pool:
            for _ in range(3):
                assert await get(pool, f"http://127.0.0.1:{port}/") == "ok"
                await acquired(closed)
    assert len(set(ports)) == 3


async def test_a_closed_pool_says_so(https: str, certificates: Certificates) -> None:
    """Closing ends the calls that go on; a call afterwards is our own mistake and says so."""
    pool = HttpPool(ssl_context=certificates.client_context())
    async with pool.stream("GET", f"{https}/endless") as response:
        assert await anext(response) == b"x"
        await pool.aclose()
        with pytest.raises(httpx2.TransportError):
            await anext(response)
    with pytest.raises(RuntimeError, match="was closed"):
        await get(pool, https)
