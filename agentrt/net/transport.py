"""Between httpx2's client and httpcore2's pools: a pool for each origin, so that limits count per host."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterable, AsyncIterator, Iterator
from contextlib import AsyncExitStack, aclosing, contextmanager
from typing import cast

import httpcore2
import httpx2

from agentrt.net.origin_connection import OriginConnection


class DirectTransport(httpx2.AsyncBaseTransport):
    """Sends requests over connections of its own, without proxies."""

    def __init__(self, *, ssl_context: ssl.SSLContext, max_connections_per_host: int, keepalive_s: float) -> None:
        self._ssl_context = ssl_context
        self._max_connections_per_host = max_connections_per_host
        self._keepalive_s = keepalive_s
        self._pools: dict[tuple[bytes, bytes, int | None], _OriginPool] = {}

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        url = request.url
        key = (url.raw_scheme, url.raw_host, url.port)
        if key not in self._pools:
            self._pools[key] = _OriginPool(
                ssl_context=self._ssl_context,
                max_connections=self._max_connections_per_host,
                keepalive_expiry=self._keepalive_s,
            )
        with _errors_of_httpx():
            response = await self._pools[key].handle_async_request(
                httpcore2.Request(
                    request.method,
                    httpcore2.URL(scheme=key[0], host=key[1], port=key[2], target=url.raw_path),
                    headers=request.headers.raw,
                    content=cast(AsyncIterable[bytes], request.stream),
                    extensions=request.extensions,
                )
            )
        return httpx2.Response(
            response.status,
            headers=response.headers,
            stream=_ResponseStream(response),
            extensions=response.extensions,
        )

    async def aclose(self) -> None:
        pools, self._pools = self._pools, {}
        async with AsyncExitStack() as stack:
            for pool in pools.values():
                stack.push_async_callback(pool.aclose)


class _OriginPool(httpcore2.AsyncConnectionPool):
    """httpcore2's pool, which queues, reuses and expires connections, with connections of ours in it."""

    def __init__(self, *, ssl_context: ssl.SSLContext, max_connections: int, keepalive_expiry: float) -> None:
        super().__init__(max_connections=max_connections, keepalive_expiry=keepalive_expiry)
        self._tls = ssl_context
        self._backend = httpcore2.AnyIOBackend()
        self._keepalive_s = keepalive_expiry

    def create_connection(self, origin: httpcore2.Origin) -> httpcore2.AsyncConnectionInterface:
        return OriginConnection(origin, backend=self._backend, ssl_context=self._tls, keepalive_s=self._keepalive_s)


class _ResponseStream(httpx2.AsyncByteStream):
    def __init__(self, response: httpcore2.Response) -> None:
        self._response = response

    async def __aiter__(self) -> AsyncIterator[bytes]:
        with _errors_of_httpx():
            async with aclosing(self._response.aiter_stream()) as chunks:
                async for chunk in chunks:
                    yield chunk

    async def aclose(self) -> None:
        with _errors_of_httpx():
            await self._response.aclose()


@contextmanager
def _errors_of_httpx() -> Iterator[None]:
    """Raise the error of httpx2 that has the same name as httpcore2's."""
    try:
        yield
    except (httpcore2.TimeoutException, httpcore2.NetworkError, httpcore2.ProtocolError) as error:
        kind = getattr(httpx2, type(error).__name__, httpx2.TransportError)
        raise kind(str(error)) from error
    except httpcore2.UnsupportedProtocol as error:
        raise httpx2.UnsupportedProtocol(str(error)) from error
