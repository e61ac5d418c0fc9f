"""`metrics` of consumers, producers and admin clients counts what they did on the embedded broker."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from consumer import Admin, AsyncConsumer, AsyncProducer, Consumer, Producer, TopicPartition
from kproto import running
from kproto.errors import RequestTimedOut, WokenUp

T0 = TopicPartition("t", 0)
OPTIONS: dict[str, Any] = {"group_id": "g", "auto_offset_reset": "earliest"}


@pytest.fixture
def broker() -> Iterator[str]:
    with running(topics={"t": 1}) as server:
        with Producer(server.bootstrap) as producer:
            for number in range(10):
                producer.send("t", b"%d" % number)
        yield server.bootstrap


def test_a_consumer_counts_the_records_that_poll_returned(broker: str) -> None:
    with Consumer(broker, **OPTIONS) as consumer:
        consumer.subscribe("t")
        records = consumer.poll(10)
        while len(records) < 10:
            records += consumer.poll(10)
        consumer.commit()
        assert consumer.committed() is not None
        metrics = consumer.metrics()
    assert metrics.value("records-consumed-total") == 10
    assert metrics.value("records-lag", topic="t", partition=0) == 0
    assert metrics.value("assigned-partitions") == 1
    assert (metrics.value("commit-total") or 0) >= 1
    assert metrics.value("committed-time-ns-total") is not None
    assert {metric.tags["client-id"] for metric in metrics} == {consumer.options.client_id}


def test_an_asyncio_consumer_has_the_same_metrics(broker: str) -> None:
    async def run() -> int | float | None:
        async with AsyncConsumer(broker, **OPTIONS) as consumer:
            consumer.assign([T0])
            count = 0
            async for _ in consumer:
                count += 1
                if count == 10:
                    return consumer.metrics().value("records-consumed-total", topic="t")
        return None

    assert asyncio.run(run()) == 10


def test_columns_are_counted_as_records(broker: str) -> None:
    with Consumer(broker, **OPTIONS) as consumer:
        consumer.assign([T0])
        count = 0
        while count < 10:
            count += sum(len(batch.columns) for batch in consumer.poll_columns(10))
        metrics = consumer.metrics()
    assert metrics.value("records-consumed-total") == 10
    assert metrics.value("bytes-consumed-total") == metrics.value("fetch-size-avg")


def test_a_snapshot_does_not_wait_for_a_poll_of_another_thread(broker: str) -> None:
    with Consumer(broker, **OPTIONS) as consumer:
        consumer.assign({T0: 10})

        def poll() -> None:
            with suppress(WokenUp):
                consumer.poll(30)

        polling = threading.Thread(target=poll)
        polling.start()
        assert consumer.metrics().value("records-consumed-total") == 0
        consumer.wakeup()
        polling.join()


def test_metrics_remain_after_close(broker: str) -> None:
    with Consumer(broker, **OPTIONS) as consumer:
        consumer.assign([T0])
        assert consumer.poll(10)
    metrics = consumer.metrics()
    assert (metrics.value("records-consumed-total") or 0) > 0
    assert metrics.value("connection-count") == 0


def test_a_producer_counts_records_and_the_time_of_transactions(broker: str) -> None:
    with Producer(broker, transactional_id="x") as producer:
        with producer.transaction():
            producer.send("t", b"x")
            producer.send_offsets("g", {T0: 1})
        metrics = producer.metrics()
    assert metrics.value("record-send-total") == metrics.value("record-send-total", topic="t") == 1
    # Either call may take less than a clock tick, but both together need several round trips.
    times = [metrics.value(f"txn-{call}-time-ns-total") or 0 for call in ("init", "commit")]
    assert sum(times) > 0
    assert metrics.value("txn-abort-time-ns-total") == 0
    assert producer.metrics().value("record-send-total") == 1


def test_only_the_first_begin_is_measured_as_the_initialization(broker: str) -> None:
    with Producer(broker, transactional_id="x") as producer:
        producer.begin()
        producer.abort()
        before = producer.metrics().value("txn-init-time-ns-total")
        producer.begin()
        producer.abort()
        assert producer.metrics().value("txn-init-time-ns-total") == before


def test_a_producer_that_is_closed_has_no_connection(broker: str) -> None:
    with Producer(broker) as producer:
        producer.send("t", b"x").result()
        assert producer.metrics().value("connection-count") != 0
    assert producer.metrics().value("connection-count") == 0
    assert producer.metrics().value("connection-close-total") != 0


def test_waits_of_sends_for_metadata_and_for_memory_are_measured() -> None:
    with running(topics={"t": 1}) as server:
        producer = Producer(server.bootstrap, buffer_memory=40_000, batch_size=20_000, max_block_ms=300)
        producer.send("t", b"x").result()
        metrics = producer.metrics()
        assert metrics.value("metadata-age") is not None
        assert (metrics.value("metadata-wait-time-ns-total") or 0) > 0
        assert metrics.value("bufferpool-wait-time-ns-total") == metrics.value("buffer-exhausted-total") == 0
    # The broker has ended.
    producer.send("t", bytes(15_000))
    producer.send("t", bytes(15_000))
    with pytest.raises(RequestTimedOut, match="buffer"):
        producer.send("t", bytes(15_000))
    metrics = producer.metrics()
    producer.kill()
    assert metrics.value("buffer-exhausted-total") == 1
    assert (metrics.value("bufferpool-wait-time-ns-total") or 0) >= 200_000_000
    assert (metrics.value("bufferpool-wait-ratio") or 0) > 0
    assert metrics.value("waiting-threads") == 0


def test_an_asyncio_producer_has_the_same_metrics(broker: str) -> None:
    async def run() -> float | None:
        async with AsyncProducer(broker) as producer:
            await producer.send("t", b"x")
            await producer.flush()
            return producer.metrics().value("record-send-total")

    assert asyncio.run(run()) == 1


def test_an_admin_client_has_the_metrics_of_its_connections(broker: str) -> None:
    with Admin(broker, client_id="operator") as admin:
        assert admin.metrics().value("request-total") == 0
        admin.describe_cluster()
        metrics = admin.metrics()
    assert (metrics.value("request-total") or 0) > 0
    assert {metric.group for metric in metrics} == {"admin-client-metrics", "admin-client-node-metrics"}
    assert {metric.tags["client-id"] for metric in metrics} == {"operator"}
