"""Stories that Spark's own source passes, most of them after its own test suites: told with both words on a
real Kafka, they come out the same. Each is some queries long: KPROTO_ALL_SPARK_STORIES=1 tells all.
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


class Teller:
    """Tells a story with one of the words. Topics are named after `name`, and shown without it."""

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

    def options(self, topics: str, given: dict[str, Any]) -> dict[str, str]:
        """Options that read the topics with these letters, or a whole pattern; `_` stands for a dot."""
        way = {"subscribe": ",".join(self.name + letter for letter in topics)}
        if topics == "*":
            way = {"subscribePattern": self.name + ".*"}
        named = {name.replace("_", "."): str(value) for name, value in given.items()}
        way = {} if {"subscribe", "assign"} & named.keys() else way
        return {"kafka.bootstrap.servers": self.kafka.bootstrap, **way, **named}

    def stream(self, topics: str, **given: Any) -> Any:
        return self.spark.readStream.format(self.word).options(**self.options(topics, given)).load()

    def rows(self, frame: Any) -> list[str]:
        """The rows in short: ``a-0 3..5`` for the records 3 to 5 of partition 0 of topic a."""
        found = sorted(map(tuple, frame.select("topic", "partition", "offset").collect()))
        told: list[str] = []
        for (topic, partition), each in groupby(found, lambda row: row[:2]):
            offsets = [row[2] for row in each]
            whole = len(offsets) == offsets[-1] - offsets[0] + 1
            told.append(f"{topic.removeprefix(self.name)}-{partition} " + ("{}..{}" if whole else "{} to {}"))
            told[-1] = told[-1].format(offsets[0], offsets[-1])
        return told

    def run(
        self,
        topics: str,
        act: Callable[[], None] = lambda: None,
        *,
        before: Callable[[], None] = lambda: None,
        **given: Any,
    ) -> list[list[str]] | str:
        """The rows of each batch of a run with the same checkpoint, to the logs' ends; or that it failed.
        `before` is called when a batch is planned, `act` when it is read.
        """
        found: list[list[str]] = []

        def see(frame: Any, _: int) -> None:
            before()
            rows = self.rows(frame)
            act()
            found.append(rows)

        trigger = {"once": True} if given.pop("once", False) else {"availableNow": True}
        try:
            writer = self.stream(topics, **given).writeStream.foreachBatch(see)
            query = writer.option("checkpointLocation", str(self.folder / self.checkpoint))
            started = query.trigger(**trigger).start()
            assert started.awaitTermination(120)
        except PySparkException:
            return REFUSED
        return [rows for rows in found if rows]

    @contextmanager
    def running(self, topics: str, **given: Any) -> Iterator[Callable[[], list[str]]]:
        """A query that runs on; what it gives returns the rows since the last time, once all are read."""
        found: list[Any] = []

        def see(frame: Any, _: int) -> None:
            found.extend(self.rows(frame))

        writer = self.stream(topics, **given).writeStream.foreachBatch(see)
        query = writer.option("checkpointLocation", str(self.folder / "running")).start()

        def new() -> list[str]:
            query.processAllAvailable()
            rows, found[:] = sorted(found), []
            return rows

        try:
            yield new
        finally:
            query.stop()


def what_was_written_before_is_processed(tell: Teller) -> Any:
    tell.topic("a", 1)
    with tell.running("a", startingOffsets="earliest") as new:
        seen = [new()]
        for _ in range(4):
            tell.put("a", 0, 1)
            seen.append(new())
        tell.grow("a", 2)
        tell.put("a", 1, 1)
        seen.append(new())
    assert all(seen)
    return seen


def topics_come_when_all_are_gone(tell: Teller) -> Any:
    tell.topic("a", 2)
    with tell.running("*", startingOffsets="latest", failOnDataLoss="false") as new:
        seen = [new()]
        tell.put("a", 0, 1)
        seen.append(new())
        tell.delete("a")
        seen.append(new())
        tell.topic("b", 3)
        return [*seen, new()]


def topics_come_between_runs(tell: Teller) -> Any:
    given = {"startingOffsets": "latest", "failOnDataLoss": "false"}
    seen = [tell.run("*", **given)]
    tell.topic("a", 2)
    seen.append(tell.run("*", **given))
    tell.delete("a")
    seen.append(tell.run("*", **given))
    tell.topic("b", 3)
    return [*seen, tell.run("*", **given)]


def others_are_subscribed(tell: Teller) -> Any:
    tell.topic("a", 2)
    tell.topic("b", 3)
    seen = [tell.run("a", startingOffsets="latest")]
    tell.put("a", 0, 1)
    seen += [tell.run("ab"), tell.run("b"), tell.run("b", failOnDataLoss="false")]
    tell.put("b", 0, 1)
    return [*seen, tell.run("b")]


def others_are_assigned(tell: Teller) -> Any:
    tell.topic("a", 2, 2, 2)

    def run(*partitions: int, **given: Any) -> Any:
        return tell.run("", assign=json.dumps({tell.name + "a": partitions}), **given)

    seen = [run(0, 7, startingOffsets="earliest"), run(0, 1), run(1), run(1, failOnDataLoss="false")]
    tell.put("a", 1, 1)
    return [*seen, tell.run("a"), tell.run("*")]


def newcomers_lost_records(tell: Teller) -> Any:
    tell.topic("a", 2)
    given = {"startingOffsets": "earliest"}
    seen = [tell.run("a", **given)]
    tell.grow("a", 2)
    tell.put("a", 1, 9)
    tell.trim("a", 1, 4)
    return [*seen, tell.run("a", **given), tell.run("a", failOnDataLoss="false", **given)]


def starts_outside_of_the_log(tell: Teller) -> Any:
    tell.topic("a", 5)
    far = {"startingOffsets": tell.at("a", 9)}
    seen = [tell.run("a", **far), tell.run("a", failOnDataLoss="false", **far)]
    tell.put("a", 0, 6)
    seen.append(tell.run("a", failOnDataLoss="false", **far))
    tell.trim("a", 0, 11)
    tell.checkpoint = "other"
    near = {"startingOffsets": tell.at("a", 2)}
    return [*seen, tell.run("a", **near), tell.run("a", failOnDataLoss="false", **near)]


def a_failed_batch_and_new_partitions(tell: Teller) -> Any:
    tell.topic("a", 7)

    def fail() -> None:
        raise RuntimeError("the sink is full")

    seen = [tell.run("a", fail, startingOffsets="earliest")]
    tell.grow("a", 3)
    tell.put("a", 1, 1)
    return [*seen, tell.run("a")]


def two_limited_topics_in_one_query(tell: Teller) -> Any:
    tell.topic("a", 7)
    tell.topic("b", 12)
    given = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": 5}
    found: list[list[str]] = []
    both = tell.stream("a", **given).union(tell.stream("b", **given))
    writer = both.writeStream.foreachBatch(lambda frame, _: found.append(tell.rows(frame)))
    query = writer.option("checkpointLocation", str(tell.folder)).trigger(availableNow=True).start()
    assert query.awaitTermination(120)
    return [*found, tell.run("ab", once=True, **given)]


def the_other_word_goes_on(tell: Teller) -> Any:
    """A checkpoint may be taken over, and back."""
    tell.topic("a", 3, 2)
    seen = [tell.run("a", startingOffsets="latest")]
    mine, theirs = tell.word, {"kafka": "kproto", "kproto": "kafka"}[tell.word]
    for turn in range(3):
        tell.word = mine if turn % 2 else theirs
        tell.put("a", turn % 2, 2)
        tell.grow("a", 3 + turn)
        tell.put("a", 2 + turn, 1)
        seen.append(tell.run("a"))
    tell.word = mine
    return seen


def the_other_word_goes_on_where_all_topics_are_gone(tell: Teller) -> Any:
    """An offset without a partition is no new query's, whoever wrote it."""
    tell.topic("a", 2)
    given = {"startingOffsets": "latest", "failOnDataLoss": "false"}
    seen = [tell.run("*", **given)]
    tell.put("a", 0, 1)
    seen.append(tell.run("*", **given))
    tell.delete("a")
    seen.append(tell.run("*", **given))
    tell.word = {"kafka": "kproto", "kproto": "kafka"}[tell.word]
    tell.topic("b", 3)
    return [*seen, tell.run("*", **given)]


