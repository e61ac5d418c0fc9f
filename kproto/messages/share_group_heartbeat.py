"""ShareGroupHeartbeat (key 76): join, stay in and leave a share group (KIP-932)."""

from __future__ import annotations

from ..wire.message import Message, Struct
from ..wire.types import Int16, Int32, String, Uuid


class ShareGroupHeartbeatRequest(Message, api_key=76, versions="1", flexible="0+"):
    group_id: String
    member_id: String
    member_epoch: Int32  # 0 joins, -1 leaves.
    rack_id: String | None = None
    subscribed_topic_names: list[String] | None = None  # Null when unchanged since the last heartbeat.


class ShareGroupHeartbeatResponse(Message, api_key=76, versions="1", flexible="0+"):
    throttle_time_ms: Int32
    error_code: Int16
    error_message: String | None = None
    member_id: String | None = None
    member_epoch: Int32
    heartbeat_interval_ms: Int32
    assignment: Assignment | None = None


class Assignment(Struct):
    topic_partitions: list[TopicPartitions]


class TopicPartitions(Struct):
    topic_id: Uuid
    partitions: list[Int32]
