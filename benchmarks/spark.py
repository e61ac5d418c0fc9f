"""How fast Spark reads Kafka: this source, a ceiling for any Python source, and Spark's own source.

    python -m benchmarks.spark                             on the embedded broker, which then sets the pace
    python -m benchmarks.spark --kafka localhost:9092      on a broker of your own, best not on the same cores
    python -m benchmarks.spark --kafka ... --jvm JARS      also Spark's own source, from a folder of jars
    python -m benchmarks.spark --kafka ... --alone         only this source's `read`, without a JVM
    python -m benchmarks.spark --bytes 1000 --only stream  larger records; only one kind of work
    python -m benchmarks.spark --runs 11                   as it is for a query that has run for a while

The jars are, from Maven: spark-sql-kafka-0-10_2.13 and spark-token-provider-kafka-0-10_2.13 (the newest
there are), kafka-clients and commons-pool2; and spark-avro_2.13 for from_avro. The ceiling is a Python source
that repeats one ready Arrow batch: what Spark itself costs. Runs are interleaved in every order, and the
median is shown, with the ratio of its speed to Spark's own source in the same run; on a shared machine CPU
seconds, of the JVM and of Python, say more than the clock.

The JVM compiles for the first five or six turns, and whatever comes first in a turn pays for the others: a
stream of ten batches took 10, 2.6, 2.3 and then 1.6 s of its CPU, of which 5.1, 1.6, 1.2 and then 0.6 were
the compiler's, and with the ceiling behind it 5.2, 2.3, 1.9 and 1.7. The median of eleven turns is past that.

`read` alone, from a real Kafka, CPU of interleaved pairs on a busy machine: 0.94 since runs of records are
found by their ends (five pairs, 0.86 to 1.0), and 0.935 of that since what was fetched is decoded where it
was received, and not copied first (nine pairs, 0.81 to 1.05). On a quiet one, records of 1 KB: 0.86 since the
reader is woken for a quarter of a MiB and headers are looked at once less (four pairs, 0.77 to 0.92), and
0.84 of that with fetches of 16 MiB for 8 (five pairs, 0.82 to 0.86; 32 won nothing). Lost: pieces of 0.5 to
4 MB checked, found and read one after the other, to stay in the cache: 1.0 to 1.4 times the time of 8 MiB at
once; batches of 1 to 4 MB for the JVM: 1.05 to 1.16.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import struct
import tempfile
import time
from collections.abc import Callable, Iterator
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

from consumer import Cluster, TopicPartition
from consumer.spark import session
from consumer.spark.options import parse
from consumer.spark.reader import KprotoReader
from consumer.spark.schema import full
from kproto.records import encode_batch
from kproto.records.record import Record

from .report import machine

SPARKS_OWN = "Spark's own"
PARTITIONS = 2
BATCH_BYTES = 100_000  # of one record batch, as a busy producer makes them
HELD_BYTES = 200_000_000  # of the values for the sink: Spark's heap of 1 GB keeps them


class Ready(InputPartition):
    def __init__(self, rows: int, size: int, partition: int) -> None:
        super().__init__((rows, size, partition))


class CeilingReader(DataSourceReader):
    def __init__(self, schema: StructType, options: Any) -> None:
        self.schema, self.count, self.size = schema, int(options["rows"]), int(options["bytes"])
        self.most = int(options.get("maxOffsetsPerTrigger", self.count))

    def partitions(self) -> list[InputPartition]:
        return [Ready(self.count // PARTITIONS, self.size, n) for n in range(PARTITIONS)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        rows, size, number = partition.value
        ready = {
            "key": [b"12345678"] * 10_000,
            "value": [b"x" * size] * 10_000,
            "topic": ["benchmark-1"] * 10_000,
            "partition": [number] * 10_000,
            "offset": list(range(10_000)),
            "timestamp": [1_700_000_000_000_000] * 10_000,
            "timestampType": [0] * 10_000,
        }
        schema = to_arrow_schema(self.schema, timezone="UTC")
        arrays = [pa.array(ready[field.name], field.type) for field in schema]
        batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
        for first in range(0, rows, 10_000):
            yield batch.slice(0, rows - first)


class CeilingStreamReader(CeilingReader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The same rows as a stream; an offset is how many of them were given."""

    def initialOffset(self) -> dict[str, int]:
        return {"rows": 0}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self.most)

    def prepareForTriggerAvailableNow(self) -> None: ...

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        return {"rows": min(self.count, start["rows"] + self.most)}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:  # type: ignore
        rows = (end["rows"] - start["rows"]) // PARTITIONS
        return [Ready(rows, self.size, n) for n in range(PARTITIONS)]


