"""Responses are taken apart after the run, and each event keeps the time at which its last byte was read."""

from __future__ import annotations

import json

import pytest

from benchmarks.peers.reply import Reply, events, read_reply

PLAIN = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def event(text: str, **more: object) -> bytes:
    return b"data: " + json.dumps({"choices": [{"index": 0, "text": text}], **more}).encode() + b"\n\n"


def in_chunks(*pieces: bytes) -> bytes:
    return b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"


def reply_of(*segments: bytes, stopped: bool = False) -> Reply:
    """Return the reply of a response whose segments were read at 1, 2, 3, ... seconds."""
    stamped = [(float(second), data) for second, data in enumerate(segments, start=1)]
    return read_reply(stamped, asked_s=0.0, stopped=stopped)


def test_an_event_is_stamped_when_its_last_byte_came() -> None:
    """An event split over two reads has the time of the second; two events in one read share theirs."""
    whole = event("a") + event("b")
    got = events([(1.0, PLAIN), (2.0, whole[:10]), (3.0, whole[10:])])
    assert [(seconds, json.loads(payload)["choices"][0]["text"]) for seconds, payload in got] == [
        (3.0, "a"),
        (3.0, "b"),
    ]


@pytest.mark.parametrize("cut", range(1, 80, 7))
def test_the_chunked_coding_may_be_cut_anywhere(cut: int) -> None:
    """Neither where the server cuts its chunks nor where reads cut the bytes changes the text."""
    first, second = event("a"), event("b")
    raw = CHUNKED + in_chunks(first[:5], first[5:] + second[:3], second[3:], b"data: [DONE]\n\n")
    got = [payload for _, payload in events([(1.0, raw[: len(CHUNKED) + cut]), (2.0, raw[len(CHUNKED) + cut :])])]
    assert got == [first.strip()[6:], second.strip()[6:], b"[DONE]"]


def test_chunks_without_text_are_no_arrivals() -> None:
    """The usage chunk and half a character do not count as text; what the server says it used is kept."""
    usage = {"prompt_tokens": 576, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 512}}
    done = b"data: " + json.dumps({"choices": [], "usage": usage}).encode() + b"\n\ndata: [DONE]\n\n"
    reply = reply_of(PLAIN, event("a"), event(""), event("b"), done)
    assert reply == Reply(0.0, (2.0, 4.0), False, 576, 2, 512, None)
    assert reply.fault(576, 2) is None


def test_fewer_tokens_than_asked_for_are_a_fault() -> None:
    """A server that stops early may not look fast."""
    assert Reply(0.0, (1.0,), num_prompt_tokens=128, num_output_tokens=3).fault(128, 128) == (
        "(prompt, output) tokens are (128, 3); asked for (128, 128)"
    )


def test_a_refusal_is_a_fault_that_shows_what_the_server_said() -> None:
    """A status other than 200 carries the beginning of the response."""
    reply = reply_of(b'HTTP/1.1 400 Bad Request\r\n\r\n{"error": "unknown field"}')
    assert "unknown field" in (reply.fault(1, 1) or "")


def test_a_stream_that_breaks_off_is_a_fault_unless_the_client_hung_up() -> None:
    """Only the client may end a stream early."""
    assert reply_of(PLAIN, event("a")).fault(1, 1) == "the stream broke off"
    assert reply_of(PLAIN, event("a"), b"data: {", stopped=True).fault(1, 1) is None
