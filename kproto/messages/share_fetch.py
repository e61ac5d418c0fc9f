"""ShareFetch (key 78): acquire records for a member of a share group (KIP-932)."""

from __future__ import annotations

from ..wire.message import Message, Struct, field
from ..wire.types import Bool, Int8, Int16, Int32, Int64, Records, String, Uuid


class ShareFetchRequest(Message, api_key=78, versions="1-2", flexible="0+"):
    group_id: String | None = None
    member_id: String | None
    share_session_epoch: Int32
    max_wait_ms: Int32
    min_bytes: Int32
    max_bytes: Int32 = 0x7FFFFFFF
    max_records: Int32
    batch_size: Int32
    # 0 to acquire whole batches, even if they exceed `max_records`; 1 to acquire at most `max_records`
    # records (KIP-1206).
    share_acquire_mode: Int8 = field("2+", default=0, ignorable=True)
    # Whether any acknowledgement renews an acquisition lock (KIP-1222).
    is_renew_ack: Bool = field("2+", default=False)
    topics: list[FetchTopic]
    forgotten_topics_data: list[ForgottenTopic]


class FetchTopic(Struct):
    topic_id: Uuid = field(map_key=True)  # The topic id (KIP-516).
    partitions: list[FetchPartition]


class FetchPartition(Struct):
    partition_index: Int32 = field(map_key=True)
    acknowledgement_batches: list[AcknowledgementBatch]


class AcknowledgementBatch(Struct):
    first_offset: Int64
    last_offset: Int64
    # The acknowledge types: 0 gap, 1 accept, 2 release, 3 reject, 4 renew. The list has one type for each
    # offset of the batch, or a single type that applies to all of them.
    acknowledge_types: list[Int8]


class ForgottenTopic(Struct):
    topic_id: Uuid
    partitions: list[Int32]


class ShareFetchResponse(Message, api_key=78, versions="1-2", flexible="0+"):
    throttle_time_ms: Int32
    error_code: Int16
    error_message: String | None = None
    acquisition_lock_timeout_ms: Int32
    responses: list[ShareFetchableTopicResponse]
    node_endpoints: list[NodeEndpoint]


class ShareFetchableTopicResponse(Struct):
    topic_id: Uuid = field(map_key=True)
    partitions: list[PartitionData]


class PartitionData(Struct):
    partition_index: Int32
    error_code: Int16
    error_message: String | None = None
    acknowledge_error_code: Int16
    acknowledge_error_message: String | None = None
    # The current leader. It is set with the errors NOT_LEADER_OR_FOLLOWER and FENCED_LEADER_EPOCH (KIP-951).
    current_leader: LeaderIdAndEpoch
    records: Records
    acquired_records: list[AcquiredRecords]


class LeaderIdAndEpoch(Struct):
    leader_id: Int32
    leader_epoch: Int32


class AcquiredRecords(Struct):
    first_offset: Int64
    last_offset: Int64
    delivery_count: Int16


class NodeEndpoint(Struct):
    node_id: Int32 = field(map_key=True)
    host: String
    port: Int32
    rack: String | None = None