class Ceiling(DataSource):
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
    bootstrap: str, topic: str, rows: int, size: int, partitions: int = PARTITIONS, batch: int = BATCH_BYTES
) -> None:
    """The same record batch, again and again, until each partition has its share of the rows."""
    now = time.time_ns() // 1_000_000
    count = max(1, batch // (size + 20))
    records = [Record(i, now, b"%08d" % i, (b"%d" % i).ljust(size, b"x")) for i in range(count)]
    encoded = encode_batch(records)
    with Cluster(bootstrap) as cluster:
        cluster.create_topics({topic: partitions})
        for partition in range(partitions):
            whole, rest = divmod(rows // partitions, count)
            for _ in range(whole):
                cluster.produce(TopicPartition(topic, partition), encoded)
            if rest:
                cluster.produce(TopicPartition(topic, partition), encode_batch(records[:rest]))


FLIGHT = "id BIGINT, dest STRING, delay DOUBLE, late BOOLEAN, legs ARRAY<STRING>"


def flights(bootstrap: str, rows: int) -> dict[str, str]:
    """The same thousand flights, again and again, as JSON and as Avro: topics by format."""
    values: dict[str, list[bytes]] = {"json": [], "avro": []}
    for n in range(1000):
        dest, legs = f"airport-{n % 97}", ["JFK", "SFO"][: n % 3]
        one = {"id": n, "dest": dest, "delay": n / 7, "late": n % 2 == 0, "legs": legs}
        values["json"].append(json.dumps(one).encode())
        avro = _zigzag(n) + b"\2" + _text(dest) + struct.pack("<d", n / 7) + bytes([n % 2 == 0])
        avro += (_zigzag(len(legs)) + b"".join(map(_text, legs)) if legs else b"") + b"\0"
        values["avro"].append(avro)
    topics = {name: f"flights-{name}-{time.time_ns()}" for name in values}
    with Cluster(bootstrap) as cluster:
        for name, topic in topics.items():
            cluster.create_topics({topic: PARTITIONS})
            now = time.time_ns() // 10**6  # of the year 1970 a broker keeps nothing
            batch = encode_batch([Record(n, now, None, value) for n, value in enumerate(values[name])])
            for number in range(rows // 1000):
                cluster.produce(TopicPartition(topic, number % PARTITIONS), batch)
    return topics


def _zigzag(n: int) -> bytes:
    n, found = n * 2, bytearray()
    while n > 127:
        found.append(n & 127 | 128)
        n >>= 7
    return bytes([*found, n])


def _text(word: str) -> bytes:
    return _zigzag(len(word)) + word.encode()


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


def values(spark: Any, formats: dict[str, str], bootstrap: str, rows: int, runs: int) -> None:
    """Columns made by the source, beside those that from_json and from_avro of the JVM make of bytes."""
    from pyspark.sql import functions as f
    from pyspark.sql.avro.functions import from_avro

    rows -= rows % 1000
    topics = flights(bootstrap, rows)
    schema = {"json": FLIGHT, "avro": AVRO}
    jvm = {
        "json": lambda value: f.from_json(value.cast("string"), FLIGHT),
        "avro": lambda v: from_avro(v, AVRO),
    }

    def read(form: str, name: str, inside: bool) -> None:
        given = {"kafka.bootstrap.servers": bootstrap, "subscribe": topics[name]}
        if inside:
            given |= {"value.format": name, "value.schema": schema[name]}
        frame = spark.read.format(form).options(**given).load()
        value = frame.value if inside else jvm[name](frame.value)
        frame.select(value.alias("value")).select("value.*").write.format("noop").mode("overwrite").save()

    for name in topics:
        ways = {"kproto": partial(read, "kproto", name, True)}
        ways |= {kind: partial(read, form, name, False) for kind, form in formats.items() if kind != "kproto"}
        ways["kproto, JVM"] = partial(read, "kproto", name, False)
        try:
            measure(runs, rows, name, ways)
        except Exception as error:  # from_avro without its jar
            print(f"{name}: {str(error)[:200]}")


def alone(bootstrap: str, topic: str, rows: int, runs: int) -> None:
    """`read` in this process: what fetching and decoding cost without Spark."""
    options = parse({"kafka.bootstrap.servers": bootstrap, "subscribe": topic})
    for _ in range(runs):
        reader = KprotoReader(full(options), options)
        began, cpu = time.perf_counter(), time.process_time()
        found = sum(batch.num_rows for part in reader.partitions() for batch in reader.read(part))
        took, cpu = time.perf_counter() - began, time.process_time() - cpu
        assert found == rows, (found, rows)
        print(f"read alone: {rows / took / 1e6:6.2f} M rows/s, {cpu / rows * 1e6:5.2f} CPU-s per M rows")


def cpu_seconds() -> dict[str, float]:
    """What the JVM below this process, and the Python below that, have used. The broker isn't among them."""
    parents: dict[int, int] = {}
    used: dict[int, tuple[str, int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, fields = stat.read_text().partition("(")[2].rsplit(")", 1)
        except (OSError, ValueError):
            continue
        numbers = fields.split()
        parents[int(stat.parent.name)] = int(numbers[1])
        used[int(stat.parent.name)] = ("java" if name == "java" else "python", sum(map(int, numbers[11:15])))
    found, ours = 0, {os.getpid()}
    while len(ours) > found:
        found = len(ours)
        ours |= {pid for pid, parent in parents.items() if parent in ours}
    total = {"java": 0.0, "python": 0.0}
    for pid in ours:
        kind, ticks = used[pid]
        total[kind] += ticks / os.sysconf("SC_CLK_TCK")
    return total


def measure(runs: int, rows: int, label: str, what: dict[str, Callable[[], Any]]) -> None:
    """Run all of them in turns and print the medians, and ratios to Spark's own."""
    took: dict[str, list[tuple[float, float, float]]] = {name: [] for name in what}
    orders = list(permutations(what))  # the next one collects the garbage of the one before it
    for turn in range(runs + 1):
        for name in orders[turn % len(orders)]:
            act = what[name]
            began, before = time.perf_counter(), cpu_seconds()
            act()
            seconds, after = time.perf_counter() - began, cpu_seconds()
            if turn:  # the first one warms up
                spent = (after[kind] - before[kind] for kind in ("java", "python"))
                took[name].append((seconds, *spent))  # type: ignore[arg-type]
    middle = {
        name: [statistics.median(each) for each in zip(*runs, strict=True)] for name, runs in took.items()
    }
    for name, (seconds, java, python) in middle.items():
        ratios = ""
        if SPARKS_OWN in middle and name != SPARKS_OWN:
            other = middle[SPARKS_OWN]
            cpu = (java + python) / (other[1] + other[2])
            ratios = f"  {other[0] / seconds:5.2f} x as fast, {cpu:5.2f} x the CPU"
        million = rows / 1e6
        cost = f"{java / million:6.2f} + {python / million:5.2f} CPU-s per M rows (JVM + Python)"
        print(f"{label:<24} {name:<12} {million / seconds:6.2f} M rows/s, {cost}{ratios}", flush=True)


def batches(spark: Any, sources: dict[str, Any], rows: int, runs: int) -> None:
    actions: dict[str, Callable[[Any], Any]] = {
        "noop": lambda frame: frame.write.format("noop").mode("overwrite").save(),
        "count": lambda frame: frame.count(),
        "sum(length)": lambda frame: frame.selectExpr("sum(length(value))").collect(),
        "mapInArrow": lambda frame: frame.mapInArrow(lambda batches: batches, frame.schema).count(),
        "mapInPandas": lambda frame: frame.mapInPandas(lambda frames: frames, frame.schema).count(),
    }
    for action, act in actions.items():
        measure(runs, rows, action, {name: partial(_act, act, reader) for name, reader in sources.items()})


def _act(act: Callable[[Any], Any], reader: Any) -> None:
    act(reader.load())


def streams(spark: Any, sources: dict[str, Any], rows: int, runs: int) -> None:
    def run(reader: Any) -> None:
        with tempfile.TemporaryDirectory() as checkpoint:
            stream = reader.option("startingOffsets", "earliest").load()
            sink = stream.writeStream.format("noop").option("checkpointLocation", checkpoint)
            query = sink.trigger(availableNow=True).start()
            query.awaitTermination()
            assert sum(p["numInputRows"] for p in query.recentProgress) == rows

    for limit in (None, rows // 10):
        named = {
            name: partial(run, reader if limit is None else reader.option("maxOffsetsPerTrigger", limit))
            for name, reader in sources.items()
        }
        measure(runs, rows, "stream, one batch" if limit is None else "stream, ten batches", named)


def sinks(spark: Any, formats: dict[str, str], bootstrap: str, rows: int, size: int, runs: int) -> None:
    """Rows that Spark made and holds, written as a batch. The broker's part is the same for both."""
    rows = min(rows, HELD_BYTES // size)
    with Cluster(bootstrap) as cluster:
        topic = f"sink-{time.time_ns()}"
        cluster.create_topics({topic: PARTITIONS})
    text = f"rpad(cast(id as string), {size}, 'x') value"
    frame = spark.range(rows).selectExpr("cast(id as string) key", text).repartition(PARTITIONS).cache()
    frame.count()

    def write(form: str) -> None:
        sink = frame.write.format(form).option("kafka.bootstrap.servers", bootstrap).option("topic", topic)
        sink.mode("append").save()

    measure(runs, rows, "sink", {name: partial(write, form) for name, form in formats.items()})
    frame.unpersist()


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    arguments.add_argument("--kafka", metavar="HOST:PORT")
    arguments.add_argument("--rows", type=int, default=1_000_000)
    arguments.add_argument("--bytes", type=int, default=100)
    arguments.add_argument("--runs", type=int, default=3)
    arguments.add_argument("--jvm", type=Path, metavar="JARS")
    arguments.add_argument("--alone", action="store_true")
    arguments.add_argument("--only", choices=("batch", "stream", "sink", "values"))
    given = arguments.parse_args()
    from kproto.broker.server import running

    print(machine("pyspark", "pyarrow"))
    embedded: Any = running(topics={}) if given.kafka is None else nullcontext()
    with embedded as broker:
        bootstrap = given.kafka or broker.bootstrap
        topic = f"benchmark-{given.bytes}-{time.time_ns()}"
        fill(bootstrap, topic, given.rows, given.bytes)
        if given.alone:
            alone(bootstrap, topic, given.rows, given.runs)
            return
        settings = {"spark.jars": ",".join(map(str, given.jvm.glob("*.jar")))} if given.jvm else {}
        spark = session("benchmark", settings=settings)
        spark.dataSource.register(Ceiling)
        formats = {"kproto": "kproto", **({SPARKS_OWN: "kafka"} if given.jvm else {})}

        where = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic}

        ceiling = spark.read.format("ceiling").option("rows", given.rows).option("bytes", given.bytes)
        if given.only in (None, "batch"):
            batch = {name: spark.read.format(form).options(**where) for name, form in formats.items()}
            batches(spark, {**batch, "ceiling": ceiling}, given.rows, given.runs)
        if given.only in (None, "stream"):
            stream = {name: spark.readStream.format(form).options(**where) for name, form in formats.items()}
            repeated = (
                spark.readStream.format("ceiling").option("rows", given.rows).option("bytes", given.bytes)
            )
            streams(spark, {**stream, "ceiling": repeated}, given.rows, given.runs)
        if given.only in (None, "sink"):
            sinks(spark, formats, bootstrap, given.rows, given.bytes, given.runs)
        if given.only in (None, "values"):
            values(spark, formats, bootstrap, given.rows, given.runs)
        spark.stop()


if __name__ == "__main__":
    main()
