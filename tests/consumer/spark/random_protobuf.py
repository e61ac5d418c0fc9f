"""A message with fields of every kind and random values, and what protobuf's own library decodes from it."""

from __future__ import annotations

import base64 as base
import datetime
from decimal import Decimal
from functools import cache
from random import Random
from typing import Any

import pyarrow as pa
from google.protobuf import descriptor_pb2, message_factory
from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet

from consumer.spark.values import protobuf, read_formats
from consumer.spark.values.lanes import Lanes
from consumer.spark.values.protobuf_schema import is_map, is_repeated, well_known_type
from consumer.spark.values.protobuf_schema import message as descriptor

F = descriptor_pb2.FieldDescriptorProto
WELL_KNOWN = ("google/protobuf/timestamp.proto", "google/protobuf/duration.proto")
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


def base64(proto: Any) -> str:
    """Return a message or descriptor as base64 text."""
    return base.b64encode(proto.SerializeToString()).decode()


@cache
def files() -> Any:
    """Return the descriptors of the messages Inner and Top.

    Inner has the fields a and b. Top has the fields f1 to f32: first a single and a repeated field of each
    scalar type, then messages and maps.
    """
    file = descriptor_pb2.FileDescriptorProto(name="f.proto", package="p", syntax="proto3")
    file.dependency.extend(WELL_KNOWN)
    words = file.enum_type.add(name="E")
    for number, name in enumerate(("ZERO", "ONE", "TWO")):
        words.value.add(name=name, number=number)
    inner = file.message_type.add(name="Inner")
    inner.field.add(name="a", number=1, type=F.TYPE_INT32, label=1)
    inner.field.add(name="b", number=2, type=F.TYPE_STRING, label=1)
    top = file.message_type.add(name="Top")
    numbers = iter(range(1, 100))
    for kind in (1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 13, 14, 15, 16, 17, 18):
        for label in (1, 3):
            number = next(numbers)
            field = top.field.add(name=f"f{number}", number=number, type=kind, label=label)
            if kind == F.TYPE_ENUM:
                field.type_name = ".p.E"
    for name, label in (
        ("p.Inner", 1),
        ("p.Inner", 3),
        *((f"google.protobuf.{n}", 1) for n in ("Timestamp", "Duration")),
    ):
        number = next(numbers)
        top.field.add(name=f"f{number}", number=number, type=11, type_name=f".{name}", label=label)
    top.oneof_decl.add(name="_x")
    top.field.add(name="opt", number=next(numbers), type=5, label=1, oneof_index=0, proto3_optional=True)
    for name, key, value in (("Mp", 9, 5), ("Mq", 5, 11)):
        entry = top.nested_type.add(name=f"{name}Entry")
        entry.options.map_entry = True
        entry.field.add(name="key", number=1, type=key, label=1)
        field = entry.field.add(name="value", number=2, type=value, label=1)
        if value == F.TYPE_MESSAGE:
            field.type_name = ".p.Inner"
        top.field.add(
            name=name.lower(), number=next(numbers), type=11, type_name=f".p.Top.{name}Entry", label=3
        )
    return descriptor_pb2.FileDescriptorSet(file=[file])


@cache
def top() -> Any:
    """Return the descriptor of Top, as the source reads it from the options."""
    options = {"value.format": "protobuf", "value.schema": base64(files()), "value.message": "p.Top"}
    [column_format] = read_formats(options, ("t",))
    assert protobuf.column_type(column_format).startswith("STRUCT<`f1`: DOUBLE, `f2`: ARRAY<DOUBLE>")
    return descriptor(column_format)


def message() -> Any:
    """Return the message class of Top that protobuf's own library creates."""
    return message_factory.GetMessageClass(top())


def kind(field: Any) -> Any:
    """Return the Arrow type of a field."""
    if is_map(field):
        key, value = (field.message_type.fields_by_name[name] for name in ("key", "value"))
        return pa.map_(_one(key), _one(value))
    return pa.list_(pa.field("element", _one(field))) if is_repeated(field) else _one(field)


def _one(field: Any) -> Any:
    """Return the Arrow type of a single value of a field."""
    if field.type == F.TYPE_MESSAGE and not well_known_type(field.message_type):
        return pa.struct([(inner.name, kind(inner)) for inner in field.message_type.fields])
    return protobuf._arrow_type_of(field)


LIMITS = {
    3: (-(2**63), 2**63 - 1), 4: (0, 2**64 - 1), 5: (-(2**31), 2**31 - 1), 6: (0, 2**64 - 1),
    7: (0, 2**32 - 1), 13: (0, 2**32 - 1), 14: (0, 4), 15: (-(2**31), 2**31 - 1),
    16: (-(2**63), 2**63 - 1), 17: (-(2**31), 2**31 - 1), 18: (-(2**63), 2**63 - 1),
}  # fmt: skip


