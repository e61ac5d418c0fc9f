"""How many rounds between client and broker something takes: on a long way that is all that counts."""

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


def far(brokers: int = 1) -> World:
    world = World({"t": 20}, brokers=brokers, latency=(ONE_WAY, ONE_WAY))
    for partition in PARTITIONS:
        world.write("t", partition.partition, "x")
    return world


def rounds_to_all_records(world: World, consumer: Consumer) -> float:
    began = world.now
    assert world.run(60_000, until=lambda: len(consumer.records) == len(PARTITIONS))
    return (world.now - began) / (2 * ONE_WAY)


@pytest.mark.parametrize("brokers", [1, 3])
def test_partitions_whose_leaders_are_not_known_yet_are_all_asked_for_at_once(brokers: int) -> None:
    """Each waited for a time of its own, with the metadata long there."""
    world = far(brokers)
    consumer = world.consumer(auto_offset_reset="earliest")
    consumer.assign(dict.fromkeys(PARTITIONS))
    # Connect, versions, metadata; leaders: (connect, versions,) offsets; records.
    assert rounds_to_all_records(world, consumer) <= (5.5 if brokers == 1 else 7)
    assert len(world.requests_of(consumer, ListOffsetsRequest)) == brokers


def test_a_group_that_begins_takes_no_round_more_than_its_questions() -> None:
    world = far()
    first = world.consumer(group_id="g", auto_offset_reset="earliest", enable_auto_commit=False)
    first.subscribe("t")
    rounds_to_all_records(world, first)
    first.close()
    world.run(10_000)
    again = world.consumer(group_id="g", auto_offset_reset="earliest", enable_auto_commit=False)
    again.subscribe("t")
    # Connect, versions, metadata and coordinator; connect, versions, two joins, sync; offsets; records. And
    # half of a round, until a commit of the end before is no news any more.
    assert rounds_to_all_records(world, again) <= 10


@pytest.mark.parametrize("brokers", [1, 3])
def test_a_producer_begins_in_as_few_rounds(brokers: int) -> None:
    world = far(brokers)
    producer = world.producer()
    began = world.now
    sent = [producer.deliver("t", "x", partition=index) for index in range(3)]
    assert world.run(60_000, until=lambda: all(request.done() for request in sent))
    # Connect, versions, metadata and its id; (connect, versions;) records.
    assert (world.now - began) / (2 * ONE_WAY) <= (4 if brokers == 1 else 5.5)


def test_a_connection_that_is_prepared_is_the_one_that_the_call_takes() -> None:
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


def test_nothing_is_prepared_with_a_broker_that_is_not_known_or_left_alone() -> None:
    stage = Stage().knows(BrokerAddress(1, "a", 1))
    stage.network.connect(2, stage.now)
    stage.ask(node=1)
    stage.happened(Broken(stage.opened[0].key, "connection refused"))
    stage.network.connect(1, stage.now, lane=MAIN)
    stage.take()
    assert len(stage.opened) == 1
