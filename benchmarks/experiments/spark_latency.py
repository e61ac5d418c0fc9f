"""Measure the time from producing a record to its row in foreachBatch, one record at a time.

    python -m benchmarks.experiments.spark_latency [--kafka HOST:PORT] [--jvm JARS] [--plain]

It uses the embedded broker unless `--kafka` names one. `--jvm` adds Spark's own source; `benchmarks.spark`
says which jars it needs. `--plain` uses Spark's default settings instead of those of `session()`.

The ceiling is a Python source that fetches nothing: its log is a file that grows by one byte per record. No
Python source can be faster. Queries run in turns. Below each median are the medians of the parts of a batch
that Spark reports in the progress of a query.
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

from consumer import Cluster, TopicPartition
from consumer.spark import register, session
from kproto.records import encode_batch
from kproto.records.record import Record

from ..report import machine
from ..spark import SPARKS_OWN

CEILING = "ceiling"
PARTS = ("latestOffset", "queryPlanning", "walCommit", "addBatch", "commitOffsets", "triggerExecution")


class FileReader(DataSourceStreamReader):
    """An offset is the size of the file; each of its bytes is a row."""

    def __init__(self, schema: StructType, path: str) -> None:
        self.schema, self.path = schema, path

    def initialOffset(self) -> dict[str, int]:
        return {"rows": 0}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # type: ignore[override]
        return {"rows": os.stat(self.path).st_size}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:  # type: ignore
        return [InputPartition((start["rows"], end["rows"]))]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        first, last = partition.value
        offsets = list(range(first, last))
        schema = to_arrow_schema(self.schema, timezone="UTC")
        yield pa.RecordBatch.from_arrays([pa.array(offsets, schema.field(0).type)], schema=schema)


class File(DataSource):
    @classmethod
    def name(cls) -> str:
        return "bytes-of-a-file"

    def schema(self) -> str:
        return "offset long"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return FileReader(schema, self.options["path"])


def latency(spark: Any, formats: dict[str, str], bootstrap: str, runs: int, count: int = 20) -> None:
    """Print the medians of all formats and of the ceiling, and the ratios to Spark's own source."""
    spark.dataSource.register(File)
    names = {**formats, CEILING: File.name()}
    took: dict[str, list[float]] = {name: [] for name in names}
    parts: dict[str, list[dict[str, int]]] = {name: [] for name in names}
    for turn in range(runs + 1):
        for name, form in names.items():
            found, spent = _latencies(spark, form, bootstrap, count)
            if turn:  # the first one warms up
                took[name] += found[count // 4 :]
                parts[name] += spent[count // 4 :]
    middle = {name: statistics.median(each) * 1000 for name, each in took.items()}
    for name, ms in middle.items():
        own = middle.get(SPARKS_OWN)
        ratio = "" if own is None or name == SPARKS_OWN else f", {ms / own:.2f} x Spark's own"
        print(f"latency, {name:<12} {ms:6.0f} ms, median of {len(took[name])}{ratio}", flush=True)
        spent = {part: statistics.median(one.get(part, 0) for one in parts[name]) for part in PARTS}
        print("  of that " + ", ".join(f"{part} {ms:.0f}" for part, ms in spent.items()), flush=True)


def _grow(log: Path) -> None:
    with log.open("ab") as file:
        file.write(b"x")


def _latencies(spark: Any, form: str, bootstrap: str, count: int) -> tuple[list[float], list[dict[str, int]]]:
    """Seconds from record to row, of one query, and the parts of its batches."""
    with tempfile.TemporaryDirectory() as folder, Cluster(bootstrap) as cluster:
        write: Callable[[], object]
        if form == File.name():
            log = Path(folder, "log")
            log.touch()
            given, write = {"path": str(log)}, partial(_grow, log)
        else:
            topic = f"latency-{form}-{time.time_ns()}"
            cluster.create_topics({topic: 1})
            given = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
            one = encode_batch([Record(0, time.time_ns() // 10**6, None, b"x")])

            def write() -> object:
                return cluster.produce(TopicPartition(topic, 0), one)

        seen: list[int] = []

        def see(frame: Any, _: int) -> None:
            seen.extend(row["offset"] for row in frame.select("offset").collect())

        stream = spark.readStream.format(form).options(**given).load()
        sink = stream.writeStream.foreachBatch(see).option("checkpointLocation", f"{folder}/checkpoint")
        query = sink.trigger(processingTime="0 seconds").start()
        took: list[float] = []
        for n in range(count):
            began = time.perf_counter()
            write()
            while len(seen) <= n and query.isActive:
                time.sleep(0.001)
            took.append(time.perf_counter() - began)
            time.sleep(0.05)
        spent = [dict(p["durationMs"]) for p in query.recentProgress if p["numInputRows"]]
        query.stop()
        assert len(seen) == count, query.exception()
    return took, spent


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    arguments.add_argument("--kafka", metavar="HOST:PORT")
    arguments.add_argument("--runs", type=int, default=3)
    arguments.add_argument("--jvm", type=Path, metavar="JARS")
    arguments.add_argument("--plain", action="store_true")
    arguments.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="of Spark")
    given = arguments.parse_args()
    from kproto.broker.server import running

    print(machine("pyspark", "pyarrow"))
    settings = {"spark.jars": ",".join(map(str, given.jvm.glob("*.jar")))} if given.jvm else {}
    settings |= dict(one.split("=", 1) for one in given.set)
    embedded: Any = running(topics={}) if given.kafka is None else nullcontext()
    with embedded as broker:
        if given.plain:
            from pyspark.sql import SparkSession

            builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
            for name, value in settings.items():
                builder = builder.config(name, value)
            spark = builder.getOrCreate()
            register(spark)
        else:
            spark = session("latency", settings=settings)
        formats = {"kproto": "kproto", **({SPARKS_OWN: "kafka"} if given.jvm else {})}
        latency(spark, formats, given.kafka or broker.bootstrap, given.runs)
        spark.stop()


if __name__ == "__main__":
    main()
