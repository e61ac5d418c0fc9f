"""What the generated codecs call for the rarer cases. `compile.py` says how it all fits together."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any, cast
from uuid import UUID, SafeUUID

from .interpret import STRING_MAX, VARINT_MAX, uvarint


class Malformed(ValueError):
    """Generated decoders raise this; the interpreter then finds out what is wrong, and where."""


class Unsayable(ValueError):
    """Generated encoders raise this; the interpreter then finds out what is wrong, and where."""


SMALL = tuple(uvarint(value) for value in range(128))
"""The varints of one byte."""

TRUTH = {False: 0, True: 1}
"""The byte of a bool. Other values fail, where the "?" of `struct` would write the truth of anything."""

REMEMBERED = 4096
"""How many packers and unpackers of a kind, and how many UUIDs, are kept for the next time."""


def long_length(buf: bytes, p: int, n: int) -> tuple[int, int]:
    """Finish the varint whose first byte is `n` and whose second is at `p`; null is malformed here.

    Return its value and the offset behind it.
    """
    if n == 0:
        raise Malformed
    value = n & 0x7F
    for shift in (7, 14, 21, 28):
        byte = buf[p]
        p += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            # An overlong zero is null as well, so it goes to the interpreter.
            if not 0 < value <= VARINT_MAX:
                raise Malformed
            return value, p
    raise Malformed


def long_string(buf: bytes, p: int, n: int) -> tuple[int, int]:
    """`long_length`, of a string."""
    n, p = long_length(buf, p, n)
    if n > STRING_MAX + 1:
        raise Malformed
    return n, p


def string_uvarint(n: int) -> bytes:
    """The varint in front of a string, `n` being one more than its bytes."""
    if n > STRING_MAX + 1:
        raise Unsayable
    return uvarint(n)


def as_content(value: Any) -> bytes:
    """`value` as bytes; TypeError unless it is bytes-like: an int or a list would pass for it too."""
    if not isinstance(value, bytes | bytearray | memoryview):
        raise TypeError
    return bytes(cast("bytes | bytearray", value))


def as_array(value: Any) -> Sequence[Any]:
    """`value`, if it is a list or a tuple; else TypeError: a str would pass for a list of strings."""
    if not isinstance(value, list | tuple):
        raise TypeError
    return cast("list[Any]", value)


class Unpackers(dict[int, Callable[[bytes, int], tuple[Any, ...]]]):
    """n -> a function that reads n values of one `struct` code."""

    def __init__(self, code: str) -> None:
        self.code = code

    def __missing__(self, n: int) -> Callable[[bytes, int], tuple[Any, ...]]:
        unpack = struct.Struct(">" + _repeat(self.code, n)).unpack_from
        if n < REMEMBERED:
            self[n] = unpack
        return unpack


class Packers(dict[int | tuple[int, ...], Callable[..., bytes]]):
    """Lengths of the lists in a run of fields -> a function that writes the run.

    Beside those of `struct`, the codes are "*i" for a list of "i", and "v" for the count before one: a
    varint, which is given as bytes.
    """

    def __init__(self, codes: tuple[str, ...]) -> None:
        self.codes = codes

    def __missing__(self, key: int | tuple[int, ...]) -> Callable[..., bytes]:
        lengths = key if isinstance(key, tuple) else (key,)
        left = [*reversed(lengths)]
        code = ">"
        for part in self.codes:
            if part == "v":
                code += f"{len(uvarint(left[-1] + 1))}s"
            else:
                code += f"{left.pop()}{part[1:]}" if part[0] == "*" else part
        pack = struct.Struct(code).pack
        if sum(lengths) < REMEMBERED:
            if len(self) >= REMEMBERED:
                self.clear()
            self[key] = pack
        return pack


def _repeat(code: str, n: int) -> str:
    return code * n if len(code) > 1 else f"{n}{code}"


class Uuids(dict[bytes, UUID]):
    """16 bytes -> their UUID. Topic and directory ids come back in every message, and `UUID()` is slow."""

    def __missing__(self, content: bytes) -> UUID:
        value = object.__new__(UUID)
        _set_int(value, int.from_bytes(content, "big"))
        _set_safe(value, SafeUUID.unknown)
        if len(self) >= REMEMBERED:
            self.clear()
        self[content] = value
        return value


# UUIDs refuse assignment, but their slots don't; __init__ would take three times as long.
_set_int: Callable[[UUID, int], None] = vars(UUID)["int"].__set__
_set_safe: Callable[[UUID, SafeUUID], None] = vars(UUID)["is_safe"].__set__
