"""Server-sent events, read as they come (WHATWG HTML, 9.2.6).

Bytes may be cut anywhere, in the middle of a character or of a line ending. Lines are therefore put together as bytes
(no byte of a UTF-8 character looks like a line ending) and decoded when whole; a line is handed on when its ending has
begun, so that a lone CR holds no token back. The standard replaces bad UTF-8; here it is an error, because a token must
not be changed in silence.
"""

from __future__ import annotations

from dataclasses import dataclass

MAX_EVENT_BYTES = 2**20


class EventStreamError(ValueError):
    """The bytes are not a stream of events; the message says why, without repeating them."""


@dataclass(frozen=True, slots=True)
class ServerSentEvent:
    type: str
    """``message`` unless the server named another."""
    data: str


class EventParser:
    """Turns bytes into events. An event without data is dropped, as is one that the stream's end cuts off."""

    def __init__(self) -> None:
        self._line = bytearray()
        self._skip_newline = False
        self._is_first_line = True
        self._type = ""
        self._data: list[str] = []
        self._num_bytes = 0

    def feed(self, chunk: bytes) -> list[ServerSentEvent]:
        """Return the events that ``chunk`` completes.

        Raises:
            EventStreamError: a line is not UTF-8, or an event is larger than MAX_EVENT_BYTES.
        """
        events = []
        if self._skip_newline and chunk:
            chunk = chunk.removeprefix(b"\n")
            self._skip_newline = False
        self._skip_newline = chunk.endswith(b"\r") or (self._skip_newline and not chunk)
        lines = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        for line in lines[:-1]:
            self._add(line)
            event = self._end_line()
            if event is not None:
                events.append(event)
        self._add(lines[-1])
        return events

    def _add(self, piece: bytes) -> None:
        self._num_bytes += len(piece)
        if self._num_bytes > MAX_EVENT_BYTES:
            raise EventStreamError(f"an event is larger than {MAX_EVENT_BYTES} bytes")
        self._line += piece

    def _end_line(self) -> ServerSentEvent | None:
        try:
            line = self._line.decode("utf-8")
        except UnicodeDecodeError:
            raise EventStreamError("a line is not UTF-8") from None
        if line.startswith(":"):
            self._num_bytes -= len(self._line)
        self._line.clear()
        if self._is_first_line:
            line = line.removeprefix("\N{BYTE ORDER MARK}")
            self._is_first_line = False
        if not line:
            return self._end_event()
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            self._data.append(value)
        elif name == "event":
            self._type = value
        return None

    def _end_event(self) -> ServerSentEvent | None:
        event = ServerSentEvent(self._type or "message", "\n".join(self._data)) if self._data else None
        self._type, self._data, self._num_bytes = "", [], 0
        return event
