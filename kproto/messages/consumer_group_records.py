"""Keys and values of `__consumer_offsets` for groups of the consumer protocol (KIP-848)."""

from __future__ import annotations

from ..wire.message import FRESH, Message, Struct, field
from ..wire.types import Bytes, Int8, Int32, Int64, String, Uuid


class ConsumerGroupMetadataKey(Message, versions="0"):
    group_id: String


class ConsumerGroupMetadataValue(Message, versions="0", flexible="0+"):
    epoch: Int32
    metadata_hash: Int64 = field(default=0, tag=0)


class ConsumerGroupPartitionMetadataKey(Message, versions="0"):
    group_id: String


class ConsumerGroupPartitionMetadataValue(Message, versions="0", flexible="0+"):
    topics: list[TopicMetadata]


class TopicMetadata(Struct):
    topic_id: Uuid
    topic_name: String
    num_partitions: Int32
    partition_metadata: list[PartitionMetadata]


class PartitionMetadata(Struct):
    partition: Int32
    racks: list[String]


class ConsumerGroupMemberMetadataKey(Message, versions="0"):
    group_id: String
    member_id: String


class ConsumerGroupMemberMetadataValue(Message, versions="0", flexible="0+"):
    instance_id: String | None
    rack_id: String | None
    client_id: String
    client_host: String
    subscribed_topic_names: list[String]
    subscribed_topic_regex: String | None
    rebalance_timeout_ms: Int32 = -1
    server_assignor: String | None
    classic_member_metadata: ClassicMemberMetadata | None = field(default=FRESH, tag=0)


class ClassicMemberMetadata(Struct):
    session_timeout_ms: Int32
    supported_protocols: list[ClassicProtocol]


class ClassicProtocol(Struct):
    name: String
    metadata: Bytes


class ConsumerGroupTargetAssignmentMetadataKey(Message, versions="0"):
    group_id: String


class ConsumerGroupTargetAssignmentMetadataValue(Message, versions="0", flexible="0+"):
    assignment_epoch: Int32
    assignment_timestamp: Int64 = field(default=0, tag=0)


class ConsumerGroupTargetAssignmentMemberKey(Message, versions="0"):
    group_id: String
    member_id: String


class ConsumerGroupTargetAssignmentMemberValue(Message, versions="0", flexible="0+"):
    topic_partitions: list[TopicPartition]


class TopicPartition(Struct):
    topic_id: Uuid
    partitions: list[Int32]


class ConsumerGroupCurrentMemberAssignmentKey(Message, versions="0"):
    group_id: String
    member_id: String


class ConsumerGroupCurrentMemberAssignmentValue(Message, versions="0", flexible="0+"):
    member_epoch: Int32
    previous_member_epoch: Int32
    state: Int8
    assigned_partitions: list[TopicPartitions]
    partitions_pending_revocation: list[TopicPartitions]


class TopicPartitions(Struct):
    topic_id: Uuid
    partitions: list[Int32]
    assignment_epochs: list[Int32] | None = field(default=[], tag=0)


class ConsumerGroupRegularExpressionKey(Message, versions="0"):
    group_id: String
    regular_expression: String


class ConsumerGroupRegularExpressionValue(Message, versions="0", flexible="0+"):
    topics: list[String]
    version: Int64
    timestamp: Int64
