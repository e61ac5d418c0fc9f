"""``value.format=avro``: decodes Avro column by column, with or without the registry's header.

All values of a batch are read together, field by field. Each value is a *lane* (`lanes`).

The writer's schema determines how the bytes are read. The reader's schema (``value.schema``, or the
registry's latest) determines the columns.

As Avro specifies, fields are matched by name and alias, missing fields take the reader's default, and numbers
are widened. Fields that are not selected are skipped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from kproto.errors import ConfigError
from kproto.records.arrow_arrays import from_bytes, from_numpy

from ...schema_registry.registry import Schema, SchemaId
from .arrow_types import arrow_type
from .avro_defaults import encode
from .avro_leaves import read_leaf
from .avro_resolution import (
    branch_positions,
    common_type,
    field_named,
    has_name_of,
    reader_of_union,
    scalar_arrow_type,
    widens,
    writers_field,
)
from .avro_schema import ABSENT, AvroField, AvroNode, checked_columns, parse
from .avro_skipper import FEW, KEY, skip_value
from .lanes import Ints, Lanes, merge, pa
from .names import REGISTRY_URL
from .registered import Mismatch, RegisteredDecoder

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

    from .types import Bad, Column, ColumnFormat, Decode


def column_type(column_format: ColumnFormat) -> str:
    """Return the DDL type of the column, which is the type of the reader's schema."""
    return _reader_schema(column_format).ddl


def decoder(column_format: ColumnFormat, kind: DataType) -> Decode:
    """Return a decoder. Raises ConfigError if the reader's schema does not fit the column.

    Without a registry, values have no schema id and were written with the reader's schema.
    """
    option = column_format.option("schema")
    target, reader = arrow_type(option, kind), _reader_schema(column_format)
    try:
        reader_decoder = _AvroDecoder(reader, reader, target)
    except Mismatch as error:
        raise ConfigError("schema", f"{column_format.column} {kind.simpleString()}", str(error)) from None
    registry = column_format.registry
    if registry is None:
        return reader_decoder.decode

    def decoder_of_schema(schema_id: SchemaId) -> Decode:
        writer = _parse_registered(column_format, registry.schema(schema_id))
        return _AvroDecoder(writer, reader, target).decode

    return RegisteredDecoder(target, decoder_of_schema).decode


def _reader_schema(column_format: ColumnFormat) -> AvroNode:
    """Return the reader's schema: the option's, or else the subject's latest in the registry.

    Raises ConfigError if the options name no schema, or if a part of the schema cannot be a column.
    """
    option = column_format.option("schema")
    if column_format.schema is not None:
        return checked_columns(option, parse(option, column_format.schema))
    if column_format.registry is None:
        raise ConfigError(
            option,
            None,
            f"avro needs a schema; set it to JSON or the path of a file with JSON, or set {REGISTRY_URL}",
        )
    if column_format.subject is None:
        reason = f"the query may read several topics; set the subject, or {option}"
        raise ConfigError(column_format.option("subject"), None, reason)
    latest = column_format.with_latest_schema().latest
    assert latest is not None
    return checked_columns(option, _parse_registered(column_format, latest))


def _parse_registered(column_format: ColumnFormat, schema: Schema) -> AvroNode:
    """Parse a schema from the registry. The schemas to which it refers are parsed first."""
    if schema.kind != "AVRO":
        raise ConfigError(
            column_format.option("format"),
            "avro",
            f"the registry has a schema of the type {schema.kind} for this subject or id, not AVRO",
        )
    references = [reference.text for _, reference in schema.references()]
    return parse(column_format.option("schema"), schema.text, references)


