"""One HTTP/2 connection that can be left in the middle of an answer. Fits into httpcore2's connection pool.

httpx and httpx2 speak HTTP/2 through a connection class that, measured against hypercorn, fails a runtime
whose calls are cancelled every day (hedges, deadlines, users who leave):

- Leaving an answer sends no RST_STREAM: the server goes on writing for nobody, and ``h2`` goes on counting
  the stream. After 100 answers left in the middle every later request fails with "Max outbound streams is
  100, 100 open", for good.
- A cancelled write loses bytes that ``h2`` believes sent, which ruins the connection for everybody on it.
- A read timeout of one stream fails all the others; a graceful GOAWAY does too.
- A request waits for a free stream slot without a timeout, and a second connection is never opened.

Here instead:

- **Reading goes by turns** among the tasks that wait (see ``reading_turns``); no timeout ever touches the
  socket.
- **Writing is shielded** from cancellation, since a half-written frame breaks all streams. A peer that takes
  no bytes for ``WRITE_STALL_S`` is given up; this is the only wait that can outlast a caller's deadline.
- **Leaving resets the stream** and gives its share of the flow-control window back.
- **Availability is honest**: a connection whose stream slots are taken says so, and the pool opens another
  one.
- **A request is repeated only when the server has said that it did not begin it** (REFUSED_STREAM, or a
  GOAWAY below its stream): ``ConnectionNotAvailable`` tells the pool to send it elsewhere.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator
from dataclasses import dataclass, field
from typing import cast

import anyio
import h2.config
import h2.connection
import h2.errors
import h2.events
import h2.exceptions
import h2.settings
import httpcore2

from agentrt.net.http2_frames import MAX_FRAME_BYTES, FrameSplitter, GoAway, OversizedFrameError
from agentrt.net.reading_turns import ReadingTurns

MAX_STREAMS = 100
"""Streams on one connection, if the peer allows as many: with more, one lost packet holds up too many."""
STREAM_WINDOW_BYTES = 2**20
"""What a server may send ahead of a slow reader on one stream."""
CONNECTION_WINDOW_BYTES = 2**24
WRITE_STALL_S = 5.0
HEALTH_CHECK_S = 1.0
MAX_REFUSALS = 3
_READ_BYTES = 2**16
_WRITE_BYTES = 2**16
_REFUSALS = "agentrt.refusals"


@dataclass(eq=False, slots=True)
class _Stream:
    """One request. States: waiting (id 0) > open > left; ``failure`` is set when the peer reset it."""

    id: int = 0
    events: deque[h2.events.Event] = field(default_factory=deque)
    sent_all: bool = False
    received_all: bool = False
    answered: bool = False
    failure: str | None = None
    refused: bool = False

    @property
    def is_over(self) -> bool:
        """Whether the server will neither send nor read any more of it."""
        return self.received_all or self.failure is not None


class Http2Connection(httpcore2.AsyncConnectionInterface):
    """An HTTP/2 connection over ``network_stream``, which it owns and closes.

    Not yet used > active <> idle > closed. ``broken``: the reason why no stream can go on.
    """

    def __init__(
        self, origin: httpcore2.Origin, network_stream: httpcore2.AsyncNetworkStream, *, keepalive_s: float
    ) -> None:
        self._origin = origin
        self._network_stream = network_stream
        self._keepalive_s = keepalive_s
        self._h2 = h2.connection.H2Connection(
            # As other clients do: some servers send headers that the letter of the RFC forbids.
            config=h2.config.H2Configuration(validate_inbound_headers=False, header_encoding=None)
        )
        self._splitter = FrameSplitter()
        self._streams: dict[int, _Stream] = {}
        self._num_waiting = 0
        self._turns = ReadingTurns(self._read)
        self._write_lock = anyio.Lock(fast_acquire=True)
        self._started = False
        self._settings_known = False
        self._retired = False
        self._broken: str | None = None
        self._closed = False
        self._idle_since: float | None = None
        self._num_requests = 0

    async def handle_async_request(self, request: httpcore2.Request) -> httpcore2.Response:
        """Send ``request`` and return its response as soon as the headers are there.

        Raises:
            httpcore2.ConnectionNotAvailable: the request was not begun; another connection can take it.
            httpcore2.RemoteProtocolError, NetworkError: the connection or the stream broke.
        """
        if not self.is_available():
            raise httpcore2.ConnectionNotAvailable
        stream = _Stream()
        self._num_waiting += 1
        try:
            await self._get_ready(stream)
            self._open(stream, request)
        finally:
            self._num_waiting -= 1
        try:
            await self._send_body(stream, request)
            status, headers = await self._receive_headers(stream, request)
        except BaseException:
            await self._leave(stream)
            raise
        return httpcore2.Response(
            status=status,
            headers=headers,
            content=_Body(self, stream),
            extensions={
                "http_version": b"HTTP/2",
                "network_stream": self._network_stream,
                "stream_id": stream.id,
            },
        )

    async def _get_ready(self, stream: _Stream) -> None:
        """Wait until ``stream`` may be opened; raise ConnectionNotAvailable when it can't be here."""
        if not self._started:
            self._start()
        elif not (self._streams or self._turns.is_reading) and self._is_readable:
            # Bytes on an idle connection are a ping or news of its end: to be known before sending.
            with anyio.move_on_after(HEALTH_CHECK_S):
                await self._turns.read_once()
        # Until the peer has said how many streams it takes, there is one: more could be refused, or worse.
        await self._turns.wait_until(
            stream, lambda: self._settings_known or not self._streams or not self._takes_streams
        )
        if not self._takes_streams or len(self._streams) >= self._max_streams:
            raise httpcore2.ConnectionNotAvailable

    def _start(self) -> None:
        self._started = True
        self._h2.local_settings = h2.settings.Settings(
            client=True,
            initial_values={
                h2.settings.SettingCodes.ENABLE_PUSH: 0,
                h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: STREAM_WINDOW_BYTES,
                h2.settings.SettingCodes.MAX_FRAME_SIZE: MAX_FRAME_BYTES,
                h2.settings.SettingCodes.MAX_HEADER_LIST_SIZE: 2**16,
            },
        )
        self._h2.initiate_connection()
        self._h2.increment_flow_control_window(CONNECTION_WINDOW_BYTES)

    def _open(self, stream: _Stream, request: httpcore2.Request) -> None:
        """Put the request's headers into the write buffer. No await: stream ids must go up on the wire."""
        authority = next((value for name, value in request.headers if name.lower() == b"host"), None)
        if authority is None:
            raise httpcore2.LocalProtocolError("the request has no Host header")
        stream.sent_all = not _has_body(request)
        try:
            stream.id = self._h2.get_next_available_stream_id()
            self._h2.send_headers(
                stream.id,
                [
                    (b":method", request.method),
                    (b":authority", authority),
                    (b":scheme", request.url.scheme),
                    (b":path", request.url.target),
                    *((n.lower(), v) for n, v in request.headers if n.lower() not in _NOT_IN_HTTP2),
                ],
                end_stream=stream.sent_all,
            )
        except h2.exceptions.NoAvailableStreamIDError:
            self._retired = True
            raise httpcore2.ConnectionNotAvailable from None
        except h2.exceptions.ProtocolError as error:
            raise httpcore2.LocalProtocolError(str(error)) from error
        self._streams[stream.id] = stream
        self._idle_since = None
        self._num_requests += 1

    async def _send_body(self, stream: _Stream, request: httpcore2.Request) -> None:
        if not stream.sent_all:
            chunks = aiter(cast(AsyncIterable[bytes], request.stream))
            try:
                async for data in chunks:
                    await self._send_data(stream, data)
            finally:
                if isinstance(chunks, AsyncGenerator):
                    await chunks.aclose()
            if not stream.is_over:
                self._h2.end_stream(stream.id)
                stream.sent_all = True
        await self._flush()

    async def _send_data(self, stream: _Stream, data: bytes) -> None:
        def window() -> int:
            # A stream that is over has no window to ask for: its answer came before its body was needed.
            return 0 if stream.is_over else self._h2.local_flow_control_window(stream.id)

        unsent, num_buffered = memoryview(data), 0
        while unsent:
            if not window():
                await self._flush()
                await self._turns.wait_until(stream, lambda: stream.is_over or window() > 0)
            if stream.is_over:
                return
            size = min(window(), self._h2.max_outbound_frame_size, len(unsent))
            self._h2.send_data(stream.id, bytes(unsent[:size]))
            unsent = unsent[size:]
            num_buffered += size
            if num_buffered >= _WRITE_BYTES:
                # Piece by piece, so that a cancelled caller does not send the rest of a long body first.
                num_buffered = 0
                await self._flush()

    async def _receive_headers(
        self, stream: _Stream, request: httpcore2.Request
    ) -> tuple[int, list[tuple[bytes, bytes]]]:
        while True:
            try:
                event = await self._next_event(stream)
            except httpcore2.RemoteProtocolError:
                if not stream.refused:
                    raise
                refusals = request.extensions[_REFUSALS] = request.extensions.get(_REFUSALS, 0) + 1
                if refusals >= MAX_REFUSALS:
                    raise
                raise httpcore2.ConnectionNotAvailable from None
            if isinstance(event, h2.events.ResponseReceived):
                stream.answered = True
                headers = [(bytes(name), bytes(value)) for name, value in event.headers]
                status = next((value for name, value in headers if name == b":status"), b"")
                if not (len(status) == 3 and status.isdigit()):
                    raise httpcore2.RemoteProtocolError(f"the response has the status {status!r}")
                return int(status), [(name, value) for name, value in headers if not name.startswith(b":")]
            if isinstance(event, h2.events.StreamEnded):
                raise httpcore2.RemoteProtocolError("the server ended the stream without a response")

    async def _next_event(self, stream: _Stream) -> h2.events.Event:
        await self._turns.wait_until(stream, lambda: bool(stream.events) or stream.failure is not None)
        if stream.events:
            return stream.events.popleft()
        raise httpcore2.RemoteProtocolError(stream.failure)

    # Reading.

    async def _read(self) -> None:
        if self._broken is not None:
            raise httpcore2.RemoteProtocolError(self._broken)
        try:
            await self._flush()
            self._receive(await self._network_stream.read(_READ_BYTES))
            await self._flush()
        except httpcore2.NetworkError as error:
            self._break(f"the connection broke ({_describe(error)})")

    def _receive(self, data: bytes) -> None:
        if not data:
            self._break("the server closed the connection")
            return
        try:
            for frame in self._splitter.split(data):
                if isinstance(frame, GoAway):
                    self._receive_goaway(frame)
                    continue
                for event in self._h2.receive_data(frame):
                    self._receive_event(event)
        except (h2.exceptions.ProtocolError, OversizedFrameError) as error:
            self._break(f"the server broke the HTTP/2 protocol: {error}")

    def _receive_event(self, event: h2.events.Event) -> None:
        if isinstance(event, h2.events.RemoteSettingsChanged):
            self._settings_known = True
            self._turns.wake()
            return
        stream = self._streams.get(getattr(event, "stream_id", None) or 0)
        if isinstance(event, h2.events.WindowUpdated):
            if event.stream_id == 0 or stream is not None:
                self._turns.wake(stream)
            return
        if stream is None:
            if isinstance(event, h2.events.DataReceived):
                self._h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            return
        if isinstance(event, h2.events.StreamReset):
            if not stream.received_all:
                stream.failure = f"the server reset the stream ({_error_name(event.error_code)})"
                stream.refused = event.error_code == h2.errors.ErrorCodes.REFUSED_STREAM
            stream.received_all = stream.sent_all = True
        elif isinstance(event, _STREAM_EVENTS):
            stream.events.append(event)
            stream.received_all = stream.received_all or isinstance(event, h2.events.StreamEnded)
        else:
            return
        self._turns.wake(stream)

    def _receive_goaway(self, goaway: GoAway) -> None:
        self._retired = True
        for stream in self._streams.values():
            if stream.id > goaway.last_stream_id and not stream.answered:
                stream.failure = f"the server is leaving ({_error_name(goaway.error_code)})"
                stream.refused = True
        self._turns.wake()

    def _break(self, reason: str) -> None:
        self._broken = self._broken or reason
        for stream in self._streams.values():
            if not stream.received_all and stream.failure is None:
                stream.failure = self._broken
        self._turns.wake()

    # Writing.

    async def _flush(self) -> None:
        """Write what ``h2`` wants written, whole, even when the caller is cancelled meanwhile."""
        async with self._write_lock:
            while self._broken is None and (data := self._h2.data_to_send(_WRITE_BYTES)):
                with anyio.move_on_after(WRITE_STALL_S, shield=True) as scope:
                    try:
                        await self._network_stream.write(data)
                    except httpcore2.NetworkError:
                        # A server that closes often says why first, and that is still to be read.
                        self._retired = True
                        return
                if scope.cancelled_caught:
                    self._break(f"the server took no bytes for {WRITE_STALL_S:g} s")

    async def _leave(self, stream: _Stream) -> None:
        """Forget ``stream``; when it is not over, tell the server to stop."""
        if self._streams.pop(stream.id, None) is None:
            return
        if not self._streams:
            self._idle_since = time.monotonic()
            self._turns.wake()
        if self._broken is None:
            for event in stream.events:
                if isinstance(event, h2.events.DataReceived):
                    self._h2.acknowledge_received_data(event.flow_controlled_length, stream.id)
            if not (stream.sent_all and stream.received_all):
                try:
                    self._h2.reset_stream(stream.id, h2.errors.ErrorCodes.CANCEL)
                except h2.exceptions.ProtocolError as error:
                    self._break(f"the stream could not be reset: {error}")
            # Whoever holds the lock writes until nothing is left. Without the shield a cancelled caller would not
            # even get the free lock, and the server would not be told.
            if not self._write_lock.locked():
                with anyio.CancelScope(shield=True):
                    await self._flush()
        if not self._streams and (self._broken is not None or self._retired):
            await self.aclose()

    async def aclose(self) -> None:
        """Close the connection; streams still open fail."""
        if self._closed:
            return
        self._closed = True
        with anyio.CancelScope(shield=True):
            if self._broken is None and self._started and not self._write_lock.locked():
                self._h2.close_connection()
                await self._flush()
            self._break("the connection was closed")
            await self._network_stream.aclose()

    # What the pool asks.

    @property
    def _takes_streams(self) -> bool:
        return not self._closed and self._broken is None and not self._retired

    @property
    def _max_streams(self) -> int:
        if not self._settings_known:
            return MAX_STREAMS
        return min(MAX_STREAMS, self._h2.remote_settings.max_concurrent_streams)

    @property
    def _is_readable(self) -> bool:
        return bool(self._network_stream.get_extra_info("is_readable"))

    def can_handle_request(self, origin: httpcore2.Origin) -> bool:
        return origin == self._origin

    def can_multiplex(self) -> bool:
        return True

    def is_available(self) -> bool:
        return self._takes_streams and len(self._streams) + self._num_waiting < self._max_streams

    def is_idle(self) -> bool:
        return not self._closed and not self._streams and not self._num_waiting

    def is_closed(self) -> bool:
        return self._closed

    def has_expired(self) -> bool:
        if not self.is_idle():
            return False
        idle_s = 0.0 if self._idle_since is None else time.monotonic() - self._idle_since
        return not self._takes_streams or idle_s > self._keepalive_s

    def info(self) -> str:
        state = "CLOSED" if self._closed else "IDLE" if self.is_idle() else "ACTIVE"
        return f"{str(self._origin)!r}, HTTP/2, {state}, Request Count: {self._num_requests}"

    def __repr__(self) -> str:
        return f"<Http2Connection [{self.info()}]>"


