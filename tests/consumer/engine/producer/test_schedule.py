"""A producer opens further connections to a busy broker, and keeps the order within each partition."""

from __future__ import annotations

from typing import Any

import pytest

from consumer.engine.network.client import LAST_SHARED_LANE, MAIN
from consumer.engine.producer.batches import BrokerConnection, PartitionQueue
from consumer.engine.producer.schedule import SendSchedule
from consumer.engine.timeouts import EXTRA_CONNECTION_BACKOFF_MS
from consumer.options import producer_options
from kproto.errors import ConfigError
from kproto.messages.headers import decode_request
from kproto.messages.produce import ProduceRequest
from kproto.records import rows
from kproto.testing.world.trace import RequestEntry
from tests.consumer.engine.producer.stage import numbers, values_of
from tests.consumer.stage import Producer, World, tp

PARTITIONS = 6
# How many rounds of batches a test sends. The producer opens connections only in the first round.
TIMES = 4


def batches_of(world: World) -> list[tuple[int, int, str]]:
    """Return (connection, partition, value of the first record) of each batch that a broker has read.

    The batches are listed in the order in which they arrived.
    """
    batches_read: list[tuple[int, int, str]] = []
    for entry in world.entries:
        if isinstance(entry.data, RequestEntry):
            request = decode_request(entry.data.body).request
            if isinstance(request, ProduceRequest):
                batches_read += [
                    (entry.data.conn, part.index, (rows(part.records or b"")[0].value or b"").decode())
                    for topic in request.topic_data
                    for part in topic.partition_data
                ]
    return batches_read


def connections(world: World) -> int:
    return len({conn for conn, _, _ in batches_of(world)})


def warmed_up_producer(world: World, **options: Any) -> Producer:
    """Return a producer that has written a record to each partition over one connection."""
    producer = world.producer(**{"linger_ms": 0, "batch_size": 1, **options})
    for index in range(PARTITIONS):
        producer.must_send("t", "first", partition=index)
        flush(world, producer)
    world.run(100)
    assert connections(world) == 1
    world.entries.clear()
    return producer


def send_many(producer: Producer, count: int = 20) -> None:
    """Send more batches to each partition than may be in flight."""
    for number in range(count):
        for index in range(PARTITIONS):
            assert producer.send("t", str(number), partition=index) is not None
    producer.tick()


def flush(world: World, producer: Producer) -> None:
    producer.tick()
    assert world.run(60_000, until=lambda: producer.engine.open_records == 0)


def check_order(world: World, times: int = 1) -> None:
    for index in range(PARTITIONS):
        assert values_of(world, "t", index) == ["first", *numbers(20) * times]


@pytest.mark.parametrize("limit", [1, 2, 3])
def test_a_broker_at_its_in_flight_limit_gets_further_connections(limit: int) -> None:
    world = World({"t": PARTITIONS}, latency=(5, 5))
    producer = warmed_up_producer(
        world, connections_per_broker=limit, max_in_flight_requests_per_connection=1
    )
    send_many(producer)
    flush(world, producer)
    assert connections(world) == limit
    assert (
        len({(conn, index) for conn, index, _ in batches_of(world)}) <= 2 * PARTITIONS - PARTITIONS // limit
    )
    check_order(world)


def producer_with_three_full_connections() -> tuple[World, Producer]:
    """Return a producer with a request in flight on each connection, and ready batches on each of them."""
    world = World({"t": PARTITIONS + 3}, latency=(5, 5))
    producer = warmed_up_producer(world, max_in_flight_requests_per_connection=1)
    for partitions in ([0], [1, 2, 3, 4, 5], [6, 7, 8]):
        for index in partitions:
            assert producer.send("t", "x", partition=index) is not None
        producer.tick()
    return world, producer


def test_further_connections_are_used_as_soon_as_the_first_one_is_full() -> None:
    """The producer uses the further connections before the broker has responded on the first one."""
    world, producer = producer_with_three_full_connections()
    queues = producer.engine.records.queues.values()
    assert len({queue.connection for queue in queues if queue.in_flight}) == 3
    assert len(producer.engine.schedule.queues) == 3
    flush(world, producer)
    assert {values_of(world, "t", index)[-1] for index in range(PARTITIONS + 3)} == {"x"}


