"""One record of magic 2: varints, key, value, headers; the innermost loops of reading and writing rows.

Rules of this file:

* Lengths and deltas are zigzag varints, cut to 32 bits (64 for timestamps) as in Java. A null is length -1.
* The bytes of a record must be exactly filled by its fields; anything else raises `MalformedRecord`.
* Readers may look past the end of a batch, not past the end of the data: the caller checks where they ended.
* Header keys that are not UTF-8 are read as Java reads them, with U+FFFD for what is broken.

See Kafka's `DefaultRecord` and `ByteUtils`.
"""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from functools import cache

import msgspec

Headers = tuple[tuple[str, bytes | None], ...]

_FAR = 1 << 61  # beyond this, a base and a delta may leave int64
_SHORTEST = 6  # bytes behind the length: attributes, two deltas, two nulls and no headers


class Record(msgspec.Struct, gc=False):
    """One record; `offset` is that in its partition, `timestamp` is in ms since 1970 (-1: none)."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()

    def __str__(self) -> str:
        return f"{self.offset}: {format_record(self.key, self.value, self.headers)}"


def format_record(key: bytes | None, value: bytes | None, headers: Headers) -> str:
    """What a record holds, in one line: texts as they are, long ones cut."""
    parts = [_short(value)] if key is None else [f"{_short(key)} = {_short(value)}"]
    parts += [f"{name}: {_short(of)}" for name, of in headers]
    return ", ".join(parts)


def _short(data: bytes | None) -> str:
    if data is None:
        return "null"
    text = repr(data[:60]).removeprefix("b")
    return text if len(data) <= 60 else f"{text}... ({len(data)} bytes)"


class MalformedRecord(Exception):
    def __init__(self, field: str, at: int, detail: str = "") -> None:
        self.field = field
        self.at = at
        self.detail = detail


def parse_records(
    data: bytes, at: int, count: int, base_offset: int, base_timestamp: int, append_time: int | None
) -> tuple[list[Record], int]:
    """`count` records from `at`, and where they end. May read past the batch: the caller checks the end.

    One pass, varints of one or two bytes in line, longer ones by `_varint`: 1 µs for a small record.
    """
    found: list[Record] = []
    add = found.append
    wraps = not (-_FAR < base_offset < _FAR and -_FAR < base_timestamp < _FAR)
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
            size, at = _varint(data, at, "length")
        if size & 1:
            raise MalformedRecord("length", at, "a negative length")
        end = at + (size >> 1)
        at += 1  # attributes: no bit is used
        delta = data[at]
        if delta < 128:
            at += 1
        elif (high := data[at + 1]) < 128:
            delta += (high << 7) - 128
            at += 2
        else:
            delta, at = _varlong(data, at)
            wraps = wraps or delta > _FAR
        timestamp = base_timestamp + ((delta >> 1) ^ -(delta & 1))
        delta = data[at]
        if delta < 128:
            at += 1
        elif (high := data[at + 1]) < 128:
            delta += (high << 7) - 128
            at += 2
        else:
            delta, at = _varint(data, at, "offsetDelta")
        offset = base_offset + ((delta >> 1) ^ -(delta & 1))
        size = data[at]
        if size < 128:
            at += 1
        elif (high := data[at + 1]) < 128:
            size += (high << 7) - 128
            at += 2
        else:
            size, at = _varint(data, at, "key")
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
            size, at = _varint(data, at, "value")
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
            raise MalformedRecord("length", end, f"the fields end at {at}, the record at {end}")
        add(Record(offset, timestamp, key, value, headers))
    if append_time is not None:
        for record in found:
            record.timestamp = append_time
    if wraps:
        for record in found:
            record.timestamp = wrap(record.timestamp)
            record.offset = wrap(record.offset)
    return found, at


def begins_records(start: memoryview) -> bool:
    """Whether these first bytes look like those of records: one length after the other that one can have."""
    data, at = bytes(start), 0
    while at < len(data):
        try:
            raw, at = _varint(data, at, "length")
        except MalformedRecord:
            return False
        except IndexError:
            break  # the rest isn't there
        if raw & 1 or raw < 2 * _SHORTEST:
            return False
        at += raw >> 1
    return len(data) > 0


def parse_headers(data: bytes, at: int, end: int, keys: dict[bytes, str]) -> tuple[Headers, int]:
    """The headers of a record whose bytes end at `end`, from the varint of their number; and where they end.

    `keys` remembers decoded keys: a topic has few.
    """
    count = data[at]
    if count < 128:
        at += 1
    else:
        count, at = _varint(data, at, "headers")
    if count & 1:
        raise MalformedRecord("headers", at, "a negative number of headers")
    count >>= 1
    if count > (end - at) // 2:
        raise MalformedRecord("headers", at, f"{count} headers in {end - at} bytes")
    found: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        size = data[at]
        if size < 128:
            at += 1
        else:
            size, at = _varint(data, at, "headers.key")
        stop = at + (size >> 1)
        if size & 1 or stop >= end:
            raise MalformedRecord("headers.key", at, "a length that is negative, or more than there is")
        raw = data[at:stop]
        key = keys.get(raw)
        if key is None:
            key = keys[raw] = decode_header_key(raw)
        size = data[stop]
        if size < 128:
            at = stop + 1
        else:
            size, at = _varint(data, stop, "headers.value")
        if size & 1:
            if size != 1:
                raise MalformedRecord("headers.value", at, "a negative length")
            found.append((key, None))
        else:
            stop = at + (size >> 1)
            if stop > end:
                raise MalformedRecord("headers.value", at)
            found.append((key, data[at:stop]))
            at = stop
    return tuple(found), at


def decode_header_key(raw: bytes) -> str:
    """The text of a header's key, as Java reads it."""
    return raw.decode("utf-8", _JAVA)


