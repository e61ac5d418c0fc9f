"""DescribeQuorum (key 55): get the leader, voters and observers of the metadata quorum (KIP-595)."""

from __future__ import annotations

from ..wire.message import Message, Struct, field
from ..wire.types import ZERO_UUID, Int16, Int32, Int64, String, UInt16, Uuid


class DescribeQuorumRequest(Message, api_key=55, versions="0-2", flexible="0+"):
    topics: list[DescribeQuorumRequestTopicData]


class DescribeQuorumRequestTopicData(Struct):
    topic_name: String
    partitions: list[DescribeQuorumRequestPartitionData]


class DescribeQuorumRequestPartitionData(Struct):
    partition_index: Int32


class DescribeQuorumResponse(Message, api_key=55, versions="0-2", flexible="0+"):
    error_code: Int16
    error_message: String | None = field("2+", default="", ignorable=True)
    topics: list[DescribeQuorumResponseTopicData]
    nodes: list[Node] = field("2+", default=[])


class DescribeQuorumResponseTopicData(Struct):
    topic_name: String
    partitions: list[DescribeQuorumResponsePartitionData]


class DescribeQuorumResponsePartitionData(Struct):
    partition_index: Int32
    error_code: Int16
    error_message: String | None = field("2+", default="", ignorable=True)
    leader_id: Int32
    leader_epoch: Int32
    high_watermark: Int64
    current_voters: list[ReplicaState]
    observers: list[ReplicaState]


class ReplicaState(Struct):
    replica_id: Int32
    # The id of the replica's metadata log directory (KIP-853).
    replica_directory_id: Uuid = field("2+", default=ZERO_UUID)
    log_end_offset: Int64
    # The leader's clock at the replica's last fetch, in ms; -1 if it is unknown (KIP-836).
    last_fetch_timestamp: Int64 = field("1+", default=-1, ignorable=True)
    last_caught_up_timestamp: Int64 = field("1+", default=-1, ignorable=True)


class Node(Struct):
    node_id: Int32 = field(map_key=True)
    listeners: list[Listener]


class Listener(Struct):
    name: String = field(map_key=True)
    host: String
    port: UInt16
