"""The codec snappy, in the two formats that topics contain.

Java writes xerial's framing, and librdkafka writes one raw block.

`compress` writes xerial's framing; see Java's `SnappyOutputStream`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator

from . import CodecError, Full, cramjam

# The largest ratio of output to input. A copy instruction of 3 bytes writes 64 bytes, so a valid block grows
# by a factor of at most 21.4.
_MAX_RATIO = 22
_XERIAL = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK = 32 << 10  # The size of a block in bytes: the default of SnappyOutputStream.

_uint32 = struct.Struct(">I").unpack_from
_int32 = struct.Struct(">i").unpack_from


def compress(data: bytes | bytearray | memoryview, level: int | None) -> bytes:
    pack = cramjam("snappy").compress_raw
    parts: list[bytes] = [_XERIAL_HEADER]
    view = memoryview(data)
    for start in range(0, len(view), _XERIAL_BLOCK):
        block = bytes(pack(view[start : start + _XERIAL_BLOCK]))
        parts += (len(block).to_bytes(4, "big"), block)
    return b"".join(parts)


def blocks_of(data: memoryview) -> Iterator[memoryview]:
    """Iterate over the raw blocks of `data`. Without xerial's framing `data` is one raw block.

    If fewer than four bytes follow the last block, they are ignored, as in Java's `SnappyInputStream`.
    """
    if data[:8].tobytes() != _XERIAL:
        yield data
        return
    at, end = 0, len(data)
    while end - at >= 4:
        if data[at : at + 8].tobytes() == _XERIAL:  # Streams may be concatenated.
            if end - at < 16:
                raise CodecError("xerial's header ends too early")
            if _int32(data, at + 8)[0] < 1:
                raise CodecError("xerial's header has a version below 1")
            at += 16
            continue
        stop = at + 4 + _uint32(data, at)[0]
        if stop > end:
            raise CodecError("a xerial block ends too early")
        yield data[at + 4 : stop]
        at = stop


def blocks(data: memoryview) -> Iterator[bytes]:
    """Decompress block by block."""
    unpack = cramjam("snappy").decompress_raw
    for block in blocks_of(data):
        if not size_of(block):  # As in `decompress_into`.
            continue
        try:
            yield bytes(unpack(block))
        except Exception as error:  # cramjam.DecompressionError
            raise CodecError(str(error)) from None


def size_of(block: memoryview) -> int:
    """Return the decompressed size that the header of a raw block states.

    Raises `CodecError` if the block has no valid header, or is too small for the stated size.
    """
    try:
        size: int = cramjam("snappy").decompress_raw_len(block)
    except Exception as error:  # cramjam.DecompressionError
        raise CodecError(str(error)) from None
    if size > _MAX_RATIO * len(block) or not len(block):
        raise CodecError(f"a snappy block of {len(block)} bytes is too small for its stated size of {size}")
    return size


def start_of(block: memoryview, most: int) -> bytes:
    """Return up to `most` bytes of the literal with which a raw block begins.

    The result is empty if nothing follows the size. `size_of` must have accepted the block.
    """
    at = 0
    while block[at] > 127:  # Skip the size at the start of the block.
        at += 1
    # The literal's tag has the length minus 1, or says that the length minus 1 is in the next bytes.
    tag, at = block[at + 1 : at + 6].tobytes(), at + 2
    if not tag:
        return b""
    length_minus_1, length_bytes = tag[0] >> 2, 0
    if length_minus_1 >= 60:
        length_bytes = length_minus_1 - 59
        length_minus_1 = int.from_bytes(tag[1 : 1 + length_bytes], "little")
    start = at + length_bytes
    return block[start : start + length_minus_1 + 1][:most].tobytes()


def decompress_into(data: memoryview, out: memoryview) -> int:
    unpack: Callable[..., int] = cramjam("snappy").decompress_raw_into
    written, capacity = 0, len(out)
    for block in blocks_of(data):
        stop = written + size_of(block)
        if stop > capacity:
            raise Full
        if stop > written:
            try:
                written += unpack(block, out[written:stop])
            except Exception as error:  # cramjam.DecompressionError
                raise CodecError(str(error)) from None
    return written
