"""AlterPartitionReassignments (key 45): move replicas, or cancel a reassignment (KIP-455)."""

from __future__ import annotations

from ..wire.message import Message, Struct, field
from ..wire.types import Bool, Int16, Int32, String


class AlterPartitionReassignmentsRequest(Message, api_key=45, versions="0-1", flexible="0+"):
    timeout_ms: Int32 = 60000
    # Whether a reassignment may change the replication factor (KIP-860).
    allow_replication_factor_change: Bool = field("1+", default=True)
    topics: list[ReassignableTopic]


class ReassignableTopic(Struct):
    name: String
    partitions: list[ReassignablePartition]


class ReassignablePartition(Struct):
    partition_index: Int32
    # The broker ids of the partition's new replicas. Null cancels the pending reassignment.
    replicas: list[Int32] | None = None


class AlterPartitionReassignmentsResponse(Message, api_key=45, versions="0-1", flexible="0+"):
    throttle_time_ms: Int32
    allow_replication_factor_change: Bool = field("1+", default=True, ignorable=True)
    error_code: Int16
    error_message: String | None
    responses: list[ReassignableTopicResponse]


class ReassignableTopicResponse(Struct):
    name: String
    partitions: list[ReassignablePartitionResponse]


class ReassignablePartitionResponse(Struct):
    partition_index: Int32
    error_code: Int16
    error_message: String | None
