"""Invalid declarations are rejected, and message objects can be compared, copied and pickled."""

from __future__ import annotations

import copy
import gc
import pickle

import pytest

from kproto.errors import UnsupportedVersion
from kproto.messages.join_group import JoinGroupRequest
from kproto.wire import FRESH, Int32, Message, String, Struct, Versions, field
from kproto.wire.types import Primitive
from tests.wire.declarations import Cursor, Header, Leaf, Nullable, Point, Ranges, Tagged, TaggedItem


def test_a_field_without_a_default_is_required() -> None:
    with pytest.raises(TypeError, match=r"^Ranges is missing the required always$"):
        Ranges()  # type: ignore[call-arg]


def test_a_version_of_another_type_is_shown_as_it_is() -> None:
    with pytest.raises(UnsupportedVersion, match="version '1' is not supported; allowed: 1-2"):
        Header.decode(b"", "1")  # type: ignore[arg-type]


def test_an_unknown_field_is_rejected() -> None:
    with pytest.raises(TypeError, match="wrong"):
        Point(x=1, y=2, up=True, wrong=3)  # type: ignore[call-arg]
    with pytest.raises(AttributeError):
        Point(x=1, y=2, up=True).wrong = 3  # type: ignore[attr-defined]


def test_a_misspelled_field_gets_a_suggestion_and_positional_values_are_rejected() -> None:
    with pytest.raises(TypeError, match=r"^JoinGroupRequest has no field 'group'; did you mean group_id\?$"):
        JoinGroupRequest(group="orders")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"^Ranges has no field 'wrong'; its fields are always, "):
        Ranges(always=1, wrong=3)  # type: ignore[call-arg]
    with pytest.raises(
        TypeError, match=r"^Ranges takes no positional values, but got 99; name the fields: always, "
    ):
        Ranges(*range(99))  # type: ignore[call-arg]


def test_default_lists_and_structs_are_new_for_every_object() -> None:
    first, second = Ranges(always=1), Ranges(always=1)
    assert first.parts is not second.parts
    assert first.part is not second.part


def test_a_fresh_struct_has_its_defaults_and_kafkas_zeros() -> None:
    assert Tagged(before=1, items=[], after="").leaf == Leaf(id=-1, note="", host="")


def test_equal_fields_and_equal_unknown_tags_make_equal_objects() -> None:
    first, second = Point(x=1, y=2, up=True), Point(x=1, y=2, up=True)
    assert first == second
    second.__unknown_tags__[9] = b""
    assert first != second
    assert first != Point(x=1, y=2, up=False)


def test_objects_of_two_classes_are_never_equal() -> None:
    assert Leaf(host="") != TaggedItem(index=1, inner=Leaf(host=""))
    assert Leaf(host="") != None  # noqa: E711


def test_reading_unknown_tags_does_not_change_an_object() -> None:
    point = Point(x=1, y=2, up=True)
    assert point.__unknown_tags__ == {}
    assert point == Point(x=1, y=2, up=True)


def test_objects_are_mutable_and_so_not_hashable() -> None:
    with pytest.raises(TypeError, match="unhashable"):
        hash(Point(x=1, y=2, up=True))


def test_the_garbage_collector_does_not_track_messages() -> None:
    built = Tagged(before=1, items=[], after="")
    assert not gc.is_tracked(built)
    assert not gc.is_tracked(Tagged.decode(built.encode(3), 3))


def test_a_declared_class_extends_what_it_was_declared_with() -> None:
    assert issubclass(Tagged, Message)
    assert isinstance(Leaf(host=""), Struct)
    assert not issubclass(Leaf, Message)


def test_repr_shows_fields_and_unknown_tags() -> None:
    cursor = Cursor(topic="t", partition=1, deeper=None)
    cursor.__unknown_tags__ = {5: b"x"}
    assert repr(cursor) == "Cursor(topic='t', partition=1, deeper=None, __unknown_tags__={5: b'x'})"


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_objects_survive_pickling_and_copying(protocol: int) -> None:
    tagged = Tagged(before=1, items=[TaggedItem(index=2, inner=Leaf(host="h"))], after="z")
    tagged.__unknown_tags__[99] = b"abc"
    assert pickle.loads(pickle.dumps(tagged, protocol)) == tagged
    assert copy.deepcopy(tagged) == tagged


