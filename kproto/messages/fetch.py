"""Fetch (key 1): read records; also what replicas copy from their leader."""

from __future__ import annotations

from ..wire.message import FRESH, Message, Struct, field
from ..wire.types import ZERO_UUID, Int8, Int16, Int32, Int64, Records, String, Uuid


class FetchRequest(Message, api_key=1, versions="4-18", flexible="12+"):
    cluster_id: String | None = field("12+", default=None, tag=0, ignorable=True)
    # Consumers are -1. Followers moved to `replica_state` in v15 (KIP-903).
    replica_id: Int32 = field("4-14", default=-1)
    replica_state: ReplicaState = field("15+", default=FRESH, tag=1)
    max_wait_ms: Int32
    min_bytes: Int32
    max_bytes: Int32 = 0x7FFFFFFF  # KIP-74: a first batch that is larger is sent all the same
    isolation_level: Int8 = 0  # 0 = read_uncommitted, 1 = read_committed (KIP-98)
    # Fetch sessions, KIP-227: id 0 and epoch 0 ask for a new one, epoch -1 for none.
    session_id: Int32 = field("7+", default=0, ignorable=True)
    session_epoch: Int32 = field("7+", default=-1, ignorable=True)
    topics: list[FetchTopic]
    # Partitions to drop from the fetch session.
    forgotten_topics_data: list[ForgottenTopic] = field("7+", default=[])
    rack_id: String = field("11+", default="", ignorable=True)  # KIP-392


class ReplicaState(Struct):
    replica_id: Int32 = -1
    replica_epoch: Int64 = -1


class FetchTopic(Struct):
    topic: String = field("4-12", default="", ignorable=True)
    topic_id: Uuid = field("13+", default=ZERO_UUID, ignorable=True)  # KIP-516
    partitions: list[FetchPartition]


class FetchPartition(Struct):
    partition: Int32
    current_leader_epoch: Int32 = field("9+", default=-1, ignorable=True)  # KIP-320
    fetch_offset: Int64
    last_fetched_epoch: Int32 = field("12+", default=-1)  # KIP-595
    log_start_offset: Int64 = field("5+", default=-1, ignorable=True)  # Only followers fill it in (KIP-107).
    partition_max_bytes: Int32
    replica_directory_id: Uuid = field("17+", default=ZERO_UUID, tag=0, ignorable=True)  # KIP-853
    high_watermark: Int64 = field("18+", default=0x7FFFFFFFFFFFFFFF, tag=1, ignorable=True)  # KIP-1166


class ForgottenTopic(Struct):
    topic: String = field("7-12", default="", ignorable=True)
    topic_id: Uuid = field("13+", default=ZERO_UUID, ignorable=True)
    partitions: list[Int32]


class FetchResponse(Message, api_key=1, versions="4-18", flexible="12+"):
    throttle_time_ms: Int32
    error_code: Int16 = field("7+", default=0, ignorable=True)
    session_id: Int32 = field("7+", default=0)  # 0: no session
    responses: list[FetchableTopicResponse]
    # KIP-951: where the new leaders are, so that no Metadata request is needed
    node_endpoints: list[NodeEndpoint] = field("16+", default=[], tag=0)


class FetchableTopicResponse(Struct):
    topic: String = field("4-12", default="", ignorable=True)
    topic_id: Uuid = field("13+", default=ZERO_UUID, ignorable=True)
    partitions: list[PartitionData]


class PartitionData(Struct):
    partition_index: Int32
    error_code: Int16
    high_watermark: Int64
    last_stable_offset: Int64 = -1
    log_start_offset: Int64 = field("5+", default=-1, ignorable=True)
    diverging_epoch: EpochEndOffset = field("12+", default=FRESH, tag=0)  # KIP-595
    # KIP-951: set with NOT_LEADER_OR_FOLLOWER and FENCED_LEADER_EPOCH
    current_leader: LeaderIdAndEpoch = field("12+", default=FRESH, tag=1)
    snapshot_id: SnapshotId = field("12+", default=FRESH, tag=2)  # KIP-630
    aborted_transactions: list[AbortedTransaction] | None  # Only for read_committed.
    # KIP-392: fetch from this broker from now on; -1 = from the leader
    preferred_read_replica: Int32 = field("11+", default=-1)
    records: Records | None


class EpochEndOffset(Struct):
    epoch: Int32 = -1
    end_offset: Int64 = -1


class LeaderIdAndEpoch(Struct):
    leader_id: Int32 = -1
    leader_epoch: Int32 = -1


class SnapshotId(Struct):
    end_offset: Int64 = -1
    epoch: Int32 = -1


class AbortedTransaction(Struct):
    producer_id: Int64
    first_offset: Int64


class NodeEndpoint(Struct):
    node_id: Int32 = field(map_key=True)
    host: String
    port: Int32
    rack: String | None = None
