"""The wire format byte by byte, and the errors. Both codecs must pass each example."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from enum import IntEnum
from typing import Any, cast

import pytest

from kproto.errors import DecodeError, EncodeError
from kproto.wire import Message, decode_from, interpreter
from kproto.wire.compiler import decoder, encoder
from tests.wire.declarations import (
    Arrays,
    Cell,
    Cursor,
    Empty,
    Header,
    Leaf,
    Nullable,
    Plain,
    Point,
    Ranges,
    RangesPart,
    Row,
    Tagged,
    TaggedItem,
)


def plain(**values: Any) -> Plain:
    fields: dict[str, Any] = {
        "yes": True,
        "i8": -1,
        "i16": -2,
        "u16": 65535,
        "i32": -3,
        "u32": 4294967295,
        "i64": -4,
        "f64": 1.0,
        "id": uuid.UUID(int=5),
        "text": "é",
        "data": b"ab",
        "records": None,
    }
    return Plain(**{**fields, **values})


def arrays(**values: Any) -> Arrays:
    names = ("bools", "bytes8", "u16s", "i64s", "floats", "ids", "names", "blobs", "points")
    return Arrays(**{**{name: [] for name in names}, **values})


def ranges(**values: Any) -> Ranges:
    return Ranges(**{"always": 1, **values})


def tagged(**values: Any) -> Tagged:
    return Tagged(**{"before": 1, "items": [], "after": "", **values})


EXAMPLES: list[tuple[str, Message, int, str]] = [
    (
        "basic types before flexible versions",
        plain(),
        0,
        "01 ff fffe ffff fffffffd ffffffff fffffffffffffffc 3ff0000000000000"
        "00000000000000000000000000000005 0002c3a9 00000002 6162 ffffffff",
    ),
    ("no field", Empty(), 0, ""),
    ("no field but the tags", Empty(), 1, "00"),
    (
        "null and empty strings",
        Header(request_api_key=1, correlation_id=2, client_id=None),
        1,
        "0001 00000002 ffff",
    ),
    (
        "a rigid string in a flexible version",
        Header(request_api_key=1, correlation_id=2, client_id="ab"),
        2,
        "0001 00000002 00026162 00",
    ),
    (
        "arrays before flexible versions",
        arrays(ids=[uuid.UUID(int=1)], names=["a", ""], blobs=None),
        0,
        "00000000 00000000 00000000 00000000 00000000 00000001 00000000000000000000000000000001"
        "00000002 000161 0000 ffffffff 00000000 ffffffff",
    ),
    (
        "compact arrays",
        arrays(bools=[True, False], bytes8=[-1], u16s=[65535], names=["a", ""], blobs=[b"", b"x"]),
        1,
        "03 01 00  02 ff  02 ffff  01 01 01  03 0261 01  03 01 0278  01 00 00",
    ),
    (
        "arrays of structs",
        arrays(points=[Point(x=1, y=2, up=True)]),
        1,
        "01 01 01 01 01 01 01 01  02 00000001 0000000000000002 01 00  00 00",
    ),
    ("a null struct, before flexible versions too", Nullable(first=None), 0, "ff ff"),
    (
        "a struct that may be null",
        Nullable(cursor=Cursor(topic="t", partition=1, deeper=None), first=None),
        1,
        "ff 01 0274 00000001 ff 00 00",
    ),
    ("fields of a range", ranges(late="é"), 1, "00000001 ffff 0002c3a9 00000000 ffffffff 00000000"),
    ("a tag that differs from its default", tagged(number=-2), 2, "00000001 01 01 01 03 08 fffffffffffffffe"),
    ("a field before it was tagged", tagged(was_plain=9), 1, "00000001 00000009 01 01 00"),
    (
        "tagged structs, arrays and nullable structs",
        tagged(leaf=Leaf(host="h"), maybe_leaf=Leaf(host=""), leaves=[Leaf(id=1, host="")]),
        3,
        "00000001 01 01 03  04 07 ffffffff 0268 00  05 07 01 ffffffff 01 00  06 07 02 00000001 01 00",
    ),
    (
        "a tagged struct that is null and by default isn't",
        tagged(set_leaf=None),
        3,
        "00000001 01 01 01  14 01 00",
    ),
    (
        "tags in nested structs",
        tagged(items=[TaggedItem(index=2, inner=Leaf(id=3, note="n", host=""))]),
        2,
        "00000001 02  00000002 00000003 01 01 00 02 026e 00  01 00",
    ),
]


@pytest.fixture(params=["interpreted", "compiled"])
def codec(request: pytest.FixtureRequest) -> tuple[Callable[..., bytes], Callable[..., tuple[Any, int]]]:
    if request.param == "interpreted":
        return interpreter.encode, lambda cls, data, version: interpreter.decode(cls, data, 0, version)
    return (
        lambda message, version: encoder(type(message), version)(message),
        lambda cls, data, version: decoder(cls, version)(data, 0),
    )


@pytest.mark.parametrize(
    ("message", "version", "expected"), [e[1:] for e in EXAMPLES], ids=[e[0] for e in EXAMPLES]
)
def test_the_bytes_of(
    codec: tuple[Callable[..., bytes], Callable[..., tuple[Any, int]]],
    message: Message,
    version: int,
    expected: str,
) -> None:
    encode, decode = codec
    data = bytes.fromhex(expected)
    assert encode(message, version).hex() == data.hex()
    assert decode(type(message), data, version) == (message, len(data))


def test_fields_that_the_version_lacks_are_decoded_to_their_defaults() -> None:
    data = ranges(late="x", removed=5, parts=[RangesPart(numbers=[7], only_one=True)]).encode(1)
    decoded = Ranges.decode(data, 1)
    assert decoded == ranges(late="x", removed=5, parts=[RangesPart(numbers=[7], only_one=True, name="")])
    assert decoded.key == 0x7FFF_FFFF_FFFF_FFFF


def test_ignorable_fields_may_be_set_in_versions_that_lack_them() -> None:
    assert ranges(ignored="lost").encode(0) == ranges().encode(0)


def test_an_empty_array_differs_from_a_null_array() -> None:
    assert Arrays.decode(arrays(rows=[]).encode(1), 1).rows == []
    assert Arrays.decode(arrays(rows=None).encode(1), 1).rows is None


def test_unknown_tags_are_kept_and_written_back_in_ascending_order() -> None:
    # The count 3, then tag 9, tag 2 and the known tag 3, in this order.
    data = bytes.fromhex("00000001 01 01 03  09 01 aa  02 00  03 08 0000000000000005")
    decoded = Tagged.decode(data, 2)
    assert decoded.__unknown_tags__ == {9: b"\xaa", 2: b""}
    assert decoded.encode(2) == bytes.fromhex("00000001 01 01 03  02 00  03 08 0000000000000005  09 01 aa")


def test_the_last_of_two_equal_tags_wins_as_in_kafkas_reader() -> None:
    data = bytes.fromhex("00000001 01 01 04  07 01 01  09 01 aa  07 01 00  09 01 bb")
    decoded = Tagged.decode(data, 2)
    assert decoded.flag is False
    assert decoded.__unknown_tags__ == {9: b"\xbb"}


def test_a_tagged_field_that_equals_its_default_reads_the_same_but_is_not_written() -> None:
    data = bytes.fromhex("00000001 01 01 01 07 01 00")
    assert Tagged.decode(data, 2) == tagged()
    assert tagged().encode(2) == bytes.fromhex("00000001 01 01 00")


def test_trailing_bytes_are_ignored_and_decode_from_returns_the_end() -> None:
    data = b"??" + tagged().encode(2) + b"more"
    assert Tagged.decode(data[2:], 2) == tagged()
    assert decode_from(Tagged, data, 2, 2) == (tagged(), len(data) - 4)


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_bytes_like_object_is_decoded(kind: Callable[[bytes], Any]) -> None:
    assert Tagged.decode(kind(tagged().encode(2)), 2) == tagged()


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_bytes_like_object_is_encoded(kind: Callable[[bytes], Any]) -> None:
    assert plain(data=kind(b"abc")).encode(0) == plain(data=b"abc").encode(0)


def test_tuples_and_int_enums_are_encoded() -> None:
    class Three(IntEnum):
        THREE = 3

    assert arrays(i64s=(Three.THREE,)).encode(1) == arrays(i64s=[3]).encode(1)


def test_a_length_needs_a_second_byte_from_127_on() -> None:
    for length in (126, 127, 128, 16382, 16383, 16384):
        message = tagged(after="a" * length, items=[TaggedItem(index=1, inner=Leaf(host="h" * length))])
        assert Tagged.decode(message.encode(2), 2) == message


def test_any_negative_length_is_null() -> None:
    assert Plain.decode(plain().encode(0)[:-4] + b"\x80\x00\x00\x00", 0).records is None
    assert Nullable.decode(b"\x80\xfe", 0) == Nullable(first=None)


def test_a_varint_may_be_overlong() -> None:
    assert Header.decode(bytes.fromhex("0001 00000002 ffff 8000"), 2).client_id is None
    assert Arrays.decode(bytes.fromhex("8100 01 01 01 01 01 01 8000 01 00 00"), 1) == arrays(blobs=None)


DECODE_ERRORS: list[tuple[str, type[Message], int, str, str, int, str]] = [
    ("an int cut short", Header, 1, "0001 0000", "correlation_id", 2, "takes 4 bytes, but only 2 are left"),
    ("a string cut short", Header, 1, "0001 00000002 0005 6161", "client_id", 8, "takes 5 bytes, but only 2"),
    ("not UTF-8", Header, 1, "0001 00000002 0003 61ff61", "client_id", 9, "not UTF-8"),
    ("null that isn't allowed", Tagged, 2, "00000001 00", "items", 4, "null, but the field is not nullable"),
    ("too many elements", Tagged, 2, "00000001 04" + "00" * 20, "items", 4, "an array of 3"),
    (
        "inside of arrays",
        Arrays,
        1,
        "01 01 01 01 01 01 01 01 01  03  0261 01 0000 00  0262 02 00000001 0263 07" + "00" * 20,
        "rows[1].cells[0].ids",
        25,
        "an array of 6",
    ),
    (
        "a size that is too small",
        Tagged,
        2,
        "00000001 01 01 01 03 07" + "00" * 9,
        "number",
        9,
        "int64 takes 8 bytes",
    ),
    (
        "a size that is too large",
        Tagged,
        2,
        "00000001 01 01 01 07 02 0000",
        "flag",
        9,
        "has a size of 2 bytes, but its value takes 1",
    ),
    ("a tagged field cut short", Tagged, 2, "00000001 01 01 01 63 05 00", "(tag 99)", 9, "takes 5 bytes"),
    (
        "a tag of another version",
        Tagged,
        1,
        "00000001 00000007 01 01 01 03 08" + "00" * 8,
        "number",
        11,
        "not valid",
    ),
    ("a varint without end", Tagged, 2, "00000001 8080808080 01", "items", 4, "more than 5 bytes"),
    ("a varint above int32", Tagged, 2, "00000001 ffffffff0f" + "00" * 9, "items", 4, "above 2**31-1"),
]


@pytest.mark.parametrize(
    ("cls", "version", "data", "field", "offset", "detail"),
    [e[1:] for e in DECODE_ERRORS],
    ids=[e[0] for e in DECODE_ERRORS],
)
def test_a_decode_error_names_message_version_field_and_offset(
    cls: type[Message], version: int, data: str, field: str, offset: int, detail: str
) -> None:
    with pytest.raises(DecodeError) as caught:
        cls.decode(bytes.fromhex(data), version)
    error = caught.value
    assert (error.message, error.version, error.field, error.offset) == (cls.__name__, version, field, offset)
    assert detail in error.detail


def test_a_decode_error_has_no_context_of_the_compiled_decoder() -> None:
    with pytest.raises(DecodeError) as caught:
        Header.decode(b"", 1)
    assert caught.value.__context__ is None


ENCODE_ERRORS: list[tuple[str, Message, int, str, str]] = [
    ("an int out of range", plain(i16=32768), 0, "i16", "32768 is not a value of int16"),
    ("a negative unsigned int", plain(u32=-1), 0, "u32", "-1 is not a value of uint32"),
    ("an int that is a str", plain(i32="1"), 0, "i32", "'1' is not a value of int32"),
    ("an int that is a float", plain(i32=1.0), 0, "i32", "1.0 is not a value of int32"),
    ("an enormous float", plain(f64=10**400), 0, "f64", "is not a value of float64"),
    ("a bool that is a str", plain(yes="no"), 0, "yes", "'no' is not a value of bool"),
    ("a bool that is a list", plain(yes=[]), 0, "yes", "[] is not a value of bool"),
    (
        "a UUID that is a str",
        plain(id="00000000-0000-0000-0000-000000000000"),
        0,
        "id",
        "is not a value of uuid",
    ),
    ("a str that is bytes", plain(text=b"a"), 0, "text", "b'a' is not a str"),
    ("bytes that are a str", plain(data="a"), 0, "data", "'a' is not bytes"),
    ("bytes that are a list", plain(data=[1]), 0, "data", "[1] is not bytes"),
    ("a surrogate", plain(text="\ud800"), 0, "text", "cannot be encoded as UTF-8"),
    ("a str that is too long", plain(text="a" * 32768), 0, "text", "32768 bytes; a string has at most 32767"),
    ("None", plain(text=None), 0, "text", "None, but the field is not nullable"),
    ("None in another range", ranges(late=None), 1, "late", "not nullable in this version"),
    (
        "a field that the version lacks",
        ranges(removed=5),
        3,
        "removed",
        "lacks the field (versions 0-2); leave it at -1",
    ),
    ("a struct that the version lacks", ranges(part=RangesPart(numbers=[1])), 1, "part", "lacks the field"),
    (
        "inside of arrays",
        ranges(parts=[RangesPart(numbers=cast(list[int], [1, "x"]))]),
        0,
        "parts[0].numbers[1]",
        "'x' is not a value",
    ),
    (
        "inside of a struct",
        arrays(
            rows=[
                Row(
                    label="",
                    cells=[Cell(before=1, name="", ids=[], where=Point(x=1, y=2**63, up=True), after=0)],
                    tail=0,
                )
            ]
        ),
        1,
        "rows[0].cells[0].where.y",
        "is not a value of int64",
    ),
    ("an array that is a str", arrays(names="abc"), 1, "names", "'abc' is not a list"),
    ("None in an array", arrays(points=[None]), 1, "points[0]", "elements of arrays are not nullable"),
    (
        "None in an array of strings",
        arrays(names=[None]),
        0,
        "names[0]",
        "elements of arrays are not nullable",
    ),
    ("another class", tagged(items=[Point(x=1, y=2, up=True)]), 2, "items[0].index", "is not a TaggedItem"),
    ("a tagged field out of range", tagged(number=2**63), 2, "number", "is not a value of int64"),
    ("a tagged struct that is None", tagged(leaf=None), 2, "leaf", "None, but the field is not nullable"),
]


@pytest.mark.parametrize(
    ("message", "version", "field", "detail"),
    [e[1:] for e in ENCODE_ERRORS],
    ids=[e[0] for e in ENCODE_ERRORS],
)
def test_an_encode_error_names_message_version_and_field(
    message: Message, version: int, field: str, detail: str
) -> None:
    with pytest.raises(EncodeError) as caught:
        message.encode(version)
    error = caught.value
    assert (error.message, error.version, error.field) == (type(message).__name__, version, field)
    assert detail in error.detail


@pytest.mark.parametrize("version", [0, 1])
def test_unknown_tags_need_a_flexible_version(version: int) -> None:
    point = Point(x=1, y=2, up=True)
    point.__unknown_tags__[5] = b"x"
    message = arrays(points=[point])
    if version == 1:
        assert Arrays.decode(message.encode(1), 1) == message
    else:
        with pytest.raises(EncodeError, match=r"points\[0\]\.\(tags\): tagged fields are set, but"):
            message.encode(0)


@pytest.mark.parametrize(
    ("tags", "detail"),
    [
        ({3: b""}, "this tag belongs to the field number"),
        ({-1: b""}, "a tag must be an int from 0"),
        ({2**31: b""}, "a tag must be an int from 0"),
        ({"a": b""}, "a tag must be an int from 0"),
        ({9: "a"}, "'a' is not bytes"),
    ],
)
def test_invalid_unknown_tags_are_rejected(tags: dict[Any, Any], detail: str) -> None:
    message = tagged()
    message.__unknown_tags__ = tags
    with pytest.raises(EncodeError, match=detail):
        message.encode(2)
