"""A connection to one origin: made at its first request, HTTP/2 or HTTP/1.1 as the server chooses.

``httpcore2.AsyncHTTPConnection`` does the same, but leaks the TCP socket when a TLS handshake is cancelled,
has each of the calls that waited for a failed connect try again one after another, and always takes its own
HTTP/2 connection, whose faults are told in ``http2_connection``.

One task connects while others wait. When it fails they fail with it: they would meet the same refusal, one
timeout after another. When it was only cancelled, or its own time was short, the next one takes over.
"""

from __future__ import annotations

import ssl

import anyio
import httpcore2

from agentrt.net.http2_connection import MAX_STREAMS, Http2Connection


class OriginConnection(httpcore2.AsyncConnectionInterface):
    """New > connecting > open > closed. ``ssl_context`` is used for https origins only."""

    def __init__(
        self,
        origin: httpcore2.Origin,
        *,
        backend: httpcore2.AsyncNetworkBackend,
        ssl_context: ssl.SSLContext,
        keepalive_s: float,
    ) -> None:
        self._origin = origin
        self._backend = backend
        self._ssl_context = ssl_context
        self._keepalive_s = keepalive_s
        self._lock = anyio.Lock(fast_acquire=True)
        self._num_waiting = 0
        self._inner: httpcore2.AsyncConnectionInterface | None = None
        self._failure: httpcore2.ConnectError | None = None
        self._closed = False

    async def handle_async_request(self, request: httpcore2.Request) -> httpcore2.Response:
        """Send ``request``, connecting first if need be within its ``connect`` timeout.

        Raises:
            httpcore2.ConnectError, ConnectTimeout: no connection.
            httpcore2.ConnectionNotAvailable: another connection must take it.
        """
        if self._inner is None:
            self._num_waiting += 1
            try:
                self._inner = await self._connected(request)
            finally:
                self._num_waiting -= 1
        return await self._inner.handle_async_request(request)

    async def _connected(self, request: httpcore2.Request) -> httpcore2.AsyncConnectionInterface:
        timeout_s = request.extensions.get("timeout", {}).get("connect")
        with anyio.move_on_after(timeout_s):
            async with self._lock:
                if self._inner is not None:
                    return self._inner
                if self._closed:
                    raise httpcore2.ConnectionNotAvailable
                if self._failure is not None:
                    raise httpcore2.ConnectError(str(self._failure)) from self._failure
                try:
                    return await self._connect()
                except httpcore2.ConnectError as error:
                    self._failure = error
                    raise
        raise httpcore2.ConnectTimeout(f"no connection within {timeout_s:g} s")

    async def _connect(self) -> httpcore2.AsyncConnectionInterface:
        host = self._origin.host.decode("ascii")
        stream = await self._backend.connect_tcp(host, self._origin.port)
        if self._origin.scheme == b"https":
            try:
                self._ssl_context.set_alpn_protocols(["h2", "http/1.1"])
                tls_stream = await stream.start_tls(self._ssl_context, host)
            except BaseException:
                with anyio.CancelScope(shield=True):
                    await stream.aclose()
                raise
            tls = tls_stream.get_extra_info("ssl_object")
            if tls is not None and tls.selected_alpn_protocol() == "h2":
                return Http2Connection(self._origin, tls_stream, keepalive_s=self._keepalive_s)
            stream = tls_stream
        return httpcore2.AsyncHTTP11Connection(self._origin, stream, keepalive_expiry=self._keepalive_s)

    async def aclose(self) -> None:
        self._closed = True
        if self._inner is not None:
            with anyio.CancelScope(shield=True):
                await self._inner.aclose()

    # What the pool asks.

    def can_handle_request(self, origin: httpcore2.Origin) -> bool:
        return origin == self._origin

    def can_multiplex(self) -> bool:
        return self._inner is not None and self._inner.can_multiplex()

    def is_connected(self) -> bool:
        return self._inner is not None and self._inner.is_connected()

    def is_available(self) -> bool:
        if self._inner is not None:
            return self._inner.is_available()
        # An https origin will probably speak HTTP/2 and carry them all; a plain one takes one request at a
        # time.
        may_share = self._origin.scheme == b"https" and self._num_waiting < MAX_STREAMS
        return may_share and not self._closed and self._failure is None

    def has_expired(self) -> bool:
        return self._failure is not None if self._inner is None else self._inner.has_expired()

    def is_idle(self) -> bool:
        return self._failure is not None if self._inner is None else self._inner.is_idle()

    def is_closed(self) -> bool:
        return self._closed or self._failure is not None if self._inner is None else self._inner.is_closed()

    def info(self) -> str:
        if self._inner is not None:
            return self._inner.info()
        return "CONNECTION FAILED" if self._failure is not None else "CONNECTING"

    def __repr__(self) -> str:
        return f"<OriginConnection [{self.info()}]>"
