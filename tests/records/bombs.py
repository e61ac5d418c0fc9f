"""Small inputs that announce a large size, and a command that measures what reading them costs.

    python -m tests.records.bombs rows DIRECTORY

The command reads each file of the directory in its own fork, with one of the readers in `ENTRANCES`.

The command prints JSON. Each file has three values: the outcome, the number of executed lines of Python, and
the growth of the fork's memory in bytes. A number of lines above FEW_LINES is the minimum of three runs.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import struct
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import cramjam

from kproto.errors import KprotoError
from kproto.records import Record, batches, encode_batch, rows
from kproto.records.batch import crc32c
from kproto.records.codecs.lz4 import header_checksum, with_old_header
from kproto.records.compression import CODECS
from kproto.records.reader import WORTH_COLUMNS
from kproto.records.record import zigzag

MB = 1 << 20
LARGE = 40 * MB  # The decompressed size of large inputs, which exceeds the limit of the readers.
MOST = (1 << 31) - 1
MANY = 2 * WORTH_COLUMNS
# The largest allowed number of executed lines of Python for one input.
FEW_LINES = 60_000
# A reader is stopped after this number of executed lines of Python.
MOST_LINES = 2_000_000


def gzipped() -> bytes:
    packer = zlib.compressobj(9, wbits=31)
    return packer.compress(bytes(LARGE)) + packer.flush()


def varint(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes((*out, number))


def snappy(size: int) -> bytes:
    """Build a raw snappy block of `size` bytes that consists of copies of one byte."""
    copies, remainder = divmod(size - 1, 64)
    tail = bytes((remainder - 1 << 2 | 2, 1, 0)) if remainder else b""
    return varint(size) + b"\0\0" + bytes((63 << 2 | 2, 1, 0)) * copies + tail


def xerial(block: bytes, times: int) -> bytes:
    return b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1) + (struct.pack(">i", len(block)) + block) * times


def lz4(blocks: int, claimed: int | None = None) -> bytes:
    """Build an lz4 frame of independent blocks of 4 MB. `claimed` is the content size in its header."""
    size = b"" if claimed is None else claimed.to_bytes(8, "little")
    descriptor = bytes((0x60 | 8 * bool(size), 0x70)) + size
    head = b"\x04\x22\x4d\x18" + descriptor + bytes((header_checksum(descriptor),))
    block = bytes(cramjam.lz4.compress_block(bytes(4 * MB), store_size=False))
    return head + (len(block).to_bytes(4, "little") + block) * blocks + b"\0\0\0\0"


def zstd_that_lies() -> bytes:
    """Build a zstd frame whose header announces 4 GB. Its only block announces 128 KB of one byte."""
    return b"\x28\xb5\x2f\xfd\xa0" + b"\xff" * 4 + (128 << 10 << 3 | 2 | 1).to_bytes(3, "little") + b"\0"


def packed() -> Iterator[tuple[str, int, bytes]]:
    """Yield the name, the codec and the compressed bytes of each input."""
    yield "gzip", 1, gzipped()
    yield "gzip of many members", 1, zlib.compress(bytes(MB), wbits=31) * (LARGE // MB)
    yield "gzip with a size that lies", 1, zlib.compress(bytes(MB), wbits=31)[:-4] + b"\xff" * 4
    yield "snappy", 2, snappy(LARGE)
    yield "snappy that may still be read", 2, snappy(15 * MB)
    yield "snappy with a size that lies", 2, varint(MOST) + bytes(9)
    yield "xerial", 2, xerial(snappy(MB), LARGE // MB)
    yield "xerial with sizes that lie", 2, xerial(varint(MOST) + bytes(9), 99)
    yield "lz4", 3, bytes(cramjam.lz4.compress(bytes(LARGE)))
    yield "lz4 of independent blocks", 3, lz4(LARGE // (4 * MB))
    yield "lz4 with a size that lies", 3, lz4(0, 1 << 62)
    yield "zstd", 4, bytes(cramjam.zstd.compress(bytes(LARGE)))
    yield "zstd of many frames", 4, bytes(cramjam.zstd.compress(bytes(MB))) * (LARGE // MB)
    yield "zstd with a size that lies", 4, zstd_that_lies()


def batch(codec: int, body: bytes, count: int = 1, magic: int = 2) -> bytes:
    """Build a batch, or a wrapper message for magic 0 and 1, with a valid checksum."""
    if magic < 2:
        value = with_old_header(body) if (magic, codec) == (0, 3) else body
        time_stamp = struct.pack(">q", 0) if magic else b""
        checked = bytes((magic, codec)) + time_stamp + struct.pack(">ii", -1, len(value)) + value
        return struct.pack(">qiI", 0, len(checked) + 4, zlib.crc32(checked)) + checked
    checked = struct.pack(">hiqqqhii", codec, count - 1, 0, 0, -1, -1, -1, count) + body
    return struct.pack(">qiibI", 0, len(checked) + 9, -1, 2, crc32c(checked)) + checked


def record(headers: int = 0, key: int = 0) -> bytes:
    """Build the start of a record that announces this header count and key length, but lacks the data."""
    return b"\x14\0\0\0" + zigzag(key) + b"\0" + zigzag(headers)


def bombs() -> Iterator[tuple[str, bytes]]:
    for name, codec, body in packed():
        for magic in (2, 1, 0) if codec < 4 else (2,):
            # The record count in the header is large, so that the column decoder reads the batch.
            yield f"{name}, magic {magic}", batch(codec, body, MANY, magic)
    plain = record()[:7]
    yield "a count of records", batch(0, plain, MOST)
    yield "a count of records in gzip", batch(1, zlib.compress(plain * 99, wbits=31), MOST)
    yield "a count of headers", batch(0, record(headers=MOST))
    yield "the length of a key", batch(0, record(key=MOST))
    yield "the size of a batch", batch(0, plain)[:8] + MOST.to_bytes(4, "big") + batch(0, plain)[12:]


def read_columns(data: bytes) -> None:
    from kproto.records.columns import columns

    _ = columns(data).headers


def read_batches(data: bytes) -> None:
    for batch in batches(data):
        batch.records()


def read_in_the_shell(data: bytes) -> None:
    from kproto.cli import main

    path = Path(f"bomb-{os.getpid()}")
    path.write_bytes(data)
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
        code = main(["decode", "--records", str(path)])
    path.unlink()
    if code:
        raise KprotoError("exit code 1")


ENTRANCES: dict[str, Callable[[bytes], object]] = {
    "rows": rows,
    "columns": read_columns,
    "batches": read_batches,
    "cli": read_in_the_shell,
}


def peak() -> int:
    """Return the peak memory of this process in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << (10 if sys.platform != "darwin" else 0)


