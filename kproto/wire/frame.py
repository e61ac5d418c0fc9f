"""Split a byte stream into size-prefixed frames, and prefix a frame with its size.

Kafka puts an int32 in front of every request and response: the number of bytes that follow.

`Frames` divides a stream into frames. The stream may arrive in chunks of any size. A size is checked as soon
as its four bytes have arrived, and a frame that is too large is rejected. So the buffer holds at most one
frame of the allowed size and the last chunk.

`ReceiveBuffer` does the same for sockets that receive with `recv_into`, and does not copy large frames.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from sys import getrefcount

from ..errors import EncodeError, FrameError

# The largest size of a frame in bytes: Kafka's default of `socket.request.max.bytes`.
MAX_FRAME_SIZE = 100 * 1024 * 1024

_MAX_INT32 = 2**31 - 1

_SIZE = struct.Struct(">i")

_BUFFER_IN_LIST = [bytearray()]
# The result of `getrefcount` for an object to which only one list refers. A view of the object's memory
# increases the result.
_REFCOUNT_OF_UNUSED = getrefcount(_BUFFER_IN_LIST[0])


def frame(*body: bytes) -> bytes:
    """Return a frame: the body's size, then its pieces. Raises EncodeError if the body has 2 GiB or more."""
    size = sum(map(len, body))
    try:
        return b"".join((_SIZE.pack(size), *body))
    except struct.error:
        raise EncodeError("frame", -1, "size", f"{size} bytes; at most 2**31-1 are allowed") from None


class Frames:
    """Collects the bytes of one connection and returns whole frames.

        frames = Frames()
        for body in frames.feed(data): ...

    `max_size` is the largest size of a body in bytes.
    """

    def __init__(self, max_size: int = MAX_FRAME_SIZE) -> None:
        self.max_size = max_size
        self._buffer = bytearray()
        # The number of bytes at the start of `_buffer` that were already returned as frames.
        self._consumed = 0
        # The offset within the stream of the first byte in `_buffer`.
        self._stream_offset = 0
        # The error of an invalid size. Every later call of `feed` raises it.
        self._error: FrameError | None = None

    def feed(self, data: bytes | bytearray | memoryview) -> Iterator[bytes]:
        """Add the next bytes; return an iterator over the bodies of the frames that they complete.

        Raises FrameError for a size that is negative or above `max_size`. The frames before the invalid size
        are yielded first. After the error, the caller must close the connection: the start of the next frame
        is unknown, and every later call raises the same error.
        """
        if self._error is not None:
            raise self._error
        if not self._buffer and type(data) is bytes:  # The fast path: most chunks are one whole frame.
            size = len(data) - _SIZE.size
            if 0 <= size <= self.max_size and _SIZE.unpack_from(data)[0] == size:
                self._stream_offset += len(data)
                return iter((data[_SIZE.size :],))
        self._buffer += data
        return self._split_frames()

    def _split_frames(self) -> Iterator[bytes]:
        """Yield the bodies of the complete frames in the buffer; then remove these frames."""
        buffer = self._buffer
        try:
            while len(buffer) - self._consumed >= _SIZE.size:
                body_start = self._consumed + _SIZE.size
                (size,) = _SIZE.unpack_from(buffer, self._consumed)
                if not 0 <= size <= self.max_size:
                    detail = f"a size of {size}; allowed are 0 to {self.max_size}"
                    offset = self._stream_offset + self._consumed
                    self._error = FrameError("frame", -1, "size", offset, detail)
                    self._error.size = size
                    raise self._error
                body_end = body_start + size
                if body_end > len(buffer):
                    break
                self._consumed = body_end
                yield bytes(memoryview(buffer)[body_start:body_end])
        finally:
            del buffer[: self._consumed]
            self._stream_offset += self._consumed
            self._consumed = 0

    @property
    def missing(self) -> int:
        """The least number of bytes that the incomplete frame still needs; 0 between frames."""
        if not self._buffer:
            return 0
        if len(self._buffer) < _SIZE.size:
            return _SIZE.size - len(self._buffer)
        size: int = _SIZE.unpack_from(self._buffer)[0]
        return _SIZE.size + size - len(self._buffer)


