"""kproto reads compacted logs as Spark's own source does: whole logs, offset bounds in gaps, and streams."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kproto.group.subscription import TopicPartition
from kproto.records import encode_batch, rows
from kproto.records.record import Record
from tests.conformance import judges
from tests.conformance.spark_session import Kafka, spark, sparks_own
from tests.consumer.spark.stage import HOUR

pytestmark = [pytest.mark.spark, pytest.mark.kafka]
__all__ = ["spark", "sparks_own"]

TOPIC = "compacted"
ROUNDS = 60
BOTH = ("kafka", "kproto")


@pytest.fixture(scope="module")
def compacted() -> Iterator[Kafka]:
    """Two compacted logs with the same 60 rounds of records, which have few keys and some tombstones.

    A round is ten records. One log has a batch for each round. The other log has lz4 batches of 20 rounds.
    """
    with judges.real_kafka({"log.cleaner.backoff.ms": "100"}) as broker:
        kafka = Kafka(broker.bootstrap, TOPIC)
        with kafka.cluster:
            configs = {"cleanup.policy": "compact", "segment.ms": "50", "min.cleanable.dirty.ratio": "0.01"}
            kafka.cluster.create_topics({TOPIC: 2}, configs=configs)
            write(kafka)
            yield kafka


def write(kafka: Kafka) -> None:
    records = [
        Record(0, HOUR + n, b"key-%d" % (n % (5 + n // 30)), None if n % 7 == 3 else b"%d" % n)
        for n in range(ROUNDS * 10)
    ]
    sizes = {0: (10, "none"), 1: (200, "lz4")}
    for number, (size, compression) in sizes.items():
        for at in range(0, len(records), size):
            few = [
                Record(n, record.timestamp, record.key, record.value)
                for n, record in enumerate(records[at : at + size])
            ]
            kafka.cluster.produce(TopicPartition(TOPIC, number), encode_batch(few, compression=compression))
    deadline = time.monotonic() + 120
    while any(len(left(kafka, number)) > len(records) // 2 for number in sizes):
        assert time.monotonic() < deadline, "the broker's cleaner does nothing"
        time.sleep(0.1)
        # Another record makes the broker roll the active segment. The cleaner never cleans the active
        # segment.
        for number in sizes:
            last = encode_batch([Record(0, HOUR, b"last", b"%d" % number)])
            kafka.cluster.produce(TopicPartition(TOPIC, number), last)
    until_quiet(kafka)


def left(kafka: Kafka, number: int) -> list[int]:
    """Return the offsets of the records that the cleaner has kept."""
    partition, at, offsets_ = TopicPartition(TOPIC, number), 0, list[int]()
    end = kafka.cluster.list_offsets({partition: "latest"})[partition].offset or 0
    while at < end:
        some = [row.offset for row in rows(kafka.cluster.fetch({partition: at})[partition].records)]
        offsets_ += [offset for offset in some if offset >= at]
        at = max(some, default=end) + 1
    return offsets_


def until_quiet(kafka: Kafka) -> None:
    """Wait until no record has been removed for two seconds."""
    same, before = 0, [left(kafka, 0), left(kafka, 1)]
    while same < 10:
        time.sleep(0.2)
        now = [left(kafka, 0), left(kafka, 1)]
        same, before = (same + 1 if now == before else 0), now


def offsets(first: int, second: int) -> str:
    return f'{{"{TOPIC}": {{"0": {first}, "1": {second}}}}}'


@pytest.mark.parametrize(
    "bounds",
    [
        {},
        {"minPartitions": "9"},
        {"startingOffsets": offsets(3, 401), "endingOffsets": offsets(555, 583)},
        {"startingOffsets": offsets(100, 150), "endingOffsets": offsets(101, 151)},
        {"startingTimestamp": str(HOUR + 333), "kafka.isolation.level": "read_committed"},
        {"kafka.max.partition.fetch.bytes": "300"},
    ],
    ids=str,
)
def test_a_batch_over_a_compacted_log_has_the_rows_of_sparks_source(
    spark: Any, sparks_own: None, compacted: Kafka, bounds: dict[str, str]
) -> None:
    rows_by_format: dict[str, list[str]] = {}
    for word in BOTH:
        frame = spark.read.format(word).options(**compacted.options(subscribe=TOPIC), **bounds).load()
        rows_by_format[word] = sorted(map(str, frame.collect()))
    assert rows_by_format["kproto"] == rows_by_format["kafka"]
    if not bounds:
        gaps = [len(left(compacted, number)) for number in (0, 1)]
        assert len(rows_by_format["kproto"]) == sum(gaps) < ROUNDS * 10


def test_a_stream_over_a_compacted_log_has_the_rows_of_sparks_source(
    spark: Any, sparks_own: None, compacted: Kafka, tmp_path: Path
) -> None:
    rows_by_format: dict[str, list[str]] = {word: [] for word in BOTH}
    for word in BOTH:

        def see(frame: Any, _: int, rows_: list[str] = rows_by_format[word]) -> None:
            rows_ += map(str, frame.collect())

        options = compacted.options(subscribe=TOPIC, startingOffsets="earliest", maxOffsetsPerTrigger=170)
        sink = spark.readStream.format(word).options(**options).load().writeStream.foreachBatch(see)
        query = sink.option("checkpointLocation", str(tmp_path / word)).trigger(availableNow=True).start()
        assert query.awaitTermination(120)
    assert sorted(rows_by_format["kproto"]) == sorted(rows_by_format["kafka"])
    assert len(rows_by_format["kproto"]) == sum(len(left(compacted, number)) for number in (0, 1))
