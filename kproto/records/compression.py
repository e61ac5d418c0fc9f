"""The five codecs of record batches, bounded in what they may allocate.

Rules of this file:

* Codecs have Kafka's numbers: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd. gzip is zlib; the others need the
  extra ``compression`` (cramjam).
* Two packages make reading faster where they are installed. isal reads gzip 2.2 to 2.4 times as fast as zlib.
  zstandard keeps its context, which is up to 1.6 times as fast, for zstd that says its size.
* Nothing is allocated that the input did not pay for. Output grows step by step, and sizes that the input
  only *claims* are not believed. Anything may grow to its `allowance`: 16 MiB, or 16 times its compressed
  size where that is more. Beyond that it goes on only if what came out so far begins as records do, and up to
  `MOST`: Java's consumer has no bound at all, and log lines that repeat themselves shrink to a thousandth. An
  own limit (``max_decompressed``, in bytes) replaces both. So what is no records is an error after less than
  100 ms and 50 MB (measured: 5 to 80 ms), and 10 MB of zeros are just read.
* Broken or oversized input is `CodecError` here; the readers make a `RecordError` of it, which says where.
* snappy is read in both forms that exist in topics, xerial's framing (Java) and one raw block (librdkafka),
  and is written in xerial's. lz4 is written as Java does it: a frame of independent 64 KiB blocks.

See Kafka's `Compression`, `Lz4BlockInputStream` (its header checksum was wrong before magic 1: KAFKA-3160)
and xerial's `SnappyOutputStream`.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator
from functools import cache, lru_cache, partial
from importlib import import_module
from types import ModuleType
from typing import Any

from ..errors import ConfigError, MissingExtra

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
"""Names of the codecs, as in Kafka's ``compression.type``; the index is the number in batches."""

_LEVELS = (range(0), range(-1, 10), range(-(1 << 31), 1 << 31), range(18), range(-(1 << 17), 23))
"""Those of `CompressionType` in Java, and 0 where the packages have it. snappy has none, and takes any."""

ALWAYS_ALLOWED = 16 << 20
"""Bytes that any batch may decompress to: sixteen times Kafka's default max.message.bytes."""

ALLOWED_RATIO = 16
"""Beyond `ALWAYS_ALLOWED`, a batch may grow to this multiple of its compressed size."""

MOST = 1 << 30
"""Bytes that a batch may decompress to as long as it looks like records: a thousand times the default
max.message.bytes, which is what gzip and zstd make of the most boring log."""

LOOK = 64 << 10
"""So many of the first bytes are looked at."""

Begins = Callable[[memoryview], bool]
"""Whether bytes begin as what is expected in them; it gets the first `LOOK` of them at most."""

_FIRST_STEP = 64 << 10  # the first guess at an unknown size: four of Kafka's batch.size
_GZIP_STEP = 1 << 20
_GZIP_AHEAD = 1 << 10  # of a member behind the first
_GZIP_LEAST = 18  # bytes of one, its header and its end; what is shorter is none
_SNAPPY_RATIO = 22  # a copy of 64 bytes takes 3 bytes of input: no honest block grows by more than 21.4
_LZ4_RATIO = 255  # one byte of a length adds 255 bytes of output

_XERIAL = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK = 32 << 10  # SnappyOutputStream's default

_LZ4_MAGIC = b"\x04\x22\x4d\x18"
_LZ4_HEADER = _LZ4_MAGIC + b"\x60\x40\x82"  # version 1, independent blocks of 64 KiB, header checksum
_LZ4_BLOCK = 64 << 10
_LZ4_END = b"\x00\x00\x00\x00"
_LZ4_BLOCK_SIZES = {4: 64 << 10, 5: 256 << 10, 6: 1 << 20, 7: 4 << 20}
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"

_uint32 = struct.Struct("<I").unpack_from
_big_uint32 = struct.Struct(">I").unpack_from


class CodecError(ValueError):
    """Compressed bytes that are broken, or that grow beyond their allowance. Never leaves kproto.records."""


class _Full(Exception):
    """The output buffer was too small; says nothing about the input. The buffer holds the first bytes."""


def codec_number(name: str) -> int:
    """The number of a codec by its name; `ConfigError` for a name that Kafka doesn't have."""
    try:
        return CODECS.index(name)
    except ValueError:
        raise ConfigError("compression", name, f"it must be one of {', '.join(CODECS)}") from None


