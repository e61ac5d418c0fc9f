"""Confluent's wire format of one value: a schema id before the encoded value, or in a header of the record.

A schema id is the byte 0 and a number as a big-endian int32, or the byte 1 and a GUID of 16 bytes.

Confluent Platform 8 can write the schema id into a header instead: ``__value_schema_id`` or
``__key_schema_id``. The header takes precedence, as in Confluent's DualSchemaIdDeserializer.

For Protobuf, the schema id is followed by the number of message indexes and the indexes, as zigzag varints.
The most common list of indexes, [0], is encoded as the single byte 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final
from uuid import UUID

from .registry import SchemaId

# Maps the first byte of a schema id to the size of the id in bytes.
SIZES: Final = {0: 5, 1: 17}


def id_header(part: str) -> str:
    """Return the name of the header with the schema id of `part`, which is "key" or "value"."""
    return f"__{part}_schema_id"


def id_size(schema_id: SchemaId) -> int:
    """Return the size in bytes of an encoded schema id."""
    return SIZES[0 if isinstance(schema_id, int) else 1]


def encoded_id(schema_id: SchemaId) -> bytes:
    """Encode a schema id as the bytes that precede the value."""
    if isinstance(schema_id, UUID):
        return b"\x01" + schema_id.bytes
    return b"\x00" + schema_id.to_bytes(4, "big")


def encoded_indexes(indexes: Sequence[int]) -> bytes:
    """Encode message indexes as the bytes that follow the schema id of a Protobuf message."""
    if tuple(indexes) == (0,):
        return b"\x00"
    encoded = bytearray()
    for number in (len(indexes), *indexes):
        zigzag = number << 1
        while zigzag > 127:
            encoded.append(zigzag & 127 | 128)
            zigzag >>= 7
        encoded.append(zigzag)
    return bytes(encoded)


def split_indexed(
    part: str, data: bytes, headers: Iterable[tuple[str, bytes | None]]
) -> tuple[SchemaId, tuple[int, ...], bytes]:
    """Return the schema id and the message indexes of a Protobuf message, and the encoded message.

    Takes the same arguments as `split`. Raises ValueError if the schema id is missing, or if the message
    indexes are invalid.
    """
    schema_id, after_id = split(part, data, headers)
    in_header = len(after_id) == len(data)  # `split` removes an id from the data, but not from the headers.
    header_name = id_header(part)
    if in_header:
        header = next(content or b"" for key, content in reversed(list(headers)) if key == header_name)
        after_id = header[id_size(schema_id) :]
    # Zigzag doubles a number that is not negative. The encoding of a negative number is odd.
    indexes = list[int]()
    zigzag_count, end = _read_varint(after_id, 0)
    while end <= len(after_id) and len(indexes) < zigzag_count >> 1:
        zigzag_index, end = _read_varint(after_id, end)
        indexes.append(zigzag_index >> 1)
        if zigzag_index & 1:
            end = len(after_id) + 1  # The index is negative, so the indexes are invalid.
    if end > len(after_id) or zigzag_count & 1:
        source = f"the header {header_name}" if in_header else "the bytes"
        raise ValueError(
            f"{source} have no valid message indexes after the schema id: {after_id[:20].hex(' ')}"
        )
    return schema_id, tuple(indexes) or (0,), data if in_header else after_id[end:]


def split(part: str, data: bytes, headers: Iterable[tuple[str, bytes | None]]) -> tuple[SchemaId, bytes]:
    """Return the schema id of a key or value, and the encoded value without the id.

    `data` is the encoded `part`, which is "key" or "value". If several headers have the name
    `id_header(part)`, the last one is used. Raises ValueError if there is no schema id.
    """
    name, header = id_header(part), None
    for key, content in headers:
        if key == name:
            header = content or b""
    if header is not None:
        if header_id(header, indexed=False) is None:
            raise ValueError(f"the header {name} has no schema id: {header[:20].hex(' ')}")
        return _decode_id(header), data
    size = SIZES.get(data[0]) if data else SIZES[0]
    if size is None:
        raise ValueError(f"the bytes are not in the registry's wire format: the first byte is {data[0]}")
    if len(data) < size:
        raise ValueError(f"the bytes are not in the registry's wire format: there are only {len(data)} bytes")
    return _decode_id(data), data[size:]


def _decode_id(data: bytes) -> SchemaId:
    return UUID(bytes=data[1:17]) if data[0] else int.from_bytes(data[1:5], "big")


def header_id(header: bytes, *, indexed: bool) -> bytes | None:
    """Return the bytes of the schema id at the start of a header, or None if the id is missing or incomplete.

    If `indexed` is true, message indexes follow the id, and are returned with the id.
    """
    end = SIZES.get(header[0], 0) if header else 0
    if not end or len(header) < end:
        return None
    if indexed:
        # The number of indexes is encoded with zigzag, as twice its value.
        zigzag_count, end = _read_varint(header, end)
        for _ in range(zigzag_count >> 1):
            _, end = _read_varint(header, end)
            if end > len(header):
                return None
    return header[:end] if end <= len(header) else None


def _read_varint(data: bytes, offset: int) -> tuple[int, int]:
    """Decode the varint at `offset`. Return its value and the offset after it.

    If the varint is incomplete, the offset is beyond the end of `data`.
    """
    value = shift = 0
    while offset < len(data):
        byte = data[offset]
        offset += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, offset
        shift += 7
    return 0, len(data) + 1
