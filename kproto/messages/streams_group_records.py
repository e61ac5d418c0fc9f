"""Keys and values of `__consumer_offsets` for Kafka Streams groups (KIP-1071)."""

from __future__ import annotations

from ..wire.message import Message, Struct, field
from ..wire.types import Int8, Int16, Int32, Int64, String, UInt16


class StreamsGroupMetadataKey(Message, versions="0"):
    group_id: String


class StreamsGroupMetadataValue(Message, versions="0", flexible="0+"):
    epoch: Int32
    metadata_hash: Int64
    validated_topology_epoch: Int32 = field(default=-1, tag=0)
    last_assignment_configs: list[LastAssignmentConfig] | None = field(default=[], tag=1)
    # The epoch of the topology description that the broker has stored; -1 if it has none. It is -2 if an
    # interrupted update left the epoch unknown (KIP-1331).
    stored_description_topology_epoch: Int32 = field(default=-1, tag=2)
    # The epoch of the topology description that was permanently rejected; -1 if there is none. The
    # coordinator does not request this description again (KIP-1331).
    failed_description_topology_epoch: Int32 = field(default=-1, tag=3)


class LastAssignmentConfig(Struct):
    key: String
    value: String


class StreamsGroupMemberMetadataKey(Message, versions="0"):
    group_id: String
    member_id: String


class StreamsGroupMemberMetadataValue(Message, versions="0", flexible="0+"):
    instance_id: String | None
    rack_id: String | None
    client_id: String
    client_host: String
    rebalance_timeout_ms: Int32 = -1
    topology_epoch: Int32
    process_id: String
    user_endpoint: Endpoint | None = None
    client_tags: list[KeyValue]


class Endpoint(Struct):
    host: String
    port: UInt16


class KeyValue(Struct):
    key: String
    value: String


class StreamsGroupTargetAssignmentMetadataKey(Message, versions="0"):
    group_id: String


class StreamsGroupTargetAssignmentMetadataValue(Message, versions="0", flexible="0+"):
    assignment_epoch: Int32
    assignment_timestamp: Int64 = field(default=0, tag=0)


class StreamsGroupTargetAssignmentMemberKey(Message, versions="0"):
    group_id: String
    member_id: String


class StreamsGroupTargetAssignmentMemberValue(Message, versions="0", flexible="0+"):
    active_tasks: list[StreamsGroupTargetAssignmentMemberValueTaskIds]
    standby_tasks: list[StreamsGroupTargetAssignmentMemberValueTaskIds]
    warmup_tasks: list[StreamsGroupTargetAssignmentMemberValueTaskIds]


class StreamsGroupTargetAssignmentMemberValueTaskIds(Struct):
    subtopology_id: String
    partitions: list[Int32]


class StreamsGroupCurrentMemberAssignmentKey(Message, versions="0"):
    group_id: String
    member_id: String


class StreamsGroupCurrentMemberAssignmentValue(Message, versions="0", flexible="0+"):
    member_epoch: Int32
    previous_member_epoch: Int32
    state: Int8
    active_tasks: list[StreamsGroupCurrentMemberAssignmentValueTaskIds]
    standby_tasks: list[StreamsGroupCurrentMemberAssignmentValueTaskIds]
    warmup_tasks: list[StreamsGroupCurrentMemberAssignmentValueTaskIds]
    active_tasks_pending_revocation: list[StreamsGroupCurrentMemberAssignmentValueTaskIds]
    standby_tasks_pending_revocation: list[StreamsGroupCurrentMemberAssignmentValueTaskIds]
    warmup_tasks_pending_revocation: list[StreamsGroupCurrentMemberAssignmentValueTaskIds]


class StreamsGroupCurrentMemberAssignmentValueTaskIds(Struct):
    subtopology_id: String
    partitions: list[Int32]
    assignment_epochs: list[Int32] | None = field(default=[], tag=0)


class StreamsGroupTopologyKey(Message, versions="0"):
    group_id: String


class StreamsGroupTopologyValue(Message, versions="0", flexible="0+"):
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
    topic_configs: list[TopicConfig]


class TopicConfig(Struct):
    key: String
    value: String


class CopartitionGroup(Struct):
    source_topics: list[Int16]
    source_topic_regex: list[Int16]
    repartition_source_topics: list[Int16]
