"""gzip, by isal where it is installed (2.2 to 2.4 times as fast), else by zlib."""

from __future__ import annotations

import zlib
from functools import cache
from importlib import import_module
from typing import Any

from . import CodecError, Full

_STEP = 1 << 20
_AHEAD = 1 << 10  # of a member behind the first
_LEAST = 18  # bytes of a member, its header and its end; what is shorter is none


def compress(data: bytes | bytearray | memoryview, level: int | None) -> bytes:
    packer = zlib.compressobj(-1 if level is None else level, zlib.DEFLATED, 31)
    return packer.compress(data) + packer.flush()


def decompress(data: bytes | bytearray | memoryview, limit: int) -> bytes:
    """All members of a gzip file; what follows the last one, and a header that is none, is ignored, as in
    Java's GZIPInputStream.

    An unpacker copies what it was given and didn't use: at each step, and what is behind its member. So it
    gets pieces, and only the first, which mostly is the only one, a large one at once: a megabyte has room
    for 50 thousand empty members.
    """
    parts: list[bytes] = []
    left = limit
    view = memoryview(data)
    package = _inflating()
    unpacker = package.decompressobj(31)
    rest: bytes | memoryview = view[:_STEP]
    given = len(rest)
    ahead = _STEP
    while True:
        try:
            part: bytes = unpacker.decompress(rest, _STEP)
        except package.error as error:
            raise CodecError(str(error)) from None
        if part:
            parts.append(part)
            left -= len(part)
            if left < 0:
                raise Full(parts[0])
        if unpacker.eof:
            given -= len(unpacker.unused_data)
            if len(view) - given < _LEAST or bytes(view[given : given + 3]) != b"\x1f\x8b\x08":
                return parts[0] if len(parts) == 1 else b"".join(parts)
            unpacker = package.decompressobj(31)
            ahead, rest = _AHEAD, b""
        else:
            rest = unpacker.unconsumed_tail
        if not rest:
            rest = view[given : given + ahead]
            given += len(rest)
            ahead = min(4 * ahead, _STEP)
            if not part and not rest:
                raise CodecError("the gzip data end too early")


def decompress_into(data: memoryview, out: memoryview) -> int:
    try:
        plain = decompress(data, len(out))
    except Full as full:
        first = full.args[0][: len(out)]
        out[: len(first)] = first  # to be looked at
        raise
    out[: len(plain)] = plain
    return len(plain)


@cache
def _inflating() -> Any:
    """The faster of the packages that have zlib's interface."""
    try:
        return import_module("isal.isal_zlib")
    except ImportError:
        return zlib
