"""Vote (key 52): request a vote in an election of the metadata quorum (KIP-595)."""

from __future__ import annotations

from ..wire.message import Message, Struct, field
from ..wire.types import ZERO_UUID, Bool, Int16, Int32, Int64, String, UInt16, Uuid


class VoteRequest(Message, api_key=52, versions="0-2", flexible="0+"):
    cluster_id: String | None = None
    voter_id: Int32 = field("1+", default=-1, ignorable=True)
    topics: list[VoteRequestTopicData]


class VoteRequestTopicData(Struct):
    topic_name: String
    partitions: list[VoteRequestPartitionData]


class VoteRequestPartitionData(Struct):
    partition_index: Int32
    replica_epoch: Int32
    replica_id: Int32
    # The id of the voter's metadata log directory (KIP-853).
    replica_directory_id: Uuid = field("1+", default=ZERO_UUID, ignorable=True)
    voter_directory_id: Uuid = field("1+", default=ZERO_UUID, ignorable=True)
    last_offset_epoch: Int32
    last_offset: Int64
    # Whether this is a pre-vote, which does not change the voter's epoch (KIP-996).
    pre_vote: Bool = field("2+", default=False)


class VoteResponse(Message, api_key=52, versions="0-2", flexible="0+"):
    error_code: Int16
    topics: list[VoteResponseTopicData]
    node_endpoints: list[NodeEndpoint] = field("1+", default=[], tag=0)


class VoteResponseTopicData(Struct):
    topic_name: String
    partitions: list[VoteResponsePartitionData]


class VoteResponsePartitionData(Struct):
    partition_index: Int32
    error_code: Int16
    leader_id: Int32
    leader_epoch: Int32
    vote_granted: Bool


class NodeEndpoint(Struct):
    node_id: Int32 = field(map_key=True)
    host: String
    port: UInt16
