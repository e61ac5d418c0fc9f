"""Compiled codecs are compared with the interpreter, for test messages and all of Kafka's messages."""

from __future__ import annotations

import itertools
import linecache
import struct
import traceback
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from kproto.errors import DecodeError
from kproto.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from kproto.wire import Message
from kproto.wire.compiler import decoder, encoder
from kproto.wire.layouts import LayoutPart, Layouts
from kproto.wire.runtime import Unpackers, Uuids
from tests.wire import properties
from tests.wire.declarations import DECLARED, Arrays, Plain, Tagged
from tests.wire.stage import ALL, EVERY_VERSION, REAL


@pytest.mark.thorough
@pytest.mark.parametrize("cls", ALL, ids=lambda cls: cls.__name__)
def test_the_compiled_codecs_write_and_read_what_the_interpreter_does(cls: type[Message]) -> None:
    properties.is_the_interpreter(REAL, cls, share=1 if cls in DECLARED else 4)


@pytest.mark.parametrize("cls", DECLARED, ids=lambda cls: cls.__name__)
def test_both_encoders_refuse_the_same(cls: type[Message]) -> None:
    versions = list(range(cls.__versions__.min, cls.__versions__.max + 1))
    properties.refuses_what_the_interpreter_refuses(REAL, cls, versions)


def test_runs_of_elements_with_equal_lengths_are_read_as_the_interpreter_reads_them() -> None:
    properties.reads_runs_of_elements_alike(REAL)


def test_a_different_element_in_a_run_is_noticed() -> None:
    properties.sees_what_differs_in_a_run(REAL)


def test_corrupted_runs_are_refused_or_read_as_the_interpreter_says() -> None:
    properties.survives_corrupted_runs(REAL)


def test_a_corrupted_length_inside_a_run_is_reported_with_its_path() -> None:
    members = [JoinGroupResponseMember(member_id="member", metadata=bytes(8)) for _ in range(9)]
    message = JoinGroupResponse(
        error_code=0, generation_id=1, protocol_name="range", leader="", member_id="", members=members
    )
    data = message.encode(3)
    at = len(data) - 4 * 20 + 8  # The position of the length of members[5].metadata.
    with pytest.raises(DecodeError) as refused:
        JoinGroupResponse.decode(data[:at] + b"\xff" * 4 + data[at + 4 :], 3)
    assert (refused.value.field, refused.value.offset) == ("members[5].metadata", at)


def test_the_memory_for_layouts_and_loops_is_bounded() -> None:
    def fill(items: list[Any], rows: Iterator[tuple[Any, ...]], lengths: tuple[int, ...]) -> int:
        return len([*rows])

    layouts = Layouts(
        [LayoutPart("", 4, "s", True), LayoutPart("", 4, "i", False), LayoutPart("", 4, "i", False)],
        "",
        False,
        lambda _: fill,
    )
    for size, a, b in itertools.product(range(4), range(17), range(17)):
        element = struct.pack(f">i{size}si{a}ii{b}i", size, b"", a, *[0] * a, b, *[0] * b)
        layouts.read([], 9, element * 9, 0)
    assert 0 < len(layouts.known) <= 64
    assert len(layouts.fills) == 64


def test_every_version_of_every_message_compiles() -> None:
    for cls, version in EVERY_VERSION:
        encoder(cls, version)
        decoder(cls, version)


def test_a_traceback_shows_the_failing_line_of_generated_code() -> None:
    with pytest.raises(IndexError) as caught:
        decoder(Arrays, 1)(b"", 0)
    assert "n = buf[p]; p += 1" in "".join(traceback.format_exception(caught.value))


def test_generated_source_has_a_unique_file_name() -> None:
    decoder(Plain, 0)
    decoder(Plain, 1)
    names = [name for name in linecache.cache if "Plain v" in name and name.endswith("decode>")]
    assert len(names) == 2


def test_codecs_are_compiled_at_their_first_use() -> None:
    class Later(Message, versions="0-3"):
        pass

    assert (Later.__encoders__, Later.__decoders__) == ({}, {})
    Later.decode(Later().encode(2), 3)
    assert (list(Later.__encoders__), list(Later.__decoders__)) == ([2], [3])


def test_cached_uuids_equal_constructed_ones() -> None:
    cached, plain = Uuids()[bytes(range(16))], uuid.UUID(bytes=bytes(range(16)))
    assert cached == plain
    assert hash(cached) == hash(plain)
    assert (cached.bytes, str(cached), cached.is_safe) == (plain.bytes, str(plain), plain.is_safe)


def test_unpackers_for_many_uuids_are_not_cached() -> None:
    """Unpackers for many UUIDs are not cached, because they would take too much memory.

    The unpacker for 4,095 UUIDs takes 130 kB. The unpackers for every count up to 4,095 would take 300 MB.
    """
    unpackers = Unpackers("16s")
    for count in (1, 3, 4095):
        assert unpackers[count](bytes(16 * count), 0) == (bytes(16),) * count
    assert set(unpackers) == {1, 3}
    numbers = Unpackers("i")
    for count in (1, 4095, 4096):
        assert numbers[count](bytes(4 * count), 0) == (0,) * count
    assert set(numbers) == {1, 4095}


def test_the_memory_for_uuids_is_bounded() -> None:
    known = Uuids()
    for number in range(10_000):
        assert known[number.to_bytes(16, "big")].int == number
    assert len(known) <= 4096


def test_tagged_values_are_read_back() -> None:
    message = Tagged(before=1, items=[], after="", number=5, flag=True)
    assert decoder(Tagged, 2)(encoder(Tagged, 2)(message), 0)[0] == message
