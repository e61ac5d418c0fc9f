"""AlterPartition (key 56): a leader reports its in-sync replicas to the controller (KIP-497)."""

from __future__ import annotations

from ..wire.message import Message, Struct, field
from ..wire.types import Int8, Int16, Int32, Int64, Uuid


class AlterPartitionRequest(Message, api_key=56, versions="2-3", flexible="0+"):
    broker_id: Int32
    broker_epoch: Int64 = -1
    topics: list[AlterPartitionRequestTopicData]


class AlterPartitionRequestTopicData(Struct):
    topic_id: Uuid
    partitions: list[AlterPartitionRequestPartitionData]


class AlterPartitionRequestPartitionData(Struct):
    partition_index: Int32
    leader_epoch: Int32
    new_isr: list[Int32] = field("2", default=[])
    # The in-sync replicas with their broker epochs. This field replaces `new_isr` (KIP-903).
    new_isr_with_epochs: list[BrokerState] = field("3+", default=[])
    leader_recovery_state: Int8 = 0
    partition_epoch: Int32


class BrokerState(Struct):
    broker_id: Int32
    broker_epoch: Int64 = -1


class AlterPartitionResponse(Message, api_key=56, versions="2-3", flexible="0+"):
    throttle_time_ms: Int32
    error_code: Int16
    topics: list[AlterPartitionResponseTopicData]


class AlterPartitionResponseTopicData(Struct):
    topic_id: Uuid
    partitions: list[AlterPartitionResponsePartitionData]


class AlterPartitionResponsePartitionData(Struct):
    partition_index: Int32
    error_code: Int16
    leader_id: Int32
    leader_epoch: Int32
    isr: list[Int32]
    leader_recovery_state: Int8 = 0
    partition_epoch: Int32
