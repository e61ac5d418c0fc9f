"""``value.format=protobuf``: messages by a descriptor set, read in columns.

All messages of a batch are read side by side (`lanes`): each step takes the smallest tag that any of them is
at, and the field behind it in all that are there. Serializers write fields in order, so that there are about
as many steps as fields. What isn't asked for is passed over, and so is what the descriptor doesn't know.

Numbers are never turned negative: uint32 is BIGINT, uint64 DECIMAL(20, 0). A field without presence that
isn't there has its default, as protobuf has it; others are null.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from kproto.errors import ConfigError

from .arrow_types import arrow
from .lanes import Ints, Lanes, behind_ids, pa, spread
from .protobuf_schema import ENUM, KINDS, MESSAGE, column_type, is_map, known, repeated
from .protobuf_schema import message as descriptor

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

    from .types import Bad, Column, ColumnFormat, Decode
__all__ = ["column_type", "decoder"]

_ZIGZAG = (17, 18)
_SINT32 = 17


def decoder(column_format: ColumnFormat, kind: DataType) -> Decode:
    message, target = descriptor(column_format), arrow(column_format.option("schema"), kind)
    _check(message, target, column_format.column)

    def plain(values: Column) -> tuple[Column, Bad]:
        return _column(Lanes(values), message, target)

    def indexed(values: Column) -> tuple[Column, Bad]:
        lanes = Lanes(values)
        _past_indexes(lanes)
        return _column(lanes, message, target)

    return plain if column_format.registry is None else behind_ids(indexed)


def _column(lanes: Lanes, message: Any, target: Any) -> tuple[Column, Bad]:
    found = _read(lanes, message, target)
    if lanes.bad:
        found = found.take(pa.array(lanes.all(), mask=np.isin(lanes.all(), list(lanes.bad))))
    return found, lanes.bad


def _check(message: Any, target: Any, place: str) -> None:
    """Whether a message can become a column of this type. Raises ConfigError."""
    if not pa.types.is_struct(target) or not len(target):
        raise ConfigError("schema", f"{place} {target}", f"{message.full_name} makes a STRUCT")
    for one in target:
        field = message.fields_by_name.get(one.name)
        if field is None:
            names = ", ".join(message.fields_by_name)
            raise ConfigError("schema", f"{place}.{one.name}", f"{message.full_name} has: {names}")
        _check_field(field, one.type, f"{place}.{one.name}")


def _check_field(field: Any, target: Any, place: str) -> None:
    if is_map(field):
        if not pa.types.is_map(target):
            raise ConfigError("schema", f"{place} {target}", "it is a MAP")
        entry = field.message_type.fields_by_name
        _check_field(entry["key"], target.key_type, f"{place}.key")
        _check_field(entry["value"], target.item_type, f"{place}.value")
    elif repeated(field) and pa.types.is_list(target):
        _check_one(field, target.value_type, f"{place}[]")
    elif repeated(field):
        raise ConfigError("schema", f"{place} {target}", "it is an ARRAY")
    else:
        _check_one(field, target, place)


def _check_one(field: Any, target: Any, place: str) -> None:
    if field.type == MESSAGE and not known(field.message_type):
        _check(field.message_type, target, place)
    elif target != _arrow(field):
        raise ConfigError("schema", f"{place} {target}", f"it is {_arrow(field)}")


def _arrow(field: Any) -> Any:
    """The type of a field that isn't a message of its own."""
    if field.type == MESSAGE:
        return pa.timestamp("us", tz="UTC") if known(field.message_type) == "TIMESTAMP" else pa.duration("us")
    return {
        "DOUBLE": pa.float64(), "FLOAT": pa.float32(), "BIGINT": pa.int64(), "INT": pa.int32(),
        "DECIMAL(20, 0)": pa.decimal128(20, 0), "BOOLEAN": pa.bool_(), "STRING": pa.string(),
        "BINARY": pa.binary(),
    }[KINDS[field.type][0]]  # fmt: skip


# ---- messages


def _past_indexes(lanes: Lanes) -> None:
    """Behind a registry's id is which message of the file it is: a count and so many numbers; 0 is [0]."""
    left = lanes.zigzag(lanes.all(), "the message's index")
    lanes.fail(lanes.all(), (left < 0) | (left > 32), "it isn't in the registry's wire format")
    left[list(lanes.bad)] = 0
    while (left > 0).any():
        some = np.flatnonzero(left > 0)
        lanes.zigzag(some, "the message's index")
        left[some] -= 1


