"""Split a byte stream into size-prefixed frames, and prefix a frame with its size.

Kafka puts an int32 in front of every request and response: the number of bytes that follow.

`Frames` divides a stream into frames. The stream may arrive in chunks of any size. A size is checked as soon
as its four bytes have arrived, so at most one frame of the allowed size and the last chunk are buffered.

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

_LISTED = [bytearray()]
# The result of `getrefcount` for an object to which only one list refers. A view of the object's memory
# increases the result.
_OURS_ALONE = getrefcount(_LISTED[0])


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
        self._held = bytearray()
        self._at = 0  # The number of bytes at the start of `_held` that were already returned as frames.
        self._passed = 0
        self._broken: FrameError | None = None

    def feed(self, data: bytes | bytearray | memoryview) -> Iterator[bytes]:
        """Add the next bytes; return an iterator over the bodies of the frames that they complete.

        Raises FrameError for a size that is negative or above `max_size`. The frames before this size are
        yielded first. The caller must then close the connection: the start of the next frame is unknown, and
        every later call raises the same error.
        """
        if self._broken is not None:
            raise self._broken
        if not self._held and type(data) is bytes:  # The fast path: most chunks are one whole frame.
            size = len(data) - _SIZE.size
            if 0 <= size <= self.max_size and _SIZE.unpack_from(data)[0] == size:
                self._passed += len(data)
                return iter((data[_SIZE.size :],))
        self._held += data
        return self._cut()

    def _cut(self) -> Iterator[bytes]:
        held = self._held
        try:
            while len(held) - self._at >= _SIZE.size:
                start = self._at + _SIZE.size
                (size,) = _SIZE.unpack_from(held, self._at)
                if not 0 <= size <= self.max_size:
                    detail = f"a size of {size}; allowed are 0 to {self.max_size}"
                    self._broken = FrameError("frame", -1, "size", self._passed + self._at, detail)
                    self._broken.size = size
                    raise self._broken
                if start + size > len(held):
                    break
                self._at = start + size
                yield bytes(memoryview(held)[start : start + size])
        finally:
            del held[: self._at]
            self._passed += self._at
            self._at = 0

    @property
    def missing(self) -> int:
        """The least number of bytes that the incomplete frame still needs; 0 between frames."""
        if not self._held:
            return 0
        if len(self._held) < _SIZE.size:
            return _SIZE.size - len(self._held)
        size: int = _SIZE.unpack_from(self._held)[0]
        return _SIZE.size + size - len(self._held)


class ReceiveBuffer:
    """Collects the bytes of one connection in place, and returns whole frames without copying them.

        receive_buffer = ReceiveBuffer()
        size = sock.recv_into(receive_buffer.writable())
        for body in receive_buffer.received(size): ...

    The body of a large frame is the `bytearray` into which the socket wrote.

    A large size prefix alone does not make the buffer large. The buffer's size is at most the largest of
    three numbers: twice the bytes of the frame that have arrived, the size of the connection's largest frame
    so far, and `MIN_SIZE`.

    `max_size` is the largest size of a frame in bytes. The first frame may have at most `MAX_FRAME_SIZE`
    bytes, because a peer that announces more does not speak Kafka's protocol.

    The buffers of the last large bodies are reused when nothing else refers to them or to a view of them. A
    small frame frees these buffers, so an idle connection keeps none.
    """

    __slots__ = ("_body", "_filled", "_first", "_given", "_held", "_most", "_size", "max_size")

    MIN_SIZE = 64 * 1024
    # The number of buffers to reuse: one frame is being processed while the next one is being received.
    MAX_REUSED = 2

    def __init__(self, max_size: int = _MAX_INT32) -> None:
        self.max_size = max_size
        # The buffer for small frames and for the start of a large frame. The first byte of the buffer is
        # always the first byte of a frame.
        self._first: bytearray | None = None
        # The number of bytes in `_first` that belong to an incomplete frame.
        self._held = 0
        # The large frame in progress.
        self._body = bytearray()
        # The size of the large frame in progress, in bytes; -1 between large frames.
        self._size = -1
        self._filled = 0
        # The size of the largest frame of this connection so far, in bytes.
        self._most = -1
        # At most `MAX_REUSED` bodies of recent large frames, whose memory may be reused.
        self._given: list[bytearray] = []

    @property
    def expects_more(self) -> bool:
        """Whether a large frame has begun and is not complete yet."""
        return self._size >= 0

    def writable(self) -> memoryview:
        """Return a view of the memory into which the socket writes next.

        Release the view before the next call.
        """
        if self._size < 0:
            if self._first is None:
                self._first = bytearray(self.MIN_SIZE)
            return memoryview(self._first)[self._held :]
        if self._filled == len(self._body):
            self._grow()
        return memoryview(self._body)[self._filled :]

    def received(self, count: int) -> list[bytearray]:
        """Return the bodies of the frames that are complete after `count` more bytes were written.

        Raises FrameError for a size that is negative or above the limit. The caller should then close the
        connection.
        """
        if self._size >= 0:
            self._filled += count
            if self._filled < self._size:
                return []
            body, self._body, self._size = self._body, bytearray(), -1
            self._most = max(self._most, len(body))
            self._given = [*self._given[1 - self.MAX_REUSED :], body]
            return [body]
        assert self._first is not None
        return self._cut(self._first, self._held + count)

    def _cut(self, first: bytearray, end: int) -> list[bytearray]:
        bodies: list[bytearray] = []
        at = 0
        while end - at >= _SIZE.size:
            (size,) = _SIZE.unpack_from(first, at)
            is_first = self._most < 0 and not bodies
            limit = min(self.max_size, MAX_FRAME_SIZE) if is_first else self.max_size
            if not 0 <= size <= limit:
                detail = f"a size of {size}; allowed are 0 to {limit}"
                wrong = FrameError("frame", -1, "size", at, detail)
                wrong.size = size
                wrong.limit = None if is_first else limit
                raise wrong
            stop = at + _SIZE.size + size
            if stop > end:
                # A frame that does not fit into the first buffer gets its own buffer.
                if _SIZE.size + size > len(first):
                    self._begin(size, first[at + _SIZE.size : end])
                    at = end
                break
            bodies.append(first[at + _SIZE.size : stop])
            at = stop
        if bodies:
            self._most = max(self._most, *map(len, bodies))
            self._given = []
        self._held = end - at
        if not self._held:
            self._first = None  # An idle connection keeps no buffer.
        elif at:
            first[: self._held] = first[at:end]
        return bodies

    def _begin(self, size: int, start: bytearray) -> None:
        self._body = self._place(min(size, max(2 * len(start), self._most, self.MIN_SIZE)))
        self._body[: len(start)] = start
        self._size, self._filled = size, len(start)

    def _place(self, size: int) -> bytearray:
        for index in range(len(self._given)):
            if getrefcount(self._given[index]) <= _OURS_ALONE:
                body = self._given.pop(index)
                del body[size:]
                body += bytes(size - len(body))
                return body
        return bytearray(size)

    def _grow(self) -> None:
        larger = bytearray(min(self._size, 2 * self._filled))
        larger[: self._filled] = self._body
        self._body = larger
