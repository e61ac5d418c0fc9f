"""Unusual topics on a real Kafka: kproto's source returns the same rows as Spark's own source."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from consumer import Producer
from kproto.group.subscription import TopicPartition
from kproto.records import encode_batch
from kproto.records.record import Record
from tests.conformance.spark_session import Kafka, kafka, spark, sparks_own
from tests.consumer.spark.stage import HOUR

pytestmark = pytest.mark.spark
__all__ = ["kafka", "spark", "sparks_own"]

# The records' timestamps: two around the hour that New York skips in spring, two around the hour that occurs
# twice in autumn, -1 (no timestamp), and 0 (1970).
TIMES = (1_710_055_800_000, 1_710_059_400_000, 1_699_162_200_123, 1_699_165_800_000, -1, 0)


class Look:
    """Reads a topic with kproto's or Spark's own source."""

    def __init__(self, spark: Any, kafka: Kafka, word: str, folder: Path) -> None:
        self.spark, self.kafka, self.word = spark, kafka, word
        self.folder = folder / word

    def batch(self, **more: str) -> Any:
        options = {"includeHeaders": "true", **self.kafka.options(**more)}
        return self.spark.read.format(self.word).options(**options).load()

    def stream(self, **more: str) -> Any:
        options = self.kafka.options(startingOffsets="earliest", **more)
        return self.spark.readStream.format(self.word).options(**options).load()

    def run(self, frame: Any, name: str) -> tuple[list[list[str]], list[Any]]:
        """Return the rows of each batch, and the end offsets in the query's progress."""
        row_batches: list[list[str]] = []
        writer = frame.writeStream.foreachBatch(lambda batch, _: row_batches.append(rows(batch)))
        query = (
            writer.option("checkpointLocation", str(self.folder / name)).trigger(availableNow=True).start()
        )
        assert query.awaitTermination(120), query.exception()
        ends = [json.loads(source.endOffset) for p in query.recentProgress for source in p.sources]
        return row_batches, [{t: at for t, at in end.items() if not t.startswith("@")} for end in ends]


def rows(frame: Any) -> list[str]:
    return sorted(map(str, frame.collect()))


def put(kafka: Kafka, *records: Record) -> None:
    kafka.cluster.produce(TopicPartition(kafka.name, 0), encode_batch(list(records)))


def odd_records(kafka: Kafka) -> Callable[[Look], Any]:
    kafka.fill(0)
    headers: list[tuple[str, bytes | None]] = [("h", None), ("h", b""), ("h", b"x"), ("", b"y")]
    put(
        kafka,
        Record(0, HOUR, None, None),
        Record(1, HOUR, b"", b""),
        Record(2, HOUR, b"k", None, headers),
        Record(3, HOUR, b"\xff\xfe", b"\x00\xff"),
    )
    casts = ["cast(key as string)", "cast(value as string)", "hex(value)", "nvl(value, 'none')", "headers"]
    return lambda look: (rows(look.batch()), rows(look.batch().selectExpr(*casts)))


def times_in_a_zone(kafka: Kafka) -> Callable[[Look], Any]:
    kafka.fill(0)
    for number, time in enumerate(TIMES):
        put(kafka, Record(0, time, None, b"%d" % number))
    shown = ["cast(timestamp as string)", "unix_millis(timestamp)", "date_trunc('hour', timestamp)"]

    def look(at: Look) -> Any:
        before = at.spark.conf.get("spark.sql.session.timeZone")
        at.spark.conf.set("spark.sql.session.timeZone", "America/New_York")
        try:
            return rows(at.batch().selectExpr("offset", "timestampType", *shown))
        finally:
            at.spark.conf.set("spark.sql.session.timeZone", before)

    return look


