"""format("kproto") is a source for batches and streams in Spark, on the embedded broker and a real Kafka."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kproto.group.subscription import TopicPartition
from kproto.records import encode_batch
from kproto.records.record import Record
from tests.conformance.spark_session import Kafka, Query, kafka, query, spark
from tests.consumer.spark.stage import HOUR

pytestmark = pytest.mark.spark
ROOT = Path(__file__).resolve().parents[2]
__all__ = ["kafka", "query", "spark"]


def load(spark: Any, kafka: Kafka, **more: str | int) -> Any:
    return spark.read.format("kproto").options(**kafka.options(**more)).load()


def offsets(frame: Any) -> list[tuple[int, int]]:
    return sorted((row["partition"], row["offset"]) for row in frame.select("partition", "offset").collect())


def error(spark: Any, kafka: Kafka, **more: str | int) -> str:
    """Return Spark's error for these options."""
    from pyspark.errors import PySparkException

    with pytest.raises(PySparkException) as e:
        load(spark, kafka, **more).collect()
    return str(e.value)


def all_of(*counts: int) -> list[tuple[int, int]]:
    return [(partition, offset) for partition, count in enumerate(counts) for offset in range(count)]


# Batches -----------------------------------------------------------------------------------------------


def test_every_column_has_the_produced_values(spark: Any, kafka: Kafka) -> None:
    kafka.fill(0)
    records = [
        Record(0, HOUR, b"\x00key", "väl".encode(), (("h", b"1"), ("h", None), ("g", b""))),
        Record(1, HOUR + 1, None, b""),
        Record(2, HOUR + 5, b"", None),
    ]
    kafka.cluster.produce(TopicPartition(kafka.name, 0), encode_batch(records))
    frame = load(spark, kafka, includeHeaders="true").orderBy("offset")
    assert ",".join(f"{name} {kind}" for name, kind in frame.dtypes) == (
        "key binary,value binary,topic string,partition int,offset bigint,timestamp timestamp,"
        "timestampType int,headers array<struct<key:string,value:binary>>"
    )
    rows = frame.selectExpr("*", "cast(timestamp as double) * 1000 as ms").collect()
    assert [row["key"] for row in rows] == [bytearray(b"\x00key"), None, bytearray()]
    assert [row["value"] for row in rows] == [bytearray("väl".encode()), bytearray(), None]
    assert [row["ms"] for row in rows] == [HOUR, HOUR + 1, HOUR + 5]
    assert {(row["topic"], row["partition"], row["timestampType"]) for row in rows} == {(kafka.name, 0, 0)}
    assert [row["offset"] for row in rows] == [0, 1, 2]
    first = [("h", bytearray(b"1")), ("h", None), ("g", bytearray())]
    assert [row["headers"] and [tuple(h) for h in row["headers"]] for row in rows] == [first, None, None]


def test_many_records_of_many_slices_are_read_once(spark: Any, kafka: Kafka) -> None:
    kafka.fill(0, 0)
    for partition in (0, 1):
        for _ in range(5):
            kafka.put(kafka.name, partition, 2_000)
    frame = load(spark, kafka, minPartitions=5)
    assert frame.rdd.getNumPartitions() == 5
    totals = frame.selectExpr(
        "count(*)", "count(distinct partition, offset)", "sum(cast(cast(value as string) as int))"
    )
    assert tuple(totals.collect()[0]) == (20_000, 20_000, 10 * sum(range(2_000)))


def test_a_schema_of_the_user_prunes_the_columns(spark: Any, kafka: Kafka) -> None:
    kafka.fill(3)
    frame = spark.read.format("kproto").options(**kafka.options()).schema("value BINARY, offset LONG").load()
    assert sorted(tuple(row) for row in frame.collect()) == [(bytearray(b"%d" % i), i) for i in range(3)]