def test_decoded_objects_behave_like_constructed_ones() -> None:
    built = Nullable(cursor=Cursor(topic="t", partition=1, deeper=None))
    decoded = Nullable.decode(built.encode(2), 2)
    assert repr(decoded) == repr(built)
    assert copy.deepcopy(decoded) == built


def test_encode_and_decode_reject_a_version_outside_the_range() -> None:
    with pytest.raises(UnsupportedVersion, match="Header: version 3 is not supported; allowed: 1-2"):
        Header.decode(b"", 3)
    with pytest.raises(UnsupportedVersion):
        Header(request_api_key=1, correlation_id=1, client_id="").encode(0)


@pytest.mark.parametrize(
    ("text", "first", "last"), [("0-9", 0, 9), ("5+", 5, 0x7FFF), ("3", 3, 3), ("none", 0, -1)]
)
def test_ranges_of_versions(text: str, first: int, last: int) -> None:
    versions = Versions.parse(text)
    assert (versions.min, versions.max) == (first, last)
    assert str(versions) == text
    assert first - 1 not in versions
    assert last + 1 not in versions
    assert bool(versions) == (text != "none")


@pytest.mark.parametrize("text", ["", "a", "5-", "-5", "5-4", "99999", "1,2"])
def test_invalid_version_ranges_are_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="not a range of versions"):
        Versions.parse(text)


class Endless(Message, versions="0"):
    parts: list[EndlessPart]


class EndlessPart(Struct):
    more: list[EndlessPart]


class RangeWithoutDefault(Struct):
    x: Int32 = field("1+")


class NoneWithoutNullable(Struct):
    x: String = field("1+", default=None)  # type: ignore[assignment]


class NullableWithoutNone(Struct):
    x: String = field(nullable="1+")


class SameTagTwice(Struct):
    x: Int32 = field(tag=1, default=0)
    y: Int32 = field(tag=1, default=0)


class TagWithoutDefault(Struct):
    x: Int32 = field(tag=1)


class NoSuchType(Struct):
    x: int


class NullableElements(Struct):
    x: list[String | None]


class FreshInt(Struct):
    x: Int32 = field(default=FRESH)


@pytest.mark.parametrize(
    ("cls", "why"),
    [
        (Endless, "EndlessPart contains itself"),
        (RangeWithoutDefault, "exists only in some versions, so it needs a default"),
        (NoneWithoutNullable, "needs an annotation with"),
        (NullableWithoutNone, "needs an annotation with"),
        (SameTagTwice, "two fields have the same tag"),
        (TagWithoutDefault, "a tagged field needs a default"),
        (NoSuchType, "NoSuchType.x: int: not a type"),
        (NullableElements, "not a type"),
        (FreshInt, "only a struct can have the default FRESH"),
    ],
)
def test_an_invalid_declaration_is_rejected(cls: type[Struct], why: str) -> None:
    with pytest.raises(TypeError, match=why):
        _ = cls.__fields__


def test_a_shared_list_is_not_a_valid_default() -> None:
    with pytest.raises(TypeError, match="unsafe"):

        class FullList(Struct):
            """A declaration with a field whose default is a non-empty list."""

            x: list[Int32] = field("1+", default=[1])


def test_a_struct_with_fields_cannot_be_subclassed() -> None:
    with pytest.raises(TypeError, match="cannot be subclassed"):

        class Wider(Point):
            """A struct that is a subclass of a struct with fields."""

            z: Int32 = 0


def test_map_keys_and_tags_can_be_read_from_the_declaration() -> None:
    key = next(f for f in Ranges.__fields__ if f.name == "key")
    assert key.map_key
    assert isinstance(key.kind, Primitive)
    assert key.kind.name == "int64"
    assert [f.tag for f in Tagged.__fields__ if f.tagged] == [0, 3, 1, 4, 5, 6, 7, 8, 20]