class ReceiveBuffer:
    """Collects the bytes of one connection in place, and returns whole frames without copying them.

        receive_buffer = ReceiveBuffer()
        size = sock.recv_into(receive_buffer.writable())
        for body in receive_buffer.received(size): ...

    The body of a large frame is the `bytearray` into which the socket wrote.

    A large size prefix alone does not make the buffer large. The buffer's size is at most the largest of
    three numbers: twice the bytes of the frame that have arrived, the size of the connection's largest frame
    so far, and `MIN_SIZE`.

    `max_size` limits the size of every frame, in bytes. `MAX_FRAME_SIZE` also limits the first frame, because
    a peer whose first frame is larger probably does not speak Kafka's protocol.

    The buffers of the last large bodies are reused when nothing else refers to them or to a view of them. A
    small frame frees these buffers, so an idle connection keeps none.
    """

    __slots__ = (
        "_body",
        "_body_filled",
        "_body_size",
        "_incomplete",
        "_largest_size",
        "_reusable",
        "_shared",
        "max_size",
    )

    MIN_SIZE = 64 * 1024
    # The number of buffers to reuse: one frame is being processed while the next one is being received.
    MAX_REUSED = 2

    def __init__(self, max_size: int = _MAX_INT32) -> None:
        self.max_size = max_size
        # The buffer for small frames and for the start of a large frame. The first byte of the buffer is
        # always the first byte of a frame.
        self._shared: bytearray | None = None
        # The number of bytes in `_shared` that belong to an incomplete frame.
        self._incomplete = 0
        # The buffer for the body of the large frame in progress. It grows while bytes arrive.
        self._body = bytearray()
        # The size in bytes of the complete body in `_body`; -1 between large frames.
        self._body_size = -1
        # The number of bytes of this body that have arrived.
        self._body_filled = 0
        # The size of the largest frame of this connection so far, in bytes; -1 before the first frame.
        self._largest_size = -1
        # At most `MAX_REUSED` bodies of recent large frames, whose memory may be reused.
        self._reusable: list[bytearray] = []

    @property
    def expects_more(self) -> bool:
        """Whether a large frame has begun and is not complete yet."""
        return self._body_size >= 0

    def writable(self) -> memoryview:
        """Return a view of the memory into which the socket writes next.

        The caller must release the view before it calls another method.
        """
        if self._body_size < 0:
            if self._shared is None:
                self._shared = bytearray(self.MIN_SIZE)
            return memoryview(self._shared)[self._incomplete :]
        if self._body_filled == len(self._body):
            self._grow_body()
        return memoryview(self._body)[self._body_filled :]

    def received(self, count: int) -> list[bytearray]:
        """Return the bodies of the frames that are complete after `count` more bytes were written.

        Raises FrameError for a size that is negative or above the limit. The caller should then close the
        connection.
        """
        if self._body_size >= 0:
            self._body_filled += count
            if self._body_filled < self._body_size:
                return []
            body, self._body, self._body_size = self._body, bytearray(), -1
            self._largest_size = max(self._largest_size, len(body))
            self._reusable = [*self._reusable[1 - self.MAX_REUSED :], body]
            return [body]
        assert self._shared is not None
        return self._split_frames(self._shared, self._incomplete + count)

    def _split_frames(self, shared: bytearray, end: int) -> list[bytearray]:
        """Remove the complete frames from the first `end` bytes of `shared`, and return their bodies.

        The last frame may be incomplete. If it fits into `shared`, its bytes move to the start of `shared`.
        Otherwise they move to a separate buffer.
        """
        bodies: list[bytearray] = []
        start = 0
        while end - start >= _SIZE.size:
            (size,) = _SIZE.unpack_from(shared, start)
            is_first_frame = self._largest_size < 0 and not bodies
            limit = min(self.max_size, MAX_FRAME_SIZE) if is_first_frame else self.max_size
            if not 0 <= size <= limit:
                detail = f"a size of {size}; allowed are 0 to {limit}"
                error = FrameError("frame", -1, "size", start, detail)
                error.size = size
                error.limit = None if is_first_frame else limit
                raise error
            frame_end = start + _SIZE.size + size
            if frame_end > end:
                # A frame that does not fit into the shared buffer gets its own buffer.
                if _SIZE.size + size > len(shared):
                    self._begin_large_frame(size, shared[start + _SIZE.size : end])
                    start = end
                break
            bodies.append(shared[start + _SIZE.size : frame_end])
            start = frame_end
        if bodies:
            self._largest_size = max(self._largest_size, *map(len, bodies))
            self._reusable = []
        self._incomplete = end - start
        if not self._incomplete:
            self._shared = None  # An idle connection keeps no buffer.
        elif start:
            shared[: self._incomplete] = shared[start:end]
        return bodies

    def _begin_large_frame(self, size: int, start: bytearray) -> None:
        """Provide a buffer for a body of `size` bytes, and copy `start`, the bytes that have arrived."""
        self._body = self._take_buffer(min(size, max(2 * len(start), self._largest_size, self.MIN_SIZE)))
        self._body[: len(start)] = start
        self._body_size, self._body_filled = size, len(start)

    def _take_buffer(self, size: int) -> bytearray:
        """Return a buffer of `size` bytes: an earlier body that is no longer used, or a new buffer."""
        for index in range(len(self._reusable)):
            if getrefcount(self._reusable[index]) <= _REFCOUNT_OF_UNUSED:
                body = self._reusable.pop(index)
                del body[size:]
                body += bytes(size - len(body))
                return body
        return bytearray(size)

    def _grow_body(self) -> None:
        """Double the size of the body's buffer, which is full, up to the size of the body."""
        larger = bytearray(min(self._body_size, 2 * self._body_filled))
        larger[: self._body_filled] = self._body
        self._body = larger
