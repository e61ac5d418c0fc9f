"""AlterPartitionReassignments (KIP-455): the leader after a reassignment, and rejected reassignments.

tests/conformance/test_boundary_requests_like_kafka.py compares the responses to random
AlterPartitionReassignments requests with a real Kafka's responses.
"""

from __future__ import annotations

import pytest

from kproto.error_codes import ErrorCode
from kproto.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from tests.broker.stage import Stage, TwoBrokers


def move(
    replicas: list[int] | None, topic: str = "r", partition: int = 0, *, resize: bool = True
) -> AlterPartitionReassignmentsRequest:
    moved = ReassignablePartition(partition_index=partition, replicas=replicas)
    return AlterPartitionReassignmentsRequest(
        topics=[ReassignableTopic(name=topic, partitions=[moved])], allow_replication_factor_change=resize
    )


def ask(two: TwoBrokers, request: AlterPartitionReassignmentsRequest) -> ErrorCode:
    response = two.ask(1, request, 1)
    assert isinstance(response, AlterPartitionReassignmentsResponse)
    assert response.error_code == 0
    return ErrorCode(response.responses[0].partitions[0].error_code)


def placement(two: TwoBrokers) -> tuple[int, list[int], int]:
    """Return the leader, the replicas and the leader epoch of the partition r-0."""
    topic = two.cluster.topics.named("r")
    assert topic is not None
    partition = topic.partitions[0]
    replicas = two.cluster.replicas_of(partition, 0)
    return two.cluster.leader(partition, 0), replicas, partition.log.leader_epoch


def test_the_leader_stays_if_it_keeps_a_replica(led_by_second_broker: TwoBrokers) -> None:
    two = led_by_second_broker
    _, _, epoch = placement(two)
    assert ask(two, move([2])) == ErrorCode.NONE
    assert placement(two) == (2, [2], epoch)
    assert ask(two, move([1, 2])) == ErrorCode.NONE
    assert placement(two) == (2, [1, 2], epoch)


def test_the_first_replica_leads_if_the_leader_loses_its_replica(led_by_second_broker: TwoBrokers) -> None:
    two = led_by_second_broker
    _, _, epoch = placement(two)
    assert ask(two, move([1])) == ErrorCode.NONE
    assert placement(two) == (1, [1], epoch + 1)


@pytest.mark.parametrize(
    ("request_message", "error"),
    [
        (move([1], "absent"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (move([1], partition=1), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (move([]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (move([1, 1]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (move([1, 9]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (move([1], resize=False), ErrorCode.INVALID_REPLICATION_FACTOR),
        (move(None), ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
    ],
)
def test_an_invalid_move_changes_nothing(
    led_by_second_broker: TwoBrokers, request_message: AlterPartitionReassignmentsRequest, error: ErrorCode
) -> None:
    before = placement(led_by_second_broker)
    assert ask(led_by_second_broker, request_message) == error
    assert placement(led_by_second_broker) == before


def test_a_zero_timeout_is_refused() -> None:
    request = move([1], "t")
    request.timeout_ms = 0
    response = Stage({"t": 1}).client().ask(request)
    codes = [entry.error_code for topic in response.responses for entry in topic.partitions]
    assert [response.error_code, *codes] == [ErrorCode.REQUEST_TIMED_OUT] * 2
    assert response.error_message is None