def test_bounds_by_offset_and_by_time(spark: Any, kafka: Kafka) -> None:
    kafka.fill(9, 9)
    bounds = {"startingOffsets": kafka.offsets(2, -2), "endingOffsets": kafka.offsets(5, -1)}
    assert offsets(load(spark, kafka, **bounds)) == [(0, 2), (0, 3), (0, 4), *[(1, n) for n in range(9)]]
    times = {"startingTimestamp": HOUR + 3, "endingTimestamp": HOUR + 5}
    assert offsets(load(spark, kafka, **times)) == [(0, 3), (0, 4), (1, 3), (1, 4)]


def test_topics_by_pattern_and_by_partition(spark: Any, kafka: Kafka) -> None:
    kafka.fill(1, 2)
    kafka.topic(f"{kafka.name}-b", 1)
    frame = load(spark, kafka, subscribePattern=f"{kafka.name}(-.)?")
    assert frame.groupBy("topic").count().collect().__len__() == 2
    assert offsets(load(spark, kafka, assign=f'{{"{kafka.name}": [1]}}')) == [(1, 0), (1, 1)]


def test_a_topic_without_records_is_an_empty_frame(spark: Any, kafka: Kafka) -> None:
    kafka.fill(0)
    assert load(spark, kafka).count() == 0


@pytest.mark.parametrize(
    ("extra", "text"),
    [
        ({"maxOffsetPerTrigger": "5"}, "the option does not exist; did you mean maxOffsetsPerTrigger?"),
        ({"startingOffsets": "newest"}, "startingOffsets='newest' is not allowed; "),
        ({"startingOffsets": "latest"}, "a batch that starts at the end of the log reads no record"),
        ({"subscribe": " , "}, "name at least one topic"),
        ({"subscribe": "nowhere"}, "topic 'nowhere'"),
        ({"kafka_enable_auto_commit": "true"}, "the checkpoint stores the position"),
        ({"startingTimestamp": HOUR + 99}, "has no record at or after it"),
    ],
)
def test_invalid_options_are_rejected(spark: Any, kafka: Kafka, extra: dict[str, Any], text: str) -> None:
    kafka.fill(1)
    assert text in error(spark, kafka, **extra)


def test_deleted_records_are_data_loss_or_skipped(spark: Any, kafka: Kafka) -> None:
    kafka.fill(9)
    delete_before(kafka, 4)
    start = kafka.offsets(2)
    assert "begins at 4, after the requested start, 2" in error(spark, kafka, startingOffsets=start)
    remaining = load(spark, kafka, startingOffsets=start, failOnDataLoss="false")
    assert offsets(remaining) == [(0, n) for n in range(4, 9)]


def delete_before(kafka: Kafka, offset: int) -> None:
    from kproto.messages.delete_records import (
        DeleteRecordsPartition,
        DeleteRecordsRequest,
        DeleteRecordsResponse,
        DeleteRecordsTopic,
    )

    topic = DeleteRecordsTopic(
        name=kafka.name, partitions=[DeleteRecordsPartition(partition_index=0, offset=offset)]
    )
    request = DeleteRecordsRequest(topics=[topic], timeout_ms=10_000)
    answer = kafka.cluster.request(request, node=("leader", kafka.name, 0))
    assert isinstance(answer, DeleteRecordsResponse)
    assert answer.topics[0].partitions[0].error_code == 0


# Streams -----------------------------------------------------------------------------------------------


def test_a_resumed_query_reads_everything_once(kafka: Kafka, query: Query) -> None:
    kafka.fill(5, 3)
    options = kafka.options(startingOffsets="earliest")
    read = [row for batch in query.run(options) for row in batch]
    assert query.run(options) == []
    for count in (4, 1):
        kafka.put(kafka.name, 0, count)
        read += [row for batch in query.run(options) for row in batch]
    assert sorted(read) == all_of(10, 3)


def test_batches_have_at_most_the_rows_allowed(kafka: Kafka, query: Query) -> None:
    kafka.fill(20, 5)
    batches = query.run(kafka.options(startingOffsets="earliest", maxOffsetsPerTrigger=10))
    assert [len(batch) for batch in batches] == [10, 10, 5]
    assert sorted(row for batch in batches for row in batch) == all_of(20, 5)


