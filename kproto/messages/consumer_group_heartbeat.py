"""ConsumerGroupHeartbeat (key 68): join, stay in and leave a group of the new consumer protocol (KIP-848)."""

from __future__ import annotations

from ..wire.message import Message, Struct, field
from ..wire.types import Int16, Int32, String, Uuid


class ConsumerGroupHeartbeatRequest(Message, api_key=68, versions="0-1", flexible="0+"):
    group_id: String
    member_id: String  # KIP-1082: from v1 on the client invents its own
    member_epoch: Int32  # 0 joins, -1 leaves, -2 leaves but keeps the instance's place.
    instance_id: String | None = None
    rack_id: String | None = None
    # This and all below: -1 or null when unchanged since the last heartbeat.
    rebalance_timeout_ms: Int32 = -1
    subscribed_topic_names: list[String] | None = None
    subscribed_topic_regex: String | None = field("1+", default=None)  # RE2's syntax; the broker evaluates it
    server_assignor: String | None = None
    topic_partitions: list[ConsumerGroupHeartbeatRequestTopicPartitions] | None = None


class ConsumerGroupHeartbeatRequestTopicPartitions(Struct):
    topic_id: Uuid
    partitions: list[Int32]


class ConsumerGroupHeartbeatResponse(Message, api_key=68, versions="0-1", flexible="0+"):
    throttle_time_ms: Int32
    error_code: Int16
    error_message: String | None = None
    member_id: String | None = None
    member_epoch: Int32
    heartbeat_interval_ms: Int32
    assignment: Assignment | None = None


class Assignment(Struct):
    topic_partitions: list[ConsumerGroupHeartbeatResponseTopicPartitions]


class ConsumerGroupHeartbeatResponseTopicPartitions(Struct):
    topic_id: Uuid
    partitions: list[Int32]
