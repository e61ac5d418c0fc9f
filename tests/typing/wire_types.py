"""The types of messages. mypy --strict and pyright check the module; it never runs."""

from __future__ import annotations

import uuid
from typing import assert_type

from kproto.wire import (
    FRESH,
    Bool,
    Bytes,
    Float64,
    Int32,
    Message,
    Records,
    String,
    Struct,
    Uuid,
    decode_from,
    field,
)


class Outer(Message, api_key=1, versions="0-9", flexible="6+"):
    name: String
    count: Int32 = field("1+", default=-1)
    reason: String | None = field("8+", default=None, ignorable=True)
    part: Part = field("2+", tag=0, default=FRESH)
    parts: list[Part]
    numbers: list[Int32] | None = field(nullable="7+", default=[])


class Part(Struct):
    yes: Bool
    ratio: Float64
    id: Uuid
    data: Bytes
    records: Records | None = None


def fields_have_the_plain_types(outer: Outer, part: Part) -> None:
    assert_type(outer.name, str)
    assert_type(outer.count, int)
    assert_type(outer.reason, str | None)
    assert_type(outer.part, Part)
    assert_type(outer.parts, list[Part])
    assert_type(outer.numbers, list[int] | None)
    assert_type(part.yes, bool)
    assert_type(part.ratio, float)
    assert_type(part.id, uuid.UUID)
    assert_type(part.data, bytes)
    assert_type(part.records, bytes | None)
    assert_type(part.__unknown_tags__, dict[int, bytes])


def fields_are_keyword_only() -> None:
    Part(True, 1.0, uuid.uuid4(), b"")  # type: ignore[call-arg]


def decoding_gives_the_class_itself(data: bytes) -> None:
    assert_type(Outer.decode(data, 9), Outer)
    assert_type(decode_from(Outer, memoryview(data), 4, 9), tuple[Outer, int])
    assert_type(Outer(name="", parts=[]).encode(9), bytes)


def mistakes_are_seen(outer: Outer) -> None:
    Outer(parts=[])  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    Outer("", parts=[])  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    Outer(name=1, parts=[])  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    Outer(name=None, parts=[])  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    Outer(name="", parts=[outer])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]
    Outer(name="", parts=[], wrong=1)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    outer.wrong = 1  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
    outer.count = "1"  # type: ignore[assignment]  # pyright: ignore[reportAttributeAccessIssue]


class WrongDefault(Struct):
    count: Int32 = field("1+", default="one")  # type: ignore[assignment]  # pyright: ignore
