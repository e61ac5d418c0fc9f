"""ListOffsets (key 2): the offset at a log's start, at its end, or at a point in time."""

from __future__ import annotations

from ..wire.message import Message, Struct, field
from ..wire.types import Int8, Int16, Int32, Int64, String


class ListOffsetsRequest(Message, api_key=2, versions="1-11", flexible="6+"):
    replica_id: Int32
    # 0 = read_uncommitted, 1 = read_committed: the end is then the last stable offset (KIP-98)
    isolation_level: Int8 = field("2+", default=0)
    topics: list[ListOffsetsTopic]
    # KIP-1075: the answer may need a look into remote storage
    timeout_ms: Int32 = field("10+", default=0, ignorable=True)


class ListOffsetsTopic(Struct):
    name: String
    partitions: list[ListOffsetsPartition]


class ListOffsetsPartition(Struct):
    partition_index: Int32
    current_leader_epoch: Int32 = field("4+", default=-1, ignorable=True)  # KIP-320
    # A time in ms, or: -1 latest, -2 earliest, -3 of the largest timestamp (v7, KIP-734), -4 earliest
    # on local disk (v8, KIP-405), -5 latest in remote storage (v9, KIP-1005), -6 earliest not yet
    # there (v11, KIP-1023).
    timestamp: Int64


class ListOffsetsResponse(Message, api_key=2, versions="1-11", flexible="6+"):
    throttle_time_ms: Int32 = field("2+", default=0, ignorable=True)
    topics: list[ListOffsetsTopicResponse]


class ListOffsetsTopicResponse(Struct):
    name: String
    partitions: list[ListOffsetsPartitionResponse]


class ListOffsetsPartitionResponse(Struct):
    partition_index: Int32
    error_code: Int16
    timestamp: Int64 = -1
    offset: Int64 = -1  # -1 when there is none
    leader_epoch: Int32 = field("4+", default=-1)
