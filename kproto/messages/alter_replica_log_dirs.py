"""AlterReplicaLogDirs (key 34): move replicas to other log directories of a broker (KIP-113)."""

from __future__ import annotations

from ..wire.message import Message, Struct, field
from ..wire.types import Int16, Int32, String


class AlterReplicaLogDirsRequest(Message, api_key=34, versions="1-2", flexible="2+"):
    dirs: list[AlterReplicaLogDir]


class AlterReplicaLogDir(Struct):
    path: String = field(map_key=True)
    topics: list[AlterReplicaLogDirTopic]


class AlterReplicaLogDirTopic(Struct):
    name: String = field(map_key=True)
    partitions: list[Int32]


class AlterReplicaLogDirsResponse(Message, api_key=34, versions="1-2", flexible="2+"):
    throttle_time_ms: Int32
    results: list[AlterReplicaLogDirTopicResult]


class AlterReplicaLogDirTopicResult(Struct):
    topic_name: String
    partitions: list[AlterReplicaLogDirPartitionResult]


class AlterReplicaLogDirPartitionResult(Struct):
    partition_index: Int32
    error_code: Int16