def allowance(compressed: int, max_decompressed: int | None = None) -> int:
    """The number of bytes that `compressed` bytes may grow to, whatever is in them."""
    if max_decompressed is not None:
        return max_decompressed
    return max(ALWAYS_ALLOWED, ALLOWED_RATIO * compressed)


def compress(codec: int, data: bytes | bytearray | memoryview, level: int | None = None) -> bytes:
    """`data` compressed by the codec with this number; `level` is the codec's own scale.

    Raises `MissingExtra` without the extra ``compression`` (none and gzip work always), and `ConfigError` for
    a level that the codec doesn't have.
    """
    if codec == 0:
        return bytes(data)
    if level is not None and level not in _LEVELS[codec]:
        allowed = f"{CODECS[codec]} has {_LEVELS[codec][0]} to {_LEVELS[codec][-1]}"
        raise ConfigError("level", level, allowed)
    return _COMPRESSORS[codec](data, level)


def decompress(
    codec: int,
    data: bytes | bytearray | memoryview,
    max_decompressed: int | None = None,
    *,
    old_lz4: bool = False,
    begins: Begins | None = None,
) -> bytes:
    """The bytes that `data` was compressed from; raises `CodecError` or `MissingExtra`.

    `old_lz4` accepts the wrong header checksum that Kafka's lz4 had in magic 0. Without `begins` nothing
    grows beyond its `allowance`.
    """
    if codec == 0:
        return bytes(data)
    source = memoryview(data)
    into = partial(_unlz4, old=True) if old_lz4 and codec == 3 else _reader(codec)
    limit = allowance(len(source), max_decompressed)
    most = limit if begins is None or max_decompressed is not None else max(MOST, limit)
    if codec == 1:
        return _gunzip_up_to(data, limit, most, begins)
    size = size_hint(codec, source)
    if codec == 2:  # the only hint that is a promise, and one that is paid for
        limit = _snappy_allowed(source, size, limit, most, begins)
    size = min(size, limit)
    while True:
        out = bytearray(size)
        view = memoryview(out)
        try:
            written = into(source, view)
        except _Full:
            if size >= limit:
                if limit == most or begins is None or not begins(view[:LOOK]):
                    raise _too_large(limit) from None
                limit = most
            size = min(max(size * 4, ALWAYS_ALLOWED), limit)  # what isn't written to takes no memory
        else:
            return bytes(view[:written])


def decompress_into(
    codec: int,
    data: memoryview,
    out: memoryview,
    max_decompressed: int | None = None,
    begins: Begins | None = None,
) -> int | None:
    """Decompress to the start of `out` and give the number of bytes; None when `out` is too small for it.

    For readers that keep one arena for many batches. Arguments and errors as those of `decompress`.
    """
    limit = allowance(len(data), max_decompressed)
    most = limit if begins is None or max_decompressed is not None else max(MOST, limit)
    if codec == 2:
        limit = max(limit, _snappy_allowed(data, size_hint(codec, data), limit, most, begins))
    room = len(out)
    try:
        return _reader(codec)(data, out if room <= limit else out[:limit])
    except _Full:
        if room < limit:
            return None
    if limit == most or begins is None or not begins(out[:LOOK]):
        raise _too_large(limit)
    if room > limit:
        try:
            return _reader(codec)(data, out if room <= most else out[:most])
        except _Full:
            if room >= most:
                raise _too_large(most) from None
    return None


def size_hint(codec: int, data: memoryview) -> int:
    """A first guess at the decompressed size, never far above what the input can pay for."""
    size = len(data)
    if codec == 2:
        return sum(_snappy_size(block) for block in _snappy_blocks(data))
    if codec == 4:
        header = _zstd_header(data)
        if header is not None and header[1] <= max(_FIRST_STEP, 64 * size):
            return header[1]
    if codec == 1 and size > 18:
        claimed = _uint32(data, size - 4)[0]
        if claimed <= 1032 * size:  # deflate's own limit
            return int(claimed)
    return max(_FIRST_STEP, 4 * size)


def _too_large(limit: int) -> CodecError:
    allowed = "max_decompressed (of a consumer: max_decompressed_bytes) allows more"
    return CodecError(f"grows beyond {limit} bytes; {allowed}")


