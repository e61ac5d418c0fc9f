"""StreamsGroupDescribe (key 89): describe groups of Kafka Streams applications (KIP-1071)."""

from __future__ import annotations

from ..wire.message import Message, Struct, field
from ..wire.types import Bool, Int8, Int16, Int32, Int64, String, UInt16


class StreamsGroupDescribeRequest(Message, api_key=89, versions="0-1", flexible="0+"):
    group_ids: list[String]
    include_authorized_operations: Bool
    # Whether to include the description of the topology (KIP-1331).
    include_topology_description: Bool = field("1+", default=False)


class StreamsGroupDescribeResponse(Message, api_key=89, versions="0-1", flexible="0+"):
    throttle_time_ms: Int32
    groups: list[DescribedGroup]


class DescribedGroup(Struct):
    error_code: Int16
    error_message: String | None = None
    group_id: String
    group_state: String
    group_epoch: Int32
    assignment_epoch: Int32
    topology: Topology | None = None
    members: list[Member]
    # The operations allowed on the group, one bit per AclOperation; -2147483648 if not requested (KIP-430).
    authorized_operations: Int32 = -0x80000000
    # The description of the topology; null unless `topology_description_status` is 3 (KIP-1331).
    topology_description: TopologyDescription | None = field("1+", default=None)
    # The status of `topology_description`: 0 not requested, 1 not stored, 2 failed, 3 available.
    topology_description_status: Int8 = field("1+", default=0)
    # The assignor that computes the next assignment. The current assignment may come from another assignor
    # (KIP-1357).
    assignor_name: String | None = field("1+", default=None, ignorable=True)


class Topology(Struct):
    epoch: Int32
    subtopologies: list[Subtopology] | None = None


class Subtopology(Struct):
    subtopology_id: String
    source_topics: list[String]
    repartition_sink_topics: list[String]
    state_changelog_topics: list[TopicInfo]
    repartition_source_topics: list[TopicInfo]


class TopicInfo(Struct):
    name: String
    partitions: Int32
    replication_factor: Int16
    topic_configs: list[KeyValue]


class KeyValue(Struct):
    key: String
    value: String


class Member(Struct):
    member_id: String
    member_epoch: Int32
    instance_id: String | None = None
    rack_id: String | None = None
    client_id: String
    client_host: String
    topology_epoch: Int32
    process_id: String
    user_endpoint: Endpoint | None = None
    client_tags: list[KeyValue]
    task_offsets: list[TaskOffset]
    task_end_offsets: list[TaskOffset]
    assignment: Assignment
    target_assignment: Assignment
    is_classic: Bool


class Endpoint(Struct):
    host: String
    port: UInt16


class TaskOffset(Struct):
    subtopology_id: String
    partition: Int32
    offset: Int64


class Assignment(Struct):
    active_tasks: list[TaskIds]
    standby_tasks: list[TaskIds]
    warmup_tasks: list[TaskIds]


class TaskIds(Struct):
    subtopology_id: String
    partitions: list[Int32]


class TopologyDescription(Struct):
    subtopologies: list[TopologyDescriptionSubtopology]
    global_stores: list[TopologyDescriptionGlobalStore]


class TopologyDescriptionSubtopology(Struct):
    subtopology_id: String
    nodes: list[TopologyDescriptionNode]


class TopologyDescriptionGlobalStore(Struct):
    source: TopologyDescriptionNode
    processor: TopologyDescriptionNode


class TopologyDescriptionNode(Struct):
    name: String
    # The type: 1 source, 2 processor, 3 sink.
    node_type: Int8
    # The topics of a source node; empty if they are chosen at run time.
    source_topics: list[String]
    # The topic of a sink node; null if it is chosen at run time.
    sink_topic: String | None = None
    # The state stores of a processor.
    stores: list[String]
    # The nodes that get the output of this node.
    successors: list[String]
