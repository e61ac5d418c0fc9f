"""Keys and values of `__consumer_offsets` for share groups (KIP-932)."""

from __future__ import annotations

from ..wire.message import Message, Struct, field
from ..wire.types import Int8, Int32, Int64, String, Uuid


class ShareGroupMemberMetadataKey(Message, versions="0"):
    group_id: String
    member_id: String


class ShareGroupMemberMetadataValue(Message, versions="0", flexible="0+"):
    rack_id: String | None
    client_id: String
    client_host: String
    subscribed_topic_names: list[String]


class ShareGroupMetadataKey(Message, versions="0"):
    group_id: String


class ShareGroupMetadataValue(Message, versions="0", flexible="0+"):
    epoch: Int32
    metadata_hash: Int64


class ShareGroupTargetAssignmentMetadataKey(Message, versions="0"):
    group_id: String


class ShareGroupTargetAssignmentMetadataValue(Message, versions="0", flexible="0+"):
    assignment_epoch: Int32
    assignment_timestamp: Int64 = field(default=0, tag=0)


class ShareGroupTargetAssignmentMemberKey(Message, versions="0"):
    group_id: String
    member_id: String


class ShareGroupTargetAssignmentMemberValue(Message, versions="0", flexible="0+"):
    topic_partitions: list[TopicPartition]


class TopicPartition(Struct):
    topic_id: Uuid
    partitions: list[Int32]


class ShareGroupCurrentMemberAssignmentKey(Message, versions="0"):
    group_id: String
    member_id: String


class ShareGroupCurrentMemberAssignmentValue(Message, versions="0", flexible="0+"):
    member_epoch: Int32
    previous_member_epoch: Int32
    state: Int8
    assigned_partitions: list[TopicPartitions]


class TopicPartitions(Struct):
    topic_id: Uuid
    partitions: list[Int32]


class ShareGroupStatePartitionMetadataKey(Message, versions="0"):
    group_id: String


class ShareGroupStatePartitionMetadataValue(Message, versions="0", flexible="0+"):
    initializing_topics: list[TopicPartitionsInfo]
    initialized_topics: list[TopicPartitionsInfo]
    deleting_topics: list[TopicInfo]


class TopicPartitionsInfo(Struct):
    topic_id: Uuid
    topic_name: String
    partitions: list[Int32]


class TopicInfo(Struct):
    topic_id: Uuid
    topic_name: String
