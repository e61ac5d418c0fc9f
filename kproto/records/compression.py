"""The compression codecs of record batches, with limits on what they may allocate.

* Codecs have Kafka's numbers: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd. Each of 1 to 4 has a module in
  `codecs`.

* snappy, lz4 and zstd need the extra ``compression`` (cramjam). The packages isal and zstandard are optional:
  they make decompression of gzip and zstd faster.

* The output buffer grows step by step. A decompressed size that the input states is used only if its ratio to
  the compressed size is plausible for the codec.

* Any output may grow to its `allowance`: 16 MiB, or 16 times the compressed size if that is more.

* An output may grow to `MOST` if it starts like records: each length or size at its start must be valid.
  `MOST` is high, because Java's consumer has no limit, and repetitive logs compress to a thousandth.

* `max_decompressed` (bytes) replaces the allowance and `MOST`.

* Java's consumer rejects lz4 frames whose blocks depend on each other. kproto accepts them, but then the
  output may grow only to the allowance, even if it starts like records.

* `decompress`, `decompress_blocks` and `decompress_into` accept the same input and produce the same bytes: in
  one piece, in blocks, or in the caller's buffer.

* With the default limits, compressed data that does not contain records is rejected within 100 ms, using at
  most 50 MB of memory. A record of 10 MB of zeros is accepted.

* `CodecError` is raised for malformed input, and for an output that exceeds its limit. The readers of batches
  convert it to a `RecordError` with the batch's position.

See Kafka's `Compression`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial

from ..errors import ConfigError, MissingExtra
from .codecs import CodecError, Full, gzip, lz4, snappy, zstd

# The codecs' names in Kafka's ``compression.type``. The index of a name is the codec's number in batches.
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")

# The levels that each codec allows: those of Java's `CompressionType`, and level 0 if the codec's package
# supports it. snappy ignores its level.
_LEVELS = (range(0), range(-1, 10), range(-(1 << 31), 1 << 31), range(18), range(-(1 << 17), 23))

# The size in bytes to which any batch may decompress: sixteen times Kafka's default of max.message.bytes.
ALWAYS_ALLOWED = 16 << 20

# A batch may decompress to the larger of two sizes: `ALWAYS_ALLOWED`, and this multiple of its compressed
# size.
ALLOWED_RATIO = 16

# The size in bytes to which a batch may decompress if its output starts like records: 1000 times Kafka's
# default of max.message.bytes. gzip and zstd compress the most repetitive logs to a thousandth.
MOST = 1 << 30

# `begins` receives at most this number of bytes from the start of the output.
LOOK = 64 << 10

# Returns whether decompressed bytes start like records or messages. The argument is at most the first `LOOK`
# bytes.
Begins = Callable[[memoryview], bool]

# The minimum estimate, in bytes, of an unknown decompressed size: four times Kafka's default of batch.size.
_MIN_ESTIMATE = 64 << 10

# The numbers of the codecs in batches, which are also the codecs' indexes in `CODECS`.
_GZIP, _SNAPPY, _LZ4, _ZSTD = 1, 2, 3, 4

_uint32 = struct.Struct("<I").unpack_from


def codec_number(name: str) -> int:
    """Return the number of the codec with this name. Raises `ConfigError` for an unknown name."""
    try:
        return CODECS.index(name)
    except ValueError:
        raise ConfigError("compression", name, f"it must be one of {', '.join(CODECS)}") from None


def allowance(compressed: int, max_decompressed: int | None = None) -> int:
    """Return the limit, in bytes, on the decompressed size of `compressed` bytes of input."""
    if max_decompressed is not None:
        return max_decompressed
    return max(ALWAYS_ALLOWED, ALLOWED_RATIO * compressed)


def has_codec(codec: int) -> bool:
    """Return whether the package of the codec that has this number is installed."""
    try:
        compress(codec, b"")
    except MissingExtra:
        return False
    return True


def compress(codec: int, data: bytes | bytearray | memoryview, level: int | None = None) -> bytes:
    """Compress `data` with the codec that has this number; `level` is on the codec's own scale.

    Raises `MissingExtra` if the codec needs the extra ``compression`` and the extra is not installed. Raises
    `ConfigError` for a level that the codec does not support.
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
    """Decompress `data` with the codec that has this number.

    Raises `CodecError` for malformed input and for an output that exceeds its limit, and `MissingExtra` if
    the codec's package is missing.

    `old_lz4` accepts the header checksum of Kafka's lz4 in magic 0, which other readers of lz4 reject.

    An output larger than the `allowance` of `data` is accepted only if `begins` returns True for the start of
    the output.
    """
    if codec == 0:
        return bytes(data)
    source = memoryview(data)
    is_old_lz4 = old_lz4 and codec == _LZ4
    decompress_to = partial(lz4.decompress_into, old=True) if is_old_lz4 else _decompressor(codec)
    limit, raised_limit = _limits(len(source), max_decompressed, begins)
    if codec == _GZIP:
        return _decompress_gzip(source, limit, raised_limit, begins)
    size = size_hint(codec, source)
    # For snappy, `size_hint` is the exact size, which was checked against the size of the input.
    if codec == _SNAPPY:
        limit = _snappy_limit(source, size, limit, raised_limit, begins)
    size = min(size, limit)
    while True:
        out = bytearray(size)
        view = memoryview(out)
        try:
            written = decompress_to(source, view)
        except Full:
            if size >= limit:
                limit = _raise_limit(codec, source, limit, raised_limit, begins, old_lz4=old_lz4)
            # The operating system allocates only those pages of the buffer that are written to.
            size = min(max(size * 4, ALWAYS_ALLOWED), limit)
        else:
            return bytes(view[:written])


