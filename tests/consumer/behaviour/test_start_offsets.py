"""A re-created topic gets its own start offsets, even if brokers return stale metadata."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from consumer import Admin, TopicPartition
from kproto.broker.server import running
from kproto.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from tests.consumer.stage import Client, Consumer, World, tp

GROUP: dict[str, Any] = {
    "group_id": "g",
    "auto_offset_reset": "earliest",
    "metadata_max_age_ms": 1000,
    "auto_commit_interval_ms": 100,
}


def change_responses(world: World, kind: type, change: Any, times: int) -> None:
    """Replace the next `times` responses to requests of this type with the result of `change`."""
    previous = world.tamper

    def tamper(client: Client, request: Any, version: int) -> Any:
        nonlocal times
        if not isinstance(request, kind) or not isinstance(client, Consumer) or not times:
            return previous(client, request, version) if previous is not None else None
        times -= 1
        return change(client, request, version)

    world.tamper = tamper


def re_create_topic(world: World) -> None:
    world.delete_topic("t")
    world.create("t", 1)


def test_stale_metadata_does_not_reset_a_topic_that_was_already_re_created() -> None:
    world = World({"t": 1})
    world.write("t", 0, *map(str, range(10)))
    a = world.consumer(**GROUP)
    a.subscribe("t")
    assert world.run(until=lambda: len(a.records) == 10)
    view = a.engine.core.view
    stale = view.topics["t"].id
    re_create_topic(world)
    world.write("t", 0, "new 0", "new 1")
    assert world.run(until=lambda: len(a.records) == 12)

    def stale_metadata(client: Client, request: Any, version: int) -> MetadataResponse:
        brokers = [
            MetadataResponseBroker(node_id=broker.id, host=broker.host, port=broker.port)
            for broker in view.brokers.values()
        ]
        entry = MetadataResponsePartition(
            error_code=0, partition_index=0, leader_id=1, leader_epoch=0, replica_nodes=[1], isr_nodes=[1]
        )
        topic = MetadataResponseTopic(error_code=0, name="t", topic_id=stale, partitions=[entry])
        return MetadataResponse(brokers=brokers, topics=[topic])

    change_responses(world, MetadataRequest, stale_metadata, 2)
    world.run(5000)
    assert view.topics["t"].id != stale
    world.write("t", 0, "new 2")
    world.run(5000)
    assert a.values()[10:] == ["new 0", "new 1", "new 2"]


def test_committed_offsets_end_with_their_topic() -> None:
    world = World({"t": 1})
    world.write("t", 0, *map(str, range(3)))
    a = world.consumer(**{**GROUP, "enable_auto_commit": False})
    a.assign({tp("t", 0): None})
    assert world.run(until=lambda: len(a.records) == 3)
    a.commit()
    assert world.run(until=lambda: world.committed("g", tp("t", 0)) == 3)
    re_create_topic(world)
    assert world.committed("g", tp("t", 0)) is None
    world.write("t", 0, *map(str, range(3)))
    assert world.run(until=lambda: len(a.records) == 6)
    a.commit()
    assert world.run(until=lambda: world.committed("g", tp("t", 0)) == 3)


def test_offsets_of_a_re_created_topic_use_its_new_id() -> None:
    partition = TopicPartition("t", 0)
    with running(topics={"t": 1}) as server, Admin(server.bootstrap, timeout=10) as cluster:
        assert cluster.partitions("t") == [partition]
        cluster.commit_offsets("g", {partition: 1})
        with Admin(server.bootstrap) as other_cluster:
            other_cluster.delete_topics(["t"])
            other_cluster.create_topics({"t": 1})
        assert cluster.committed_offsets("g", [partition]) == {partition: None}
        with Admin(server.bootstrap) as other_cluster:
            other_cluster.delete_topics(["t"])
            other_cluster.create_topics({"t": 1})
        cluster.commit_offsets("g", {partition: 2})
        committed = cluster.committed_offsets("g", [partition])[partition]
        assert committed is not None
        assert committed.offset == 2


@pytest.mark.parametrize("policy", ["kproto", "java"])
def test_one_response_with_another_topic_id_delays_reading_only_for_a_moment(policy: str) -> None:
    """The consumer resumes reading after a single Metadata response with a wrong topic id.

    A response with a wrong topic id may come from another cluster behind the same host name.

    After the next response, which has the true topic id, the consumer continues.
    """
    world = World({"t": 1})
    world.write("t", 0, *map(str, range(5)))
    a = world.consumer(**GROUP, policy=policy)
    a.subscribe("t")
    assert world.run(until=lambda: len(a.records) == 5)
    view = a.engine.core.view

    def wrong_id(client: Client, request: Any, version: int) -> MetadataResponse:
        brokers = [
            MetadataResponseBroker(node_id=broker.id, host=broker.host, port=broker.port)
            for broker in view.brokers.values()
        ]
        partition = MetadataResponsePartition(
            error_code=0, partition_index=0, leader_id=1, leader_epoch=0, replica_nodes=[1], isr_nodes=[1]
        )
        topic = MetadataResponseTopic(
            error_code=0, name="t", topic_id=UUID(int=0xFF), partitions=[partition], is_internal=False
        )
        return MetadataResponse(
            throttle_time_ms=0, brokers=brokers, cluster_id=None, controller_id=1, topics=[topic]
        )

    change_responses(world, MetadataRequest, wrong_id, 1)
    world.run(30_000)
    world.write("t", 0, *map(str, range(5, 10)))
    world.run(30_000)
    assert set(a.values()) == set(map(str, range(10)))
    assert world.committed("g", tp("t", 0)) == 10
    assert a.errors == []
