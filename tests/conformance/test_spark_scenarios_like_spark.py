"""In these scenarios, kproto's source returns the same rows from a real Kafka as Spark's own source.

Most scenarios come from Spark's tests of its own Kafka source.

Each scenario runs several queries. The longer scenarios run only with `KPROTO_ALL_SPARK_STORIES=1`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from shutil import copytree
from typing import Any
from uuid import uuid4

import pytest

from consumer import Producer
from kproto.group.subscription import TopicPartition
from tests.conformance.spark_cluster import eventually
from tests.conformance.spark_session import Kafka, kafka, spark, sparks_own

PySparkException: Any = pytest.importorskip("pyspark.errors").PySparkException

pytestmark = pytest.mark.spark
__all__ = ["kafka", "spark", "sparks_own"]

REFUSED = "refused"


class ScenarioRun:
    """Runs a scenario with one source format. Topic names begin with `name`, which is removed from the
    results.
    """

    def __init__(self, spark: Any, kafka: Kafka, word: str, folder: Path) -> None:
        self.spark, self.word = spark, word
        self.folder = folder / word
        self.kafka = kafka
        self.name = f"t{uuid4().hex[:12]}"
        self.checkpoint = "checkpoint"

    def topic(self, letter: str, *counts: int) -> None:
        self.kafka.topic(self.name + letter, *counts)

    def put(self, letter: str, partition: int, count: int) -> None:
        self.kafka.put(self.name + letter, partition, count)

    def grow(self, letter: str, partitions: int) -> None:
        self.kafka.cluster.create_partitions({self.name + letter: partitions})

    def delete(self, letter: str) -> None:
        self.kafka.cluster.delete_topics([self.name + letter])

    def trim(self, letter: str, partition: int, offset: int) -> None:
        self.kafka.delete_before(TopicPartition(self.name + letter, partition), offset)

    def at(self, letter: str, *offsets: int) -> str:
        return json.dumps({self.name + letter: dict(enumerate(offsets))})

    def options(self, topics: str, extra: dict[str, Any]) -> dict[str, str]:
        """Return options that subscribe to topics by the last letters of their names, or to all topics ("*").

        In the name of an extra option, `_` stands for a dot.
        """
        way = {"subscribe": ",".join(self.name + letter for letter in topics)}
        if topics == "*":
            way = {"subscribePattern": self.name + ".*"}
        named = {name.replace("_", "."): str(value) for name, value in extra.items()}
        way = {} if {"subscribe", "assign"} & named.keys() else way
        return {"kafka.bootstrap.servers": self.kafka.bootstrap, **way, **named}

    def stream(self, topics: str, **options: Any) -> Any:
        return self.spark.readStream.format(self.word).options(**self.options(topics, options)).load()

    def rows(self, frame: Any) -> list[str]:
        """Return the rows as text: ``a-0 3..5`` means offsets 3 to 5 of partition 0 of topic a."""
        rows = sorted(map(tuple, frame.select("topic", "partition", "offset").collect()))
        ranges: list[str] = []
        for (topic, partition), each in groupby(rows, lambda row: row[:2]):
            offsets = [row[2] for row in each]
            whole = len(offsets) == offsets[-1] - offsets[0] + 1
            ranges.append(
                f"{topic.removeprefix(self.name)}-{partition} " + ("{}..{}" if whole else "{} to {}")
            )
            ranges[-1] = ranges[-1].format(offsets[0], offsets[-1])
        return ranges

    def run(
        self,
        topics: str,
        act: Callable[[], None] = lambda: None,
        *,
        before: Callable[[], None] = lambda: None,
        **options: Any,
    ) -> list[list[str]] | str:
        """Run a query to the end of the logs.

        Return the rows of each batch, or REFUSED if the query failed.

        All runs of a scenario share a checkpoint. `before` is called when a batch is planned, and `act` when
        the batch has been read.
        """
        all_rows: list[list[str]] = []

        def see(frame: Any, _: int) -> None:
            before()
            rows = self.rows(frame)
            act()
            all_rows.append(rows)

        trigger = {"once": True} if options.pop("once", False) else {"availableNow": True}
        try:
            writer = self.stream(topics, **options).writeStream.foreachBatch(see)
            query = writer.option("checkpointLocation", str(self.folder / self.checkpoint))
            started = query.trigger(**trigger).start()
            assert started.awaitTermination(120)
        except PySparkException:
            return REFUSED
        return [rows for rows in all_rows if rows]

    @contextmanager
    def running(self, topics: str, **options: Any) -> Iterator[Callable[[], list[str]]]:
        """Run a query in the background.

        Yield a function that waits until all available records are read, and returns the new rows.
        """
        pending: list[Any] = []

        def see(frame: Any, _: int) -> None:
            pending.extend(self.rows(frame))

        writer = self.stream(topics, **options).writeStream.foreachBatch(see)
        query = writer.option("checkpointLocation", str(self.folder / "running")).start()

        def new() -> list[str]:
            query.processAllAvailable()
            rows, pending[:] = sorted(pending), []
            return rows

        try:
            yield new
        finally:
            query.stop()


def records_written_before_the_start_are_read(runner: ScenarioRun) -> Any:
    runner.topic("a", 1)
    with runner.running("a", startingOffsets="earliest") as new:
        results = [new()]
        for _ in range(4):
            runner.put("a", 0, 1)
            results.append(new())
        runner.grow("a", 2)
        runner.put("a", 1, 1)
        results.append(new())
    assert all(results)
    return results


def topics_are_created_after_all_were_deleted(runner: ScenarioRun) -> Any:
    runner.topic("a", 2)
    with runner.running("*", startingOffsets="latest", failOnDataLoss="false") as new:
        results = [new()]
        runner.put("a", 0, 1)
        results.append(new())
        runner.delete("a")
        results.append(new())
        runner.topic("b", 3)
        return [*results, new()]


def topics_are_created_between_runs(runner: ScenarioRun) -> Any:
    options = {"startingOffsets": "latest", "failOnDataLoss": "false"}
    results = [runner.run("*", **options)]
    runner.topic("a", 2)
    results.append(runner.run("*", **options))
    runner.delete("a")
    results.append(runner.run("*", **options))
    runner.topic("b", 3)
    return [*results, runner.run("*", **options)]


def the_subscription_changes(runner: ScenarioRun) -> Any:
    runner.topic("a", 2)
    runner.topic("b", 3)
    results = [runner.run("a", startingOffsets="latest")]
    runner.put("a", 0, 1)
    results += [runner.run("ab"), runner.run("b"), runner.run("b", failOnDataLoss="false")]
    runner.put("b", 0, 1)
    return [*results, runner.run("b")]


def the_assignment_changes(runner: ScenarioRun) -> Any:
    runner.topic("a", 2, 2, 2)

    def run(*partitions: int, **options: Any) -> Any:
        return runner.run("", assign=json.dumps({runner.name + "a": partitions}), **options)

    results = [run(0, 7, startingOffsets="earliest"), run(0, 1), run(1), run(1, failOnDataLoss="false")]
    runner.put("a", 1, 1)
    return [*results, runner.run("a"), runner.run("*")]


def new_partitions_lost_records(runner: ScenarioRun) -> Any:
    runner.topic("a", 2)
    options = {"startingOffsets": "earliest"}
    results = [runner.run("a", **options)]
    runner.grow("a", 2)
    runner.put("a", 1, 9)
    runner.trim("a", 1, 4)
    return [*results, runner.run("a", **options), runner.run("a", failOnDataLoss="false", **options)]


def starts_outside_of_the_log(runner: ScenarioRun) -> Any:
    runner.topic("a", 5)
    far = {"startingOffsets": runner.at("a", 9)}
    results = [runner.run("a", **far), runner.run("a", failOnDataLoss="false", **far)]
    runner.put("a", 0, 6)
    results.append(runner.run("a", failOnDataLoss="false", **far))
    runner.trim("a", 0, 11)
    runner.checkpoint = "other"
    near = {"startingOffsets": runner.at("a", 2)}
    return [*results, runner.run("a", **near), runner.run("a", failOnDataLoss="false", **near)]


def a_failed_batch_and_new_partitions(runner: ScenarioRun) -> Any:
    runner.topic("a", 7)

    def fail() -> None:
        raise RuntimeError("the sink is full")

    results = [runner.run("a", fail, startingOffsets="earliest")]
    runner.grow("a", 3)
    runner.put("a", 1, 1)
    return [*results, runner.run("a")]


def two_limited_topics_in_one_query(runner: ScenarioRun) -> Any:
    runner.topic("a", 7)
    runner.topic("b", 12)
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": 5}
    all_rows: list[list[str]] = []
    union = runner.stream("a", **options).union(runner.stream("b", **options))
    writer = union.writeStream.foreachBatch(lambda frame, _: all_rows.append(runner.rows(frame)))
    query = writer.option("checkpointLocation", str(runner.folder)).trigger(availableNow=True).start()
    assert query.awaitTermination(120)
    return [*all_rows, runner.run("ab", once=True, **options)]


def the_other_source_continues(runner: ScenarioRun) -> Any:
    """A query of either source continues from a checkpoint that the other source wrote."""
    runner.topic("a", 3, 2)
    results = [runner.run("a", startingOffsets="latest")]
    mine, theirs = runner.word, {"kafka": "kproto", "kproto": "kafka"}[runner.word]
    for turn in range(3):
        runner.word = mine if turn % 2 else theirs
        runner.put("a", turn % 2, 2)
        runner.grow("a", 3 + turn)
        runner.put("a", 2 + turn, 1)
        results.append(runner.run("a"))
    runner.word = mine
    return results


def the_other_source_continues_after_all_topics_were_deleted(runner: ScenarioRun) -> Any:
    """A query continues from an offset without partitions, whichever source wrote it.

    The offset has no partitions because all topics were deleted.
    """
    runner.topic("a", 2)
    options = {"startingOffsets": "latest", "failOnDataLoss": "false"}
    results = [runner.run("*", **options)]
    runner.put("a", 0, 1)
    results.append(runner.run("*", **options))
    runner.delete("a")
    results.append(runner.run("*", **options))
    runner.word = {"kafka": "kproto", "kproto": "kafka"}[runner.word]
    runner.topic("b", 3)
    return [*results, runner.run("*", **options)]


def limits_and_starts_change(runner: ScenarioRun) -> Any:
    """A restarted query ignores changed starting options, and applies changed batch limits immediately."""
    runner.topic("a", 9, 9)

    def fail() -> None:
        raise RuntimeError("the sink is full")

    results = [runner.run("a", fail, startingOffsets="earliest", maxOffsetsPerTrigger=6)]
    results.append(runner.run("a", maxOffsetsPerTrigger=8, minPartitions=9))
    for options in (
        {"startingOffsets": runner.at("a", 0, 0)},
        {"startingTimestamp": 1},
        {"includeHeaders": "true"},
    ):
        runner.put("a", 0, 2)
        results.append(runner.run("a", **options))
    runner.topic("b", 2)
    return [*results, runner.run("*"), runner.run("ab", startingOffsets="latest")]


def a_checkpoint_is_copied(runner: ScenarioRun) -> Any:
    runner.topic("a", 5)
    results = [runner.run("a", startingOffsets="earliest")]
    runner.put("a", 0, 2)
    copytree(runner.folder / "checkpoint", runner.folder / "copy")
    for name in ("checkpoint", "copy", "copy"):
        runner.checkpoint = name
        results.append(runner.run("a"))
    return results


def retention_deletes_records_during_a_batch(runner: ScenarioRun) -> Any:
    runner.topic("a", 9)
    options = {"startingOffsets": "earliest", "minPartitions": 3}
    results = [runner.run("a", before=lambda: runner.trim("a", 0, 4), **options)]
    results.append(runner.run("a", failOnDataLoss="false"))
    runner.put("a", 0, 3)
    return [*results, runner.run("a", before=lambda: runner.trim("a", 0, 12), failOnDataLoss="false")]


def transactions_are_open_at_a_batchs_end(runner: ScenarioRun) -> Any:
    runner.topic("a", 2)
    options = {"startingOffsets": "earliest", "kafka_isolation_level": "read_committed"}
    partition = TopicPartition(runner.name + "a", 0)

    def end(level: str) -> int | None:
        return runner.kafka.cluster.list_offsets({partition: "latest"}, isolation=level)[partition].offset

    with Producer(runner.kafka.bootstrap, transactional_id=runner.name) as producer:
        with producer.transaction():
            producer.send(partition.topic, b"open")
            producer.flush()
            runner.put("a", 0, 1)
            results = [runner.run("a", **options)]
            runner.put("a", 0, 1)
            results.append(runner.run("a", **options))
        # The coordinator responds to the commit before the transaction's marker is in the log.
        eventually(lambda: end("read_committed") == end("read_uncommitted"), "the marker", 60)
    return [*results, runner.run("a", **options), runner.run("a")]


def a_view_of_sql(runner: ScenarioRun) -> Any:
    runner.topic("a", 4)
    options = f"`kafka.bootstrap.servers` '{runner.kafka.bootstrap}', subscribe '{runner.name}a'"
    runner.spark.sql(f"create or replace temporary view flights using {runner.word} options ({options})")
    return runner.rows(runner.spark.sql("select * from flights"))


def progress_is_tracked_asynchronously(runner: ScenarioRun) -> Any:
    runner.topic("a", 15)
    runner.topic("b", 0)
    values = runner.stream("a", startingOffsets="earliest", maxOffsetsPerTrigger=5).select("value")
    sink = values.writeStream.format(runner.word).option("kafka.bootstrap.servers", runner.kafka.bootstrap)
    sink = sink.option("topic", runner.name + "b").option("checkpointLocation", str(runner.folder))
    sink = sink.option("asyncProgressTrackingEnabled", "true")
    query = sink.option("_asyncProgressTrackingOverrideSinkSupportCheck", "true").start()
    try:
        query.processAllAvailable()
    finally:
        query.stop()
    return runner.rows(runner.spark.read.format(runner.word).options(**runner.options("b", {})).load())


def options_change_before_the_first_record(runner: ScenarioRun) -> Any:
    runner.topic("a", 0)
    runner.topic("b", 3)
    results: list[Any] = []
    for letter, begins, later in (("a", "earliest", "latest"), ("b", runner.at("b", 3), "earliest")):
        runner.checkpoint = letter
        results.append(runner.run(letter, startingOffsets=begins))
        runner.put(letter, 0, 2)
        results.append(runner.run(letter, startingOffsets=later))
    return results


def an_empty_topic_is_recreated(runner: ScenarioRun) -> Any:
    runner.topic("a", 0)
    results = [runner.run("a", startingOffsets="earliest")]
    runner.delete("a")
    runner.topic("a", 2)
    return [*results, runner.run("a", startingOffsets="earliest")]


def a_sink_buffers_a_single_row(runner: ScenarioRun) -> Any:
    runner.topic("a", 0)
    rows = runner.spark.sql("select repeat('v', 15000) value, 7 topic from range(200)")
    sink = rows.write.format(runner.word).option("kafka.bootstrap.servers", runner.kafka.bootstrap)
    sink = sink.option("kafka.buffer.memory", "16384").option("kafka.request.timeout.ms", "180000")
    sink = sink.option("kafka.max.in.flight.requests.per.connection", "9")
    sink.option("topic", runner.name + "a").mode("append").save()
    return runner.rows(runner.spark.read.format(runner.word).options(**runner.options("a", {})).load())


def a_batch_query_runs_again(runner: ScenarioRun) -> Any:
    """A batch query reads the records that exist when an action runs.

    When a stream joins a batch query, each batch of the stream reads the query's current records.

    At the end of the scenario the topic is deleted and re-created.
    """
    runner.topic("a", 9, 0)
    batch = runner.spark.read.format(runner.word).options(**runner.options("a", {})).load()
    batch.createOrReplaceTempView("looked_at")
    results = [runner.rows(batch)]
    runner.trim("a", 0, 4)
    runner.put("a", 0, 2)
    runner.put("a", 1, 1)
    results += [runner.rows(batch), batch.rdd.getNumPartitions()]
    results.append(runner.spark.sql("select count(*), max(offset) from looked_at").collect()[0])
    runner.topic("b", 1)
    joined = runner.stream("b", startingOffsets="earliest").selectExpr("offset o").join(batch)
    all_rows: list[list[str]] = []
    writer = joined.writeStream.foreachBatch(lambda frame, _: all_rows.append(runner.rows(frame)))
    query = writer.option("checkpointLocation", str(runner.folder)).start()
    try:
        query.processAllAvailable()
        runner.put("a", 0, 3)
        runner.put("b", 0, 1)
        query.processAllAvailable()
    finally:
        query.stop()
    held = batch.select("topic", "partition", "offset")
    for _ in range(2):
        results.append(len(held.collect()))
        runner.put("a", 0, 1)
    runner.delete("a")
    runner.topic("a", 2, 1)
    return [*results, all_rows, runner.rows(batch)]


def limits_are_shared_and_rounded(runner: ScenarioRun) -> Any:
    runner.topic("a", 17, 9, 1, 3)
    return runner.run("a", startingOffsets="earliest", maxOffsetsPerTrigger=7)


SCENARIOS = [
    records_written_before_the_start_are_read, topics_are_created_between_runs, the_assignment_changes,
    new_partitions_lost_records, starts_outside_of_the_log, the_other_source_continues, a_view_of_sql,
    the_other_source_continues_after_all_topics_were_deleted, retention_deletes_records_during_a_batch,
    options_change_before_the_first_record, a_sink_buffers_a_single_row,
    a_batch_query_runs_again, limits_are_shared_and_rounded,
]  # fmt: skip
LONGER_SCENARIOS = [
    topics_are_created_after_all_were_deleted, the_subscription_changes, a_failed_batch_and_new_partitions,
    two_limited_topics_in_one_query, progress_is_tracked_asynchronously,
    an_empty_topic_is_recreated, limits_and_starts_change, a_checkpoint_is_copied,
    transactions_are_open_at_a_batchs_end,
]  # fmt: skip
if os.environ.get("KPROTO_ALL_SPARK_STORIES"):
    SCENARIOS += LONGER_SCENARIOS


@pytest.mark.parametrize("kafka", [pytest.param("real", marks=pytest.mark.kafka)], indirect=True)
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_results_equal_those_of_sparks_own_source(
    spark: Any, sparks_own: None, kafka: Kafka, tmp_path: Path, scenario: Callable[[ScenarioRun], Any]
) -> None:
    theirs, ours = (scenario(ScenarioRun(spark, kafka, word, tmp_path)) for word in ("kafka", "kproto"))
    assert theirs
    assert ours == theirs