@cache
def _cramjam(codec: str) -> ModuleType:
    try:
        import cramjam  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise MissingExtra(f"compression {codec}", "cramjam", "compression") from None
    module: ModuleType = getattr(cramjam, codec)
    return module


# --- gzip ---------------------------------------------------------------------------------------------------


def _gzip(data: bytes | bytearray | memoryview, level: int | None) -> bytes:
    packer = zlib.compressobj(-1 if level is None else level, zlib.DEFLATED, 31)
    return packer.compress(data) + packer.flush()


def _gunzip(data: bytes | bytearray | memoryview, limit: int) -> bytes:
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
    rest: bytes | memoryview = view[:_GZIP_STEP]
    given = len(rest)
    ahead = _GZIP_STEP
    while True:
        try:
            part: bytes = unpacker.decompress(rest, _GZIP_STEP)
        except package.error as error:
            raise CodecError(str(error)) from None
        if part:
            parts.append(part)
            left -= len(part)
            if left < 0:
                raise _Full(parts[0])
        if unpacker.eof:
            given -= len(unpacker.unused_data)
            if len(view) - given < _GZIP_LEAST or bytes(view[given : given + 3]) != b"\x1f\x8b\x08":
                return parts[0] if len(parts) == 1 else b"".join(parts)
            unpacker = package.decompressobj(31)
            ahead, rest = _GZIP_AHEAD, b""
        else:
            rest = unpacker.unconsumed_tail
        if not rest:
            rest = view[given : given + ahead]
            given += len(rest)
            ahead = min(4 * ahead, _GZIP_STEP)
            if not part and not rest:
                raise CodecError("the gzip data end too early")


def _gunzip_up_to(
    data: bytes | bytearray | memoryview, limit: int, most: int, begins: Begins | None
) -> bytes:
    try:
        return _gunzip(data, limit)
    except _Full as full:
        if limit == most or begins is None or not begins(memoryview(full.args[0])[:LOOK]):
            raise _too_large(limit) from None
    try:
        return _gunzip(data, most)
    except _Full:
        raise _too_large(most) from None


def _gunzip_into(data: memoryview, out: memoryview) -> int:
    try:
        plain = _gunzip(data, len(out))
    except _Full as full:
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


# --- snappy -------------------------------------------------------------------------------------------------


def _snappy(data: bytes | bytearray | memoryview, level: int | None) -> bytes:
    pack = _cramjam("snappy").compress_raw
    parts: list[bytes] = [_XERIAL_HEADER]
    view = memoryview(data)
    for start in range(0, len(view), _XERIAL_BLOCK):
        block = bytes(pack(view[start : start + _XERIAL_BLOCK]))
        parts += (len(block).to_bytes(4, "big"), block)
    return b"".join(parts)


def _snappy_blocks(data: memoryview) -> Iterator[memoryview]:
    """The raw blocks of either form."""
    at, end = 16, len(data)
    if data[:8].tobytes() != _XERIAL:
        yield data
        return
    if end < 16:
        raise CodecError("xerial's header ends too early")
    while at < end:
        stop = at + 4 + _big_uint32(data, at)[0] if at + 4 <= end else end + 1
        if stop > end:
            if data[at : at + 8].tobytes() != _XERIAL:
                raise CodecError("a xerial block ends too early")
            at += 16  # streams may be concatenated
            continue
        yield data[at + 4 : stop]
        at = stop


def _snappy_size(block: memoryview) -> int:
    """The size that a raw block says it has, after checking that its bytes could give that much."""
    try:
        size: int = _cramjam("snappy").decompress_raw_len(block)
    except Exception as error:  # cramjam.DecompressionError
        raise CodecError(str(error)) from None
    if size > _SNAPPY_RATIO * len(block) or not len(block):
        raise CodecError(f"a snappy block of {len(block)} bytes says that it holds {size}")
    return size


def _snappy_allowed(data: memoryview, size: int, limit: int, most: int, begins: Begins | None) -> int:
    """What may be decompressed: the size that is said, which is paid for, if the first bytes are fine."""
    if size <= limit:
        return limit
    first = next(block for block in _snappy_blocks(data) if _snappy_size(block))
    if size > most or begins is None or not begins(memoryview(_snappy_start(first))):
        raise _too_large(limit if size <= most else most)
    return size


