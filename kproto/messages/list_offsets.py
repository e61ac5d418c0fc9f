"""ListOffsets (key 2): get each partition's start offset, end offset, or offset at a timestamp."""

from __future__ import annotations

from ..wire.message import Message, Struct, field
from ..wire.types import Int8, Int16, Int32, Int64, String


class ListOffsetsRequest(Message, api_key=2, versions="1-11", flexible="6+"):
    replica_id: Int32
    # The isolation level: 0 read_uncommitted, 1 read_committed. With 1, the latest offset is the last stable
    # offset (KIP-98).
    isolation_level: Int8 = field("2+", default=0)
    topics: list[ListOffsetsTopic]
    # How long the broker may take, in ms, if it has to read remote storage (KIP-1075).
    timeout_ms: Int32 = field("10+", default=0, ignorable=True)


class ListOffsetsTopic(Struct):
    name: String
    partitions: list[ListOffsetsPartition]


class ListOffsetsPartition(Struct):
    partition_index: Int32
    # The leader epoch that the client knows (KIP-320).
    current_leader_epoch: Int32 = field("4+", default=-1, ignorable=True)
    # A timestamp in ms, or one of these numbers:
    # -1: the latest offset
    # -2: the earliest offset
    # -3: the offset of the record with the largest timestamp (from v7 on, KIP-734)
    # -4: the earliest offset on the local disk (from v8 on, KIP-405)
    # -5: the latest offset in remote storage (from v9 on, KIP-1005)
    # -6: the earliest offset that is not yet in remote storage (from v11 on, KIP-1023)
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
    offset: Int64 = -1  # The offset; -1 if no record matches.
    leader_epoch: Int32 = field("4+", default=-1)
