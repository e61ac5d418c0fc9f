"""ConsumerGroupHeartbeat (key 68): join, stay in or leave a group (KIP-848)."""

from __future__ import annotations

from ..wire.message import Message, Struct, field
from ..wire.types import Int16, Int32, String, Uuid


class ConsumerGroupHeartbeatRequest(Message, api_key=68, versions="0-1", flexible="0+"):
    group_id: String
    # The member id. From v1 on the client generates it (KIP-1082).
    member_id: String
    # The member epoch: 0 to join, -1 to leave, -2 for a static member that leaves temporarily.
    member_epoch: Int32
    instance_id: String | None = None
    rack_id: String | None = None
    # The rebalance timeout in ms; -1 if it is unchanged since the last heartbeat.
    rebalance_timeout_ms: Int32 = -1
    # The subscribed topics. In this field and the following ones null means unchanged.
    subscribed_topic_names: list[String] | None = None
    # A regular expression in RE2 syntax, with which the broker selects the subscribed topics.
    subscribed_topic_regex: String | None = field("1+", default=None)
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
