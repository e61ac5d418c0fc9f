"""`decode_flat` returns array elements as flat tuples, with the values of the message objects of `decode`."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kproto.errors import DecodeError, UnsupportedVersion
from kproto.messages.fetch import (
    FetchableTopicResponse,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from kproto.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from kproto.messages.metadata import MetadataResponse
from kproto.testing.strategies import from_message, versioned
from kproto.wire import (
    FRESH,
    ZERO_UUID,
    Bool,
    Bytes,
    Int8,
    Int16,
    Int32,
    Message,
    String,
    Struct,
    Uuid,
    field,
    flat_tuples,
)
from kproto.wire.flat_tuples import decode_flat, flatten
from tests.wire.declarations import DECLARED, Leaf, Point
from tests.wire.properties import corruptions, part_of_the_examples, places
from tests.wire.stage import ALL, EVERY_VERSION, mutated


class Listed(Message, versions="0-2", flexible="1+"):
    """A message with elements that end in lists of numbers."""

    parts: list[ListedPart]
    after: Int16


class ListedPart(Struct):
    index: Int32
    late: Int8 = field("2+", default=-1)
    numbers: list[Int32]
    flags: list[Bool] | None
    removed: list[Int16] = field("0", default=[])
    note: String = field("1+", tag=0, default="")


class Named(Message, versions="0-1", flexible="1+"):
    """A message whose elements have all of their fields in every version."""

    parts: list[NamedPart]
    after: Int16


class NamedPart(Struct):
    name: String
    index: Int32
    note: String | None
    data: Bytes
    last: Int8


class Mixed(Message, versions="0-2", flexible="1+"):
    """A message whose elements have fields of all kinds, and lists that are mostly null or empty."""

    parts: list[MixedPart]
    after: Int16


class MixedPart(Struct):
    index: Int32
    late: Int8 = field("1+", default=-1)
    id: Uuid
    name: String | None
    points: list[Point] | None
    ids: list[Uuid] | None
    data: Bytes | None
    leaf: Leaf = field("2+", tag=0, default=FRESH)


RUNS: list[type[Any]] = [Listed, Named, Mixed]
BOTH_WAYS = [(cls, v) for cls in RUNS for v in range(cls.__versions__.max + 1)]


@st.composite
def run(draw: st.DrawFn, cls: type[Any], version: int) -> Any:
    """Draw a message whose array has runs: consecutive elements that are equal except for `index`.

    A run may consist of only one element. Any element may have a tagged field.
    """
    part = next(f.kind.element for f in cls.__fields__ if f.name == "parts")
    parts: list[Any] = []
    for pattern in draw(st.lists(from_message(cls, version).map(lambda drawn: drawn.parts[:1]), max_size=4)):
        for byte in pattern:
            for _ in range(draw(st.integers(1, 9) | st.integers(30, 60))):
                values = {f.name: getattr(byte, f.name) for f in part.__fields__} | {"index": len(parts)}
                parts.append(part(**values))
                if version and draw(st.integers(0, 5)) == 5:
                    parts[-1].__unknown_tags__ = {9: b"tag"}
    return cls(parts=parts, after=draw(st.integers(-9, 9)))


def reads_what_decode_reads(module: ModuleType, cls: type[Message], strategy: Any, share: int) -> None:
    @given(strategy, st.binary(max_size=3))
    @part_of_the_examples(share)
    def check(drawn: tuple[int, Message], behind: bytes) -> None:
        version, message = drawn
        decoded = module.decode_flat(cls, message.encode(version) + behind, version)
        # Compare the results of repr, because True is equal to 1.
        assert repr(decoded) == repr(flatten(message))

    check()


def reads_runs(module: ModuleType) -> None:
    for cls, version in BOTH_WAYS:
        reads_what_decode_reads(module, cls, st.tuples(st.just(version), run(cls, version)), 5)


def sees_where_runs_end(module: ModuleType) -> None:
    """Check elements that differ from their neighbours in length or in tagged fields."""
    listed = [{"numbers": [1]}, {"numbers": [], "flags": [True]}, {"flags": None}, {}]
    named = [{"name": "longer"}, {"note": None}, {"note": ""}, {"data": b""}, {}]
    mixed = [{"points": None}, {"ids": None}, {"points": [Point(x=1, y=2, up=True)]}, {"data": None}, {}]
    variants: dict[type[Any], list[dict[str, Any]]] = {Listed: listed, Named: named, Mixed: mixed}
    for (cls, version), count, behind in itertools.product(BOTH_WAYS, (1, 30), (0, 30)):
        for variant in variants[cls]:
            parts: list[Any] = [_part(cls, index) for index in range(30 + count + behind)]
            for index in range(30, 30 + count):
                parts[index] = _part(cls, index, **variant)
                if version and not variant:
                    # The tagged field is empty, so a decoder that wrongly ignores it does not fail on the
                    # bytes that follow.
                    parts[index].__unknown_tags__ = {9: b""}
            message = cls(parts=parts, after=7)
            assert module.decode_flat(cls, message.encode(version), version) == flatten(message)


def _part(cls: type[Any], index: int, **values: Any) -> Any:
    if cls is Listed:
        listed: dict[str, Any] = {"index": index, "numbers": [1, 2], "flags": [True]}
        return ListedPart(**(listed | values))
    if cls is Named:
        named = {"index": index, "name": "name", "note": "note", "data": b"data", "last": 1}
        return NamedPart(**(named | values))
    mixed = {"index": index, "id": ZERO_UUID, "name": "", "points": [], "ids": [], "data": b"data"}
    return MixedPart(**(mixed | values))


def assert_corrupted_runs_agree(module: ModuleType) -> None:
    """Check that `decode_flat` and `decode` agree on corrupted or truncated runs of elements.

    A run consists of consecutive elements of the same length.
    """
    for (cls, version), count in itertools.product(BOTH_WAYS, (4, 26)):
        part = _part(cls, 5, **({"name": "x" * 130} if cls is Named else {}))
        many = cls(parts=[part] * count, after=7).encode(version)
        single = cls(parts=[part], after=7).encode(version)
        size = (len(many) - len(single)) // (count - 1)
        start = len(many) - count * size - 2 - (version > 0)
        for place in (at for at in range(size) if many[start + at] != ord("x")):
            for corrupted_byte, elements in itertools.product((0, 1, 0xFF), ((3,), range(count))):
                broken = bytearray(many)
                for element in elements:
                    broken[start + element * size + place] = corrupted_byte
                # The decoder learns the layout before it gets the corrupted bytes.
                module.decode_flat(cls, many, version)
                assert_agree(module, cls, version, bytes(broken))
        for cut in range(0, len(many), 97):
            assert_agree(module, cls, version, many[:cut])


def assert_agree(module: ModuleType, cls: type[Message], version: int, data: bytes) -> None:
    """Check that `decode_flat` accepts and rejects the same bytes as `decode`, except for invalid UTF-8."""
    expected = outcome(lambda: flatten(cls.decode(data, version)))
    assert outcome(lambda: module.decode_flat(cls, data, version)) == expected or "not UTF-8" in expected


def outcome(decode: Callable[[], object]) -> str:
    try:
        # Return the result of repr, because True is equal to 1, and NaN is not equal to itself.
        return repr(decode())
    except DecodeError as error:
        return str(error)


def sees_tagged_fields(module: ModuleType) -> None:
    topic_id = uuid.UUID(int=7)
    moved = PartitionData(
        partition_index=1,
        error_code=6,
        high_watermark=-1,
        current_leader=LeaderIdAndEpoch(leader_id=4, leader_epoch=9),
        aborted_transactions=None,
        records=None,
    )
    message = FetchResponse(
        throttle_time_ms=0,
        responses=[FetchableTopicResponse(topic_id=topic_id, partitions=[moved])],
        node_endpoints=[NodeEndpoint(node_id=4, host="b", port=9092)],
    )
    partition = (1, 6, -1, -1, -1, (-1, -1), (4, 9), (-1, -1), None, -1, None)
    assert module.decode_flat(FetchResponse, message.encode(17), 17) == (
        *(0, 0, 0, [(b"", topic_id.bytes, [partition])]),
        [(4, b"b", 9092, None)],
    )


@pytest.mark.parametrize(
    "cls", [*DECLARED, FetchResponse, JoinGroupResponse, MetadataResponse], ids=lambda cls: cls.__name__
)
def test_flat_decoding_reads_what_decode_reads(cls: type[Message]) -> None:
    reads_what_decode_reads(flat_tuples, cls, versioned(cls, unknown_tags=True), 2)


@given(st.sampled_from(ALL).flatmap(lambda cls: st.tuples(st.just(cls), versioned(cls, unknown_tags=True))))
def test_flat_decoding_reads_what_decode_reads_of_any_message(drawn: Any) -> None:
    cls, (version, message) = drawn
    assert repr(decode_flat(cls, message.encode(version), version)) == repr(flatten(message))


def test_every_version_of_every_message_has_a_flat_decoder() -> None:
    for cls, version in EVERY_VERSION:
        flat_tuples.decoder(cls, version)


def test_runs_of_elements_alike_are_read_as_decode_reads_them() -> None:
    reads_runs(flat_tuples)


def test_the_end_of_a_run_is_noticed() -> None:
    sees_where_runs_end(flat_tuples)


def test_corrupted_runs_raise_the_errors_of_decode() -> None:
    assert_corrupted_runs_agree(flat_tuples)


@given(st.sampled_from(ALL).flatmap(lambda cls: st.tuples(st.just(cls), versioned(cls, unknown_tags=True))))
@part_of_the_examples(6)
def test_truncated_and_corrupted_bytes_raise_the_errors_of_decode(drawn: Any) -> None:
    cls, (version, message) = drawn
    data = message.encode(version)
    for broken in itertools.chain((data[:cut] for cut in places(data)), corruptions(data)):
        assert_agree(flat_tuples, cls, version, broken)


@given(
    st.sampled_from([(cls, v) for cls in ALL for v in (cls.__versions__.min, cls.__versions__.max)]),
    st.binary(),
)
def test_random_bytes_raise_the_errors_of_decode(chosen: tuple[type[Message], int], data: bytes) -> None:
    assert_agree(flat_tuples, chosen[0], chosen[1], data)


@pytest.mark.parametrize("version", [0, 9])
def test_the_shape_of_tuples_does_not_depend_on_the_version(version: int) -> None:
    member = JoinGroupResponseMember(member_id="a-1", metadata=b"\1\2")
    message = JoinGroupResponse(
        error_code=0, generation_id=3, protocol_name="range", leader="a-1", member_id="a-1", members=[member]
    )
    assert decode_flat(JoinGroupResponse, message.encode(version), version) == (
        *(0, 0, 3, None, b"range", b"a-1", False, b"a-1"),
        [(b"a-1", None, b"\1\2")],
    )


def test_tagged_fields_have_their_declared_position() -> None:
    sees_tagged_fields(flat_tuples)


def test_unknown_tagged_fields_are_dropped() -> None:
    message = Named(parts=[], after=5)
    message.__unknown_tags__ = {99: b"unknown"}
    assert decode_flat(Named, message.encode(1), 1) == ([], 5)


def test_strings_that_are_not_utf8_are_accepted() -> None:
    message = NamedPart(name="?", index=0, note=None, data=b"", last=0)
    data = Named(parts=[message], after=1).encode(0).replace(b"?", b"\xff")
    assert decode_flat(Named, data, 0)[0][0][0] == b"\xff"


def test_any_buffer_is_read_from_any_offset() -> None:
    data = b"before" + Named(parts=[], after=5).encode(1)
    assert decode_flat(Named, memoryview(data), 1, 6) == decode_flat(Named, bytearray(data), 1, 6) == ([], 5)


def test_an_unsupported_version_is_rejected() -> None:
    with pytest.raises(UnsupportedVersion):
        decode_flat(Named, b"", 2)


def test_the_memory_for_lists_is_bounded() -> None:
    decode = flat_tuples.decoder(Listed, 2)
    lists: dict[bytes, Any] = decode.__globals__["read_parts"].__self__.cached
    most = 0
    for start in range(0, 12_000, 1000):
        parts = [ListedPart(index=1, numbers=[start + n], flags=None) for n in range(1000)]
        data = Listed(parts=parts, after=0).encode(2)
        assert decode(data, 0)[0] == flatten(Listed(parts=parts, after=0))
        most = max(most, len(lists))
    assert 1000 < most <= 4096


def test_equal_lists_are_stored_once() -> None:
    parts = [ListedPart(index=n, numbers=[1, 2, 3], flags=[True]) for n in range(9)]
    decoded, _ = decode_flat(Listed, Listed(parts=parts, after=0).encode(1), 1)
    assert len({id(part[2]) for part in decoded}) == 1


MUTANTS: dict[str, tuple[str, str, Callable[[ModuleType], None]]] = {
    "the bytes of lengths aren't compared": (
        "if block[position::size].strip(expected):",
        "if 0:",
        sees_where_runs_end,
    ),
    "tags aren't seen in long runs": ('length_bytes.append((size - 1, b"\\0"))', "pass", sees_where_runs_end),
    "empty is null in long runs": (
        "if length < 0 else _empty_literal",
        "if length < 1 else _empty_literal",
        sees_where_runs_end,
    ),
    "one element with other lists counts as read": (
        "length_hint(rows) + 1",
        "length_hint(rows)",
        assert_corrupted_runs_agree,
    ),
    "lists are another element's": (
        "get(tail) or read(tail)",
        "read(tail[:-1] + bytes(1))",
        assert_corrupted_runs_agree,
    ),
    "tagged fields keep their defaults": (
        "tagged if version in f.tagged",
        "tagged if version < 0",
        sees_tagged_fields,
    ),
    "absent fields hold nothing": (
        "or repr(_flatten_value(f.kind, f.initial()))",
        "or 'None'",
        assert_corrupted_runs_agree,
    ),
}


@pytest.mark.thorough
@pytest.mark.parametrize("name", MUTANTS)
def test_each_mutant_of_the_flat_decoder_is_killed(name: str) -> None:
    old, new, check = MUTANTS[name]
    with pytest.raises(Exception) as caught:  # noqa: PT011  whatever it stumbles over, it is caught
        check(mutated(flat_tuples, old, new))
    assert not isinstance(caught.value, NameError | SyntaxError)
