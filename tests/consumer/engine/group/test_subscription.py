"""A subscription to a pattern selects the topics whose whole names match. The tests run in virtual time."""

from __future__ import annotations

from typing import Any

import pytest

from kproto.messages.metadata import MetadataRequest
from kproto.testing.world import World
from tests.consumer.engine.metadata.stage import TOPIC_ID, metadata_response
from tests.rules import rule


@rule("M201")
def test_a_pattern_has_to_match_the_whole_topic_name() -> None:
    world = World({"t": 1, "t2": 1, "2t": 1})
    consumer = world.consumer(group_id="g")
    consumer.subscribe(pattern="t")
    world.run(3_000)
    assert {partition.topic for partition in consumer.owns()} == {"t"}


@rule("M201")
@pytest.mark.parametrize("excludes", [True, False])
def test_internal_topics_match_only_without_exclude_internal_topics(excludes: bool) -> None:
    world = World({"t": 1})

    def answer(client: Any, request: Any, version: int) -> Any:
        if not isinstance(request, MetadataRequest):
            return None
        response = metadata_response(leader=1, topic_id=TOPIC_ID)
        response.topics[0].is_internal = True
        for broker, node in zip(response.brokers, world.nodes.values(), strict=False):
            broker.host, broker.port = node.host, node.port
        return response

    world.tamper = answer
    consumer = world.consumer(group_id="g", exclude_internal_topics=excludes)
    consumer.subscribe(pattern=".*")
    world.run(3_000)
    assert consumer.engine.group.subscription.topics == (frozenset() if excludes else {"t"})


@rule("M92")
def test_the_leader_rejoins_if_the_rack_of_a_replica_changes() -> None:
    """The rack of broker 1 changes from "a" to "b", which causes one rejoin.

    The rack of the second replica, on broker 9, is unknown, which causes no rejoin. Broker 9 has failed:
    Metadata lists it as a replica, but not as a broker.
    """
    world = World({"t": 1})
    rack = "a"

    def answer(client: Any, request: Any, version: int) -> Any:
        if not isinstance(request, MetadataRequest):
            return None
        response = metadata_response(leader=1, topic_id=TOPIC_ID)
        for broker, node in zip(response.brokers, world.nodes.values(), strict=False):
            broker.host, broker.port, broker.rack = node.host, node.port, rack
        response.topics[0].partitions[0].replica_nodes = [1, 9]
        return response

    world.tamper = answer
    consumer = world.consumer(group_id="g", client_rack="a", metadata_max_age_ms=1_000)
    consumer.subscribe("t")
    assert world.run(until=consumer.is_stable)
    world.run(5_000)
    assert consumer.generation == 1
    rack = "b"
    assert world.run(5_000, until=lambda: consumer.generation == 2)
    world.run(5_000)
    assert (consumer.generation, consumer.errors) == (2, [])
