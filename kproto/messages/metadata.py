"""Metadata (key 3): which brokers there are, which topics, and who leads each partition."""

from __future__ import annotations

from ..wire.message import Message, Struct, field
from ..wire.types import ZERO_UUID, Bool, Int16, Int32, String, Uuid


class MetadataRequest(Message, api_key=3, versions="0-13", flexible="9+"):
    # All topics: null from v1, an empty list in v0 (which has no null). From v1 an empty list asks
    # for none.
    topics: list[MetadataRequestTopic] | None = field(nullable="1+")
    # Before v4 asking for a topic could always create it.
    allow_auto_topic_creation: Bool = field("4+", default=True)
    # KIP-430; DescribeCluster took it over (KIP-700)
    include_cluster_authorized_operations: Bool = field("8-10", default=False)
    include_topic_authorized_operations: Bool = field("8+", default=False)


class MetadataRequestTopic(Struct):
    # KIP-516. The id is in v10 and v11 too, but brokers answer ids only from v12 on.
    topic_id: Uuid = field("10+", default=ZERO_UUID, ignorable=True)
    name: String | None = field(nullable="10+")


class MetadataResponse(Message, api_key=3, versions="0-13", flexible="9+"):
    throttle_time_ms: Int32 = field("3+", default=0, ignorable=True)
    brokers: list[MetadataResponseBroker]
    cluster_id: String | None = field("2+", default=None, ignorable=True)
    controller_id: Int32 = field("1+", default=-1, ignorable=True)
    topics: list[MetadataResponseTopic]
    # A bit per AclOperation; the smallest int32 means that nobody asked (KIP-430).
    cluster_authorized_operations: Int32 = field("8-10", default=-0x80000000)
    error_code: Int16 = field("13+", default=0, ignorable=True)  # KIP-1102: the client has to bootstrap again


class MetadataResponseBroker(Struct):
    node_id: Int32 = field(map_key=True)
    host: String
    port: Int32
    rack: String | None = field("1+", default=None, ignorable=True)


class MetadataResponseTopic(Struct):
    error_code: Int16
    name: String | None = field(nullable="12+", map_key=True)
    topic_id: Uuid = field("10+", default=ZERO_UUID, ignorable=True)  # KIP-516
    is_internal: Bool = field("1+", default=False, ignorable=True)
    partitions: list[MetadataResponsePartition]
    topic_authorized_operations: Int32 = field("8+", default=-0x80000000)


class MetadataResponsePartition(Struct):
    error_code: Int16
    partition_index: Int32
    leader_id: Int32
    leader_epoch: Int32 = field("7+", default=-1, ignorable=True)  # KIP-320
    replica_nodes: list[Int32]
    isr_nodes: list[Int32]
    offline_replicas: list[Int32] = field("5+", default=[], ignorable=True)  # KIP-112
