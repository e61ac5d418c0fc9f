"""Compares a writer's Avro schema with a reader's, as Avro's schema resolution does.

The comparison follows Java's org.apache.avro.Resolver.
"""

from __future__ import annotations

from typing import Any

from .avro_schema import AvroField, AvroNode
from .lanes import pa


def common_type(node: AvroNode) -> AvroNode | None:
    """Return the type to which all branches of a union can be converted; None if no such type exists."""
    return node.merged if node.kind == "union" else None


def has_name_of(writer: AvroNode, reader: AvroNode, *, full: bool = False) -> bool:
    """Return whether two named types match: by name, or by one of the reader's aliases.

    Namespaces are ignored in the comparison of names, unless `full` is true.
    """
    names_match = writer.name == reader.name if full else _short_name(writer) == _short_name(reader)
    return names_match or writer.name in reader.aliases


def reader_of_union(writer: AvroNode, reader: AvroNode) -> AvroNode:
    """Return the reader's type for a writer's union whose branches have a common type.

    If `reader` is a union that equals the writer's except for namespaces, the result is the common type of
    its branches, and the caller compares names without namespaces. Otherwise the result is `reader` itself.
    The caller then compares full names if `reader` is a union.
    """
    common = common_type(reader)
    if common is None or reader.kind != "union":
        return reader
    unions_are_equal = writer.null == reader.null and writer.branches[0].symbols == common.symbols
    return common if unions_are_equal else reader


def _short_name(node: AvroNode) -> str:
    """Return the name without its namespace."""
    return node.name.rpartition(".")[2]


def branch_positions(writer: AvroNode, reader: AvroNode) -> list[int]:
    """Return, for each branch of the writer's union, the position of its type in the reader's union.

    The position is -1 if no type of the reader's union matches, or if the reader's type is not a union.
    """
    if reader.kind != "union":
        return [-1] * len(writer.branches)
    return [_best_match(branch, reader.branches) for branch in writer.branches]


def _best_match(branch: AvroNode, candidates: tuple[AvroNode, ...]) -> int:
    """Return the position of the type that matches best: by the full name, or else by the short name.

    Only types of the branch's kind match. If no candidate matches, the result is -1.
    """
    same_kind = [n for n, candidate in enumerate(candidates) if candidate.kind == branch.kind]
    for n in same_kind:
        if branch.name == candidates[n].name or branch.name in candidates[n].aliases:
            return n
    return next((n for n in same_kind if has_name_of(branch, candidates[n])), -1)


def symbols_read(writer: AvroNode, reader: AvroNode) -> list[str | None]:
    """Return, for each symbol of the writer's enum, the symbol in the decoded column.

    If the reader's enum contains the writer's symbol, the symbol stays the same. Otherwise the result is the
    reader's default symbol, or None if the reader's enum has no default.
    """
    if reader.kind != "enum":
        return list(writer.symbols)
    return [symbol if symbol in reader.symbols else reader.default_symbol for symbol in writer.symbols]


def field_named(node: AvroNode, name: str) -> AvroField | None:
    """Return the field with this name, or None if no field has the name."""
    return next((field for field in node.fields if field.names[0] == name), None)


def writers_field(writer: AvroNode, reader: AvroNode, readers_field: AvroField) -> AvroField | None:
    """Return the writer's field from which `readers_field` of `reader` is read.

    The writer's field has the name, or one of the aliases, of `readers_field`. If several fields of the
    reader match the same field of the writer, the writer's field is read into the last of these fields that
    matches by an alias. The result is None if no field of the writer is read into `readers_field`.
    """
    field = _first_match(writer, readers_field)
    if field is None:
        return None
    renamed = [
        other
        for other in reader.fields
        if field.names[0] in other.names[1:] and _first_match(writer, other) is field
    ]
    return field if not renamed or renamed[-1] is readers_field else None


def _first_match(writer: AvroNode, readers_field: AvroField) -> AvroField | None:
    """Return the writer's field for `readers_field`, matched by name first and then by alias."""
    fields = (field_named(writer, name) for name in readers_field.names)
    return next((field for field in fields if field is not None), None)


# The kinds to which Avro's schema resolution can convert each kind.
_PROMOTIONS = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes",),
    "bytes": ("string",),
}


def widens(writer: AvroNode, reader: AvroNode) -> bool:
    """Return whether Avro's schema resolution can convert the writer's type to the reader's."""
    if reader.kind == writer.kind:
        # If only the logical types differ, the reader's logical type applies.
        return reader.logical == writer.logical == "decimal" and reader.scale == writer.scale
    return not writer.logical and not reader.logical and reader.kind in _PROMOTIONS.get(writer.kind, ())


def scalar_arrow_type(node: AvroNode) -> Any:
    """Return the Arrow type of an Avro type that contains no other types."""
    if node.logical == "decimal":
        return pa.decimal128(node.precision, node.scale)
    return {
        "BOOLEAN": pa.bool_(),
        "INT": pa.int32(),
        "BIGINT": pa.int64(),
        "FLOAT": pa.float32(),
        "DOUBLE": pa.float64(),
        "BINARY": pa.binary(),
        "STRING": pa.string(),
        "DATE": pa.date32(),
        "TIME(6)": pa.time64("ns"),
        "TIMESTAMP": pa.timestamp("us", tz="UTC"),
        "TIMESTAMP_NTZ": pa.timestamp("us"),
    }[node.ddl]