def decompress_blocks(
    codec: int,
    data: bytes | bytearray | memoryview,
    max_decompressed: int | None = None,
    begins: Begins | None = None,
    *,
    old_lz4: bool = False,
) -> Iterator[bytes]:
    """Iterate over blocks of the decompressed bytes. Has the arguments and errors of `decompress`.

    A block is at most 1 MiB for gzip, 128 KiB for zstd, 4 MiB for lz4, and 22 times its compressed size for
    snappy.

    The whole output is one block if the data is not compressed, if the codec is zstd and the package
    zstandard is missing, or if the blocks of an lz4 frame depend on each other.
    """
    source = memoryview(data)
    blocks = _output_blocks(codec, source, old_lz4)
    if blocks is None:
        yield decompress(codec, data, max_decompressed, old_lz4=old_lz4, begins=begins)
        return
    limit, raised_limit = _limits(len(source), max_decompressed, begins)
    if codec == _SNAPPY:  # The sizes of snappy's blocks are checked before a block is decompressed.
        limit = _snappy_limit(source, size_hint(codec, source), limit, raised_limit, begins)
    total, start = 0, b""
    for block in blocks:
        total += len(block)
        if len(start) < LOOK:
            start += block[: LOOK - len(start)]
        if total > limit:
            limit = _raise_limit(codec, source, limit, raised_limit, begins, old_lz4=old_lz4, start=start)
            if total > limit:
                raise _too_large(limit)
        yield block


def decompress_into(
    codec: int,
    data: memoryview,
    out: memoryview,
    max_decompressed: int | None = None,
    begins: Begins | None = None,
) -> int | None:
    """Decompress to the start of `out`; return the number of bytes written, or None if `out` is too small.

    Readers use this function to decompress many batches into one arena. It has the arguments and errors
    of `decompress`.
    """
    limit, raised_limit = _limits(len(data), max_decompressed, begins)
    if codec == _SNAPPY:
        limit = _snappy_limit(data, size_hint(codec, data), limit, raised_limit, begins)
    out_size = len(out)
    try:
        return _decompressor(codec)(data, out if out_size <= limit else out[:limit])
    except Full:
        if out_size < limit:
            return None
    raised_limit = _raise_limit(codec, data, limit, raised_limit, begins)
    if out_size > limit:
        try:
            return _decompressor(codec)(data, out if out_size <= raised_limit else out[:raised_limit])
        except Full:
            if out_size >= raised_limit:
                raise _too_large(raised_limit) from None
    return None


def size_hint(codec: int, data: memoryview) -> int:
    """Estimate the decompressed size. A stated size is ignored if the input is too small for it."""
    size = len(data)
    if codec == _SNAPPY:
        return sum(snappy.size_of(block) for block in snappy.blocks_of(data))
    if codec == _ZSTD:
        header = zstd.header_of(data)
        if header is not None:
            _, stated_size = header
            if stated_size <= max(_MIN_ESTIMATE, 64 * size):
                return stated_size
    if codec == _GZIP and size > 18:  # The header and the trailer of gzip take 18 bytes.
        stated_size = _uint32(data, size - 4)[0]
        if stated_size <= 1032 * size:  # Deflate's output is at most 1032 times its input.
            return int(stated_size)
    return max(_MIN_ESTIMATE, 4 * size)


