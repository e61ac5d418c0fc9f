"""ShareAcknowledge (key 79): accept, release or reject records of a share group (KIP-932)."""

from __future__ import annotations

from ..wire.message import Message, Struct, field
from ..wire.types import Bool, Int8, Int16, Int32, Int64, String, Uuid


class ShareAcknowledgeRequest(Message, api_key=79, versions="1-2", flexible="0+"):
    group_id: String | None = None
    member_id: String | None
    share_session_epoch: Int32
    # Whether any acknowledgement renews an acquisition lock (KIP-1222).
    is_renew_ack: Bool = field("2+", default=False)
    topics: list[AcknowledgeTopic]


class AcknowledgeTopic(Struct):
    topic_id: Uuid = field(map_key=True)
    partitions: list[AcknowledgePartition]


class AcknowledgePartition(Struct):
    partition_index: Int32 = field(map_key=True)
    acknowledgement_batches: list[AcknowledgementBatch]


class AcknowledgementBatch(Struct):
    first_offset: Int64
    last_offset: Int64
    # The acknowledge types: 0 gap, 1 accept, 2 release, 3 reject, 4 renew. The list has one type for each
    # offset of the batch, or a single type that applies to all of them.
    acknowledge_types: list[Int8]


class ShareAcknowledgeResponse(Message, api_key=79, versions="1-2", flexible="0+"):
    throttle_time_ms: Int32
    error_code: Int16
    error_message: String | None = None
    acquisition_lock_timeout_ms: Int32 = field("2+", default=0, ignorable=True)
    responses: list[ShareAcknowledgeTopicResponse]
    node_endpoints: list[NodeEndpoint]


class ShareAcknowledgeTopicResponse(Struct):
    topic_id: Uuid = field(map_key=True)
    partitions: list[PartitionData]


class PartitionData(Struct):
    partition_index: Int32
    error_code: Int16
    error_message: String | None = None
    # The current leader. It is set with the errors NOT_LEADER_OR_FOLLOWER and FENCED_LEADER_EPOCH (KIP-951).
    current_leader: LeaderIdAndEpoch


class LeaderIdAndEpoch(Struct):
    leader_id: Int32
    leader_epoch: Int32


class NodeEndpoint(Struct):
    node_id: Int32 = field(map_key=True)
    host: String
    port: Int32
    rack: String | None = None
