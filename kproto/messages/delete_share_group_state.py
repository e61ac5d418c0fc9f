"""DeleteShareGroupState (key 86): delete the state of share partitions (KIP-932)."""

from __future__ import annotations

from ..wire.message import Message, Struct
from ..wire.types import Int16, Int32, String, Uuid


class DeleteShareGroupStateRequest(Message, api_key=86, versions="0", flexible="0+"):
    group_id: String
    topics: list[DeleteStateData]


class DeleteStateData(Struct):
    topic_id: Uuid
    partitions: list[PartitionData]


class PartitionData(Struct):
    partition: Int32


class DeleteShareGroupStateResponse(Message, api_key=86, versions="0", flexible="0+"):
    results: list[DeleteStateResult]


class DeleteStateResult(Struct):
    topic_id: Uuid
    partitions: list[PartitionResult]


class PartitionResult(Struct):
    partition: Int32
    error_code: Int16
    error_message: String | None = None
