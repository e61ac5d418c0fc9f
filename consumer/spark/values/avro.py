"""``value.format=avro``: decodes Avro column by column, with or without the registry's header.

All values of a batch are read in parallel, field by field. Each value is a *lane* (`lanes`).

The writer's schema determines how the bytes are read. The reader's schema (``value.schema``, or the
registry's latest) determines the columns.

As Avro specifies, fields are matched by name and alias, missing fields take the reader's default, and numbers
are widened. Fields that are not selected are skipped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from kproto.errors import ConfigError
from kproto.records.arrow_arrays import from_bytes, from_numpy, from_texts

from ...schema_registry.registry import Schema, SchemaId
from .arrow_types import arrow_type
from .avro_defaults import encode
from .avro_resolution import (
    branch_positions,
    common_type,
    field_named,
    has_name_of,
    reader_of_union,
    scalar,
    symbols_read,
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
    return _reader(column_format).ddl


def decoder(column_format: ColumnFormat, kind: DataType) -> Decode:
    """Return a decoder. Raises ConfigError if the reader's schema does not fit the column."""
    option = column_format.option("schema")
    target, reader = arrow_type(option, kind), _reader(column_format)
    try:
        plain = _Read(reader, reader, target)
    except Mismatch as error:
        raise ConfigError("schema", f"{column_format.column} {kind.simpleString()}", str(error)) from None
    registry = column_format.registry
    if registry is None:
        return plain.decode

    def registered(schema_id: SchemaId) -> Decode:
        return _Read(_parsed(column_format, registry.schema(schema_id)), reader, target).decode

    return RegisteredDecoder(target, registered).decode


def _reader(column_format: ColumnFormat) -> AvroNode:
    """Return the reader's schema. Raises ConfigError if the options name no schema."""
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
        why = f"the query may read several topics; set the subject, or {option}"
        raise ConfigError(column_format.option("subject"), None, why)
    latest = column_format.with_latest_schema().latest
    assert latest is not None
    return checked_columns(option, _parsed(column_format, latest))


def _parsed(column_format: ColumnFormat, schema: Schema) -> AvroNode:
    """Parse a schema from the registry. The schemas to which it refers are parsed first."""
    if schema.kind != "AVRO":
        raise ConfigError(
            column_format.option("format"),
            "avro",
            f"the registry has a schema of the type {schema.kind} for this subject or id, not AVRO",
        )
    references = [reference.text for _, reference in schema.references()]
    return parse(column_format.option("schema"), schema.text, references)