class NotOver(BaseException):
    """Raised when a reader has run `MOST_LINES` lines without an end."""


def measured(read: Callable[[bytes], object], data: bytes) -> tuple[str, int, int]:
    """Read `data`; return the outcome, the number of executed Python lines and the memory growth in bytes."""
    before = peak()
    line_counts, outcome = [], "read"
    for _ in range(3):
        lines = 0

        def count(frame: FrameType, event: str, arg: Any) -> Any:
            nonlocal lines
            lines += 1
            if lines > MOST_LINES:
                raise NotOver
            return count

        sys.settrace(count)
        try:
            read(data)
        except KprotoError as error:
            outcome = str(error)
        except NotOver:
            outcome = "not over"
        finally:
            sys.settrace(None)
        line_counts.append(lines)
        if lines <= FEW_LINES:
            break
    return outcome, min(line_counts), peak() - before


def main(entrance: str, directory: str) -> None:
    read = ENTRANCES[entrance]
    # Read a batch of each codec first, so that memory allocated at the first use does not count.
    for codec in CODECS:
        read(encode_batch([Record(at, 0, None, bytes(30)) for at in range(MANY)], compression=codec))
    results: dict[str, tuple[str, int, int]] = {}
    for file in sorted(Path(directory).iterdir()):
        data = file.read_bytes()
        read_end, write_end = os.pipe()
        if (child := os.fork()) == 0:
            os.write(write_end, json.dumps(measured(read, data)).encode())
            os._exit(0)
        os.close(write_end)
        os.waitpid(child, 0)
        with open(read_end, "rb") as answer:
            results[file.name] = json.loads(answer.read())
    print(json.dumps(results))


if __name__ == "__main__":
    main(*sys.argv[1:])
