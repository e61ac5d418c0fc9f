"""Where partitions start when brokers leave something out, or say what was true before."""

from __future__ import annotations

from typing import Any

from consumer import Cluster, TopicPartition
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


def changed(world: World, kind: type, change: Any, times: int) -> None:
    """The next answers to this kind of request are changed so."""
    before = world.tamper

    def tamper(client: Client, request: Any, version: int) -> Any:
        nonlocal times
        if not isinstance(request, kind) or not isinstance(client, Consumer) or not times:
            return before(client, request, version) if before is not None else None
        times -= 1
        return change(client, request, version)

    world.tamper = tamper


def made_anew(world: World) -> None:
    world.delete_topic("t")
    world.create("t", 1)


def test_a_broker_that_is_behind_does_not_begin_a_topic_anew_that_was_made_anew_before() -> None:
    world = World({"t": 1})
    world.write("t", 0, *map(str, range(10)))
    a = world.consumer(**GROUP)
    a.subscribe("t")
    assert world.run(until=lambda: len(a.records) == 10)
    view = a.engine.core.view
    stale = view.topics["t"].id
    made_anew(world)
    world.write("t", 0, "new 0", "new 1")
    assert world.run(until=lambda: len(a.records) == 12)

    def behind(client: Client, request: Any, version: int) -> MetadataResponse:
        brokers = [
            MetadataResponseBroker(node_id=broker.id, host=broker.host, port=broker.port)
            for broker in view.brokers.values()
        ]
        entry = MetadataResponsePartition(
            error_code=0, partition_index=0, leader_id=1, leader_epoch=0, replica_nodes=[1], isr_nodes=[1]
        )
        topic = MetadataResponseTopic(error_code=0, name="t", topic_id=stale, partitions=[entry])
        return MetadataResponse(brokers=brokers, topics=[topic])

    changed(world, MetadataRequest, behind, 2)
    world.run(5000)
    assert view.topics["t"].id != stale
    world.write("t", 0, "new 2")
    world.run(5000)
    assert a.values()[10:] == ["new 0", "new 1", "new 2"]


def test_what_was_committed_of_a_topic_is_over_with_it() -> None:
    world = World({"t": 1})
    world.write("t", 0, *map(str, range(3)))
    a = world.consumer(**{**GROUP, "enable_auto_commit": False})
    a.assign({tp("t", 0): None})
    assert world.run(until=lambda: len(a.records) == 3)
    a.commit()
    assert world.run(until=lambda: world.committed("g", tp("t", 0)) == 3)
    made_anew(world)
    assert world.committed("g", tp("t", 0)) is None
    world.write("t", 0, *map(str, range(3)))
    assert world.run(until=lambda: len(a.records) == 6)
    a.commit()
    assert world.run(until=lambda: world.committed("g", tp("t", 0)) == 3)


def test_offsets_of_a_topic_that_was_made_anew_are_asked_for_and_committed_under_its_new_id() -> None:
    partition = TopicPartition("t", 0)
    with running(topics={"t": 1}) as server, Cluster(server.bootstrap, timeout=10) as cluster:
        assert cluster.partitions("t") == [partition]
        cluster.commit_offsets("g", {partition: 1})
        with Cluster(server.bootstrap) as other:
            other.delete_topics(["t"])
            other.create_topics({"t": 1})
        assert cluster.committed_offsets("g", [partition]) == {partition: None}
        with Cluster(server.bootstrap) as other:
            other.delete_topics(["t"])
            other.create_topics({"t": 1})
        cluster.commit_offsets("g", {partition: 2})
        found = cluster.committed_offsets("g", [partition])[partition]
        assert found is not None
        assert found.offset == 2
