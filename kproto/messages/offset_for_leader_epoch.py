"""OffsetForLeaderEpoch (key 23): get the end offset of an epoch, to detect truncation (KIP-320)."""

from __future__ import annotations

from ..wire.message import Message, Struct, field
from ..wire.types import Int16, Int32, Int64, String


class OffsetForLeaderEpochRequest(Message, api_key=23, versions="2-4", flexible="4+"):
    # The broker id of a follower; -1 for consumers; -2 for debugging consumers. The id is also -2 after a
    # request of v2, which lacks this field, was decoded.
    replica_id: Int32 = field("3+", default=-2, ignorable=True)
    topics: list[OffsetForLeaderTopic]


class OffsetForLeaderTopic(Struct):
    topic: String = field(map_key=True)
    partitions: list[OffsetForLeaderPartition]


class OffsetForLeaderPartition(Struct):
    partition: Int32
    current_leader_epoch: Int32 = -1
    leader_epoch: Int32


class OffsetForLeaderEpochResponse(Message, api_key=23, versions="2-4", flexible="4+"):
    throttle_time_ms: Int32
    topics: list[OffsetForLeaderTopicResult]


class OffsetForLeaderTopicResult(Struct):
    topic: String = field(map_key=True)
    partitions: list[EpochEndOffset]


class EpochEndOffset(Struct):
    error_code: Int16
    partition: Int32
    leader_epoch: Int32 = -1
    end_offset: Int64 = -1
