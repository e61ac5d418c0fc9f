"""OffsetDelete (key 47): delete committed offsets of a group (KIP-496)."""

from __future__ import annotations

from ..wire.message import Message, Struct, field
from ..wire.types import Int16, Int32, String


class OffsetDeleteRequest(Message, api_key=47, versions="0"):
    group_id: String
    topics: list[OffsetDeleteRequestTopic]


class OffsetDeleteRequestTopic(Struct):
    name: String = field(map_key=True)
    partitions: list[OffsetDeleteRequestPartition]


class OffsetDeleteRequestPartition(Struct):
    partition_index: Int32


class OffsetDeleteResponse(Message, api_key=47, versions="0"):
    error_code: Int16
    throttle_time_ms: Int32
    topics: list[OffsetDeleteResponseTopic]


class OffsetDeleteResponseTopic(Struct):
    name: String = field(map_key=True)
    partitions: list[OffsetDeleteResponsePartition]


class OffsetDeleteResponsePartition(Struct):
    partition_index: Int32 = field(map_key=True)
    error_code: Int16
