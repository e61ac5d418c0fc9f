"""Clients that lose their authorization, or get an unreadable response, raise an error and lose no record.

A client that was rejected continues when the brokers accept its credentials again.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from consumer.engine.network.transport import Broken, Data
from kproto.errors import AuthenticationFailed, ConnectionFailed, NotAuthorized
from kproto.messages.heartbeat import HeartbeatRequest
from kproto.messages.join_group import JoinGroupRequest
from kproto.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponseTopic,
)
from kproto.messages.offset_commit import OffsetCommitRequest
from kproto.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from kproto.wire.frame import frame
from tests.consumer.stage import Client, Consumer, World, tp
from tests.consumer.truncated_log import GROUP, committed_world, new_member, truncate

T0 = tp("t", 0)


def connection_in_flight(world: World, client: Consumer, request: Any) -> int:
    """Run until a request of this type is in flight, and return the key of its connection."""
    network = client.engine.core.network

    def keys() -> list[int]:
        return [
            connection.key
            for connection in network._connections.values()
            if any(isinstance(call.request, request) for _, call in connection.in_flight)
        ]

    assert world.run(until=lambda: bool(keys()))
    return keys()[0]


@pytest.mark.parametrize("error", [AuthenticationFailed, ConnectionFailed])
def test_a_failed_heartbeat_is_followed_by_the_next_one(error: type[Exception]) -> None:
    world = World({"t": 1})
    a = world.consumer(**GROUP)
    a.subscribe("t")
    assert world.run(until=lambda: a.owned == {T0})
    key = connection_in_flight(world, a, HeartbeatRequest)
    denied = Broken(key, "the password is another one", denied=True)
    a.do(denied if error is AuthenticationFailed else Data(key, frame(bytes(8))))
    world.run(10_000)
    assert a.changes_of("lost") == []
    assert a.owned == {T0}
    assert [type(error) for error in a.errors] == [error]


def test_a_failed_position_validation_is_repeated() -> None:
    world = committed_world()
    truncate(world, 5)
    world.write("t", 0, *(f"new {number}" for number in range(8)))
    b = new_member(world)
    b.do(
        Broken(
            connection_in_flight(world, b, OffsetForLeaderEpochRequest),
            "the password is another one",
            denied=True,
        )
    )
    assert world.run(5_000, until=lambda: len(b.records) == 8)
    assert [change.offset for change in b.changes_of("truncated")] == [5]
    assert [type(error) for error in b.errors] == [AuthenticationFailed]


@pytest.mark.parametrize("assignors", [["range"], ["cooperative-sticky"]])
def test_a_topic_denied_once_stays_in_the_assignment(assignors: list[str]) -> None:
    """A leader that receives one authorization error for a topic still assigns the topic.

    After such an error, a Java leader leaves the topic out of the next assignment, and includes it again in
    the assignment after that.
    """
    world = World({"t": 2})
    options = {**GROUP, "partition_assignment_strategy": assignors}
    a = world.consumer(**options)
    a.subscribe("t")
    assert world.run(until=lambda: len(a.owned) == 2)
    before = len(world.requests)
    denied = MetadataResponseTopic(error_code=29, name="t", topic_id=UUID(int=0), partitions=[])
    brokers = [
        MetadataResponseBroker(node_id=node.id, host=node.host, port=node.port)
        for node in world.nodes.values()
    ]

    def deny(client: Client, request: Any, version: int) -> Any:
        if not isinstance(request, MetadataRequest):
            return None
        world.tamper = None
        return MetadataResponse(brokers=brokers, controller_id=1, topics=[denied])

    world.tamper = deny
    world.run(10_000)
    assert [type(error) for error in a.errors] == [NotAuthorized]
    assert a.owned == {T0, tp("t", 1)}
    joins = [sent for _, sent, _ in world.requests[before:] if isinstance(sent, JoinGroupRequest)]
    assert len(joins) <= 1
    assert all(len(change.owned) == 2 for change in a.changes_of("assigned"))


def test_a_commit_of_the_start_without_a_response_is_looked_up_before_records_are_returned() -> None:
    world = World({"t": 1})
    world.write("t", 0, "x")
    a = world.consumer(**{**GROUP, "enable_auto_commit": False})
    a.subscribe("t")
    a.do(
        Broken(
            connection_in_flight(world, a, OffsetCommitRequest), "the password is another one", denied=True
        )
    )
    assert world.run(5_000, until=lambda: len(a.records) == 1)
    # The coordinator stored the commit before the connection broke. The client looks up the committed offset,
    # and does not commit it again (M206).
    assert len(world.requests_of(a, OffsetCommitRequest)) == 1
    assert world.committed("g", T0) == 0
    assert [type(error) for error in a.errors] == [AuthenticationFailed]
