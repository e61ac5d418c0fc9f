"""DescribeLogDirs (key 35): the sizes of this broker's logs.

The logs are in memory. The response has a single log directory, whose name is not a path and whose free space
is unknown.
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
from ..broker import Broker
from ..call import Call, Result
from ..security.acls import Operation
from ..topics import Topic
from .api import Api
from .authorization import on_cluster

LOG_DIR: Final = "memory"


def handle_describe_log_dirs(broker: Broker, call: Call) -> Result:
    """Return the size of each requested partition that has a replica on this broker."""
    request = call.request
    assert isinstance(request, DescribeLogDirsRequest)
    requested_partitions: set[tuple[str, int]] | None = None
    if request.topics is not None:
        requested_partitions = {
            (topic.topic, index) for topic in request.topics for index in topic.partitions
        }

    def describe_partitions(topic: Topic) -> list[DescribeLogDirsPartition]:
        return [
            DescribeLogDirsPartition(
                partition_index=index,
                partition_size=sum(segment.size for segment in partition.log.segments),
                offset_lag=0,
                is_future_key=False,
            )
            for index, partition in enumerate(topic.partitions)
            if requested_partitions is None or (topic.name, index) in requested_partitions
            if broker.node.id in broker.cluster.replicas_of(partition, index)
        ]

    topics = [
        DescribeLogDirsTopic(name=topic.name, partitions=describe_partitions(topic))
        for topic in broker.topics
    ]
    log_dir = DescribeLogDirsResult(
        error_code=0, log_dir=LOG_DIR, topics=[topic for topic in topics if topic.partitions]
    )
    return DescribeLogDirsResponse(throttle_time_ms=0, results=[log_dir])


def refuse(request: DescribeLogDirsRequest, error: ErrorCode, version: int) -> DescribeLogDirsResponse:
    """Refuse the whole request."""
    return DescribeLogDirsResponse(throttle_time_ms=0, error_code=error, results=[])


API = Api(
    request=DescribeLogDirsRequest,
    handle=handle_describe_log_dirs,
    authorization=on_cluster(Operation.DESCRIBE),
    refuse=refuse,
)
