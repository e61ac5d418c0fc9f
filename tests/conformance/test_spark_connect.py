"""Spark finds kproto's source in sessions that do not import kproto: local sessions and Spark Connect.

The program runs in a process of its own: with a local session, as a client of Spark Connect, or as a client
of Spark Connect that imports kproto and registers the source in its session.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kproto.broker.server import running
from kproto.group.subscription import TopicPartition
from kproto.records import encode_batch
from kproto.records.record import Record
from tests.conformance import judges
from tests.consumer.spark.stage import Filled

pytestmark = pytest.mark.spark

ROOT = Path(__file__).resolve().parents[2]

PROGRAM = """
import sys, tempfile
from pyspark.sql import SparkSession

builder = SparkSession.builder
spark = (builder.master("local[2]") if sys.argv[2] == "found" else builder.remote("local[2]")).getOrCreate()
if sys.argv[2] == "registered by connect":
    from consumer.spark import register

    register(spark)
assert ("consumer" in sys.modules) is ("registered" in sys.argv[2])
where = {"kafka.bootstrap.servers": sys.argv[1], "subscribe": "t"}
given = {**where, "value.format": "json", "value.schema": "id BIGINT"}
rows = spark.read.format("kproto").options(**given).load()
print("batch", rows.count(), rows.agg({"value.id": "sum"}).collect()[0][0])
with tempfile.TemporaryDirectory() as folder:
    stream = spark.readStream.format("kproto").options(**where, startingOffsets="earliest").load()
    query = stream.select("key", "value").writeStream.format("kproto").option("checkpointLocation", folder)
    query = query.option("kafka.bootstrap.servers", sys.argv[1]).option("topic", "copy")
    while True:
        try:
            query.trigger(availableNow=True).start().awaitTermination()
        except Exception as error:
            # Spark gives a Python process 10 s to be there: on a full machine none of our code ever ran.
            if "Python worker failed to connect back" not in str(error):
                raise
        else:
            break
copy = spark.read.format("kproto").options(**{**where, "subscribe": "copy"}).load()
print("copied", copy.count())
spark.stop()
"""


@pytest.mark.parametrize("how", ["found", "found by connect", "registered by connect"])
def test_batches_streams_and_sinks_work_in_any_session(how: str) -> None:
    for package in ("pyspark", *(["grpc"] if "connect" in how else [])):
        try:
            __import__(package)
        except ImportError:
            judges.missing("Spark Connect (pip install 'pyspark[connect]')")
    judges.java()
    with running(topics={"t": 2, "copy": 1}) as server:
        filled = Filled(server.bootstrap)
        with filled.cluster:
            for number in range(2):
                records = [Record(n, 0, None, b'{"id": %d}' % n) for n in range(50)]
                filled.cluster.produce(TopicPartition("t", number), encode_batch(records))
        environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DRIVER_MEMORY": "512m",
        }
        run = [sys.executable, "-c", PROGRAM, server.bootstrap, how]
        done = subprocess.run(run, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    lines = [line for line in done.stdout.splitlines() if line.startswith(("batch", "copied"))]
    assert lines == ["batch 100 2450", "copied 100"]
