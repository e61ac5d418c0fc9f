"""Record batches: kproto's rows, columns and builders against kafka-python 3 and aiokafka's C parser.

    python -m benchmarks.records [--megabytes 4] [--rounds 9] [--only rows,columns,build] [--codecs none,lz4]

Every round runs all candidates, in rotating order, in one thread, timed by that thread's own CPU clock. A
figure is the median over the rounds, a ratio ("x") the median of the ratios within a round, above 1 where
kproto is faster. The inputs are made by aiokafka's C builder. CRCs are checked by everyone. A row counts as
read when its offset, timestamp, key, value and headers were there as Python objects; kproto hands rows out in
lists of 500, as a poll does. In columns, headers are not parsed but for `traced`, there as an Arrow array.

    short    key 10 bytes, value 100 bytes
    long     key 10 bytes, value 1000 bytes
    wordy    the same, but twice as compressible: opening it takes everyone most of the time
    headers  no key, value 10 bytes, two headers, the same for all records
    traced   the same, but one header has another value in every record
    mixed    null keys and values, values of 0 to 400 bytes

The goals are in `GOALS`, and in the last table with what was reached. The prototypes that they come from had
short, long and headers, and built records with headers 1.8 to 2.6 times as fast as kafka-python. Columns of
all 60 inputs, compressed ones and the harder ones too, are 1.9 to 2 times as fast as aiokafka's C parser.
Designs that lost are in `contest_records`. gzip and zstd are read by isal and zstandard where installed.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
from collections.abc import Callable, Iterable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from aiokafka.record.default_records import DefaultRecordBatchBuilder as AioBuilder
from aiokafka.record.memory_records import MemoryRecords as AioRecords
from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaBuilder
from kafka.record.memory_records import MemoryRecords as KafkaRecords

from kproto.errors import BatchFull
from kproto.records import BatchBuilder, row_lists
from kproto.records.columns import columns, encode_columns

from .report import Taken, goals, header, machine, measure, plot, ratio, row

NAMES = ("short", "long", "wordy", "headers", "traced", "mixed")
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
BATCH_SIZES = [16384, 1 << 20]
Row = tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]

_WORDS = [
    f"{word}-{number}" for word in ("flight", "gate", "delay", "carrier", "tail") for number in range(80)
]


def text(size: int, words: float) -> bytes:
    """Text of which this share of the parts are words, and the others random digits."""
    parts: list[str] = []
    length = 0
    while length < size:
        parts.append(random.choice(_WORDS) if random.random() < words else random.randbytes(6).hex())
        length += len(parts[-1]) + 1
    return ",".join(parts).encode()[:size]


def values(size: int) -> list[bytes]:
    """Those of which a record has one. Compressed in batches of 16 KB they shrink by 1.2 with snappy and lz4
    and by 2 with zstd, in batches of 1 MB by 1.3 and 6: as those of which the goals were set."""
    return [text(size, 0.3) for _ in range(300_000 // size)]


def data_set(name: str, size: int) -> list[Row]:
    """About `size` bytes of rows."""
    random.seed(name)
    found: list[Row] = []
    pool = values(100 if name == "short" else 1000)
    moment, total = 1_700_000_000_000, 0
    while total < size:
        moment += random.randrange(4)
        headers: list[tuple[str, bytes | None]] = []
        key: bytes | None = random.randbytes(10)
        value: bytes | None
        if name in ("short", "long"):
            value = bytes(bytearray(random.choice(pool)))  # an object of its own, as every record's is
        elif name == "wordy":
            value = text(1000, 0.7)
        elif name in ("headers", "traced"):
            key, value = None, text(10, 0.3)
            trace = b"0af76519" if name == "headers" else random.randbytes(4).hex().encode()
            headers = [("trace", trace), ("kind", b"abc")]
        else:
            key = key if random.random() < 0.5 else None
            value = text(random.randrange(400), 0.3) if random.random() < 0.9 else None
        found.append((moment, key, value, headers))
        total += 20 + len(key or b"") + len(value or b"") + 20 * len(headers)
    return found


def encoded(found: list[Row], codec: str, batch_size: int) -> bytes:
    """The rows in batches of at most `batch_size` bytes before compression, by aiokafka's C builder."""
    number = CODECS.index(codec)
    out: list[bytes] = []
    builder, base, count = AioBuilder(2, number, 0, -1, -1, 0, batch_size), 0, 0

    def finish() -> None:
        batch = bytearray(builder.build())
        batch[:8] = base.to_bytes(8, "big")
        out.append(bytes(batch))

    for moment, key, value, headers in found:
        if builder.append(count, moment, key, value, headers) is None:
            finish()
            base, count = base + count, 0
            builder = AioBuilder(2, number, 0, -1, -1, 0, batch_size)
            builder.append(count, moment, key, value, headers)
        count += 1
    finish()
    return b"".join(out)


