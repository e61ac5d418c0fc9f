"""Encode and decode records of magic 2: varints, keys, values and headers.

* Lengths and deltas are zigzag varints, truncated to 32 bits as in Java. Timestamp deltas are truncated to 64
  bits. A null has length -1.

* If the fields do not fill the record exactly, `MalformedRecord` is raised.

* Readers may read beyond the end of a batch, but not beyond the data. The caller compares the position at
  which a reader ended with the end of the batch, and raises an error if they differ.

* Header keys that are not UTF-8 are read as in Java, with U+FFFD for malformed bytes.

See Kafka's `DefaultRecord` and `ByteUtils`.
"""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from functools import cache

import msgspec

from ..errors import brief

Headers = tuple[tuple[str, bytes | None], ...]

# If a base or an encoded delta has at least this absolute value, their sum may exceed int64. The sum is then
# wrapped, as in Java.
_WRAP_BOUND = 1 << 61
# The maximum number of headers of one record. A decoded header takes up to forty times the memory of its
# encoded bytes. Java has no limit.
MAX_HEADERS = 100_000
# The number of bytes after the length in the smallest record: attributes, two deltas, two nulls and a count
# of headers.
_MIN_LENGTH = 6


class Record(msgspec.Struct, gc=False):
    """One record. `offset` is its offset in the partition; `timestamp` is in ms since 1970, or -1."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()

    def __str__(self) -> str:
        return f"{self.offset}: {format_record(self.key, self.value, self.headers)}"


def format_record(key: object, value: object, headers: Headers) -> str:
    """Format the contents of a record in one line, with long values shortened.

    Key and value are bytes or None, or what an application's deserializer has returned.
    """
    text = _format_content(value)
    parts = [text] if key is None else [f"{_format_content(key)} = {text}"]
    parts += [f"{name}: {_format_content(content)}" for name, content in headers]
    return ", ".join(parts)


def _format_content(data: object) -> str:
    if data is None:
        return "null"
    if not isinstance(data, bytes):
        return brief(data)
    text = repr(data[:60]).removeprefix("b")
    return text if len(data) <= 60 else f"{text}... ({len(data)} bytes)"


class MalformedRecord(Exception):
    """The malformed `field` of a record, and the position `at` of the error in the bytes that were read."""

    def __init__(self, field: str, at: int, detail: str = "") -> None:
        self.field = field
        self.at = at
        self.detail = detail


def parse_records(
    data: bytes, at: int, count: int, base_offset: int, base_timestamp: int, append_time: int | None
) -> tuple[list[Record], int]:
    """Parse `count` records from position `at` on; return them and the position after the last one.

    The caller must check that the returned position is the end of the records. With LogAppendTime,
    `append_time` is the timestamp of every record; with CreateTime, it is None. Raises `MalformedRecord`, or
    `IndexError` if the bytes end too early.

    The loop reads varints of one or two bytes inline, and calls `_read_varint` for longer ones. Parsing a
    small record therefore takes only 1 µs.
    """
    records: list[Record] = []
    add = records.append
    may_wrap = not (-_WRAP_BOUND < base_offset < _WRAP_BOUND and -_WRAP_BOUND < base_timestamp < _WRAP_BOUND)
    keys: dict[bytes, str] = {}
    key: bytes | None
    value: bytes | None
    headers: Headers
    for _ in range(count):
        size = data[at]
        if size < 128:
            at += 1
        elif (high := data[at + 1]) < 128:
            size += (high << 7) - 128
            at += 2
        else:
            size, at = _read_varint(data, at, "length")
        if size & 1:
            raise MalformedRecord("length", at, "a negative length")
        end = at + (size >> 1)
        at += 1  # Skip the attributes, of which no bit is used.
        delta = data[at]
        if delta < 128:
            at += 1
        elif (high := data[at + 1]) < 128:
            delta += (high << 7) - 128
            at += 2
        else:
            delta, at = _read_varlong(data, at)
            may_wrap = may_wrap or delta > _WRAP_BOUND
        timestamp = base_timestamp + ((delta >> 1) ^ -(delta & 1))
        delta = data[at]
        if delta < 128:
            at += 1
        elif (high := data[at + 1]) < 128:
            delta += (high << 7) - 128
            at += 2
        else:
            delta, at = _read_varint(data, at, "offsetDelta")
        offset = base_offset + ((delta >> 1) ^ -(delta & 1))
        size = data[at]
        if size < 128:
            at += 1
        elif (high := data[at + 1]) < 128:
            size += (high << 7) - 128
            at += 2
        else:
            size, at = _read_varint(data, at, "key")
        if size & 1:
            if size != 1:
                raise MalformedRecord("key", at, "a negative length")
            key = None
        else:
            stop = at + (size >> 1)
            key = data[at:stop]
            at = stop
        size = data[at]
        if size < 128:
            at += 1
        elif (high := data[at + 1]) < 128:
            size += (high << 7) - 128
            at += 2
        else:
            size, at = _read_varint(data, at, "value")
        if size & 1:
            if size != 1:
                raise MalformedRecord("value", at, "a negative length")
            value = None
        else:
            stop = at + (size >> 1)
            value = data[at:stop]
            at = stop
        if data[at]:
            headers, at = parse_headers(data, at, end, keys)
        else:
            headers = ()
            at += 1
        if at != end:
            raise MalformedRecord("length", end, f"the fields end at {at}, but the record ends at {end}")
        add(Record(offset, timestamp, key, value, headers))
    if append_time is not None:
        for record in records:
            record.timestamp = append_time
    if may_wrap:
        for record in records:
            record.timestamp = wrap(record.timestamp)
            record.offset = wrap(record.offset)
    return records, at


def complete_records(data: bytes | bytearray, at: int, most: int, most_bytes: int) -> tuple[int, int]:
    """Return the number of complete records from `at` on, at most `most`, and the end of the last one.

    A record counts only if it starts within the first `most_bytes` bytes from `at`. Only its length is read.

    A record with a malformed length counts as complete and extends to the end of `data`, so that parsing it
    raises the error.
    """
    end, last_start = len(data), at + most_bytes
    for number in range(most):
        if at > last_start:
            return number, at
        start = at
        try:
            size = data[at]
            if size < 128:
                at += 1
            elif (high := data[at + 1]) < 128:
                size += (high << 7) - 128
                at += 2
            else:
                size, at = _read_varint(data, at, "length")
        except MalformedRecord:
            return number + 1, end
        except IndexError:
            return number, start
        if size & 1:
            return number + 1, end
        at += size >> 1
        if at > end:
            return number, start
    return most, at


def begins_records(start: memoryview) -> bool:
    """Return whether the bytes can be the start of a batch's records.

    Only the length at the start of each record is checked.
    """
    data, at = bytes(start), 0
    while at < len(data):
        try:
            encoded_length, at = _read_varint(data, at, "length")
        except MalformedRecord:
            return False
        except IndexError:
            break  # The varint continues beyond `start`, so the length is unknown.
        # The varint is zigzag-encoded: 2 * n for a length n >= 0, and an odd number for a negative length.
        if encoded_length & 1 or encoded_length < 2 * _MIN_LENGTH:
            return False
        at += encoded_length >> 1
    return len(data) > 0


def parse_headers(data: bytes, at: int, end: int, keys: dict[bytes, str]) -> tuple[Headers, int]:
    """Parse the headers of a record that ends at `end`; return the headers and the position after them.

    `at` is the position of the number of headers. `keys` maps the bytes of a header key to the decoded key,
    because a topic has few different keys.
    """
    count = data[at]
    if count < 128:
        at += 1
    else:
        count, at = _read_varint(data, at, "headers")
    if count & 1:
        raise MalformedRecord("headers", at, "a negative number of headers")
    count >>= 1
    if count > MAX_HEADERS:
        detail = f"{count} headers; this reader allows {MAX_HEADERS} in one record"
        raise MalformedRecord("headers", at, detail)
    if count > (end - at) // 2:
        raise MalformedRecord("headers", at, f"{count} headers do not fit into {end - at} bytes")
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        size = data[at]
        if size < 128:
            at += 1
        else:
            size, at = _read_varint(data, at, "headers.key")
        stop = at + (size >> 1)
        if size & 1 or stop >= end:
            raise MalformedRecord("headers.key", at, "a length that is negative or too large")
        encoded_key = data[at:stop]
        key = keys.get(encoded_key)
        if key is None:
            key = keys[encoded_key] = decode_header_key(encoded_key)
        size = data[stop]
        if size < 128:
            at = stop + 1
        else:
            size, at = _read_varint(data, stop, "headers.value")
        if size & 1:
            if size != 1:
                raise MalformedRecord("headers.value", at, "a negative length")
            headers.append((key, None))
        else:
            stop = at + (size >> 1)
            if stop > end:
                raise MalformedRecord("headers.value", at)
            headers.append((key, data[at:stop]))
            at = stop
    return tuple(headers), at


def decode_header_key(raw: bytes) -> str:
    """Decode a header key as Java does: malformed bytes become U+FFFD."""
    return raw.decode("utf-8", _JAVA_DECODING)


def _replace_malformed(error: UnicodeError) -> tuple[str, int]:
    """Return Java's replacement for the malformed bytes, and the position after these bytes.

    Java replaces an encoded surrogate with one character. Python's error handler "replace" uses three
    characters instead. Both treat all other malformed bytes alike.
    """
    assert isinstance(error, UnicodeDecodeError)
    sequence = error.object[error.start : error.start + 3]
    if sequence[0] == 0xED and b"\xa0" <= sequence[1:2] < b"\xc0":
        is_complete = len(sequence) == 3 and sequence[2] & 0xC0 == 0x80
        return "\ufffd", error.start + (3 if is_complete else 2)
    return "\ufffd", error.end


_JAVA_DECODING = "kproto.java"
codecs.register_error(_JAVA_DECODING, _replace_malformed)


def _read_varint(data: bytes | bytearray, at: int, field: str) -> tuple[int, int]:
    """Read an unsigned varint of at most 5 bytes, truncated to 32 bits as in Java.

    Return the number and the position after the varint.
    """
    value = shift = 0
    for stop in range(at, at + 5):
        byte = data[stop]
        value |= (byte & 127) << shift
        if byte < 128:
            return value & 0xFFFFFFFF, stop + 1
        shift += 7
    raise MalformedRecord(field, at, "a varint of more than 5 bytes")


def _read_varlong(data: bytes, at: int) -> tuple[int, int]:
    """Read an unsigned varint of at most 10 bytes, truncated to 64 bits as in Java.

    Return the number and the position after the varint.
    """
    value = shift = 0
    for stop in range(at, at + 10):
        byte = data[stop]
        value |= (byte & 127) << shift
        if byte < 128:
            return value & 0xFFFFFFFFFFFFFFFF, stop + 1
        shift += 7
    raise MalformedRecord("timestampDelta", at, "a varint of more than 10 bytes")


def wrap(value: int) -> int:
    """Wrap a number to a signed 64-bit number, as Java's arithmetic does."""
    return (value + (1 << 63) & (1 << 64) - 1) - (1 << 63)