def huge_records_in_the_brokers_time(kafka: Kafka) -> Callable[[Look], Any]:
    configs = {"message.timestamp.type": "LogAppendTime", "max.message.bytes": "20000000"}
    kafka.cluster.create_topics({kafka.name: 1}, configs=configs)
    for size in (10_000_000, 1, 9_000_000):
        put(kafka, Record(0, HOUR, None, b"x" * size))
    columns = ["offset", "length(value)", "timestamp", "timestampType"]
    return lambda look: (
        rows(look.batch().selectExpr(*columns)),
        look.run(look.stream(maxOffsetsPerTrigger="2").selectExpr(*columns), "huge"),
    )


def transactions_that_end_the_log(kafka: Kafka) -> Callable[[Look], Any]:
    kafka.fill(0)
    with Producer(kafka.bootstrap, transactional_id=kafka.name) as producer:
        for fails in (False, True, True):
            try:
                with producer.transaction():
                    for number in range(3):
                        producer.send(kafka.name, b"%d" % number)
                    if fails:
                        raise ZeroDivisionError
            except ZeroDivisionError:
                pass

    def look(at: Look) -> Any:
        return [
            (
                at.batch(**level).count(),
                at.run(at.stream(**level).select("offset"), level["kafka_isolation_level"]),
            )
            for level in (
                {"kafka_isolation_level": f"read_{which}"} for which in ("committed", "uncommitted")
            )
        ]

    return look


def one_stream_twice_in_a_query(kafka: Kafka) -> Callable[[Look], Any]:
    kafka.fill(6, 3)

    def look(at: Look) -> Any:
        stream = at.stream(maxOffsetsPerTrigger="100").select("partition", "offset", "timestamp")
        joined = (
            stream.alias("x").join(stream.alias("y"), "offset").selectExpr("x.partition", "y.partition y")
        )
        late = stream.withWatermark("timestamp", "1 minute").dropDuplicates(["offset"]).select("offset")
        batch = at.batch().select("offset")
        return [
            at.run(stream.select("partition", "offset").union(stream.select("partition", "offset")), "union"),
            at.run(joined, "join"),
            at.run(late, "late"),
            at.run(stream.select("offset").join(batch, "offset"), "batch"),
        ]

    return look


def rows_that_are_written(kafka: Kafka) -> Callable[[Look], Any]:
    header = "array(named_struct('key', 'h', 'value', cast(null as binary)))"
    column_lists = [
        "'x' value, 'y' Value, 'z' other",
        "cast(null as string) value, 'k' key, cast(null as int) partition",
        f"cast('x' as varchar(5)) value, cast('k' as char(3)) key, {header} headers",
        "'x' value, 'k' key, cast(array() as array<struct<key:string,value:binary>>) headers",
        "'' value, '' key, 0 partition, cast(7 as bigint) topic",
    ]

    def look(at: Look) -> Any:
        topic = f"{kafka.name}-{at.word}"
        kafka.cluster.create_topics({topic: 1})
        for columns in column_lists:
            sink = at.spark.sql(f"select {columns}").write.format(at.word).mode("append")
            sink.options(**{"kafka.bootstrap.servers": kafka.bootstrap}, topic=topic).save()
        return rows(at.batch(subscribe=topic).select("key", "value", "partition", "offset", "headers"))

    return look


@pytest.mark.parametrize("kafka", [pytest.param("real", marks=pytest.mark.kafka)], indirect=True)
@pytest.mark.parametrize(
    "topic",
    [
        odd_records,
        times_in_a_zone,
        huge_records_in_the_brokers_time,
        transactions_that_end_the_log,
        one_stream_twice_in_a_query,
        rows_that_are_written,
    ],
    ids=lambda topic: topic.__name__,
)
def test_both_sources_return_the_same_rows(
    spark: Any,
    sparks_own: None,
    kafka: Kafka,
    tmp_path: Path,
    topic: Callable[[Kafka], Callable[[Look], Any]],
) -> None:
    look = topic(kafka)
    theirs, ours = (look(Look(spark, kafka, word, tmp_path)) for word in ("kafka", "kproto"))
    assert theirs
    assert ours == theirs
