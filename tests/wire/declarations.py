"""Messages for the tests of the codecs; together they use every feature of declarations."""

from __future__ import annotations

from kproto.wire import (
    FRESH,
    ZERO_UUID,
    Bool,
    Bytes,
    Float64,
    Int8,
    Int16,
    Int32,
    Int64,
    Message,
    Records,
    String,
    Struct,
    UInt16,
    UInt32,
    Uuid,
    field,
)


class Plain(Message, versions="0-1"):
    """A message with every primitive type, in non-flexible versions."""

    yes: Bool
    i8: Int8
    i16: Int16
    u16: UInt16
    i32: Int32
    u32: UInt32
    i64: Int64
    f64: Float64
    id: Uuid
    text: String
    data: Bytes
    records: Records | None
    maybe: String | None = field("1+", default="null")


class Ranges(Message, api_key=900, versions="0-5", flexible="3+"):
    """A message with fields that some versions add, remove or make nullable, and with ignorable fields."""

    always: Int32
    removed: Int16 = field("0-2", default=-1)
    ignored: String = field("2+", default="", ignorable=True)
    late: String | None = field("1+", nullable="2+", default="x")
    key: Int64 = field("4+", default=0x7FFF_FFFF_FFFF_FFFF, map_key=True)
    blob: Bytes | None = field(nullable="0-3", default=b"")
    records: Records | None = field("1+", nullable="1", default=None)
    nothing: list[Int32] | None = field("5+", default=None)
    part: RangesPart = field("2+", default=FRESH)
    parts: list[RangesPart] | None = field(nullable="4+", default=[])


class RangesPart(Struct):
    name: String = field("0-3", default="", ignorable=True)
    id: Uuid = field("4+", default=ZERO_UUID, ignorable=True)
    only_one: Bool = field("1", default=False)
    numbers: list[Int32]


class Arrays(Message, versions="0-1", flexible="1+"):
    """A message with arrays of every element type."""

    bools: list[Bool]
    bytes8: list[Int8]
    u16s: list[UInt16]
    i64s: list[Int64]
    floats: list[Float64]
    ids: list[Uuid]
    names: list[String]
    blobs: list[Bytes] | None
    points: list[Point]
    rows: list[Row] | None = None


class Point(Struct):
    """A struct that has a fixed size except in flexible versions."""

    x: Int32
    y: Int64
    up: Bool


class Row(Struct):
    label: String
    cells: list[Cell]
    tail: Int16


class Cell(Struct):
    before: Int32
    name: String | None
    ids: list[Int32]
    where: Point | None
    after: Int64


class Tagged(Message, api_key=901, versions="0-3", flexible="1+"):
    """A message with tagged fields at every depth. One field is untagged in older versions."""

    before: Int32
    cluster: String | None = field("1+", tag=0, default=None, ignorable=True)
    number: Int64 = field("2+", tag=3, default=-1)
    was_plain: Int32 = field("0+", tag=1, tagged="2+", default=7)
    leaf: Leaf = field("1+", tag=4, default=FRESH)
    maybe_leaf: Leaf | None = field("1+", tag=5, default=None)
    leaves: list[Leaf] = field("1+", tag=6, default=[])
    flag: Bool = field("1+", tag=7, default=False)
    id: Uuid = field("1+", tag=8, default=ZERO_UUID)
    set_leaf: Leaf | None = field("3+", tag=20, default=FRESH)
    items: list[TaggedItem]
    after: String


class TaggedItem(Struct):
    index: Int32
    leaf: Leaf = field("1+", tag=0, default=FRESH, ignorable=True)
    directory: Uuid = field("3+", tag=1, default=ZERO_UUID, ignorable=True)
    inner: Leaf


class Leaf(Struct):
    id: Int32 = -1
    note: String = field("2+", tag=0, default="", ignorable=True)
    host: String


class Nullable(Message, versions="0-2", flexible="1+"):
    """A message with nullable structs, in flexible and non-flexible versions."""

    first: Point | None = field(nullable="0-1", default=FRESH)
    cursor: Cursor | None = None
    last: Cursor | None = field("2+", default=None)


class Cursor(Struct):
    topic: String
    partition: Int32
    deeper: Point | None


class Header(Message, versions="1-2", flexible="2+"):
    """A message like Kafka's request header: one field keeps its int16 length in flexible versions."""

    request_api_key: Int16
    correlation_id: Int32
    client_id: String | None = field(flexible="none")


class Alike(Message, versions="0-2", flexible="1+"):
    """A message that uses all field types, and has an array whose elements may have equal lengths."""

    before: Int8
    things: list[Thing]
    after: Int16


class Thing(Struct):
    index: Int32
    id: Uuid
    name: String | None
    title: String
    data: Bytes
    records: Records | None
    numbers: list[Int32]
    flags: list[Bool] | None
    removed: Int16 = field("0", default=-1)
    points: list[Point] | None
    names: list[String] | None
    late: String = field("2+", tag=0, default="", ignorable=True)
    last: Int16


class Fixed(Message, versions="0-2", flexible="2+"):
    """A message with arrays of fixed-size elements. Some element types lack fields in some versions."""

    dense: list[Point]
    gaps: list[Gaps]
    ids: list[Identified]


class Gaps(Struct):
    before: Int32 = field("1+", default=-1)
    x: Int32
    between: String = field("1", default="", ignorable=True)
    y: Int16
    part: Leaf = field("2+", tag=0, default=FRESH, ignorable=True)


class Identified(Struct):
    id: Uuid
    parts: list[Leaf] | None = field("2+", tag=0, default=[], ignorable=True)
    index: Int32


class Empty(Message, versions="0-1", flexible="1+"):
    """No fields."""


DECLARED: list[type[Message]] = [Plain, Ranges, Arrays, Tagged, Nullable, Header, Alike, Fixed, Empty]
