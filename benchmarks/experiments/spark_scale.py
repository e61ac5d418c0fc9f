"""Measure how the Spark source scales: planning, reading with many partitions and slots, memory of a worker.

    python -m benchmarks.experiments.spark_scale --kafka HOST:PORT --jvm JARS            everything
    python -m benchmarks.experiments.spark_scale --kafka HOST:PORT --only memory --gigabytes 5

`benchmarks.spark` says which jars are needed, and how times and ratios are measured.
"""

from __future__ import annotations

import argparse
import os
import pickle
import statistics
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable

from consumer import Admin
from consumer.spark import session
from consumer.spark.offsets import Offsets
from consumer.spark.options import parse
from consumer.spark.reader import KprotoReader
from consumer.spark.schema import full_schema
from consumer.spark.stream import KprotoStreamReader

from ..report import machine
from ..spark import SPARKS_OWN, fill, measure

COUNTS = (1, 10, 100, 1_000)
SLOTS = (1, 2, 4)
ROUNDS = 30


def topic_name(count: int, size: int = 100) -> str:
    return f"scale-{count}-{size}-{time.time_ns()}"


def measure_planning(bootstrap: str) -> None:
    """Measure what Spark waits for before a batch has tasks: end offsets, and pickled input partitions."""
    for count in COUNTS:
        topic = topic_name(count)
        fill(bootstrap, topic, count, 100, count)
        options = parse({"kafka.bootstrap.servers": bootstrap, "subscribe": topic})
        stream = KprotoStreamReader(full_schema(options), options)
        first = Offsets.from_json(stream.latestOffset({}, ReadAllAvailable()))
        start = Offsets(dict.fromkeys(first.positions, 0), first.ids).to_json()
        planners: dict[str, Callable[[], Any]] = {"stream": partial(_plan_stream, stream, start)}
        planners["batch"] = KprotoReader(full_schema(options), options).partitions
        for name, plan in planners.items():
            wall_seconds, cpu_seconds = list[float](), list[float]()
            for _ in range(ROUNDS):
                wall, cpu = time.perf_counter(), time.process_time()
                pickled = [pickle.dumps(partition) for partition in plan()]
                wall_seconds.append(time.perf_counter() - wall)
                cpu_seconds.append(time.process_time() - cpu)
                assert len(pickled) == count
            wall, cpu = (statistics.median(seconds) * 1000 for seconds in (wall_seconds, cpu_seconds))
            print(f"plan a {name} of {count:>5} partitions: {wall:6.1f} ms, {cpu:6.1f} ms of CPU")
        stream.stop()


def _plan_stream(stream: KprotoStreamReader, start: dict[str, Any]) -> list[InputPartition]:
    return stream.partitions(start, stream.latestOffset(start, ReadAllAvailable()))


def measure_reading(
    bootstrap: str, formats: dict[str, str], settings: dict[str, str], rows: int, runs: int
) -> None:
    """Read the same number of rows from 1 to 1,000 partitions, with 1 to 4 task slots."""
    topics = {count: topic_name(count) for count in COUNTS}
    for count, topic in topics.items():
        fill(bootstrap, topic, rows, 100, count)
    for slots in SLOTS:
        spark = session("scale", cores=slots, settings=settings)
        for count, topic in topics.items():
            options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic}
            frames = {
                name: spark.read.format(source).options(**options).load() for name, source in formats.items()
            }
            actions = {
                name: frame.write.format("noop").mode("overwrite").save for name, frame in frames.items()
            }
            measure(runs, rows, f"{slots} slots, {count} partitions", actions)
        spark.stop()


def measure_memory(bootstrap: str, gigabytes: float, settings: dict[str, str]) -> None:
    """Measure the peak memory of a Python worker that reads one large partition."""
    size = 1_000
    rows = int(gigabytes * 1e9 / size)
    topic = topic_name(1, size)
    fill(bootstrap, topic, rows, size, 1, 900_000)
    spark = session("memory", settings=settings)
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic}
    frame = spark.read.format("kproto").options(**options).load()
    finished, peaks = threading.Event(), dict[int, int]()
    watcher = threading.Thread(target=partial(_watch_workers, finished, peaks), daemon=True)
    watcher.start()
    try:
        began = time.perf_counter()
        [[total]] = frame.selectExpr("sum(length(value))").collect()
        assert total == rows * size, total
        seconds, peak = time.perf_counter() - began, max(peaks.values()) / 1e6
        print(f"{rows / 1e6:.1f} M rows of {size} B in one partition: {seconds:.0f} s, ", end="")
        print(f"the peak of a worker is {peak:.0f} MB", flush=True)
    finally:
        finished.set()
        watcher.join()
        spark.stop()
    with Admin(bootstrap) as cluster:
        cluster.delete_topics([topic])


def _watch_workers(finished: threading.Event, peaks: dict[int, int]) -> None:
    """Record the peak memory in bytes of every Python worker of Spark that descends from this process."""
    while not finished.wait(0.2):
        parents: dict[int, int] = {}
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
        descendants = {os.getpid()}
        while new := {pid for pid, parent in parents.items() if parent in descendants} - descendants:
            descendants |= new
        for pid in descendants - {os.getpid()}:
            try:
                command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
                if not any(
                    word.endswith(b"spark.daemon") for word in command[1:3]
                ):  # Other processes of Spark.
                    continue
                status = Path(f"/proc/{pid}/status").read_text()
            except OSError:
                continue
            if "VmHWM:" in status:
                peaks[pid] = max(peaks.get(pid, 0), int(status.partition("VmHWM:")[2].split()[0]) * 1024)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--kafka", metavar="HOST:PORT", required=True)
    parser.add_argument("--jvm", type=Path, metavar="JARS")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--gigabytes", type=float, default=5)
    parser.add_argument("--only", choices=("plan", "read", "memory"))
    arguments = parser.parse_args()
    print(machine("pyspark", "pyarrow"))
    settings = {"spark.jars": ",".join(map(str, arguments.jvm.glob("*.jar")))} if arguments.jvm else {}
    formats = {"kproto": "kproto", **({SPARKS_OWN: "kafka"} if arguments.jvm else {})}
    if arguments.only in (None, "plan"):
        measure_planning(arguments.kafka)
    if arguments.only in (None, "read"):
        measure_reading(arguments.kafka, formats, settings, arguments.rows, arguments.runs)
    if arguments.only in (None, "memory"):
        measure_memory(arguments.kafka, arguments.gigabytes, settings)


if __name__ == "__main__":
    main()