def _replacement(error: UnicodeError) -> tuple[str, int]:
    """As "replace", but Java takes half a surrogate pair for one broken character, not for three."""
    assert isinstance(error, UnicodeDecodeError)
    here = error.object[error.start : error.start + 3]
    if here[0] == 0xED and b"\xa0" <= here[1:2] < b"\xc0":
        whole = len(here) == 3 and here[2] & 0xC0 == 0x80
        return "\ufffd", error.start + (3 if whole else 2)
    return "\ufffd", error.end


_JAVA = "kproto.java"
codecs.register_error(_JAVA, _replacement)


def _varint(data: bytes, at: int, field: str) -> tuple[int, int]:
    """An unsigned varint of at most 5 bytes, cut to 32 bits as Java does; and where it ends."""
    value = shift = 0
    for stop in range(at, at + 5):
        byte = data[stop]
        value |= (byte & 127) << shift
        if byte < 128:
            return value & 0xFFFFFFFF, stop + 1
        shift += 7
    raise MalformedRecord(field, at, "a varint of more than 5 bytes")


def _varlong(data: bytes, at: int) -> tuple[int, int]:
    """An unsigned varint of at most 10 bytes, cut to 64 bits as Java does; and where it ends."""
    value = shift = 0
    for stop in range(at, at + 10):
        byte = data[stop]
        value |= (byte & 127) << shift
        if byte < 128:
            return value & 0xFFFFFFFFFFFFFFFF, stop + 1
        shift += 7
    raise MalformedRecord("timestampDelta", at, "a varint of more than 10 bytes")


def wrap(value: int) -> int:
    """A number as 64 bits keep it."""
    return (value + (1 << 63) & (1 << 64) - 1) - (1 << 63)


def zigzag(value: int) -> bytes:
    """A signed number as Kafka's varint or varlong; beyond 64 bits it wraps, as in Java."""
    if 0 <= value < _SHORT:
        return _SHORT_VARINTS[value]
    rest = (value << 1 ^ -(value >> 63 & 1)) & 0xFFFFFFFFFFFFFFFF
    if 1 << 14 <= rest < 1 << 21:  # the timestamps and offsets of large batches
        return _continued()[rest & 0x3FFF] + _LAST_BYTES[rest >> 14]
    out = bytearray()
    while rest > 127:
        out.append(rest & 127 | 128)
        rest >>= 7
    out.append(rest)
    return bytes(out)


_SHORT = 1024
_SHORT_VARINTS = [
    bytes((2 * number,)) if number < 64 else bytes((2 * number & 127 | 128, number >> 6))
    for number in range(_SHORT)
]
_LAST_BYTES = [bytes((byte,)) for byte in range(128)]
# Numbers from 0 up to this one have their varints kept.
TABLE_SIZE = 65536


@cache
def _continued() -> list[bytes]:
    """The first two bytes of longer varints, by the 14 bits in them."""
    return [bytes((bits & 127 | 128, bits >> 7 | 128)) for bits in range(1 << 14)]


ZERO_BYTE = b"\x00"
NULL = b"\x01"


@cache
def small_varints() -> tuple[list[bytes], list[bytes]]:
    """The varints of the numbers below `TABLE_SIZE`, and the same with a record's attributes in front."""
    two = [bytes((2 * number & 127 | 128, number >> 6)) for number in range(64, 8192)]
    three = [low + high for high in _LAST_BYTES[1 : TABLE_SIZE >> 13] for low in _continued()[::2]]
    varints = [*_SHORT_VARINTS[:64], *two, *three]
    return varints, [ZERO_BYTE + varint for varint in varints]


def record_parts(
    offset_delta: int,
    timestamp_delta: int,
    key: bytes | None,
    value: bytes | None,
    headers: Sequence[tuple[str, bytes | None]],
) -> list[bytes]:
    """One record in pieces to be joined."""
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


# `len` that takes nothing else: an array's length isn't that of its bytes, which are joined all the same.
length_of_bytes = bytes.__len__


def to_bytes(content: bytes | bytearray | memoryview) -> bytes:
    """The bytes in whatever holds bytes. Raises TypeError for anything else, arrays too."""
    if isinstance(content, bytes | bytearray | memoryview):  # pyright: ignore[reportUnnecessaryIsInstance]
        return bytes(content)
    raise TypeError(f"{type(content).__name__} is not bytes")


def encode_headers(headers: Sequence[tuple[str, bytes | None]]) -> bytes:
    """The end of a record: the number of its headers, and they."""
    pieces = [zigzag(len(headers))]
    for name, content in headers:
        try:
            key = HEADER_NAMES[name]
        except KeyError:
            key = _name(name)
        if content is None:
            pieces += (key, NULL)
        else:
            raw = content if type(content) is bytes else to_bytes(content)
            size = len(raw)
            pieces += (key, _SHORT_VARINTS[size] if size < _SHORT else zigzag(size), raw)
    return b"".join(pieces)


def _name(name: str) -> bytes:
    """A header's key; kept, as a topic has few."""
    if len(HEADER_NAMES) >= _MOST_NAMES:
        HEADER_NAMES.clear()
    raw = name.encode()
    HEADER_NAMES[name] = encoded = zigzag(len(raw)) + raw
    return encoded


# The keys of headers that were seen, encoded: `encode_headers` adds to it.
HEADER_NAMES: dict[str, bytes] = {}

_MOST_NAMES = 1024
