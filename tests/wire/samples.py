"""Sample messages of every declaration and version, their lengths, and corruptions of them.

`sample(cls, version)` sets every field of the version. No value is zero, empty or the default. No two numbers
in a message are equal. Every list is filled.

Every struct of a flexible version has an unknown tagged field.

Calls with equal arguments return equal messages.
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterator
from typing import Any, NamedTuple, cast

from kproto.wire import Message, Struct, interpreter
from kproto.wire.message import Array
from kproto.wire.types import Primitive

# A tag far above those that Kafka uses.
UNKNOWN_TAG = 99


def sample(cls: type[Message], version: int, elements: int = 1) -> Any:
    """Build a message with every field set.

    A list has `elements` items, or one item if its items contain structs.
    """
    return _struct(cls, version, version in cls.__flexible__, elements, itertools.count(1))


def _struct(cls: type[Struct], version: int, flexible: bool, elements: int, numbers: Iterator[int]) -> Any:
    values = {
        f.name: _value(f.kind, version, flexible, elements, numbers)
        for f in cls.__fields__
        if version in f.versions
    }
    message: Any = cls(**values)
    if flexible:
        message.__unknown_tags__ = {UNKNOWN_TAG: bytes([next(numbers) & 0xFF])}
    return message


def _value(
    kind: Primitive | Array | type[Struct],
    version: int,
    flexible: bool,
    elements: int,
    numbers: Iterator[int],
) -> Any:
    if isinstance(kind, type):
        return _struct(kind, version, flexible, elements, numbers)
    if isinstance(kind, Array):
        count = elements if isinstance(kind.element, Primitive) or _is_leaf(kind.element, version) else 1
        return [_value(kind.element, version, flexible, elements, numbers) for _ in range(count)]
    number = next(numbers)
    match kind.name:
        case "bool":
            return True
        case "float64":
            return number + 0.5
        case "uuid":
            return uuid.UUID(int=number)
        case "string":
            return f"s{number % 10}"
        case "bytes" | "records":
            return b"b%d" % (number % 10)
        case _:
            return number % 100 + 1


def _is_leaf(cls: type[Struct], version: int) -> bool:
    """Return whether the struct contains no other struct."""
    return not any(
        isinstance(getattr(f.kind, "element", f.kind), type) for f in cls.__fields__ if version in f.versions
    )


def broken_bytes(data: bytes, values: int) -> Iterator[bytes]:
    """Yield copies of `data` with one byte replaced: up to `values` copies for each position.

    The first five values are: the byte with its lowest bit inverted, the byte with its highest bit inverted,
    0, 0xFF and 0x7F. Read as lengths, these values are often null, empty, negative or large.

    If `values` is less than five, only `values` of the five are used. Which one comes first rotates from
    position to position.
    """
    for at, byte in enumerate(data):
        telling = [byte ^ 1, byte ^ 0x80, 0, 0xFF, 0x7F]
        other_values = (
            [value for value in range(256) if value not in telling] if values > len(telling) else []
        )
        start = at % len(telling) if values < len(telling) else 0
        for value in dict.fromkeys([*telling[start:], *telling[:start], *other_values][:values]):
            if value != byte:
                yield data[:at] + bytes([value]) + data[at + 1 :]


class Place:
    """A field of a sample message, or an element of a list. A test can replace the value."""

    def __init__(
        self, path: str, owner: Any, key: str | int, kind: Any, nullable: bool, is_present: bool
    ) -> None:
        self.path = path
        self.owner = owner
        self.key = key
        self.kind = kind
        self.nullable = nullable
        self.is_present = is_present

    def __repr__(self) -> str:
        return self.path

    def get(self) -> Any:
        return self.owner[self.key] if isinstance(self.key, int) else getattr(self.owner, self.key)

    def set(self, value: object) -> None:
        if isinstance(self.key, int):
            self.owner[self.key] = value
        else:
            setattr(self.owner, self.key, value)


def all_places(owner: Any, version: int, prefix: str = "") -> Iterator[Place]:
    for f in type(owner).__fields__:
        path, is_present = prefix + f.name, version in f.versions
        yield Place(path, owner, f.name, f.kind, version in f.nullable, is_present)
        value = getattr(owner, f.name)
        if not is_present or value is None:
            continue
        if isinstance(f.kind, type):
            yield from all_places(value, version, f"{path}.")
        elif isinstance(f.kind, Array):
            for index, element in enumerate(value):
                at = f"{path}[{index}]"
                yield Place(at, value, index, f.kind.element, False, True)
                if isinstance(f.kind.element, type):
                    yield from all_places(element, version, f"{at}.")


def structs_in(struct: Any) -> Iterator[Any]:
    """Yield the struct and all structs nested in it."""
    yield struct
    for f in type(struct).__fields__:
        value = getattr(struct, f.name)
        for part in cast("list[object]", value) if isinstance(value, list) else [value]:
            if isinstance(part, Struct):
                yield from structs_in(part)


class Length(NamedTuple):
    """The position of a length or count in encoded data: `data[start:end]` is a varint or a signed int."""

    start: int
    end: int
    varint: bool
    description: str

    @property
    def size(self) -> int:
        return self.end - self.start


def lengths(cls: type[Message], version: int, data: bytes) -> list[Length]:
    """Return every length and count in the bytes of a message, including those in tag sections."""
    reader = _Noting(cls.__name__, data, 0, version, version in cls.__flexible__)
    reader.struct(cls)
    return reader.noted


class _Noting(interpreter.Reader):
    """The interpreter's reader, which records the positions of lengths."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.noted: list[Length] = []

    def uvarint(self, label: str) -> int:
        start = self.at
        value = super().uvarint(label)
        if label not in ("a tag", "the marker of a nullable struct"):
            self.noted.append(Length(start, self.at, True, label))
        return value

    def length(self, code: str, flexible: bool, label: str) -> int:
        start = self.at
        value = super().length(code, flexible, label)
        if not flexible:
            self.noted.append(Length(start, self.at, False, label))
        return value
