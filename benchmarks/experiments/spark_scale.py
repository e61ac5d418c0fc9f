"""How the Spark source grows: planning by partitions, reading by partitions and slots, and a worker's memory.

    python -m benchmarks.experiments.spark_scale --kafka HOST:PORT --jvm JARS            all of it
    python -m benchmarks.experiments.spark_scale --kafka HOST:PORT --only memory --gigabytes 5

The jars are those of `benchmarks.spark`, whose ways of measuring these are.
"""

from __future__ import annotations

import argparse
import os
import pickle
import statistics
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable

from consumer import Cluster
from consumer.spark import session
from consumer.spark.offsets import Offsets
from consumer.spark.options import parse
from consumer.spark.reader import KprotoReader
from consumer.spark.schema import full
from consumer.spark.stream import KprotoStreamReader

from ..report import machine
from ..spark import SPARKS_OWN, fill, measure

COUNTS = (1, 10, 100, 1_000)
SLOTS = (1, 2, 4)
ROUNDS = 30


def topic_of(count: int, size: int = 100) -> str:
    return f"scale-{count}-{size}-{time.time_ns()}"


def plan(bootstrap: str) -> None:
    """What Spark waits for before a batch has tasks: the ends asked for, the slices made and pickled."""
    for count in COUNTS:
        topic = topic_of(count)
        fill(bootstrap, topic, count, 100, count)
        options = parse({"kafka.bootstrap.servers": bootstrap, "subscribe": topic})
        stream = KprotoStreamReader(full(options), options)
        first = Offsets.from_json(stream.latestOffset({}, ReadAllAvailable()))
        start = Offsets(dict.fromkeys(first.positions, 0), first.ids).to_json()
        ways = {"stream": partial(_planned, stream, start)}
        ways["batch"] = KprotoReader(full(options), options).partitions
        for name, way in ways.items():
            took, cpu = list[float](), list[float]()
            for _ in range(ROUNDS):
                began, spent = time.perf_counter(), time.process_time()
                slices = [pickle.dumps(one) for one in way()]
                took.append(time.perf_counter() - began)
                cpu.append(time.process_time() - spent)
                assert len(slices) == count
            middle = (statistics.median(each) * 1000 for each in (took, cpu))
            print("plan a {} of {:>5} partitions: {:6.1f} ms, {:6.1f} ms of CPU".format(name, count, *middle))
        stream.stop()


def _planned(stream: KprotoStreamReader, start: dict[str, Any]) -> list[InputPartition]:
    return stream.partitions(start, stream.latestOffset(start, ReadAllAvailable()))


def read(bootstrap: str, formats: dict[str, str], settings: dict[str, str], rows: int, runs: int) -> None:
    """The same rows in 1 to 1,000 partitions, with 1 to 4 slots."""
    topics = {count: topic_of(count) for count in COUNTS}
    for count, topic in topics.items():
        fill(bootstrap, topic, rows, 100, count)
    for slots in SLOTS:
        spark = session("scale", cores=slots, settings=settings)
        for count, topic in topics.items():
            where = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic}
            frames = {name: spark.read.format(form).options(**where).load() for name, form in formats.items()}
            ways = {name: frame.write.format("noop").mode("overwrite").save for name, frame in frames.items()}
            measure(runs, rows, f"{slots} slots, {count} partitions", ways)
        spark.stop()


def memory(bootstrap: str, gigabytes: float, settings: dict[str, str]) -> None:
    """The most that a worker has of memory while it reads one partition."""
    size = 1_000
    rows = int(gigabytes * 1e9 / size)
    topic = topic_of(1, size)
    fill(bootstrap, topic, rows, size, 1, 900_000)
    spark = session("memory", settings=settings)
    frame = spark.read.format("kproto").option("kafka.bootstrap.servers", bootstrap)
    frame = frame.option("subscribe", topic).load()
    done, peaks = threading.Event(), dict[int, int]()
    watcher = threading.Thread(target=partial(_watch, done, peaks), daemon=True)
    watcher.start()
    try:
        began = time.perf_counter()
        [[found]] = frame.selectExpr("sum(length(value))").collect()
        assert found == rows * size, found
        took, most = time.perf_counter() - began, max(peaks.values()) / 1e6
        print(f"{rows / 1e6:.1f} M rows of {size} B in one partition: {took:.0f} s, ", end="")
        print(f"a worker has {most:.0f} MB at its peak", flush=True)
    finally:
        done.set()
        watcher.join()
        spark.stop()
    with Cluster(bootstrap) as cluster:
        cluster.delete_topics([topic])


def _watch(done: threading.Event, peaks: dict[int, int]) -> None:
    """Keep the peak, in bytes, of every Python worker of Spark's below this process."""
    while not done.wait(0.2):
        parents: dict[int, int] = {}
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
        ours = {os.getpid()}
        while more := {pid for pid, parent in parents.items() if parent in ours} - ours:
            ours |= more
        for pid in ours - {os.getpid()}:
            try:
                command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
                if not any(word.endswith(b"spark.daemon") for word in command[1:3]):  # or Spark's own
                    continue
                status = Path(f"/proc/{pid}/status").read_text()
            except OSError:
                continue
            if "VmHWM:" in status:
                peaks[pid] = max(peaks.get(pid, 0), int(status.partition("VmHWM:")[2].split()[0]) * 1024)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    arguments.add_argument("--kafka", metavar="HOST:PORT", required=True)
    arguments.add_argument("--jvm", type=Path, metavar="JARS")
    arguments.add_argument("--rows", type=int, default=1_000_000)
    arguments.add_argument("--runs", type=int, default=3)
    arguments.add_argument("--gigabytes", type=float, default=5)
    arguments.add_argument("--only", choices=("plan", "read", "memory"))
    given = arguments.parse_args()
    print(machine("pyspark", "pyarrow"))
    settings = {"spark.jars": ",".join(map(str, given.jvm.glob("*.jar")))} if given.jvm else {}
    formats = {"kproto": "kproto", **({SPARKS_OWN: "kafka"} if given.jvm else {})}
    if given.only in (None, "plan"):
        plan(given.kafka)
    if given.only in (None, "read"):
        read(given.kafka, formats, settings, given.rows, given.runs)
    if given.only in (None, "memory"):
        memory(given.kafka, given.gigabytes, settings)


if __name__ == "__main__":
    main()
