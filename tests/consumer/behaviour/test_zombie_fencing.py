"""The offsets that a producer commits in a transaction carry the member id and generation of the consumer.

The group coordinator compares the member id and the generation with its current members, and rejects the
offsets of removed members.

The client must send the member id with the offsets of a transaction. Producers before KIP-447 send none, so
brokers also accept offsets without a member id, even from a removed member.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from consumer import Admin, Consumer, GroupMetadata, Producer, TopicPartition
from kproto.broker.server import Server, running
from kproto.errors import BrokerError
from kproto.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity

T0 = TopicPartition("t", 0)


@pytest.fixture
def server() -> Iterator[Server]:
    with running(topics={"t": 1}, settings={"group.initial.rebalance.delay.ms": "0"}) as server:
        with Producer(server.bootstrap) as producer:
            producer.send("t", b"a").result(10)
        yield server


def exceed_max_poll_interval(consumer: Consumer, server: Server) -> None:
    """Do nothing: the test does not poll, so the member leaves after max_poll_interval_ms."""


def remove_member(consumer: Consumer, server: Server) -> None:
    """Remove the member from the group, as the broker does after the session timeout."""
    member = MemberIdentity(member_id=consumer.group_metadata().member_id)
    with Admin(server.bootstrap) as cluster:
        response: LeaveGroupResponse = cluster.request(
            LeaveGroupRequest(group_id="g", members=[member]), ("group", "g")
        )
        assert [member.error_code for member in response.members] == [0]


def unsubscribe_consumer(consumer: Consumer, server: Server) -> None:
    consumer.unsubscribe()


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize("lose_membership", [exceed_max_poll_interval, remove_member, unsubscribe_consumer])
def test_offsets_of_a_removed_member_are_rejected(
    server: Server, lose_membership: Callable[[Consumer, Server], None]
) -> None:
    """The broker rejects transactional offset commits with the group metadata of a removed member.

    Regression: after the removal, `group_metadata` returned no member id. The broker therefore accepted the
    offsets, and records were processed twice.
    """
    interval = 300 if lose_membership is exceed_max_poll_interval else 300_000
    options = {"heartbeat_interval_ms": 20, "auto_offset_reset": "earliest", "enable_auto_commit": False}
    with (
        Producer(server.bootstrap, transactional_id="x") as producer,
        Consumer(server.bootstrap, group_id="g", max_poll_interval_ms=interval, **options) as consumer,
    ):
        consumer.subscribe(["t"])
        assert consumer.poll(10)
        metadata = consumer.group_metadata()
        producer.begin()
        lose_membership(consumer, server)
        wait_until(lambda: consumer._operations.engine.group_status.member_and_generation[1] < 0)
        with Admin(server.bootstrap) as cluster:
            # Wait until the coordinator has processed the member's LeaveGroup.
            wait_until(lambda: not cluster.group("g").members)
        assert consumer.group_metadata() == metadata
        producer.send_offsets(consumer.group_metadata(), {T0: 1})
        with pytest.raises(BrokerError, match="TxnOffsetCommit: UNKNOWN_MEMBER_ID"):
            producer.commit()
        producer.abort()
    with Admin(server.bootstrap) as cluster:
        assert [offset.offset for offset in cluster.committed_offsets("g").values()] == [0]


def test_a_consumer_with_a_manual_assignment_has_no_member_id_even_after_a_subscription(
    server: Server,
) -> None:
    options = {"auto_offset_reset": "earliest", "enable_auto_commit": False}
    no_member = GroupMetadata("g", -1, "", None)
    with (
        Producer(server.bootstrap, transactional_id="x") as producer,
        Consumer(server.bootstrap, group_id="g", **options) as consumer,
    ):
        assert consumer.group_metadata() == no_member
        consumer.subscribe(["t"])
        assert consumer.poll(10)
        assert consumer.group_metadata().generation == 1
        consumer.unsubscribe()
        consumer.assign([T0])
        assert consumer.group_metadata() == no_member
        with producer.transaction():
            producer.send_offsets(consumer.group_metadata(), {T0: 1})
    with Admin(server.bootstrap) as cluster:
        assert [offset.offset for offset in cluster.committed_offsets("g").values()] == [1]
