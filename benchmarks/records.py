"""Compare reading and building of record batches with kafka-python 3 and aiokafka's C code.

    python -m benchmarks.records [--megabytes 4] [--rounds 9] [--only rows,columns,build] [--codecs none,lz4]
                                 [--chart FILE]

Every round runs all candidates in rotating order in one thread, and measures the CPU time of that thread.
Times are medians over the rounds. A ratio ("x") is computed for each round, and its median is printed; above
1, kproto is faster. aiokafka's C builder makes the inputs, and all candidates check the CRCs. Reading a row
means to access its offset, timestamp, key, value and headers as Python objects. kproto returns rows in lists
of 500, as a poll does. Columns do not parse headers, except for `traced`, where they become an Arrow array.

    short    key of 10 bytes, value of 100 bytes
    long     key of 10 bytes, value of 1,000 bytes
    wordy    like long, but twice as compressible: decompression takes most of the time
    headers  no key, value of 10 bytes, two headers that are the same in all records
    traced   like headers, but one header has another value in every record
    mixed    null keys and values, values of 0 to 400 bytes

The last table compares the results with `GOALS`. The goals were set for short, long and headers. The
columns of all 60 inputs, compressed ones included, are 1.9 to 2 times as fast as aiokafka's C parser. gzip
and zstd are decompressed by isal and zstandard if they are installed.

experiments/README.md and experiments/record_batches.py contain the rejected designs.
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

from .report import Timings, goals, header, machine, measure, plot, ratio, row

NAMES = ("short", "long", "wordy", "headers", "traced", "mixed")
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
BATCH_SIZES = [16384, 1 << 20]
Row = tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]

_WORDS = [
    f"{word}-{number}" for word in ("flight", "gate", "delay", "carrier", "tail") for number in range(80)
]


def random_text(size: int, word_share: float) -> bytes:
    """Return `size` bytes of text: words with probability `word_share`, else random hexadecimal digits."""
    parts: list[str] = []
    length = 0
    while length < size:
        parts.append(random.choice(_WORDS) if random.random() < word_share else random.randbytes(6).hex())
        length += len(parts[-1]) + 1
    return ",".join(parts).encode()[:size]


def value_pool(size: int) -> list[bytes]:
    """Return random values of `size` bytes, from which the records of a data set are drawn.

    In batches of 16 KiB, snappy and lz4 compress the values by a factor of 1.2, and zstd by 2. In batches of
    1 MiB the factors are 1.3 and 6.
    """
    return [random_text(size, 0.3) for _ in range(300_000 // size)]


def data_set(name: str, size: int) -> list[Row]:
    """Return rows of about `size` bytes in total."""
    random.seed(name)
    rows: list[Row] = []
    pool = value_pool(100 if name == "short" else 1000)
    timestamp, total = 1_700_000_000_000, 0
    while total < size:
        timestamp += random.randrange(4)
        headers: list[tuple[str, bytes | None]] = []
        key: bytes | None = random.randbytes(10)
        value: bytes | None
        if name in ("short", "long"):
            value = bytes(bytearray(random.choice(pool)))  # a new object per record, as in an application
        elif name == "wordy":
            value = random_text(1000, 0.7)
        elif name in ("headers", "traced"):
            key, value = None, random_text(10, 0.3)
            trace = b"0af76519" if name == "headers" else random.randbytes(4).hex().encode()
            headers = [("trace", trace), ("kind", b"abc")]
        else:
            key = key if random.random() < 0.5 else None
            value = random_text(random.randrange(400), 0.3) if random.random() < 0.9 else None
        rows.append((timestamp, key, value, headers))
        total += 20 + len(key or b"") + len(value or b"") + 20 * len(headers)
    return rows


def encode_rows(rows: list[Row], codec: str, batch_size: int) -> bytes:
    """Encode rows by aiokafka's C builder, in batches of at most `batch_size` bytes before compression."""
    codec_id = CODECS.index(codec)
    batches: list[bytes] = []
    builder, base, count = AioBuilder(2, codec_id, 0, -1, -1, 0, batch_size), 0, 0

    def finish() -> None:
        batch = bytearray(builder.build())
        batch[:8] = base.to_bytes(8, "big")
        batches.append(bytes(batch))

    for timestamp, key, value, headers in rows:
        if builder.append(count, timestamp, key, value, headers) is None:
            finish()
            base, count = base + count, 0
            builder = AioBuilder(2, codec_id, 0, -1, -1, 0, batch_size)
            builder.append(count, timestamp, key, value, headers)
        count += 1
    finish()
    return b"".join(batches)


