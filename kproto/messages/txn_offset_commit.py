"""TxnOffsetCommit (key 28): commit a group's offsets as part of a transaction."""

from __future__ import annotations

from ..wire.message import Message, Struct, field
from ..wire.types import ZERO_UUID, Int16, Int32, Int64, String, Uuid


class TxnOffsetCommitRequest(Message, api_key=28, versions="0-6", flexible="3+"):
    transactional_id: String
    group_id: String
    producer_id: Int64
    producer_epoch: Int16
    # The generation of a classic group's member, or the epoch of a member of the consumer protocol (KIP-848).
    # The coordinator fences members with an older value (KIP-447).
    generation_id_or_member_epoch: Int32 = field("3+", default=-1)
    member_id: String = field("3+", default="")
    group_instance_id: String | None = field("3+", default=None)
    topics: list[TxnOffsetCommitRequestTopic]


class TxnOffsetCommitRequestTopic(Struct):
    name: String = field("0-5", default="", ignorable=True)
    # The topic id, which replaces the name (KIP-1319).
    topic_id: Uuid = field("6+", default=ZERO_UUID, ignorable=True)
    partitions: list[TxnOffsetCommitRequestPartition]


class TxnOffsetCommitRequestPartition(Struct):
    partition_index: Int32
    committed_offset: Int64
    # The leader epoch of the last processed record; -1 if it is unknown (KIP-320).
    committed_leader_epoch: Int32 = field("2+", default=-1, ignorable=True)
    committed_metadata: String | None


class TxnOffsetCommitResponse(Message, api_key=28, versions="0-6", flexible="3+"):
    throttle_time_ms: Int32
    topics: list[TxnOffsetCommitResponseTopic]


class TxnOffsetCommitResponseTopic(Struct):
    name: String = field("0-5", default="", ignorable=True)
    topic_id: Uuid = field("6+", default=ZERO_UUID, ignorable=True)
    partitions: list[TxnOffsetCommitResponsePartition]


class TxnOffsetCommitResponsePartition(Struct):
    partition_index: Int32
    error_code: Int16
