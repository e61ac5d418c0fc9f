"""Divide a large message into messages with fewer elements, without decoding it.

`divide` only finds where values end, and yields after every `STRIDE` elements, so that its steps are short.
The memory that it needs is a small multiple of the message's size.

An element is an entry of an array at any depth, or a tagged field.

The contents of strings are not checked: invalid UTF-8 is found only when an element is decoded.
"""

from __future__ import annotations

from collections.abc import Generator
from functools import cache
from typing import Final, NamedTuple

from ..errors import DecodeError
from .interpreter import minimum_size, uvarint
from .message import Array, Field, Message, Struct
from .types import Primitive

# The number of elements between two yields. Skipping this number of elements takes about a millisecond.
STRIDE: Final = 1000

# The maximum number of tagged fields of one struct. No Kafka API has more than ten.
_MAX_TAGS: Final = 1000


class Division(NamedTuple):
    """The pieces of a message and the number of elements in the whole message.

    If the message is not divided, `pieces` is empty, so that a message of many megabytes is not copied.
    """

    pieces: list[bytes]
    elements: int


def divide(
    message: type[Message],
    data: bytes,
    start: int,
    version: int,
    most: int,
    most_of_one: int,
    *,
    unique: bool = False,
) -> Generator[None, None, Division]:
    """Divide the message at `start` of `data` into encoded messages with at most `most` elements each.

    Of the message's arrays, the one with the most bytes is divided. The other fields are the same in every
    piece of the message.

    The elements of nested arrays count, too. If one element of the divided array contains more than `most`
    elements, this element gets a piece of its own. If it contains more than `most_of_one` elements, it is
    itself divided into several pieces.

    With `unique`, elements of the divided array that equal an earlier one are omitted.

    Yields None after every `STRIDE` elements, so that the caller can do other work.

    Raises DecodeError if the message ends too early.
    """
    skimmer = _Skimmer(message, data, start, version)
    try:
        pieces = yield from skimmer.divide(message, most, most_of_one, unique)
    except IndexError:
        detail = f"the message ends too early, or a length before byte {len(data)} is wrong"
        raise DecodeError(message.__name__, version, "", skimmer.at, detail) from None
    return Division(pieces, skimmer.elements)


class ArrayPlace(NamedTuple):
    """The position of an array in an encoded message."""

    # The positions of the count and of the first element.
    start: int
    content: int
    # The number of elements.
    size: int
    is_compact: bool

    def encode_count(self, count: int) -> bytes:
        """Encode a count as this array encodes it: as a varint or an int32."""
        return _encode_count(count, is_compact=self.is_compact)


def find_array(message: type[Message], data: bytes, start: int, version: int, name: str) -> ArrayPlace:
    """Find the array `name` among the fields of the valid message at `start` of `data`."""
    skimmer = _Skimmer(message, data, start, version)
    for f in _fields_of_version(message, version, skimmer.flexible):
        if f.name == name:
            break
        for _ in skimmer.skip_field(f):
            pass
    else:
        raise ValueError(f"{message.__name__} v{version} has no array {name}")
    count_start, is_compact = skimmer.at, skimmer.flexible and not f.always_rigid
    count = skimmer.read_length("i", is_compact)
    return ArrayPlace(count_start, skimmer.at, count, is_compact)


class _FieldSpan(NamedTuple):
    field: Field
    start: int
    end: int