def read_kafka_python(data: bytes) -> int:
    records, count = KafkaRecords(data), 0
    while (batch := records.next_batch()) is not None:
        assert batch.validate_crc()
        for record in batch:
            _ = (record.offset, record.timestamp, record.key, record.value, record.headers)
            count += 1
    return count


def read_aiokafka(data: bytes) -> int:
    records, count = AioRecords(data), 0
    while (batch := records.next_batch()) is not None:
        assert batch.validate_crc()
        for record in batch:
            _ = (record.offset, record.timestamp, record.key, record.value, record.headers)
            count += 1
    return count


def read_kproto(data: bytes) -> int:
    count = 0
    for records in row_lists(data):
        for record in records:
            _ = (record.offset, record.timestamp, record.key, record.value, record.headers)
            count += 1
    return count


def read_columns_and_headers(data: bytes) -> None:
    columns(data).headers_array()


def build_kafka_python(rows: list[Row], batch_size: int) -> None:
    _build(lambda: KafkaBuilder(2, 0, 0, -1, -1, 0, batch_size), rows)


def build_aiokafka(rows: list[Row], batch_size: int) -> None:
    _build(lambda: AioBuilder(2, 0, 0, -1, -1, 0, batch_size), rows)


def _build(new_builder: Callable[[], Any], rows: list[Row]) -> None:
    builder, count = new_builder(), 0
    append = builder.append
    for timestamp, key, value, headers in rows:
        if append(count, timestamp, key, value, headers) is None:
            builder.build()
            builder, count = new_builder(), 0
            append = builder.append
            append(count, timestamp, key, value, headers)
        count += 1
    builder.build()


def build_kproto(rows: list[Row], batch_size: int) -> None:
    builder = BatchBuilder(max_bytes=batch_size)
    append = builder.append
    for timestamp, key, value, headers in rows:
        try:
            append(timestamp, key, value, headers)
        except BatchFull:
            builder.build()
            builder.clear()
            append(timestamp, key, value, headers)
    builder.build()


PEERS = {"kafka-python": "kafka-python", "aiokafka": "aiokafka's C"}
# (kproto's reader, peer) -> input -> speed relative to the peer
Ratios = dict[tuple[str, str], dict[str, float]]

# The time that each candidate runs in a round. It is so long that caches left cold by the previous candidate
# do not matter.
MIN_SECONDS = 0.03


def print_row(label: str, count: int, timings: Timings, ratios: Ratios) -> None:
    """Print the line of one input, and add its ratios to `ratios`."""
    cells: list[object] = []
    for name in (*PEERS, "rows", "columns"):
        cells.append(round(statistics.median(timings[name]) / count * 1e9) if name in timings else "-")
    for ours in ("rows", "columns"):
        for peer in PEERS:
            if ours in timings:
                value = ratio(timings, ours, peer)
                ratios.setdefault((ours, peer), {})[label] = value
                cells.append(value)
            else:
                cells.append("-")
    row(label, count, *cells)


def column_titles() -> list[str]:
    names = [*PEERS, "rows", "columns"]
    return ["input", "records", *names, *(f"{ours} x {peer}" for ours in names[2:] for peer in PEERS)]


def read_table(size: int, rounds: int, codecs: list[str], only: list[str]) -> Ratios:
    print("\n## Reading (ns per record)")
    header(*column_titles())
    ratios: Ratios = {}
    for name in NAMES:
        rows = data_set(name, size)
        for codec in codecs:
            for batch_size in BATCH_SIZES:
                data, count = encode_rows(rows, codec, batch_size), len(rows)
                assert read_kafka_python(data) == read_aiokafka(data) == count
                assert read_kproto(data) == len(columns(data)) == count
                candidates: dict[str, Callable[[], object]] = {
                    "kafka-python": partial(read_kafka_python, data),
                    "aiokafka": partial(read_aiokafka, data),
                    "rows": partial(read_kproto, data),
                    "columns": partial(read_columns_and_headers if name == "traced" else columns, data),
                }
                for ours in ("rows", "columns"):
                    if ours not in only:
                        del candidates[ours]
                timings = measure(candidates, rounds, MIN_SECONDS)
                print_row(f"{name} {codec} {batch_size >> 10}K", count, timings, ratios)
    return ratios