def zigzag(value: int) -> bytes:
    """Encode a signed number as Kafka's varint or varlong. The number wraps at 64 bits, as in Java."""
    if 0 <= value < _CACHED_COUNT:
        return _CACHED_VARINTS[value]
    unsigned = (value << 1 ^ -(value >> 63 & 1)) & 0xFFFFFFFFFFFFFFFF
    # A fast path for varints of three bytes, such as most timestamp and offset deltas in large batches.
    if 1 << 14 <= unsigned < 1 << 21:
        return _first_two_bytes()[unsigned & 0x3FFF] + _LAST_BYTES[unsigned >> 14]
    out = bytearray()
    while unsigned > 127:
        out.append(unsigned & 127 | 128)
        unsigned >>= 7
    out.append(unsigned)
    return bytes(out)


# The zigzag varints of the numbers from 0 to `_CACHED_COUNT` - 1, which have one or two bytes.
_CACHED_COUNT = 1024
_CACHED_VARINTS = [
    bytes((2 * number,)) if number < 64 else bytes((2 * number & 127 | 128, number >> 6))
    for number in range(_CACHED_COUNT)
]
_LAST_BYTES = [bytes((byte,)) for byte in range(128)]
# The varints of the numbers from 0 to `TABLE_SIZE` - 1 are cached.
TABLE_SIZE = 65536


