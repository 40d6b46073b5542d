from __future__ import annotations

import hyperframe.frame as frames
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrt.net.http2_frames import MAX_FRAME_BYTES, FrameSplitter, GoAway, OversizedFrameError


def data_frame(body: bytes) -> bytes:
    frame = frames.DataFrame(1)
    frame.data = body
    return frame.serialize()


def goaway(last_stream_id: int, error_code: int, debug: bytes) -> bytes:
    frame = frames.GoAwayFrame(0)
    frame.last_stream_id, frame.error_code, frame.additional_data = last_stream_id, error_code, debug
    return frame.serialize()


pieces = st.one_of(
    st.binary(max_size=40).map(lambda body: (data_frame(body), None)),
    st.builds(
        lambda last, code, debug: (goaway(last, code, debug), GoAway(last, code)),
        st.integers(0, 2**31 - 1),
        st.integers(0, 13),
        st.binary(max_size=20),
    ),
)


@given(st.lists(pieces, max_size=8), st.data())
def test_frames_come_out_whole_however_the_bytes_are_cut(
    sent: list[tuple[bytes, GoAway | None]], data: st.DataObject
) -> None:
    """Whatever the borders of the chunks, frames come out whole and in order, and GOAWAYs are read."""
    raw = b"".join(frame for frame, _ in sent)
    splitter, got = FrameSplitter(), []
    while raw:
        size = data.draw(st.integers(1, len(raw)))
        got += splitter.split(raw[:size])
        raw = raw[size:]
    assert got == [goaway or frame for frame, goaway in sent]


def test_a_frame_larger_than_allowed_is_refused_by_its_header() -> None:
    """A frame that announces more than allowed is refused before its bytes are collected."""
    header = (MAX_FRAME_BYTES + 1).to_bytes(3, "big") + b"\x00\x00\x00\x00\x00\x01"
    with pytest.raises(OversizedFrameError, match="16385 bytes"):
        FrameSplitter().split(header)