def test_the_ready_queues_of_failed_connections_use_the_main_connection() -> None:
    _, producer = producer_with_three_full_connections()
    schedule = producer.engine.schedule
    ready = set(schedule.ready_queues())
    (failed, _) = [connection for connection in schedule.queues if connection.lane != MAIN]
    schedule.on_connection_failed(failed)
    assert {connection.lane for connection in schedule.queues} == {MAIN}
    assert set(schedule.ready_queues()) == ready
    assert len(ready) == 5
    assert not schedule.use_all_connections(failed.node)


def test_a_failure_of_the_main_connection_keeps_the_further_ones() -> None:
    _, producer = producer_with_three_full_connections()
    schedule = producer.engine.schedule
    before = dict(schedule.queues)
    node = next(iter(before)).node
    schedule.on_connection_failed(BrokerConnection(node, MAIN))
    assert schedule.queues == before
    assert len(schedule.connections(node)) == 3


def test_a_batch_that_waits_for_its_connection_follows_its_partition_to_a_new_leader() -> None:
    world = World({"t": 2}, brokers=2, latency=(5, 5))
    for partition in (0, 1):
        world.elect("t", partition, 1)
    producer = world.producer(linger_ms=0, max_in_flight_requests_per_connection=1, connections_per_broker=1)
    for partition in (0, 1):
        warm = producer.must_send("t", "warm", partition=partition)
        assert world.run(until=lambda warm=warm: warm.done)
    world.fault("stall", node=1)
    blocked = producer.must_send("t", "blocked", partition=0)
    producer.tick()
    moved = producer.must_send("t", "moved", partition=1)
    producer.tick()
    world.elect("t", 1, 2)
    assert not world.run(100, until=lambda: moved.done)
    producer.engine.core.view.set_leader(moved.partition, 2, 9)
    producer.engine._metadata_changed(frozenset({"t"}))
    producer.tick()
    assert world.run(100, until=lambda: moved.done)
    assert moved.error is None
    assert not blocked.done
    assert values_of(world, "t", 1) == ["warm", "moved"]


def test_a_broker_that_keeps_up_has_one_connection() -> None:
    world = World({"t": PARTITIONS})
    producer = warmed_up_producer(world)
    for number in range(20):
        for index in range(PARTITIONS):
            producer.must_send("t", str(number), partition=index)
        flush(world, producer)
    assert connections(world) == 1


def test_one_connection_suffices_again_after_all_responses() -> None:
    world = World({"t": PARTITIONS})
    producer = warmed_up_producer(world, max_in_flight_requests_per_connection=1)
    send_many(producer)
    flush(world, producer)
    assert connections(world) == 3
    world.entries.clear()
    for index in range(PARTITIONS):
        producer.must_send("t", "last", partition=index)
        flush(world, producer)
    assert connections(world) == 1


def test_with_acks_0_there_is_one_connection() -> None:
    """With acks=0 the producer uses only one connection to a broker.

    The broker sends no responses, so the client does not learn which batches the broker has received. A batch
    on a second connection could overtake earlier ones.
    """
    world = World({"t": PARTITIONS}, latency=(1, 9))
    producer = warmed_up_producer(world, acks=0, max_in_flight_requests_per_connection=1)
    send_many(producer)
    flush(world, producer)
    world.run(100)
    assert connections(world) == 1
    check_order(world)


def check_no_overtaking(seed: int) -> None:
    """Check that a producer without idempotence keeps the order of records.

    The producer uses three connections, and each message has a random latency.
    """
    world = World({"t": PARTITIONS}, latency=(1, 40), seed=seed)
    producer = warmed_up_producer(world, enable_idempotence=False, max_in_flight_requests_per_connection=2)
    for _ in range(TIMES):
        send_many(producer)
        flush(world, producer)
    assert connections(world) == 3
    check_order(world, TIMES)


@pytest.mark.parametrize(
    "seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.thorough) for seed in range(2, 5))]
)
def test_batches_of_a_partition_do_not_overtake_each_other_on_another_connection(seed: int) -> None:
    check_no_overtaking(seed)