def build_table(size: int, rounds: int) -> Ratios:
    print("\n## Building, no compression (ns per record)")
    header(*column_titles())
    ratios: Ratios = {}
    for name in NAMES:
        rows = data_set(name, size)
        for batch_size in BATCH_SIZES:
            decoded = columns(encode_rows(rows, "none", batch_size))
            candidates: dict[str, Callable[[], object]] = {
                "kafka-python": partial(build_kafka_python, rows, batch_size),
                "aiokafka": partial(build_aiokafka, rows, batch_size),
                "rows": partial(build_kproto, rows, batch_size),
            }
            if not decoded.has_headers:  # encode_columns writes no headers.
                candidates["columns"] = partial(
                    encode_columns, decoded.timestamp, decoded.key, decoded.value, max_bytes=batch_size
                )
            timings = measure(candidates, rounds, MIN_SECONDS)
            print_row(f"build {name} {batch_size >> 10}K", len(rows), timings, ratios)
    return ratios


Mean = Callable[[Iterable[float]], float]
# The inputs for which the goals were set. The other inputs are harder.
GOAL_INPUTS = ("short", "long", "headers")


def _is_goal_input(name: str) -> bool:
    return name.startswith(GOAL_INPUTS)


def _is_uncompressed(name: str) -> bool:
    return "none" in name


def _has_no_headers(name: str) -> bool:
    return "headers" not in name and "traced" not in name


GOALS: list[tuple[str, str, str, Callable[[str], bool], Mean, str, float]] = [
    # (table, ours, peer, filter of inputs, mean, description of the inputs, required ratio)
    ("read", "rows", "kafka-python", lambda name: name.startswith("short none"), min, "short, none", 8),
    (
        "read",
        "rows",
        "kafka-python",
        lambda name: "gzip" not in name and "zstd" not in name,
        min,
        "each except gzip and zstd",
        4,
    ),
    (
        "read",
        "columns",
        "aiokafka",
        _is_goal_input,
        statistics.geometric_mean,
        "mean of short, long, headers",
        2,
    ),
    (
        "read",
        "columns",
        "aiokafka",
        _is_uncompressed,
        statistics.geometric_mean,
        "mean of all without compression",
        2,
    ),
    ("read", "columns", "aiokafka", lambda name: not _is_uncompressed(name), min, "each compressed", 1),
    ("build", "rows", "kafka-python", lambda name: name.startswith("build short"), min, "short", 3),
    ("build", "rows", "kafka-python", _has_no_headers, statistics.geometric_mean, "mean without headers", 3),
    ("build", "rows", "kafka-python", lambda name: True, min, "each", 1.8),
    ("build", "columns", "aiokafka", lambda name: True, min, "each", 1),
]


def print_goals(read: Ratios, build: Ratios) -> None:
    print("\n## Goals")
    lines: list[tuple[str, float, float]] = []
    for table, ours, peer, is_selected, mean, description, required in GOALS:
        ratios = (read if table == "read" else build).get((ours, peer), {})
        selected = [value for label, value in ratios.items() if is_selected(label)]
        if selected:
            lines.append((f"{table} {ours} x {PEERS[peer]}, {description}", mean(selected), required))
    goals(lines)


def draw_chart(path: Path, read: Ratios, build: Ratios, footnote: str) -> None:
    tables = {pair: read.get(pair, {}) | build.get(pair, {}) for pair in read | build}
    labels = list(dict.fromkeys(label for ratios in tables.values() for label in ratios))
    series = {
        f"{ours} x {PEERS[peer]}": [ratios.get(label, math.nan) for label in labels]
        for (ours, peer), ratios in tables.items()
    }
    plot(path, "Record batches: read and built", footnote, labels, series)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--megabytes", type=float, default=4)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--only", default="rows,columns,build")
    parser.add_argument("--codecs", default=",".join(CODECS))
    parser.add_argument(
        "--chart", type=Path, metavar="FILE", help="write a chart, such as benchmarks/records.svg"
    )
    arguments = parser.parse_args()
    only = arguments.only.split(",")
    optional = [name for name in ("isal", "zstandard") if find_spec(name)]
    footnote = machine("kafka-python", "aiokafka", "numpy", "pyarrow", "crc32c", "cramjam", *optional)
    print(footnote)
    size = int(arguments.megabytes * (1 << 20))
    read: Ratios = {}
    build: Ratios = {}
    if "rows" in only or "columns" in only:
        read = read_table(size, arguments.rounds, arguments.codecs.split(","), only)
    if "build" in only:
        build = build_table(size, arguments.rounds)
    print_goals(read, build)
    if arguments.chart:
        draw_chart(arguments.chart, read, build, footnote)


if __name__ == "__main__":
    main()