class _Read:
    """Decodes values of one writer's schema into a column of type `target`."""

    def __init__(self, writer: AvroNode, reader: AvroNode, target: Any) -> None:
        self.writer, self.reader, self.target = writer, reader, target
        self._check(writer, reader, target, "")

    def decode(self, values: Column) -> tuple[Column, Bad]:
        """Decode values. Those that cannot be decoded become null."""
        lanes = Lanes(values)
        with np.errstate(over="ignore"):
            decoded = self._value(lanes, lanes.all(), self.writer, self.reader, self.target, "the value")
        lanes.finish("the value")
        if lanes.bad:
            mask = np.isin(np.arange(len(lanes)), list(lanes.bad))
            decoded = decoded.take(from_numpy(np.arange(len(lanes)), mask))
        return decoded, lanes.bad

    # ---- checked once

    def _check(self, writer: AvroNode, reader: AvroNode, target: Any, place: str) -> None:
        """Raise Mismatch if values of the writer's schema cannot be converted to the target type."""
        if writer.kind == "null":
            if reader.kind != "union" or reader.null < 0:
                raise Mismatch(
                    f"{place or 'the value'} is null in the writer's schema, and its type in the reader's "
                    f"schema is {reader.kind}, without null"
                )
            return
        if writer.kind == "union":
            merged = common_type(writer)
            if merged is None:
                positions = branch_positions(writer, reader)
                if max(positions) < 0:
                    raise Mismatch(
                        f"{place or 'the value'} is a union of several types in the writer's schema, and "
                        "the reader's schema has other types"
                    )
                for branch, number in zip(writer.branches, positions, strict=True):
                    index = target.get_field_index(f"member{number}") if pa.types.is_struct(target) else -1
                    if index >= 0:
                        inner = reader.branches[number]
                        self._check(branch, inner, target[index].type, f"{place}.member{number}".strip("."))
            else:
                self._check(merged, reader_of_union(writer, reader), target, place)
            return
        by_full_name, reader = reader.kind == "union", common_type(reader) or reader
        mismatch = (
            f"{place or 'the value'} is {writer.kind} in the writer's schema, {reader.kind} in the "
            f"reader's schema, and {target} in the column"
        )
        if writer.kind in ("record", "array", "map") and reader.kind != writer.kind:
            raise Mismatch(mismatch)
        if writer.kind == reader.kind in ("enum", "fixed"):
            if not has_name_of(writer, reader, full=by_full_name):
                raise Mismatch(
                    f"{place or 'the value'} is the {writer.kind} {writer.name} in the writer's schema, and "
                    f"{reader.name} in the reader's schema, which needs the alias {writer.name}"
                )
            if writer.size != reader.size:
                raise Mismatch(
                    f"{place or 'the value'} has {writer.size} bytes in the writer's schema, and "
                    f"{reader.size} in the reader's schema"
                )
        if writer.kind == "record":
            if not pa.types.is_struct(target) or not len(target):
                raise Mismatch(mismatch)
            for field in target:
                inside = f"{place}.{field.name}".strip(".")
                read = field_named(reader, field.name)
                if read is None:
                    raise Mismatch(f"the schema has no field {inside}")
                written = writers_field(writer, read)
                if written is not None:
                    self._check(written.node, read.node, field.type, inside)
                elif read.default is ABSENT:
                    raise Mismatch(f"{inside} is not in the writer's schema, and has no default")
                else:
                    _default(read, field.type)
        elif writer.kind == "array":
            if not pa.types.is_list(target):
                raise Mismatch(mismatch)
            self._check(writer.inner[0], reader.inner[0], target.value_type, f"{place}[]")
        elif writer.kind == "map":
            if not pa.types.is_map(target):
                raise Mismatch(mismatch)
            self._check(writer.inner[0], reader.inner[0], target.item_type, f"{place}[]")
        elif (
            (writer.kind, writer.logical) != (reader.kind, reader.logical) and not widens(writer, reader)
        ) or scalar(reader) != target:
            raise Mismatch(mismatch)

    # ---- values

    def _value(
        self, lanes: Lanes, at: Ints, writer: AvroNode, reader: AvroNode, target: Any, place: str
    ) -> Column:
        """Read the next value of each lane in `at`, and return a column.

        Without a target type, skip the values.
        """
        match writer.kind:
            case "union":
                return self._union(lanes, at, writer, reader, target, place)
            case "record":
                return self._record(lanes, at, writer, common_type(reader) or reader, target, place)
            case "array" | "map":
                return self._blocks(lanes, at, writer, common_type(reader) or reader, target, place)
            case _:
                return _leaf(lanes, at, writer, common_type(reader) or reader, target, place)

    def _record(
        self, lanes: Lanes, at: Ints, writer: AvroNode, reader: AvroNode, target: Any, place: str
    ) -> Column:
        """Read one record from each lane."""
        columns: dict[str, Column] = {}
        wanted: dict[str, tuple[AvroField, Any]] = {}
        for field in target if target is not None else ():
            read = field_named(reader, field.name)
            assert read is not None
            written = writers_field(writer, read)
            if written is None:
                columns[field.name] = _default(read, field.type, len(at))
            else:
                wanted[written.names[0]] = (read, field)
        for written_field in writer.fields:
            read, field = wanted.get(written_field.names[0], (written_field, None))
            kind = None if field is None else field.type
            value = self._value(lanes, at, written_field.node, read.node, kind, written_field.names[0])
            if field is not None:
                columns[field.name] = value
        if target is None:
            return None
        return pa.StructArray.from_arrays([columns[field.name] for field in target], fields=list(target))

    def _union(
        self, lanes: Lanes, at: Ints, writer: AvroNode, reader: AvroNode, target: Any, place: str
    ) -> Column:
        """Read one value of a union from each lane: the number of the branch, then the branch's value."""
        branch = lanes.zigzag(at, place)
        count = len(writer.branches) + (writer.null >= 0)
        lanes.fail(
            at, (branch < 0) | (branch >= count), f"{place} has a branch number that its union does not have"
        )
        merged = common_type(writer)
        if target is not None and writer.null >= 0 and not (reader.kind == "union" and reader.null >= 0):
            is_null = branch == writer.null
            lanes.fail(at, is_null, f"{place} is null, and its type in the reader's schema is {reader.kind}")
        members = [n for n in range(count) if n != writer.null]
        # The position of each branch in the reader's union. The same number identifies the branch's member in
        # the column.
        positions = [0] * len(members) if merged or target is None else branch_positions(writer, reader)
        columns: list[Column] = []
        branch_rows: list[Ints] = []
        for number, position, node in zip(members, positions, writer.branches, strict=True):
            rows = np.flatnonzero(branch == number)
            kind, inner = target, node
            if merged is not None:
                inner = common_type(reader) or reader
            elif position >= 0:
                kind = _member(target, position)
                inner = reader.branches[position] if target is not None else node
            else:
                kind, reason = None, f"{place} is {node.name or node.kind}, which the reader's union lacks"
                lanes.fail(at[rows], np.ones(len(rows), bool), reason)
            columns.append(self._value(lanes, at[rows], node, inner, kind, place))
            branch_rows.append(rows)
        if target is None:
            return None
        if merged is not None:
            return merge(columns, branch_rows, len(at), target)
        wide: list[Column] = []
        for field in target:
            number = int(field.name.removeprefix("member"))
            own = [n for n, position in enumerate(positions) if position == number]
            wide.append(merge([columns[n] for n in own], [branch_rows[n] for n in own], len(at), field.type))
        null = branch == writer.null
        mask = from_numpy(null) if writer.null >= 0 else None
        return pa.StructArray.from_arrays(wide, fields=list(target), mask=mask)

    def _blocks(
        self, lanes: Lanes, at: Ints, writer: AvroNode, reader: AvroNode, target: Any, place: str
    ) -> Column:
        """Read an array or a map from each lane.

        Each step reads one item from every lane that has further items.
        """
        remaining = np.zeros(len(at), np.int64)
        more = np.ones(len(at), bool)
        total = np.zeros(len(at), np.int64)
        owners: list[Ints] = []
        keys: list[Column] = []
        items: list[Column] = []
        inner = None if target is None else target.item_type if writer.kind == "map" else target.value_type
        while more.any():
            empty = np.flatnonzero(more & (remaining == 0))
            if len(empty):
                count = lanes.zigzag(at[empty], f"the size of {place}")
                sized = np.flatnonzero(count < 0)
                if len(sized):
                    # A negative count is followed by the block's size in bytes, which is not used.
                    lanes.zigzag(at[empty[sized]], f"the size of {place}")
                    count[sized] = -count[sized]
                room = lanes.end[at[empty]] - lanes.at[at[empty]]
                wrong = (count < 0) | (count > room)
                lanes.fail(at[empty], wrong, f"{place} has more items than the remaining bytes can contain")
                count[wrong] = 0
                remaining[empty] = count
                more[empty[count == 0]] = False
            rows = np.flatnonzero(remaining > 0)
            if not len(rows):
                continue
            if len(rows) < FEW:
                lane, value = self._read_few_lanes(
                    lanes, at[rows], remaining[rows], writer, reader, target, place
                )
                owner = rows[np.searchsorted(at[rows], lane)]
                if writer.kind == "map":
                    keys.append(value[0])
                items.append(value[1])
                owners.append(owner)
                total += np.bincount(owner, minlength=len(at))
                remaining[rows] = 0
                continue
            if writer.kind == "map":
                sizes = lanes.zigzag(at[rows], f"a key of {place}")
                keys.append(lanes.text(at[rows], sizes, f"a key of {place}"))
            items.append(self._value(lanes, at[rows], writer.inner[0], reader.inner[0], inner, f"{place}[]"))
            owners.append(rows)
            total[rows] += 1
            remaining[rows] -= 1
        if target is None:
            return None
        offsets = from_numpy(np.concatenate([[0], np.cumsum(total)]).astype(np.int32))
        order = np.argsort(np.concatenate(owners), kind="stable") if owners else np.zeros(0, np.int64)
        item = pa.concat_arrays(items).take(from_numpy(order)) if items else pa.nulls(0, inner)
        if writer.kind == "map":
            key = pa.concat_arrays(keys).take(from_numpy(order)) if keys else pa.nulls(0, pa.string())
            return pa.MapArray.from_arrays(offsets, key, item).cast(target)
        return pa.ListArray.from_arrays(offsets, item, type=target)

    def _read_few_lanes(
        self,
        lanes: Lanes,
        at: Ints,
        counts: Ints,
        writer: AvroNode,
        reader: AvroNode,
        target: Any,
        place: str,
    ) -> tuple[Ints, tuple[Column, Column]]:
        """Read many items of a few lanes. The positions of the items are determined one by one.

        Return the lane of each item, and the columns of keys and values.

        For an array, the keys are None.
        """
        view, inner = lanes.view, writer.inner[0]
        owner: list[int] = []
        start: list[int] = []
        stop: list[int] = []
        for lane, count in zip(at.tolist(), counts.tolist(), strict=True):
            position, end = int(lanes.at[lane]), int(lanes.end[lane])
            before = len(start)
            try:
                for _ in range(count):
                    start.append(position)
                    if writer.kind == "map":
                        position = skip_value(view, position, end, KEY)
                    position = skip_value(view, position, end, inner)
                    stop.append(position)
            except ValueError:
                del start[before:], stop[before:]
                lanes.fail(np.array([lane]), np.array([True]), f"the bytes end in the middle of {place}")
            else:
                lanes.at[lane] = position
            owner += [lane] * (len(start) - before)
        own = lanes.within(np.array(start, np.int64), np.array(stop, np.int64))
        key: Column = None
        kind: Any = None
        if target is not None:
            kind = target.item_type if writer.kind == "map" else target.value_type
        if writer.kind == "map":
            key = own.text(own.all(), own.zigzag(own.all(), f"a key of {place}"), f"a key of {place}")
        value = self._value(own, own.all(), inner, reader.inner[0], kind, f"{place}[]")
        for row, reason in own.bad.items():
            lanes.bad.setdefault(owner[row], reason)
        return np.array(owner, np.int64), (key, value)