def limits_and_starts_change(tell: Teller) -> Any:
    """What says where a query starts is of no account once it has; what limits its batches is, at once."""
    tell.topic("a", 9, 9)

    def fail() -> None:
        raise RuntimeError("the sink is full")

    seen = [tell.run("a", fail, startingOffsets="earliest", maxOffsetsPerTrigger=6)]
    seen.append(tell.run("a", maxOffsetsPerTrigger=8, minPartitions=9))
    for given in (
        {"startingOffsets": tell.at("a", 0, 0)},
        {"startingTimestamp": 1},
        {"includeHeaders": "true"},
    ):
        tell.put("a", 0, 2)
        seen.append(tell.run("a", **given))
    tell.topic("b", 2)
    return [*seen, tell.run("*"), tell.run("ab", startingOffsets="latest")]


def a_checkpoint_is_copied(tell: Teller) -> Any:
    tell.topic("a", 5)
    seen = [tell.run("a", startingOffsets="earliest")]
    tell.put("a", 0, 2)
    copytree(tell.folder / "checkpoint", tell.folder / "copy")
    for name in ("checkpoint", "copy", "copy"):
        tell.checkpoint = name
        seen.append(tell.run("a"))
    return seen


def retention_comes_in_the_middle_of_a_batch(tell: Teller) -> Any:
    tell.topic("a", 9)
    given = {"startingOffsets": "earliest", "minPartitions": 3}
    seen = [tell.run("a", before=lambda: tell.trim("a", 0, 4), **given)]
    seen.append(tell.run("a", failOnDataLoss="false"))
    tell.put("a", 0, 3)
    return [*seen, tell.run("a", before=lambda: tell.trim("a", 0, 12), failOnDataLoss="false")]


