"""The five codecs of record batches, bounded in what they may allocate.

Rules of this file:

* Codecs have Kafka's numbers: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd (`codecs`). gzip is zlib; the others
  need the extra ``compression`` (cramjam). isal and zstandard make reading faster where they are installed.
* Nothing is allocated that the input did not pay for. Output grows step by step, and sizes that the input
  only *claims* are not believed. Anything may grow to its `allowance`: 16 MiB, or 16 times its compressed
  size where that is more. Beyond that it goes on only if what came out so far begins as records do, and up to
  `MOST`: Java's consumer has no bound at all, and log lines that repeat themselves shrink to a thousandth. An
  own limit (``max_decompressed``, in bytes) replaces both. So what is no records is an error after less than
  100 ms and 50 MB (measured: 5 to 80 ms), and 10 MB of zeros are just read.
* Broken or oversized input is `CodecError` here; the readers make a `RecordError` of it, which says where.

See Kafka's `Compression`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import partial

from ..errors import ConfigError
from .codecs import CodecError, Full, gzip, lz4, snappy, zstd

# Names of the codecs, as in Kafka's ``compression.type``; the index is the number in batches.
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")

# Those of `CompressionType` in Java, and 0 where the packages have it. snappy has none, and takes any.
_LEVELS = (range(0), range(-1, 10), range(-(1 << 31), 1 << 31), range(18), range(-(1 << 17), 23))

# Bytes that any batch may decompress to: sixteen times Kafka's default max.message.bytes.
ALWAYS_ALLOWED = 16 << 20

# Beyond `ALWAYS_ALLOWED`, a batch may grow to this multiple of its compressed size.
ALLOWED_RATIO = 16

# Bytes that a batch may decompress to as long as it looks like records: a thousand times the default
# max.message.bytes, which is what gzip and zstd make of the most boring log.
MOST = 1 << 30

# So many of the first bytes are looked at.
LOOK = 64 << 10

# Whether bytes begin as what is expected in them; it gets the first `LOOK` of them at most.
Begins = Callable[[memoryview], bool]

_FIRST_STEP = 64 << 10  # the first guess at an unknown size: four of Kafka's batch.size

_uint32 = struct.Struct("<I").unpack_from


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
    into = partial(lz4.decompress_into, old=True) if old_lz4 and codec == 3 else _reader(codec)
    limit = allowance(len(source), max_decompressed)
    most = limit if begins is None or max_decompressed is not None else max(MOST, limit)
    if codec == 1:
        return _gunzip(data, limit, most, begins)
    size = size_hint(codec, source)
    if codec == 2:  # the only hint that is a promise, and one that is paid for
        limit = _snappy_allowed(source, size, limit, most, begins)
    size = min(size, limit)
    while True:
        out = bytearray(size)
        view = memoryview(out)
        try:
            written = into(source, view)
        except Full:
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
    except Full:
        if room < limit:
            return None
    if limit == most or begins is None or not begins(out[:LOOK]):
        raise _too_large(limit)
    if room > limit:
        try:
            return _reader(codec)(data, out if room <= most else out[:most])
        except Full:
            if room >= most:
                raise _too_large(most) from None
    return None


def size_hint(codec: int, data: memoryview) -> int:
    """A first guess at the decompressed size, never far above what the input can pay for."""
    size = len(data)
    if codec == 2:
        return sum(snappy.size_of(block) for block in snappy.blocks_of(data))
    if codec == 4:
        header = zstd.header_of(data)
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


def _gunzip(data: bytes | bytearray | memoryview, limit: int, most: int, begins: Begins | None) -> bytes:
    try:
        return gzip.decompress(data, limit)
    except Full as full:
        if limit == most or begins is None or not begins(memoryview(full.args[0])[:LOOK]):
            raise _too_large(limit) from None
    try:
        return gzip.decompress(data, most)
    except Full:
        raise _too_large(most) from None


def _snappy_allowed(data: memoryview, size: int, limit: int, most: int, begins: Begins | None) -> int:
    """What may be decompressed: the size that is said, which is paid for, if the first bytes are fine."""
    if size <= limit:
        return limit
    first = next(block for block in snappy.blocks_of(data) if snappy.size_of(block))
    if size > most or begins is None or not begins(memoryview(snappy.start_of(first, LOOK))):
        raise _too_large(limit if size <= most else most)
    return size


_COMPRESSORS: dict[int, Callable[[bytes | bytearray | memoryview, int | None], bytes]] = {
    1: gzip.compress,
    2: snappy.compress,
    3: lz4.compress,
    4: zstd.compress,
}


# They fill the start of `out` and say how far, or raise `Full`.
_READERS: dict[int, Callable[[memoryview, memoryview], int]] = {
    1: gzip.decompress_into,
    2: snappy.decompress_into,
    3: lz4.decompress_into,
    4: zstd.decompress_into,
}


def _reader(codec: int) -> Callable[[memoryview, memoryview], int]:
    try:
        return _READERS[codec]
    except KeyError:
        raise CodecError(f"codec {codec} doesn't exist") from None
