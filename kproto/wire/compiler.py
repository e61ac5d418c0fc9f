"""(Declaration, version) -> two functions of straight-line Python, made when they are first needed.

A generated decoder looks like this (FetchRequest v12, shortened):

    def decode(buf, p):
        end = len(buf)
        replica_id, max_wait_ms, min_bytes, max_bytes, ..., n, = unpack_iiiibiiB(buf, p); p += 26
        if not 0 < n < 128: n, p = long_length(buf, p, n)
        n -= 1
        if n * 3 > end - p: raise Malformed
        topics = []
        for _ in repeat(None, n):
            ...
            topics.append(FetchTopic(topic, default_topic_id, partitions))
            if tags: p = read_tags(topics[-1], buf, p - 1, 'FetchRequest', 12)
        ...
        fetch_request = FetchRequest(None, replica_id, LAZY, max_wait_ms, ..., rack_id)
        if tags: p = read_tags(fetch_request, buf, p - 1, 'FetchRequest', 12)
        if p > end: raise Malformed
        return fetch_request, p

What makes it fast: one `unpack` for each run of fixed fields together with the length that follows it
(in `run`), local variables until all values of an object are there, objects made by one call in C with the
values in declared order, lengths of one byte read in place, `bytes` as the buffer. Arrays of elements of
fixed size are read in one go, and so are arrays whose elements are alike (`layouts.py`).
Encoders are the mirror image: one `pack` for each run, pieces appended to a list and
joined at the end, and a tag count of zero as a pad byte of the run before it.

What keeps it right:

* `buf[p:q]` doesn't raise when q is behind the end. So p only grows, every later read at such a p raises,
  and the last line checks p itself: nothing that was cut short is returned.
* Every count is checked against the bytes left before a list of that size is made.
* On any error the functions just raise something. `Message.decode` and `encode` then run the interpreter
  over the same input, and that names the field and the offset.
* Tag sections that aren't empty are rare: what reads and writes them is made apart, when it is first needed.
* Nothing closes over a local variable: that would make each use of it slower.

The tests hold every message and version of these functions against the interpreter.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .codecs import Decoder, Encoder
from .decoder_source import DecoderSource, ViewSource
from .encoder_source import EncoderSource
from .message import Message, check_version


def decoder(message: type[Message], version: int) -> Decoder:
    """Compile `decode(buf, p) -> (message, end)`.

    It raises one of `message.UNREADABLE` on malformed bytes. Raises UnsupportedVersion.
    """
    check_version(message, version)
    return DecoderSource(message, version).message_decoder()


def view_decoder(message: type[Message], version: int) -> Decoder:
    """`decoder`, for a buffer that may be a bytearray, with views into it instead of copies of records."""
    check_version(message, version)
    return ViewSource(message, version).message_decoder()


def encoder(message: type[Message], version: int) -> Encoder:
    """Compile `encode(message) -> bytes`.

    It may raise any Exception on values that don't fit. Raises UnsupportedVersion.
    """
    check_version(message, version)
    made: Encoder = EncoderSource(message, version).message_encoder()
    return made


def piece_encoder(message: type[Message], version: int) -> Callable[[Any], list[bytes]]:
    """`encoder`, without the join at the end."""
    check_version(message, version)
    made: Callable[[Any], list[bytes]] = EncoderSource(message, version).message_encoder("return w")
    return made