def read_kafka_python(data: bytes) -> int:
    records, count = KafkaRecords(data), 0
    while (batch := records.next_batch()) is not None:
        assert batch.validate_crc()
        for one in batch:
            _ = (one.offset, one.timestamp, one.key, one.value, one.headers)
            count += 1
    return count


def read_aiokafka(data: bytes) -> int:
    records, count = AioRecords(data), 0
    while (batch := records.next_batch()) is not None:
        assert batch.validate_crc()
        for one in batch:
            _ = (one.offset, one.timestamp, one.key, one.value, one.headers)
            count += 1
    return count


def read_kproto(data: bytes) -> int:
    count = 0
    for some in row_lists(data):
        for one in some:
            _ = (one.offset, one.timestamp, one.key, one.value, one.headers)
            count += 1
    return count


def columns_and_headers(data: bytes) -> None:
    columns(data).headers_array()


def build_kafka_python(found: list[Row], batch_size: int) -> None:
    _build(lambda: KafkaBuilder(2, 0, 0, -1, -1, 0, batch_size), found)


def build_aiokafka(found: list[Row], batch_size: int) -> None:
    _build(lambda: AioBuilder(2, 0, 0, -1, -1, 0, batch_size), found)


def _build(new: Callable[[], Any], found: list[Row]) -> None:
    builder, count = new(), 0
    append = builder.append
    for moment, key, value, headers in found:
        if append(count, moment, key, value, headers) is None:
            builder.build()
            builder, count = new(), 0
            append = builder.append
            append(count, moment, key, value, headers)
        count += 1
    builder.build()


def build_kproto(found: list[Row], batch_size: int) -> None:
    builder = BatchBuilder(max_bytes=batch_size)
    append = builder.append
    for moment, key, value, headers in found:
        try:
            append(moment, key, value, headers)
        except BatchFull:
            builder.build()
            builder.clear()
            append(moment, key, value, headers)
    builder.build()


PEERS = {"kafka-python": "kafka-python", "aiokafka": "aiokafka's C"}
Ratios = dict[tuple[str, str], dict[str, float]]  # (ours, peer) -> input -> times as fast

WARM = 0.03  # seconds per candidate and round: long enough that the other candidates' caches don't count


def told(label: str, count: int, taken: Taken, found: Ratios) -> None:
    """Print the line of one input, and keep its ratios."""
    cells: list[object] = []
    for name in (*PEERS, "rows", "columns"):
        cells.append(round(statistics.median(taken[name]) / count * 1e9) if name in taken else "-")
    for ours in ("rows", "columns"):
        for peer in PEERS:
            if ours in taken:
                found.setdefault((ours, peer), {})[label] = ratio(taken, ours, peer)
                cells.append(found[ours, peer][label])
            else:
                cells.append("-")
    row(label, count, *cells)


def titles() -> list[str]:
    names = [*PEERS, "rows", "columns"]
    return ["input", "records", *names, *(f"{ours} x {peer}" for ours in names[2:] for peer in PEERS)]


def read_table(size: int, rounds: int, codecs: list[str], only: list[str]) -> Ratios:
    print("\n## Reading (ns per record)")
    header(*titles())
    ratios: Ratios = {}
    for name in NAMES:
        found = data_set(name, size)
        for codec in codecs:
            for batch_size in BATCH_SIZES:
                data, count = encoded(found, codec, batch_size), len(found)
                assert read_kafka_python(data) == read_aiokafka(data) == count
                assert read_kproto(data) == len(columns(data)) == count
                candidates: dict[str, Callable[[], object]] = {
                    "kafka-python": partial(read_kafka_python, data),
                    "aiokafka": partial(read_aiokafka, data),
                    "rows": partial(read_kproto, data),
                    "columns": partial(columns_and_headers if name == "traced" else columns, data),
                }
                for ours in ("rows", "columns"):
                    if ours not in only:
                        del candidates[ours]
                taken = measure(candidates, rounds, WARM)
                told(f"{name} {codec} {batch_size >> 10}K", count, taken, ratios)
    return ratios