def _member(target: Any, number: int) -> Any:
    """Return the type of a union's member, or None if the member is not selected."""
    if target is None:
        return None
    types: dict[str, Any] = {field.name: field.type for field in target}
    return types.get(f"member{number}")


def _leaf(lanes: Lanes, at: Ints, writer: AvroNode, reader: AvroNode, target: Any, place: str) -> Column:
    """Read one value from each lane, for a type that contains no other types."""
    match writer.kind:
        case "null":
            return None if target is None else pa.nulls(len(at), target)
        case "int" | "long":
            value = lanes.zigzag(at, place)
            if writer.kind == "int":
                lanes.fail(at, value != value.astype(np.int32), f"{place} has more than 32 bits")
            if target is None:
                return None
            if pa.types.is_timestamp(target):
                if writer.logical.endswith("millis"):
                    lanes.fail(
                        at, np.abs(value) > _MOST_MS, f"{place} is outside of the range of Spark's timestamps"
                    )
                    value = value * 1000
                return from_numpy(value).view(target)
            if pa.types.is_time(target):
                outside = (value < 0) | (value >= _DAY_US)
                lanes.fail(at, outside, f"{place} is not a time of day")
                return from_numpy(np.where(outside, 0, value) * 1000).view(target)
            narrow = np.int32 if writer.kind == "int" else np.int64
            column = from_numpy(value.astype(narrow))
            return column.view(target) if pa.types.is_date(target) else column.cast(target, safe=False)
        case "float" | "double":
            value = lanes.fixed(at, "<f4" if writer.kind == "float" else "<f8", place)
            return None if target is None else from_numpy(value).cast(target)
        case "boolean":
            value = lanes.fixed(at, "u1", place)
            lanes.fail(at, value > 1, f"{place} is neither true nor false")
            return None if target is None else from_numpy(value == 1)
        case "enum":
            number = lanes.zigzag(at, place)
            wrong = (number < 0) | (number >= len(writer.symbols))
            lanes.fail(at, wrong, f"{place} has a symbol number that its enum does not have")
            if target is None:
                return None
            words = symbols_read(writer, reader)
            for position in (n for n, word in enumerate(words) if word is None):
                reason = f"{place} is {writer.symbols[position]}, which the enum of the reader's schema lacks"
                lanes.fail(at, number == position, reason)
            return from_texts(words).take(from_numpy(number.astype(np.int32), wrong))
        case "fixed":
            sizes = np.full(len(at), writer.size, np.int64)
        case _:
            sizes = lanes.zigzag(at, f"the size of {place}")
    if writer.kind == "string":
        # A string is read even if it is not selected, because invalid UTF-8 is an error.
        column = lanes.text(at, sizes, place)
        return None if target is None else column.cast(target)
    start, stop = lanes.skip(at, sizes, place)
    if target is None:
        return None
    if pa.types.is_decimal(target):
        return _decimals(lanes, at, start, stop, target, place)
    column = lanes.cut(start, stop)
    if not pa.types.is_string(target):
        return column
    return lanes.as_text(at, column, place)


