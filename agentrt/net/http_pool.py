"""The one HTTP client of a Runtime: connections are made once, shared by all calls, and closed with the
Runtime.

Policy:

- **HTTP/2 over TLS, shared.** Calls to one host are streams of one connection as long as the server takes
  more; then another connection is opened, up to ``max_connections_per_host``. Plain ``http://`` (most local
  model servers) is HTTP/1.1 with kept-alive connections. Idle connections are kept for ``keepalive_s``.
- **Every wait has an end.** The caller's ``timeout_s`` bounds connecting, queueing for a connection, the
  answer's headers and every chunk; without one, silence of more than ``silence_s`` is an error. The bound is
  a cancel scope around each wait, because a timeout inside httpcore breaks the connection for all who share
  it. The caller's own code between two chunks is never cancelled. What a cancelled call leaves behind is
  nothing: its stream is reset, its place in the queue given up.
- **TLS is always verified**, against the system's certificates or ``SSL_CERT_FILE``/``SSL_CERT_DIR``.
- **Redirects are not followed**: they would carry credentials to another host.
- **No cookies** are kept: calls of different agents share the client, not a session.
- **Nothing is sent twice** unless the server has said that it did not begin it.
- Through a proxy (``HTTPS_PROXY``, ``ALL_PROXY``, ``NO_PROXY``) HTTP/1.1 is spoken, one connection a call.

It rides on httpx2 and httpcore2, the maintained continuation of httpx (same authors and API, BSD-3, typed).
httpx 0.28.1 / httpcore 1.0.9 is poisoned by a call that is cancelled between getting and using a new
connection (httpcore#1093): with one connection allowed, every later call ended in PoolTimeout; httpcore2 2.16
answered 200 in the same trial. The HTTP/2 connection of both is replaced, see ``http2_connection``.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Self
from urllib.parse import urlsplit

import anyio

if TYPE_CHECKING:
    import ssl
    from http.cookiejar import CookieJar

    import httpx2

MAX_CONNECTIONS_PER_HOST = 50
KEEPALIVE_S = 120.0
CONNECT_TIMEOUT_S = 10.0
SILENCE_TIMEOUT_S = 600.0


class HttpPool:
    """Shared HTTP connections, on asyncio or trio; opened at the first request, closed by ``aclose``.

    ``ssl_context`` replaces the default one and must verify certificates and host names.
    """

    def __init__(
        self,
        *,
        ssl_context: ssl.SSLContext | None = None,
        max_connections_per_host: int = MAX_CONNECTIONS_PER_HOST,
        keepalive_s: float = KEEPALIVE_S,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
        silence_s: float = SILENCE_TIMEOUT_S,
    ) -> None:
        if ssl_context is not None and not (
            ssl_context.check_hostname and ssl_context.verify_mode.name == "CERT_REQUIRED"
        ):
            raise ValueError("the ssl_context must verify certificates and host names")
        self._ssl_context = ssl_context
        self._max_connections_per_host = max_connections_per_host
        self._keepalive_s = keepalive_s
        self._connect_timeout_s = connect_timeout_s
        self._silence_s = silence_s
        self._clients: dict[bool, httpx2.AsyncClient] = {}
        self._closed = False

    @asynccontextmanager
    async def stream(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        content: bytes | None = None,
        timeout_s: float | None = None,
    ) -> AsyncIterator[StreamedResponse]:
        """Send a request and give its response as soon as its headers are there.

        ``timeout_s``: seconds for the whole of it, body included. Leaving the block before the body's end
        stops the server: HTTP/2 resets the stream, HTTP/1.1 closes the connection.

        Raises, on entry or while reading:
            httpx2.TimeoutException: ConnectTimeout when no connection came about, else ReadTimeout.
            httpx2.TransportError: the connection could not be made, or broke.
        """
        import httpx2

        bound = _Bound(timeout_s, self._silence_s)
        client = self._client(through_proxy=_has_proxy(url))
        request = client.build_request(method, url, headers=headers, content=content)
        request.extensions["timeout"] = {"connect": min(self._connect_timeout_s, bound.wait_s)}
        async with AsyncExitStack() as stack:
            with anyio.move_on_after(bound.wait_s) as scope:
                response = await client.send(request, stream=True, follow_redirects=False)
                stack.push_async_callback(response.aclose)
            if scope.cancelled_caught:
                raise httpx2.ReadTimeout(f"no answer within {bound}")
            chunks = response.aiter_bytes()
            stack.push_async_callback(chunks.aclose)
            yield StreamedResponse(response, chunks, bound)

    def _client(self, *, through_proxy: bool) -> httpx2.AsyncClient:
        if self._closed:
            raise RuntimeError("this HttpPool was closed")
        if through_proxy not in self._clients:
            import httpx2

            from agentrt.net.transport import DirectTransport

            if self._ssl_context is None:
                self._ssl_context = httpx2.create_ssl_context()
            if through_proxy:
                client = httpx2.AsyncClient(
                    verify=self._ssl_context,
                    timeout=None,
                    cookies=_no_cookies(),
                    limits=httpx2.Limits(
                        max_connections=self._max_connections_per_host, keepalive_expiry=self._keepalive_s
                    ),
                )
            else:
                transport = DirectTransport(
                    ssl_context=self._ssl_context,
                    max_connections_per_host=self._max_connections_per_host,
                    keepalive_s=self._keepalive_s,
                )
                client = httpx2.AsyncClient(transport=transport, timeout=None, cookies=_no_cookies(), trust_env=False)
            self._clients[through_proxy] = client
        return self._clients[through_proxy]

    async def aclose(self) -> None:
        """Close all connections; calls that are still going on fail."""
        self._closed = True
        clients, self._clients = self._clients, {}
        with anyio.CancelScope(shield=True):
            async with AsyncExitStack() as stack:
                for client in clients.values():
                    stack.push_async_callback(client.aclose)


class StreamedResponse:
    """A response; iterate over it for its body, decompressed, as it arrives, every wait bounded."""

    def __init__(self, response: httpx2.Response, chunks: AsyncIterator[bytes], bound: _Bound) -> None:
        self._chunks = chunks
        self._bound = bound
        self.status: int = response.status_code
        self.headers: httpx2.Headers = response.headers
        self.http_version: str = response.http_version

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        with anyio.move_on_after(self._bound.wait_s) as scope:
            return await anext(self._chunks)
        assert scope.cancelled_caught
        import httpx2

        raise httpx2.ReadTimeout(f"no more of the answer within {self._bound}")

    async def read(self, max_bytes: int) -> bytes:
        """Return the body, or its first ``max_bytes``."""
        body = bytearray()
        async for chunk in self:
            body += chunk
            if len(body) >= max_bytes:
                break
        return bytes(body[:max_bytes])


class _Bound:
    """How long the next wait may take: to the call's end, and never longer than the longest silence."""

    def __init__(self, timeout_s: float | None, silence_s: float) -> None:
        self._timeout_s = timeout_s
        self._silence_s = silence_s
        self._end = math.inf if timeout_s is None else anyio.current_time() + timeout_s

    @property
    def wait_s(self) -> float:
        return max(0.0, min(self._silence_s, self._end - anyio.current_time()))

    def __str__(self) -> str:
        if self._timeout_s is not None and self._end <= anyio.current_time():
            return f"the call's {self._timeout_s:g} s"
        return f"{self._silence_s:g} s"


def _no_cookies() -> CookieJar:
    from http.cookiejar import CookieJar, DefaultCookiePolicy

    return CookieJar(DefaultCookiePolicy(allowed_domains=[]))


def _has_proxy(url: str) -> bool:
    """Whether the environment names a proxy for ``url``, as curl, urllib and httpx read it."""
    from urllib.request import getproxies, proxy_bypass

    parts = urlsplit(url)
    proxies = getproxies()
    if not (proxies.get(parts.scheme) or proxies.get("all")):
        return False
    return not proxy_bypass(parts.netloc.rpartition("@")[2])
