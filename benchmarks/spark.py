"""Compare this Spark source with Spark's own Kafka source, and with a ceiling for every Python source.

    python -m benchmarks.spark                             with the embedded broker, which is then the limit
    python -m benchmarks.spark --kafka localhost:9092      with your broker, best not on the same cores
    python -m benchmarks.spark --kafka ... --jvm JARS      also Spark's own source, from a folder of jars
    python -m benchmarks.spark --kafka ... --alone         only the reader of this source, without a JVM
    python -m benchmarks.spark --bytes 1000 --only stream  larger records, and only one kind of work
    python -m benchmarks.spark --runs 11                   as in a query that has run for some time

The jars come from Maven: spark-sql-kafka-0-10_2.13, spark-token-provider-kafka-0-10_2.13 (the newest
versions), kafka-clients and commons-pool2, and spark-avro_2.13 for from_avro. The ceiling is a Python
source that repeats one Arrow batch, so it shows what Spark itself costs. Runs alternate in every order, and
the medians are shown, with the ratio to Spark's own source. On a shared machine the CPU seconds of the JVM
and of Python are more reliable than the wall time.

The JVM compiles during the first five or six turns. In each of them, the first action also pays for the
compilation of code that the other actions use. A stream of ten batches took 10, 2.6, 2.3 and then 1.6 s of
the JVM's CPU, of which 5.1, 1.6, 1.2 and 0.6 s were compilation. The median of eleven turns excludes these
turns.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import struct
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from functools import partial
from itertools import permutations
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from consumer import Admin, TopicPartition
from consumer.spark import session
from consumer.spark.options import parse
from consumer.spark.reader import KprotoReader
from consumer.spark.schema import full_schema
from kproto.records import encode_batch
from kproto.records.record import Record

from .report import machine

SPARKS_OWN = "Spark's own"
PARTITIONS = 2
BATCH_BYTES = 100_000  # The size of a record batch, as a busy producer sends it.
CACHED_BYTES = 200_000_000  # The total size of the values for the sink; they fit into Spark's heap of 1 GB.


class CeilingPartition(InputPartition):
    """A partition of the ceiling: how many rows of which size its task returns."""

    def __init__(self, rows: int, size: int, partition: int) -> None:
        super().__init__((rows, size, partition))


class CeilingReader(DataSourceReader):
    """Repeats one Arrow batch."""

    def __init__(self, schema: StructType, options: Any) -> None:
        self.schema, self.count, self.size = schema, int(options["rows"]), int(options["bytes"])
        self.max_rows = int(options.get("maxOffsetsPerTrigger", self.count))

    def partitions(self) -> list[InputPartition]:
        return [CeilingPartition(self.count // PARTITIONS, self.size, number) for number in range(PARTITIONS)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        rows, size, number = partition.value
        columns = {
            "key": [b"12345678"] * 10_000,
            "value": [b"x" * size] * 10_000,
            "topic": ["benchmark-1"] * 10_000,
            "partition": [number] * 10_000,
            "offset": list(range(10_000)),
            "timestamp": [1_700_000_000_000_000] * 10_000,
            "timestampType": [0] * 10_000,
        }
        schema = to_arrow_schema(self.schema, timezone="UTC")
        arrays = [pa.array(columns[field.name], field.type) for field in schema]
        batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
        for first in range(0, rows, 10_000):
            yield batch.slice(0, rows - first)


class CeilingStreamReader(CeilingReader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The stream reader of the ceiling. An offset is the number of rows returned so far."""

    def initialOffset(self) -> dict[str, int]:
        return {"rows": 0}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self.max_rows)

    def prepareForTriggerAvailableNow(self) -> None: ...

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        return {"rows": min(self.count, start["rows"] + self.max_rows)}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:  # type: ignore
        rows = (end["rows"] - start["rows"]) // PARTITIONS
        return [CeilingPartition(rows, self.size, number) for number in range(PARTITIONS)]


