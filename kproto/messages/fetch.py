"""Fetch (key 1): read records. Consumers and followers send it."""

from __future__ import annotations

from ..wire.message import FRESH, Message, Struct, field
from ..wire.types import ZERO_UUID, Int8, Int16, Int32, Int64, Records, String, Uuid


class FetchRequest(Message, api_key=1, versions="4-18", flexible="12+"):
    cluster_id: String | None = field("12+", default=None, tag=0, ignorable=True)
    # The broker id of a follower; -1 for consumers. From v15 on the id is in `replica_state` (KIP-903).
    replica_id: Int32 = field("4-14", default=-1)
    replica_state: ReplicaState = field("15+", default=FRESH, tag=1)
    max_wait_ms: Int32
    min_bytes: Int32
    # The maximum number of bytes of the whole response. The first batch is returned even if this batch
    # alone is larger (KIP-74).
    max_bytes: Int32 = 0x7FFFFFFF
    # The isolation level: 0 read_uncommitted, 1 read_committed (KIP-98).
    isolation_level: Int8 = 0
    # The fetch session id. Id 0 with epoch 0 requests a new session. Epoch -1 closes the session of this id
    # if it exists, and requests a response without a session (KIP-227).
    session_id: Int32 = field("7+", default=0, ignorable=True)
    session_epoch: Int32 = field("7+", default=-1, ignorable=True)
    topics: list[FetchTopic]
    # The partitions to remove from the fetch session (KIP-227).
    forgotten_topics_data: list[ForgottenTopic] = field("7+", default=[])
    rack_id: String = field("11+", default="", ignorable=True)  # The rack of the consumer (KIP-392).


class ReplicaState(Struct):
    replica_id: Int32 = -1
    replica_epoch: Int64 = -1


class FetchTopic(Struct):
    topic: String = field("4-12", default="", ignorable=True)
    # The topic id, which replaces the name (KIP-516).
    topic_id: Uuid = field("13+", default=ZERO_UUID, ignorable=True)
    partitions: list[FetchPartition]


class FetchPartition(Struct):
    partition: Int32
    # The leader epoch that the client knows (KIP-320).
    current_leader_epoch: Int32 = field("9+", default=-1, ignorable=True)
    fetch_offset: Int64
    # The epoch of the last fetched record; -1 if no record was fetched (KIP-595).
    last_fetched_epoch: Int32 = field("12+", default=-1)
    # The log start offset of the follower; -1 for consumers (KIP-107).
    log_start_offset: Int64 = field("5+", default=-1, ignorable=True)
    partition_max_bytes: Int32
    # The id of the follower's log directory (KIP-853).
    replica_directory_id: Uuid = field("17+", default=ZERO_UUID, tag=0, ignorable=True)
    # The high watermark that the follower knows (KIP-1166).
    high_watermark: Int64 = field("18+", default=0x7FFFFFFFFFFFFFFF, tag=1, ignorable=True)


class ForgottenTopic(Struct):
    topic: String = field("7-12", default="", ignorable=True)
    topic_id: Uuid = field("13+", default=ZERO_UUID, ignorable=True)
    partitions: list[Int32]


class FetchResponse(Message, api_key=1, versions="4-18", flexible="12+"):
    throttle_time_ms: Int32
    error_code: Int16 = field("7+", default=0, ignorable=True)
    session_id: Int32 = field("7+", default=0)  # The fetch session id; 0 if there is no session.
    responses: list[FetchableTopicResponse]
    # The endpoints of new leaders, so that the client need not send a Metadata request (KIP-951).
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
    # Set if the follower's log diverges from the leader's (KIP-595). It contains the leader's largest epoch
    # that is not above `last_fetched_epoch`, and the leader's end offset of that epoch. The follower
    # truncates its log to the smaller of two offsets: this end offset, and the follower's own end offset of
    # that epoch.
    diverging_epoch: EpochEndOffset = field("12+", default=FRESH, tag=0)
    # The current leader. It is set with the errors NOT_LEADER_OR_FOLLOWER and FENCED_LEADER_EPOCH (KIP-951).
    current_leader: LeaderIdAndEpoch = field("12+", default=FRESH, tag=1)
    # The snapshot to fetch instead of records, because the fetch offset is below the log start (KIP-630).
    snapshot_id: SnapshotId = field("12+", default=FRESH, tag=2)
    # The aborted transactions; null unless the request's isolation level is read_committed.
    aborted_transactions: list[AbortedTransaction] | None
    # The replica from which the consumer should fetch next; -1 if the broker suggests none (KIP-392).
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
