"""Offsets of a transaction say as whom they were read: a group refuses one that it put out meanwhile.

Brokers ask nobody who names no member (producers from before KIP-447 name none), so a member that lost its
partitions must not say that it is none.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from consumer import Cluster, Consumer, GroupMetadata, Producer, TopicPartition
from kproto.broker.server import Server, running
from kproto.errors import BrokerError
from kproto.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity

T0 = TopicPartition("t", 0)


@pytest.fixture
def server() -> Iterator[Server]:
    with running(topics={"t": 1}, settings={"group.initial.rebalance.delay.ms": "0"}) as found:
        with Producer(found.bootstrap) as producer:
            producer.send("t", b"a").result(10)
        yield found


def works_too_long(consumer: Consumer, server: Server) -> None:
    """For longer than max_poll_interval_ms."""


def is_put_out(consumer: Consumer, server: Server) -> None:
    """As by the broker, when it heard nothing for the session timeout."""
    member = MemberIdentity(member_id=consumer.group_metadata().member_id)
    with Cluster(server.bootstrap) as cluster:
        answer: LeaveGroupResponse = cluster.request(
            LeaveGroupRequest(group_id="g", members=[member]), ("group", "g")
        )
        assert [member.error_code for member in answer.members] == [0]


def unsubscribes(consumer: Consumer, server: Server) -> None:
    consumer.unsubscribe()


@pytest.mark.parametrize("meanwhile", [works_too_long, is_put_out, unsubscribes])
def test_who_was_put_out_while_it_worked_commits_nothing(
    server: Server, meanwhile: Callable[[Consumer, Server], None]
) -> None:
    """Its metadata named nobody then, so that its offsets were taken, and what it had read came twice."""
    interval = 300 if meanwhile is works_too_long else 300_000
    options = {"heartbeat_interval_ms": 20, "auto_offset_reset": "earliest", "enable_auto_commit": False}
    with (
        Producer(server.bootstrap, transactional_id="x") as producer,
        Consumer(server.bootstrap, group_id="g", max_poll_interval_ms=interval, **options) as consumer,
    ):
        consumer.subscribe(["t"])
        assert consumer.poll(10)
        was = consumer.group_metadata()
        producer.begin()
        meanwhile(consumer, server)
        until = time.monotonic() + 10
        while consumer._operations.engine.group_status.member_and_generation[1] >= 0:
            assert time.monotonic() < until
            time.sleep(0.01)
        assert consumer.group_metadata() == was
        producer.send_offsets(consumer.group_metadata(), {T0: 1})
        with pytest.raises(BrokerError, match="TxnOffsetCommit: UNKNOWN_MEMBER_ID"):
            producer.commit()
        producer.abort()
    with Cluster(server.bootstrap) as cluster:
        assert [offset.offset for offset in cluster.committed_offsets("g").values()] == [0]


def test_who_reads_by_hand_is_no_member_also_after_having_been_one(server: Server) -> None:
    options = {"auto_offset_reset": "earliest", "enable_auto_commit": False}
    nobody = GroupMetadata("g", -1, "", None)
    with (
        Producer(server.bootstrap, transactional_id="x") as producer,
        Consumer(server.bootstrap, group_id="g", **options) as consumer,
    ):
        assert consumer.group_metadata() == nobody
        consumer.subscribe(["t"])
        assert consumer.poll(10)
        assert consumer.group_metadata().generation == 1
        consumer.unsubscribe()
        consumer.assign([T0])
        assert consumer.group_metadata() == nobody
        with producer.transaction():
            producer.send_offsets(consumer.group_metadata(), {T0: 1})
    with Cluster(server.bootstrap) as cluster:
        assert [offset.offset for offset in cluster.committed_offsets("g").values()] == [1]
