"""StreamsGroupHeartbeat (key 88): join, stay in or leave a Kafka Streams group (KIP-1071)."""

from __future__ import annotations

from ..wire.message import Message, Struct, field
from ..wire.types import Bool, Int8, Int16, Int32, Int64, String, UInt16


class StreamsGroupHeartbeatRequest(Message, api_key=88, versions="0-1", flexible="0+"):
    group_id: String
    member_id: String
    # The member epoch: 0 to join, -1 to leave, -2 for a static member that leaves temporarily.
    member_epoch: Int32
    endpoint_information_epoch: Int32
    instance_id: String | None = None
    rack_id: String | None = None
    rebalance_timeout_ms: Int32 = -1
    topology: Topology | None = None
    active_tasks: list[StreamsGroupHeartbeatRequestTaskIds] | None = None
    standby_tasks: list[StreamsGroupHeartbeatRequestTaskIds] | None = None
    warmup_tasks: list[StreamsGroupHeartbeatRequestTaskIds] | None = None
    process_id: String | None = None
    user_endpoint: StreamsGroupHeartbeatRequestEndpoint | None = None
    client_tags: list[KeyValue] | None = None
    task_offsets: list[TaskOffset] | None = None
    task_end_offsets: list[TaskOffset] | None = None
    shutdown_application: Bool = False


class Topology(Struct):
    epoch: Int32
    subtopologies: list[Subtopology]


class Subtopology(Struct):
    subtopology_id: String
    source_topics: list[String]
    source_topic_regex: list[String]
    state_changelog_topics: list[TopicInfo]
    repartition_sink_topics: list[String]
    repartition_source_topics: list[TopicInfo]
    copartition_groups: list[CopartitionGroup]


class TopicInfo(Struct):
    name: String
    partitions: Int32
    replication_factor: Int16
    topic_configs: list[KeyValue]


class KeyValue(Struct):
    key: String
    value: String


class CopartitionGroup(Struct):
    source_topics: list[Int16]
    source_topic_regex: list[Int16]
    repartition_source_topics: list[Int16]


class StreamsGroupHeartbeatRequestTaskIds(Struct):
    subtopology_id: String
    partitions: list[Int32]


class StreamsGroupHeartbeatRequestEndpoint(Struct):
    host: String
    port: UInt16


class TaskOffset(Struct):
    subtopology_id: String
    partition: Int32
    offset: Int64


class StreamsGroupHeartbeatResponse(Message, api_key=88, versions="0-1", flexible="0+"):
    throttle_time_ms: Int32
    error_code: Int16
    error_message: String | None = None
    member_id: String
    member_epoch: Int32
    heartbeat_interval_ms: Int32
    # The largest lag, in offsets, with which a warm-up task counts as caught up. From v1 on
    # `acceptable_recovery_lag` replaces this field.
    acceptable_recovery_lag_legacy: Int32 = field("0", default=0)
    task_offset_interval_ms: Int32
    # The largest lag, in offsets, with which a warm-up task counts as caught up; -1 if the broker has no such
    # limit.
    acceptable_recovery_lag: Int64 = field("1+", default=-1, ignorable=True)
    status: list[Status] | None
    active_tasks: list[StreamsGroupHeartbeatResponseTaskIds] | None = None
    standby_tasks: list[StreamsGroupHeartbeatResponseTaskIds] | None = None
    warmup_tasks: list[StreamsGroupHeartbeatResponseTaskIds] | None = None
    # Whether the client should send the description of its topology (KIP-1331).
    topology_description_required: Bool = field("1+", default=False)
    endpoint_information_epoch: Int32
    partitions_by_user_endpoint: list[EndpointToPartitions] | None = None


class Status(Struct):
    # The status: 0 stale topology, 1 source topics missing, 2 topics partitioned incorrectly, 3 internal
    # topics missing, 4 application shut down, 5 assignment delayed.
    status_code: Int8
    status_detail: String


class StreamsGroupHeartbeatResponseTaskIds(Struct):
    subtopology_id: String
    partitions: list[Int32]


class EndpointToPartitions(Struct):
    user_endpoint: StreamsGroupHeartbeatResponseEndpoint
    active_partitions: list[TopicPartition]
    standby_partitions: list[TopicPartition]


class StreamsGroupHeartbeatResponseEndpoint(Struct):
    host: String
    port: UInt16


class TopicPartition(Struct):
    topic: String
    partitions: list[Int32]