def _snappy_start(block: memoryview) -> bytes:
    """The first bytes that a raw block holds: the literal that each begins with; none if it is cut."""
    at = 0
    while block[at] > 127:  # the size, which was read before
        at += 1
    head, at = block[at + 1 : at + 6].tobytes(), at + 2
    if not head:
        return b""
    size, more = head[0] >> 2, 0
    if size >= 60:
        more = size - 59
        size = int.from_bytes(head[1 : 1 + more], "little")
    return block[at + more : at + more + size + 1][:LOOK].tobytes()


def _unsnappy(data: memoryview, out: memoryview) -> int:
    unpack: Callable[..., int] = _cramjam("snappy").decompress_raw_into
    written, room = 0, len(out)
    for block in _snappy_blocks(data):
        stop = written + _snappy_size(block)
        if stop > room:
            raise _Full
        if stop > written:
            try:
                written += unpack(block, out[written:stop])
            except Exception as error:  # cramjam.DecompressionError
                raise CodecError(str(error)) from None
    return written


# --- lz4 ----------------------------------------------------------------------------------------------------


def _lz4(data: bytes | bytearray | memoryview, level: int | None) -> bytes:
    pack = _cramjam("lz4").compress_block
    options: dict[str, Any] = {"store_size": False}
    if level is not None and level > 1:
        options |= {"mode": "high_compression", "compression": level}
    parts: list[bytes] = [_LZ4_HEADER]
    view = memoryview(data)
    for start in range(0, len(view), _LZ4_BLOCK):
        plain = view[start : start + _LZ4_BLOCK]
        block = bytes(pack(plain, **options))
        if len(block) < len(plain):
            parts += (len(block).to_bytes(4, "little"), block)
        else:
            parts += ((len(plain) | 1 << 31).to_bytes(4, "little"), bytes(plain))
    parts.append(_LZ4_END)
    return b"".join(parts)


def _lz4_checksum(descriptor: bytes) -> int:
    """The header checksum of a frame: the second byte of XXH32, for inputs of less than 16 bytes."""
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


def old_lz4_header(frame: bytes) -> bytes:
    """`frame` with the checksum that Kafka wrote before magic 1: over the magic number too (KAFKA-3160)."""
    at = 14 if frame[4] & 0x08 else 6
    return frame[:at] + bytes((_lz4_checksum(frame[:at]),)) + frame[at + 1 :]


@lru_cache(64)
def _lz4_header(head: bytes, old: bool) -> tuple[int, int, int, bool]:
    """What the first bytes of a frame say: where its blocks start, the size of the largest, how many bytes of
    checksum follow each, and whether they are linked."""
    if len(head) < 7 or not head.startswith(_LZ4_MAGIC):
        raise CodecError("no lz4 frame")
    flags, largest = head[4], _LZ4_BLOCK_SIZES.get(head[5] >> 4 & 7)
    at = 14 if flags & 0x08 else 6
    if flags >> 6 != 1 or largest is None or flags & 0x01 or at >= len(head):
        raise CodecError("an lz4 frame of a kind that Kafka doesn't write")
    if not old and head[at] != _lz4_checksum(head[4:at]):
        raise CodecError("wrong checksum of the lz4 header")
    return at + 1, largest, 4 if flags & 0x10 else 0, not flags & 0x20


def _unlz4(data: memoryview, out: memoryview, old: bool = False) -> int:
    """One frame. Blocks that don't need those before them are walked here, as it is up to twice as fast.

    Its checksums of blocks and content are passed over: the batch's CRC says the same of the same bytes.
    """
    head = bytes(data[:15] if len(data) > 5 and data[4] & 0x08 else data[:7])
    at, largest, extra, linked = _lz4_header(head, old)
    module = _cramjam("lz4")
    if not linked or _is_one_block(data, at, extra):
        return _unlz4_blocks(data, at, out, largest, extra, module.decompress_block_into)
    if old:  # a checksum that others read
        data = memoryview(head[: at - 1] + bytes((_lz4_checksum(head[4 : at - 1]),)) + bytes(data[at:]))
    return _into(module.decompress_into, data, out)


def _is_one_block(data: memoryview, at: int, extra: int) -> bool:
    """Whether the frame ends behind the block at `at`, as one of a small batch does."""
    if at + 8 > len(data):
        return False
    stop: int = at + 4 + (_uint32(data, at)[0] & 0x7FFFFFFF) + extra
    return data[stop : stop + 4].tobytes() == _LZ4_END


