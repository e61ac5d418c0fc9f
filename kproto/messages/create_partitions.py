"""CreatePartitions (key 37): increase the number of partitions of topics."""

from __future__ import annotations

from ..wire.message import Message, Struct, field
from ..wire.types import Bool, Int16, Int32, String


class CreatePartitionsRequest(Message, api_key=37, versions="0-3", flexible="2+"):
    topics: list[CreatePartitionsTopic]
    timeout_ms: Int32
    validate_only: Bool


class CreatePartitionsTopic(Struct):
    name: String = field(map_key=True)
    # The new total number of partitions.
    count: Int32
    # For each new partition, the brokers of its replicas. If null, Kafka chooses them.
    assignments: list[CreatePartitionsAssignment] | None


class CreatePartitionsAssignment(Struct):
    broker_ids: list[Int32]


class CreatePartitionsResponse(Message, api_key=37, versions="0-3", flexible="2+"):
    throttle_time_ms: Int32
    results: list[CreatePartitionsTopicResult]


class CreatePartitionsTopicResult(Struct):
    name: String
    error_code: Int16
    error_message: String | None = None
