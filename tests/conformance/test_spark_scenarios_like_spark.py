"""Scenarios, most of them from the test suites of Spark's own source, that give the same rows with kproto on
a real Kafka.

Each runs several queries. `KPROTO_ALL_SPARK_STORIES=1` runs all of them.
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
    """Runs a scenario with one source format; topics get the prefix `name`, which results omit."""

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
        """Return options that subscribe to the topics with these letters, or to all by a pattern ("*").

        `_` in the name of an option stands for a dot.
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
        """Return the rows in short: ``a-0 3..5`` stands for the offsets 3 to 5 of partition 0 of topic a."""
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
        """Run a query to the end of the logs and return the rows of each batch, or REFUSED if it failed.

        All runs share a checkpoint. `before` is called when a batch is planned, `act` when it has been read.
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
        """Run a query in the background; the function yielded returns the new rows once all are read."""
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


def records_written_before_the_start_are_read(tell: ScenarioRun) -> Any:
    tell.topic("a", 1)
    with tell.running("a", startingOffsets="earliest") as new:
        results = [new()]
        for _ in range(4):
            tell.put("a", 0, 1)
            results.append(new())
        tell.grow("a", 2)
        tell.put("a", 1, 1)
        results.append(new())
    assert all(results)
    return results


def topics_are_created_after_all_were_deleted(tell: ScenarioRun) -> Any:
    tell.topic("a", 2)
    with tell.running("*", startingOffsets="latest", failOnDataLoss="false") as new:
        results = [new()]
        tell.put("a", 0, 1)
        results.append(new())
        tell.delete("a")
        results.append(new())
        tell.topic("b", 3)
        return [*results, new()]


def topics_are_created_between_runs(tell: ScenarioRun) -> Any:
    options = {"startingOffsets": "latest", "failOnDataLoss": "false"}
    results = [tell.run("*", **options)]
    tell.topic("a", 2)
    results.append(tell.run("*", **options))
    tell.delete("a")
    results.append(tell.run("*", **options))
    tell.topic("b", 3)
    return [*results, tell.run("*", **options)]


def the_subscription_changes(tell: ScenarioRun) -> Any:
    tell.topic("a", 2)
    tell.topic("b", 3)
    results = [tell.run("a", startingOffsets="latest")]
    tell.put("a", 0, 1)
    results += [tell.run("ab"), tell.run("b"), tell.run("b", failOnDataLoss="false")]
    tell.put("b", 0, 1)
    return [*results, tell.run("b")]


def the_assignment_changes(tell: ScenarioRun) -> Any:
    tell.topic("a", 2, 2, 2)

    def run(*partitions: int, **options: Any) -> Any:
        return tell.run("", assign=json.dumps({tell.name + "a": partitions}), **options)

    results = [run(0, 7, startingOffsets="earliest"), run(0, 1), run(1), run(1, failOnDataLoss="false")]
    tell.put("a", 1, 1)
    return [*results, tell.run("a"), tell.run("*")]


def new_partitions_lost_records(tell: ScenarioRun) -> Any:
    tell.topic("a", 2)
    options = {"startingOffsets": "earliest"}
    results = [tell.run("a", **options)]
    tell.grow("a", 2)
    tell.put("a", 1, 9)
    tell.trim("a", 1, 4)
    return [*results, tell.run("a", **options), tell.run("a", failOnDataLoss="false", **options)]


def starts_outside_of_the_log(tell: ScenarioRun) -> Any:
    tell.topic("a", 5)
    far = {"startingOffsets": tell.at("a", 9)}
    results = [tell.run("a", **far), tell.run("a", failOnDataLoss="false", **far)]
    tell.put("a", 0, 6)
    results.append(tell.run("a", failOnDataLoss="false", **far))
    tell.trim("a", 0, 11)
    tell.checkpoint = "other"
    near = {"startingOffsets": tell.at("a", 2)}
    return [*results, tell.run("a", **near), tell.run("a", failOnDataLoss="false", **near)]


def a_failed_batch_and_new_partitions(tell: ScenarioRun) -> Any:
    tell.topic("a", 7)

    def fail() -> None:
        raise RuntimeError("the sink is full")

    results = [tell.run("a", fail, startingOffsets="earliest")]
    tell.grow("a", 3)
    tell.put("a", 1, 1)
    return [*results, tell.run("a")]


def two_limited_topics_in_one_query(tell: ScenarioRun) -> Any:
    tell.topic("a", 7)
    tell.topic("b", 12)
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": 5}
    all_rows: list[list[str]] = []
    union = tell.stream("a", **options).union(tell.stream("b", **options))
    writer = union.writeStream.foreachBatch(lambda frame, _: all_rows.append(tell.rows(frame)))
    query = writer.option("checkpointLocation", str(tell.folder)).trigger(availableNow=True).start()
    assert query.awaitTermination(120)
    return [*all_rows, tell.run("ab", once=True, **options)]


def the_other_source_continues(tell: ScenarioRun) -> Any:
    """Either source may continue with a checkpoint of the other one."""
    tell.topic("a", 3, 2)
    results = [tell.run("a", startingOffsets="latest")]
    mine, theirs = tell.word, {"kafka": "kproto", "kproto": "kafka"}[tell.word]
    for turn in range(3):
        tell.word = mine if turn % 2 else theirs
        tell.put("a", turn % 2, 2)
        tell.grow("a", 3 + turn)
        tell.put("a", 2 + turn, 1)
        results.append(tell.run("a"))
    tell.word = mine
    return results


def the_other_source_continues_after_all_topics_were_deleted(tell: ScenarioRun) -> Any:
    """An offset without partitions does not make the query a new one, whichever source wrote it."""
    tell.topic("a", 2)
    options = {"startingOffsets": "latest", "failOnDataLoss": "false"}
    results = [tell.run("*", **options)]
    tell.put("a", 0, 1)
    results.append(tell.run("*", **options))
    tell.delete("a")
    results.append(tell.run("*", **options))
    tell.word = {"kafka": "kproto", "kproto": "kafka"}[tell.word]
    tell.topic("b", 3)
    return [*results, tell.run("*", **options)]


def limits_and_starts_change(tell: ScenarioRun) -> Any:
    """Options for the start of a query are ignored after it started; limits of batches apply immediately."""
    tell.topic("a", 9, 9)

    def fail() -> None:
        raise RuntimeError("the sink is full")

    results = [tell.run("a", fail, startingOffsets="earliest", maxOffsetsPerTrigger=6)]
    results.append(tell.run("a", maxOffsetsPerTrigger=8, minPartitions=9))
    for options in (
        {"startingOffsets": tell.at("a", 0, 0)},
        {"startingTimestamp": 1},
        {"includeHeaders": "true"},
    ):
        tell.put("a", 0, 2)
        results.append(tell.run("a", **options))
    tell.topic("b", 2)
    return [*results, tell.run("*"), tell.run("ab", startingOffsets="latest")]


def a_checkpoint_is_copied(tell: ScenarioRun) -> Any:
    tell.topic("a", 5)
    results = [tell.run("a", startingOffsets="earliest")]
    tell.put("a", 0, 2)
    copytree(tell.folder / "checkpoint", tell.folder / "copy")
    for name in ("checkpoint", "copy", "copy"):
        tell.checkpoint = name
        results.append(tell.run("a"))
    return results


def retention_deletes_records_during_a_batch(tell: ScenarioRun) -> Any:
    tell.topic("a", 9)
    options = {"startingOffsets": "earliest", "minPartitions": 3}
    results = [tell.run("a", before=lambda: tell.trim("a", 0, 4), **options)]
    results.append(tell.run("a", failOnDataLoss="false"))
    tell.put("a", 0, 3)
    return [*results, tell.run("a", before=lambda: tell.trim("a", 0, 12), failOnDataLoss="false")]


def transactions_are_open_at_a_batchs_end(tell: ScenarioRun) -> Any:
    tell.topic("a", 2)
    options = {"startingOffsets": "earliest", "kafka_isolation_level": "read_committed"}
    partition = TopicPartition(tell.name + "a", 0)

    def end(level: str) -> int | None:
        return tell.kafka.cluster.list_offsets({partition: "latest"}, isolation=level)[partition].offset

    with Producer(tell.kafka.bootstrap, transactional_id=tell.name) as producer:
        with producer.transaction():
            producer.send(partition.topic, b"open")
            producer.flush()
            tell.put("a", 0, 1)
            results = [tell.run("a", **options)]
            tell.put("a", 0, 1)
            results.append(tell.run("a", **options))
        # The response to the commit arrives before its marker is in the log.
        eventually(lambda: end("read_committed") == end("read_uncommitted"), "the marker", 60)
    return [*results, tell.run("a", **options), tell.run("a")]


def a_view_of_sql(tell: ScenarioRun) -> Any:
    tell.topic("a", 4)
    options = f"`kafka.bootstrap.servers` '{tell.kafka.bootstrap}', subscribe '{tell.name}a'"
    tell.spark.sql(f"create or replace temporary view flights using {tell.word} options ({options})")
    return tell.rows(tell.spark.sql("select * from flights"))


def progress_is_tracked_asynchronously(tell: ScenarioRun) -> Any:
    tell.topic("a", 15)
    tell.topic("b", 0)
    values = tell.stream("a", startingOffsets="earliest", maxOffsetsPerTrigger=5).select("value")
    sink = values.writeStream.format(tell.word).option("kafka.bootstrap.servers", tell.kafka.bootstrap)
    sink = sink.option("topic", tell.name + "b").option("checkpointLocation", str(tell.folder))
    sink = sink.option("asyncProgressTrackingEnabled", "true")
    query = sink.option("_asyncProgressTrackingOverrideSinkSupportCheck", "true").start()
    try:
        query.processAllAvailable()
    finally:
        query.stop()
    return tell.rows(tell.spark.read.format(tell.word).options(**tell.options("b", {})).load())


def options_change_before_the_first_record(tell: ScenarioRun) -> Any:
    tell.topic("a", 0)
    tell.topic("b", 3)
    results: list[Any] = []
    for letter, begins, later in (("a", "earliest", "latest"), ("b", tell.at("b", 3), "earliest")):
        tell.checkpoint = letter
        results.append(tell.run(letter, startingOffsets=begins))
        tell.put(letter, 0, 2)
        results.append(tell.run(letter, startingOffsets=later))
    return results


def an_empty_topic_is_recreated(tell: ScenarioRun) -> Any:
    tell.topic("a", 0)
    results = [tell.run("a", startingOffsets="earliest")]
    tell.delete("a")
    tell.topic("a", 2)
    return [*results, tell.run("a", startingOffsets="earliest")]


def a_sink_buffers_a_single_row(tell: ScenarioRun) -> Any:
    tell.topic("a", 0)
    rows = tell.spark.sql("select repeat('v', 15000) value, 7 topic from range(200)")
    sink = rows.write.format(tell.word).option("kafka.bootstrap.servers", tell.kafka.bootstrap)
    sink = sink.option("kafka.buffer.memory", "16384").option("kafka.request.timeout.ms", "180000")
    sink = sink.option("kafka.max.in.flight.requests.per.connection", "9")
    sink.option("topic", tell.name + "a").mode("append").save()
    return tell.rows(tell.spark.read.format(tell.word).options(**tell.options("a", {})).load())


def a_batch_query_runs_again(tell: ScenarioRun) -> Any:
    """A batch query reads the current start and end of its logs at every action, and in every batch of a
    joined stream.

    At the end a topic is deleted and created again.
    """
    tell.topic("a", 9, 0)
    batch = tell.spark.read.format(tell.word).options(**tell.options("a", {})).load()
    batch.createOrReplaceTempView("looked_at")
    results = [tell.rows(batch)]
    tell.trim("a", 0, 4)
    tell.put("a", 0, 2)
    tell.put("a", 1, 1)
    results += [tell.rows(batch), batch.rdd.getNumPartitions()]
    results.append(tell.spark.sql("select count(*), max(offset) from looked_at").collect()[0])
    tell.topic("b", 1)
    joined = tell.stream("b", startingOffsets="earliest").selectExpr("offset o").join(batch)
    all_rows: list[list[str]] = []
    writer = joined.writeStream.foreachBatch(lambda frame, _: all_rows.append(tell.rows(frame)))
    query = writer.option("checkpointLocation", str(tell.folder)).start()
    try:
        query.processAllAvailable()
        tell.put("a", 0, 3)
        tell.put("b", 0, 1)
        query.processAllAvailable()
    finally:
        query.stop()
    held = batch.select("topic", "partition", "offset")
    for _ in range(2):
        results.append(len(held.collect()))
        tell.put("a", 0, 1)
    tell.delete("a")
    tell.topic("a", 2, 1)
    return [*results, all_rows, tell.rows(batch)]


def limits_are_shared_and_rounded(tell: ScenarioRun) -> Any:
    tell.topic("a", 17, 9, 1, 3)
    return tell.run("a", startingOffsets="earliest", maxOffsetsPerTrigger=7)


STORIES = [
    records_written_before_the_start_are_read, topics_are_created_between_runs, the_assignment_changes,
    new_partitions_lost_records, starts_outside_of_the_log, the_other_source_continues, a_view_of_sql,
    the_other_source_continues_after_all_topics_were_deleted, retention_deletes_records_during_a_batch,
    options_change_before_the_first_record, a_sink_buffers_a_single_row,
    a_batch_query_runs_again, limits_are_shared_and_rounded,
]  # fmt: skip
LONGER = [
    topics_are_created_after_all_were_deleted, the_subscription_changes, a_failed_batch_and_new_partitions,
    two_limited_topics_in_one_query, progress_is_tracked_asynchronously,
    an_empty_topic_is_recreated, limits_and_starts_change, a_checkpoint_is_copied,
    transactions_are_open_at_a_batchs_end,
]  # fmt: skip
if os.environ.get("KPROTO_ALL_SPARK_STORIES"):
    STORIES += LONGER


@pytest.mark.parametrize("kafka", [pytest.param("real", marks=pytest.mark.kafka)], indirect=True)
@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_results_equal_those_of_sparks_own_source(
    spark: Any, sparks_own: None, kafka: Kafka, tmp_path: Path, story: Callable[[ScenarioRun], Any]
) -> None:
    theirs, ours = (story(ScenarioRun(spark, kafka, word, tmp_path)) for word in ("kafka", "kproto"))
    assert theirs
    assert ours == theirs
