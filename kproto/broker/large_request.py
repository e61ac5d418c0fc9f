"""Requests with many elements, which are divided and served piece by piece.

A request of one megabyte can name a million groups. So that other clients need not wait, a step of the
machine serves at most `PIECE` elements of a request. Kafka has several threads instead.

* Each piece is a complete request. The responses to all pieces are joined into one response.

* Requests are divided, and responses joined, as bytes. So memory use is proportional to the sizes of the
  request and its response.

* Only requests of APIs with `Api.divided` are divided: their elements are independent of each other. Any
  other request is served whole, and may have at most `MAX_ELEMENTS` elements.

* An element with more than `MAX_OF_ONE` elements of its own, such as the partitions of a topic, is divided,
  too. The response then has several entries for the topic.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from typing import Any, Final
from uuid import UUID

from ..error_codes import ErrorCode
from ..errors import DecodeError
from ..messages.headers import encode_response, response_header_version
from ..wire.message import Message
from ..wire.skimmer import Division, divide, find_array
from .call import replace_fields

CORRELATION_ID_SIZE: Final = 4
# A frame of at most this size in bytes is never divided: serving its elements takes less than 50 ms.
SMALL_FRAME: Final = 16 << 10
# A request whose frame is larger than this size in bytes is served in the step after the one that received
# it. Both steps copy the frame, which takes milliseconds. Other clients are served between the two steps.
HUGE_FRAME: Final = 1 << 20
# The maximum number of elements in a piece. The slowest APIs take 13 µs for each element.
PIECE: Final = 1000
# An element with more nested elements than this, such as a topic with more partitions, is itself divided.
MAX_OF_ONE: Final = 5000
# The maximum number of elements in a request that cannot be divided. Such a request takes up to 6 µs per
# element.
MAX_ELEMENTS: Final = 20_000


class LargeRequest:
    """A request that is served in pieces.

    For each piece, the machine calls `next_frame`, serves the frame, and passes the response to
    `add_response`.

    `body` is the offset of the request's body in `frame`. With `unique`, repeated elements of the divided
    array are served once.

    `divided` is the name of the array of results in the response, or None if the request cannot be divided.
    """

    def __init__(
        self,
        frame: bytes,
        body: int,
        request: type[Message],
        version: int,
        random_id: UUID,
        divided: str | None,
        *,
        unique: bool,
    ) -> None:
        self.random_id = random_id
        # The error that `Server.fail` injects into the request.
        self.injected_error: ErrorCode | None = None
        self._frame = frame
        self._header = frame[:body]
        self._request = request
        self._version = version
        self._divided = divided
        max_elements, max_of_one = (PIECE, MAX_OF_ONE) if divided else (MAX_ELEMENTS, MAX_ELEMENTS)
        # The division in progress, or None when `_pieces` has its result.
        self._division: Generator[None, None, Division] | None = divide(
            request, frame, body, version, max_elements, max_of_one, unique=unique
        )
        # The encoded bodies of the pieces whose frames were not returned yet.
        self._pieces: deque[bytes] = deque()
        # The joined response: the bytes before the array, the bytes after it, the number of elements in it,
        # and the encoded elements of each piece.
        self._head = self._tail = b""
        self._count = 0
        self._elements: list[bytes] = []

    def next_frame(self) -> bytes | None:
        """Return the frame of the next piece, or None while the request is still being divided.

        If the result is None, call the method again in a later step.

        Raises DecodeError if the request is malformed, or if it has too many elements and cannot be divided.
        """
        if self._division is not None:
            try:
                next(self._division)
            except StopIteration as end:
                self._division = None
                division: Division = end.value
                self._pieces.extend(division.pieces)
                if len(self._pieces) > 1 and not self._divided:
                    detail = f"{division.elements} elements; this broker serves at most {MAX_ELEMENTS}"
                    raise DecodeError(self._request.__name__, self._version, "", 0, detail) from None
                if not self._pieces:
                    return self._frame
            else:
                return None
        return self._header + self._pieces.popleft()

    @property
    def is_whole(self) -> bool:
        """Whether the frame that `next_frame` returned is the whole request."""
        return self.is_first_piece and not self._pieces

    @property
    def is_first_piece(self) -> bool:
        """Whether no piece has been answered yet."""
        return not self._elements

    def add_response(self, response: Message, frame: bytes) -> bytes | None:
        """Add a piece's response; after the last piece, return the frame of the whole response.

        `frame` is the encoded `response`. While pieces remain, the method returns None.
        """
        cls, version = type(response), self._version
        assert self._divided is not None
        name = self._divided
        body = CORRELATION_ID_SIZE + response_header_version(cls, version)
        array = find_array(cls, frame, body, version, name)
        # Determine the size of the tail: `response` with an empty array would consist of the bytes before the
        # array, the encoded count 0, and the tail.
        empty_response: Any = replace_fields(response, **{name: []})
        empty_size = len(encode_response(empty_response, version, 0))
        tail_size = empty_size - array.start - len(array.encode_count(0))
        array_end = len(frame) - tail_size
        if not self._elements:
            self._head, self._tail = frame[: array.start], frame[array_end:]
        self._count += array.size
        self._elements.append(frame[array.content : array_end])
        if self._pieces:
            return None
        return b"".join((self._head, array.encode_count(self._count), *self._elements, self._tail))
