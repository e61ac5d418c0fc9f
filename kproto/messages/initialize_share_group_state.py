"""InitializeShareGroupState (key 83): initialize the state of share partitions (KIP-932)."""

from __future__ import annotations

from ..wire.message import Message, Struct
from ..wire.types import Int16, Int32, Int64, String, Uuid


class InitializeShareGroupStateRequest(Message, api_key=83, versions="0", flexible="0+"):
    group_id: String
    topics: list[InitializeStateData]


class InitializeStateData(Struct):
    topic_id: Uuid
    partitions: list[PartitionData]


class PartitionData(Struct):
    partition: Int32
    state_epoch: Int32
    start_offset: Int64


class InitializeShareGroupStateResponse(Message, api_key=83, versions="0", flexible="0+"):
    results: list[InitializeStateResult]


class InitializeStateResult(Struct):
    topic_id: Uuid
    partitions: list[PartitionResult]


class PartitionResult(Struct):
    partition: Int32
    error_code: Int16
    error_message: String | None = None
