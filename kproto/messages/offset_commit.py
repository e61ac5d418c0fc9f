"""OffsetCommit (key 8): commit offsets of a group."""

from __future__ import annotations

from ..wire.message import Message, Struct, field
from ..wire.types import ZERO_UUID, Int16, Int32, Int64, String, Uuid


class OffsetCommitRequest(Message, api_key=8, versions="2-10", flexible="8+"):
    group_id: String
    # The generation or member epoch; -1, with an empty member id, if the client is not a member. The group
    # must then have no members, or not exist yet.
    generation_id_or_member_epoch: Int32 = -1
    member_id: String
    # The instance id of a static member (KIP-345).
    group_instance_id: String | None = field("7+", default=None)
    # How long to keep the offset, in ms; -1 for the broker's setting. From v5 on the broker's setting always
    # applies (KIP-211).
    retention_time_ms: Int64 = field("2-4", default=-1, ignorable=True)
    topics: list[OffsetCommitRequestTopic]


class OffsetCommitRequestTopic(Struct):
    name: String = field("2-9", default="", ignorable=True)
    # The topic id, which replaces the name (KIP-516, KIP-848).
    topic_id: Uuid = field("10+", default=ZERO_UUID, ignorable=True)
    partitions: list[OffsetCommitRequestPartition]


class OffsetCommitRequestPartition(Struct):
    partition_index: Int32
    committed_offset: Int64
    # The leader epoch of the last processed record; -1 if it is unknown (KIP-320).
    committed_leader_epoch: Int32 = field("6+", default=-1, ignorable=True)
    committed_metadata: String | None


class OffsetCommitResponse(Message, api_key=8, versions="2-10", flexible="8+"):
    throttle_time_ms: Int32 = field("3+", default=0, ignorable=True)
    topics: list[OffsetCommitResponseTopic]


class OffsetCommitResponseTopic(Struct):
    name: String = field("2-9", default="", ignorable=True)
    topic_id: Uuid = field("10+", default=ZERO_UUID, ignorable=True)
    partitions: list[OffsetCommitResponsePartition]


class OffsetCommitResponsePartition(Struct):
    partition_index: Int32
    error_code: Int16