@cache
def _first_two_bytes() -> list[bytes]:
    """Return a table that maps the low 14 bits of a varint of more than two bytes to its first two bytes."""
    return [bytes((bits & 127 | 128, bits >> 7 | 128)) for bits in range(1 << 14)]


ZERO_BYTE = b"\x00"
NULL = b"\x01"


@cache
def small_varints() -> tuple[list[bytes], list[bytes]]:
    """Return two tables that map each number below `TABLE_SIZE` to its encoded bytes.

    An entry of the first table is the zigzag varint. An entry of the second table is an attributes byte (0),
    followed by the varint.
    """
    two_bytes = [bytes((2 * number & 127 | 128, number >> 6)) for number in range(64, 8192)]
    three_bytes = [
        low + high for high in _LAST_BYTES[1 : TABLE_SIZE >> 13] for low in _first_two_bytes()[::2]
    ]
    varints = [*_CACHED_VARINTS[:64], *two_bytes, *three_bytes]
    return varints, [ZERO_BYTE + varint for varint in varints]


def record_parts(
    offset_delta: int,
    timestamp_delta: int,
    key: bytes | None,
    value: bytes | None,
    headers: Sequence[tuple[str, bytes | None]],
) -> list[bytes]:
    """Encode one record; return its pieces, whose concatenation is the record."""
    parts = [b"", ZERO_BYTE, zigzag(timestamp_delta), zigzag(offset_delta)]
    for content in (key, value):
        if content is None:
            parts.append(NULL)
        else:
            raw = content if type(content) is bytes else to_bytes(content)
            parts += (zigzag(len(raw)), raw)
    parts.append(encode_headers(headers) if headers else ZERO_BYTE)
    parts[0] = zigzag(sum(map(len, parts)))
    return parts