def _unlz4_blocks(
    data: memoryview, at: int, out: memoryview, largest: int, extra: int, unpack: Callable[..., int]
) -> int:
    end, room, written = len(data), len(out), 0
    while at + 4 <= end:
        size: int = _uint32(data, at)[0]
        at += 4
        if size == 0:
            return written
        plain, size = size >> 31, size & 0x7FFFFFFF
        if size > end - at or size > largest:
            raise CodecError("an lz4 block that is larger than allowed, or ends too early")
        block = data[at : at + size]
        at += size + extra
        if plain:
            if size > room - written:
                raise _Full
            out[written : written + size] = block
            written += size
            continue
        most = min(largest, _LZ4_RATIO * size + 16)
        target = out[written : written + most]
        try:  # without a length, four bytes that could be a size are taken for one
            written += unpack(block, target, len(target))
        except Exception as error:  # cramjam.DecompressionError, which doesn't tell broken from too small
            if room - written < most:
                raise _Full from None
            raise CodecError(str(error)) from None
    raise CodecError("the lz4 frame ends too early")


def _into(unpack: Callable[..., int], data: memoryview, out: memoryview) -> int:
    try:
        return unpack(data, out)
    except Exception as error:  # cramjam.DecompressionError
        if "whole buffer" in str(error):
            raise _Full from None
        raise CodecError(str(error)) from None


# --- zstd ---------------------------------------------------------------------------------------------------


def _zstd(data: bytes | bytearray | memoryview, level: int | None) -> bytes:
    return bytes(_cramjam("zstd").compress(data, 3 if level is None else level))


def _zstd_header(data: memoryview) -> tuple[int, int] | None:
    """Where the blocks of the first frame start, and the size that it claims to have; None without one."""
    if len(data) < 6 or data[:4].tobytes() != _ZSTD_MAGIC:
        return None
    flags = data[4]
    single = flags >> 5 & 1
    width = (single, 2, 4, 8)[flags >> 6]
    at = 6 - single + (0, 1, 2, 4)[flags & 3]
    if width == 0 or at + width > len(data):
        return None
    size = int.from_bytes(data[at : at + width], "little") + (256 if width == 2 else 0)
    return at + width, size


def _is_one_zstd_frame(data: memoryview, at: int) -> bool:
    """Whether the frame whose blocks start at `at` ends where the data do."""
    end, last = len(data), 0
    while not last and at + 3 <= end:
        head = data[at] | data[at + 1] << 8 | data[at + 2] << 16
        last, kind = head & 1, head >> 1 & 3
        at += 3 + (1 if kind == 1 else head >> 3)  # one byte that is repeated, or the block itself
    return bool(last) and at + (data[4] & 4) == end  # a checksum has four bytes


def _unzstd(data: memoryview, out: memoryview) -> int:
    package, found = _zstandard(), _zstd_header(data)
    if package is not None and found is not None:
        at, size = found
        if size <= len(out) and _is_one_zstd_frame(data, at):
            try:
                context = _contexts.pop()
            except IndexError:
                context = package.ZstdDecompressor()
            try:
                with context.stream_reader(data) as reader:
                    if reader.readinto(out[: size + 1]) == size:
                        return size
            except package.ZstdError:
                pass  # the other package says what is wrong
            finally:
                _contexts.append(context)
    return _into(_cramjam("zstd").decompress_into, data, out)


@cache
def _zstandard() -> Any:
    try:
        return import_module("zstandard")
    except ImportError:
        return None


_contexts: list[Any] = []  # those that no thread is using


# --- tables -------------------------------------------------------------------------------------------------

_COMPRESSORS: dict[int, Callable[[bytes | bytearray | memoryview, int | None], bytes]] = {
    1: _gzip,
    2: _snappy,
    3: _lz4,
    4: _zstd,
}


_READERS: dict[int, Callable[[memoryview, memoryview], int]] = {
    1: _gunzip_into,
    2: _unsnappy,
    3: _unlz4,
    4: _unzstd,
}
"""They fill the start of `out` and say how far, or raise `_Full`."""


def _reader(codec: int) -> Callable[[memoryview, memoryview], int]:
    try:
        return _READERS[codec]
    except KeyError:
        raise CodecError(f"codec {codec} doesn't exist") from None
