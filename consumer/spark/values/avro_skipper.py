"""Finds the end of Avro values byte by byte.

numpy reads one item of every unfinished array or map at once. If fewer than `FEW` of them are unfinished, a
Python loop over the bytes of their items is faster.
"""

from __future__ import annotations

from .avro_schema import AvroNode

FEW = 100
# The type of a map's keys.
KEY = AvroNode("string")
# In bytes.
_SIZES = {"boolean": 1, "float": 4, "double": 8}


def skip_value(view: memoryview, offset: int, end: int, node: AvroNode) -> int:
    """Return the offset after the value of type `node` that begins at `offset`.

    Raises ValueError if the value is invalid or extends beyond `end`.
    """
    match node.kind:
        case "null":
            pass  # The type null has no bytes.
        case "boolean" | "float" | "double":
            offset += _SIZES[node.kind]
        case "fixed":
            offset += node.size
        case "int" | "long" | "enum":
            offset = _read_varint(view, offset, end)[1]
        case "string" | "bytes":
            size, offset = _read_varint(view, offset, end)
            if size < 0:
                raise ValueError
            offset += size
        case "record":
            for field in node.fields:
                offset = skip_value(view, offset, end, field.node)
        case "union":
            branch, offset = _read_varint(view, offset, end)
            if branch != node.null:
                index = branch - (0 <= node.null < branch)  # `branches` omits null.
                if not 0 <= index < len(node.branches):
                    raise ValueError
                offset = skip_value(view, offset, end, node.branches[index])
        case _:  # An array or a map consists of blocks. The last block has the count 0.
            count = 1
            while count:
                count, offset = _read_varint(view, offset, end)
                if count < 0:  # A negative count is followed by the block's size in bytes.
                    count, offset = -count, _read_varint(view, offset, end)[1]
                if count > end - offset:
                    raise ValueError
                for _ in range(count):
                    if node.kind == "map":
                        offset = skip_value(view, offset, end, KEY)
                    offset = skip_value(view, offset, end, node.inner[0])
    if offset > end:
        raise ValueError
    return offset


def _read_varint(view: memoryview, offset: int, end: int) -> tuple[int, int]:
    """Decode the zigzag varint at `offset`, and return its value and the offset after it.

    Raises ValueError if the varint does not end before `end`.
    """
    value = shift = 0
    while offset < end:
        byte = view[offset]
        offset += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return (value >> 1) ^ -(value & 1), offset
        shift += 7
    raise ValueError
