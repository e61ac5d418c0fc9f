"""Admin calls describe and change the quorum of controllers.

A change can be sent to any broker, which forwards it to the active controller.
"""

from __future__ import annotations

from uuid import UUID

import pytest

from consumer import Admin, QuorumReplicaState, RaftVoterEndpoint
from consumer.engine.admin import quorum as plans
from kproto.error_codes import ErrorCode
from kproto.errors import BrokerError, ConfigError, NotAuthorized
from kproto.messages.add_raft_voter import AddRaftVoterResponse
from kproto.messages.describe_quorum import (
    DescribeQuorumResponse,
    DescribeQuorumResponsePartitionData,
    DescribeQuorumResponseTopicData,
    Listener,
    Node,
    ReplicaState,
)
from kproto.messages.remove_raft_voter import RemoveRaftVoterResponse
from kproto.messages.unregister_broker import UnregisterBrokerResponse
from tests.consumer.engine.admin.stage import CONNECTION_LOST, clock, cluster_of, known, play, request_of

DIRECTORY = UUID(int=5)
ENDPOINTS = [RaftVoterEndpoint("CONTROLLER", "controller-1", 9093)]


def quorum(code: int = 0, *, partitions: int = 1) -> DescribeQuorumResponse:
    voter = ReplicaState(
        replica_id=1,
        replica_directory_id=DIRECTORY,
        log_end_offset=10,
        last_fetch_timestamp=100,
        last_caught_up_timestamp=99,
    )
    observer = ReplicaState(replica_id=2, log_end_offset=-1)
    entry = DescribeQuorumResponsePartitionData(
        partition_index=0, error_code=code, leader_id=1, leader_epoch=3, high_watermark=9,
        current_voters=[voter], observers=[observer],
    )  # fmt: skip
    topic = DescribeQuorumResponseTopicData(topic_name="__cluster_metadata", partitions=[entry] * partitions)
    node = Node(node_id=1, listeners=[Listener(name="CONTROLLER", host="controller-1", port=9093)])
    return DescribeQuorumResponse(error_code=0, topics=[topic], nodes=[node])


def test_the_quorum_has_voters_observers_and_endpoints() -> None:
    info, _ = play(plans.describe_metadata_quorum(known(), clock), quorum())
    assert (info.leader_id, info.leader_epoch, info.high_watermark) == (1, 3, 9)
    assert info.voters == (QuorumReplicaState(1, DIRECTORY, 10, 100, 99),)
    assert info.observers == (QuorumReplicaState(2, None, None, None, None),)
    assert info.nodes == {1: tuple(ENDPOINTS)}


def test_an_error_of_the_metadata_partition_is_raised() -> None:
    with pytest.raises(NotAuthorized):
        play(
            plans.describe_metadata_quorum(known(), clock),
            quorum(ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
        )


def test_a_response_without_the_metadata_partition_is_an_error() -> None:
    with pytest.raises(BrokerError, match="describes 0 partitions"):
        play(plans.describe_metadata_quorum(known(), clock), quorum(partitions=0))


def test_a_new_voter_has_its_directory_and_endpoints() -> None:
    plan = plans.add_raft_voter(known(), 2, DIRECTORY, ENDPOINTS, clock, cluster_id="c", timeout_ms=7)
    request = request_of(plan)
    assert (request.voter_id, request.voter_directory_id, request.cluster_id) == (2, DIRECTORY, "c")
    assert [(entry.name, entry.host, entry.port) for entry in request.listeners] == [
        ("CONTROLLER", "controller-1", 9093)
    ]
    assert request.timeout_ms == 7


def test_a_change_whose_response_was_lost_has_succeeded() -> None:
    duplicate = AddRaftVoterResponse(
        throttle_time_ms=0, error_code=ErrorCode.DUPLICATE_VOTER, error_message=None
    )
    add = plans.add_raft_voter(known(), 2, DIRECTORY, ENDPOINTS, clock, cluster_id=None, timeout_ms=7)
    assert play(add, CONNECTION_LOST, cluster_of(1), duplicate)[0] is None
    add = plans.add_raft_voter(known(), 2, DIRECTORY, ENDPOINTS, clock, cluster_id=None, timeout_ms=7)
    with pytest.raises(BrokerError, match="DUPLICATE_VOTER"):
        play(add, duplicate)
    missing = RemoveRaftVoterResponse(
        throttle_time_ms=0, error_code=ErrorCode.VOTER_NOT_FOUND, error_message=None
    )
    remove = plans.remove_raft_voter(known(), 2, DIRECTORY, clock, cluster_id=None)
    assert play(remove, CONNECTION_LOST, cluster_of(1), missing)[0] is None
    unregistered = UnregisterBrokerResponse(
        throttle_time_ms=0, error_code=ErrorCode.BROKER_ID_NOT_REGISTERED, error_message="no broker 9"
    )
    unregister = plans.unregister_broker(known(), 9, clock)
    assert play(unregister, CONNECTION_LOST, cluster_of(1), unregistered)[0] is None
    with pytest.raises(BrokerError, match="no broker 9"):
        play(plans.unregister_broker(known(), 9, clock), unregistered)


def test_invalid_voters_are_rejected_before_a_request() -> None:
    with Admin("127.0.0.1:1") as admin:
        with pytest.raises(ConfigError, match="directory_id"):
            admin.add_raft_voter(1, "00000000-0000-0000-0000-000000000000", ENDPOINTS)  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match="65535"):
            admin.add_raft_voter(1, DIRECTORY, [RaftVoterEndpoint("A", "b", 65_536)])
