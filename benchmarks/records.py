"""Record batches: kproto's rows, columns and builders against kafka-python 3 and aiokafka's C parser.

    python -m benchmarks.records [--megabytes 4] [--rounds 9] [--only rows,columns,build] [--codecs none,lz4]

Every round runs all candidates, in rotating order, in one thread, timed by that thread's own CPU clock. A
figure is the median over the rounds, a ratio ("x") the median of the ratios within a round, above 1 where
kproto is faster. The inputs are made by aiokafka's C builder. CRCs are checked by everyone. A row counts as
read when its offset, timestamp, key, value and headers were there as Python objects; kproto hands rows out in
lists of 500, as a poll does. In columns, headers are not parsed.

    short    key 10 bytes, value 100 bytes
    long     key 10 bytes, value 1000 bytes
    headers  no key, value 10 bytes, two headers
    mixed    null keys and values, values of 0 to 400 bytes

Goals: rows at least 8 times kafka-python (short, no compression); columns at least 2 times aiokafka's C
parser in the geometric mean at 4 MB and more; building from rows 3 times kafka-python, and from columns as
fast as aiokafka's C builder.
"""

from __future__ import annotations

import argparse
import platform
import random
import statistics
import time
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from typing import Any

from aiokafka.record.default_records import DefaultRecordBatchBuilder as AioBuilder
from aiokafka.record.memory_records import MemoryRecords as AioRecords
from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaBuilder
from kafka.record.memory_records import MemoryRecords as KafkaRecords

from kproto.records import BatchBuilder, row_lists
from kproto.records.columns import columns, encode_columns

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
BATCH_SIZES = [16384, 1 << 20]
Row = tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]

_WORDS = [
    f"{word}-{number}" for word in ("flight", "gate", "delay", "carrier", "tail") for number in range(80)
]


def text(size: int) -> bytes:
    """Bytes that compress about as well as JSON does: by 2 to 3."""
    parts: list[str] = []
    length = 0
    while length < size:
        parts.append(random.choice(_WORDS) if random.random() < 0.7 else str(random.random()))
        length += len(parts[-1]) + 1
    return ",".join(parts).encode()[:size]


def data_set(name: str, size: int) -> list[Row]:
    """About `size` bytes of rows."""
    random.seed(name)
    found: list[Row] = []
    moment, total = 1_700_000_000_000, 0
    while total < size:
        moment += random.randrange(4)
        headers: list[tuple[str, bytes | None]] = []
        key: bytes | None = random.randbytes(10)
        value: bytes | None
        if name == "short":
            value = text(100)
        elif name == "long":
            value = text(1000)
        elif name == "headers":
            key, value = None, text(10)
            headers = [("trace", b"0af76519"), ("kind", b"abc")]
        else:
            key = key if random.random() < 0.5 else None
            value = text(random.randrange(400)) if random.random() < 0.9 else None
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
        if not append(moment, key, value, headers):
            builder.build()
            builder.clear()
            append(moment, key, value, headers)
    builder.build()


def measure(candidates: dict[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """CPU seconds of every candidate in every round."""
    names = list(candidates)
    taken: dict[str, list[float]] = {name: [] for name in names}
    for name in names:
        candidates[name]()
    for turn in range(rounds):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            start = time.thread_time()
            candidates[name]()
            taken[name].append(time.thread_time() - start)
    return taken


def ratio(taken: dict[str, list[float]], ours: str, theirs: str) -> float:
    return statistics.median(their / our for our, their in zip(taken[ours], taken[theirs], strict=True))


def _machine() -> str:
    try:
        with open("/proc/cpuinfo") as info:
            model = next(line.split(":")[1].strip() for line in info if line.startswith("model name"))
    except (OSError, StopIteration):
        model = platform.processor() or platform.machine()
    packages = ("kafka-python", "aiokafka", "numpy", "pyarrow", "crc32c", "cramjam")
    return f"{model}; Python {platform.python_version()}; " + ", ".join(f"{p} {version(p)}" for p in packages)


def _table(columns_: str) -> None:
    print(f"\n| {columns_.replace(',', ' |')} |\n" + "|---" * len(columns_.split(",")) + "|")


_RATIOS = "rows x kafka-python, rows x aiokafka, columns x kafka-python, columns x aiokafka"


def _cells(taken: dict[str, list[float]], count: int) -> str:
    """The figures of one line: ns per record of all candidates, and the ratios."""
    cells = [
        f"{statistics.median(taken[name]) / count * 1e9:.0f}" if name in taken else "-"
        for name in ("kafka-python", "aiokafka", "rows", "columns")
    ]
    cells += [
        f"{ratio(taken, ours, theirs):.2f}" if ours in taken else "-"
        for ours in ("rows", "columns")
        for theirs in ("kafka-python", "aiokafka")
    ]
    return " | ".join(cells)


def read_table(size: int, rounds: int, codecs: list[str], only: list[str]) -> None:
    print("\n## Reading (ns per record)")
    _table(f"data, codec, batch, records, kafka-python, aiokafka C, rows, columns, {_RATIOS}")
    means: dict[str, list[float]] = {"rows": [], "columns": []}
    for name in ("short", "long", "headers", "mixed"):
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
                    "columns": partial(columns, data),
                }
                for ours in means:
                    if ours not in only:
                        del candidates[ours]
                taken = measure(candidates, rounds)
                for ours, ratios in means.items():
                    if ours in taken:
                        ratios.append(ratio(taken, ours, "aiokafka"))
                line = f"| {name} | {codec} | {batch_size >> 10}K | {count} | {_cells(taken, count)} |"
                print(line, flush=True)
    for ours, ratios in means.items():
        if ratios:
            mean = statistics.geometric_mean(ratios)
            print(f"\nGeometric mean of {ours} x aiokafka's C parser: {mean:.2f}")


def build_table(size: int, rounds: int) -> None:
    print("\n## Building, no compression (ns per record)")
    _table(f"data, batch, records, kafka-python, aiokafka C, rows, columns, {_RATIOS}")
    for name in ("short", "long", "headers", "mixed"):
        found = data_set(name, size)
        for batch_size in BATCH_SIZES:
            read = columns(encoded(found, "none", batch_size))
            candidates: dict[str, Callable[[], object]] = {
                "kafka-python": partial(build_kafka_python, found, batch_size),
                "aiokafka": partial(build_aiokafka, found, batch_size),
                "rows": partial(build_kproto, found, batch_size),
            }
            if name != "headers":  # headers are no column
                candidates["columns"] = partial(
                    encode_columns, read.timestamp, read.key, read.value, max_bytes=batch_size
                )
            taken = measure(candidates, rounds)
            count = len(found)
            print(f"| {name} | {batch_size >> 10}K | {count} | {_cells(taken, count)} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--megabytes", type=float, default=4)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--only", default="rows,columns,build")
    parser.add_argument("--codecs", default=",".join(CODECS))
    given = parser.parse_args()
    only = given.only.split(",")
    print(_machine())
    size = int(given.megabytes * (1 << 20))
    if "rows" in only or "columns" in only:
        read_table(size, given.rounds, given.codecs.split(","), only)
    if "build" in only:
        build_table(size, given.rounds)


if __name__ == "__main__":
    main()
