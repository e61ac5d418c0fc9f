"""WriteShareGroupState (key 85): a leader stores the state of share partitions (KIP-932)."""

from __future__ import annotations

from ..wire.message import Message, Struct, field
from ..wire.types import Int8, Int16, Int32, Int64, String, Uuid


class WriteShareGroupStateRequest(Message, api_key=85, versions="0-1", flexible="0+"):
    group_id: String
    topics: list[WriteStateData]


class WriteStateData(Struct):
    topic_id: Uuid
    partitions: list[PartitionData]


class PartitionData(Struct):
    partition: Int32
    state_epoch: Int32
    leader_epoch: Int32
    start_offset: Int64
    delivery_complete_count: Int32 = field("1+", default=-1, ignorable=True)
    state_batches: list[StateBatch]


class StateBatch(Struct):
    first_offset: Int64
    last_offset: Int64
    delivery_state: Int8
    delivery_count: Int16


class WriteShareGroupStateResponse(Message, api_key=85, versions="0-1", flexible="0+"):
    results: list[WriteStateResult]


class WriteStateResult(Struct):
    topic_id: Uuid
    partitions: list[PartitionResult]


class PartitionResult(Struct):
    partition: Int32
    error_code: Int16
    error_message: String | None = None
