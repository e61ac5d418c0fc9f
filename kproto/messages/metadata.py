"""Metadata (key 3): get the brokers, the topics and the leader of each partition."""

from __future__ import annotations

from ..wire.message import Message, Struct, field
from ..wire.types import ZERO_UUID, Bool, Int16, Int32, String, Uuid


class MetadataRequest(Message, api_key=3, versions="0-13", flexible="9+"):
    # The topics to describe. In v0 an empty list means all topics. From v1 on, null means all topics, and an
    # empty list means none.
    topics: list[MetadataRequestTopic] | None = field(nullable="1+")
    # Whether the broker may create missing topics. Requests below v4 lack this field, and always
    # allow creation.
    allow_auto_topic_creation: Bool = field("4+", default=True)
    # Whether to include the operations allowed on the cluster (KIP-430). From v11 on DescribeCluster replaces
    # this field (KIP-700).
    include_cluster_authorized_operations: Bool = field("8-10", default=False)
    include_topic_authorized_operations: Bool = field("8+", default=False)


class MetadataRequestTopic(Struct):
    # The topic id (KIP-516). The field exists from v10 on, but brokers reject a topic id before v12.
    topic_id: Uuid = field("10+", default=ZERO_UUID, ignorable=True)
    name: String | None = field(nullable="10+")


class MetadataResponse(Message, api_key=3, versions="0-13", flexible="9+"):
    throttle_time_ms: Int32 = field("3+", default=0, ignorable=True)
    brokers: list[MetadataResponseBroker]
    cluster_id: String | None = field("2+", default=None, ignorable=True)
    controller_id: Int32 = field("1+", default=-1, ignorable=True)
    topics: list[MetadataResponseTopic]
    # The operations allowed on the cluster, one bit per AclOperation; -2147483648 if not requested (KIP-430).
    cluster_authorized_operations: Int32 = field("8-10", default=-0x80000000)
    # The error code for the whole response. REBOOTSTRAP_REQUIRED makes the client bootstrap again (KIP-1102).
    error_code: Int16 = field("13+", default=0, ignorable=True)


class MetadataResponseBroker(Struct):
    node_id: Int32 = field(map_key=True)
    host: String
    port: Int32
    rack: String | None = field("1+", default=None, ignorable=True)


class MetadataResponseTopic(Struct):
    error_code: Int16
    name: String | None = field(nullable="12+", map_key=True)
    topic_id: Uuid = field("10+", default=ZERO_UUID, ignorable=True)  # The topic id (KIP-516).
    is_internal: Bool = field("1+", default=False, ignorable=True)
    partitions: list[MetadataResponsePartition]
    topic_authorized_operations: Int32 = field("8+", default=-0x80000000)


class MetadataResponsePartition(Struct):
    error_code: Int16
    partition_index: Int32
    leader_id: Int32
    # The leader epoch of the partition (KIP-320).
    leader_epoch: Int32 = field("7+", default=-1, ignorable=True)
    replica_nodes: list[Int32]
    isr_nodes: list[Int32]
    # The replicas on brokers that are offline (KIP-112).
    offline_replicas: list[Int32] = field("5+", default=[], ignorable=True)
