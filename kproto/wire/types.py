"""The primitive types of Kafka's message definitions, and ranges of versions.

Fields are annotated with the types of this module. A type checker sees the plain Python type. `Primitive`
describes the encoding:

    Bool Int8 Int16 UInt16 Int32 UInt32 Int64 Float64    big-endian, fixed size
    Uuid                                                 16 bytes, as `uuid.UUID`
    String                                               a length, then UTF-8
    Bytes Records                                        a length, then bytes; record batches stay undecoded
"""

from __future__ import annotations

import re
import uuid
from typing import Annotated

import msgspec

# Kafka's `Uuid.ZERO_UUID`, which stands for a missing topic id.
ZERO_UUID = uuid.UUID(int=0)

# The highest possible version, at which "5+" ends: the request header encodes versions as int16.
HIGHEST_VERSION = 0x7FFF


class Primitive(msgspec.Struct, frozen=True):
    """One of Kafka's primitive types.

    `name` is the type's name in Kafka's message JSON. `code` is its `struct` code, and `size` its size in
    bytes. For types of variable size, `code` is empty and `size` is 0.

    `zero` is Kafka's default for a field whose definition has no default.
    """

    name: str
    code: str
    size: int
    zero: object

    def __repr__(self) -> str:
        return self.name


Bool = Annotated[bool, Primitive("bool", "?", 1, False)]
Int8 = Annotated[int, Primitive("int8", "b", 1, 0)]
Int16 = Annotated[int, Primitive("int16", "h", 2, 0)]
UInt16 = Annotated[int, Primitive("uint16", "H", 2, 0)]
Int32 = Annotated[int, Primitive("int32", "i", 4, 0)]
UInt32 = Annotated[int, Primitive("uint32", "I", 4, 0)]
Int64 = Annotated[int, Primitive("int64", "q", 8, 0)]
Float64 = Annotated[float, Primitive("float64", "d", 8, 0.0)]
Uuid = Annotated[uuid.UUID, Primitive("uuid", "16s", 16, ZERO_UUID)]
String = Annotated[str, Primitive("string", "", 0, "")]
Bytes = Annotated[bytes, Primitive("bytes", "", 0, b"")]
Records = Annotated[bytes, Primitive("records", "", 0, None)]


class Versions(msgspec.Struct, frozen=True):
    """An inclusive range of versions: "0-9", "5+", "3" or "none". Test membership with `in`."""

    min: int
    max: int

    @classmethod
    def parse(cls, text: str) -> Versions:
        """Parse a range as Kafka's message JSON writes it. Raises ValueError for any other text."""
        if text == "none":
            return NO_VERSIONS
        match = re.fullmatch(r"(\d+)(\+|-(\d+))?", text)
        if match is None:
            raise ValueError(f"not a range of versions: {text!r}; write '0-9', '5+', '3' or 'none'")
        first = int(match[1])
        last = first if match[2] is None else HIGHEST_VERSION if match[2] == "+" else int(match[3])
        if not first <= last <= HIGHEST_VERSION:
            raise ValueError(f"not a range of versions: {text!r}; the first is above the last")
        return cls(first, last)

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.min <= version <= self.max

    def __bool__(self) -> bool:
        return self.min <= self.max

    def __str__(self) -> str:
        if not self:
            return "none"
        if self.max == HIGHEST_VERSION:
            return f"{self.min}+"
        return str(self.min) if self.min == self.max else f"{self.min}-{self.max}"


NO_VERSIONS = Versions(0, -1)
ALL_VERSIONS = Versions(0, HIGHEST_VERSION)
