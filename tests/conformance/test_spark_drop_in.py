"""A Spark program returns the same rows and metrics if format("kafka") is replaced by format("kproto").

The program uses every option of docs/reference/spark-options.md that Spark's own source and sink have.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from consumer.spark import behind, log_batches
from tests.conformance import judges
from tests.conformance.spark_session import Kafka, kafka, spark, sparks_own
from tests.consumer.spark.stage import HOUR, option_rows

pytestmark = pytest.mark.spark
__all__ = ["kafka", "spark", "sparks_own"]

REAL = pytest.mark.parametrize("kafka", [pytest.param("real", marks=pytest.mark.kafka)], indirect=True)
BOTH = ("kafka", "kproto")

CLIENT = {
    "kafka.client.id": "etl", "kafka.client.rack": "eu-1a", "kafka.request.timeout.ms": "20000",
    "kafka.metadata.max.age.ms": "5000", "kafka.retry.backoff.ms": "50",
    "kafka.retry.backoff.max.ms": "500", "kafka.reconnect.backoff.ms": "20",
    "kafka.reconnect.backoff.max.ms": "500", "kafka.socket.connection.setup.timeout.ms": "5000",
    "kafka.socket.connection.setup.timeout.max.ms": "9000", "kafka.receive.buffer.bytes": "131072",
    "kafka.send.buffer.bytes": "131072", "kafka.client.dns.lookup": "use_all_dns_ips",
    "kafka.connections.max.idle.ms": "60000", "kafka.metadata.recovery.strategy": "none",
    "kafka.metrics.recording.level": "INFO", "kafka.metrics.num.samples": "2",
    "kafka.metrics.sample.window.ms": "30000", "kafka.enable.metrics.push": "false",
}  # fmt: skip
READING = CLIENT | {
    "failOnDataLoss": "true", "includeHeaders": "true", "minPartitions": "5",
    "kafkaConsumer.pollTimeoutMs": "60000", "fetchOffset.numRetries": "2",
    "fetchOffset.retryIntervalMs": "100", "groupIdPrefix": "etl",
    "maxOffsetsPerTrigger": "10", "minOffsetsPerTrigger": "1",
    "maxTriggerDelay": "1s", "kafka.isolation.level": "read_committed", "kafka.check.crcs": "true",
    "kafka.fetch.min.bytes": "1", "kafka.fetch.max.bytes": "1000000", "kafka.fetch.max.wait.ms": "20",
    "kafka.max.partition.fetch.bytes": "100000", "kafka.default.api.timeout.ms": "30000",
    "kafka.session.timeout.ms": "10000", "kafka.heartbeat.interval.ms": "3000",
    "kafka.max.poll.interval.ms": "60000", "kafka.max.poll.records": "100",
    "kafka.auto.commit.interval.ms": "1000", "kafka.exclude.internal.topics": "true",
    "kafka.allow.auto.create.topics": "false", "kafka.group.id": "etl",
    "kafka.partition.assignment.strategy": "org.apache.kafka.clients.consumer.RangeAssignor",
}  # fmt: skip
WRITING = CLIENT | {
    "includeHeaders": "true", "kafka.acks": "all", "kafka.compression.type": "gzip",
    "kafka.compression.gzip.level": "6", "kafka.compression.lz4.level": "9",
    "kafka.compression.zstd.level": "3", "kafka.linger.ms": "5", "kafka.batch.size": "20000",
    "kafka.enable.idempotence": "true", "kafka.delivery.timeout.ms": "60000",
    "kafka.max.request.size": "1000000", "kafka.max.block.ms": "30000",
    "kafka.buffer.memory": "10000000", "kafka.max.in.flight.requests.per.connection": "3",
    "kafka.retries": "5", "kafka.metadata.max.idle.ms": "60000",
    "kafka.partitioner.adaptive.partitioning.enable": "false",
    "kafka.partitioner.availability.timeout.ms": "0",
}  # fmt: skip


def each(kafka: Kafka, first: int, second: int) -> str:
    return f'{{"{kafka.name}": {{"0": {first}, "1": {second}}}}}'


def bounds(kafka: Kafka) -> list[dict[str, str]]:
    """Return sets of options. Together they use every option that selects topics or limits the read."""
    topics = {"subscribe": f" {kafka.name} , "}
    return [
        {**topics, "startingOffsets": "earliest", "endingOffsets": "latest"},
        {**topics, "startingOffsets": each(kafka, 3, -2), "endingOffsets": each(kafka, -1, 6)},
        {**topics, "startingTimestamp": str(HOUR + 4), "endingTimestamp": str(HOUR + 7)},
        {
            "assign": f'{{"{kafka.name}": [0, 1]}}',
            "startingOffsetsByTimestamp": each(kafka, HOUR + 2, HOUR + 8),
            "endingOffsetsByTimestamp": each(kafka, HOUR + 5, HOUR + 10**9),
        },
        {
            "subscribePattern": rf"^{kafka.name}\p{{Lower}}*+$",
            "startingTimestamp": str(HOUR + 10**9),
            "startingOffsetsByTimestampStrategy": "latest",
            "maxRecordsPerPartition": "2",
        },
    ]


def program(spark: Any, kafka: Kafka, word: str, folder: Path) -> list[Any]:
    """Run the whole program: batch and streaming reads and writes."""
    servers = {"kafka.bootstrap.servers": kafka.bootstrap}
    results: list[Any] = []
    for bound in bounds(kafka):
        frame = spark.read.format(word).options(**servers, **READING, **bound).load()
        results.append((frame.dtypes, sorted(map(str, frame.collect()))))

    batches: list[list[str]] = []

    def see(frame: Any, _: int) -> None:
        batches.append(sorted(map(str, frame.collect())))

    stream = spark.readStream.format(word).options(**servers, **READING)
    stream = stream.options(subscribe=kafka.name, startingOffsets="earliest").load()
    query = stream.writeStream.foreachBatch(see).option("checkpointLocation", str(folder / f"{word}-seen"))
    query = query.trigger(availableNow=True).start()
    assert query.awaitTermination(120)
    results.append(sorted(row for batch in batches for row in batch))
    assert all(len(batch) <= 12 for batch in batches), "maxOffsetsPerTrigger"

    target = f"{kafka.name}-{word}"
    kafka.topic(target, 0, 0)
    columns = stream.selectExpr(
        "cast(key as string) key",
        "value",
        "'no' topic",
        "cast(offset % 2 as int) partition",
        "headers",
        "1 other",
    )
    sink = columns.writeStream.format(word).options(**servers, **WRITING, topic=target)
    query = sink.option("checkpointLocation", str(folder / word)).trigger(availableNow=True).start()
    assert query.awaitTermination(120)
    rows = spark.sql(f"select 'k' || id key, 'v' || id value, '{target}' topic from range(30)")
    rows.write.format(word).options(**servers, **WRITING).mode("append").save()
    written = spark.read.format("kproto").options(**servers, subscribe=target, includeHeaders="true").load()
    results.append(sorted(map(str, written.select("key", "value", "partition", "headers").collect())))
    return results


@REAL
def test_the_other_format_gives_the_same_rows(
    spark: Any, sparks_own: None, kafka: Kafka, tmp_path: Path
) -> None:
    kafka.fill(10, 12)
    theirs, ours = (program(spark, kafka, word, tmp_path) for word in BOTH)
    assert len(theirs[5]) == 22
    assert len(theirs[6]) == 52
    assert ours == theirs


@REAL
def test_metrics_equal_those_of_sparks_own_source(
    spark: Any, sparks_own: None, kafka: Kafka, tmp_path: Path
) -> None:
    kafka.fill(10, 4)
    metrics: dict[str, list[dict[str, str]]] = {}
    for word in BOTH:
        stream = spark.readStream.format(word).options(**kafka.options(startingOffsets="earliest"))
        sink = stream.option("maxOffsetsPerTrigger", 7).load().writeStream.format("noop")
        query = sink.option("checkpointLocation", str(tmp_path / word)).trigger(availableNow=True).start()
        assert query.awaitTermination(120)
        progress = [p for p in query.recentProgress if p["numInputRows"]]
        counted = [source.metrics for p in progress for source in behind(p)]
        if word == "kafka":
            assert counted == [dict(p["sources"][0]["metrics"]) for p in progress]
        metrics[word] = counted
    assert len(metrics["kafka"]) == 2
    assert metrics["kproto"] == metrics["kafka"]


@pytest.mark.parametrize("kafka", ["embedded"], indirect=True)
def test_every_batch_has_a_line_in_the_log(
    spark: Any, kafka: Kafka, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    kafka.fill(5)
    caplog.set_level("INFO", logger="consumer.spark.progress")
    log_batches(spark)
    stream = spark.readStream.format("kproto").options(**kafka.options(startingOffsets="earliest")).load()
    sink = stream.writeStream.format("noop").option("checkpointLocation", str(tmp_path)).queryName("etl")
    query = sink.trigger(availableNow=True).start()
    assert query.awaitTermination(120)
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    assert re.fullmatch(
        rf"etl, batch 0, [0-9.]+ s: 5 rows \({kafka.name}-0 0 to 5\), nothing waits", caplog.messages[0]
    )


def test_the_program_uses_every_option_of_both_sources() -> None:
    words = {"reading": {option for bound in bounds(Kafka("localhost:1", "t")) for option in bound}}
    used = {*READING, *WRITING, *words["reading"], "topic", "kafka.bootstrap.servers"}
    # Java options that Spark's own source does not use, such as those for share consumers, static members and
    # KIP-848.
    excluded = ("kafka.share.", "kafka.group.", "kafka.internal.", "kafka.metadata.recovery.rebootstrap")
    supported = {row.option for row in option_rows() if row.verdict in ("same", "better", "no effect")}
    assert {option for option in supported - used if not option.startswith(excluded)} == set()


@pytest.mark.java
def test_the_options_page_has_every_option_of_javas_clients(kafka_jars: str, tmp_path: Path) -> None:
    source = Path(__file__).parent / "java" / "Names.java"
    run = [judges.java(), "-cp", kafka_jars, str(source)]
    names = subprocess.run(run, capture_output=True, text=True, cwd=tmp_path, check=True).stdout.split()
    access = ("security.", "ssl.", "sasl.")
    of_the_page = {row.option for row in option_rows()}
    missing = {n for n in names if not n.startswith(access) and f"kafka.{n}" not in of_the_page}
    assert len(names) > 90
    assert missing == set()
