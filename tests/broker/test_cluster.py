"""Each broker serves the partitions that it leads and the groups that it coordinates.

A broker returns an error for a partition or group for which another broker is responsible.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from kproto.broker.machine import (
    ElectLeader,
    MoveCoordinator,
    Tick,
)
from kproto.error_codes import ErrorCode
from kproto.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from kproto.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from kproto.messages.create_topics import CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest
from kproto.messages.delete_groups import DeleteGroupsRequest
from kproto.messages.describe_cluster import DescribeClusterRequest
from kproto.messages.describe_groups import DescribeGroupsRequest
from kproto.messages.describe_transactions import DescribeTransactionsRequest
from kproto.messages.end_txn import EndTxnRequest
from kproto.messages.find_coordinator import FindCoordinatorRequest
from kproto.messages.heartbeat import HeartbeatRequest
from kproto.messages.init_producer_id import InitProducerIdRequest
from kproto.messages.list_groups import ListGroupsRequest
from kproto.messages.list_transactions import ListTransactionsRequest
from kproto.messages.metadata import MetadataRequest, MetadataRequestTopic
from kproto.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kproto.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopic
from kproto.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kproto.messages.sync_group import SyncGroupRequest
from kproto.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from kproto.wire.message import Message
from tests.broker.stage import (
    TwoBrokers,
    batch_of,
    classic_coordinator,
    fetch_request,
    fetch_topic,
    join_request,
    partitions_of,
)
from tests.rules import rule


def test_both_brokers_return_the_same_metadata(two_brokers: TwoBrokers) -> None:
    responses = [two_brokers.ask(node, MetadataRequest(topics=None), 12) for node in (1, 2)]
    assert responses[0] == responses[1]
    assert [(broker.node_id, broker.host) for broker in responses[0].brokers] == [(1, "one"), (2, "two")]  # type: ignore[union-attr]
    assert [partition.leader_id for partition in responses[0].topics[0].partitions] == [1, 2]  # type: ignore[union-attr]


def test_each_broker_is_described_with_its_own_rack(two_brokers: TwoBrokers) -> None:
    nodes = two_brokers.cluster.nodes
    nodes[2] = replace(nodes[2], rack="b")
    metadata = ask(two_brokers, 1, MetadataRequest(topics=None), 12)
    assert [(broker.node_id, broker.rack) for broker in metadata.brokers] == [(1, None), (2, "b")]
    described = ask(two_brokers, 1, DescribeClusterRequest(include_cluster_authorized_operations=False), 1)
    assert [(broker.broker_id, broker.rack) for broker in described.brokers] == [(1, None), (2, "b")]
    data = TopicProduceData(name="t", partition_data=[PartitionProduceData(index=1, records=batch_of(b"a"))])
    produced = ask(two_brokers, 1, ProduceRequest(acks=-1, timeout_ms=1, topic_data=[data]), 12)
    assert [(endpoint.node_id, endpoint.rack) for endpoint in produced.node_endpoints] == [(2, "b")]
    fetched = ask(two_brokers, 1, fetch_request(fetch_topic(partition=1, topic_id=UUID(int=7))), 16)
    assert [(endpoint.node_id, endpoint.rack) for endpoint in fetched.node_endpoints] == [(2, "b")]


def test_only_the_leader_serves_produce_and_fetch(two_brokers: TwoBrokers) -> None:
    data = TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=batch_of(b"a"))])
    codes = []
    for node in (2, 1):
        stored = two_brokers.ask(node, ProduceRequest(acks=-1, timeout_ms=1, topic_data=[data]), 9)
        codes.append(stored.responses[0].partition_responses[0].error_code)  # type: ignore[union-attr]
        fetched = two_brokers.ask(node, fetch_request(fetch_topic(), wait=0), 12)
        codes.append(partitions_of(fetched)[0].error_code)  # type: ignore[arg-type]
    assert codes == [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_LEADER_OR_FOLLOWER, 0, 0]


def test_a_delayed_fetch_is_answered_when_the_leader_moves(two_brokers: TwoBrokers) -> None:
    assert two_brokers.ask(1, fetch_request(fetch_topic(epoch=0), wait=10_000), 12) is None
    two_brokers.step(1, ElectLeader("t", 0, 2))
    answer = two_brokers.answers[two_brokers.conns[1]]
    assert partitions_of(answer)[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER  # type: ignore[arg-type]
    assert two_brokers.cluster.topics.named("t").partitions[0].log.leader_epoch == 1  # type: ignore[union-attr]


@rule("R170")
def test_find_coordinator_returns_the_current_coordinator(two_brokers: TwoBrokers) -> None:
    def coordinator_of_f() -> int:
        response = two_brokers.ask(2, FindCoordinatorRequest(coordinator_keys=["f"]), 4)
        return response.coordinators[0].node_id  # type: ignore[union-attr]

    before = coordinator_of_f()
    two_brokers.step(1, MoveCoordinator("f", 2))
    assert (before, coordinator_of_f()) == (1, 2)


def test_another_broker_answers_not_coordinator(two_brokers: TwoBrokers) -> None:
    beat = HeartbeatRequest(group_id="f", generation_id=1, member_id="m")
    assert two_brokers.ask(2, beat, 4).error_code == ErrorCode.NOT_COORDINATOR  # type: ignore[union-attr]


@rule("R4", "R104")
@pytest.mark.parametrize("version", [1, 5, 8])
def test_another_broker_refuses_offset_fetch(two_brokers: TwoBrokers, version: int) -> None:
    """A broker that is not the coordinator rejects OffsetFetch.

    Without an error, clients would interpret the missing offsets as "never committed".
    """
    topics = [OffsetFetchRequestTopic(name="t", partition_indexes=[0])]
    old, new = (
        OffsetFetchRequest(group_id="f", topics=topics),
        OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="f", topics=None)]),
    )
    response = two_brokers.ask(2, old if version < 8 else new, version)
    code = ErrorCode.NOT_COORDINATOR
    if version == 1:
        assert response.topics[0].partitions[0].error_code == code  # type: ignore[union-attr]
    elif version == 5:
        assert response.error_code == code  # type: ignore[union-attr]
    else:
        assert response.groups[0].error_code == code  # type: ignore[union-attr]


@rule("R171")
def test_a_new_coordinator_loads_the_group_first(two_brokers: TwoBrokers) -> None:
    two_brokers.step(1, MoveCoordinator("f", 2, 50))
    sync = SyncGroupRequest(group_id="f", generation_id=1, member_id="m", assignments=[])
    assert ask(two_brokers, 2, sync, 4).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    two_brokers.now += 50
    assert ask(two_brokers, 2, sync, 4).error_code == ErrorCode.UNKNOWN_MEMBER_ID


@rule("R69")
def test_a_heartbeat_succeeds_while_the_group_is_loading(two_brokers: TwoBrokers) -> None:
    two_brokers.step(1, MoveCoordinator("f", 2, 50))
    beat = HeartbeatRequest(group_id="f", generation_id=1, member_id="m")
    assert ask(two_brokers, 2, beat, 4).error_code == ErrorCode.NONE
    assert ask(two_brokers, 1, beat, 4).error_code == ErrorCode.NOT_COORDINATOR
    two_brokers.now += 50
    assert ask(two_brokers, 2, beat, 4).error_code == ErrorCode.UNKNOWN_MEMBER_ID


@rule("R107")
@pytest.mark.parametrize(
    ("version", "code"),
    [(1, ErrorCode.COORDINATOR_NOT_AVAILABLE), (2, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)],
)
def test_old_producers_do_not_receive_loading_errors(
    two_brokers: TwoBrokers, version: int, code: ErrorCode
) -> None:
    """Up to v1, TxnOffsetCommit gets COORDINATOR_NOT_AVAILABLE, which old producers retry (KAFKA-7296)."""
    find = FindCoordinatorRequest(key_type=1, coordinator_keys=["x"])
    assert ask(two_brokers, 1, find, 4).coordinators[0].node_id == 1
    producer = ask(
        two_brokers,
        1,
        InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=10_000),
        4,
    )
    identity = {
        "transactional_id": "x",
        "group_id": "f",
        "producer_id": producer.producer_id,
        "producer_epoch": producer.producer_epoch,
    }
    assert ask(two_brokers, 1, AddOffsetsToTxnRequest(**identity), 3).error_code == ErrorCode.NONE
    two_brokers.step(1, MoveCoordinator("f", 2, 50))
    partition = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=3, committed_metadata="")
    topics = [TxnOffsetCommitRequestTopic(name="t", partitions=[partition])]
    response = ask(two_brokers, 2, TxnOffsetCommitRequest(**identity, topics=topics), version)
    assert response.topics[0].partitions[0].error_code == code


@rule("R175", "R179")
def test_waiting_members_are_answered_when_the_coordinator_moves(two_brokers: TwoBrokers) -> None:
    assert two_brokers.ask(1, join_request("", group="f"), 3) is None
    two_brokers.step(1, Tick())
    first = two_brokers.answers[two_brokers.conns[1]]
    assert two_brokers.ask(1, join_request("", group="f"), 3) is None
    two_brokers.step(1, MoveCoordinator("f", 2))
    assert two_brokers.answers[two_brokers.conns[1]].error_code == ErrorCode.NOT_COORDINATOR  # type: ignore[attr-defined]
    rejoin = join_request(first.member_id, group="f")  # type: ignore[attr-defined]

    # No response yet: the JoinGroup waits for the other member of the group.
    assert two_brokers.ask(2, rejoin, 3) is None


# Group coordinators.

# Two group names: by their hashes, broker 1 coordinates the first group, and broker 2 the second.
FIRSTS, SECONDS = "f", "g"


def create_groups(two_brokers: TwoBrokers) -> None:
    """Create the groups FIRSTS and SECONDS, each with a committed offset on its coordinator."""
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=3, committed_metadata="")
    topics = [OffsetCommitRequestTopic(name="t", partitions=[partition])]
    for node, name in ((1, FIRSTS), (2, SECONDS)):
        response = ask(two_brokers, node, OffsetCommitRequest(group_id=name, member_id="", topics=topics), 8)
        assert response.topics[0].partitions[0].error_code == 0


@rule("R7")
def test_groups_are_spread_over_the_brokers(two_brokers: TwoBrokers) -> None:
    request = FindCoordinatorRequest(key_type=0, coordinator_keys=[FIRSTS, SECONDS])
    assert [coordinator.node_id for coordinator in ask(two_brokers, 1, request, 4).coordinators] == [1, 2]
    codes = {
        (node, name): ask(
            two_brokers, node, HeartbeatRequest(group_id=name, generation_id=1, member_id="m"), 4
        )
        for node in (1, 2)
        for name in (FIRSTS, SECONDS)
    }
    refused, accepted = ErrorCode.NOT_COORDINATOR, ErrorCode.UNKNOWN_MEMBER_ID
    assert {place: answer.error_code for place, answer in codes.items()} == {
        (1, FIRSTS): accepted, (1, SECONDS): refused, (2, FIRSTS): refused, (2, SECONDS): accepted,
    }  # fmt: skip


def test_each_broker_lists_its_own_groups(two_brokers: TwoBrokers) -> None:
    create_groups(two_brokers)
    for node, mine in ((1, FIRSTS), (2, SECONDS)):
        listed = ask(two_brokers, node, ListGroupsRequest(), 5)
        assert (listed.error_code, [group.group_id for group in listed.groups]) == (0, [mine])


def test_a_broker_that_loads_a_group_lists_none(two_brokers: TwoBrokers) -> None:
    create_groups(two_brokers)
    two_brokers.step(1, MoveCoordinator(FIRSTS, 2, 50))
    assert ask(two_brokers, 2, ListGroupsRequest(), 5).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert ask(two_brokers, 1, ListGroupsRequest(), 5).groups == []
    two_brokers.now += 50
    assert len(ask(two_brokers, 2, ListGroupsRequest(), 5).groups) == 2


def test_a_request_for_several_groups_is_served_for_the_own_ones(two_brokers: TwoBrokers) -> None:
    create_groups(two_brokers)
    groups, refused = [SECONDS, FIRSTS], ErrorCode.NOT_COORDINATOR
    described = ask(two_brokers, 1, DescribeGroupsRequest(groups=groups), 5).groups
    assert {group.group_id: (group.error_code, group.group_state) for group in described} == {
        FIRSTS: (0, "Empty"), SECONDS: (refused, ""),
    }  # fmt: skip
    wanted = [OffsetFetchRequestGroup(group_id=name, topics=None) for name in groups]
    fetched = ask(two_brokers, 1, OffsetFetchRequest(groups=wanted), 8).groups
    assert {group.group_id: (group.error_code, len(group.topics)) for group in fetched} == {
        FIRSTS: (0, 1), SECONDS: (refused, 0),
    }  # fmt: skip
    deleted = ask(two_brokers, 1, DeleteGroupsRequest(groups_names=groups), 2).results
    assert {result.group_id: result.error_code for result in deleted} == {FIRSTS: 0, SECONDS: refused}
    assert list(classic_coordinator(two_brokers.cluster).groups) == [SECONDS]


def test_groups_of_a_stopped_broker_move_to_its_successor(two_brokers: TwoBrokers) -> None:
    two_brokers.cluster.move_coordinators(1, 2)
    del two_brokers.cluster.nodes[1]
    request = FindCoordinatorRequest(key_type=0, coordinator_keys=[FIRSTS])
    assert ask(two_brokers, 2, request, 4).coordinators[0].node_id == 2


# Transaction coordinators.

# Two transactional ids: by their hashes, broker 1 coordinates the first, and broker 2 the second.
ON_ONE, ON_TWO = "x", "y"


def init_request(name: str | None) -> InitProducerIdRequest:
    return InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000)


def ask(two_brokers: TwoBrokers, node: int, request: Message, version: int) -> Any:
    return two_brokers.ask(node, request, version)


def test_transactional_ids_are_spread_over_the_brokers(two_brokers: TwoBrokers) -> None:
    request = FindCoordinatorRequest(key_type=1, coordinator_keys=[ON_ONE, ON_TWO])
    assert [coordinator.node_id for coordinator in ask(two_brokers, 2, request, 4).coordinators] == [1, 2]
    codes = {
        (node, name): ask(two_brokers, node, init_request(name), 4).error_code
        for node in (1, 2)
        for name in (ON_ONE, ON_TWO, None)
    }
    refused = ErrorCode.NOT_COORDINATOR
    assert codes == {
        (1, ON_ONE): 0, (1, ON_TWO): refused, (1, None): 0,
        (2, ON_ONE): refused, (2, ON_TWO): 0, (2, None): 0,
    }  # fmt: skip


def test_each_broker_lists_its_own_transactions(two_brokers: TwoBrokers) -> None:
    ask(two_brokers, 1, init_request(ON_ONE), 4)
    ask(two_brokers, 2, init_request(ON_TWO), 4)
    for node, mine in ((1, ON_ONE), (2, ON_TWO)):
        listed = ask(two_brokers, node, ListTransactionsRequest(state_filters=[], producer_id_filters=[]), 2)
        assert [state.transactional_id for state in listed.transaction_states] == [mine]
        response = ask(
            two_brokers, node, DescribeTransactionsRequest(transactional_ids=[ON_ONE, ON_TWO, ""]), 0
        )
        assert [state.error_code for state in response.transaction_states] == [
            0 if mine == ON_ONE else ErrorCode.NOT_COORDINATOR,
            0 if mine == ON_TWO else ErrorCode.NOT_COORDINATOR,
            ErrorCode.INVALID_REQUEST,
        ]


def test_transactions_move_to_another_broker(two_brokers: TwoBrokers) -> None:
    ask(two_brokers, 1, init_request(ON_ONE), 4)
    two_brokers.cluster.move_coordinators(1, 2)
    assert ask(two_brokers, 2, init_request(ON_ONE), 4).producer_epoch == 1
    assert ask(two_brokers, 1, init_request(ON_ONE), 4).error_code == ErrorCode.NOT_COORDINATOR


def test_a_marker_completes_a_fetch_on_another_broker(two_brokers: TwoBrokers) -> None:
    named = ask(two_brokers, 1, init_request(ON_ONE), 4)
    producer = {"producer_id": named.producer_id, "producer_epoch": named.producer_epoch}
    batch = batch_of(b"a", base_sequence=0, is_transactional=True, **producer)
    data = TopicProduceData(name="t", partition_data=[PartitionProduceData(index=1, records=batch)])
    written = ProduceRequest(transactional_id=ON_ONE, acks=-1, timeout_ms=1, topic_data=[data])
    assert ask(two_brokers, 2, written, 12).responses[0].partition_responses[0].error_code == 0
    assert two_brokers.ask(2, fetch_request(fetch_topic(partition=1), wait=10_000, isolation=1), 12) is None
    reader = two_brokers.conns[2]
    end = EndTxnRequest(transactional_id=ON_ONE, committed=True, **producer)
    assert ask(two_brokers, 1, end, 4).error_code == 0
    (read,) = partitions_of(two_brokers.answers[reader])  # type: ignore[arg-type]
    assert (read.last_stable_offset, bool(read.records)) == (2, True)


def test_a_produce_to_the_wrong_broker_is_answered_with_the_leader(two_brokers: TwoBrokers) -> None:
    """From Produce v10 on, the error response contains the leader and its address (KIP-951)."""
    data = TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=batch_of(b"a"))])
    for version in (9, 10, 12):
        response = ask(two_brokers, 2, ProduceRequest(acks=-1, timeout_ms=1, topic_data=[data]), version)
        leader = response.responses[0].partition_responses[0].current_leader
        if version < 10:
            assert (leader.leader_id, response.node_endpoints) == (-1, [])
        else:
            assert (leader.leader_id, leader.leader_epoch) == (1, 0)
            assert [
                (endpoint.node_id, endpoint.host, endpoint.port) for endpoint in response.node_endpoints
            ] == [(1, "one", 9092)]


# Replicas.


def create_request(factor: int, *assigned: list[int]) -> CreateTopicsRequest:
    topic = CreatableTopic(
        name="r",
        num_partitions=-1 if assigned else 3,
        replication_factor=factor,
        assignments=[
            CreatableReplicaAssignment(partition_index=n, broker_ids=ids) for n, ids in enumerate(assigned)
        ],
        configs=[],
    )
    return CreateTopicsRequest(topics=[topic])


def replicas_of_r(two_brokers: TwoBrokers) -> list[tuple[int, list[int], list[int], list[int]]]:
    (topic,) = ask(two_brokers, 1, MetadataRequest(topics=[MetadataRequestTopic(name="r")]), 9).topics
    return [
        (partition.leader_id, partition.replica_nodes, partition.isr_nodes, partition.offline_replicas)
        for partition in topic.partitions
    ]


def test_a_topic_has_the_requested_replication_factor(two_brokers: TwoBrokers) -> None:
    response = ask(two_brokers, 1, create_request(2), 7)
    assert (response.topics[0].error_code, response.topics[0].replication_factor) == (0, 2)
    assert replicas_of_r(two_brokers) == [
        (1, [1, 2], [1, 2], []),
        (2, [2, 1], [2, 1], []),
        (1, [1, 2], [1, 2], []),
    ]
    two_brokers.step(1, ElectLeader("r", 0, 2))
    assert replicas_of_r(two_brokers)[0] == (2, [1, 2], [1, 2], [])
    del two_brokers.cluster.nodes[1]
    assert replicas_of_r(two_brokers)[0] == (2, [1, 2], [2], [1])


def test_more_replicas_than_brokers_are_refused(two_brokers: TwoBrokers) -> None:
    response = ask(two_brokers, 1, create_request(3), 7)
    assert response.topics[0].error_code == ErrorCode.INVALID_REPLICATION_FACTOR
    assert "2 brokers" in response.topics[0].error_message


@pytest.mark.parametrize("assigned", [([1, 1],), ([1, 3],), ([1], [1, 2]), ([],)])
def test_an_invalid_replica_assignment_is_refused(
    two_brokers: TwoBrokers, assigned: tuple[list[int], ...]
) -> None:
    response = ask(two_brokers, 1, create_request(-1, *assigned), 7)
    assert response.topics[0].error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_new_partitions_have_as_many_replicas_as_the_assigned_ones(
    two_brokers: TwoBrokers,
) -> None:
    response = ask(two_brokers, 1, create_request(-1, [2, 1]), 7)
    assert (response.topics[0].error_code, replicas_of_r(two_brokers)) == (0, [(2, [2, 1], [2, 1], [])])
    for total, chosen in ((2, None), (3, [[1, 2]]), (4, [[1]])):
        added = [CreatePartitionsAssignment(broker_ids=ids) for ids in chosen or ()]
        grown = CreatePartitionsTopic(name="r", count=total, assignments=added if chosen else None)
        request = CreatePartitionsRequest(topics=[grown], timeout_ms=1, validate_only=False)
        code = ask(two_brokers, 1, request, 3).results[0].error_code
        assert code == (ErrorCode.INVALID_REPLICA_ASSIGNMENT if total == 4 else 0)
    assert [leader for leader, *_ in replicas_of_r(two_brokers)] == [2, 2, 1]
    assert [replicas for _, replicas, *_ in replicas_of_r(two_brokers)] == [[2, 1], [2, 1], [1, 2]]
