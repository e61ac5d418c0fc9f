"""ReadShareGroupState (key 84): a leader reads the state of share partitions (KIP-932)."""

from __future__ import annotations

from ..wire.message import Message, Struct
from ..wire.types import Int8, Int16, Int32, Int64, String, Uuid


class ReadShareGroupStateRequest(Message, api_key=84, versions="0", flexible="0+"):
    group_id: String
    topics: list[ReadStateData]


class ReadStateData(Struct):
    topic_id: Uuid
    partitions: list[PartitionData]


class PartitionData(Struct):
    partition: Int32
    leader_epoch: Int32


class ReadShareGroupStateResponse(Message, api_key=84, versions="0", flexible="0+"):
    results: list[ReadStateResult]


class ReadStateResult(Struct):
    topic_id: Uuid
    partitions: list[PartitionResult]


class PartitionResult(Struct):
    partition: Int32
    error_code: Int16
    error_message: String | None = None
    state_epoch: Int32
    start_offset: Int64
    state_batches: list[StateBatch]


class StateBatch(Struct):
    first_offset: Int64
    last_offset: Int64
    delivery_state: Int8
    delivery_count: Int16
