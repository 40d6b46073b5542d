from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agentrt.models.server_sent_events import (
    MAX_EVENT_BYTES,
    EventParser,
    EventStreamError,
    ServerSentEvent,
)


def parse(*chunks: bytes) -> list[ServerSentEvent]:
    parser = EventParser()
    return [event for chunk in chunks for event in parser.feed(chunk)]


def data_of(*chunks: bytes) -> list[str]:
    return [event.data for event in parse(*chunks)]


@pytest.mark.parametrize(
    ("raw", "data"),
    [
        (b"data: one\n\ndata: two\n\n", ["one", "two"]),
        (b"data: one\r\n\r\ndata: two\r\n\r\n", ["one", "two"]),
        (b"data: one\r\rdata: two\r\r", ["one", "two"]),
        (b"data:no space\n\n", ["no space"]),
        (b"data:  two spaces\n\n", [" two spaces"]),
        (b"data: first\ndata: second\n\n", ["first\nsecond"]),
        (b"data\n\n", [""]),
        (b": a comment\n\ndata: x\n: another\n\n", ["x"]),
        (b"id: 7\nretry: 10\n\n", []),
        (b"unknown: x\ndata: x\n\n", ["x"]),
        (b"\xef\xbb\xbfdata: after a byte order mark\n\n", ["after a byte order mark"]),
        (b"data: [DONE]\n\n", ["[DONE]"]),
        (b"data: cut off by the end\n", []),
        (b"data: a\xc2\x85b\xe2\x80\xa8c\n\n", ["a\x85b\u2028c"]),
    ],
)
def test_events_are_read_as_the_standard_says(raw: bytes, data: list[str]) -> None:
    """Line endings, comments, fields and cut ends follow the standard; other kinds of line break are text."""
    assert data_of(raw) == data


def test_the_type_is_that_of_its_own_event() -> None:
    """An event's name holds for that event alone."""
    raw = b"event: error\ndata: bad\n\ndata: good\n\n"
    assert parse(raw) == [ServerSentEvent("error", "bad"), ServerSentEvent("message", "good")]


texts = st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]), max_size=12)


@given(st.lists(texts, max_size=5), st.sampled_from(["\n", "\r\n", "\r"]), st.data())
@example(texts=["世界"], newline="\r\n", data=None)
def test_events_do_not_depend_on_the_chunks(texts: list[str], newline: str, data: st.DataObject | None) -> None:
    """However the bytes are cut, in the middle of a character or between CR and LF, the events are the same."""
    raw = "".join(f"data: {text}{newline}{newline}" for text in texts).encode()
    chunks = []
    while raw:
        size = 1 if data is None else data.draw(st.integers(1, len(raw)))
        chunks.append(raw[:size])
        raw = raw[size:]
        if data is not None and data.draw(st.booleans()):
            chunks.append(b"")
    assert data_of(*chunks) == texts


def test_a_lone_cr_holds_nothing_back() -> None:
    """An event is there when the first byte of its last line ending is."""
    parser = EventParser()
    assert parser.feed(b"data: x\r\n\r") == [ServerSentEvent("message", "x")]
    assert parser.feed(b"\ndata: y\r\n\r") == [ServerSentEvent("message", "y")]


@pytest.mark.parametrize("piece", [b"x", b"data: y\n"])
def test_an_event_without_end_is_an_error_not_memory(piece: bytes) -> None:
    """A line, or an event of many lines, that never ends is refused at the limit."""
    with pytest.raises(EventStreamError, match="larger than"):
        parse(*[piece] * (2 * MAX_EVENT_BYTES // len(piece)))


def test_comments_may_go_on_for_ever() -> None:
    """Keep-alive comments do not add up to an event that is too large."""
    parser = EventParser()
    for _ in range(3):
        assert parser.feed(b":" + b"x" * (MAX_EVENT_BYTES // 2) + b"\n") == []


def test_bad_utf8_is_an_error_that_does_not_repeat_it() -> None:
    """Bytes that are not UTF-8 are refused rather than replaced."""
    with pytest.raises(EventStreamError, match="not UTF-8"):
        parse(b"data: \xff\xfe\n\n")
