"""Measure the time from producing a record to its row in foreachBatch, one record at a time.

    python -m benchmarks.experiments.spark_latency [--kafka HOST:PORT] [--jvm JARS] [--plain]

The benchmark uses the embedded broker unless `--kafka` names another broker. `--jvm` adds Spark's own source;
`benchmarks.spark` says which jars it needs. `--plain` uses Spark's default settings instead of those of
`session()`.

The ceiling is a Python source that fetches nothing: it reads the size of a file that grows by one byte per
record. No Python source can be faster. Queries run in turns. Below each median are the medians of the parts
of a batch that Spark reports in the progress of a query.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit
from pyspark.sql.types import StructType

from consumer import Admin, TopicPartition
from consumer.spark import register, session
from kproto.records import encode_batch
from kproto.records.record import Record

from ..report import machine
from ..spark import SPARKS_OWN

CEILING = "ceiling"
PARTS = ("latestOffset", "queryPlanning", "walCommit", "addBatch", "commitOffsets", "triggerExecution")


class FileReader(DataSourceStreamReader):
    """A reader of a file in which each byte is a row. An offset is the size of the file."""

    def __init__(self, schema: StructType, path: str) -> None:
        self.schema, self.path = schema, path

    def initialOffset(self) -> dict[str, int]:
        return {"rows": 0}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        return {"rows": os.stat(self.path).st_size}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        return [InputPartition((start["rows"], end["rows"]))]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        first, last = partition.value
        offsets = list(range(first, last))
        schema = to_arrow_schema(self.schema, timezone="UTC")
        yield pa.RecordBatch.from_arrays([pa.array(offsets, schema.field(0).type)], schema=schema)


class File(DataSource):
    """A source that fetches nothing, the limit for every Python source."""

    @classmethod
    def name(cls) -> str:
        return "bytes-of-a-file"

    def schema(self) -> str:
        return "offset long"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return FileReader(schema, self.options["path"])


def compare_latency(spark: Any, formats: dict[str, str], bootstrap: str, runs: int, count: int = 20) -> None:
    """Print the median of each source and of the ceiling, and the ratio to Spark's own source."""
    spark.dataSource.register(File)
    sources = {**formats, CEILING: File.name()}
    latencies: dict[str, list[float]] = {name: [] for name in sources}
    parts: dict[str, list[dict[str, int]]] = {name: [] for name in sources}
    for turn in range(runs + 1):
        for name, source in sources.items():
            seconds, durations = _measure(spark, source, bootstrap, count)
            if turn:  # the first turn is a warm-up, whose times do not count
                latencies[name] += seconds[count // 4 :]
                parts[name] += durations[count // 4 :]
    medians = {name: statistics.median(seconds) * 1000 for name, seconds in latencies.items()}
    for name, ms in medians.items():
        own = medians.get(SPARKS_OWN)
        ratio = "" if own is None or name == SPARKS_OWN else f", {ms / own:.2f} x Spark's own"
        print(f"latency, {name:<12} {ms:6.0f} ms, median of {len(latencies[name])}{ratio}", flush=True)
        part_medians = {
            part: statistics.median(durations.get(part, 0) for durations in parts[name]) for part in PARTS
        }
        print("  parts: " + ", ".join(f"{part} {ms:.0f}" for part, ms in part_medians.items()), flush=True)


def _append_byte(log: Path) -> None:
    with log.open("ab") as file:
        file.write(b"x")


def _measure(spark: Any, source: str, bootstrap: str, count: int) -> tuple[list[float], list[dict[str, int]]]:
    """Run one query; return the seconds from each record to its row, and the parts of each batch in ms."""
    with tempfile.TemporaryDirectory() as folder, Admin(bootstrap) as cluster:
        write: Callable[[], object]
        if source == File.name():
            log = Path(folder, "log")
            log.touch()
            options, write = {"path": str(log)}, partial(_append_byte, log)
        else:
            topic = f"latency-{source}-{time.time_ns()}"
            cluster.create_topics({topic: 1})
            options = {
                "kafka.bootstrap.servers": bootstrap,
                "subscribe": topic,
                "startingOffsets": "earliest",
            }
            batch = encode_batch([Record(0, time.time_ns() // 10**6, None, b"x")])

            def write() -> object:
                return cluster.produce(TopicPartition(topic, 0), batch)

        offsets: list[int] = []

        def collect(frame: Any, _: int) -> None:
            offsets.extend(row["offset"] for row in frame.select("offset").collect())

        stream = spark.readStream.format(source).options(**options).load()
        sink = stream.writeStream.foreachBatch(collect).option("checkpointLocation", f"{folder}/checkpoint")
        query = sink.trigger(processingTime="0 seconds").start()
        latencies: list[float] = []
        for number in range(count):
            began = time.perf_counter()
            write()
            while len(offsets) <= number and query.isActive:
                time.sleep(0.001)
            latencies.append(time.perf_counter() - began)
            time.sleep(0.05)
        durations = [
            dict(progress["durationMs"]) for progress in query.recentProgress if progress["numInputRows"]
        ]
        query.stop()
        assert len(offsets) == count, query.exception()
    return latencies, durations


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--kafka", metavar="HOST:PORT")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--jvm", type=Path, metavar="JARS")
    parser.add_argument("--plain", action="store_true")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a setting of Spark")
    arguments = parser.parse_args()
    from kproto.broker.server import running

    print(machine("pyspark", "pyarrow"))
    settings = {"spark.jars": ",".join(map(str, arguments.jvm.glob("*.jar")))} if arguments.jvm else {}
    settings |= dict(setting.split("=", 1) for setting in arguments.set)
    embedded: Any = running(topics={}) if arguments.kafka is None else nullcontext()
    with embedded as broker:
        if arguments.plain:
            from pyspark.sql import SparkSession

            builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
            for name, value in settings.items():
                builder = builder.config(name, value)
            spark = builder.getOrCreate()
            register(spark)
        else:
            spark = session("latency", settings=settings)
        formats = {"kproto": "kproto", **({SPARKS_OWN: "kafka"} if arguments.jvm else {})}
        compare_latency(spark, formats, arguments.kafka or broker.bootstrap, arguments.runs)
        spark.stop()


if __name__ == "__main__":
    main()
