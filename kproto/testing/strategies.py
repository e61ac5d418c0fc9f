"""Hypothesis strategies for messages: any message, in any version, with any values that it can carry.

    from kproto.testing.strategies import from_message

    @given(from_message(JoinGroupRequest, version=9))
    def test_my_broker_reads_any_join(request): ...

    @given(versioned(JoinGroupRequest))          # any of its versions, and a message that it can carry
    def test_my_codec(drawn):
        version, request = drawn

What is drawn is always valid: `message.encode(version)` doesn't raise, and decoding the bytes gives an equal
message back. Every field that the version has takes any value of its type; the fields that it lacks keep
their defaults. Examples shrink towards zeros, empty strings and lists, and tagged fields that are not there.
"""

from __future__ import annotations

import operator
from functools import cache
from typing import Any, TypeVar

from hypothesis import strategies as st

from ..wire.message import Array, Field, Message, StructType, check_version
from ..wire.types import Primitive, Versions

M = TypeVar("M", bound=Message)

LONG = (126, 127, 128, 300)
"""Lengths on both sides of where a varint takes its second byte."""

INTEGERS = {
    "int8": (-(2**7), 2**7 - 1),
    "int16": (-(2**15), 2**15 - 1),
    "uint16": (0, 2**16 - 1),
    "int32": (-(2**31), 2**31 - 1),
    "uint32": (0, 2**32 - 1),
    "int64": (-(2**63), 2**63 - 1),
}

_characters = st.characters(exclude_categories=["Cs"])  # UTF-8 has no surrogates
_text = st.text(_characters, max_size=12)
_binary = st.binary(max_size=12)

PRIMITIVES: dict[str, st.SearchStrategy[Any]] = {
    **{name: st.integers(low, high) for name, (low, high) in INTEGERS.items()},
    "bool": st.booleans(),
    "float64": st.floats(allow_nan=False),  # not-a-number is not equal to itself
    "uuid": st.uuids(),
    "string": _text
    | st.builds(operator.mul, st.text(_characters, min_size=1, max_size=2), st.sampled_from(LONG)),
    "bytes": _binary | st.builds(operator.mul, st.binary(min_size=1, max_size=2), st.sampled_from(LONG)),
    "records": _binary,
}


def from_message(
    cls: type[M], version: int | None = None, *, unknown_tags: bool = False
) -> st.SearchStrategy[M]:
    """Messages of `cls` that `version` can carry; the newest one when None.

    With `unknown_tags` its structs, at every depth, may also have tagged fields that nobody declares, where
    the version is flexible. Raises UnsupportedVersion for a version that `cls` doesn't have.
    """
    chosen = cls.__versions__.max if version is None else version
    check_version(cls, chosen)
    strategy: st.SearchStrategy[M] = _struct(cls, chosen, chosen in cls.__flexible__, unknown_tags)
    return strategy


def versions(cls: type[Message]) -> st.SearchStrategy[int]:
    """The versions of a message, shrinking towards the oldest."""
    return st.integers(cls.__versions__.min, cls.__versions__.max)


def versioned(cls: type[M], *, unknown_tags: bool = False) -> st.SearchStrategy[tuple[int, M]]:
    """Pairs of a version and a message that it can carry."""
    return versions(cls).flatmap(
        lambda version: st.tuples(st.just(version), from_message(cls, version, unknown_tags=unknown_tags))
    )


@cache
def _struct(cls: StructType, version: int, flexible: bool, unknown_tags: bool) -> st.SearchStrategy[Any]:
    # A field with a range has a default, so those that the version lacks need not be named.
    values = {
        f.name: _field(f, version, flexible, unknown_tags) for f in cls.__fields__ if version in f.versions
    }
    structs: st.SearchStrategy[Any] = st.fixed_dictionaries(values).map(lambda drawn: cls(**drawn))
    if not (flexible and unknown_tags):
        return structs
    known = {f.tag for f in cls.__fields__ if f.tagged != Versions.parse("none")}
    return st.builds(_with_tags, structs, _tags(known))


def _field(f: Field, version: int, flexible: bool, unknown_tags: bool) -> st.SearchStrategy[Any]:
    values = _kind(f.kind, version, flexible, unknown_tags)
    if version in f.nullable:
        values = st.none() | values
    if version in f.tagged and flexible:
        values = _initial(f) | values
    return values


def _initial(f: Field) -> st.SearchStrategy[Any]:
    return st.builds(f.initial)


def _kind(
    kind: Primitive | Array | StructType, version: int, flexible: bool, unknown_tags: bool
) -> st.SearchStrategy[Any]:
    if isinstance(kind, Primitive):
        return PRIMITIVES[kind.name]
    if isinstance(kind, StructType):
        return _struct(kind, version, flexible, unknown_tags)
    elements = _kind(kind.element, version, flexible, unknown_tags)
    short = st.lists(elements, max_size=3)
    if isinstance(kind.element, StructType) or not kind.element.code:
        return short
    return short | st.builds(operator.mul, st.lists(elements, min_size=1, max_size=1), st.sampled_from(LONG))


def _tags(known: set[int]) -> st.SearchStrategy[dict[int, bytes]]:
    # Kafka's classes read the tag 2**31-1, but can't write it.
    tags = st.integers(0, 200) | st.integers(0, 2**31 - 2)
    return st.dictionaries(tags.filter(lambda tag: tag not in known), st.binary(max_size=5), max_size=2)


def _with_tags(struct: Any, tags: dict[int, bytes]) -> Any:
    if tags:
        struct.__unknown_tags__ = tags
    return struct
