"""The codec lz4, which writes as Java does: a frame of independent blocks of 64 KiB.

See Kafka's `Lz4BlockInputStream`. For magic 0, Kafka's header checksum also covers lz4's magic number
(KAFKA-3160).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

from . import CodecError, Full, cramjam, into

_MAX_RATIO = 255  # The largest ratio of output to input: each byte of a length adds 255 bytes at most.
_MAGIC = b"\x04\x22\x4d\x18"
# The start of a frame: version 1, independent blocks of 64 KiB, header checksum.
_HEADER = _MAGIC + b"\x60\x40\x82"
_BLOCK_SIZE = 64 << 10
_END_MARK = b"\x00\x00\x00\x00"
# Maps the block size code of a frame header to the maximum size in bytes of a decompressed block.
_MAX_BLOCK_SIZES = {4: 64 << 10, 5: 256 << 10, 6: 1 << 20, 7: 4 << 20}

_uint32 = struct.Struct("<I").unpack_from


def compress(data: bytes | bytearray | memoryview, level: int | None) -> bytes:
    pack = cramjam("lz4").compress_block
    options: dict[str, Any] = {"store_size": False}
    if level is not None and level > 1:
        options |= {"mode": "high_compression", "compression": level}
    parts: list[bytes] = [_HEADER]
    view = memoryview(data)
    for start in range(0, len(view), _BLOCK_SIZE):
        plain = view[start : start + _BLOCK_SIZE]
        block = bytes(pack(plain, **options))
        if len(block) < len(plain):
            parts += (len(block).to_bytes(4, "little"), block)
        else:
            parts += ((len(plain) | 1 << 31).to_bytes(4, "little"), bytes(plain))
    parts.append(_END_MARK)
    return b"".join(parts)


def header_checksum(descriptor: bytes) -> int:
    """Return lz4's header checksum: the second byte of XXH32. The input must have fewer than 16 bytes."""
    mask = 0xFFFFFFFF
    at, value = 0, 374761393 + len(descriptor)
    while at + 4 <= len(descriptor):
        value = value + _uint32(descriptor, at)[0] * 3266489917 & mask
        value = (value << 17 & mask | value >> 15) * 668265263 & mask
        at += 4
    for byte in descriptor[at:]:
        value = value + byte * 374761393 & mask
        value = (value << 11 & mask | value >> 21) * 2654435761 & mask
    value = (value ^ value >> 15) * 2246822519 & mask
    value = (value ^ value >> 13) * 3266489917 & mask
    return (value ^ value >> 16) >> 8 & 0xFF


def with_old_header(frame: bytes) -> bytes:
    """Replace the header checksum with the checksum that Kafka writes for record format 0.

    Kafka's checksum also covers lz4's magic number, unlike the standard checksum (KAFKA-3160).
    """
    at = 14 if frame[4] & 0x08 else 6
    return frame[:at] + bytes((header_checksum(frame[:at]),)) + frame[at + 1 :]


@lru_cache(64)
def _read_header(head: bytes, is_magic_0: bool) -> tuple[int, int, int, bool]:
    """Parse the frame header; return the properties of the frame's blocks.

    Returns the offset of the first block, the maximum size of a block, the number of checksum bytes after
    each block, and whether blocks depend on earlier blocks. The header checksum of magic 0 is not checked.
    """
    if len(head) < 7 or not head.startswith(_MAGIC):
        raise CodecError("not an lz4 frame")
    flags, max_block_size = head[4], _MAX_BLOCK_SIZES.get(head[5] >> 4 & 7)
    at = 14 if flags & 0x08 else 6
    if flags >> 6 != 1 or max_block_size is None or flags & 0x01 or at >= len(head):
        raise CodecError("the lz4 frame is of a kind that Kafka doesn't write")
    if not is_magic_0 and head[at] != header_checksum(head[4:at]):
        raise CodecError("wrong checksum of the lz4 header")
    return at + 1, max_block_size, 4 if flags & 0x10 else 0, not flags & 0x20


