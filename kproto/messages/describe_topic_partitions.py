"""DescribeTopicPartitions (key 75): get pages of topics with their eligible leader replicas (KIP-966)."""

from __future__ import annotations

from ..wire.message import Message, Struct, field
from ..wire.types import Bool, Int16, Int32, String, Uuid


class DescribeTopicPartitionsRequest(Message, api_key=75, versions="0", flexible="0+"):
    topics: list[TopicRequest]
    response_partition_limit: Int32 = 2000
    # The first topic and partition to return, from `next_cursor` of the previous response. Null for the first
    # page.
    cursor: DescribeTopicPartitionsRequestCursor | None = None


class TopicRequest(Struct):
    name: String


class DescribeTopicPartitionsRequestCursor(Struct):
    topic_name: String
    partition_index: Int32


class DescribeTopicPartitionsResponse(Message, api_key=75, versions="0", flexible="0+"):
    throttle_time_ms: Int32
    topics: list[DescribeTopicPartitionsResponseTopic]
    next_cursor: DescribeTopicPartitionsResponseCursor | None = None


class DescribeTopicPartitionsResponseTopic(Struct):
    error_code: Int16
    name: String | None = field(map_key=True)
    topic_id: Uuid
    is_internal: Bool = False
    partitions: list[DescribeTopicPartitionsResponsePartition]
    topic_authorized_operations: Int32 = -0x80000000


class DescribeTopicPartitionsResponsePartition(Struct):
    error_code: Int16
    partition_index: Int32
    leader_id: Int32
    leader_epoch: Int32 = -1
    replica_nodes: list[Int32]
    isr_nodes: list[Int32]
    eligible_leader_replicas: list[Int32] | None = None
    last_known_elr: list[Int32] | None = None
    offline_replicas: list[Int32]


class DescribeTopicPartitionsResponseCursor(Struct):
    topic_name: String
    partition_index: Int32
