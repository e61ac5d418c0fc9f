from __future__ import annotations

import tracemalloc
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kproto.errors import FrameError
from kproto.wire.frame import Frames, ReceiveBuffer, frame


def test_a_frame_is_an_int32_size_and_the_body() -> None:
    assert frame(b"abc") == b"\x00\x00\x00\x03abc"
    assert frame(b"a", b"", b"bc") == b"\x00\x00\x00\x03abc"


@given(st.lists(st.binary(max_size=20), max_size=6), st.lists(st.integers(0, 120), max_size=6))
def test_frames_do_not_depend_on_how_the_stream_is_split(bodies: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(map(frame, bodies))
    edges = sorted({0, len(stream), *(cut for cut in cuts if cut < len(stream))})
    frames, received = Frames(), list[bytes]()
    for start, end in pairwise(edges):
        received += frames.feed(stream[start:end])
    assert received == bodies
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


def test_the_maximum_size_is_accepted_and_a_larger_one_raises_before_its_body_arrives() -> None:
    assert [*Frames(max_size=3).feed(frame(b"abc"))] == [b"abc"]
    with pytest.raises(FrameError, match="a size of 4; allowed are 0 to 3"):
        next(Frames(max_size=3).feed(b"\x00\x00\x00\x04"))


def test_frames_before_an_invalid_size_are_returned_before_its_error() -> None:
    frames, bodies = Frames(max_size=3), list[bytes]()
    with pytest.raises(FrameError):
        bodies += frames.feed(frame(b"abc") + frame(b"a") + frame(b"abcd"))
    assert bodies == [b"abc", b"a"]


def test_the_error_has_the_offset_of_the_size_in_the_stream() -> None:
    frames = Frames(max_size=3)
    assert [*frames.feed(frame(b"abc"))] == [b"abc"]
    with pytest.raises(FrameError) as caught:
        list(frames.feed(frame(b"a") + frame(b"abcd")))
    assert caught.value.offset == 12


def test_a_stream_with_an_invalid_size_raises_on_every_call() -> None:
    frames = Frames()
    with pytest.raises(FrameError):
        next(frames.feed(b"\xff\xff\xff\xff"))
    with pytest.raises(FrameError):
        frames.feed(frame(b"fine"))


def test_no_frame_is_returned_twice_if_more_is_fed_before_the_first_are_consumed() -> None:
    frames = Frames()
    early = frames.feed(frame(b"a") + frame(b"b"))
    assert next(early) == b"a"
    assert [*frames.feed(frame(b"c"))] == [b"b", b"c"]
    assert not [*early]


def received(stream: bytes, edges: list[int]) -> tuple[list[bytes], int]:
    """Return the frames of a stream that arrives in pieces of these sizes, and the largest buffer size."""
    receive_buffer, bodies, at, most = ReceiveBuffer(), list[bytes](), 0, 0
    pieces = iter([*edges, *[len(stream)] * len(stream)])
    while at < len(stream):
        room = receive_buffer.writable()
        most = max(most, len(room))
        piece = stream[at : at + min(max(1, next(pieces)), len(room))]
        room[: len(piece)] = piece
        at += len(piece)
        bodies += map(bytes, receive_buffer.received(len(piece)))
    return bodies, most


@given(
    st.lists(st.integers(0, 300_000), max_size=5),
    st.lists(st.integers(1, 70_000), max_size=30),
)
def test_received_frames_do_not_depend_on_how_the_stream_is_split(
    sizes: list[int], pieces: list[int]
) -> None:
    bodies = [bytes([size % 251]) * size for size in sizes]
    assert received(b"".join(map(frame, bodies)), pieces)[0] == bodies


def test_the_last_bytes_of_a_large_frame_are_not_copied() -> None:
    receive_buffer = ReceiveBuffer()
    receive_buffer.writable()[:4] = (2 * ReceiveBuffer.MIN_SIZE).to_bytes(4, "big")
    receive_buffer.received(4)
    bodies: list[bytearray] = []
    room = receive_buffer.writable()
    while not bodies:
        room = receive_buffer.writable()
        bodies = receive_buffer.received(len(room))
    room[-1:] = b"x"
    assert bodies[0][-1:] == b"x"


@pytest.mark.parametrize("claimed", [2**20, 100 << 20])
def test_a_size_alone_allocates_no_memory(claimed: int) -> None:
    receive_buffer = ReceiveBuffer()
    receive_buffer.writable()[:4] = claimed.to_bytes(4, "big")
    receive_buffer.received(4)
    arrived = 0
    for _ in range(4):
        room = receive_buffer.writable()
        assert len(room) <= max(ReceiveBuffer.MIN_SIZE, arrived)
        arrived += len(room)
        receive_buffer.received(len(room))


def test_after_a_large_frame_the_next_buffer_has_its_size_at_once() -> None:
    receive_buffer = ReceiveBuffer()
    big = frame(bytes(1 << 20))
    for _ in range(2):
        at, reads = 0, 0
        while at < len(big):
            room = receive_buffer.writable()
            take = min(len(room), len(big) - at)
            room[:take] = big[at : at + take]
            receive_buffer.received(take)
            at, reads = at + take, reads + 1
    assert reads == 2


def arrives(receive_buffer: ReceiveBuffer, stream: bytes) -> list[bytearray]:
    bodies: list[bytearray] = []
    while stream:
        room = receive_buffer.writable()
        count = min(len(room), len(stream))
        room[:count] = stream[:count]
        room.release()
        bodies += receive_buffer.received(count)
        stream = stream[count:]
    return bodies


LARGE = 2 * ReceiveBuffer.MIN_SIZE


@given(st.lists(st.tuples(st.sampled_from((LARGE, LARGE, LARGE + 9, 9)), st.integers(0, 3)), max_size=8))
def test_a_buffer_with_a_view_is_never_reused(frames: list[tuple[int, int]]) -> None:
    receive_buffer, held = ReceiveBuffer(), list[tuple[memoryview, bytes]]()
    for number, (size, views_held) in enumerate(frames):
        body = bytes([number + 1]) * size
        (body_,) = arrives(receive_buffer, frame(body))
        assert body_ == body
        held.append((memoryview(body_)[size // 2 :], body[size // 2 :]))
        del body_
        del held[: max(0, len(held) - views_held)]
        assert all(view == before for view, before in held)


def test_a_large_frame_reuses_an_unreferenced_buffer() -> None:
    receive_buffer = ReceiveBuffer()
    places: set[int] = set()
    for size in (LARGE, LARGE - 9, LARGE):
        (body,) = arrives(receive_buffer, frame(bytes(size)))
        places.add(id(body))
        del body
    assert len(places) == 1


def test_a_small_frame_releases_the_large_buffers() -> None:
    receive_buffer = ReceiveBuffer()
    tracemalloc.start()
    try:
        arrives(receive_buffer, frame(bytes(64 * LARGE)))
        assert tracemalloc.get_traced_memory()[0] > 64 * LARGE
        arrives(receive_buffer, frame(b"nothing new"))
        assert tracemalloc.get_traced_memory()[0] < LARGE
    finally:
        tracemalloc.stop()


def test_the_first_frame_of_a_connection_may_not_be_larger_than_a_request() -> None:
    receive_buffer = ReceiveBuffer()
    receive_buffer.writable()[:4] = b"HTTP"
    with pytest.raises(FrameError, match="a size of 1213486160"):
        receive_buffer.received(4)


def test_a_later_frame_may_have_any_int32_size() -> None:
    receive_buffer = ReceiveBuffer()
    receive_buffer.writable()[:9] = frame(b"a") + b"HTTP"
    assert receive_buffer.received(9) == [b"a"]
    assert len(receive_buffer.writable()) == ReceiveBuffer.MIN_SIZE


def test_a_later_frame_may_not_be_larger_than_the_limit_of_the_buffer() -> None:
    receive_buffer = ReceiveBuffer(2000)
    receive_buffer.writable()[:9] = frame(b"a") + (2000).to_bytes(4, "big")
    assert receive_buffer.received(9) == [b"a"]
    receive_buffer = ReceiveBuffer(2000)
    receive_buffer.writable()[:9] = frame(b"a") + (2001).to_bytes(4, "big")
    with pytest.raises(FrameError, match="a size of 2001; allowed are 0 to 2000"):
        receive_buffer.received(9)


def test_a_receive_buffer_rejects_a_negative_size() -> None:
    receive_buffer = ReceiveBuffer()
    receive_buffer.writable()[:9] = frame(b"a") + b"\xff\xff\xff\xff"
    with pytest.raises(FrameError, match="a size of -1"):
        receive_buffer.received(9)