def decompress_into(data: memoryview, out: memoryview, old: bool = False) -> int:
    """Decompress one frame into `out` and return the number of decompressed bytes.

    A frame of independent blocks, or of one block, is decompressed block by block. This is up to twice as
    fast as cramjam's frame reader, which decompresses all other frames.

    `old` is true for data of magic 0. Checksums of blocks and content are not checked, because the batch's
    CRC covers the same bytes.
    """
    at, max_block_size, checksum_size, linked = _read_frame(data, old)
    module = cramjam("lz4")
    if not linked:
        return _decompress_blocks(data, at, out, max_block_size, checksum_size, module.decompress_block_into)
    if old:  # Replace Kafka's header checksum of magic 0 with the standard one, which cramjam requires.
        head = data[: at - 1].tobytes()
        data = memoryview(head + bytes((header_checksum(head[4:]),)) + bytes(data[at:]))
    return into(module.decompress_into, data, out)


def blocks(data: memoryview, old: bool = False) -> Iterator[bytes] | None:
    """Decompress one frame block by block. Return None if its blocks depend on each other.

    `old` is true for data of magic 0.
    """
    at, max_block_size, checksum_size, linked = _read_frame(data, old)
    return None if linked else _decompressed_blocks(data, at, max_block_size, checksum_size)


def is_linked(data: memoryview, old: bool = False) -> bool:
    """Return whether the frame has several blocks that depend on each other.

    `old` is true for data of magic 0.
    """
    return _read_frame(data, old)[3]


def _read_frame(data: memoryview, is_magic_0: bool) -> tuple[int, int, int, bool]:
    """Return `_read_header`'s values, but if the frame has only one block, `linked` is False."""
    head = bytes(data[:15] if len(data) > 5 and data[4] & 0x08 else data[:7])
    at, max_block_size, checksum_size, linked = _read_header(head, is_magic_0)
    return at, max_block_size, checksum_size, linked and not _is_one_block(data, at, checksum_size)


def _decompressed_blocks(
    data: memoryview, at: int, max_block_size: int, checksum_size: int
) -> Iterator[bytes]:
    unpack = cramjam("lz4").decompress_block_into
    out = memoryview(bytearray(max_block_size))
    for block, is_plain in _raw_blocks(data, at, max_block_size, checksum_size):
        if is_plain:
            yield bytes(block)
            continue
        target = out[: min(max_block_size, _MAX_RATIO * len(block) + 16)]
        try:
            # Without the last argument, cramjam would read the decompressed size from the start of `block`.
            written: int = unpack(block, target, len(target))
        except Exception as error:  # cramjam.DecompressionError
            raise CodecError(str(error)) from None
        yield bytes(target[:written])


def _raw_blocks(
    data: memoryview, at: int, max_block_size: int, checksum_size: int
) -> Iterator[tuple[memoryview, bool]]:
    """Yield each block of a frame, and whether the block is stored without compression."""
    end = len(data)
    while at + 4 <= end:
        # The top bit of a block's header is set if the block is stored without compression.
        block_header: int = _uint32(data, at)[0]
        at += 4
        is_plain, size = block_header >> 31 == 1, block_header & 0x7FFFFFFF
        if size == 0:  # A size of 0 ends the frame even if the top bit is set, as in Java.
            return
        if size > end - at or size > max_block_size:
            raise CodecError("an lz4 block is larger than allowed, or ends too early")
        yield data[at : at + size], is_plain
        at += size + checksum_size
    raise CodecError("the lz4 frame ends too early")


def _is_one_block(data: memoryview, at: int, checksum_size: int) -> bool:
    """Return whether the frame ends after the block at `at`. Frames of small batches have only one block."""
    if at + 8 > len(data):
        return False
    stop: int = at + 4 + (_uint32(data, at)[0] & 0x7FFFFFFF) + checksum_size
    return data[stop : stop + 4].tobytes() == _END_MARK


def _decompress_blocks(
    data: memoryview,
    at: int,
    out: memoryview,
    max_block_size: int,
    checksum_size: int,
    unpack: Callable[..., int],
) -> int:
    """Decompress the blocks from `at` on into `out`; return the number of bytes written.

    Raises Full if `out` is too small.
    """
    capacity, written = len(out), 0
    for block, is_plain in _raw_blocks(data, at, max_block_size, checksum_size):
        size = len(block)
        if is_plain:
            if size > capacity - written:
                raise Full
            out[written : written + size] = block
            written += size
            continue
        max_output = min(max_block_size, _MAX_RATIO * size + 16)
        target = out[written : written + max_output]
        try:  # Without `size`, cramjam would read the first four bytes of the block as its size.
            written += unpack(block, target, len(target))
        # cramjam raises DecompressionError for malformed input and for a buffer that is too small.
        except Exception as error:
            if capacity - written < max_output:
                raise Full from None
            raise CodecError(str(error)) from None
    return written