def transactions_are_open_at_a_batchs_end(tell: Teller) -> Any:
    tell.topic("a", 2)
    given = {"startingOffsets": "earliest", "kafka_isolation_level": "read_committed"}
    partition = TopicPartition(tell.name + "a", 0)

    def end(level: str) -> int | None:
        return tell.kafka.cluster.list_offsets({partition: "latest"}, isolation=level)[partition].offset

    with Producer(tell.kafka.bootstrap, transactional_id=tell.name) as producer:
        with producer.transaction():
            producer.send(partition.topic, b"open")
            producer.flush()
            tell.put("a", 0, 1)
            seen = [tell.run("a", **given)]
            tell.put("a", 0, 1)
            seen.append(tell.run("a", **given))
        # The answer to a commit comes before its marker is in the log.
        eventually(lambda: end("read_committed") == end("read_uncommitted"), "the marker", 60)
    return [*seen, tell.run("a", **given), tell.run("a")]


def a_view_of_sql(tell: Teller) -> Any:
    tell.topic("a", 4)
    options = f"`kafka.bootstrap.servers` '{tell.kafka.bootstrap}', subscribe '{tell.name}a'"
    tell.spark.sql(f"create or replace temporary view flights using {tell.word} options ({options})")
    return tell.rows(tell.spark.sql("select * from flights"))


def progress_is_tracked_asynchronously(tell: Teller) -> Any:
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


def options_change_before_the_first_record(tell: Teller) -> Any:
    tell.topic("a", 0)
    tell.topic("b", 3)
    seen: list[Any] = []
    for letter, begins, later in (("a", "earliest", "latest"), ("b", tell.at("b", 3), "earliest")):
        tell.checkpoint = letter
        seen.append(tell.run(letter, startingOffsets=begins))
        tell.put(letter, 0, 2)
        seen.append(tell.run(letter, startingOffsets=later))
    return seen


