"""State expires as in Kafka: connections, idle producers and finished transactions."""

from __future__ import annotations

from typing import Any

from kproto.error_codes import ErrorCode
from kproto.messages.end_txn import EndTxnRequest
from kproto.messages.init_producer_id import InitProducerIdRequest
from kproto.messages.leave_group import LeaveGroupRequest, MemberIdentity
from kproto.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kproto.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.broker.stage import Client, Stage, batch_of, classic_coordinator, join_request

HOUR = 3_600_000
DAY = 24 * HOUR


def write(client: Client, name: str, *, ends: bool = True) -> dict[str, int]:
    """Write a transaction with a record and offsets of a group; return its producer id and epoch."""
    response = client.ask(InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000))
    producer: dict[str, Any] = {
        "producer_id": response.producer_id,
        "producer_epoch": response.producer_epoch,
    }
    batch = batch_of(b"v", timestamps=[client.stage.now], base_sequence=0, is_transactional=True, **producer)
    data = TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=batch)])
    client.ask(ProduceRequest(transactional_id=name, acks=-1, timeout_ms=1, topic_data=[data]), 12)
    partition = TxnOffsetCommitRequestPartition(
        partition_index=0, committed_offset=1, committed_metadata=None
    )
    topic = TxnOffsetCommitRequestTopic(name="t", partitions=[partition])
    client.ask(TxnOffsetCommitRequest(transactional_id=name, group_id=name, topics=[topic], **producer), 5)
    if ends:
        assert client.ask(EndTxnRequest(transactional_id=name, committed=True, **producer)).error_code == 0
    return producer


def test_all_state_of_closed_connections_and_expired_groups_is_removed() -> None:
    stage = Stage({"t": 1}, group_initial_rebalance_delay_ms=0)
    for number in range(30):
        client = stage.client()
        name = f"n{number}"
        write(client, name, ends=number % 5 > 0)
        member = client.ask(join_request(group=name), 5).member_id
        client.ask(join_request(member, group=name), 5)
        if number % 2:
            client.ask(LeaveGroupRequest(group_id=name, members=[MemberIdentity(member_id=member)]))
        client.leave()
    broker, partition = stage.broker, stage.topic("t").partitions[0]
    assert len(broker.transactions.transactions) == len(classic_coordinator(broker.cluster).groups) == 30
    assert len(partition.producers.active()) == 30
    for _ in range(9):
        stage.wait(DAY)
    assert broker.transactions.transactions == classic_coordinator(broker.cluster).groups == {}
    assert partition.producers.active() == []
    assert classic_coordinator(broker.cluster).pending_groups == {}
    assert partition.transactions.first_unstable_offset() is None
    assert broker.connections == broker.pending_closes == {}
    assert len(broker.purgatory) == len(broker.close_deadlines) == len(broker.muted) == 0


def idempotent(client: Client, producer_id: int, sequence: int) -> int:
    batch = batch_of(
        b"v",
        timestamps=[client.stage.now],
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=sequence,
    )
    return client.produce(batch).error_code


def test_a_partition_forgets_producers_after_a_day() -> None:
    stage = Stage({"t": 1}, producer_id_expiration_check_interval_ms=HOUR)
    client = stage.client()
    assert idempotent(client, 7, 0) == 0
    stage.wait(23 * HOUR)
    assert idempotent(client, 8, 0) == 0
    assert idempotent(client, 7, 5) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    stage.wait(2 * HOUR)
    # The batch is accepted: an expired producer is unknown, and may start at any sequence number.
    assert idempotent(client, 7, 5) == 0
    assert idempotent(client, 8, 5) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_producer_with_an_ongoing_transaction_does_not_expire() -> None:
    stage = Stage({"t": 1}, producer_id_expiration_ms=HOUR, producer_id_expiration_check_interval_ms=HOUR)
    partition = stage.topic("t").partitions[0]
    partition.transactions.on_batch_appended(7, 0)
    client = stage.client()
    for producer_id in (7, 8):
        idempotent(client, producer_id, 0)
        partition.producers.on_marker_appended(producer_id, 0, 0, stage.now)
    stage.wait(3 * HOUR)
    client.list_offsets(-1)
    assert [producer_id for producer_id, _ in partition.producers.active()] == [7]


def test_a_clock_jump_aborts_a_transaction_and_fences_its_producer() -> None:
    stage = Stage({"t": 1})
    client = stage.client()
    producer: dict[str, Any] = dict(write(client, "x", ends=False))
    stage.now += 3650 * DAY  # The clock jumps, and no Tick precedes the EndTxn request.
    end = EndTxnRequest(transactional_id="x", committed=True, **producer)
    assert client.ask(end, 4).error_code == ErrorCode.PRODUCER_FENCED
    partition = stage.topic("t").partitions[0]
    assert partition.stable_offset == partition.log.end_offset == 2
    assert [aborted.producer_id for aborted in partition.transactions.aborted(0, 2)] == [
        producer["producer_id"]
    ]


def test_the_end_of_a_transaction_visits_only_its_own_groups() -> None:
    stage = Stage({"t": 1})
    client = stage.client()
    first: dict[str, Any] = dict(write(client, "x", ends=False))
    second: dict[str, Any] = dict(write(client, "y", ends=False))
    assert set(classic_coordinator(stage.broker.cluster).pending_groups) == {
        first["producer_id"],
        second["producer_id"],
    }
    client.ask(EndTxnRequest(transactional_id="x", committed=True, **first))
    groups = classic_coordinator(stage.broker.cluster).groups
    assert [name for name, group in groups.items() if group.offsets] == ["x"]
    assert [name for name, group in groups.items() if group.pending_transactions] == ["y"]