def _decimals(lanes: Lanes, at: Ints, start: Ints, stop: Ints, target: Any, place: str) -> Column:
    """Convert big-endian numbers to Arrow's little-endian decimals of 16 bytes.

    As Java's BigInteger requires, a number has at least one byte. A number may begin with bytes that only
    repeat its sign.
    """
    size = stop - start
    lanes.fail(at, size == 0, f"{place} is a decimal without bytes")
    wrong = size > 16
    for row in np.flatnonzero(wrong).tolist():
        number = lanes.data[start[row] : stop[row]].tobytes()
        wrong[row] = abs(int.from_bytes(number, "big", signed=True)) >= 10**38
    lanes.fail(at, wrong, f"{place} has more than 38 digits")
    size = np.minimum(size, 16)
    sign = np.where((size > 0) & (lanes.data[start] > 127), 255, 0).astype(np.uint8)
    numbers = np.repeat(sign[:, None], 16, axis=1)
    for byte in range(int(size.max(initial=0))):
        rows = np.flatnonzero(size > byte)
        numbers[rows, byte] = lanes.data[stop[rows] - 1 - byte]
    buffer = pa.py_buffer(np.ascontiguousarray(numbers))
    widest = pa.decimal128(38, target.scale)
    column = pa.Array.from_buffers(widest, len(size), [None, buffer])
    try:
        return column.cast(target)
    except pa.ArrowInvalid:
        limit = 10**target.precision
        whole = [int.from_bytes(number.tobytes(), "little", signed=True) for number in numbers]
        wrong = np.array([abs(number) >= limit for number in whole])
        lanes.fail(at, wrong, f"{place} has more than {target.precision} digits")
        numbers[wrong] = 0
        buffer = pa.py_buffer(np.ascontiguousarray(numbers))
        return pa.Array.from_buffers(widest, len(size), [None, buffer]).cast(target)


_MOST_MS = (2**63 - 1) // 1000
_DAY_US = 24 * 3600 * 1_000_000


def _default(field: AvroField, target: Any, count: int = 0) -> Column:
    """Return a column that repeats a field's default value.

    Raises Mismatch if the default value does not fit the target type.

    The default value is first encoded, and then decoded like any value of the field.
    """
    try:
        encoded = encode(field.node, field.default)
        column, bad = _Read(field.node, field.node, target).decode(from_bytes([encoded]))
    except (ValueError, OverflowError) as error:
        raise Mismatch(f"the default of {field.names[0]} is not a {target}: {error}") from None
    if bad:
        raise Mismatch(f"the default of {field.names[0]} is not a {target}: {bad[0]}")
    return column.take(from_numpy(np.zeros(count, np.int64)))
