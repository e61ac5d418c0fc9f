"""DescribeProducers (key 61): list the producers of partitions and their open transactions (KIP-664)."""

from __future__ import annotations

from ..wire.message import Message, Struct, field
from ..wire.types import Int16, Int32, Int64, String


class DescribeProducersRequest(Message, api_key=61, versions="0", flexible="0+"):
    topics: list[TopicRequest]


class TopicRequest(Struct):
    name: String = field(map_key=True)
    partition_indexes: list[Int32]


class DescribeProducersResponse(Message, api_key=61, versions="0", flexible="0+"):
    throttle_time_ms: Int32
    topics: list[TopicResponse]


class TopicResponse(Struct):
    name: String
    partitions: list[PartitionResponse]


class PartitionResponse(Struct):
    partition_index: Int32
    error_code: Int16
    error_message: String | None = None
    active_producers: list[ProducerState]


class ProducerState(Struct):
    producer_id: Int64
    producer_epoch: Int32
    last_sequence: Int32 = -1
    last_timestamp: Int64 = -1
    coordinator_epoch: Int32
    current_txn_start_offset: Int64 = -1