def _too_large(limit: int) -> CodecError:
    allowed = "max_decompressed (of a consumer: max_decompressed_bytes) raises the limit"
    return CodecError(f"grows beyond {limit} bytes; {allowed}")


def _limits(compressed: int, max_decompressed: int | None, begins: Begins | None) -> tuple[int, int]:
    """Return two limits of decompressed bytes: for any data, and for data that starts like records."""
    limit = allowance(compressed, max_decompressed)
    may_raise_limit = begins is not None and max_decompressed is None
    return limit, max(MOST, limit) if may_raise_limit else limit


def _raise_limit(
    codec: int,
    data: memoryview,
    limit: int,
    raised_limit: int,
    begins: Begins | None,
    *,
    old_lz4: bool = False,
    start: bytes | None = None,
) -> int:
    """Return `raised_limit`, for output that is longer than `limit` but starts like records.

    `start` is the first `LOOK` bytes of output, or None if the caller does not have them.

    Raises `CodecError` if no higher limit is allowed, if the output does not start like records, or if the
    input is an lz4 frame whose blocks depend on each other.
    """
    if begins is None or limit == raised_limit or (codec == _LZ4 and lz4.is_linked(data, old_lz4)):
        raise _too_large(limit)
    if not begins(memoryview(_output_start(codec, data, old_lz4) if start is None else start)):
        raise _too_large(limit)
    return raised_limit


def _output_start(codec: int, data: memoryview, old_lz4: bool) -> bytes:
    """Return the first `LOOK` bytes of output, or fewer if malformed input ends the output early."""
    blocks = _output_blocks(codec, data, old_lz4)
    if blocks is None:
        return zstd.start_of(data, LOOK)
    start = b""
    with suppress(CodecError):
        while len(start) < LOOK and (block := next(blocks, None)) is not None:
            start += block[: LOOK - len(start)]
    return start


def _output_blocks(codec: int, data: memoryview, old_lz4: bool) -> Iterator[bytes] | None:
    """Return an iterator over blocks of output, or None if the input cannot be decompressed in blocks."""
    match codec:
        case 1:
            return gzip.blocks(data)
        case 2:
            return snappy.blocks(data)
        case 3:
            return lz4.blocks(data, old_lz4)
        case 4:
            return zstd.blocks(data)
        case _:
            return None


def _decompress_gzip(data: memoryview, limit: int, raised_limit: int, begins: Begins | None) -> bytes:
    """Decompress gzip up to `limit`, or up to `raised_limit` if the output starts like records."""
    try:
        return gzip.decompress(data, limit)
    except Full:
        raised_limit = _raise_limit(_GZIP, data, limit, raised_limit, begins)
    try:
        return gzip.decompress(data, raised_limit)
    except Full:
        raise _too_large(raised_limit) from None


def _snappy_limit(data: memoryview, size: int, limit: int, raised_limit: int, begins: Begins | None) -> int:
    """Return the limit in bytes for an output of snappy that will have exactly `size` bytes.

    The result is `limit` if the output fits. For a larger output the result is `size`, if the output starts
    like records and has at most `raised_limit` bytes. Raises `CodecError` for any other larger output.
    """
    if size <= limit:
        return limit
    if size > raised_limit:
        raise _too_large(raised_limit)
    first_block = next(block for block in snappy.blocks_of(data) if snappy.size_of(block))
    if begins is None or not begins(memoryview(snappy.start_of(first_block, LOOK))):
        raise _too_large(limit)
    return size


_COMPRESSORS: dict[int, Callable[[bytes | bytearray | memoryview, int | None], bytes]] = {
    1: gzip.compress,
    2: snappy.compress,
    3: lz4.compress,
    4: zstd.compress,
}


# Maps a codec to its function `decompress_into(data, out)`.
_DECOMPRESSORS: dict[int, Callable[[memoryview, memoryview], int]] = {
    1: gzip.decompress_into,
    2: snappy.decompress_into,
    3: lz4.decompress_into,
    4: zstd.decompress_into,
}


def _decompressor(codec: int) -> Callable[[memoryview, memoryview], int]:
    """Return the codec's `decompress_into`. Raises `CodecError` for an unknown codec."""
    try:
        return _DECOMPRESSORS[codec]
    except KeyError:
        raise CodecError(f"codec {codec} doesn't exist") from None