class _Taken:
    """What was read of one field: parts, each with the lanes it belongs to."""

    def __init__(self, field: Any, target: Any) -> None:
        self.field, self.target = field, target
        self.wire = KINDS[field.type][1]
        self.rows: list[Ints] = []
        self.parts: list[tuple[Any, Any]] = []  # numbers, or where bytes begin and end

    def add(self, lanes: Lanes, rows: Ints, packed: bool) -> None:
        name = self.field.name
        if packed:
            rows, value = _packed(lanes, rows, self.field)
            self.parts.append((value, value))
        elif self.wire == 2 and len(rows) < _FEW and repeated(self.field):
            rows, start, stop = _run(lanes, rows, self.field)
            self.parts.append((start, stop))
        elif self.wire == 2:
            sizes = lanes.varint(rows, f"the size of {name}")
            self.parts.append(lanes.skip(rows, sizes, name))
        else:
            value = _number(lanes, rows, self.field)
            self.parts.append((value, value))
        self.rows.append(rows)

    def column(self, lanes: Lanes, begin: Ints, whole: bool) -> Column:
        """The field's column; `whole` has a default where nothing is, also of what has presence."""
        count = len(lanes)
        kind = "i8" if self.wire == 2 else KINDS[self.field.type][2].strip("<")
        rows = np.concatenate([np.zeros(0, np.int64), *self.rows])
        one = np.concatenate([np.zeros(0, kind), *(part[0] for part in self.parts)])
        other = np.concatenate([np.zeros(0, kind), *(part[1] for part in self.parts)])
        order = np.argsort(rows, kind="stable")
        rows, one, other = rows[order], one[order], other[order]
        if repeated(self.field):
            sizes = np.bincount(rows, minlength=count)
            offsets = pa.array(np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32))
            if is_map(self.field):
                entry = _entries(lanes, self.field, self.target, rows, one, other)
                return pa.MapArray.from_arrays(offsets, entry.field(0), entry.field(1)).cast(self.target)
            inner = self._made(lanes, rows, one, other, self.target.value_type)
            return pa.ListArray.from_arrays(offsets, inner, type=self.target)
        last = np.flatnonzero(np.append(rows[1:] != rows[:-1], True)) if len(rows) else rows
        if len(last) < len(rows) and self.field.type == MESSAGE:
            twice = np.bincount(rows, minlength=count) > 1
            lanes.fail(lanes.all(), twice, f"the message {self.field.name} is there in pieces")
        rows, one, other = rows[last], one[last], other[last]
        if len(rows) < count and (whole or not self.field.has_presence):
            first, until = np.zeros(count, one.dtype), np.zeros(count, one.dtype)
            if self.wire == 2:
                first[:], until[:] = begin, begin
            elif self.field.type == ENUM:
                first[:] = self.field.default_value
            first[rows], until[rows] = one, other
            return self._made(lanes, lanes.all(), first, until, self.target)
        return spread(self._made(lanes, rows, one, other, self.target), rows, count)

    def _made(self, lanes: Lanes, rows: Ints, one: Any, other: Any, target: Any) -> Column:
        """A column of what was taken, in the order of the lanes."""
        field = self.field
        if field.type == MESSAGE:
            moment = known(field.message_type)
            kind = pa.struct([("seconds", pa.int64()), ("nanos", pa.int32())]) if moment else target
            inner = lanes.within(one, other)
            found = _read(inner, field.message_type, kind)
            told = {int(rows[lane]): why for lane, why in inner.bad.items()}
            for lane, why in told.items():
                lanes.bad.setdefault(lane, why)
            return _moments(lanes, rows, found, target, field.name) if moment else found
        if self.wire == 2:
            found = lanes.cut(one, other)
            return lanes.as_text(rows, found, field.name) if field.type == 9 else found
        if field.type == ENUM:
            names = {value.number: value.name for value in reversed(field.enum_type.values)}
            numbers, places = np.unique(one, return_inverse=True)
            words = pa.array([names.get(number, str(number)) for number in numbers.tolist()], pa.string())
            return words.take(pa.array(places))
        if pa.types.is_decimal(target):
            words = np.zeros((len(one), 2), np.uint64)
            words[:, 0] = one
            buffers = [None, pa.py_buffer(np.ascontiguousarray(words))]
            return pa.Array.from_buffers(pa.decimal128(20, 0), len(one), buffers)
        return pa.array(one).cast(target)


def _entries(lanes: Lanes, field: Any, target: Any, rows: Ints, one: Any, other: Any) -> Column:
    """A map's entries, as a struct of key and value. What an entry leaves out has its default."""
    kind = pa.struct([pa.field("key", target.key_type), pa.field("value", target.item_type)])
    inner = lanes.within(one, other)
    found = _read(inner, field.message_type, kind, whole=True)
    for lane, why in inner.bad.items():
        lanes.bad.setdefault(int(rows[lane]), why)
    return found


def _moments(lanes: Lanes, rows: Ints, found: Column, target: Any, name: str) -> Column:
    seconds, nanos = (found.field(n).to_numpy(zero_copy_only=False) for n in (0, 1))
    far = np.abs(seconds) > (2**63 - 1) // 1_000_000 - 1
    lanes.fail(rows, far, f"{name} is a time beyond what Spark has")
    micros = np.where(far, 0, seconds) * 1_000_000 + nanos // 1000
    return pa.array(micros).view(target)


def _number(lanes: Lanes, rows: Ints, field: Any) -> Any:
    _, wire, kind = KINDS[field.type]
    if wire:
        return lanes.fixed(rows, kind, field.name)
    value = lanes.varint(rows, field.name)
    if field.type == _SINT32:
        value &= 0xFFFFFFFF
    if field.type in _ZIGZAG:
        value = (value >> 1 & (1 << 63) - 1) ^ -(value & 1)
    return value != 0 if kind == "bool" else value.astype(kind)


