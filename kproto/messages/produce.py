"""Produce (key 0): append records to partitions."""

from __future__ import annotations

from ..wire.message import FRESH, Message, Struct, field
from ..wire.types import ZERO_UUID, Int16, Int32, Int64, Records, String, Uuid


class ProduceRequest(Message, api_key=0, versions="3-13", flexible="9+"):
    # The transactional id; null if the producer is not transactional (KIP-98).
    transactional_id: String | None = None
    # When the broker answers: 0 never, 1 when the leader has the records, -1 when all in-sync replicas have
    # them.
    acks: Int16
    timeout_ms: Int32
    topic_data: list[TopicProduceData]


class TopicProduceData(Struct):
    name: String = field("3-12", default="", ignorable=True, map_key=True)
    # The topic id, which replaces the name (KIP-516).
    topic_id: Uuid = field("13+", default=ZERO_UUID, ignorable=True, map_key=True)
    partition_data: list[PartitionProduceData]


class PartitionProduceData(Struct):
    index: Int32
    records: Records | None


class ProduceResponse(Message, api_key=0, versions="3-13", flexible="9+"):
    responses: list[TopicProduceResponse]
    throttle_time_ms: Int32 = 0
    # The endpoints of new leaders, so that the client need not send a Metadata request (KIP-951).
    node_endpoints: list[NodeEndpoint] = field("10+", default=[], tag=0)


class TopicProduceResponse(Struct):
    name: String = field("3-12", default="", ignorable=True, map_key=True)
    topic_id: Uuid = field("13+", default=ZERO_UUID, ignorable=True, map_key=True)
    partition_responses: list[PartitionProduceResponse]


class PartitionProduceResponse(Struct):
    index: Int32
    error_code: Int16
    base_offset: Int64
    # The append time of the batch in ms; -1 unless the topic uses LogAppendTime.
    log_append_time_ms: Int64 = -1
    log_start_offset: Int64 = field("5+", default=-1, ignorable=True)
    # The records that made the broker reject the batch (KIP-467).
    record_errors: list[BatchIndexAndErrorMessage] = field("8+", default=[], ignorable=True)
    error_message: String | None = field("8+", default=None, ignorable=True)
    # The current leader. It is set with the errors NOT_LEADER_OR_FOLLOWER and FENCED_LEADER_EPOCH (KIP-951).
    current_leader: LeaderIdAndEpoch = field("10+", default=FRESH, tag=0)


class BatchIndexAndErrorMessage(Struct):
    batch_index: Int32
    batch_index_error_message: String | None = None


class LeaderIdAndEpoch(Struct):
    leader_id: Int32 = -1
    leader_epoch: Int32 = -1


class NodeEndpoint(Struct):
    node_id: Int32 = field(map_key=True)
    host: String
    port: Int32
    rack: String | None = None
