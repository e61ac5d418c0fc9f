"""DescribeQuorum (key 55): the metadata quorum, of which the controller is the only voter (KIP-595).

This broker has no metadata log: all offsets are 0, and every replica is in sync. The response contains no
addresses of controllers, because the controller has no listener of its own.
"""

from __future__ import annotations

from typing import Final

from ...error_codes import ErrorCode
from ...messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    DescribeQuorumResponsePartitionData,
    DescribeQuorumResponseTopicData,
    ReplicaState,
)
from ..broker import Broker
from ..call import Call, Result
from ..security.acls import Operation
from ..topics import CLUSTER_METADATA
from .api import Api
from .authorization import AUTHORIZATION_FAILED, on_cluster

_EPOCH: Final = 1
_NO_SUCH_PARTITION: Final = "This server does not host this topic-partition."


def handle_describe_quorum(broker: Broker, call: Call) -> Result:
    """Describe the quorum, if the request names the partition of the metadata log and no other partition."""
    request = call.request
    assert isinstance(request, DescribeQuorumRequest)
    requested = [
        (topic.topic_name, [partition.partition_index for partition in topic.partitions])
        for topic in request.topics
    ]
    if requested != [(CLUSTER_METADATA, [0])]:
        topics = [
            DescribeQuorumResponseTopicData(
                topic_name=name, partitions=[_unknown_partition(index) for index in indexes]
            )
            for name, indexes in requested
        ]
        return DescribeQuorumResponse(error_code=0, topics=topics)
    leader, *observers = sorted(broker.cluster.nodes)
    partition = DescribeQuorumResponsePartitionData(
        partition_index=0,
        error_code=0,
        leader_id=leader,
        leader_epoch=_EPOCH,
        high_watermark=0,
        current_voters=[_replica_state(broker, leader)],
        observers=[_replica_state(broker, node) for node in observers],
    )
    topic = DescribeQuorumResponseTopicData(topic_name=CLUSTER_METADATA, partitions=[partition])
    return DescribeQuorumResponse(error_code=0, topics=[topic])


def _replica_state(broker: Broker, node: int) -> ReplicaState:
    now = broker.wall_clock
    return ReplicaState(
        replica_id=node, log_end_offset=0, last_fetch_timestamp=now, last_caught_up_timestamp=now
    )


def _unknown_partition(index: int) -> DescribeQuorumResponsePartitionData:
    return DescribeQuorumResponsePartitionData(
        partition_index=index,
        error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        error_message=_NO_SUCH_PARTITION,
        leader_id=0,
        leader_epoch=0,
        high_watermark=0,
        current_voters=[],
        observers=[],
    )


def refuse(request: DescribeQuorumRequest, error: ErrorCode, version: int) -> DescribeQuorumResponse:
    """Refuse the whole request."""
    return DescribeQuorumResponse(error_code=error, error_message=AUTHORIZATION_FAILED, topics=[])


API = Api(
    request=DescribeQuorumRequest,
    handle=handle_describe_quorum,
    authorization=on_cluster(Operation.DESCRIBE),
    refuse=refuse,
)
