"""Finds the end of Avro values byte by byte.

If few values of a batch have arrays with many items, a loop over the bytes is faster than numpy.
"""

from __future__ import annotations

from .avro_schema import AvroNode

FEW = 100  # For fewer values than this, numpy operations are slower than a Python loop.
KEY = AvroNode("string")
_WIDTHS = {"boolean": 1, "float": 4, "double": 8}


def skip_value(view: memoryview, at: int, end: int, node: AvroNode) -> int:
    """Return the offset after the value at `at`. Raises ValueError if the offset exceeds `end`."""
    match node.kind:
        case "null":
            pass  # The type null has no bytes.
        case "boolean" | "float" | "double":
            at += _WIDTHS[node.kind]
        case "fixed":
            at += node.size
        case "int" | "long" | "enum":
            at = _number(view, at, end)[1]
        case "string" | "bytes":
            size, at = _number(view, at, end)
            if size < 0:
                raise ValueError
            at += size
        case "record":
            for field in node.fields:
                at = skip_value(view, at, end, field.node)
        case "union":
            branch, at = _number(view, at, end)
            if branch != node.null:
                number = branch - (0 <= node.null < branch)
                if not 0 <= number < len(node.branches):
                    raise ValueError
                at = skip_value(view, at, end, node.branches[number])
        case _:
            count = 1
            while count:
                count, at = _number(view, at, end)
                if count < 0:
                    count, at = -count, _number(view, at, end)[1]
                if count > end - at:
                    raise ValueError
                for _ in range(count):
                    if node.kind == "map":
                        at = skip_value(view, at, end, KEY)
                    at = skip_value(view, at, end, node.inner[0])
    if at > end:
        raise ValueError
    return at


def _number(view: memoryview, at: int, end: int) -> tuple[int, int]:
    """Decode the zigzag varint at `at`, and return its value and the offset after it."""
    value = shift = 0
    while at < end:
        byte = view[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return (value >> 1) ^ -(value & 1), at
        shift += 7
    raise ValueError