class _Body:
    """The chunks of a response; closing it early resets the stream."""

    def __init__(self, connection: Http2Connection, stream: _Stream) -> None:
        self._connection = connection
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        connection, stream = self._connection, self._stream
        while True:
            event = await connection._next_event(stream)
            if isinstance(event, h2.events.DataReceived):
                connection._h2.acknowledge_received_data(event.flow_controlled_length, stream.id)
                if event.data:
                    yield event.data
            elif isinstance(event, h2.events.StreamEnded):
                return

    async def aclose(self) -> None:
        await self._connection._leave(self._stream)


_STREAM_EVENTS = (h2.events.ResponseReceived, h2.events.DataReceived, h2.events.StreamEnded)
# Hop-by-hop headers are a protocol error in HTTP/2 (RFC 9113, 8.2.2).
_NOT_IN_HTTP2 = frozenset({b"host", b"connection", b"keep-alive", b"transfer-encoding", b"upgrade"})


def _has_body(request: httpcore2.Request) -> bool:
    return any(name.lower() in (b"content-length", b"transfer-encoding") for name, _ in request.headers)


def _describe(error: Exception) -> str:
    return str(error) or type(error.__cause__ or error).__name__


def _error_name(code: int) -> str:
    try:
        return h2.errors.ErrorCodes(code).name
    except ValueError:
        return f"error {code}"
