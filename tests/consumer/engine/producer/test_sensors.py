"""The metrics of a producer have the expected values after known traffic, in virtual time."""

from __future__ import annotations

from typing import Any

from consumer.engine.metrics import Metrics
from consumer.engine.producer.sensors import PRODUCER_METRICS
from kproto.error_codes import ErrorCode
from kproto.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from tests.consumer.engine.producer.stage import numbers
from tests.consumer.stage import Client, Producer, World


def producer(world: World, **options: Any) -> Producer:
    """Add a producer that has sent ten records, after a linger time of 100 ms."""
    a = world.producer(linger_ms=100, **options)
    for value in numbers(0, 10):
        a.must_send("t", value)
    world.run(5_000)
    return a


def metrics(world: World, producer: Producer) -> Metrics:
    return producer.engine.metrics(world.now)


def answer_once(world: World, code: int) -> None:
    """Answer the next Produce request with an error."""

    def tamper(client: Client, request: Any, version: int) -> Any:
        if not isinstance(request, ProduceRequest):
            return None
        world.tamper = None
        return ProduceResponse(
            responses=[
                TopicProduceResponse(
                    name=topic.name,
                    topic_id=topic.topic_id,
                    partition_responses=[
                        PartitionProduceResponse(index=entry.index, error_code=code, base_offset=-1)
                        for entry in topic.partition_data
                    ],
                )
                for topic in request.topic_data
            ]
        )

    world.tamper = tamper


def test_a_snapshot_contains_the_metrics_of_the_table() -> None:
    world = World({"t": 1})
    listed = {(metric.name, metric.group, metric.tags) for metric in PRODUCER_METRICS}
    assert len(listed) == len(PRODUCER_METRICS)
    snapshot = metrics(world, producer(world))
    assert {
        (metric.name, metric.group.removeprefix("producer-"), tuple(metric.tags)[1:]) for metric in snapshot
    } == listed


def test_a_batch_is_measured_when_its_request_is_built() -> None:
    world = World({"t": 1})
    snapshot = metrics(world, producer(world))
    assert snapshot.value("record-send-total") == snapshot.value("record-send-total", topic="t") == 10
    assert snapshot.value("records-per-request-avg") == 10
    assert snapshot.value("batch-size-avg") == snapshot.value("byte-total", topic="t")
    assert snapshot.value("batch-size-max") == 61 + 10 * 8
    queue_time = snapshot.value("record-queue-time-max")
    assert queue_time is not None
    assert 100 <= queue_time < 200
    assert snapshot.value("record-error-total") == snapshot.value("record-retry-total") == 0
    # Each record takes eight bytes: one for its value, and one for each of the seven other fields, such as
    # its length.
    assert snapshot.value("record-size-avg") == snapshot.value("record-size-max") == 8
    assert snapshot.value("compression-rate-avg") == snapshot.value("compression-rate", topic="t") == 1


def test_the_compression_rate_is_the_compressed_size_divided_by_the_size_before() -> None:
    world = World({"t": 1})
    a = world.producer(linger_ms=100, compression_type="gzip")
    a.must_send("t", "x" * 10_000)
    world.run(5_000)
    rate = metrics(world, a).value("compression-rate", topic="t")
    assert rate is not None
    assert 0.001 < rate < 0.01
    assert metrics(world, a).value("compression-rate-avg") == rate


def test_the_age_of_the_metadata_is_measured() -> None:
    world = World({"t": 1})
    a = producer(world)
    assert metrics(world, a).value("metadata-age") == 5


def test_the_latency_of_produce_requests_is_measured() -> None:
    world = World({"t": 1}, latency=(30, 30))
    snapshot = metrics(world, producer(world))
    latency = snapshot.value("request-latency-max")
    assert latency is not None
    assert latency >= 60
    assert latency in [metric.value for metric in snapshot if metric.group == "producer-node-metrics"]
    assert snapshot.value("produce-throttle-time-max") == 0
    assert snapshot.value("requests-in-flight") == 0


def test_records_that_are_sent_again_are_retries() -> None:
    world = World({"t": 1})
    answer_once(world, ErrorCode.NOT_ENOUGH_REPLICAS)
    snapshot = metrics(world, producer(world))
    assert snapshot.value("record-retry-total") == snapshot.value("record-retry-total", topic="t") == 10
    assert snapshot.value("record-send-total") == 20
    assert snapshot.value("record-error-total") == 0


def test_records_that_are_not_delivered_are_errors() -> None:
    world = World({"t": 1})
    answer_once(world, ErrorCode.INVALID_REQUIRED_ACKS)
    snapshot = metrics(world, producer(world))
    assert snapshot.value("record-error-total") == snapshot.value("record-error-total", topic="t") == 10


def test_a_batch_that_is_too_large_is_split() -> None:
    world = World({"t": 1})
    answer_once(world, ErrorCode.MESSAGE_TOO_LARGE)
    snapshot = metrics(world, producer(world))
    assert snapshot.value("batch-split-total") == 1
    assert snapshot.value("record-error-total") == 0


def test_open_batches_use_the_buffer() -> None:
    world = World({"t": 1})
    a = producer(world, buffer_memory=100_000)
    assert metrics(world, a).value("buffer-available-bytes") == 100_000
    a.must_send("t", "x" * 1_000)
    available = metrics(world, a).value("buffer-available-bytes")
    assert available is not None
    assert 90_000 < available < 99_000
    assert metrics(world, a).value("buffer-total-bytes") == 100_000