# A `len` for bytes only. It rejects an `array.array`, whose length is not its number of bytes.
length_of_bytes = bytes.__len__


def to_bytes(content: bytes | bytearray | memoryview) -> bytes:
    """Convert bytes-like content to bytes. Raises TypeError for anything else, such as arrays."""
    if isinstance(content, bytes | bytearray | memoryview):  # pyright: ignore[reportUnnecessaryIsInstance]
        return bytes(content)
    raise TypeError(f"{type(content).__name__} is not bytes")


def encode_headers(headers: Sequence[tuple[str, bytes | None]]) -> bytes:
    """Encode the number of headers of a record, followed by the headers."""
    pieces = [zigzag(len(headers))]
    for name, content in headers:
        try:
            key = HEADER_NAMES[name]
        except KeyError:
            key = _encode_header_key(name)
        if content is None:
            pieces += (key, NULL)
        else:
            raw = content if type(content) is bytes else to_bytes(content)
            size = len(raw)
            pieces += (key, _CACHED_VARINTS[size] if size < _CACHED_COUNT else zigzag(size), raw)
    return b"".join(pieces)


def _encode_header_key(name: str) -> bytes:
    """Encode a header key and cache the result, because the records of a topic repeat a few keys."""
    if len(HEADER_NAMES) >= _MAX_HEADER_NAMES:
        HEADER_NAMES.clear()
    raw = name.encode()
    HEADER_NAMES[name] = encoded = zigzag(len(raw)) + raw
    return encoded


# A cache of encoded header keys. `encode_headers` adds to it.
HEADER_NAMES: dict[str, bytes] = {}

# At this number of keys, the cache is cleared.
_MAX_HEADER_NAMES = 1024
