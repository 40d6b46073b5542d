"""From the bytes of a streamed response and their times to the reply they were."""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

Segment = tuple[float, bytes]
"""When bytes were read, and the bytes."""
DONE = b"[DONE]"


@dataclass(frozen=True, slots=True)
class Reply:
    """What a request got. ``arrivals_s``: when each chunk that held text was read.

    ``num_prompt_tokens``, ``num_output_tokens``, ``num_cached_tokens`` are what the server says of itself, None where
    it says nothing (a stream that was hung up on).
    """

    asked_s: float
    arrivals_s: tuple[float, ...]
    stopped: bool = False
    num_prompt_tokens: int | None = None
    num_output_tokens: int | None = None
    num_cached_tokens: int | None = None
    error: str | None = None

    def fault(self, num_prompt_tokens: int, num_output_tokens: int) -> str | None:
        """Return what keeps this reply from counting: a server that answered something else may not look fast."""
        if self.error is not None:
            return self.error
        if not self.arrivals_s:
            return "no text arrived"
        if self.stopped:
            return None
        seen = (self.num_prompt_tokens, self.num_output_tokens)
        if seen != (num_prompt_tokens, num_output_tokens):
            return f"(prompt, output) tokens are {seen}; asked for {(num_prompt_tokens, num_output_tokens)}"
        return None


def read_reply(segments: Sequence[Segment], *, asked_s: float, stopped: bool) -> Reply:
    """Understand a whole response. ``stopped``: the client hung up before its end."""
    raw = b"".join(data for _, data in segments)
    status = raw.split(b"\r\n", 1)[0].split()
    if len(status) < 2 or status[1] != b"200":
        return Reply(asked_s, (), error=raw[:500].decode(errors="replace") or "the connection was closed")
    arrivals: list[float] = []
    usage: dict[str, Any] = {}
    error: str | None = None
    complete = False
    for arrived_s, payload in events(segments):
        if payload == DONE:
            complete = True
            break
        chunk = json.loads(payload)
        usage = chunk.get("usage") or usage
        if chunk.get("error"):
            error = json.dumps(chunk["error"])[:500]
        if any(choice.get("text") for choice in chunk.get("choices") or ()):
            arrivals.append(arrived_s)
    if not complete and not stopped and error is None:
        error = "the stream broke off"
    return Reply(
        asked_s,
        tuple(arrivals),
        stopped=stopped,
        num_prompt_tokens=usage.get("prompt_tokens"),
        num_output_tokens=usage.get("completion_tokens"),
        num_cached_tokens=(usage.get("prompt_tokens_details") or {}).get("cached_tokens"),
        error=error,
    )


def events(segments: Sequence[Segment]) -> Iterator[Segment]:
    """Yield (seconds, payload) of each server-sent event of a response: the time at which its last byte was read."""
    raw = b"".join(data for _, data in segments)
    ends = list(accumulate(len(data) for _, data in segments))
    pieces = list(_body_pieces(raw))
    body = b"".join(raw[start:stop] for start, stop in pieces)
    piece_ends = list(accumulate(stop - start for start, stop in pieces))
    offset = 0
    # A line is complete with its newline; the rest of a stream that was cut off is none.
    for line in body.split(b"\n")[:-1]:
        last = offset + len(line)
        if line.startswith(b"data:"):
            piece = bisect_left(piece_ends, last + 1)
            place = pieces[piece][1] - (piece_ends[piece] - last)
            yield segments[bisect_right(ends, place)][0], line[5:].strip()
        offset = last + 1


def _body_pieces(raw: bytes) -> Iterator[tuple[int, int]]:
    """Yield where in a response its body lies: one piece, or those of the chunked transfer coding."""
    start = raw.find(b"\r\n\r\n") + 4
    if start < 4:
        return
    if b"transfer-encoding: chunked" not in raw[:start].lower():
        yield start, len(raw)
        return
    while (line_end := raw.find(b"\r\n", start)) >= 0:
        size_bytes = int(raw[start:line_end].split(b";")[0], 16)
        if size_bytes == 0:
            return
        start = line_end + 2
        yield start, min(start + size_bytes, len(raw))
        start += size_bytes + 2
        if start >= len(raw):
            return
