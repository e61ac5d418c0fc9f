"""ElectLeaders (key 43): elect the preferred replica, or any live one if no leader exists (KIP-460)."""

from __future__ import annotations

from ..wire.message import Message, Struct, field
from ..wire.types import Int8, Int16, Int32, String


class ElectLeadersRequest(Message, api_key=43, versions="0-2", flexible="2+"):
    # The election type: 0 elects the preferred replica, 1 (unclean) any live replica if the partition has no
    # leader (KIP-460).
    election_type: Int8 = field("1+", default=0)
    topic_partitions: list[TopicPartitions] | None
    timeout_ms: Int32 = 60000


class TopicPartitions(Struct):
    topic: String = field(map_key=True)
    partitions: list[Int32]


class ElectLeadersResponse(Message, api_key=43, versions="0-2", flexible="2+"):
    throttle_time_ms: Int32
    error_code: Int16 = field("1+", default=0)
    replica_election_results: list[ReplicaElectionResult]


class ReplicaElectionResult(Struct):
    topic: String
    partition_result: list[PartitionResult]


class PartitionResult(Struct):
    partition_id: Int32
    error_code: Int16
    error_message: String | None
