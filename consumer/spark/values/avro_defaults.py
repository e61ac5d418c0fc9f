"""Encodes the default values of Avro schemas, so that they are decoded like any other value."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, cast

from .avro_schema import ABSENT, AvroNode


def encode(node: AvroNode, default: Any) -> bytes:
    """Encode a default value of the type `node`. Raises ValueError if the value is not of this type.

    `default` is the value as parsed from JSON. The default of a union is encoded as a value of the first
    branch that it fits.
    """
    match node.kind:
        case "null" if default is None:
            return b""
        case "boolean" if isinstance(default, bool):
            return bytes([default])
        case "int" | "long" if isinstance(default, int) and not isinstance(default, bool):
            return _encode_number(default)
        case "float" | "double" if isinstance(default, int | float) and not isinstance(default, bool):
            return struct.pack("<f" if node.kind == "float" else "<d", default)
        case "string" if isinstance(default, str):
            return _encode_with_size(default.encode())
        case "bytes" if isinstance(default, str):
            return _encode_with_size(default.encode("latin-1"))
        case "fixed" if isinstance(default, str) and len(default) == node.size:
            return default.encode("latin-1")
        case "enum" if default in node.symbols:
            return _encode_number(node.symbols.index(default))
        case "array" if isinstance(default, list):
            items = cast("Sequence[Any]", default)
            return _encode_block([encode(node.inner[0], item) for item in items])
        case "map" if isinstance(default, dict):
            entries = cast("dict[str, Any]", default).items()
            return _encode_block(
                [_encode_with_size(key.encode()) + encode(node.inner[0], item) for key, item in entries]
            )
        case "record" if isinstance(default, dict):
            return _encode_record(node, cast("dict[str, Any]", default))
        case "union":
            return _encode_union(node, default)
        case _:
            raise ValueError(f"{default!r} is not a value of the type {node.name or node.kind}")


def _encode_record(node: AvroNode, default: dict[str, Any]) -> bytes:
    """Encode a record. If the record's default lacks a field, the field's own default is encoded."""
    parts: list[bytes] = []
    for field in node.fields:
        value = default.get(field.names[0], field.default)
        if value is ABSENT:
            raise ValueError(f"the field {field.names[0]} of {node.name} is missing, and has no default")
        parts.append(encode(field.node, value))
    return b"".join(parts)


def _encode_union(node: AvroNode, default: Any) -> bytes:
    """Encode the number of a union's branch, and the value of this branch."""
    if default is None and node.null >= 0:
        return _encode_number(node.null)
    for position, branch in enumerate(node.branches):
        try:
            encoded = encode(branch, default)
        except ValueError:
            continue
        # The encoded number counts all branches, including null, which `branches` lacks.
        number = position + 1 if 0 <= node.null <= position else position
        return _encode_number(number) + encoded
    raise ValueError(f"{default!r} is not a value of any type of the union")


def _encode_number(value: int) -> bytes:
    """Encode a number of up to 64 bits as a zigzag varint."""
    if not -(2**63) <= value < 2**63:
        raise ValueError(f"{value} has more than 64 bits, the size of an Avro long")
    zigzag = value << 1 ^ value >> 63
    encoded = bytearray()
    while zigzag > 127:
        encoded.append(zigzag & 127 | 128)
        zigzag >>= 7
    encoded.append(zigzag)
    return bytes(encoded)


def _encode_with_size(data: bytes) -> bytes:
    """Return the encoded size of `data`, followed by `data`."""
    return _encode_number(len(data)) + data


def _encode_block(items: list[bytes]) -> bytes:
    """Encode the items of an array or map as one block, followed by the empty block that marks the end."""
    return (_encode_number(len(items)) if items else b"") + b"".join(items) + b"\0"
