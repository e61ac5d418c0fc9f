from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kproto.errors import FrameError
from kproto.wire.frame import Frames, frame


def test_a_frame_is_an_int32_size_and_the_body() -> None:
    assert frame(b"abc") == b"\x00\x00\x00\x03abc"


@given(st.lists(st.binary(max_size=20), max_size=6), st.lists(st.integers(0, 120), max_size=6))
def test_the_same_frames_come_out_however_the_stream_is_cut(bodies: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(map(frame, bodies))
    edges = sorted({0, len(stream), *(cut for cut in cuts if cut < len(stream))})
    frames, found = Frames(), list[bytes]()
    for start, end in pairwise(edges):
        found += frames.feed(stream[start:end])
    assert found == bodies
    assert frames.missing == 0


def test_a_frame_is_held_until_its_last_byte() -> None:
    frames = Frames()
    assert not [*frames.feed(b"\x00\x00\x00")]
    assert frames.missing == 1
    assert not [*frames.feed(b"\x02a")]
    assert frames.missing == 1
    assert [*frames.feed(memoryview(b"b"))] == [b"ab"]


def test_a_negative_size_raises() -> None:
    with pytest.raises(FrameError, match="a size of -1"):
        next(Frames().feed(b"\xff\xff\xff\xff"))


def test_a_size_of_the_maximum_passes_and_one_more_raises_before_its_body_arrives() -> None:
    assert [*Frames(max_size=3).feed(frame(b"abc"))] == [b"abc"]
    with pytest.raises(FrameError, match="a size of 4; allowed are 0 to 3"):
        next(Frames(max_size=3).feed(b"\x00\x00\x00\x04"))


def test_the_frames_in_front_of_a_bad_size_come_before_its_error() -> None:
    frames, found = Frames(max_size=3), list[bytes]()
    with pytest.raises(FrameError):
        found += frames.feed(frame(b"abc") + frame(b"a") + frame(b"abcd"))
    assert found == [b"abc", b"a"]


def test_the_error_says_where_in_the_stream_the_size_is() -> None:
    frames = Frames(max_size=3)
    assert [*frames.feed(frame(b"abc"))] == [b"abc"]
    with pytest.raises(FrameError) as caught:
        list(frames.feed(frame(b"a") + frame(b"abcd")))
    assert caught.value.offset == 12


def test_a_broken_stream_stays_broken() -> None:
    frames = Frames()
    with pytest.raises(FrameError):
        next(frames.feed(b"\xff\xff\xff\xff"))
    with pytest.raises(FrameError):
        frames.feed(frame(b"fine"))


def test_no_frame_comes_twice_when_more_is_fed_before_the_first_ones_were_taken() -> None:
    frames = Frames()
    early = frames.feed(frame(b"a") + frame(b"b"))
    assert next(early) == b"a"
    assert [*frames.feed(frame(b"c"))] == [b"b", b"c"]
    assert not [*early]
