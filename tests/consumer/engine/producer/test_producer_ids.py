"""A producer without transactions requests one producer id, and then bumps its epochs itself."""

from __future__ import annotations

import itertools
from typing import Any

from consumer.engine.producer.batches import LAST_EPOCH
from consumer.engine.producer.transaction_requests import ProducerIdAndEpoch
from kproto.error_codes import ErrorCode
from kproto.errors import UnsupportedVersion
from kproto.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tests.consumer.engine.producer.stage import values_of
from tests.consumer.stage import Client, Producer, World, tp


def delivered(world: World, producer: Producer, value: str, partition: int = 0) -> ProducerIdAndEpoch | None:
    """Send a record, wait for its delivery, and return the producer id and epoch of its batch."""
    batch = producer.must_send("t", value, partition=partition)
    producer.tick()
    assert world.run(5_000, until=lambda: batch.done)
    assert batch.error is None
    return batch.identity


def test_a_partition_that_has_used_all_epochs_gets_a_new_producer_id() -> None:
    world = World({"t": 2})
    producer = world.producer(linger_ms=0)
    first = delivered(world, producer, "0")
    assert first is not None
    queue = producer.engine.records.queues[tp("t", 0)]
    queue.identity, queue.needs_new_epoch = first._replace(epoch=LAST_EPOCH - 1), True
    assert delivered(world, producer, "1") == first._replace(epoch=LAST_EPOCH)
    assert len(world.requests_of(producer, InitProducerIdRequest)) == 1
    queue.needs_new_epoch = True
    second = delivered(world, producer, "2")
    assert second is not None
    assert second.producer_id != first.producer_id
    assert second.epoch == 0
    assert len(world.requests_of(producer, InitProducerIdRequest)) == 2
    assert values_of(world, "t", 0) == ["0", "1", "2"]
    # A new epoch of partition 1 does not change the epoch of partition 0.
    second_queue = producer.engine.records.queues[tp("t", 1)]
    assert delivered(world, producer, "x", partition=1) == second
    second_queue.needs_new_epoch = True
    assert delivered(world, producer, "y", partition=1) == second._replace(epoch=1)
    assert queue.identity == second


def test_without_idempotence_no_producer_id_is_requested() -> None:
    world = World({"t": 1})
    producer = world.producer(linger_ms=0, enable_idempotence=False)
    assert delivered(world, producer, "x") is None
    assert not world.requests_of(producer, InitProducerIdRequest)


def test_a_producer_id_is_requested_once_at_a_time() -> None:
    world = World({"t": 1}, latency=(100, 100))
    producer = world.producer(linger_ms=0)
    batch = producer.must_send("t", "x")
    for _ in range(20):
        producer.tick()
        world.run(50)
    assert batch.done
    assert len(world.requests_of(producer, InitProducerIdRequest)) == 1


def test_after_errors_a_producer_id_is_requested_at_growing_intervals() -> None:
    world = World({"t": 1})
    producer = world.producer(linger_ms=0, retry_backoff_ms=100, retry_backoff_max_ms=1_000)
    times: list[int] = []

    def tamper(client: Client, request: Any, version: int) -> InitProducerIdResponse | None:
        if not isinstance(request, InitProducerIdRequest):
            return None
        times.append(world.now)
        return InitProducerIdResponse(
            throttle_time_ms=0,
            error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
            producer_id=-1,
            producer_epoch=-1,
        )

    world.tamper = tamper
    producer.must_send("t", "x")
    world.run(10_000)
    waits = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert 70 <= waits[0] <= 140
    assert waits[0] < waits[1] < waits[2] < waits[3]
    assert all(700 <= wait <= 1_300 for wait in waits[4:])
    # After a success, the backoff of the next request starts at its minimum again.
    world.tamper = None
    first = delivered(world, producer, "y")
    assert first is not None
    queue = producer.engine.records.queues[tp("t", 0)]
    queue.identity, queue.needs_new_epoch = first._replace(epoch=LAST_EPOCH), True
    times.clear()
    world.tamper = tamper
    producer.must_send("t", "z")
    producer.tick()
    assert world.run(5_000, until=lambda: len(times) == 2)
    assert 70 <= times[1] - times[0] <= 140


def test_a_broker_without_producer_ids_fails_the_records() -> None:
    """A broker before Kafka 0.11 does not support InitProducerId."""
    world = World({"t": 1}, highest={"InitProducerId": -1})
    producer = world.producer(linger_ms=0)
    batch = producer.must_send("t", "x")
    producer.tick()
    assert world.run(5_000, until=lambda: batch.done)
    assert isinstance(batch.error, UnsupportedVersion)
    assert "InitProducerId" in str(batch.error)