def _packed(lanes: Lanes, rows: Ints, field: Any) -> tuple[Ints, Any]:
    """Numbers without tags: which lane has how many, and all of them."""
    sizes = lanes.varint(rows, f"the size of {field.name}")
    start, stop = lanes.skip(rows, sizes, field.name)
    _, wire, kind = KINDS[field.type]
    length = stop - start
    if wire:
        width = np.dtype(kind).itemsize
        lanes.fail(rows, length % width != 0, f"{field.name} ends in the middle of a number")
        counts = length // width
        return np.repeat(rows, counts), lanes.windows(kind)[_places(start, counts, width)]
    places = _places(start, length, 1)
    ends = lanes.data[places] < 128
    cut_off = (length > 0) & (lanes.data[np.maximum(stop - 1, 0)] > 127)
    lanes.fail(rows, cut_off, f"{field.name} ends in the middle of a number")
    until: Ints = places[ends] + 1
    owner = np.repeat(np.arange(len(rows)), length)[ends]
    begins: Ints = np.roll(until, 1)
    first = np.append(True, owner[1:] != owner[:-1])[: len(owner)]
    begins[first] = start[owner[first]]
    inner = lanes.within(begins, until)
    value = _number(inner, inner.all(), field)
    for lane, why in inner.bad.items():
        lanes.bad.setdefault(int(rows[owner[lane]]), why)
    return rows[owner], value


_FEW = 100  # lanes for which a step of numpy costs more than looking at each item


def _run(lanes: Lanes, rows: Ints, field: Any) -> tuple[Ints, Ints, Ints]:
    """All that follow each other of a repeated field, in a few lanes: found one by one."""
    view, tag = lanes.view, field.number << 3 | 2
    found: list[tuple[int, int, int]] = []
    for lane in rows.tolist():
        at, end = int(lanes.at[lane]), int(lanes.end[lane])
        while True:
            size, begin = _size(view, at, end)
            if size < 0 or begin + size > end:
                why = f"{field.name} is longer than what is there"
                lanes.fail(np.array([lane]), np.array([True]), why)
                break
            found.append((lane, begin, begin + size))
            at = int(begin + size)
            lanes.at[lane] = at
            next_, behind = _size(view, at, end)
            if next_ != tag:
                break
            at = behind
    every = np.array(found, np.int64).reshape(-1, 3)
    return every[:, 0], every[:, 1].copy(), every[:, 2].copy()


def _size(view: memoryview, at: int, end: int) -> tuple[int, int]:
    """A number, and where it ends; -1 if it does not."""
    value = shift = 0
    while at < end and shift < 70:
        byte = view[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
    return -1, at


def _places(start: Ints, counts: Ints, step: int) -> Ints:
    """So many places behind each start."""
    before = np.cumsum(counts) - counts
    within: Ints = np.arange(int(counts.sum()), dtype=np.int64) - np.repeat(before, counts)
    return np.repeat(start, counts) + within * step


def _read(lanes: Lanes, message: Any, target: Any, *, whole: bool = False) -> Column:
    """Messages as a struct of the target's fields; `whole` leaves none null that isn't there."""
    taken = {one.name: _Taken(message.fields_by_name[one.name], one.type) for one in target}
    numbers = {found.field.number: found for found in taken.values()}
    begin = lanes.at.copy()
    tags = np.full(len(lanes), _NO_TAG, np.int64)

    def look(rows: Ints) -> None:
        there = lanes.at[rows] < lanes.end[rows]
        tags[rows] = _NO_TAG
        rows = rows[there]
        if len(rows):
            tag = lanes.varint(rows, "a tag")
            wrong = (tag >> 3 == 0) | (tag < 0) | (tag >= _NO_TAG)
            lanes.fail(rows, wrong, "it has a field of no number")
            tags[rows] = np.where(wrong | (lanes.at[rows] > lanes.end[rows]), _NO_TAG, tag)

    look(lanes.all())
    while True:
        tag = int(tags.min(initial=_NO_TAG))
        if tag == _NO_TAG:
            break
        rows = np.flatnonzero(tags == tag)
        found, wire = numbers.get(tag >> 3), tag & 7
        if found is not None and wire == found.wire:
            found.add(lanes, rows, packed=False)
        elif found is not None and wire == 2 and found.wire != 2 and repeated(found.field):
            found.add(lanes, rows, packed=True)
        else:
            _pass(lanes, rows, tag)
        look(rows)
    columns = [one.column(lanes, begin, whole) for one in taken.values()]
    return pa.StructArray.from_arrays(columns, fields=list(target))


_NO_TAG = 1 << 32


def _pass(lanes: Lanes, rows: Ints, tag: int) -> None:
    """Over a field that isn't asked for, or isn't known."""
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
        case wire:
            why = "groups aren't read" if wire in (3, 4) else f"there is no wire type {wire}"
            lanes.fail(rows, np.ones(len(rows), bool), f"{name}: {why}")