def test_latest_is_resolved_in_the_first_run_only(kafka: Kafka, query: Query) -> None:
    kafka.fill(5)
    options = kafka.options(startingOffsets="latest")
    assert [row for batch in query.run(options) for row in batch] == []
    kafka.put(kafka.name, 0, 3)
    assert query.run(options) == [[(0, 5), (0, 6), (0, 7)]]


def test_a_batch_that_failed_is_repeated_with_the_same_rows(kafka: Kafka, query: Query) -> None:
    kafka.fill(5)
    options = kafka.options(startingOffsets="earliest")

    def crash(_: int) -> None:
        raise RuntimeError("the sink is full")

    with pytest.raises(Exception, match="the sink is full"):
        query.run(options, crash)
    kafka.put(kafka.name, 0, 3)
    assert query.run(options) == [all_of(5), [(0, 5), (0, 6), (0, 7)]]


def test_partitions_added_between_and_during_runs_are_read_from_their_start(
    kafka: Kafka, query: Query
) -> None:
    kafka.fill(2)
    options = kafka.options(startingOffsets="latest")
    query.run(options)
    kafka.cluster.create_partitions({kafka.name: 2})
    kafka.put(kafka.name, 1, 2)

    def grow(number: int) -> None:
        if number == 1:
            kafka.cluster.create_partitions({kafka.name: 3})
            kafka.put(kafka.name, 2, 1)

    assert query.run(options, grow) == [[(1, 0), (1, 1)]]
    assert query.run(options) == [[(2, 0)]]


def test_a_recreated_topic_ends_the_query_or_is_read_from_its_start(kafka: Kafka, query: Query) -> None:
    kafka.fill(5)
    options = kafka.options(startingOffsets="earliest")
    query.run(options)
    kafka.cluster.delete_topics([kafka.name])
    kafka.fill(9)
    with pytest.raises(Exception, match="was deleted and re-created"):
        query.run(options)
    assert query.run({**options, "failOnDataLoss": "false"}) == [all_of(9)]


def test_the_group_has_committed_the_end_after_a_run(kafka: Kafka, query: Query) -> None:
    kafka.fill(5, 3)
    group = f"lag-{kafka.name}"
    query.run(kafka.options(startingOffsets="earliest", commitGroupId=group, maxOffsetsPerTrigger=4))
    committed = kafka.cluster.committed_offsets(group)
    assert {p.partition: at and at.offset for p, at in committed.items()} == {0: 5, 1: 3}


def test_the_progress_shows_offsets_and_the_logs_ends(kafka: Kafka, query: Query) -> None:
    kafka.fill(5)
    query.run(kafka.options(startingOffsets="earliest", maxOffsetsPerTrigger=3))
    import json

    [source] = query.progress[0]["sources"]
    assert json.loads(source["endOffset"])[kafka.name] == {"0": 3}
    assert json.loads(source["latestOffset"])[kafka.name] == {"0": 5}


def test_a_stream_with_an_end_is_rejected(kafka: Kafka, query: Query) -> None:
    kafka.fill(1)
    with pytest.raises(Exception, match=r"endingOffsets=.*a stream has no end"):
        query.run(kafka.options(endingOffsets="latest"))


# The package ------------------------------------------------------------------------------------------


def test_a_source_checkout_works_from_any_folder(embedded: Any, tmp_path: Path) -> None:
    kafka = Kafka(embedded.bootstrap, "t")
    with kafka.cluster:
        kafka.fill(3)
    program = tmp_path / "program.py"
    root = Path(__file__).resolve().parents[2]
    program.write_text(
        f"import sys; sys.path.insert(0, {str(root)!r})\n"
        "from consumer.spark import session\n"
        f"frame = session(cores=1, quick=True).read.format('kproto').options(**{kafka.options()!r}).load()\n"
        "print('rows', frame.count())\n"
    )
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "SPARK_LOCAL_IP")}
    done = subprocess.run(
        [sys.executable, program], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=180
    )
    assert done.stdout == "rows 3\n", done.stderr
    assert done.stderr == ""


