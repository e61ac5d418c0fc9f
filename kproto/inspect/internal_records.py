"""Decode the records of the topics that Kafka itself writes, such as `__consumer_offsets`.

In a topic with keys, a key begins with the record type as an int16. A value begins with its version as an
int16.

In a topic without keys, a value begins with three unsigned varints: the frame version (1), the record type
and the record's version.

`kproto.messages.index.RECORDS_OF` lists the record types of each topic.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ..errors import DecodeError
from ..messages import index
from ..messages.json_form import one_line, to_json
from ..wire.message import Message

_FRAME_VERSION = 1


class InternalMessage(NamedTuple):
    """The message in a key or in a value, and its version."""

    message: Message
    version: int

    def to_json(self) -> dict[str, Any]:
        """Return the name of the message, its version, and its fields in the JSON form."""
        fields = to_json(self.message, self.version)
        return {"name": type(self.message).__name__, "version": self.version, "json": fields}

    def __str__(self) -> str:
        fields = one_line(to_json(self.message, self.version))
        return f"{type(self.message).__name__} v{self.version} {fields}"


class InternalRecord(NamedTuple):
    """The messages in a record. `key` is None in topics without keys, and `value` is None for a tombstone."""

    key: InternalMessage | None
    value: InternalMessage | None


def decode_internal(topic: str, key: bytes | None, value: bytes | None) -> InternalRecord:
    """Decode the key and the value of a record of an internal topic.

    Raises KeyError if `topic` is not in `RECORDS_OF`. Raises DecodeError for an unknown type or version, and
    for malformed bytes.
    """
    types = index.RECORDS_OF[topic]
    if topic in index.TOPICS_WITHOUT_KEYS:
        return InternalRecord(None, None if value is None else _decode_framed_value(topic, value))
    if key is None:
        raise DecodeError(topic, -1, "key", 0, "the key is null")
    record_type = _read_int16(topic, "key", key)
    if record_type not in types:
        raise DecodeError(topic, record_type, "key", 0, f"record type {record_type} is unknown")
    key_class, value_class = index.record_classes(record_type, topic)
    decoded_key = InternalMessage(key_class.decode(key[2:], 0), 0)
    if value is None:
        return InternalRecord(decoded_key, None)
    value_version = _read_int16(topic, "value", value)
    return InternalRecord(decoded_key, _decode_version(value_class, value_version, value[2:]))


def _read_int16(topic: str, field: str, data: bytes) -> int:
    """Return the int16 at the start of `data`. `field` is "key" or "value", for the error message."""
    if len(data) < 2:
        raise DecodeError(topic, -1, field, 0, f"expected at least 2 bytes, but there are {len(data)}")
    return int.from_bytes(data[:2], "big", signed=True)


def _decode_version(message: type[Message], version: int, data: bytes) -> InternalMessage:
    """Decode a message. Raises DecodeError for an unknown version."""
    if version not in message.__versions__:
        known = f"its versions are {message.__versions__}"
        raise DecodeError(message.__name__, version, "version", 0, f"version {version} is unknown; {known}")
    return InternalMessage(message.decode(data, version), version)


def _decode_framed_value(topic: str, data: bytes) -> InternalMessage:
    """Decode a record value of a topic whose records have no keys."""
    frame_version, position = _read_unsigned_varint(topic, data, 0)
    if frame_version != _FRAME_VERSION:
        detail = f"frame version {frame_version} is unknown; the only one is {_FRAME_VERSION}"
        raise DecodeError(topic, frame_version, "value", 0, detail)
    record_type, position = _read_unsigned_varint(topic, data, position)
    version, position = _read_unsigned_varint(topic, data, position)
    if record_type not in index.RECORDS_OF[topic]:
        raise DecodeError(topic, version, "value", 1, f"record type {record_type} is unknown")
    return _decode_version(index.record_value_class(record_type, topic), version, data[position:])


def _read_unsigned_varint(topic: str, data: bytes, at: int) -> tuple[int, int]:
    """Return the unsigned varint at `at`, and the position after it."""
    result = 0
    for shift in range(0, 35, 7):
        if at >= len(data):
            raise DecodeError(topic, -1, "value", at, "the value ends within its header")
        byte = data[at]
        at += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return result, at
    raise DecodeError(topic, -1, "value", at, "an unsigned varint of the header has more than 5 bytes")
