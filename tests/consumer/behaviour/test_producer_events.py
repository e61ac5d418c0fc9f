"""A producer's `events` callback gets failures and recoveries, in the thread or loop of all callbacks."""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import Any

import pytest

from consumer import AsyncProducer, GroupChange, Producer, TopicPartition
from kproto import running
from kproto.error_codes import ErrorCode
from kproto.errors import BrokerError
from kproto.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from tests.consumer.stage import Client, World


def kinds(changes: list[GroupChange]) -> list[str]:
    return [change.kind for change in changes]


def test_a_fenced_producer_reports_that_it_has_failed() -> None:
    changes: list[GroupChange] = []
    with running(topics={"t": 1}) as server:
        producer = Producer(server.bootstrap, transactional_id="x")
        producer.events(changes.append)
        producer.begin()
        producer.send("t", b"x").result()
        with Producer(server.bootstrap, transactional_id="x") as successor:
            successor.begin()
            successor.abort()
        with pytest.raises(BrokerError):
            producer.commit()
        producer.kill()
    assert kinds(changes) == ["failed", "closed"]
    assert "PRODUCER_FENCED" in changes[0].reason
    assert changes[0].at > 0


def test_the_callbacks_of_a_blocking_producer_run_in_the_thread_of_delivery_callbacks() -> None:
    threads: list[Any] = []
    with running(topics={"t": 1}) as server, Producer(server.bootstrap, client_id="p") as producer:
        producer.events(lambda change: threads.append((change.kind, threading.current_thread().name)))
        producer.send("t", b"x")
    assert threads == [("closed", "kproto-producer-p-callbacks")]


def test_an_asyncio_producer_calls_the_callbacks_in_the_event_loop() -> None:
    threads: list[Any] = []

    async def run(bootstrap: str) -> None:
        async with AsyncProducer(bootstrap) as producer:
            producer.events(lambda change: threads.append((change.kind, threading.current_thread())))
            await producer.send("t", b"x")
            await producer.flush()
        await asyncio.sleep(0)  # The callbacks run in the next iteration of the event loop.

    with running(topics={"t": 1}) as server:
        asyncio.run(run(server.bootstrap))
    assert threads == [("closed", threading.current_thread())]


def test_an_exception_of_a_callback_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    changes: list[GroupChange] = []

    def fail(change: GroupChange) -> None:
        raise ValueError("the callback's own error")

    with running(topics={"t": 1}) as server, Producer(server.bootstrap) as producer:
        producer.events(fail)
        producer.events(changes.append)
    assert kinds(changes) == ["closed"]
    [record] = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert record.getMessage() == "a callback of events() failed on 'closed'"


def producer_with_errors(code: ErrorCode) -> tuple[World, Any]:
    """Return a cluster that answers every Produce with an error, and a producer with one record."""
    world = World({"t": 1})

    def tamper(client: Client, request: Any, version: int) -> Any:
        if not isinstance(request, ProduceRequest):
            return None
        [topic] = request.topic_data
        failed = PartitionProduceResponse(index=0, error_code=code, base_offset=-1)
        return ProduceResponse(
            responses=[
                TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=[failed])
            ]
        )

    world.tamper = tamper
    producer = world.producer()
    producer.must_send("t", "x")
    return world, producer


def test_produce_requests_that_keep_failing_are_reported_as_refused() -> None:
    world, producer = producer_with_errors(ErrorCode.NOT_ENOUGH_REPLICAS)
    world.run(4_000)
    assert producer.changes == []
    world.run(20_000)
    assert kinds(producer.changes) == ["refused"]
    assert producer.changes[0].reason.startswith("Produce has failed for 5 s")
    assert "NOT_ENOUGH_REPLICAS" in producer.changes[0].reason


def test_records_that_are_not_delivered_are_reported_with_their_partition() -> None:
    world, producer = producer_with_errors(ErrorCode.INVALID_REQUIRED_ACKS)
    world.run(4_000)
    assert kinds(producer.changes) == ["undelivered"]
    assert producer.changes[0].partitions == (TopicPartition("t", 0),)
    assert producer.changes[0].reason.startswith("1 records: ")
