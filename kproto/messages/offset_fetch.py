"""OffsetFetch (key 9): get the committed offsets of groups."""

from __future__ import annotations

from ..wire.message import Message, Struct, field
from ..wire.types import ZERO_UUID, Bool, Int16, Int32, Int64, String, Uuid


class OffsetFetchRequest(Message, api_key=9, versions="1-10", flexible="6+"):
    # The group id. From v8 on `groups` replaces this field (KIP-709).
    group_id: String = field("1-7", default="")
    # The topics to look up. Null means all topics with committed offsets.
    topics: list[OffsetFetchRequestTopic] | None = field("1-7", default=[], nullable="2-7")
    # The groups to look up (KIP-709).
    groups: list[OffsetFetchRequestGroup] = field("8+", default=[])
    # Whether the broker returns UNSTABLE_OFFSET_COMMIT for a partition if an open transaction has a pending
    # offset for it (KIP-447).
    require_stable: Bool = field("7+", default=False)


class OffsetFetchRequestTopic(Struct):
    name: String
    partition_indexes: list[Int32]


class OffsetFetchRequestGroup(Struct):
    group_id: String
    member_id: String | None = field("9+", default=None, ignorable=True)  # The member id (KIP-848).
    member_epoch: Int32 = field("9+", default=-1, ignorable=True)
    # The topics to look up. Null means all topics with committed offsets.
    topics: list[OffsetFetchRequestTopics] | None


class OffsetFetchRequestTopics(Struct):
    name: String = field("8-9", default="", ignorable=True)
    # The topic id, which replaces the name (KIP-516, KIP-848).
    topic_id: Uuid = field("10+", default=ZERO_UUID, ignorable=True)
    partition_indexes: list[Int32]


class OffsetFetchResponse(Message, api_key=9, versions="1-10", flexible="6+"):
    throttle_time_ms: Int32 = field("3+", default=0, ignorable=True)
    topics: list[OffsetFetchResponseTopic] = field("1-7", default=[])
    error_code: Int16 = field("2-7", default=0, ignorable=True)
    groups: list[OffsetFetchResponseGroup] = field("8+", default=[])


# Used in versions 1 to 7. Later versions use OffsetFetchResponseTopics.
class OffsetFetchResponseTopic(Struct):
    name: String
    partitions: list[OffsetFetchResponsePartition]


# Used in versions 1 to 7. Later versions use OffsetFetchResponsePartitions.
class OffsetFetchResponsePartition(Struct):
    partition_index: Int32
    committed_offset: Int64
    # The leader epoch of the committed offset (KIP-320).
    committed_leader_epoch: Int32 = field("5-7", default=-1, ignorable=True)
    metadata: String | None
    error_code: Int16


class OffsetFetchResponseGroup(Struct):
    group_id: String
    topics: list[OffsetFetchResponseTopics]
    error_code: Int16 = 0


class OffsetFetchResponseTopics(Struct):
    name: String = field("8-9", default="", ignorable=True)
    # The topic id, which replaces the name (KIP-516, KIP-848).
    topic_id: Uuid = field("10+", default=ZERO_UUID, ignorable=True)
    partitions: list[OffsetFetchResponsePartitions]


class OffsetFetchResponsePartitions(Struct):
    partition_index: Int32
    committed_offset: Int64
    committed_leader_epoch: Int32 = -1  # The leader epoch of the committed offset (KIP-320).
    metadata: String | None
    error_code: Int16
