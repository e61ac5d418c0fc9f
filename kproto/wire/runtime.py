"""Functions that generated codecs call for rare cases and for checks; see `compiler.py`."""

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
    """Raised by generated decoders on malformed input. The interpreter then reports the details."""


class Unencodable(ValueError):
    """Raised by generated encoders on values that cannot be encoded.

    The interpreter (`interpreter.py`) then reports the details.
    """


# The unsigned varints from 0 to 127, each encoded in one byte.
SHORT_VARINTS = tuple(uvarint(value) for value in range(128))

# The encoded byte of each bool. A value that equals neither False nor True raises KeyError. The code "?" of
# `struct` would encode the truth value of any object.
BOOL_BYTE = {False: 0, True: 1}

# The maximum number of entries of each cache in this module: the UUIDs, each `Packers` and each `Unpackers`.
CACHE_LIMIT = 4096


def long_length(buf: bytes, p: int, n: int) -> tuple[int, int]:
    """Read the rest of a varint; return its value and the position after it.

    `n` is the first byte of the varint, and `p` the position of the second byte.

    Raises Malformed if the value is 0, which means null, or if the varint is too long.
    """
    if n == 0:
        raise Malformed
    value = n & 0x7F
    for shift in (7, 14, 21, 28):
        byte = buf[p]
        p += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            # A varint of several bytes can also have the value 0, which means null. The interpreter handles
            # this rare case.
            if not 0 < value <= VARINT_MAX:
                raise Malformed
            return value, p
    raise Malformed


def long_string(buf: bytes, p: int, n: int) -> tuple[int, int]:
    """Read the rest of a string's length, as `long_length` does. Raises Malformed if the length exceeds
    `STRING_MAX`.
    """
    n, p = long_length(buf, p, n)
    if n > STRING_MAX + 1:
        raise Malformed
    return n, p


def string_uvarint(n: int) -> bytes:
    """Encode a string's length as a varint. `n` is the number of bytes plus one."""
    if n > STRING_MAX + 1:
        raise Unencodable
    return uvarint(n)


class TagSectionReader:
    """Reads the tag section of a struct in one version. The caller skips empty sections."""

    def __init__(self, cls: type[Struct], version: int, make: Callable[[Field], FieldReader]) -> None:
        """Create the reader.

        `make` compiles the reader of a tagged field when the field is first received.
        """
        self.fields = {f.tag: f for f in cls.__fields__ if f.tagged}
        self.version = version
        self.make = make
        self.readers: dict[int, FieldReader] = {}

    def read(self, target: Struct, buf: bytes, p: int) -> int:
        """Read the tag section at `p` into `target` and return the offset of the section's end.

        Before the call, the tagged fields of `target` must have their default values.

        Raises Malformed for a field that is not tagged in this version, or has a wrong size.
        """
        count, p = _read_uvarint(buf, p)
        for _ in repeat(None, count):
            tag, p = _read_uvarint(buf, p)
            size, p = _read_uvarint(buf, p)
            end = p + size
            field = self.fields.get(tag)
            if field is None:
                target.__unknown_tags__[tag] = bytes(buf[p:end])
                p = end
                continue
            if self.version not in field.tagged:
                raise Malformed
            read = self.readers.get(tag) or self.readers.setdefault(tag, self.make(field))
            value, p = read(buf, p)
            if p != end:
                raise Malformed
            setattr(target, field.slot, value)
        return p


def _read_uvarint(buf: bytes, p: int) -> tuple[int, int]:
    """Read the varint at `p`; return its value and the position after it."""
    byte = buf[p]
    return (byte, p + 1) if byte < 128 else long_length(buf, p + 1, byte)


def tag_section(pieces: dict[int, bytes], known: frozenset[int], unknown: dict[Any, Any] | None) -> bytes:
    """Encode a tag section: the count, then all tagged fields in ascending order of their tags.

    `pieces` maps each known tag to its encoded field. `unknown` maps each other tag to its encoded field,
    which is added to `pieces`. Raises Unencodable if `unknown` contains a known or an invalid tag.
    """
    for tag, content in (unknown or {}).items():
        if tag in known or not (isinstance(tag, int) and 0 <= tag <= VARINT_MAX):
            raise Unencodable
        pieces[tag] = check_bytes(content)
    parts = [uvarint(len(pieces))]
    for tag in sorted(pieces):
        parts += (uvarint(tag), uvarint(len(pieces[tag])), pieces[tag])
    return b"".join(parts)


