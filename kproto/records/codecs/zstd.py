"""The codec zstd. If zstandard is installed, it decompresses frames whose header has the decompressed size.
cramjam decompresses other frames.

Decompression contexts of zstandard are reused, which is up to 1.6 times as fast as a new context for each
batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib import import_module
from typing import Any

from . import CodecError, cramjam, into

_BLOCK = 128 << 10  # The size in bytes of the largest block of a zstd frame.
_MAGIC = b"\x28\xb5\x2f\xfd"


def compress(data: bytes | bytearray | memoryview, level: int | None) -> bytes:
    return bytes(cramjam("zstd").compress(data, 3 if level is None else level))


def header_of(data: memoryview) -> tuple[int, int] | None:
    """Return the position of the first frame's blocks and its decompressed size. Returns None if the header
    has no size.
    """
    if len(data) < 6 or data[:4].tobytes() != _MAGIC:
        return None
    flags = data[4]
    single = flags >> 5 & 1
    width = (single, 2, 4, 8)[flags >> 6]
    at = 6 - single + (0, 1, 2, 4)[flags & 3]
    if width == 0 or at + width > len(data):
        return None
    size = int.from_bytes(data[at : at + width], "little") + (256 if width == 2 else 0)
    return at + width, size


def _is_one_frame(data: memoryview, at: int) -> bool:
    """Return whether the frame whose blocks start at `at` ends at the end of the data."""
    end, last = len(data), 0
    while not last and at + 3 <= end:
        head = data[at] | data[at + 1] << 8 | data[at + 2] << 16
        last, kind = head & 1, head >> 1 & 3
        # A block of kind 1 is one repeated byte; other blocks have as many bytes as their header says.
        at += 3 + (1 if kind == 1 else head >> 3)
    return bool(last) and at + (data[4] & 4) == end  # A checksum has four bytes.


def decompress_into(data: memoryview, out: memoryview) -> int:
    package, header = _zstandard(), header_of(data)
    if package is not None and header is not None:
        at, size = header
        if size <= len(out) and _is_one_frame(data, at):
            try:
                context = _contexts.pop()
            except IndexError:
                context = package.ZstdDecompressor()
            try:
                with context.stream_reader(data) as reader:
                    if reader.readinto(out[: size + 1]) == size:
                        return size
            except package.ZstdError:
                # cramjam reads the frame again and raises an error that says why the frame is malformed.
                pass
            finally:
                _contexts.append(context)
    return into(cramjam("zstd").decompress_into, data, out)


def blocks(data: bytes | bytearray | memoryview) -> Iterator[bytes] | None:
    """Decompress all frames in blocks of at most 128 KiB. Return None if zstandard is not installed."""
    package = _zstandard()
    return None if package is None else _blocks(package, data)


def _blocks(package: Any, data: bytes | bytearray | memoryview) -> Iterator[bytes]:
    try:
        with package.ZstdDecompressor().stream_reader(data, read_across_frames=True) as reader:
            while block := reader.read(_BLOCK):
                yield block
    except package.ZstdError as error:
        raise CodecError(str(error)) from None


@cache
def _zstandard() -> Any:
    try:
        return import_module("zstandard")
    except ImportError:
        return None


_contexts: list[Any] = []  # Decompression contexts that no thread uses now.
