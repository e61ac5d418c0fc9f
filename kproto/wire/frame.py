"""Size-prefixed frames out of a byte stream, and into one.

Kafka puts an int32 in front of every request and response: the number of bytes that follow. `Frames` cuts a
stream at these sizes, however the network has cut it before. A size is checked as soon as its four bytes
are there, so a stream never makes us hold more than one frame of the allowed size and the last piece of data.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from ..errors import EncodeError, FrameError

MAX_FRAME_SIZE = 100 * 1024 * 1024
"""Kafka's default of `socket.request.max.bytes`."""

_SIZE = struct.Struct(">i")


def frame(body: bytes) -> bytes:
    """`body` with its size in front. Raises EncodeError if that doesn't fit an int32."""
    try:
        return _SIZE.pack(len(body)) + body
    except struct.error:
        raise EncodeError("frame", -1, "size", f"{len(body)} bytes; a size is an int32") from None


class Frames:
    """Collects the bytes of one connection and gives back whole frames.

    frames = Frames()
    for body in frames.feed(data): ...

    `max_size` is in bytes and without the size prefix.
    """

    def __init__(self, max_size: int = MAX_FRAME_SIZE) -> None:
        self.max_size = max_size
        self._held = bytearray()
        self._at = 0  # of the bytes held: what went out as frames
        self._passed = 0
        self._broken: FrameError | None = None

    def feed(self, data: bytes | bytearray | memoryview) -> Iterator[bytes]:
        """Take the next bytes of the stream; give the bodies of the frames that are complete with them.

        Raises FrameError at a size that is negative or above `max_size`, behind the frames in front of it,
        and on every later call: nobody can say where the next frame of such a stream begins. Close the
        connection then.
        """
        if self._broken is not None:
            raise self._broken
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
        """How many more bytes the frame in progress needs at least; 0 between frames."""
        if not self._held:
            return 0
        if len(self._held) < _SIZE.size:
            return _SIZE.size - len(self._held)
        size: int = _SIZE.unpack_from(self._held)[0]
        return _SIZE.size + size - len(self._held)
