"""Where a value of Avro's ends, found byte by byte: for the many items of a few long arrays."""

from __future__ import annotations

from .avro_schema import Node

FEW = 100  # lanes for which a step of numpy costs more than looking at each item
KEY = Node("string")
_WIDTHS = {"boolean": 1, "float": 4, "double": 8}


def behind(view: memoryview, at: int, end: int, node: Node) -> int:
    """Where a value ends. ValueError if that is beyond `end`."""
    match node.kind:
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
                at = behind(view, at, end, field.node)
        case "union":
            branch, at = _number(view, at, end)
            if branch != node.null:
                number = branch - (0 <= node.null < branch)
                if not 0 <= number < len(node.branches):
                    raise ValueError
                at = behind(view, at, end, node.branches[number])
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
                        at = behind(view, at, end, KEY)
                    at = behind(view, at, end, node.inner[0])
    if at > end:
        raise ValueError
    return at


def _number(view: memoryview, at: int, end: int) -> tuple[int, int]:
    value = shift = 0
    while at < end:
        byte = view[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return (value >> 1) ^ -(value & 1), at
        shift += 7
    raise ValueError
