"""Spark reruns tasks that fail, die or stall. The tests use two executors with speculation.

A query returns each row once, even if an executor dies with its shuffle files while the logs grow.

Even if tasks are repeated, a sink writes each row at least once, or exactly once with transactions. After the
query, no connection to the broker is open.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from consumer.spark.session import launcher
from kproto.broker.server import running
from tests.conformance import judges
from tests.consumer.spark.stage import Filled

pytestmark = pytest.mark.spark

ROOT = Path(__file__).resolve().parents[2]

PROGRAM = """
import os, sys, time
from collections import Counter
from pathlib import Path
from pyspark.sql import SparkSession

bootstrap = sys.argv[1]
quick = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
settings = {
    "spark.ui.enabled": "false", "spark.driver.memory": "512m", "spark.executor.memory": "512m",
    "spark.executorEnv.PYTHONPATH": os.environ["PYTHONPATH"], "spark.sql.shuffle.partitions": "2",
    "spark.driver.extraJavaOptions": quick, "spark.executor.extraJavaOptions": quick,
    "spark.speculation": "true", "spark.speculation.interval": "100ms", "spark.speculation.quantile": "0.3",
    "spark.speculation.multiplier": "1.2", "spark.speculation.minTaskRuntime": "500ms",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "500", "spark.log.level": "OFF",
}
builder = SparkSession.builder.master("local-cluster[2,1,1024]")
for name, value in settings.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
where = {"kafka.bootstrap.servers": bootstrap}

def load(topic="t", **more):
    return spark.read.format("kproto").options(**where, subscribe=topic, **more).load()

def parent(pid):
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])

def executor():
    pid = os.getpid()
    while b"CoarseGrainedExecutorBackend" not in Path(f"/proc/{pid}/cmdline").read_bytes():
        pid = parent(pid)
    return pid

def half(how, folder=sys.argv[2]):
    # What a task does at its first attempt, when it has given a part of its rows.
    def act(batches):
        from pyspark import TaskContext

        for number, batch in enumerate(batches):
            yield batch
            context = TaskContext.get()
            if number != 1 or context.attemptNumber():
                continue
            if how == "raise":
                raise RuntimeError("on purpose")
            if how == "die":
                os.kill(os.getpid(), 9)
            if how == "daemon":
                os.kill(os.getppid(), 9)
            if how == "executor" and context.partitionId() == 0 and not os.path.exists(f"{folder}/died"):
                Path(folder, "died").touch()
                os.kill(executor(), 9)
            if how == "behind" and context.partitionId() == 4 and not os.path.exists(f"{folder}/grew"):
                Path(folder, "grew").touch()
                from kproto import Producer
                with Producer(bootstrap) as producer:
                    for partition in (0, 1):
                        producer.send("grows", b"later", partition=partition)
                os.kill(executor(), 9)
            if how == "dawdle" and context.partitionId() == 1:
                time.sleep(8)
    return act

def connections():
    port = ":%04X" % int(bootstrap.rpartition(":")[2])
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return sum(line[2].endswith(port) and line[3] == "01" for line in lines)

columns = "value binary, partition int, offset long"
rows = load().select("value", "partition", "offset")
grows = load("grows").select("value", "partition", "offset").repartition(8)
for how in ("behind", "raise", "die", "daemon", "dawdle", "executor"):
    read = (grows if how == "behind" else rows).mapInArrow(half(how), columns)
    found = read.selectExpr("count(*)", "count(distinct partition, offset)")
    print("read", how, *found.collect()[0], flush=True)

for topic, more in (("copy", {}), ("once", {"transactionalIdPrefix": "half"})):
    for how in ("raise", "die", "dawdle"):
        target = f"{topic}-{how}"
        written = rows.mapInArrow(half(how), columns).selectExpr("concat(partition, '-', offset) value")
        sink = written.write.format("kproto").mode("append").options(**where, topic=target, **more)
        sink.save()
        seen = load(target, **{"kafka.isolation.level": "read_committed"})
        values = Counter(row[0] for row in seen.selectExpr("cast(value as string)").collect())
        times = "once" if max(values.values()) == 1 or topic == "copy" else "again"
        print(topic, how, len(values), times, flush=True)

counted = []
for _ in range(5):
    rows.mapInArrow(half("raise"), columns).write.format("kproto").mode("append").options(
        **where, topic="copy-raise"
    ).save()
    counted.append(connections())
end = time.monotonic() + 120
while connections() > counted[0] and time.monotonic() < end:
    time.sleep(0.5)
print("connections", "as before" if connections() <= counted[0] else counted, flush=True)
spark.stop()
"""


def test_failed_tasks_are_retried_without_duplicates_or_open_connections(tmp_path: Path) -> None:
    judges.java()
    ways = ("raise", "die", "dawdle")
    topics = {"t": 2, "grows": 2, **{f"{topic}-{how}": 2 for topic in ("copy", "once") for how in ways}}
    with running(topics=topics) as server:
        filled = Filled(server.bootstrap)
        with filled.cluster:
            for topic in ("t", "grows"):
                for partition in (0, 1):
                    for _ in range(3):
                        filled.put(topic, partition, 1000)
        environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "PYSPARK_PYTHON": str(launcher(tmp_path)),
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        run = [sys.executable, "-c", PROGRAM, server.bootstrap, str(tmp_path)]
        done = subprocess.run(run, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    assert (tmp_path / "died").exists()
    assert (tmp_path / "grew").exists()
    lines = [line for line in done.stdout.splitlines() if line.startswith(("read", "copy", "once", "conn"))]
    assert lines == [
        *(f"read {how} 6000 6000" for how in ("behind", "raise", "die", "daemon", "dawdle", "executor")),
        *(f"{topic} {how} 6000 once" for topic in ("copy", "once") for how in ways),
        "connections as before",
    ]
