"""Compare parts of `kproto.records` with rejected alternatives.

    python -m benchmarks.experiments.record_batches [--rounds 9]

Each line names first the chosen design and then the rejected one, and shows nanoseconds per element of both.
A ratio above 1 means that the chosen one is faster. README.md lists rejected designs of whole modules.
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
    """Windows of two bytes: combine single bytes, or index an unaligned view."""
    data = np.frombuffer(random.randbytes(4 << 20), np.uint8)
    places = np.sort(np.array(random.sample(range(len(data) - 8), SIZE)))
    windows: Any = Windows(data)
    view: Any = np.ndarray((len(data) - 1,), "<u2", data, 0, (1,))
    assert (windows.twos(places) == view[places]).all()
    return lambda: windows.twos(places), lambda: view[places]


def indexing_by_int64() -> Pair:
    """Look-up in a table: index by int64, or by uint16."""
    table, _ = tables()
    wide = np.array([random.randrange(65536) for _ in range(SIZE)])
    narrow = wide.astype(np.uint16)
    return lambda: table[wide], lambda: table[narrow]


def records_by_map() -> Pair:
    """Records: create msgspec structs by `map`, or assign slots in a loop."""
    numbers, contents = list(range(POLL)), [b"v"] * POLL
    new: Any = object.__new__

    def mapped() -> None:
        for _ in range(SIZE // POLL):
            list(map(Record, numbers, numbers, contents, contents, repeat(())))

    def filled() -> None:
        for _ in range(SIZE // POLL):
            records: list[SlotsRecord] = list(map(new, repeat(SlotsRecord, POLL)))
            fields = zip(records, numbers, numbers, contents, contents, repeat((), POLL), strict=True)
            for record, record.offset, record.timestamp, record.key, record.value, record.headers in fields:  # noqa: B007
                pass

    return mapped, filled


@dataclass(slots=True)
class SlotsRecord:
    """A record as a dataclass, for comparison with the msgspec struct `Record`."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


def _long_values() -> Pair:
    """Return two functions for values of 1,000 bytes: one makes views of a buffer, one copies by `take`."""
    data = np.frombuffer(random.randbytes(1020 * SIZE), np.uint8)
    places = np.arange(0, len(data), 510, np.int32)
    places[1::2] = places[::2] + 1000
    value_indices = np.arange(0, len(places), 2, dtype=np.int32)
    return lambda: views(data, places[::2], places[1::2], None), lambda: gather(data, places, value_indices)


def long_values_by_views() -> Pair:
    """Values of 1,000 bytes as Python objects: from views of the buffer, or from a copy."""
    make_views, make_copies = _long_values()
    return lambda: make_views().to_pylist(), lambda: make_copies().to_pylist()


def long_values_copied_from_views() -> Pair:
    """Values of 1,000 bytes as an Arrow array: cast from views, or copied by `take`."""
    make_views, make_copies = _long_values()
    return lambda: make_views().cast(pa.binary()), make_copies


def bytes_by_arrow() -> Pair:
    """Values as Python objects: from Arrow, or by slicing."""
    array = pa.array([random.randbytes(100) for _ in range(SIZE)], pa.binary())
    data = b"".join(array.to_pylist())
    ends = list(range(100, 100 * SIZE + 1, 100))
    return array.to_pylist, lambda: [data[end - 100 : end] for end in ends]


def headers_joined() -> Pair:
    """Headers of a record: join a list, or append by +=."""
    rows = [[("trace", random.randbytes(8)), ("kind", b"abc")] for _ in range(SIZE)]
    names = {name: zigzag(len(name)) + name.encode() for name in ("trace", "kind")}

    def append_headers(headers: list[tuple[str, bytes]]) -> bytes:
        encoded = zigzag(len(headers))
        for name, value in headers:
            encoded += names[name]
            encoded += zigzag(len(value)) + value
        return encoded

    return lambda: [encode_headers(row) for row in rows], lambda: [append_headers(row) for row in rows]


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
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=9)
    rounds = parser.parse_args().rounds
    print(machine("numpy", "pyarrow"))
    header("contest", "chosen, ns", "rejected, ns", "x")
    random.seed(1)
    for contest in CONTESTS:
        chosen, rejected = contest()
        timings = measure({"chosen": chosen, "rejected": rejected}, rounds)
        chosen_ns, rejected_ns = (statistics.median(timings[name]) / SIZE * 1e9 for name in timings)
        row((contest.__doc__ or "").strip(), chosen_ns, rejected_ns, ratio(timings, "chosen", "rejected"))


if __name__ == "__main__":
    main()
