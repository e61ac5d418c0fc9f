"""CreateTopics (key 19): create topics, or only validate the request."""

from __future__ import annotations

from ..wire.message import Message, Struct, field
from ..wire.types import ZERO_UUID, Bool, Int8, Int16, Int32, String, Uuid


class CreateTopicsRequest(Message, api_key=19, versions="2-7", flexible="5+"):
    topics: list[CreatableTopic]
    timeout_ms: Int32 = 60000
    validate_only: Bool = False


class CreatableTopic(Struct):
    name: String = field(map_key=True)
    # The number of partitions; -1 if `assignments` is set. From v4 on, -1 without `assignments` requests the
    # broker's default (KIP-464).
    num_partitions: Int32
    # The replication factor; -1 if `assignments` is set. From v4 on, -1 without `assignments` requests the
    # broker's default (KIP-464).
    replication_factor: Int16
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
    topic_id: Uuid = field("7+", default=ZERO_UUID, ignorable=True)  # The id of the new topic (KIP-516).
    error_code: Int16
    error_message: String | None
    topic_config_error_code: Int16 = field("5+", default=0, tag=0, ignorable=True)
    # The number of partitions of the new topic (KIP-525).
    num_partitions: Int32 = field("5+", default=-1, ignorable=True)
    replication_factor: Int16 = field("5+", default=-1, ignorable=True)
    configs: list[CreatableTopicConfigs] | None = field("5+", default=[], ignorable=True)


class CreatableTopicConfigs(Struct):
    name: String
    value: String | None
    read_only: Bool
    config_source: Int8 = -1
    is_sensitive: Bool
