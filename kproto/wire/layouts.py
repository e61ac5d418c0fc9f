"""Read array elements with one call if they share a layout, that is, if their values have the same lengths.

The members of a group, or the partitions of a topic, usually differ in their values but not in the lengths of
these values. So the reader assumes that the next elements have the lengths of the previous one.

* One `iter_unpack` reads all elements, lengths included. A loop compares the lengths of each element with
  those of the layout, and stores the element's values. The loop is generated for a `Pattern` of lengths.

* The loop stops at the first element with different lengths. If at least `MIN_RUN` elements from this one on
  share another layout, the reader continues with that layout.

* All other elements, and malformed input, are left to the reader of single elements.

The following rules keep the decoded elements correct, and limit the cost in time and memory:

* An element is created only if its lengths equal the lengths of the layout, and its tag section is empty.

* Before the reader reads elements, it checks that they end within the buffer.

* If the lengths differ, at most `MAX_BYTES` bytes have been copied unnecessarily.

* A layout is stored when `MIN_RUN` successive elements share it. If `MAX_LAYOUTS` layouts are stored, the
  next one replaces all of them. After `MAX_LAYOUTS` loops have been compiled, elements whose pattern has no
  loop are read one by one.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import msgspec

# The minimum number of successive elements with the same layout that are read together. It is faster to read
# fewer elements one by one.
MIN_RUN = 3

MAX_ELEMENTS = 256
# One call reads at most `MAX_ELEMENTS` elements and `MAX_BYTES` bytes. If elements do not have the lengths
# that the layout assumes, the work of this call is wasted. The limits bound this waste.
MAX_BYTES = 65_536

# The maximum number of layouts, and of compiled loops, that are kept for one array of a message class.
MAX_LAYOUTS = 64

# The maximum length of a list of numbers in an element that is read by layout.
MAX_NUMBERS = 16

# The pattern of an element's lengths: one number per length. Null is -1, and an empty value is 0. A nonempty
# list of numbers is represented by its count, and a nonempty string or byte sequence by 1.
Pattern = tuple[int, ...]

# `fill(items, rows, lengths)` appends the elements of `rows` to `items`. It stops at the first element of
# another layout, and returns the number of elements that it has not appended.
Fill = Callable[[list[Any], Any, Any], int]


class LayoutPart(msgspec.Struct, frozen=True):
    """A part of an element: fields of fixed size, a length, and that many values.

    `prefix` is the size in bytes of the encoded length. 0 stands for a varint that holds the length plus one.

    `code` is the `struct` code of the values, such as "s" for bytes. It is empty if the values cannot be read
    by layout. An element with such values has a layout only if all of them are null or empty.
    """

    fixed: str
    prefix: int
    code: str
    nullable: bool


# A layout consists of the size of an element in bytes, a function that unpacks elements, the expected
# lengths, and the loop that creates the elements.
Layout = tuple[int, Callable[[bytes], Any], Any, Fill]


class Layouts:
    """The layouts found so far in the elements of one declared array."""

    def __init__(
        self, parts: list[LayoutPart], tail: str, flexible: bool, fill: Callable[[Pattern], Fill]
    ) -> None:
        """Prepare to read an array of which no layout is known yet.

        `tail` contains the `struct` codes of the fields after the last part of an element. `fill(pattern)`
        compiles a loop that reads elements with this pattern of lengths.
        """
        self.parts = [(part, struct.calcsize(">" + part.fixed)) for part in parts]
        self.tail = tail + "B" * flexible
        self.flexible = flexible
        self.make_fill = fill
        self.fills: dict[Pattern, Fill] = {}
        self.known: dict[tuple[bytes, ...], Layout] = {}
        self.last: Layout | None = None

    def read(self, items: list[Any], count: int, buf: bytes, p: int) -> tuple[int, int]:
        """Read elements that share a layout, and append them to `items`.

        Returns the number of elements that remain to be read, and the position of the first of them in `buf`.
        """
        guess = self.last  # `find` has not compared this layout with the elements at `p`.
        layout = guess or self.find(buf, p)
        while layout is not None:
            size, rows, lengths, fill = layout
            n, q = count, p + count * size
            if n > MAX_ELEMENTS or q > len(buf) or q - p > MAX_BYTES:
                n = min(n, MAX_ELEMENTS, min(len(buf) - p, MAX_BYTES) // size)
                q = p + n * size
            mismatched = fill(items, rows(buf[p:q]), lengths)
            if n == count and not mismatched:
                return 0, q
            count -= n - mismatched
            p = q - mismatched * size
            # Also stop if `find` has just returned this layout, but no element could be read with it.
            if count < MIN_RUN or (mismatched == n and layout is not guess):
                break
            if mismatched or not n:
                guess, layout = None, self.find(buf, p)
        return count, p

    def find(self, buf: bytes, p: int) -> Layout | None:
        """Return the layout that the next `MIN_RUN` elements share, or None if they share none.

        A layout that is found is stored, and the next `read` tries it first.
        """
        # The bytes that each of the elements must contain, with their offsets in an element.
        shared: list[tuple[int, bytes]] = []
        lengths: list[int] = []
        at = p
        for part, fixed_size in self.parts:
            at += fixed_size
            prefix, length = _read_length(buf, at, part)
            if length < -1 or (length > MAX_NUMBERS and part.code != "s") or (length > 0 and not part.code):
                return None
            shared.append((at - p, prefix))
            lengths.append(length)
            at += len(prefix) + max(0, length) * struct.calcsize(">" + part.code)
        size = at - p + struct.calcsize(">" + self.tail)
        if size > MAX_BYTES // MIN_RUN:
            return None
        if self.flexible:
            shared.append((size - 1, b"\0"))  # an empty tag section
        for offset, content in shared:
            first = p + offset
            for start in range(first, first + MIN_RUN * size, size):
                if not buf.startswith(content, start):
                    return None
        key = tuple(prefix for _, prefix in shared[: len(lengths)])
        layout = self.known.get(key) or self.learn(size, key, lengths)
        self.last = layout or self.last
        return layout

    def learn(self, size: int, prefixes: tuple[bytes, ...], lengths: list[int]) -> Layout | None:
        """Store the layout and return it.

        Returns None if the layout needs a new loop, but `MAX_LAYOUTS` loops have been compiled already.
        """
        codes, pattern, encoded_lengths = "", list[int](), list[int]()
        for (part, _), prefix, length in zip(self.parts, prefixes, lengths, strict=True):
            code = _LENGTH_CODES[part.prefix] if part.prefix else _VARINT_CODES[len(prefix)]
            codes += part.fixed + code + (f"{length}{part.code}" if length > 0 else "")
            pattern.append(min(1, length) if part.code == "s" else length)
            encoded_lengths += struct.unpack(">" + code, prefix)
        fill = self.fills.get(tuple(pattern))
        if fill is None:
            if len(self.fills) >= MAX_LAYOUTS:
                return None
            fill = self.fills[tuple(pattern)] = self.make_fill(tuple(pattern))
        if len(self.known) >= MAX_LAYOUTS:
            self.known.clear()
        rows = struct.Struct(">" + codes + self.tail).iter_unpack
        layout = self.known[prefixes] = (size, rows, tuple(encoded_lengths), fill)
        return layout


# The `struct` codes of encoded lengths, by their size in bytes.
_VARINT_CODES = {1: "B", 2: "H"}
_LENGTH_CODES = {2: "h", 4: "i"}


def _read_length(buf: bytes, at: int, part: LayoutPart) -> tuple[bytes, int]:
    """Return the bytes of the length field at the position `at`, and its value.

    The value is -1 for null. It is below -1 if the length is missing, not allowed, not in its
    shortest form, or a varint of more than two bytes.
    """
    prefix = bytes(buf[at : at + (part.prefix or 1)])
    if part.prefix:
        length = int.from_bytes(prefix, "big", signed=True) if len(prefix) == part.prefix else -2
    elif prefix < b"\x80":
        length = prefix[0] - 1 if prefix else -2
    else:
        prefix = bytes(buf[at : at + 2])
        length = (prefix[0] & 0x7F | prefix[1] << 7) - 1 if b"\0" < prefix[1:] < b"\x80" else -2
    return prefix, -2 if length == -1 and not part.nullable else length