def build_table(size: int, rounds: int) -> Ratios:
    print("\n## Building, no compression (ns per record)")
    header(*titles())
    ratios: Ratios = {}
    for name in NAMES:
        found = data_set(name, size)
        for batch_size in BATCH_SIZES:
            read = columns(encoded(found, "none", batch_size))
            candidates: dict[str, Callable[[], object]] = {
                "kafka-python": partial(build_kafka_python, found, batch_size),
                "aiokafka": partial(build_aiokafka, found, batch_size),
                "rows": partial(build_kproto, found, batch_size),
            }
            if not read.has_headers:  # headers are no column
                candidates["columns"] = partial(
                    encode_columns, read.timestamp, read.key, read.value, max_bytes=batch_size
                )
            taken = measure(candidates, rounds, WARM)
            told(f"build {name} {batch_size >> 10}K", len(found), taken, ratios)
    return ratios


Mean = Callable[[Iterable[float]], float]
# The inputs of the prototypes that the goals come from; the others were added as they are harder.
PROTOTYPES = ("short", "long", "headers")


def _has_them(name: str) -> bool:
    return name.startswith(PROTOTYPES)


def _is_plain(name: str) -> bool:
    return "none" in name


def _has_no_headers(name: str) -> bool:
    return "headers" not in name and "traced" not in name


GOALS: list[tuple[str, str, str, Callable[[str], bool], Mean, str, float]] = [
    # (what is measured, ours, peer, which inputs, mean, and its name, the goal)
    ("read", "rows", "kafka-python", lambda name: name.startswith("short none"), min, "short, none", 8),
    (
        "read",
        "rows",
        "kafka-python",
        lambda name: "gzip" not in name and "zstd" not in name,
        min,
        "each but gzip and zstd",
        4,
    ),
    ("read", "columns", "aiokafka", _has_them, statistics.geometric_mean, "mean of short, long, headers", 2),
    (
        "read",
        "columns",
        "aiokafka",
        _is_plain,
        statistics.geometric_mean,
        "mean of all without compression",
        2,
    ),
    ("read", "columns", "aiokafka", lambda name: not _is_plain(name), min, "each compressed", 1),
    ("build", "rows", "kafka-python", lambda name: name.startswith("build short"), min, "short", 3),
    ("build", "rows", "kafka-python", _has_no_headers, statistics.geometric_mean, "mean without headers", 3),
    ("build", "rows", "kafka-python", lambda name: True, min, "each", 1.8),
    ("build", "columns", "aiokafka", lambda name: True, min, "each", 1),
]


def summary(read: Ratios, build: Ratios) -> None:
    print("\n## Goals")
    lines: list[tuple[str, float, float]] = []
    for what, ours, peer, chosen, mean, name, wanted in GOALS:
        ratios = (read if what == "read" else build).get((ours, peer), {})
        some = [ratio for label, ratio in ratios.items() if chosen(label)]
        if some:
            lines.append((f"{what} {ours} x {PEERS[peer]}, {name}", mean(some), wanted))
    goals(lines)


def picture(read: Ratios, build: Ratios, footnote: str) -> None:
    both = {pair: read.get(pair, {}) | build.get(pair, {}) for pair in read | build}
    labels = list(dict.fromkeys(label for ratios in both.values() for label in ratios))
    series = {
        f"{ours} x {PEERS[peer]}": [ratios.get(label, math.nan) for label in labels]
        for (ours, peer), ratios in both.items()
    }
    path = Path(__file__).with_name("records.svg")
    plot(path, "Record batches: read and built", footnote, labels, series)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--megabytes", type=float, default=4)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--only", default="rows,columns,build")
    parser.add_argument("--codecs", default=",".join(CODECS))
    given = parser.parse_args()
    only = given.only.split(",")
    faster = [name for name in ("isal", "zstandard") if find_spec(name)]
    footnote = machine("kafka-python", "aiokafka", "numpy", "pyarrow", "crc32c", "cramjam", *faster)
    print(footnote)
    size = int(given.megabytes * (1 << 20))
    read: Ratios = {}
    build: Ratios = {}
    if "rows" in only or "columns" in only:
        read = read_table(size, given.rounds, given.codecs.split(","), only)
    if "build" in only:
        build = build_table(size, given.rounds)
    summary(read, build)
    picture(read, build, footnote)


if __name__ == "__main__":
    main()
