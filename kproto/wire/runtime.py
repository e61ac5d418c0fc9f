"""What the generated codecs call for the rarer cases. `compiler.py` says how it all fits together."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from itertools import repeat
from typing import Any, cast
from uuid import UUID, SafeUUID

from .interpreter import STRING_MAX, VARINT_MAX, uvarint
from .message import Field, Struct

FieldReader = Callable[[bytes, int], tuple[Any, int]]


class Malformed(ValueError):
    """Generated decoders raise this; the interpreter then finds out what is wrong, and where."""


class Unencodable(ValueError):
    """Generated encoders raise this; the interpreter then finds out what is wrong, and where."""


# The varints of one byte.
SHORT_VARINTS = tuple(uvarint(value) for value in range(128))

# The byte of a bool. Other values fail, where the "?" of `struct` would write the truth of anything.
BOOL_BYTE = {False: 0, True: 1}

# How many packers and unpackers of a kind, and how many UUIDs, are kept for the next time.
CACHE_LIMIT = 4096


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
        raise Unencodable
    return uvarint(n)


class TagSectionReader:
    """Reads the tag sections of a struct that aren't empty."""

    def __init__(self, cls: type[Struct], version: int, make: Callable[[Field], FieldReader]) -> None:
        """`make` compiles what reads a tagged field; it is called when such a field first comes."""
        self.fields = {f.tag: f for f in cls.__fields__ if f.tagged}
        self.version = version
        self.make = make
        self.readers: dict[int, FieldReader] = {}

    def read(self, target: Struct, buf: bytes, p: int) -> int:
        """Read the section at `p` into `target`, which has its defaults; return the offset behind it."""
        n, p = _varint(buf, p)
        for _ in repeat(None, n):
            tag, p = _varint(buf, p)
            size, p = _varint(buf, p)
            q = p + size
            f = self.fields.get(tag)
            if f is None:
                target.__unknown_tags__[tag] = bytes(buf[p:q])
                p = q
                continue
            if self.version not in f.tagged:
                raise Malformed
            read = self.readers.get(tag) or self.readers.setdefault(tag, self.make(f))
            value, p = read(buf, p)
            if p != q:
                raise Malformed
            setattr(target, f.slot, value)
        return p


def _varint(buf: bytes, p: int) -> tuple[int, int]:
    n = buf[p]
    return (n, p + 1) if n < 128 else long_length(buf, p + 1, n)


def tag_section(pieces: dict[int, bytes], known: frozenset[int], unknown: dict[Any, Any] | None) -> bytes:
    """A tag section with its count: what is in the fields, and what nobody knows."""
    for tag, content in (unknown or {}).items():
        if tag in known or not (isinstance(tag, int) and 0 <= tag <= VARINT_MAX):
            raise Unencodable
        pieces[tag] = check_bytes(content)
    parts = [uvarint(len(pieces))]
    for tag in sorted(pieces):
        parts += (uvarint(tag), uvarint(len(pieces[tag])), pieces[tag])
    return b"".join(parts)


def lazy_writer(make: Callable[[], Callable[[Any], bytes]]) -> Callable[[Any], bytes]:
    """A function that `make` makes at the first call."""
    made: list[Callable[[Any], bytes]] = []

    def call(value: Any) -> bytes:
        if not made:
            made.append(make())
        return made[0](value)

    return call


def check_bytes(value: Any) -> bytes:
    """`value` as bytes; TypeError unless it is bytes-like: an int or a list would pass for it too."""
    if not isinstance(value, bytes | bytearray | memoryview):
        raise TypeError
    return bytes(cast("bytes | bytearray", value))


def check_sequence(value: Any) -> Sequence[Any]:
    """`value`, if it is a list or a tuple; else TypeError: a str would pass for a list of strings."""
    if not isinstance(value, list | tuple):
        raise TypeError
    return cast("list[Any]", value)


class Unpackers(dict[int, Callable[[bytes, int], tuple[Any, ...]]]):
    """n -> a function that reads n values of one `struct` code."""

    def __init__(self, code: str) -> None:
        self.code = code

    def __missing__(self, n: int) -> Callable[[bytes, int], tuple[Any, ...]]:
        code = _repeat(self.code, n)
        unpack = struct.Struct(">" + code).unpack_from
        if (
            n < CACHE_LIMIT and len(code) < 100
        ):  # UUIDs are no repeated code: many of them take more memory than their message
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
        if sum(lengths) < CACHE_LIMIT:
            if len(self) >= CACHE_LIMIT:
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
        if len(self) >= CACHE_LIMIT:
            self.clear()
        self[content] = value
        return value


# UUIDs refuse assignment, but their slots don't; __init__ would take three times as long.
_set_int: Callable[[UUID, int], None] = vars(UUID)["int"].__set__
_set_safe: Callable[[UUID, SafeUUID], None] = vars(UUID)["is_safe"].__set__
