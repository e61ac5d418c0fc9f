"""DeleteRecords (key 21): delete records by moving the start of a log forward."""

from __future__ import annotations

from ..wire.message import Message, Struct, field
from ..wire.types import Int16, Int32, Int64, String


class DeleteRecordsRequest(Message, api_key=21, versions="0-2", flexible="2+"):
    topics: list[DeleteRecordsTopic]
    timeout_ms: Int32


class DeleteRecordsTopic(Struct):
    name: String
    partitions: list[DeleteRecordsPartition]


class DeleteRecordsPartition(Struct):
    partition_index: Int32
    offset: Int64  # The new start offset of the log; -1 for the high watermark.


class DeleteRecordsResponse(Message, api_key=21, versions="0-2", flexible="2+"):
    throttle_time_ms: Int32
    topics: list[DeleteRecordsTopicResult]


class DeleteRecordsTopicResult(Struct):
    name: String = field(map_key=True)
    partitions: list[DeleteRecordsPartitionResult]


class DeleteRecordsPartitionResult(Struct):
    partition_index: Int32 = field(map_key=True)
    low_watermark: Int64
    error_code: Int16
