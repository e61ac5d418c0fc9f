"""EndQuorumEpoch (key 54): a leader of the metadata quorum steps down (KIP-595)."""

from __future__ import annotations

from ..wire.message import Message, Struct, field
from ..wire.types import Int16, Int32, String, UInt16, Uuid


class EndQuorumEpochRequest(Message, api_key=54, versions="0-1", flexible="1+"):
    cluster_id: String | None = None
    topics: list[EndQuorumEpochRequestTopicData]
    leader_endpoints: list[LeaderEndpoint] = field("1+", default=[], ignorable=True)


class EndQuorumEpochRequestTopicData(Struct):
    topic_name: String
    partitions: list[EndQuorumEpochRequestPartitionData]


class EndQuorumEpochRequestPartitionData(Struct):
    partition_index: Int32
    leader_id: Int32
    leader_epoch: Int32
    preferred_successors: list[Int32] = field("0", default=[], ignorable=True)
    # The replicas that may become leader, best first (KIP-853).
    preferred_candidates: list[ReplicaInfo] = field("1+", default=[], ignorable=True)


class ReplicaInfo(Struct):
    candidate_id: Int32
    candidate_directory_id: Uuid


class LeaderEndpoint(Struct):
    name: String = field(map_key=True)
    host: String
    port: UInt16


class EndQuorumEpochResponse(Message, api_key=54, versions="0-1", flexible="1+"):
    error_code: Int16
    topics: list[EndQuorumEpochResponseTopicData]
    node_endpoints: list[NodeEndpoint] = field("1+", default=[], tag=0)


class EndQuorumEpochResponseTopicData(Struct):
    topic_name: String
    partitions: list[EndQuorumEpochResponsePartitionData]


class EndQuorumEpochResponsePartitionData(Struct):
    partition_index: Int32
    error_code: Int16
    leader_id: Int32
    leader_epoch: Int32


class NodeEndpoint(Struct):
    node_id: Int32 = field(map_key=True)
    host: String
    port: UInt16
