"""ShareGroupHeartbeat (key 76): join, stay in or leave a share group (KIP-932)."""

from __future__ import annotations

from ..wire.message import Message, Struct
from ..wire.types import Int16, Int32, String, Uuid


class ShareGroupHeartbeatRequest(Message, api_key=76, versions="1", flexible="0+"):
    group_id: String
    member_id: String
    member_epoch: Int32  # The member epoch: 0 to join, -1 to leave.
    rack_id: String | None = None
    # The subscribed topics. Null if unchanged since the last heartbeat.
    subscribed_topic_names: list[String] | None = None


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