class _AvroDecoder:
    """Decodes values of one writer's schema into a column of type `target`.

    The constructor raises Mismatch if values of the writer's schema cannot be converted to `target`.
    """

    def __init__(self, writer: AvroNode, reader: AvroNode, target: Any) -> None:
        self.writer, self.reader, self.target = writer, reader, target
        self._check(writer, reader, target, "")

    def decode(self, values: Column) -> tuple[Column, Bad]:
        """Decode values. Values that cannot be decoded become null, and the reasons are returned, too."""
        lanes = Lanes(values)
        with np.errstate(over="ignore"):
            decoded = self._value(lanes, lanes.all(), self.writer, self.reader, self.target, "the value")
        lanes.finish("the value")
        if lanes.bad:
            is_bad = np.isin(np.arange(len(lanes)), list(lanes.bad))
            decoded = decoded.take(from_numpy(np.arange(len(lanes)), is_bad))
        return decoded, lanes.bad

    # ---- checked once

    def _check(self, writer: AvroNode, reader: AvroNode, target: Any, path: str) -> None:
        """Raise Mismatch if values of the writer's schema cannot be converted to the target type."""
        if writer.kind == "null":
            if reader.kind != "union" or reader.null < 0:
                raise Mismatch(
                    f"{path or 'the value'} is null in the writer's schema, and {reader.kind} in the "
                    "reader's schema, which does not allow null"
                )
            return
        if writer.kind == "union":
            merged = common_type(writer)
            if merged is not None:
                self._check(merged, reader_of_union(writer, reader), target, path)
            else:
                self._check_branches(writer, reader, target, path)
            return
        # As in Java, names are compared with their namespaces only if the reader's type is a union.
        by_full_name = reader.kind == "union"
        reader = common_type(reader) or reader
        mismatch = (
            f"{path or 'the value'} is {writer.kind} in the writer's schema, {reader.kind} in the "
            f"reader's schema, and {target} in the column"
        )
        if writer.kind in ("record", "array", "map") and reader.kind != writer.kind:
            raise Mismatch(mismatch)
        if writer.kind == reader.kind in ("enum", "fixed"):
            if not has_name_of(writer, reader, full=by_full_name):
                raise Mismatch(
                    f"{path or 'the value'} is the {writer.kind} {writer.name} in the writer's schema, and "
                    f"{reader.name} in the reader's schema, which needs the alias {writer.name}"
                )
            if writer.size != reader.size:
                raise Mismatch(
                    f"{path or 'the value'} has {writer.size} bytes in the writer's schema, and "
                    f"{reader.size} in the reader's schema"
                )
        if writer.kind == "record":
            if not pa.types.is_struct(target) or not len(target):
                raise Mismatch(mismatch)
            self._check_fields(writer, reader, target, path)
        elif writer.kind == "array":
            if not pa.types.is_list(target):
                raise Mismatch(mismatch)
            self._check(writer.inner[0], reader.inner[0], target.value_type, f"{path}[]")
        elif writer.kind == "map":
            if not pa.types.is_map(target):
                raise Mismatch(mismatch)
            self._check(writer.inner[0], reader.inner[0], target.item_type, f"{path}[]")
        else:
            same_type = (writer.kind, writer.logical) == (reader.kind, reader.logical)
            if not (same_type or widens(writer, reader)) or scalar_arrow_type(reader) != target:
                raise Mismatch(mismatch)

    def _check_branches(self, writer: AvroNode, reader: AvroNode, target: Any, path: str) -> None:
        """Check the branches of a writer's union. A branch without a column in `target` is not checked."""
        positions = branch_positions(writer, reader)
        if max(positions) < 0:
            raise Mismatch(
                f"{path or 'the value'} is a union of several types in the writer's schema, and "
                "the reader's schema has none of them"
            )
        for branch, position in zip(writer.branches, positions, strict=True):
            index = target.get_field_index(f"member{position}") if pa.types.is_struct(target) else -1
            if index >= 0:
                member_path = f"{path}.member{position}".strip(".")
                self._check(branch, reader.branches[position], target[index].type, member_path)

    def _check_fields(self, writer: AvroNode, reader: AvroNode, target: Any, path: str) -> None:
        """Check the selected fields of a record. A field that the writer lacks needs a suitable default."""
        for field in target:
            field_path = f"{path}.{field.name}".strip(".")
            readers_field = field_named(reader, field.name)
            if readers_field is None:
                raise Mismatch(f"the schema has no field {field_path}")
            written_field = writers_field(writer, reader, readers_field)
            if written_field is not None:
                self._check(written_field.node, readers_field.node, field.type, field_path)
            elif readers_field.default is ABSENT:
                raise Mismatch(f"{field_path} is not in the writer's schema, and has no default")
            else:
                _default_column(readers_field, field.type)

    # ---- values

    def _value(
        self, lanes: Lanes, lane_ids: Ints, writer: AvroNode, reader: AvroNode, target: Any, path: str
    ) -> Column:
        """Read the next value of each lane in `lane_ids`, and return a column.

        Without a target type, skip the values and return None. `path` is the field for error messages.
        """
        match writer.kind:
            case "union":
                return self._union(lanes, lane_ids, writer, reader, target, path)
            case "record":
                return self._record(lanes, lane_ids, writer, common_type(reader) or reader, target, path)
            case "array" | "map":
                return self._blocks(lanes, lane_ids, writer, common_type(reader) or reader, target, path)
            case _:
                return read_leaf(lanes, lane_ids, writer, common_type(reader) or reader, target, path)

    def _record(
        self, lanes: Lanes, lane_ids: Ints, writer: AvroNode, reader: AvroNode, target: Any, path: str
    ) -> Column:
        """Read one record from each lane. Fields of the writer that are not selected are skipped."""
        columns: dict[str, Column] = {}
        # Maps the name of each selected field in the writer's schema to the field in the reader's schema and
        # the Arrow field.
        selected: dict[str, tuple[AvroField, Any]] = {}
        for field in target if target is not None else ():
            readers_field = field_named(reader, field.name)
            assert readers_field is not None
            written_field = writers_field(writer, reader, readers_field)
            if written_field is None:
                columns[field.name] = _default_column(readers_field, field.type, len(lane_ids))
            else:
                selected[written_field.names[0]] = (readers_field, field)
        for written_field in writer.fields:
            name = written_field.names[0]
            readers_field, field = selected.get(name, (written_field, None))
            field_type = None if field is None else field.type
            value = self._value(lanes, lane_ids, written_field.node, readers_field.node, field_type, name)
            if field is not None:
                columns[field.name] = value
        if target is None:
            return None
        return pa.StructArray.from_arrays([columns[field.name] for field in target], fields=list(target))

    def _union(
        self, lanes: Lanes, lane_ids: Ints, writer: AvroNode, reader: AvroNode, target: Any, path: str
    ) -> Column:
        """Read one value of a union from each lane: the number of the branch, then the branch's value."""
        branch_number = lanes.zigzag(lane_ids, path)
        count = len(writer.branches) + (writer.null >= 0)
        unknown = (branch_number < 0) | (branch_number >= count)
        lanes.fail(lane_ids, unknown, f"{path} has a branch number that its union does not have")
        merged = common_type(writer)
        if target is not None and writer.null >= 0 and not (reader.kind == "union" and reader.null >= 0):
            is_null = branch_number == writer.null
            lanes.fail(
                lane_ids, is_null, f"{path} is null, and its type in the reader's schema is {reader.kind}"
            )
        numbers = [n for n in range(count) if n != writer.null]
        # The position of each branch in the reader's union. The column's field `member<position>` contains
        # the values of the branch.
        positions = [0] * len(numbers) if merged or target is None else branch_positions(writer, reader)
        columns: list[Column] = []
        branch_rows: list[Ints] = []
        for number, position, branch in zip(numbers, positions, writer.branches, strict=True):
            rows = np.flatnonzero(branch_number == number)
            branch_target, branch_reader = target, branch
            if merged is not None:
                branch_reader = common_type(reader) or reader
            elif position >= 0:
                branch_target = _member_type(target, position)
                branch_reader = reader.branches[position] if target is not None else branch
            else:
                branch_target = None
                reason = f"{path} is {branch.name or branch.kind}, which the reader's union lacks"
                lanes.fail(lane_ids[rows], np.ones(len(rows), bool), reason)
            columns.append(self._value(lanes, lane_ids[rows], branch, branch_reader, branch_target, path))
            branch_rows.append(rows)
        if target is None:
            return None
        if merged is not None:
            return merge(columns, branch_rows, len(lane_ids), target)
        members: list[Column] = []
        for field in target:
            member = int(field.name.removeprefix("member"))
            branches = [n for n, position in enumerate(positions) if position == member]
            member_columns = [columns[n] for n in branches]
            member_rows = [branch_rows[n] for n in branches]
            members.append(merge(member_columns, member_rows, len(lane_ids), field.type))
        null_mask = from_numpy(branch_number == writer.null) if writer.null >= 0 else None
        return pa.StructArray.from_arrays(members, fields=list(target), mask=null_mask)

    def _blocks(
        self, lanes: Lanes, lane_ids: Ints, writer: AvroNode, reader: AvroNode, target: Any, path: str
    ) -> Column:
        """Read an array or a map from each lane.

        Each step reads one item from every lane that has further items.
        """
        # The number of items that each lane still has in its current block.
        in_block = np.zeros(len(lane_ids), np.int64)
        unfinished = np.ones(len(lane_ids), bool)
        item_counts = np.zeros(len(lane_ids), np.int64)
        owners: list[Ints] = []  # The row that each item belongs to.
        keys: list[Column] = []
        items: list[Column] = []
        item_type = None
        if target is not None:
            item_type = target.item_type if writer.kind == "map" else target.value_type
        while unfinished.any():
            block_rows = np.flatnonzero(unfinished & (in_block == 0))
            if len(block_rows):
                in_block[block_rows] = _block_counts(lanes, lane_ids[block_rows], path)
                unfinished[block_rows[in_block[block_rows] == 0]] = False
            rows = np.flatnonzero(in_block > 0)
            if not len(rows):
                continue
            if len(rows) < FEW:
                item_lanes, few_keys, few_items = self._read_few_lanes(
                    lanes, lane_ids[rows], in_block[rows], writer, reader, item_type, path
                )
                item_rows = rows[np.searchsorted(lane_ids[rows], item_lanes)]
                if writer.kind == "map":
                    keys.append(few_keys)
                items.append(few_items)
                owners.append(item_rows)
                item_counts += np.bincount(item_rows, minlength=len(lane_ids))
                in_block[rows] = 0
                continue
            if writer.kind == "map":
                sizes = lanes.zigzag(lane_ids[rows], f"a key of {path}")
                keys.append(lanes.text(lane_ids[rows], sizes, f"a key of {path}"))
            items.append(
                self._value(lanes, lane_ids[rows], writer.inner[0], reader.inner[0], item_type, f"{path}[]")
            )
            owners.append(rows)
            item_counts[rows] += 1
            in_block[rows] -= 1
        if target is None:
            return None
        offsets = from_numpy(np.concatenate([[0], np.cumsum(item_counts)]).astype(np.int32))
        order = np.argsort(np.concatenate(owners), kind="stable") if owners else np.zeros(0, np.int64)
        item_column = pa.concat_arrays(items).take(from_numpy(order)) if items else pa.nulls(0, item_type)
        if writer.kind == "map":
            key_column = pa.concat_arrays(keys).take(from_numpy(order)) if keys else pa.nulls(0, pa.string())
            return pa.MapArray.from_arrays(offsets, key_column, item_column).cast(target)
        return pa.ListArray.from_arrays(offsets, item_column, type=target)

    def _read_few_lanes(
        self,
        lanes: Lanes,
        lane_ids: Ints,
        counts: Ints,
        writer: AvroNode,
        reader: AvroNode,
        item_type: Any,
        path: str,
    ) -> tuple[Ints, Column, Column]:
        """Read the next `counts[i]` items of each lane `lane_ids[i]`; used for fewer than FEW lanes.

        Return the lane of each item, and the columns of keys and items. For an array, the keys are None.

        The start and end of each item are determined one by one, and then all items are read together. If
        a lane ends in the middle of an item, the lane fails, and none of its items are read.
        """
        view, item_node = lanes.view, writer.inner[0]
        item_lanes: list[int] = []
        start: list[int] = []
        stop: list[int] = []
        for lane, count in zip(lane_ids.tolist(), counts.tolist(), strict=True):
            position, end = int(lanes.at[lane]), int(lanes.end[lane])
            first_item = len(start)
            try:
                for _ in range(count):
                    start.append(position)
                    if writer.kind == "map":
                        position = skip_value(view, position, end, KEY)
                    position = skip_value(view, position, end, item_node)
                    stop.append(position)
            except ValueError:
                del start[first_item:], stop[first_item:]
                lanes.fail(np.array([lane]), np.array([True]), f"the bytes end in the middle of {path}")
            else:
                lanes.at[lane] = position
            item_lanes += [lane] * (len(start) - first_item)
        # Each item becomes a lane of its own.
        inner = lanes.within(np.array(start, np.int64), np.array(stop, np.int64))
        keys: Column = None
        if writer.kind == "map":
            key_sizes = inner.zigzag(inner.all(), f"a key of {path}")
            keys = inner.text(inner.all(), key_sizes, f"a key of {path}")
        items = self._value(inner, inner.all(), item_node, reader.inner[0], item_type, f"{path}[]")
        for item, reason in inner.bad.items():
            lanes.bad.setdefault(item_lanes[item], reason)
        return np.array(item_lanes, np.int64), keys, items


