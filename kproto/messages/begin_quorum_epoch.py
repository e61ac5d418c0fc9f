"""BeginQuorumEpoch (key 53): a new leader of the metadata quorum announces itself (KIP-595)."""

from __future__ import annotations

from ..wire.message import Message, Struct, field
from ..wire.types import ZERO_UUID, Int16, Int32, String, UInt16, Uuid


class BeginQuorumEpochRequest(Message, api_key=53, versions="0-1", flexible="1+"):
    cluster_id: String | None = None
    voter_id: Int32 = field("1+", default=-1, ignorable=True)
    topics: list[BeginQuorumEpochRequestTopicData]
    leader_endpoints: list[LeaderEndpoint] = field("1+", default=[], ignorable=True)


class BeginQuorumEpochRequestTopicData(Struct):
    topic_name: String
    partitions: list[BeginQuorumEpochRequestPartitionData]


class BeginQuorumEpochRequestPartitionData(Struct):
    partition_index: Int32
    voter_directory_id: Uuid = field("1+", default=ZERO_UUID, ignorable=True)
    leader_id: Int32
    leader_epoch: Int32


class LeaderEndpoint(Struct):
    name: String = field(map_key=True)
    host: String
    port: UInt16


class BeginQuorumEpochResponse(Message, api_key=53, versions="0-1", flexible="1+"):
    error_code: Int16
    topics: list[BeginQuorumEpochResponseTopicData]
    node_endpoints: list[NodeEndpoint] = field("1+", default=[], tag=0)


class BeginQuorumEpochResponseTopicData(Struct):
    topic_name: String
    partitions: list[BeginQuorumEpochResponsePartitionData]


class BeginQuorumEpochResponsePartitionData(Struct):
    partition_index: Int32
    error_code: Int16
    leader_id: Int32
    leader_epoch: Int32


class NodeEndpoint(Struct):
    node_id: Int32 = field(map_key=True)
    host: String
    port: UInt16
