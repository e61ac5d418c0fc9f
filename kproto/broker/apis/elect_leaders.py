"""ElectLeaders (key 43): preferred and unclean elections, as in QuorumController."""

from __future__ import annotations

from typing import Final

from ...error_codes import ErrorCode
from ...messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from ..broker import Broker
from ..call import Call, Result
from ..cluster import NO_LEADER
from ..security.acls import Operation
from ..topics import Partition
from .api import Api
from .authorization import AUTHORIZATION_FAILED, on_cluster

# ElectionType
PREFERRED: Final = 0
UNCLEAN: Final = 1
_TOP_LEVEL_ERROR_SINCE: Final = 1  # KIP-460
_NOT_NEEDED_MESSAGE: Final = "Leader election not needed for topic partition."


def handle_elect_leaders(broker: Broker, call: Call) -> Result:
    """Elect the leaders of the requested partitions, or of all partitions if the list is null.

    The response to a request for all partitions omits the partitions that need no election.
    """
    request = call.request
    assert isinstance(request, ElectLeadersRequest)
    # If the list of partitions is empty, Kafka checks neither the timeout nor the election type.
    if request.topic_partitions == []:
        return ElectLeadersResponse(throttle_time_ms=0, replica_election_results=[])
    if request.timeout_ms <= 0:
        return refuse(request, ErrorCode.REQUEST_TIMED_OUT, call.version, message=None)
    if request.election_type not in (PREFERRED, UNCLEAN):
        message = f"Unknown election type {request.election_type}"
        return refuse(request, ErrorCode.INVALID_REQUEST, call.version, message=message)
    unclean = request.election_type == UNCLEAN
    if request.topic_partitions is None:
        partitions = [(topic.name, list(range(len(topic.partitions)))) for topic in broker.topics]
    else:
        partitions = [(topic.topic, topic.partitions) for topic in request.topic_partitions]
    results = [
        ReplicaElectionResult(
            topic=name,
            partition_result=[_partition_result(broker, name, index, unclean=unclean) for index in indexes],
        )
        for name, indexes in partitions
    ]
    if request.topic_partitions is None:
        for topic_result in results:
            topic_result.partition_result = [
                result
                for result in topic_result.partition_result
                if result.error_code != ErrorCode.ELECTION_NOT_NEEDED
            ]
    return ElectLeadersResponse(throttle_time_ms=0, replica_election_results=results)


def refuse(
    request: ElectLeadersRequest,
    error: ErrorCode,
    version: int,
    message: str | None = AUTHORIZATION_FAILED,
) -> ElectLeadersResponse:
    """Return a response with a top-level error, and with the same error for each partition."""
    results = [
        ReplicaElectionResult(
            topic=topic.topic,
            partition_result=[
                PartitionResult(partition_id=index, error_code=error, error_message=message)
                for index in topic.partitions
            ],
        )
        for topic in request.topic_partitions or ()
    ]
    response = ElectLeadersResponse(throttle_time_ms=0, replica_election_results=results)
    if version >= _TOP_LEVEL_ERROR_SINCE:
        response.error_code = error
    return response


def _partition_result(broker: Broker, topic_name: str, index: int, *, unclean: bool) -> PartitionResult:
    """Elect the leader of a partition if the partition exists, and return the result."""
    topic = broker.topics.named(topic_name)
    partition = None if topic is None else topic.partition(index)
    error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    message: str | None = f"No such topic as {topic_name}"
    if partition is not None:
        error = _elect_leader(broker, partition, index, unclean=unclean)
        message = _NOT_NEEDED_MESSAGE if error is ErrorCode.ELECTION_NOT_NEEDED else None
    elif topic is not None:
        message = f"No such partition as {topic_name}-{index}"
    return PartitionResult(partition_id=index, error_code=error, error_message=message)


def _elect_leader(broker: Broker, partition: Partition, index: int, *, unclean: bool) -> ErrorCode:
    """Elect the preferred replica; return NONE on success, else the error.

    An `unclean` election elects any live replica, but only in a partition without a leader.
    """
    cluster = broker.cluster
    leader = cluster.leader(partition, index)
    replicas = cluster.replicas_of(partition, index)
    if leader != NO_LEADER and (unclean or leader == replicas[0]):
        return ErrorCode.ELECTION_NOT_NEEDED
    candidates = [node for node in (replicas if unclean else replicas[:1]) if node in cluster.nodes]
    if not candidates:
        return (
            ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE if unclean else ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
        )
    cluster.leaders[partition] = candidates[0]
    partition.log.start_leader_epoch()
    broker.on_partitions_changed([partition])
    return ErrorCode.NONE


API = Api(
    request=ElectLeadersRequest,
    handle=handle_elect_leaders,
    authorization=on_cluster(Operation.ALTER),
    refuse=refuse,
    divided=("replica_election_results",),
)