def lazy_writer(make: Callable[[], Callable[[Any], bytes]]) -> Callable[[Any], bytes]:
    """Return a writer that, at its first call, compiles the actual writer with `make`."""
    writers: list[Callable[[Any], bytes]] = []

    def call(value: Any) -> bytes:
        if not writers:
            writers.append(make())
        return writers[0](value)

    return call


def check_bytes(value: Any) -> bytes:
    """Convert `value` to bytes. A contiguous view of bytes is returned unchanged.

    A view is not copied here, because joining the pieces of the message copies it anyway.

    Raises TypeError for a value that is not bytes-like, such as an int.
    """
    if not isinstance(value, bytes | bytearray | memoryview):
        raise TypeError
    if isinstance(value, memoryview) and value.format == "B" and value.ndim == 1 and value.c_contiguous:
        return cast("bytes", value)
    return bytes(cast("bytes | bytearray", value))


def check_sequence(value: Any) -> Sequence[Any]:
    """Return `value` if it is a list or a tuple. Raises TypeError for other types, such as a str."""
    if not isinstance(value, list | tuple):
        raise TypeError
    return cast("list[Any]", value)


class Unpackers(dict[int, Callable[[bytes, int], tuple[Any, ...]]]):
    """Maps a number n to a function that reads n values of one `struct` code."""

    def __init__(self, code: str) -> None:
        self.code = code

    def __missing__(self, n: int) -> Callable[[bytes, int], tuple[Any, ...]]:
        code = _repeat_code(self.code, n)
        unpack = struct.Struct(">" + code).unpack_from
        # Long formats are not cached. The code of a UUID cannot be repeated by a count, so the format for
        # many UUIDs would take more memory than their message.
        if n < CACHE_LIMIT and len(code) < 100:
            self[n] = unpack
        return unpack


class Packers(dict[int | tuple[int, ...], Callable[..., bytes]]):
    """Maps the lengths of the lists in a sequence of fields to a function that writes the sequence.

    The codes are the format characters of `struct`, and two more: "*i" stands for a list of "i", and "v" for
    the varint count before a list. The caller passes this count to the function as encoded bytes.
    """

    def __init__(self, codes: tuple[str, ...]) -> None:
        self.codes = codes

    def __missing__(self, key: int | tuple[int, ...]) -> Callable[..., bytes]:
        lengths = key if isinstance(key, tuple) else (key,)
        remaining = [*reversed(lengths)]  # In reverse order: the last item is the length of the next list.
        layout = ">"
        for code in self.codes:
            if code == "v":
                layout += f"{len(uvarint(remaining[-1] + 1))}s"
            else:
                layout += f"{remaining.pop()}{code[1:]}" if code[0] == "*" else code
        pack = struct.Struct(layout).pack
        if sum(lengths) < CACHE_LIMIT:
            if len(self) >= CACHE_LIMIT:
                self.clear()
            self[key] = pack
        return pack


def _repeat_code(code: str, n: int) -> str:
    """Return the `struct` format of n values; for n = 2: "2i" for "i", "16s16s" for "16s"."""
    return code * n if len(code) > 1 else f"{n}{code}"


class Uuids(dict[bytes, UUID]):
    """Maps 16 bytes to their UUID. The same topic ids occur in most messages, and `UUID()` is slow."""

    def __missing__(self, content: bytes) -> UUID:
        value = uuid_of(int.from_bytes(content, "big"))
        if len(self) >= CACHE_LIMIT:
            self.clear()
        self[content] = value
        return value


# Setting the slots of a UUID bypasses its immutability. Calling `UUID()` would take three times as long.
_set_int: Callable[[UUID, int], None] = vars(UUID)["int"].__set__
_set_safe: Callable[[UUID, SafeUUID], None] = vars(UUID)["is_safe"].__set__
_UNKNOWN = SafeUUID.unknown  # Enum attribute access is slow before Python 3.12.


def uuid_of(number: int) -> UUID:
    """Return `UUID(int=number)` without checking that the number has at most 128 bits."""
    value = object.__new__(UUID)
    _set_int(value, number)
    _set_safe(value, _UNKNOWN)
    return value
