"""HTTP/2 frames, as far as the client must know them itself: where each ends, and what a GOAWAY says.

``h2`` closes its state machine when it is shown a GOAWAY, and then refuses every later frame. But a graceful
GOAWAY is a server's way to say "no new streams; those up to this number will be finished" (RFC 9113, 6.8):
nginx sends one after 1,000 requests (``keepalive_requests``), proxies when a connection grows old.
Half-finished answers would be lost each time. So GOAWAY frames are taken out of the bytes before ``h2`` sees
them.
"""

from __future__ import annotations

from dataclasses import dataclass

MAX_FRAME_BYTES = 2**14
"""The largest payload a peer may send as long as we announce nothing else."""
_HEADER_BYTES = 9
_GOAWAY = 0x7


class OversizedFrameError(Exception):
    """The peer sent a frame larger than it may."""


@dataclass(frozen=True, slots=True)
class GoAway:
    """The peer takes no new streams, and has not processed any above ``last_stream_id``."""

    last_stream_id: int
    error_code: int


class FrameSplitter:
    """Cuts a byte stream into whole frames; bytes of an unfinished one wait for the rest."""

    def __init__(self) -> None:
        self._unread = bytearray()

    def split(self, data: bytes) -> list[bytes | GoAway]:
        """Return the frames that ``data`` completes, in order; GOAWAY frames parsed, others as they are.

        Raises:
            OversizedFrameError: a frame announces more than MAX_FRAME_BYTES of payload.
        """
        unread = self._unread
        unread += data
        frames: list[bytes | GoAway] = []
        start = 0
        while len(unread) - start >= _HEADER_BYTES:
            size = int.from_bytes(unread[start : start + 3], "big")
            if size > MAX_FRAME_BYTES:
                raise OversizedFrameError(f"a frame of {size} bytes where {MAX_FRAME_BYTES} are allowed")
            end = start + _HEADER_BYTES + size
            if end > len(unread):
                break
            frame = bytes(unread[start:end])
            frames.append(_parse_goaway(frame) if frame[3] == _GOAWAY and size >= 8 else frame)
            start = end
        del unread[:start]
        return frames


def _parse_goaway(frame: bytes) -> GoAway:
    # The top bit of the stream id is reserved.
    last_stream_id = int.from_bytes(frame[9:13], "big") & 0x7FFF_FFFF
    return GoAway(last_stream_id, int.from_bytes(frame[13:17], "big"))