def _block_counts(lanes: Lanes, lane_ids: Ints, path: str) -> Ints:
    """Read how many items the next block of each lane has. The count is 0 at the end, and after an error."""
    count = lanes.zigzag(lane_ids, f"the size of {path}")
    with_size = np.flatnonzero(count < 0)
    if len(with_size):
        # A negative count is followed by the block's size in bytes, which is not used.
        lanes.zigzag(lane_ids[with_size], f"the size of {path}")
        count[with_size] = -count[with_size]
    remaining_bytes = lanes.end[lane_ids] - lanes.at[lane_ids]
    wrong = (count < 0) | (count > remaining_bytes)
    lanes.fail(lane_ids, wrong, f"{path} has more items than the remaining bytes can contain")
    count[wrong] = 0
    return count


def _member_type(target: Any, number: int) -> Any:
    """Return the type of a union's member, or None if the member is not selected."""
    if target is None:
        return None
    types: dict[str, Any] = {field.name: field.type for field in target}
    return types.get(f"member{number}")


def _default_column(field: AvroField, target: Any, count: int = 0) -> Column:
    """Return a column that repeats a field's default value `count` times.

    Raises Mismatch if the default value does not fit the target type.

    The default value is first encoded, and then decoded like any value of the field.
    """
    try:
        encoded = encode(field.node, field.default)
        column, bad = _AvroDecoder(field.node, field.node, target).decode(from_bytes([encoded]))
    except (ValueError, OverflowError) as error:
        raise Mismatch(f"the default of {field.names[0]} is not a {target}: {error}") from None
    if bad:
        raise Mismatch(f"the default of {field.names[0]} is not a {target}: {bad[0]}")
    return column.take(from_numpy(np.zeros(count, np.int64)))