def test_the_mutant_that_changes_the_connection_too_early_is_detected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reschedule = SendSchedule.reschedule

    def mutant(self: SendSchedule, lane: PartitionQueue) -> None:
        lane.connection = lane.connection._replace(node=-1)
        reschedule(self, lane)

    monkeypatch.setattr(SendSchedule, "reschedule", mutant)
    for seed in range(5):
        try:
            check_no_overtaking(seed)
        except AssertionError:
            return
    raise AssertionError("the mutant kept the order of records in all runs; expected: reordered records")


@pytest.mark.parametrize("kind", ["refuse", "stall"])
def test_a_broker_that_rejects_further_connections_is_written_to_over_one(kind: str) -> None:
    world = World({"t": PARTITIONS}, latency=(5, 5))
    producer = warmed_up_producer(world, max_in_flight_requests_per_connection=1)
    first = set(producer.wires)
    open_one = world.open

    def refused(client: Producer, key: int, host: str, port: int) -> None:
        if kind == "refuse":
            client.on_refused(key, "connection refused")

    world.open = refused  # type: ignore[method-assign,assignment]
    started_at = world.now
    send_many(producer)
    flush(world, producer)
    assert set(producer.wires) == first
    assert world.now - started_at < {"refuse": 2_000, "stall": 6_000}[kind]
    check_order(world)
    world.open = open_one  # type: ignore[method-assign]
    world.run(EXTRA_CONNECTION_BACKOFF_MS)
    send_many(producer)
    flush(world, producer)
    assert connections(world) == 3


def test_connections_are_throttled_independently() -> None:
    """Brokers throttle each connection (KIP-219). The batches of a throttled connection wait, while other
    connections continue.
    """
    world = World({"t": PARTITIONS}, latency=(5, 5))
    producer = warmed_up_producer(world, max_in_flight_requests_per_connection=1)
    send_many(producer)
    network = producer.engine.core.network
    assert world.run(200, until=lambda: connections(world) == 3)
    connection = next(
        open_connection for (_, _, lane), open_connection in network._lanes.items() if lane > LAST_SHARED_LANE
    )
    connection.requested_throttle = "Produce", 5_000
    connection.throttle(world.now, 300_000)
    wire = producer.wires[connection.key].conn
    world.run(50)  # Wait until the requests that were in flight when the throttling began have arrived.
    world.entries.clear()
    world.run(4_900)
    assert wire not in {conn for conn, _, _ in batches_of(world)}
    assert connections(world) == 2
    flush(world, producer)
    assert connections(world) == 3
    check_order(world)


def test_a_queue_is_visited_at_its_earliest_time_and_not_again_for_later_ones() -> None:
    world = World({"t": PARTITIONS})
    schedule = warmed_up_producer(world).engine.schedule
    core = schedule._core
    schedule._visits.clear()
    queue = PartitionQueue(tp("t", 0), None)
    for at in (300, 200, 250, 200, 900):
        schedule.visit_later(queue, world.now + at)
    schedule.visit_later(queue, world.now + 400, is_timeout=True)
    visits: list[tuple[int, bool]] = []
    for after in (199, 200, 300, 399, 400, 900):
        core.now = world.now + after
        visits += [(after, late) for _, late in schedule.due_queues()]
    assert visits == [(200, False), (300, False), (400, True)]
    assert schedule.due() is None


def accepted_producer(world: World) -> Producer:
    """Return a producer that has delivered a batch, so the leader of t-0 knows the producer's epoch."""
    producer = world.producer(linger_ms=0, batch_size=1, connections_per_broker=1)
    producer.must_send("t", "first", partition=0)
    flush(world, producer)
    return producer


def test_five_batches_of_a_partition_are_in_flight() -> None:
    """The limit is five, the number of batches a broker remembers (NUM_BATCHES_TO_RETAIN)."""
    world = World({"t": 1}, latency=(20, 20))
    producer = accepted_producer(world)
    for number in range(12):
        producer.must_send("t", str(number), partition=0)
    producer.tick()
    most = 0
    while producer.engine.open_records:
        world.run(5)
        most = max(most, *(len(queue.in_flight) for queue in producer.engine.records.queues.values()))
    assert most == 5
    assert values_of(world, "t", 0) == ["first", *numbers(12)]


def test_a_producer_needs_at_least_one_connection() -> None:
    with pytest.raises(ConfigError, match="connections_per_broker"):
        producer_options({"connections_per_broker": 0})
