"""AlterPartitionReassignments (key 45): move partitions to other nodes (KIP-455).

All nodes share the logs, so a reassignment is complete before the response is sent. No reassignment is ever
in progress, so none can be canceled.
"""

from __future__ import annotations

from ...error_codes import ErrorCode
from ...messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from ..broker import Broker
from ..call import Call, Result
from ..security.acls import Operation
from ..topics import Partition, Topic
from .api import Api
from .authorization import AUTHORIZATION_FAILED, on_cluster
from .repeated_names import truncate_name
from .replica_assignment import assignment_fault

Fault = tuple[ErrorCode, str | None]


def handle_alter_partition_reassignments(broker: Broker, call: Call) -> Result:
    """Move each partition to the nodes that the request lists for it.

    If the leader is not one of the requested nodes, the first requested node becomes the leader.
    """
    request = call.request
    assert isinstance(request, AlterPartitionReassignmentsRequest)
    # As in Kafka, a request without topics succeeds, even if its other fields are invalid.
    if not request.topics:
        return AlterPartitionReassignmentsResponse(
            throttle_time_ms=0, error_code=0, error_message=None, responses=[]
        )
    if request.timeout_ms <= 0:
        return refuse(request, ErrorCode.REQUEST_TIMED_OUT, call.version, None)
    responses: list[ReassignableTopicResponse] = []
    partition_count = sum(len(topic.partitions) for topic in request.topics)
    for requested_topic in request.topics:
        topic = broker.topics.named(requested_topic.name)
        name = truncate_name(requested_topic.name, partition_count)
        results = [
            _partition_result(entry, _reassign(broker, request, topic, name, entry))
            for entry in requested_topic.partitions
        ]
        responses.append(ReassignableTopicResponse(name=requested_topic.name, partitions=results))
    return AlterPartitionReassignmentsResponse(
        throttle_time_ms=0,
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_code=0,
        error_message=None,
        responses=responses,
    )


def _reassign(
    broker: Broker,
    request: AlterPartitionReassignmentsRequest,
    topic: Topic | None,
    name: str,
    entry: ReassignablePartition,
) -> Fault | None:
    """Move one partition.

    Return None if the move succeeds; otherwise return the error code and Kafka's message, which names the
    topic `name`.
    """
    if topic is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {name}."
    index = entry.partition_index
    partition = topic.partition(index)
    if partition is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find partition {name}:{index}."
    if entry.replicas is None:
        return ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "No partition reassignment is in progress."
    fault = assignment_fault(broker, [entry.replicas])
    if fault is not None:
        return ErrorCode.INVALID_REPLICA_ASSIGNMENT, fault
    replica_count = len(broker.cluster.replicas_of(partition, index))
    if not request.allow_replication_factor_change and len(entry.replicas) != replica_count:
        message = f"The replication factor is changed from {replica_count} to {len(entry.replicas)}"
        return ErrorCode.INVALID_REPLICATION_FACTOR, message
    _move_partition(broker, partition, index, entry.replicas)
    return None


def _move_partition(broker: Broker, partition: Partition, index: int, replicas: list[int]) -> None:
    """Set the replicas. If the leader is not one of them, the first becomes leader in a new epoch."""
    cluster = broker.cluster
    leader = cluster.leader(partition, index)
    partition.replicas = tuple(replicas)
    cluster.leaders[partition] = leader if leader in replicas else replicas[0]
    if cluster.leaders[partition] != leader:
        partition.log.start_leader_epoch()
    broker.on_partitions_changed([partition])


def _partition_result(entry: ReassignablePartition, fault: Fault | None) -> ReassignablePartitionResponse:
    error, message = fault or (ErrorCode.NONE, None)
    return ReassignablePartitionResponse(
        partition_index=entry.partition_index, error_code=error, error_message=message
    )


def refuse(
    request: AlterPartitionReassignmentsRequest,
    error: ErrorCode,
    version: int,
    message: str | None = AUTHORIZATION_FAILED,
) -> AlterPartitionReassignmentsResponse:
    """Return a response with a top-level error, and with the same error for each partition."""
    fault = error, message
    responses = [
        ReassignableTopicResponse(
            name=topic.name, partitions=[_partition_result(p, fault) for p in topic.partitions]
        )
        for topic in request.topics
    ]
    return AlterPartitionReassignmentsResponse(
        throttle_time_ms=0, error_code=error, error_message=message, responses=responses
    )


API = Api(
    request=AlterPartitionReassignmentsRequest,
    handle=handle_alter_partition_reassignments,
    authorization=on_cluster(Operation.ALTER),
    refuse=refuse,
)
