"""Compile the decoder or encoder of one message version to Python code that makes no call per field.

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

What makes it fast:

* One `unpack` reads a sequence of fixed-size fields and the length that follows it.

* Values stay in local variables until all fields of an object have been read. One call in C then makes the
  object from the values in declared order.

* Varint lengths of one byte are read without a call. The buffer of a `decoder` is always `bytes`, so slices
  of it need no conversion.

* One call reads an array of fixed-size elements, or an array whose elements are laid out alike
  (`layouts.py`).

Encoders mirror the decoders. One `pack` writes a run, which is a sequence of fixed-size fields. The encoded
pieces are joined at the end.

An empty tag section is one zero byte. The `pack` of the preceding run writes this byte as a pad byte.

What keeps it correct:

* `buf[p:q]` does not raise if q is beyond the end of the buffer. But q becomes the next p, and p only grows.
  So a later read of a fixed-size value raises, or the last line finds p beyond the end.

* Every count is checked against the remaining bytes before a list of that size is allocated.

* On any error, a compiled function raises without details. `Message.decode` and `encode` then run the
  interpreter over the same input. The interpreter's error names the field and, when decoding, the offset.

* Functions that read or write nonempty tag sections are compiled separately, at their first use, because such
  sections are rare.

* No generated function is a closure: reading a closed-over variable is slower than reading a local one.

The tests compare the compiled functions with the interpreter for every message and version.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .codecs import Decoder, Encoder
from .decoder_source import DecoderSource, ViewSource
from .encoder_source import EncoderSource
from .message import Message, check_version


def decoder(message: type[Message], version: int) -> Decoder:
    """Compile `decode(buf, p) -> (message, end)` for `version`.

    `decode` raises one of `message.UNREADABLE` for malformed bytes. `decoder` raises UnsupportedVersion if
    the message does not have this version.
    """
    check_version(message, version)
    return DecoderSource(message, version).message_decoder()


def view_decoder(message: type[Message], version: int) -> Decoder:
    """Compile the same function as `decoder`, except that it returns records as memoryviews of the buffer.

    The compiled function also accepts a bytearray as the buffer.
    """
    check_version(message, version)
    return ViewSource(message, version).message_decoder()


def encoder(message: type[Message], version: int) -> Encoder:
    """Compile `encode(message) -> bytes` for `version`.

    `encode` may raise any Exception for values that cannot be encoded. `encoder` raises UnsupportedVersion if
    the message does not have this version.
    """
    check_version(message, version)
    encode: Encoder = EncoderSource(message, version).message_encoder()
    return encode


def piece_encoder(message: type[Message], version: int) -> Callable[[Any], list[bytes]]:
    """Compile the same function as `encoder`, except that it returns the pieces of the message unjoined."""
    check_version(message, version)
    encode: Callable[[Any], list[bytes]] = EncoderSource(message, version).message_encoder("return w")
    return encode
