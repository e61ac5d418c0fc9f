"""AlterReplicaLogDirs (key 34): move replicas to other log directories of this broker (KIP-113).

This broker has a single log directory. A request that names this directory succeeds, and no replica moves.
Any other directory is answered with LOG_DIR_NOT_FOUND.
"""

from __future__ import annotations

from typing import Final

from ...error_codes import ErrorCode
from ...messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from ..broker import Broker
from ..call import Call, Result
from ..security.acls import Operation
from .api import Api
from .authorization import on_cluster
from .describe_log_dirs import LOG_DIR
from .partitions import find_partition

# The maximum length of TOPIC-PARTITION. While Kafka moves a replica, the name of its directory is
# TOPIC-PARTITION, ".", a random id of 32 characters and "-future". The name may have at most 255 characters.
_MAX_NAME_LENGTH: Final = 255 - len(".") - 32 - len("-future")


def handle_alter_replica_log_dirs(broker: Broker, call: Call) -> Result:
    """Check the directory of each partition.

    If the request lists a partition more than once, its last directory applies.
    """
    request = call.request
    assert isinstance(request, AlterReplicaLogDirsRequest)
    paths = {
        (topic.name, index): directory.path
        for directory in request.dirs
        for topic in directory.topics
        for index in topic.partitions
    }
    return _response({key: _partition_error(broker, *key, path) for key, path in paths.items()})


def _partition_error(broker: Broker, name: str, index: int, path: str) -> ErrorCode:
    """Return the error for a partition; the checks run in the order of ReplicaManager.alterReplicaLogDirs."""
    if len(f"{name}-{index}") > _MAX_NAME_LENGTH:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    if path != LOG_DIR:
        return ErrorCode.LOG_DIR_NOT_FOUND
    partition = find_partition(broker.topics, name, index)
    if partition is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    is_replica = broker.node.id in broker.cluster.replicas_of(partition, index)
    return ErrorCode.NONE if is_replica else ErrorCode.REPLICA_NOT_AVAILABLE


def _response(errors: dict[tuple[str, int], ErrorCode]) -> AlterReplicaLogDirsResponse:
    topics: dict[str, list[AlterReplicaLogDirPartitionResult]] = {}
    for (name, index), error in errors.items():
        partition = AlterReplicaLogDirPartitionResult(partition_index=index, error_code=error)
        topics.setdefault(name, []).append(partition)
    results = [
        AlterReplicaLogDirTopicResult(topic_name=name, partitions=partitions)
        for name, partitions in topics.items()
    ]
    return AlterReplicaLogDirsResponse(throttle_time_ms=0, results=results)


def refuse(
    request: AlterReplicaLogDirsRequest, error: ErrorCode, version: int
) -> AlterReplicaLogDirsResponse:
    """Refuse every partition."""
    return _response(
        {
            (topic.name, index): error
            for directory in request.dirs
            for topic in directory.topics
            for index in topic.partitions
        }
    )


API = Api(
    request=AlterReplicaLogDirsRequest,
    handle=handle_alter_replica_log_dirs,
    authorization=on_cluster(Operation.ALTER),
    refuse=refuse,
)