class _Skimmer:
    """Skips values. Raises IndexError if a value ends beyond the end of the data."""

    def __init__(self, message: type[Message], data: bytes, at: int, version: int) -> None:
        self.data = data
        self.at = at
        self.version = version
        self.flexible = version in message.__flexible__
        self.elements = 0
        self._pause_at = STRIDE

    def divide(
        self, cls: type[Struct], most: int, most_of_one: int, unique: bool
    ) -> Generator[None, None, list[bytes]]:
        """Skip a struct; return its encoding, divided into pieces of at most `most` array elements.

        The list is empty if the struct is not divided: if it has no arrays, or at most `most` array elements
        in total.
        """
        start, elements_before, spans = self.at, self.elements, list[_FieldSpan]()
        for f in _fields_of_version(cls, self.version, self.flexible):
            field_start = self.at
            yield from self.skip_field(f)
            spans.append(_FieldSpan(f, field_start, self.at))
        self.skip_tag_section()
        end, elements = self.at, self.elements
        arrays = [span for span in spans if isinstance(span.field.kind, Array)]
        if elements - elements_before <= most or not arrays:
            return []
        largest = max(arrays, key=lambda span: span.end - span.start)
        self.at = largest.start
        head, tail = self.data[start : largest.start], self.data[largest.end : end]
        is_compact = self.flexible and not largest.field.always_rigid
        pieces: list[bytes] = []
        for group in self.group_elements(largest.field, most, most_of_one, unique):
            if group is None:
                yield
            else:
                count, content = group
                pieces.append(b"".join((head, _encode_count(count, is_compact=is_compact), content, tail)))
        # Undo the effects of `group_elements`: it skipped and counted the largest array a second time, after
        # `skip_field`.
        self.at, self.elements = end, elements
        self._pause_at = elements + STRIDE
        return pieces

    def group_elements(
        self, f: Field, most: int, most_of_one: int, unique: bool
    ) -> Generator[tuple[int, bytes] | None, None, None]:
        """Yield groups of elements as (element count, bytes), and None when a pause is due.

        A group contains at most `most` elements, including the elements of nested arrays. If one element
        contains more, it is the only element of its group. If it contains more than `most_of_one`, it is
        divided into pieces, and each piece is a group.
        """
        assert isinstance(f.kind, Array)
        element, flexible = f.kind.element, self.flexible and not f.always_rigid
        count = self.read_length("i", flexible)
        if isinstance(element, Primitive) and element.code:
            for index in range(0, count, most):
                number = min(most, count - index)
                yield number, self.take_bytes(number * element.size)
            return
        seen: set[bytes] = set()
        group: list[bytes] = []
        elements_of_group = 0
        for _ in range(count):
            start, elements_before = self.at, self.elements
            self.elements += 1
            if isinstance(element, Primitive):
                self.skip_primitive(element, flexible)
                if self.take_due_pause():
                    yield None
            else:
                yield from self.skip_struct(element)
            content = self.data[start : self.at]
            if unique:
                if content in seen:
                    continue
                seen.add(content)
            elements = self.elements - elements_before  # This element and the elements inside it.
            if group and elements_of_group + elements > most:
                yield len(group), b"".join(group)
                group, elements_of_group = [], 0
            if elements > most_of_one and not isinstance(element, Primitive):
                self.at = start
                pieces = yield from self.divide(element, most, most_of_one, unique=False)
                for piece in pieces or [self.data[start : self.at]]:
                    yield 1, piece
            else:
                group.append(content)
                elements_of_group += elements
        if group:
            yield len(group), b"".join(group)

    def skip_struct(self, cls: type[Struct]) -> Generator[None, None, None]:
        for step in _skip_steps(cls, self.version, self.flexible):
            if isinstance(step, int):
                self.skip_bytes(step)
            elif isinstance(step.kind, Primitive):
                self.skip_primitive(step.kind, self.flexible and not step.always_rigid)
            else:
                yield from self.skip_field(step)
        self.skip_tag_section()
        if self.take_due_pause():
            yield

    def skip_field(self, f: Field) -> Generator[None, None, None]:
        flexible = self.flexible and not f.always_rigid
        if isinstance(f.kind, Primitive):
            self.skip_primitive(f.kind, flexible)
        elif isinstance(f.kind, Array):
            yield from self.skip_array(f.kind.element, flexible)
        # A nullable struct starts with an int8, which is negative for null.
        elif self.version not in f.nullable or self.read_byte() < 128:
            yield from self.skip_struct(f.kind)

    def skip_array(self, element: Primitive | type[Struct], flexible: bool) -> Generator[None, None, None]:
        count = self.read_length("i", flexible)
        if count * _minimum_element_size(element, self.version, flexible) > len(self.data) - self.at:
            raise IndexError
        if isinstance(element, Primitive) and element.code:
            self.elements += count
            self.skip_bytes(count * element.size)
            return
        for _ in range(count):
            self.elements += 1
            if isinstance(element, Primitive):
                self.skip_primitive(element, flexible)
                if self.take_due_pause():
                    yield
            else:
                yield from self.skip_struct(element)

    def take_due_pause(self) -> bool:
        """Return whether a pause is due, and if so, schedule the next one `STRIDE` elements later.

        If the result is True, the caller must yield None, which pauses the generator.
        """
        if self.elements < self._pause_at:
            return False
        self._pause_at = self.elements + STRIDE
        return True

    def skip_primitive(self, kind: Primitive, flexible: bool) -> None:
        if kind.code:
            self.skip_bytes(kind.size)
        else:
            self.skip_bytes(self.read_length("h" if kind.name == "string" else "i", flexible))

    def skip_tag_section(self) -> None:
        """Skip the tagged fields of a struct, and count each as an element."""
        if not self.flexible:
            return
        count = self.read_uvarint()
        if count > _MAX_TAGS:
            raise IndexError
        self.elements += count
        for _ in range(count):
            self.read_uvarint()  # the tag
            self.skip_bytes(self.read_uvarint())

    def read_length(self, code: str, flexible: bool) -> int:
        """Read a length or count; null counts as 0.

        In flexible versions the length is a varint, and in others an int16 (`code` "h") or an int32 ("i").
        """
        if flexible:
            return max(self.read_uvarint() - 1, 0)
        return max(int.from_bytes(self.take_bytes(2 if code == "h" else 4), "big", signed=True), 0)

    def read_uvarint(self) -> int:
        if (byte := self.read_byte()) < 128:
            return byte
        self.at -= 1
        value = 0
        for shift in range(0, 35, 7):
            byte = self.read_byte()
            value |= (byte & 127) << shift
            if byte < 128:
                return value
        raise IndexError

    def read_byte(self) -> int:
        byte = self.data[self.at]
        self.at += 1
        return byte

    def skip_bytes(self, size: int) -> None:
        self.at += size
        if self.at > len(self.data):
            raise IndexError

    def take_bytes(self, size: int) -> bytes:
        self.skip_bytes(size)
        return self.data[self.at - size : self.at]


def _encode_count(count: int, *, is_compact: bool) -> bytes:
    return uvarint(count + 1) if is_compact else count.to_bytes(4, "big")


@cache
def _fields_of_version(cls: type[Struct], version: int, flexible: bool) -> tuple[Field, ...]:
    """Return the fields that are encoded in this version, except tagged fields."""
    return tuple(
        f for f in cls.__fields__ if version in f.versions and not (flexible and version in f.tagged)
    )


@cache
def _skip_steps(cls: type[Struct], version: int, flexible: bool) -> list[Field | int]:
    """Return the fields of a struct; adjacent fixed-size fields are replaced by their total size in bytes."""
    steps: list[Field | int] = []
    for f in _fields_of_version(cls, version, flexible):
        size = f.kind.size if isinstance(f.kind, Primitive) else 0
        if size and steps and isinstance(steps[-1], int):
            steps[-1] += size
        else:
            steps.append(size or f)
    return steps


@cache
def _minimum_element_size(element: Primitive | type[Struct], version: int, flexible: bool) -> int:
    """Return the minimum size of an encoded element in bytes, at least 1."""
    return max(1, minimum_size(element, version, flexible))
