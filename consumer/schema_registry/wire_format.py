"""Confluent's wire format of one value: a schema id before the encoded value, or in a header of the record.

A schema id is the byte 0 and a number as a big-endian int32, or the byte 1 and a GUID of 16 bytes. Confluent
Platform 8 can write the schema id into the header ``__value_schema_id`` or ``__key_schema_id`` instead. Such
a header takes precedence, as in Confluent's DualSchemaIdDeserializer.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final
from uuid import UUID

from .registry import SchemaId

# Maps the first byte of a schema id to the size of the id in bytes.
SIZES: Final = {0: 5, 1: 17}


def id_header(part: str) -> str:
    """Return the name of the header that has the schema id of a part of the record, `key` or `value`."""
    return f"__{part}_schema_id"


def id_size(schema_id: SchemaId) -> int:
    """Return the size in bytes of an encoded schema id."""
    return SIZES[0 if isinstance(schema_id, int) else 1]


def encoded_id(schema_id: SchemaId) -> bytes:
    """Return the bytes of a schema id, which stand before the value."""
    if isinstance(schema_id, UUID):
        return b"\x01" + schema_id.bytes
    return b"\x00" + schema_id.to_bytes(4, "big")


def split(part: str, data: bytes, headers: Iterable[tuple[str, bytes | None]]) -> tuple[SchemaId, bytes]:
    """Return the schema id of a key or value, and the encoded value without the id.

    `part` is "key" or "value", and `data` are its bytes. The last header of a name counts. Raises ValueError
    if there is no schema id.
    """
    name, header = id_header(part), None
    for key, content in headers:
        if key == name:
            header = content or b""
    if header is not None:
        if header_id(header, indexed=False) is None:
            raise ValueError(f"the header {name} has no schema id: {header[:20].hex(' ')}")
        return _decoded_id(header), data
    size = SIZES.get(data[0]) if data else SIZES[0]
    if size is None:
        raise ValueError(f"the bytes are not in the registry's wire format: the first byte is {data[0]}")
    if len(data) < size:
        raise ValueError(f"the bytes are not in the registry's wire format: there are only {len(data)} bytes")
    return _decoded_id(data), data[size:]


def _decoded_id(data: bytes) -> SchemaId:
    return UUID(bytes=data[1:17]) if data[0] else int.from_bytes(data[1:5], "big")


def header_id(header: bytes, *, indexed: bool) -> bytes | None:
    """Return the schema id, with its message indexes if `indexed`, at the start of a header, or None."""
    end = SIZES.get(header[0], 0) if header else 0
    if not end or len(header) < end:
        return None
    if indexed:
        count, end = _varint(header, end)
        # `count` is still in zigzag encoding, which doubles the number of indexes.
        for _ in range(count >> 1):
            _, end = _varint(header, end)
            if end > len(header):
                return None
    return header[:end] if end <= len(header) else None


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Decode the varint at `at`. Return it and the offset after it; for an incomplete varint this offset is
    beyond `data`.
    """
    value = shift = 0
    while at < len(data):
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
    return 0, len(data) + 1