def test_the_options_of_spark_submit_are_kept(tmp_path: Path) -> None:
    import pyspark

    script = tmp_path / "job.py"
    script.write_text(
        "from consumer.spark import session\n"
        "spark = session('mine', cores=2)\n"
        "names = ('shuffle.partitions', 'catalogImplementation')\n"
        "named = [spark.conf.get('spark.sql.' + name) for name in names]\n"
        "print('has', spark.sparkContext.master, spark.sparkContext.appName, *named)\n"
    )
    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    arguments = ["--master", "local[1]", "--name", "given", "--conf", "spark.sql.shuffle.partitions=9"]
    env = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    env["PYSPARK_DRIVER_PYTHON"] = sys.executable
    done = subprocess.run([str(submit), *arguments, str(script)], env=env, capture_output=True, text=True)
    assert "has local[1] mine 9 in-memory\n" in done.stdout, done.stderr[-2000:]


def test_a_venv_need_not_be_activated(tmp_path: Path) -> None:
    """Local workers use the driver's Python and PySpark, even if another python3 comes first in the PATH."""
    script = tmp_path / "job.py"
    script.write_text(_JOB)
    (tmp_path / "bin").mkdir()
    fake_python = tmp_path / "bin" / "python3"
    fake_python.write_text("#!/bin/sh\nexit 1\n")
    fake_python.chmod(0o755)
    path = f"{fake_python.parent}{os.pathsep}{os.environ['PATH']}"
    env = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), "SPARK_LOCAL_IP": "127.0.0.1"}
    env.pop("PYSPARK_PYTHON", None)
    done = subprocess.run([sys.executable, str(script)], env=env, capture_output=True, text=True)
    assert "rows: 1, zipped: False" in done.stdout, done.stderr[-2000:]


def test_a_new_session_can_be_registered_while_another_session_is_active(tmp_path: Path) -> None:
    """`register` reaches a new session although the active session already has a source of this name.

    Spark does not find the source by itself, because `pyspark_kproto` is hidden from its workers.
    """
    (tmp_path / "sitecustomize.py").write_text(
        "import pkgutil\n"
        "found = pkgutil.iter_modules\n"
        "pkgutil.iter_modules = lambda *args: (m for m in found(*args) if m.name != 'pyspark_kproto')\n"
    )
    path = os.pathsep.join([str(tmp_path), str(ROOT)])
    env = {**os.environ, "PYTHONPATH": path, "SPARK_LOCAL_IP": "127.0.0.1"}
    done = subprocess.run([sys.executable, "-c", _SESSIONS], env=env, capture_output=True, text=True)
    assert done.stdout == "['key', 'value']\n['key', 'value']\nTrue\n", done.stderr[-2000:]


_SESSIONS = """
from pyspark.sql import SparkSession

from consumer.spark import register, session

first = session()
second = first.newSession()
register(second)
for spark in (first, second):
    reader = spark.read.format("kproto").option("kafka.bootstrap.servers", "localhost:1")
    print(reader.option("subscribe", "t").load().schema.fieldNames()[:2])
print(SparkSession.getActiveSession()._jsparkSession.equals(first._jsparkSession))
first.stop()
"""

_JOB = """
from pyspark.sql import SparkSession

from consumer.spark import register
from kproto import Producer, running

with running(topics={"t": 1}) as broker:
    with Producer(broker.bootstrap) as producer:
        producer.send("t", b"x")
    spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
    register(spark)
    rows = spark.read.format("kproto").option("kafka.bootstrap.servers", broker.bootstrap)
    count = rows.option("subscribe", "t").load().count()
    # PySpark out of the zip that Spark puts first on the path takes five times as long to import.
    asked = spark.sparkContext.parallelize([0]).map(lambda _: "pyspark.zip" in __import__("pyspark").__file__)
    print(f"rows: {count}, zipped: {asked.first()}")
    spark.stop()
"""