def a_topic_is_made_anew_before_it_had_a_record(tell: Teller) -> Any:
    tell.topic("a", 0)
    seen = [tell.run("a", startingOffsets="earliest")]
    tell.delete("a")
    tell.topic("a", 2)
    return [*seen, tell.run("a", startingOffsets="earliest")]


def a_sink_has_room_for_a_row_at_a_time(tell: Teller) -> Any:
    tell.topic("a", 0)
    rows = tell.spark.sql("select repeat('v', 15000) value, 7 topic from range(200)")
    sink = rows.write.format(tell.word).option("kafka.bootstrap.servers", tell.kafka.bootstrap)
    sink = sink.option("kafka.buffer.memory", "16384").option("kafka.request.timeout.ms", "180000")
    sink = sink.option("kafka.max.in.flight.requests.per.connection", "9")
    sink.option("topic", tell.name + "a").mode("append").save()
    return tell.rows(tell.spark.read.format(tell.word).options(**tell.options("a", {})).load())


def a_batch_is_looked_at_again(tell: Teller) -> Any:
    """A batch begins and ends with its logs at every action, and whenever a stream joins it; a topic is made
    anew at the end.
    """
    tell.topic("a", 9, 0)
    batch = tell.spark.read.format(tell.word).options(**tell.options("a", {})).load()
    batch.createOrReplaceTempView("looked_at")
    seen = [tell.rows(batch)]
    tell.trim("a", 0, 4)
    tell.put("a", 0, 2)
    tell.put("a", 1, 1)
    seen += [tell.rows(batch), batch.rdd.getNumPartitions()]
    seen.append(tell.spark.sql("select count(*), max(offset) from looked_at").collect()[0])
    tell.topic("b", 1)
    joined = tell.stream("b", startingOffsets="earliest").selectExpr("offset o").join(batch)
    found: list[list[str]] = []
    writer = joined.writeStream.foreachBatch(lambda frame, _: found.append(tell.rows(frame)))
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
        seen.append(len(held.collect()))
        tell.put("a", 0, 1)
    tell.delete("a")
    tell.topic("a", 2, 1)
    return [*seen, found, tell.rows(batch)]


def limits_are_shared_and_rounded(tell: Teller) -> Any:
    tell.topic("a", 17, 9, 1, 3)
    return tell.run("a", startingOffsets="earliest", maxOffsetsPerTrigger=7)


STORIES = [
    what_was_written_before_is_processed, topics_come_between_runs, others_are_assigned,
    newcomers_lost_records, starts_outside_of_the_log, the_other_word_goes_on, a_view_of_sql,
    the_other_word_goes_on_where_all_topics_are_gone, retention_comes_in_the_middle_of_a_batch,
    options_change_before_the_first_record, a_sink_has_room_for_a_row_at_a_time,
    a_batch_is_looked_at_again, limits_are_shared_and_rounded,
]  # fmt: skip
LONGER = [
    topics_come_when_all_are_gone, others_are_subscribed, a_failed_batch_and_new_partitions,
    two_limited_topics_in_one_query, progress_is_tracked_asynchronously,
    a_topic_is_made_anew_before_it_had_a_record, limits_and_starts_change, a_checkpoint_is_copied,
    transactions_are_open_at_a_batchs_end,
]  # fmt: skip
if os.environ.get("KPROTO_ALL_SPARK_STORIES"):
    STORIES += LONGER


@pytest.mark.parametrize("kafka", [pytest.param("real", marks=pytest.mark.kafka)], indirect=True)
@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_the_story_comes_out_as_with_sparks_own_source(
    spark: Any, sparks_own: None, kafka: Kafka, tmp_path: Path, story: Callable[[Teller], Any]
) -> None:
    theirs, ours = (story(Teller(spark, kafka, word, tmp_path)) for word in ("kafka", "kproto"))
    assert theirs
    assert ours == theirs
