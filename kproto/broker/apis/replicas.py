"""ElectLeaders (key 43), DescribeLogDirs (35), ListPartitionReassignments (46): operators ask of replicas.

Logs are kept in memory, so there is one directory, which is no path, and nobody knows how much room is left.
Replicas move at once, where the operator says so: none is ever found on its way.
"""

from __future__ import annotations

from typing import Final

from ...error_codes import ErrorCode
from ...messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from ...messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from ...messages.list_partition_reassignments import ListPartitionReassignmentsResponse
from ..broker import Broker
from ..call import Call, Result
from ..cluster import NO_LEADER
from ..topics import Partition, Topic

PREFERRED, UNCLEAN = 0, 1  # ElectionType
MEMORY: Final = "memory"
_NOT_NEEDED: Final = "Leader election not needed for topic partition."


def elect_leaders(broker: Broker, call: Call) -> Result:
    """Elect as QuorumController.electLeaders; of all topics only what changed is told."""
    request = call.envelope.request
    assert isinstance(request, ElectLeadersRequest)
    if request.topic_partitions == []:  # of which nothing else is looked at
        return ElectLeadersResponse(throttle_time_ms=0, replica_election_results=[])
    if request.timeout_ms <= 0:
        return elections_refused(request, call.version, ErrorCode.REQUEST_TIMED_OUT, None)
    if request.election_type not in (PREFERRED, UNCLEAN):
        why = f"Unknown election type {request.election_type}"
        return elections_refused(request, call.version, ErrorCode.INVALID_REQUEST, why)
    unclean = request.election_type == UNCLEAN
    if request.topic_partitions is None:
        asked = [(topic.name, list(range(len(topic.partitions)))) for topic in broker.topics]
    else:
        asked = [(one.topic, one.partitions) for one in request.topic_partitions]
    results = [
        ReplicaElectionResult(
            topic=name, partition_result=[_elected(broker, name, index, unclean=unclean) for index in indexes]
        )
        for name, indexes in asked
    ]
    if request.topic_partitions is None:
        for one in results:
            one.partition_result = [
                each for each in one.partition_result if each.error_code != ErrorCode.ELECTION_NOT_NEEDED
            ]
    return ElectLeadersResponse(throttle_time_ms=0, replica_election_results=results)


def elections_refused(
    request: ElectLeadersRequest, version: int, code: ErrorCode, message: str | None
) -> ElectLeadersResponse:
    """What is heard of a request that is refused as a whole."""
    results = [
        ReplicaElectionResult(
            topic=one.topic,
            partition_result=[
                PartitionResult(partition_id=index, error_code=code, error_message=message)
                for index in one.partitions
            ],
        )
        for one in request.topic_partitions or ()
    ]
    response = ElectLeadersResponse(throttle_time_ms=0, replica_election_results=results)
    if version >= 1:  # KIP-460: there is no room for it before
        response.error_code = code
    return response


def _elected(broker: Broker, name: str, index: int, *, unclean: bool) -> PartitionResult:
    topic = broker.topics.named(name)
    partition = None if topic is None else topic.partition(index)
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    message: str | None = f"No such topic as {name}"
    if partition is not None:
        code = _elect(broker, partition, index, unclean=unclean)
        message = _NOT_NEEDED if code == ErrorCode.ELECTION_NOT_NEEDED else None
    elif topic is not None:
        message = f"No such partition as {name}-{index}"
    return PartitionResult(partition_id=index, error_code=code, error_message=message)


def _elect(broker: Broker, partition: Partition, index: int, *, unclean: bool) -> ErrorCode:
    """Let the first replica lead, or, where nobody does and it may be `unclean`, any that is up."""
    cluster = broker.cluster
    leader = cluster.leader(partition, index)
    replicas = cluster.replicas_of(partition, index)
    if leader != NO_LEADER and (unclean or leader == replicas[0]):
        return ErrorCode.ELECTION_NOT_NEEDED
    able = [one for one in (replicas if unclean else replicas[:1]) if one in cluster.nodes]
    if not able:
        return (
            ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE if unclean else ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
        )
    cluster.leaders[partition] = able[0]
    partition.log.elect()
    broker.wake([partition])
    return ErrorCode.NONE


def describe_log_dirs(broker: Broker, call: Call) -> Result:
    """Tell how large the logs of this broker are; of what it hasn't got it is silent."""
    request = call.envelope.request
    assert isinstance(request, DescribeLogDirsRequest)
    wanted = None
    if request.topics is not None:
        wanted = {(one.topic, index) for one in request.topics for index in one.partitions}

    def sizes(topic: Topic) -> list[DescribeLogDirsPartition]:
        return [
            DescribeLogDirsPartition(
                partition_index=index,
                partition_size=sum(segment.size for segment in partition.log.segments),
                offset_lag=0,
                is_future_key=False,
            )
            for index, partition in enumerate(topic.partitions)
            if wanted is None or (topic.name, index) in wanted
            if broker.node.id in broker.cluster.replicas_of(partition, index)
        ]

    here = [DescribeLogDirsTopic(name=topic.name, partitions=sizes(topic)) for topic in broker.topics]
    found = DescribeLogDirsResult(
        error_code=0, log_dir=MEMORY, topics=[topic for topic in here if topic.partitions]
    )
    return DescribeLogDirsResponse(throttle_time_ms=0, results=[found])


def list_partition_reassignments(broker: Broker, call: Call) -> Result:
    return ListPartitionReassignmentsResponse(throttle_time_ms=0, error_code=0, error_message=None, topics=[])