def scalar(random: Random, field: Any) -> Any:
    """Return a random value of a field, often at the limits of its type."""
    match field.type:
        case 1:
            return random.random()
        case 2:
            return float(random.randint(0, 1000))
        case 8:
            return random.random() < 0.5
        case 9:
            return "ä€" * random.randint(0, 4)
        case 12:
            return random.randbytes(random.randint(0, 5))
        case number:
            low, high = LIMITS[number]
            return random.choice([random.randint(low, high), low, high, min(3, high)])


def fill(random: Random, message: Any) -> Any:
    """Set about half of the fields of a message to random values."""
    for field in message.DESCRIPTOR.fields:
        if random.random() < 0.5:
            continue
        if field.name == "mp":
            message.mp.update({f"k{n}": random.randint(0, 2) for n in range(random.randint(0, 3))})
        elif field.name == "mq":
            for number in range(random.randint(0, 3)):
                message.mq[number].a = random.randint(0, 5)
        elif field.type != F.TYPE_MESSAGE:
            if is_repeated(field):
                getattr(message, field.name).extend(
                    scalar(random, field) for _ in range(random.randint(0, 4))
                )
            else:
                setattr(message, field.name, scalar(random, field))
        elif is_repeated(field):
            for _ in range(random.randint(0, 3)):
                fill(random, getattr(message, field.name).add())
        elif well_known_type(field.message_type):
            getattr(message, field.name).seconds = random.randint(-(10**9), 10**10)
            getattr(message, field.name).nanos = random.randint(0, 999_999) * 1000
        else:
            getattr(message, field.name).SetInParent()
            fill(random, getattr(message, field.name))
    return message


def shown(field: Any, value: Any) -> Any:
    """Convert a value of protobuf's own library to the value that the source returns for it."""
    if field.type == F.TYPE_ENUM:
        enum_value = field.enum_type.values_by_number.get(value)
        return enum_value.name if enum_value else str(value)
    if field.type != F.TYPE_MESSAGE:
        return Decimal(value) if field.type in (4, 6) else value
    if not well_known_type(field.message_type):
        return expected(value)
    since = datetime.timedelta(seconds=value.seconds, microseconds=value.nanos // 1000)
    return EPOCH + since if well_known_type(field.message_type) == "TIMESTAMP" else since


def expected(message: Any) -> dict[str, Any]:
    """Decode a value with protobuf's own library, and return it as a row."""
    row: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        if is_map(field):
            inner = field.message_type.fields_by_name["value"]
            row[field.name] = {key: shown(inner, value[key]) for key in value}
        elif is_repeated(field):
            row[field.name] = [shown(field, item) for item in value]
        else:
            is_present = message.HasField(field.name) if field.has_presence else True
            row[field.name] = shown(field, value) if is_present else None
    return row


def decode(written: list[bytes]) -> tuple[list[Any], dict[int, str]]:
    """Decode values of Top with the source. Return the rows, and the errors of malformed values by index."""
    target = pa.struct([(field.name, kind(field)) for field in top().fields])
    lanes = Lanes(pa.array(written, pa.binary()))
    column, bad = protobuf._decode_messages(lanes, top(), target)
    column.validate(full=True)
    rows = column.to_pylist()
    for row in rows:
        if row is not None:
            row.update(mp=dict(row["mp"]), mq=dict(row["mq"]))
    return rows, dict(bad)


def check(random: Random) -> None:
    """Check that the source decodes random messages, and rejects a mutated one if protobuf rejects it."""
    messages = [fill(random, message()()) for _ in range(random.choice([1, 4, 150]))]
    written = [message_.SerializeToString() for message_ in messages]
    rows, bad = decode(written)
    assert not bad
    assert rows == [expected(message_) for message_ in messages]

    at = random.randrange(len(written))
    cut = random.randrange(len(written[at]) + 1)
    written[at] = written[at][:cut] + random.randbytes(random.randint(0, 3))
    rows_again, bad = decode(written)
    assert set(bad) <= {at}
    assert [row for n, row in enumerate(rows_again) if n != at] == [
        row for n, row in enumerate(rows) if n != at
    ]
    try:
        message_ = message()()
        message_.ParseFromString(written[at])
    except DecodeError:
        assert at in bad
    else:
        # Python's library (upb) moves a map entry that contains an unknown field to the message's unknown
        # fields. Java's library and this source keep the entry, so values with such entries are not compared.
        left_out = {field.field_number for field in UnknownFieldSet(message_)} & {
            field.number for field in top().fields if is_map(field)
        }
        assert at in bad or left_out or rows_again[at] == expected(message_)
