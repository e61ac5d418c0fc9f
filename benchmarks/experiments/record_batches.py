"""Designs for reading and building record batches that lost, with what they took against what was taken.

    python -m benchmarks.experiments.record_batches [--rounds 9]

Each line is one part of `kproto.records` and another way to do the same: the figures are nanoseconds per
element, the ratio is above 1 where what was taken is faster. Whole designs that are too long to stand here,
by how many times as fast as what was taken they were (on two busy cores):

    fields of records by numpy in int64 throughout, windows from two aligned words          0.76 to 1.2
    keys and values gathered for each list of 500 rows, not for the whole fetch             0.8 to 1.0
    keys and values of all rows made straight from the arena, with the gaps between them    0.91 to 1.13
    512 or 1024 pieces in the chain instead of 256 (16 KB batches are cut then)             0.2 to 1.2
    slices of 4,096 rows for fields instead of 16,384, warm and cold                        0.85 to 1.2
    Arrow's own snappy, lz4 and zstd instead of cramjam and zstandard                       0.5 to 1.04
    zlib instead of isal for gzip                                                           0.41 to 0.46
    records kept by a builder until the end, then encoded column after column by `map`      0.65 to 0.85
    a batch's records joined, and with its header once more (depends on the addresses)      0.75 to 1.05
    a batch's header written into a bytearray, and its bytes copied                         0.93 to 1.02
    values kept apart until the batch is joined, not copied with what is in front of them   0.88 to 1.06
    headers of records kept by their content: where all are the same, and where one differs 1.4 and 0.9

Zero-copy columns (BinaryView) save a copy of long values, but pin what was fetched, and few of Arrow's
functions take them: only rows, and copies, are made of them.
"""

from __future__ import annotations

import argparse
import random
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from itertools import repeat
from typing import Any

import numpy as np

from kproto.records import Record
from kproto.records.arrow_arrays import gather, views
from kproto.records.record import Headers, encode_headers, zigzag
from kproto.records.windows import Windows, tables

from ..report import header, machine, measure, ratio, row

pa: Any = import_module("pyarrow")

SIZE = 8192
POLL = 500
Pair = tuple[Callable[[], Any], Callable[[], Any]]


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


def records_by_map() -> Pair:
    """Records of msgspec made by `map`, or slots filled as targets of a loop."""
    numbers, contents = list(range(POLL)), [b"v"] * POLL
    new: Any = object.__new__

    def mapped() -> None:
        for _ in range(SIZE // POLL):
            list(map(Record, numbers, numbers, contents, contents, repeat(())))

    def filled() -> None:
        for _ in range(SIZE // POLL):
            found: list[Slots] = list(map(new, repeat(Slots, POLL)))
            values = zip(found, numbers, numbers, contents, contents, repeat((), POLL), strict=True)
            for one, one.offset, one.timestamp, one.key, one.value, one.headers in values:  # noqa: B007
                pass

    return mapped, filled


@dataclass(slots=True)
class Slots:
    """What `Record` was."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


def _long_values() -> Pair:
    """Views of values of 1000 bytes in an arena, and copies that `take` made."""
    data = np.frombuffer(random.randbytes(1020 * SIZE), np.uint8)
    places = np.arange(0, len(data), 510, np.int32)
    places[1::2] = places[::2] + 1000
    wanted = np.arange(0, len(places), 2, dtype=np.int32)
    return lambda: views(data, places[::2], places[1::2], None), lambda: gather(data, places, wanted)


def long_values_by_views() -> Pair:
    """Values of 1000 bytes out of an arena as Python objects: by views into it, or by a copy in between."""
    viewed, taken = _long_values()
    return lambda: viewed().to_pylist(), lambda: taken().to_pylist()


def long_values_copied_from_views() -> Pair:
    """The same as an Arrow array of their own: cast from views, or by `take`."""
    viewed, taken = _long_values()
    return lambda: viewed().cast(pa.binary()), taken


def bytes_by_arrow() -> Pair:
    """Values as Python objects: by Arrow, or by slicing."""
    array = pa.array([random.randbytes(100) for _ in range(SIZE)], pa.binary())
    data = b"".join(array.to_pylist())
    ends = list(range(100, 100 * SIZE + 1, 100))
    return array.to_pylist, lambda: [data[end - 100 : end] for end in ends]


def headers_joined() -> Pair:
    """A record's headers joined from a list, or put together by +=."""
    rows = [[("trace", random.randbytes(8)), ("kind", b"abc")] for _ in range(SIZE)]
    names = {name: zigzag(len(name)) + name.encode() for name in ("trace", "kind")}

    def added(headers: list[tuple[str, bytes]]) -> bytes:
        tail = zigzag(len(headers))
        for name, content in headers:
            tail += names[name]
            tail += zigzag(len(content)) + content
        return tail

    return lambda: [encode_headers(row) for row in rows], lambda: [added(row) for row in rows]


CONTESTS = [
    windows_of_two_bytes,
    indexing_by_int64,
    records_by_map,
    long_values_by_views,
    long_values_copied_from_views,
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
