"""Through which of a broker's connections a producer's partitions go, in virtual time."""

from __future__ import annotations

from typing import Any

import pytest

from consumer.engine.network.client import MORE
from consumer.engine.producer.batches import PartitionQueue
from consumer.engine.producer.schedule import SendSchedule
from consumer.engine.timing import EXTRA_CONNECTION_BACKOFF_MS
from consumer.options import producer_options
from kproto.errors import ConfigError
from kproto.messages.headers import decode_request
from kproto.messages.produce import ProduceRequest
from kproto.records import rows
from kproto.testing.world.trace import RequestEntry
from tests.consumer.engine.producer.stage import log_of, numbers
from tests.consumer.stage import Producer, World

PARTITIONS = 6
TIMES = 4  # only the first time connections have to be made


def ways_of(world: World) -> list[tuple[int, int, str]]:
    """Connection, partition and first record of every batch, as the broker read them."""
    found: list[tuple[int, int, str]] = []
    for entry in world.entries:
        if isinstance(entry.data, RequestEntry):
            request = decode_request(entry.data.body).request
            if isinstance(request, ProduceRequest):
                found += [
                    (entry.data.conn, part.index, (rows(part.records or b"")[0].value or b"").decode())
                    for topic in request.topic_data
                    for part in topic.partition_data
                ]
    return found


def connections(world: World) -> int:
    return len({conn for conn, _, _ in ways_of(world)})


def at_work(world: World, **options: Any) -> Producer:
    """A producer that has written a record to each partition, and nothing since."""
    producer = world.producer(**{"linger_ms": 0, "batch_size": 1, **options})
    for index in range(PARTITIONS):
        producer.must_send("t", "first", partition=index)
        settle(world, producer)
    world.run(100)
    assert connections(world) == 1
    world.entries.clear()
    return producer


def pour(producer: Producer, count: int = 20) -> None:
    """More batches for each partition than may be open."""
    for number in range(count):
        for index in range(PARTITIONS):
            assert producer.send("t", str(number), partition=index) is not None
    producer.tick()


def settle(world: World, producer: Producer) -> None:
    producer.tick()
    assert world.run(60_000, until=lambda: producer.engine.open_records == 0)


def order_is_kept(world: World, times: int = 1) -> None:
    for index in range(PARTITIONS):
        assert log_of(world, "t", index) == ["first", *numbers(20) * times]


@pytest.mark.parametrize("most", [1, 2, 3])
def test_a_broker_that_has_all_requests_that_may_be_open_is_written_to_through_more(most: int) -> None:
    world = World({"t": PARTITIONS}, latency=(5, 5))
    producer = at_work(world, connections_per_broker=most, max_in_flight_requests_per_connection=1)
    pour(producer)
    settle(world, producer)
    assert connections(world) == most
    assert len({(conn, index) for conn, index, _ in ways_of(world)}) <= 2 * PARTITIONS - PARTITIONS // most
    order_is_kept(world)


def test_a_broker_that_keeps_up_has_one_connection() -> None:
    world = World({"t": PARTITIONS})
    producer = at_work(world)
    for number in range(20):
        for index in range(PARTITIONS):
            producer.must_send("t", str(number), partition=index)
        settle(world, producer)
    assert connections(world) == 1


def test_one_connection_is_enough_again_when_all_is_answered() -> None:
    world = World({"t": PARTITIONS})
    producer = at_work(world, max_in_flight_requests_per_connection=1)
    pour(producer)
    settle(world, producer)
    assert connections(world) == 3
    world.entries.clear()
    for index in range(PARTITIONS):
        producer.must_send("t", "last", partition=index)
        settle(world, producer)
    assert connections(world) == 1


def test_without_acknowledgements_there_is_one_connection() -> None:
    """Nobody would know when a partition has nothing under way on the first one."""
    world = World({"t": PARTITIONS}, latency=(1, 9))
    producer = at_work(world, acks=0, max_in_flight_requests_per_connection=1)
    pour(producer)
    settle(world, producer)
    world.run(100)
    assert connections(world) == 1
    order_is_kept(world)


def overtakes(seed: int) -> None:
    """Without idempotence nothing but the order of sending keeps the order; connections are not alike."""
    world = World({"t": PARTITIONS}, latency=(1, 40), seed=seed)
    producer = at_work(world, enable_idempotence=False, max_in_flight_requests_per_connection=2)
    for _ in range(TIMES):
        pour(producer)
        settle(world, producer)
    assert connections(world) == 3
    order_is_kept(world, TIMES)


@pytest.mark.parametrize("seed", range(5))
def test_nothing_of_a_partition_overtakes_on_another_connection(seed: int) -> None:
    overtakes(seed)


def test_a_schedule_that_does_not_wait_before_it_changes_the_connection_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    place = SendSchedule.reschedule

    def mutant(self: SendSchedule, lane: PartitionQueue) -> None:
        lane.connection = lane.connection._replace(node=-1)
        place(self, lane)

    monkeypatch.setattr(SendSchedule, "reschedule", mutant)
    for seed in range(5):
        try:
            overtakes(seed)
        except AssertionError:
            return
    raise AssertionError("the order was kept all the same")


@pytest.mark.parametrize("kind", ["refuse", "stall"])
def test_a_broker_that_allows_no_further_connection_is_written_to_through_one(kind: str) -> None:
    world = World({"t": PARTITIONS}, latency=(5, 5))
    producer = at_work(world, max_in_flight_requests_per_connection=1)
    first = set(producer.wires)
    open_one = world.open

    def refused(client: Producer, key: int, host: str, port: int) -> None:
        if kind == "refuse":
            client.on_refused(key, "connection refused")

    world.open = refused  # type: ignore[method-assign,assignment]
    began = world.now
    pour(producer)
    settle(world, producer)
    assert set(producer.wires) == first
    assert world.now - began < {"refuse": 2_000, "stall": 6_000}[kind]
    order_is_kept(world)
    world.open = open_one  # type: ignore[method-assign]
    world.run(EXTRA_CONNECTION_BACKOFF_MS)
    pour(producer)
    settle(world, producer)
    assert connections(world) == 3


def test_each_connection_is_quiet_for_itself() -> None:
    """A broker asks each of them for quiet (KIP-219); what stands there waits, the others go on."""
    world = World({"t": PARTITIONS}, latency=(5, 5))
    producer = at_work(world, max_in_flight_requests_per_connection=1)
    pour(producer)
    network = producer.engine.core.network
    assert world.run(200, until=lambda: connections(world) == 3)
    connection = next(one for (_, _, lane), one in network._lanes.items() if lane > MORE)
    connection.requested_throttle = "Produce", 5_000
    connection.throttle(world.now)
    wire = producer.wires[connection.key].conn
    world.run(50)  # what was under way
    world.entries.clear()
    world.run(4_900)
    assert wire not in {conn for conn, _, _ in ways_of(world)}
    assert connections(world) == 2
    settle(world, producer)
    assert connections(world) == 3
    order_is_kept(world)


def test_a_producer_needs_a_connection() -> None:
    with pytest.raises(ConfigError, match="connections_per_broker"):
        producer_options({"connections_per_broker": 0})
