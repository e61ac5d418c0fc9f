"""CreateTopics (key 19): make new topics, or only check whether they could be made."""

from __future__ import annotations

from ..wire.message import Message, Struct, field
from ..wire.types import ZERO_UUID, Bool, Int8, Int16, Int32, String, Uuid


class CreateTopicsRequest(Message, api_key=19, versions="2-7", flexible="5+"):
    topics: list[CreatableTopic]
    timeout_ms: Int32 = 60000
    validate_only: Bool = False


class CreatableTopic(Struct):
    name: String = field(map_key=True)
    num_partitions: Int32  # -1 = the broker's default, from v4 (KIP-464), and with manual assignments
    replication_factor: Int16  # as `num_partitions`
    assignments: list[CreatableReplicaAssignment]
    configs: list[CreatableTopicConfig]


class CreatableReplicaAssignment(Struct):
    partition_index: Int32 = field(map_key=True)
    broker_ids: list[Int32]


class CreatableTopicConfig(Struct):
    name: String = field(map_key=True)
    value: String | None


class CreateTopicsResponse(Message, api_key=19, versions="2-7", flexible="5+"):
    throttle_time_ms: Int32
    topics: list[CreatableTopicResult]


class CreatableTopicResult(Struct):
    name: String = field(map_key=True)
    topic_id: Uuid = field("7+", default=ZERO_UUID, ignorable=True)  # KIP-516
    error_code: Int16
    error_message: String | None
    topic_config_error_code: Int16 = field("5+", default=0, tag=0, ignorable=True)
    num_partitions: Int32 = field("5+", default=-1, ignorable=True)  # KIP-525: what the new topic looks like
    replication_factor: Int16 = field("5+", default=-1, ignorable=True)
    configs: list[CreatableTopicConfigs] | None = field("5+", default=[], ignorable=True)


class CreatableTopicConfigs(Struct):
    name: String
    value: String | None
    read_only: Bool
    config_source: Int8 = -1
    is_sensitive: Bool
