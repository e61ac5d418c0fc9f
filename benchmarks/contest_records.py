"""Designs for reading and building record batches that lost, with what they took against what was taken.

    python -m benchmarks.contest_records [--rounds 9]

Each line is one part of `kproto.records` and another way to do the same: the figures are nanoseconds per
element, the ratio is above 1 where what was taken is faster. Whole designs that are too long to stand here,
by how many times as fast as what was taken they were (on two busy cores):

    fields of records by numpy in int64 throughout, windows from two aligned words          0.76 to 1.2
    keys and values gathered for each list of 500 rows, not for the whole fetch             0.8 to 1.0
    keys and values of all rows made straight from the arena, with the gaps between them    0.91 to 1.13
    the same for long values only (a class more, and arenas that are not kept)              1.01 to 1.17
    512 or 1024 pieces in the chain instead of 256 (16 KB batches are cut then)             0.2 to 1.2
    Arrow's own snappy, lz4 and zstd instead of cramjam and zstandard                       0.5 to 1.04
    zlib instead of isal for gzip                                                           0.41 to 0.46

Zero-copy columns (BinaryView) would save a copy of long values, but pin what was fetched, and few of Arrow's
functions take them.
"""

from __future__ import annotations

import argparse
import random
import statistics
from collections.abc import Callable
from importlib import import_module
from itertools import repeat
from typing import Any

import numpy as np

from kproto.records import Record
from kproto.records.record import encode_headers, zigzag
from kproto.records.vectors import Windows, tables

from .report import header, machine, measure, ratio, row

pa: Any = import_module("pyarrow")

SIZE = 8192
POLL = 500
Pair = tuple[Callable[[], object], Callable[[], object]]


def windows_of_two_bytes() -> Pair:
    """Single bytes put together, or an unaligned view indexed."""
    data = np.frombuffer(random.randbytes(4 << 20), np.uint8)
    places = np.sort(np.array(random.sample(range(len(data) - 8), SIZE)))
    windows: Any = Windows(data)
    view: Any = np.ndarray((len(data) - 1,), "<u2", data, 0, (1,))
    assert (windows.twos(places) == view[places]).all()
    return lambda: windows.twos(places), lambda: view[places]


def indexing_by_int64() -> Pair:
    """numpy wants an index in its own integer type."""
    table, _ = tables()
    wide = np.array([random.randrange(65536) for _ in range(SIZE)])
    narrow = wide.astype(np.uint16)
    return lambda: table[wide], lambda: table[narrow]


def objects_by_map() -> Pair:
    """Empty records from `map`, or from a list comprehension."""
    new: Any = object.__new__
    return (
        lambda: list(map(new, repeat(Record, SIZE))),
        lambda: [new(Record) for _ in range(SIZE)],
    )


def slots_by_targets() -> Pair:
    """Slots as targets of the loop, or records made by their `__init__`."""
    numbers, contents = list(range(POLL)), [b"v"] * POLL
    new: Any = object.__new__

    def targets() -> None:
        for _ in range(SIZE // POLL):
            found: list[Record] = list(map(new, repeat(Record, POLL)))
            values = zip(found, numbers, numbers, contents, contents, repeat((), POLL), strict=True)
            for one, one.offset, one.timestamp, one.key, one.value, one.headers in values:  # noqa: B007
                pass

    def init() -> None:
        for _ in range(SIZE // POLL):
            list(map(Record, numbers, numbers, contents, contents))

    return targets, init


def bytes_by_arrow() -> Pair:
    """Values as Python objects: by Arrow, or by slicing."""
    array = pa.array([random.randbytes(100) for _ in range(SIZE)], pa.binary())
    data = b"".join(array.to_pylist())
    ends = list(range(100, 100 * SIZE + 1, 100))
    return array.to_pylist, lambda: [data[end - 100 : end] for end in ends]


def headers_joined() -> Pair:
    """A record's headers put together by +=, or joined from a list."""
    rows = [[("trace", random.randbytes(8)), ("kind", b"abc")] for _ in range(SIZE)]
    names = {name: zigzag(len(name)) + name.encode() for name in ("trace", "kind")}

    def joined(headers: list[tuple[str, bytes]]) -> bytes:
        parts = [zigzag(len(headers))]
        for name, content in headers:
            parts += (names[name], zigzag(len(content)), content)
        return b"".join(parts)

    return lambda: [encode_headers(one) for one in rows], lambda: [joined(one) for one in rows]


CONTESTS = [
    windows_of_two_bytes,
    indexing_by_int64,
    objects_by_map,
    slots_by_targets,
    bytes_by_arrow,
    headers_joined,
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=9)
    given = parser.parse_args()
    print(machine("numpy", "pyarrow"))
    header("contest", "taken", "lost", "x")
    random.seed(1)
    for contest in CONTESTS:
        taken, lost = contest()
        times = measure({"taken": taken, "lost": lost}, given.rounds)
        figures = [statistics.median(times[name]) / SIZE * 1e9 for name in ("taken", "lost")]
        claim = (contest.__doc__ or "").strip()
        row(claim, *map(float, figures), ratio(times, "taken", "lost"))


if __name__ == "__main__":
    main()
