"""Clients need few round trips to start. On slow links the round trips dominate the start time."""

from __future__ import annotations

import pytest

from consumer.engine.metadata.cluster import BrokerAddress
from consumer.engine.network.client import FETCH, MAIN
from consumer.engine.network.transport import Broken
from kproto.messages.list_offsets import ListOffsetsRequest
from tests.consumer.engine.network.stage import Stage
from tests.consumer.stage import Consumer, World, tp

ONE_WAY = 100
PARTITIONS = [tp("t", index) for index in range(20)]


def world_with_latency(brokers: int = 1) -> World:
    world = World({"t": 20}, brokers=brokers, latency=(ONE_WAY, ONE_WAY))
    for partition in PARTITIONS:
        world.write("t", partition.partition, "x")
    return world


def rounds_to_all_records(world: World, consumer: Consumer) -> float:
    started_at = world.now
    assert world.run(60_000, until=lambda: len(consumer.records) == len(PARTITIONS))
    return (world.now - started_at) / (2 * ONE_WAY)


@pytest.mark.parametrize("brokers", [1, 3])
def test_partitions_with_unknown_leaders_are_looked_up_together(brokers: int) -> None:
    """As soon as the metadata has arrived, one ListOffsets request to each broker looks up all partitions."""
    world = world_with_latency(brokers)
    consumer = world.consumer(auto_offset_reset="earliest")
    consumer.assign(dict.fromkeys(PARTITIONS))
    # The round trips are connect, ApiVersions, Metadata, then connect and ApiVersions for the other leaders,
    # then ListOffsets and Fetch.
    assert rounds_to_all_records(world, consumer) <= (5.5 if brokers == 1 else 7)
    assert len(world.requests_of(consumer, ListOffsetsRequest)) == brokers


def test_a_joining_member_needs_only_the_round_trips_of_its_requests() -> None:
    world = world_with_latency()
    first = world.consumer(group_id="g", auto_offset_reset="earliest", enable_auto_commit=False)
    first.subscribe("t")
    rounds_to_all_records(world, first)
    first.close()
    world.run(10_000)
    second = world.consumer(group_id="g", auto_offset_reset="earliest", enable_auto_commit=False)
    second.subscribe("t")
    # The round trips are connect, ApiVersions, Metadata (in parallel with FindCoordinator), then connect to
    # the coordinator, ApiVersions, JoinGroup twice, SyncGroup, OffsetFetch and Fetch.
    assert rounds_to_all_records(world, second) <= 10


@pytest.mark.parametrize("brokers", [1, 3])
def test_a_producer_starts_in_as_few_round_trips(brokers: int) -> None:
    world = world_with_latency(brokers)
    producer = world.producer()
    started_at = world.now
    sent = [producer.deliver("t", "x", partition=index) for index in range(3)]
    assert world.run(60_000, until=lambda: all(request.done() for request in sent))
    # The round trips are connect, ApiVersions, Metadata (in parallel with InitProducerId), then connect and
    # ApiVersions for the other leaders, then Produce.
    assert (world.now - started_at) / (2 * ONE_WAY) <= (4 if brokers == 1 else 5.5)


def test_a_prepared_connection_is_used_by_the_next_call() -> None:
    stage = Stage().knows(BrokerAddress(1, "a", 1))
    for _ in range(2):
        stage.network.connect(1, stage.now, lane=FETCH)
    stage.take()
    assert len(stage.opened) == 1
    stage.connect(stage.opened[0].key)
    call = stage.ask(node=1, lane=FETCH)
    stage.answer()
    assert call.done
    assert len(stage.opened) == 1


def test_no_connection_is_prepared_to_an_unknown_broker_or_during_backoff() -> None:
    stage = Stage().knows(BrokerAddress(1, "a", 1))
    stage.network.connect(2, stage.now)
    stage.ask(node=1)
    stage.happened(Broken(stage.opened[0].key, "connection refused"))
    stage.network.connect(1, stage.now, lane=MAIN)
    stage.take()
    assert len(stage.opened) == 1
