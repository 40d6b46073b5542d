"""One streamed request, as the client sees it: a time and bytes for each read, nothing understood yet.

The client shares the machine with the server it measures, so while a run goes on it does nothing but stamp what arrives;
`reply` takes HTTP framing, server-sent events and JSON apart when the run is over. Only HTTP/1.1 without TLS, to 127.0.0.1.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping

from benchmarks.peers.reply import DONE, Segment

HOST = "127.0.0.1"


class Exchange(asyncio.Protocol):
    """A request and what came back: ``segments`` are (seconds, bytes) as they were read.

    ``ended`` resolves when the stream is complete, the connection is gone, or ``close`` was called.
    """

    def __init__(self) -> None:
        self.asked_s = 0.0
        self.segments: list[Segment] = []
        self.stopped = False
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self.segments.append((time.perf_counter(), data))
        before = self.segments[-2][1][-len(DONE) :] if len(self.segments) > 1 else b""
        if DONE in before + data:
            self._end()

    def connection_lost(self, error: Exception | None) -> None:
        self._end()

    def send(self, request: bytes) -> None:
        assert self._transport is not None
        self.asked_s = time.perf_counter()
        self._transport.write(request)

    def close(self) -> None:
        """Hang up. A stream that had not ended counts as ``stopped``, which is no failure."""
        self.stopped = not self.ended.done()
        self._end()

    def _end(self) -> None:
        if not self.ended.done():
            self.ended.set_result(None)
        if self._transport is not None:
            self._transport.abort()


async def ask(port: int, body: Mapping[str, object]) -> Exchange:
    """Send a completion request; its answer arrives in the exchange. The clock starts when the connection stands."""
    content = json.dumps(body).encode()
    head = (
        f"POST /v1/completions HTTP/1.1\r\nHost: {HOST}:{port}\r\nContent-Type: application/json\r\n"
        f"Accept: text/event-stream\r\nConnection: close\r\nContent-Length: {len(content)}\r\n\r\n"
    )
    _, exchange = await asyncio.get_running_loop().create_connection(Exchange, HOST, port)
    exchange.send(head.encode() + content)
    return exchange