class Ceiling(DataSource):
    """A source that only returns prepared rows, the limit for every Python source."""

    @classmethod
    def name(cls) -> str:
        return "ceiling"

    def schema(self) -> str:
        return (
            "key binary, value binary, topic string, partition int, offset long, timestamp timestamp, "
            "timestampType int"
        )

    def reader(self, schema: StructType) -> DataSourceReader:
        return CeilingReader(schema, self.options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return CeilingStreamReader(schema, self.options)


def fill(
    bootstrap: str,
    topic: str,
    rows: int,
    size: int,
    partitions: int = PARTITIONS,
    batch_bytes: int = BATCH_BYTES,
) -> None:
    """Create a topic, and write the same record batch until each partition has its share of the rows."""
    now = time.time_ns() // 1_000_000
    count = max(1, batch_bytes // (size + 20))
    records = [
        Record(offset, now, b"%08d" % offset, (b"%d" % offset).ljust(size, b"x")) for offset in range(count)
    ]
    encoded = encode_batch(records)
    with Admin(bootstrap) as cluster:
        cluster.create_topics({topic: partitions})
        for partition in range(partitions):
            full_batches, remaining = divmod(rows // partitions, count)
            for _ in range(full_batches):
                cluster.produce(TopicPartition(topic, partition), encoded)
            if remaining:
                cluster.produce(TopicPartition(topic, partition), encode_batch(records[:remaining]))


FLIGHT = "id BIGINT, dest STRING, delay DOUBLE, late BOOLEAN, legs ARRAY<STRING>"


def write_flights(bootstrap: str, rows: int) -> dict[str, str]:
    """Write a thousand flights repeatedly as JSON and as Avro; return the topic of each format."""
    values: dict[str, list[bytes]] = {"json": [], "avro": []}
    for number in range(1000):
        dest, legs = f"airport-{number % 97}", ["JFK", "SFO"][: number % 3]
        delay, late = number / 7, number % 2 == 0
        flight = {"id": number, "dest": dest, "delay": delay, "late": late, "legs": legs}
        values["json"].append(json.dumps(flight).encode())
        avro = _zigzag(number) + b"\2" + _avro_string(dest) + struct.pack("<d", delay) + bytes([late])
        avro += (_zigzag(len(legs)) + b"".join(map(_avro_string, legs)) if legs else b"") + b"\0"
        values["avro"].append(avro)
    topics = {name: f"flights-{name}-{time.time_ns()}" for name in values}
    with Admin(bootstrap) as cluster:
        for name, topic in topics.items():
            cluster.create_topics({topic: PARTITIONS})
            now = time.time_ns() // 10**6  # With older timestamps, retention would delete the records.
            records = [Record(offset, now, None, value) for offset, value in enumerate(values[name])]
            batch = encode_batch(records)
            for number in range(rows // 1000):
                cluster.produce(TopicPartition(topic, number % PARTITIONS), batch)
    return topics


def _zigzag(number: int) -> bytes:
    """Encode a non-negative number as an Avro long."""
    value, encoded = number * 2, bytearray()
    while value > 127:
        encoded.append(value & 127 | 128)
        value >>= 7
    return bytes([*encoded, value])


def _avro_string(text: str) -> bytes:
    return _zigzag(len(text)) + text.encode()


AVRO = json.dumps(
    {
        "type": "record",
        "name": "Flight",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "dest", "type": ["null", "string"]},
            {"name": "delay", "type": "double"},
            {"name": "late", "type": "boolean"},
            {"name": "legs", "type": {"type": "array", "items": "string"}},
        ],
    }
)


def compare_values(spark: Any, formats: dict[str, str], bootstrap: str, rows: int, runs: int) -> None:
    """Compare columns decoded by the source with those that from_json and from_avro decode in the JVM."""
    from pyspark.sql import functions as f
    from pyspark.sql.avro.functions import from_avro

    rows -= rows % 1000
    topics = write_flights(bootstrap, rows)
    schema = {"json": FLIGHT, "avro": AVRO}
    jvm = {
        "json": lambda value: f.from_json(value.cast("string"), FLIGHT),
        "avro": lambda value: from_avro(value, AVRO),
    }

    def read(source: str, name: str, in_source: bool) -> None:
        options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topics[name]}
        if in_source:
            options |= {"value.format": name, "value.schema": schema[name]}
        frame = spark.read.format(source).options(**options).load()
        value = frame.value if in_source else jvm[name](frame.value)
        frame.select(value.alias("value")).select("value.*").write.format("noop").mode("overwrite").save()

    for name in topics:
        actions = {"kproto": partial(read, "kproto", name, True)}
        if SPARKS_OWN in formats:
            actions[SPARKS_OWN] = partial(read, formats[SPARKS_OWN], name, False)
        actions["kproto, JVM"] = partial(read, "kproto", name, False)
        try:
            measure(runs, rows, name, actions)
        except Exception as error:  # from_avro fails without the jar of spark-avro.
            print(f"{name}: {str(error)[:200]}")


def read_without_spark(bootstrap: str, topic: str, rows: int, runs: int) -> None:
    """Read a topic in this process, to measure fetching and decoding without Spark."""
    options = parse({"kafka.bootstrap.servers": bootstrap, "subscribe": topic})
    for _ in range(runs):
        reader = KprotoReader(full_schema(options), options)
        began, cpu = time.perf_counter(), time.process_time()
        count = sum(batch.num_rows for part in reader.partitions() for batch in reader.read(part))
        seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
        assert count == rows, (count, rows)
        print(f"read alone: {rows / seconds / 1e6:6.2f} M rows/s, {cpu / rows * 1e6:5.2f} CPU-s per M rows")


def cpu_seconds() -> dict[str, float]:
    """Return the CPU seconds of Spark's JVM and of all Python processes except brokers."""
    parents: dict[int, int] = {}
    processes: dict[int, tuple[str, int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, fields = stat.read_text().partition("(")[2].rsplit(")", 1)
        except (OSError, ValueError):
            continue
        numbers = fields.split()
        parents[int(stat.parent.name)] = int(numbers[1])
        processes[int(stat.parent.name)] = (
            "java" if name == "java" else "python",
            sum(map(int, numbers[11:15])),
        )
    size, descendants = 0, {os.getpid()}
    while len(descendants) > size:
        size = len(descendants)
        descendants |= {pid for pid, parent in parents.items() if parent in descendants}
    total = {"java": 0.0, "python": 0.0}
    for pid in descendants:
        kind, ticks = processes[pid]
        total[kind] += ticks / os.sysconf("SC_CLK_TCK")
    return total


def measure(runs: int, rows: int, label: str, actions: Mapping[str, Callable[[], Any]]) -> None:
    """Run all actions in turns, and print the medians and the ratios to Spark's own source."""
    timings: dict[str, list[tuple[float, float, float]]] = {name: [] for name in actions}
    # Orders alternate, because an action may collect the garbage of the previous one.
    orders = list(permutations(actions))
    for turn in range(runs + 1):
        for name in orders[turn % len(orders)]:
            act = actions[name]
            began, before = time.perf_counter(), cpu_seconds()
            act()
            seconds, after = time.perf_counter() - began, cpu_seconds()
            if turn:  # the first turn is a warm-up, whose times do not count
                spent = (after[kind] - before[kind] for kind in ("java", "python"))
                timings[name].append((seconds, *spent))  # type: ignore[arg-type]
    medians = {
        name: [statistics.median(column) for column in zip(*results, strict=True)]
        for name, results in timings.items()
    }
    for name, (seconds, java, python) in medians.items():
        ratios = ""
        if SPARKS_OWN in medians and name != SPARKS_OWN:
            own_seconds, own_java, own_python = medians[SPARKS_OWN]
            cpu = (java + python) / (own_java + own_python)
            ratios = f"  {own_seconds / seconds:5.2f} x as fast, {cpu:5.2f} x the CPU"
        million = rows / 1e6
        cost = f"{java / million:6.2f} + {python / million:5.2f} CPU-s per M rows (JVM + Python)"
        print(f"{label:<24} {name:<12} {million / seconds:6.2f} M rows/s, {cost}{ratios}", flush=True)


def compare_batches(sources: dict[str, Any], rows: int, runs: int) -> None:
    actions: dict[str, Callable[[Any], Any]] = {
        "noop": lambda frame: frame.write.format("noop").mode("overwrite").save(),
        "count": lambda frame: frame.count(),
        "sum(length)": lambda frame: frame.selectExpr("sum(length(value))").collect(),
        "mapInArrow": lambda frame: frame.mapInArrow(lambda batches: batches, frame.schema).count(),
        "mapInPandas": lambda frame: frame.mapInPandas(lambda frames: frames, frame.schema).count(),
    }
    for action, act in actions.items():
        measure(
            runs, rows, action, {name: partial(_load_and, act, reader) for name, reader in sources.items()}
        )


def _load_and(act: Callable[[Any], Any], reader: Any) -> None:
    act(reader.load())


def compare_streams(sources: dict[str, Any], rows: int, runs: int) -> None:
    def run(reader: Any) -> None:
        with tempfile.TemporaryDirectory() as checkpoint:
            stream = reader.option("startingOffsets", "earliest").load()
            sink = stream.writeStream.format("noop").option("checkpointLocation", checkpoint)
            query = sink.trigger(availableNow=True).start()
            query.awaitTermination()
            assert sum(progress["numInputRows"] for progress in query.recentProgress) == rows

    for limit in (None, rows // 10):
        actions = {
            name: partial(run, reader if limit is None else reader.option("maxOffsetsPerTrigger", limit))
            for name, reader in sources.items()
        }
        measure(runs, rows, "stream, one batch" if limit is None else "stream, ten batches", actions)


def compare_sinks(
    spark: Any, formats: dict[str, str], bootstrap: str, rows: int, size: int, runs: int
) -> None:
    """Measure batches of cached rows written to a topic. The broker's time is the same for all sinks."""
    rows = min(rows, CACHED_BYTES // size)
    with Admin(bootstrap) as cluster:
        topic = f"sink-{time.time_ns()}"
        cluster.create_topics({topic: PARTITIONS})
    value_sql = f"rpad(cast(id as string), {size}, 'x') value"
    frame = spark.range(rows).selectExpr("cast(id as string) key", value_sql).repartition(PARTITIONS).cache()
    frame.count()

    def write(source: str) -> None:
        sink = frame.write.format(source).option("kafka.bootstrap.servers", bootstrap).option("topic", topic)
        sink.mode("append").save()

    measure(runs, rows, "sink", {name: partial(write, source) for name, source in formats.items()})
    frame.unpersist()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--kafka", metavar="HOST:PORT")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--bytes", type=int, default=100)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--jvm", type=Path, metavar="JARS")
    parser.add_argument("--alone", action="store_true")
    parser.add_argument("--only", choices=("batch", "stream", "sink", "values"))
    arguments = parser.parse_args()
    from kproto.broker.server import running

    print(machine("pyspark", "pyarrow"))
    embedded: Any = running(topics={}) if arguments.kafka is None else nullcontext()
    with embedded as broker:
        bootstrap = arguments.kafka or broker.bootstrap
        topic = f"benchmark-{arguments.bytes}-{time.time_ns()}"
        fill(bootstrap, topic, arguments.rows, arguments.bytes)
        if arguments.alone:
            read_without_spark(bootstrap, topic, arguments.rows, arguments.runs)
            return
        settings = {"spark.jars": ",".join(map(str, arguments.jvm.glob("*.jar")))} if arguments.jvm else {}
        spark = session("benchmark", settings=settings)
        spark.dataSource.register(Ceiling)
        formats = {"kproto": "kproto", **({SPARKS_OWN: "kafka"} if arguments.jvm else {})}

        options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic}

        ceiling = spark.read.format("ceiling").option("rows", arguments.rows).option("bytes", arguments.bytes)
        if arguments.only in (None, "batch"):
            readers = {name: spark.read.format(source).options(**options) for name, source in formats.items()}
            compare_batches({**readers, "ceiling": ceiling}, arguments.rows, arguments.runs)
        if arguments.only in (None, "stream"):
            streams = {
                name: spark.readStream.format(source).options(**options) for name, source in formats.items()
            }
            ceiling_stream = (
                spark.readStream.format("ceiling")
                .option("rows", arguments.rows)
                .option("bytes", arguments.bytes)
            )
            compare_streams({**streams, "ceiling": ceiling_stream}, arguments.rows, arguments.runs)
        if arguments.only in (None, "sink"):
            compare_sinks(spark, formats, bootstrap, arguments.rows, arguments.bytes, arguments.runs)
        if arguments.only in (None, "values"):
            compare_values(spark, formats, bootstrap, arguments.rows, arguments.runs)
        spark.stop()


if __name__ == "__main__":
    main()
