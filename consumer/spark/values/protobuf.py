"""``value.format=protobuf``: decodes messages column by column, with a descriptor set.

All messages of a batch are read together. Each message is a *lane* (`lanes`). Each step selects the
smallest tag at any lane's position, and reads its field in all lanes at this tag. Fields that are unknown or
not selected are skipped.

Serializers write fields in order, so the number of steps is about the number of fields.

Unsigned numbers never become negative, because uint32 becomes BIGINT, and uint64 DECIMAL(20, 0).

A missing field has protobuf's default value if its presence is not tracked; otherwise it is null.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from kproto.errors import ConfigError
from kproto.records.arrow_arrays import from_numpy, from_texts, to_numpy

from ...schema_registry.protobuf_schema import SERIALIZED, message_names
from .arrow_types import arrow_type
from .lanes import Ints, Lanes, pa, scatter
from .protobuf_schema import ENUM, KINDS, MESSAGE, column_type, is_map, is_repeated, well_known_type
from .protobuf_schema import message as descriptor
from .registered import Mismatch, RegisteredDecoder

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

    from ...schema_registry.registry import SchemaId
    from .types import Bad, Column, ColumnFormat, Decode
__all__ = ["column_type", "decoder"]

# Values of FieldDescriptor.type: sint32 and sint64 have zigzag encoding.
_SINT32 = 17
_ZIGZAG = (_SINT32, 18)
_STRING = 9


def decoder(column_format: ColumnFormat, kind: DataType) -> Decode:
    """Return a decoder. Raises ConfigError if the column does not fit the message."""
    message, target = descriptor(column_format), arrow_type(column_format.option("schema"), kind)
    _check_message(message, target, column_format.column)

    def decode_bare(values: Column) -> tuple[Column, Bad]:
        return _decode_messages(Lanes(values), message, target)

    registry = column_format.registry
    if registry is None:
        return decode_bare

    def writers_decoder(schema_id: SchemaId) -> Decode:
        try:
            names = message_names(registry.schema(schema_id, SERIALIZED))
        except ValueError as error:
            raise Mismatch(str(error)) from None

        def decode_with_indexes(values: Column) -> tuple[Column, Bad]:
            lanes = Lanes(values)
            _check_message_indexes(lanes, names, message.full_name, column_format.option("message"))
            return _decode_messages(lanes, message, target)

        return decode_with_indexes

    return RegisteredDecoder(target, writers_decoder).decode


def _decode_messages(lanes: Lanes, message: Any, target: Any) -> tuple[Column, Bad]:
    """Decode messages into a column. Messages that cannot be decoded become null."""
    column = _read_messages(lanes, message, target)
    if lanes.bad:
        column = column.take(from_numpy(lanes.all(), np.isin(lanes.all(), list(lanes.bad))))
    return column, lanes.bad


def _check_message(message: Any, target: Any, path: str) -> None:
    """Raise ConfigError if a message cannot be converted to a column of this type."""
    if not pa.types.is_struct(target) or not len(target):
        raise ConfigError(
            "schema", f"{path} {target}", f"{message.full_name} is a message: its column must be a STRUCT"
        )
    for target_field in target:
        field = message.fields_by_name.get(target_field.name)
        if field is None:
            names = ", ".join(message.fields_by_name)
            raise ConfigError(
                "schema",
                f"{path}.{target_field.name}",
                f"{message.full_name} has no such field; its fields are {names}",
            )
        _check_field(field, target_field.type, f"{path}.{target_field.name}")


def _check_field(field: Any, target: Any, path: str) -> None:
    """Raise ConfigError if a field cannot be converted to this type."""
    if is_map(field):
        if not pa.types.is_map(target):
            raise ConfigError("schema", f"{path} {target}", "the field is a map: its column must be a MAP")
        entry = field.message_type.fields_by_name
        _check_field(entry["key"], target.key_type, f"{path}.key")
        _check_field(entry["value"], target.item_type, f"{path}.value")
    elif is_repeated(field) and pa.types.is_list(target):
        _check_value_type(field, target.value_type, f"{path}[]")
    elif is_repeated(field):
        raise ConfigError("schema", f"{path} {target}", "the field is repeated: its column must be an ARRAY")
    else:
        _check_value_type(field, target, path)


def _check_value_type(field: Any, target: Any, path: str) -> None:
    """Raise ConfigError if a field, or an item of a repeated field, cannot be converted to this type."""
    if field.type == MESSAGE and not well_known_type(field.message_type):
        _check_message(field.message_type, target, path)
    elif target != _arrow_type_of(field):
        raise ConfigError("schema", f"{path} {target}", f"the field has the type {_arrow_type_of(field)}")


def _arrow_type_of(field: Any) -> Any:
    """Return the Arrow type of a scalar field, or of a field that is a Timestamp or Duration."""
    if field.type == MESSAGE:
        is_timestamp = well_known_type(field.message_type) == "TIMESTAMP"
        return pa.timestamp("us", tz="UTC") if is_timestamp else pa.duration("us")
    return {
        "DOUBLE": pa.float64(), "FLOAT": pa.float32(), "BIGINT": pa.int64(), "INT": pa.int32(),
        "DECIMAL(20, 0)": pa.decimal128(20, 0), "BOOLEAN": pa.bool_(), "STRING": pa.string(),
        "BINARY": pa.binary(),
    }[KINDS[field.type][0]]  # fmt: skip


# ---- messages


def _check_message_indexes(
    lanes: Lanes, names: dict[tuple[int, ...], str], expected_name: str, option: str
) -> None:
    """Read the message indexes after the schema id: their count, and then the indexes. The count 0 means [0].

    `names` maps indexes to the name of a message in the writer's schema. Each lane whose indexes do not name
    the message `expected_name` gets an error.
    """
    counts = lanes.zigzag(lanes.all(), "the message's index")
    invalid = "the bytes are not in the registry's wire format: the message indexes are invalid"
    lanes.fail(lanes.all(), (counts < 0) | (counts > _MAX_DEPTH), invalid)
    counts[list(lanes.bad)] = -1
    for count in np.unique(counts[counts >= 0]).tolist():
        rows = np.flatnonzero(counts == count)
        indexes = np.zeros((len(rows), max(count, 1)), np.int64)
        for position in range(count):
            indexes[:, position] = lanes.zigzag(rows, "the message's index")
        paths, path_numbers = np.unique(indexes, axis=0, return_inverse=True)
        for number, path in enumerate(paths.tolist()):
            name = names.get(tuple(path))
            if name != expected_name:
                reason = (
                    f"its message indexes {path} do not exist in its schema"
                    if name is None
                    else f"it is the message {name}, and not {expected_name}; {option} selects the message"
                )
                lanes.fail(rows, path_numbers.reshape(-1) == number, reason)


# The maximum number of message indexes of a value. A message has one index for each level of nesting, and
# Protobuf's compiler allows 32 levels.
_MAX_DEPTH = 32


class _FieldReader:
    """Collects the values of one field, in the order in which they are read.

    Each read adds a chunk: the values, and the lane (the number of the message) of each value.
    """

    def __init__(self, field: Any, target: Any) -> None:
        self.field, self.target = field, target
        self.wire_type = KINDS[field.type][1]
        self.chunk_rows: list[Ints] = []  # For each chunk: the lane of each value.
        # For each chunk: two arrays, with the start and the end of each value's bytes. If the values are
        # numbers, both arrays contain the numbers themselves.
        self.chunk_values: list[tuple[Any, Any]] = []

    def add(self, lanes: Lanes, rows: Ints, packed: bool) -> None:
        """Read the next occurrence of the field in the lanes `rows`."""
        name = self.field.name
        if packed:
            rows, value = _read_packed(lanes, rows, self.field)
            self.chunk_values.append((value, value))
        elif self.wire_type == 2 and len(rows) < _MIN_NUMPY_ROWS and is_repeated(self.field):
            rows, start, stop = _read_consecutive(lanes, rows, self.field)
            self.chunk_values.append((start, stop))
        elif self.wire_type == 2:
            sizes = lanes.varint(rows, f"the size of {name}")
            self.chunk_values.append(lanes.skip(rows, sizes, name))
        else:
            value = _read_number(lanes, rows, self.field)
            self.chunk_values.append((value, value))
        self.chunk_rows.append(rows)

    def column(self, lanes: Lanes, begin: Ints, with_defaults: bool) -> Column:
        """Return the field's column. `begin` contains the offset at which each message begins.

        With `with_defaults`, a missing value becomes the default, even if the field's presence is tracked.
        """
        count = len(lanes)
        kind = "i8" if self.wire_type == 2 else KINDS[self.field.type][2].strip("<")
        rows = np.concatenate([np.zeros(0, np.int64), *self.chunk_rows])
        starts = np.concatenate([np.zeros(0, kind), *(starts for starts, _ in self.chunk_values)])
        ends = np.concatenate([np.zeros(0, kind), *(ends for _, ends in self.chunk_values)])
        order = np.argsort(rows, kind="stable")
        rows, starts, ends = rows[order], starts[order], ends[order]
        if is_repeated(self.field):
            return self._repeated_column(lanes, rows, starts, ends)
        # If a field occurs several times in one message, its last value counts.
        last = np.flatnonzero(np.append(rows[1:] != rows[:-1], True)) if len(rows) else rows
        if len(last) < len(rows) and self.field.type == MESSAGE:
            occurs_again = np.bincount(rows, minlength=count) > 1
            reason = f"the message {self.field.name} occurs several times in one value"
            lanes.fail(lanes.all(), occurs_again, reason)
        rows, starts, ends = rows[last], starts[last], ends[last]
        if len(rows) < count and (with_defaults or not self.field.has_presence):
            all_starts, all_ends = np.zeros(count, starts.dtype), np.zeros(count, starts.dtype)
            if self.wire_type == 2:  # The default is an empty value, which starts and ends at `begin`.
                all_starts[:], all_ends[:] = begin, begin
            elif self.field.type == ENUM:
                all_starts[:] = self.field.default_value
            all_starts[rows], all_ends[rows] = starts, ends
            return self._build_values(lanes, lanes.all(), all_starts, all_ends, self.target)
        return scatter(self._build_values(lanes, rows, starts, ends, self.target), rows, count)

    def _repeated_column(self, lanes: Lanes, rows: Ints, starts: Any, ends: Any) -> Column:
        """Return the column of a repeated field or a map. Takes the arguments of `_build_values`."""
        sizes = np.bincount(rows, minlength=len(lanes))
        offsets = from_numpy(np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32))
        if is_map(self.field):
            entries = _read_entries(lanes, self.field, self.target, rows, starts, ends)
            return pa.MapArray.from_arrays(offsets, entries.field(0), entries.field(1)).cast(self.target)
        items = self._build_values(lanes, rows, starts, ends, self.target.value_type)
        return pa.ListArray.from_arrays(offsets, items, type=self.target)

    def _build_values(self, lanes: Lanes, rows: Ints, starts: Any, ends: Any, target: Any) -> Column:
        """Return a column of the field's values. Value i belongs to the message (lane) `rows[i]`.

        Value i occupies the bytes from `starts[i]` to `ends[i]`. For numbers, `starts` contains the numbers
        themselves.
        """
        field = self.field
        if field.type == MESSAGE:
            is_time = bool(well_known_type(field.message_type))
            kind = pa.struct([("seconds", pa.int64()), ("nanos", pa.int32())]) if is_time else target
            inner = lanes.within(starts, ends)
            messages = _read_messages(inner, field.message_type, kind)
            reasons = {int(rows[lane]): reason for lane, reason in inner.bad.items()}
            for lane, reason in reasons.items():
                lanes.bad.setdefault(lane, reason)
            return _time_column(lanes, rows, messages, target, field.name) if is_time else messages
        if self.wire_type == 2:
            values = lanes.cut(starts, ends)
            return lanes.as_text(rows, values, field.name) if field.type == _STRING else values
        if field.type == ENUM:
            names = {value.number: value.name for value in reversed(field.enum_type.values)}
            numbers, number_indexes = np.unique(starts, return_inverse=True)
            symbols = from_texts([names.get(number, str(number)) for number in numbers.tolist()])
            return symbols.take(from_numpy(number_indexes))
        if pa.types.is_decimal(target):
            # Each decimal has 16 bytes: the unsigned number, and then zeros.
            words = np.zeros((len(starts), 2), np.uint64)
            words[:, 0] = starts
            buffers = [None, pa.py_buffer(np.ascontiguousarray(words))]
            return pa.Array.from_buffers(pa.decimal128(20, 0), len(starts), buffers)
        return from_numpy(starts).cast(target)


def _read_entries(lanes: Lanes, field: Any, target: Any, rows: Ints, starts: Any, ends: Any) -> Column:
    """Return the entries of a map as structs with a key and a value.

    A missing key or value takes the default of its type.
    """
    kind = pa.struct([pa.field("key", target.key_type), pa.field("value", target.item_type)])
    inner = lanes.within(starts, ends)
    entries = _read_messages(inner, field.message_type, kind, with_defaults=True)
    for lane, reason in inner.bad.items():
        lanes.bad.setdefault(int(rows[lane]), reason)
    return entries


def _time_column(lanes: Lanes, rows: Ints, messages: Column, target: Any, name: str) -> Column:
    """Convert Timestamp or Duration messages of the field `name` to a column in microseconds.

    A lane whose time is out of range gets an error.
    """
    seconds, nanos = to_numpy(messages.field(0), np.int64), to_numpy(messages.field(1), np.int32)
    is_out_of_range = np.abs(seconds) > (2**63 - 1) // 1_000_000 - 1
    lanes.fail(rows, is_out_of_range, f"{name} is outside of the range of Spark's times")
    micros = np.where(is_out_of_range, 0, seconds) * 1_000_000 + nanos // 1000
    return from_numpy(micros).view(target)


def _read_number(lanes: Lanes, rows: Ints, field: Any) -> Any:
    """Read one number from each lane."""
    _, wire_type, kind = KINDS[field.type]
    if wire_type:
        return lanes.fixed(rows, kind, field.name)
    value = lanes.varint(rows, field.name)
    if field.type == _SINT32:
        value &= 0xFFFFFFFF
    if field.type in _ZIGZAG:
        value = (value >> 1 & (1 << 63) - 1) ^ -(value & 1)
    return value != 0 if kind == "bool" else value.astype(kind)


def _read_packed(lanes: Lanes, rows: Ints, field: Any) -> tuple[Ints, Any]:
    """Read packed numbers from each lane. Return the lane of each number, and the numbers."""
    sizes = lanes.varint(rows, f"the size of {field.name}")
    start, stop = lanes.skip(rows, sizes, field.name)
    _, wire_type, kind = KINDS[field.type]
    length = stop - start
    if wire_type:
        width = np.dtype(kind).itemsize
        lanes.fail(rows, length % width != 0, f"{field.name} ends in the middle of a number")
        counts = length // width
        return np.repeat(rows, counts), lanes.windows(kind)[_strided_offsets(start, counts, width)]
    # A varint ends with a byte below 128, and begins after the end of the varint before it, or at the start
    # of its field. Each varint becomes a lane.
    byte_offsets = _strided_offsets(start, length, 1)
    is_last_byte = lanes.data[byte_offsets] < 128
    is_cut_off = (length > 0) & (lanes.data[np.maximum(stop - 1, 0)] > 127)
    lanes.fail(rows, is_cut_off, f"{field.name} ends in the middle of a number")
    varint_ends: Ints = byte_offsets[is_last_byte] + 1
    row_indexes = np.repeat(np.arange(len(rows)), length)[is_last_byte]
    varint_starts: Ints = np.roll(varint_ends, 1)
    is_first = np.append(True, row_indexes[1:] != row_indexes[:-1])[: len(row_indexes)]
    varint_starts[is_first] = start[row_indexes[is_first]]
    inner = lanes.within(varint_starts, varint_ends)
    value = _read_number(inner, inner.all(), field)
    for lane, reason in inner.bad.items():
        lanes.bad.setdefault(int(rows[row_indexes[lane]]), reason)
    return rows[row_indexes], value


_MIN_NUMPY_ROWS = 100  # For fewer values than this, numpy operations are slower than a Python loop.


def _read_consecutive(lanes: Lanes, rows: Ints, field: Any) -> tuple[Ints, Ints, Ints]:
    """Read consecutive values of a repeated field; return each value's lane, start and end.

    Afterwards the position of each lane is the end of its last value, before the tag of another field.
    """
    view, tag = lanes.view, field.number << 3 | 2
    values: list[tuple[int, int, int]] = []
    for lane in rows.tolist():
        at, end = int(lanes.at[lane]), int(lanes.end[lane])
        while True:
            size, begin = _read_varint(view, at, end)
            if size < 0 or begin + size > end:
                reason = f"{field.name} is longer than the remaining bytes"
                lanes.fail(np.array([lane]), np.array([True]), reason)
                break
            values.append((lane, begin, begin + size))
            at = int(begin + size)
            lanes.at[lane] = at
            next_tag, after_tag = _read_varint(view, at, end)
            if next_tag != tag:
                break
            at = after_tag
    table = np.array(values, np.int64).reshape(-1, 3)
    return table[:, 0], table[:, 1].copy(), table[:, 2].copy()


def _read_varint(view: memoryview, at: int, end: int) -> tuple[int, int]:
    """Return the varint at `at` and the offset after it. The value is -1 if the varint is incomplete."""
    value = shift = 0
    while at < end and shift < 70:
        byte = view[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
    return -1, at


def _strided_offsets(start: Ints, counts: Ints, step: int) -> Ints:
    """Return, for each i, `counts[i]` offsets from `start[i]` on, at intervals of `step` bytes."""
    counts_before = np.cumsum(counts) - counts
    indexes: Ints = np.arange(int(counts.sum()), dtype=np.int64) - np.repeat(counts_before, counts)
    return np.repeat(start, counts) + indexes * step


def _read_messages(lanes: Lanes, message: Any, target: Any, *, with_defaults: bool = False) -> Column:
    """Read messages as structs of the target's fields.

    With `with_defaults`, missing values become defaults instead of null.
    """
    readers = {
        column.name: _FieldReader(message.fields_by_name[column.name], column.type) for column in target
    }
    readers_by_number = {reader.field.number: reader for reader in readers.values()}
    begin = lanes.at.copy()
    tags = np.full(len(lanes), _NO_TAG, np.int64)

    def read_tags(rows: Ints) -> None:
        """Read the next tag in each of the lanes `rows`."""
        has_more = lanes.at[rows] < lanes.end[rows]
        tags[rows] = _NO_TAG
        rows = rows[has_more]
        if len(rows):
            tag = lanes.varint(rows, "a tag")
            wrong = (tag >> 3 == 0) | (tag < 0) | (tag >= _NO_TAG)
            lanes.fail(rows, wrong, "a tag has no valid field number")
            tags[rows] = np.where(wrong | (lanes.at[rows] > lanes.end[rows]), _NO_TAG, tag)

    read_tags(lanes.all())
    while True:
        tag = int(tags.min(initial=_NO_TAG))
        if tag == _NO_TAG:
            break
        rows = np.flatnonzero(tags == tag)
        reader, wire_type = readers_by_number.get(tag >> 3), tag & 7
        if reader is not None and wire_type == reader.wire_type:
            reader.add(lanes, rows, packed=False)
        elif reader is not None and wire_type == 2 and reader.wire_type != 2 and is_repeated(reader.field):
            reader.add(lanes, rows, packed=True)
        else:
            _skip_field(lanes, rows, tag)
        read_tags(rows)
    columns = [reader.column(lanes, begin, with_defaults) for reader in readers.values()]
    return pa.StructArray.from_arrays(columns, fields=list(target))


# The tag of a lane that has ended. It exceeds all valid tags.
_NO_TAG = 1 << 32


def _skip_field(lanes: Lanes, rows: Ints, tag: int) -> None:
    """Skip the field with this tag, which is unknown or not selected."""
    name = f"field {tag >> 3}"
    match tag & 7:
        case 0:
            lanes.varint(rows, name)
        case 1:
            lanes.fixed(rows, "<i8", name)
        case 5:
            lanes.fixed(rows, "<i4", name)
        case 2:
            lanes.skip(rows, lanes.varint(rows, f"the size of {name}"), name)
        case wire_type:
            reason = (
                "protobuf groups are not supported"
                if wire_type in (3, 4)
                else f"there is no wire type {wire_type}"
            )
            lanes.fail(rows, np.ones(len(rows), bool), f"{name}: {reason}")
