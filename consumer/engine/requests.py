"""Functions that build requests in all versions, and functions that read their responses.

Unknown offsets, epochs and timestamps are None. Only this module and `producer.transaction_requests` convert
None to and from Kafka's -1.

`fetch.sessions` builds Fetch requests, because their content depends on the fetch session.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeVar
from uuid import UUID

import msgspec

from kproto.error_codes import ErrorCode
from kproto.errors import ConfigError, UnsupportedVersion
from kproto.group.subscription import TopicPartition
from kproto.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from kproto.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kproto.messages.metadata import MetadataRequest, MetadataRequestTopic
from kproto.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from kproto.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
)

from .metadata.cluster import NO_TOPIC_ID, BrokerAddress, ClusterView
from .network.call import Prepared

# The special timestamps of ListOffsets.
EARLIEST, LATEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED = -2, -1, -3, -4, -5
_SPECIAL_TIMESTAMPS = {
    "earliest": EARLIEST,
    "latest": LATEST,
    "max_timestamp": MAX_TIMESTAMP,
    "earliest_local": EARLIEST_LOCAL,
    "latest_tiered": LATEST_TIERED,
}
# Timestamp -> (first ListOffsets version that supports it, first Kafka release with this version).
# Earlier brokers would interpret the number as a time before 1970.
_TIMESTAMP_VERSIONS = {MAX_TIMESTAMP: (7, "3.0"), EARLIEST_LOCAL: (8, "3.5"), LATEST_TIERED: (9, "3.9")}
ISOLATION_LEVELS = {"read_uncommitted": 0, "read_committed": 1}
# Last version of OffsetCommit and OffsetFetch with topic names. Later versions (since Kafka 4.1) use topic
# ids. Java's classic consumer uses no later version.
LAST_VERSION_WITH_NAMES: Final = 9
_OffsetFetchEntry = OffsetFetchResponsePartition | OffsetFetchResponsePartitions
# From this version on (Kafka 0.10.2), an OffsetFetch response contains an error code for the group.
_FIRST_VERSION_WITH_GROUP_ERROR = 2
# The error codes in an OffsetFetch response that concern a single partition (PARTITION_ERRORS of Java's
# OffsetFetchResponse).
_PARTITION_ERRORS = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.TOPIC_AUTHORIZATION_FAILED)


class CommittedOffset(msgspec.Struct, frozen=True):
    """The offset that a group has committed for a partition."""

    offset: int
    metadata: str
    leader_epoch: int | None


# An offset to commit: a number, a pair (offset, metadata), or a committed offset.
Offset = int | tuple[int, str] | CommittedOffset


def offset_triples(
    offsets: Mapping[TopicPartition, Offset],
) -> dict[TopicPartition, tuple[int, int | None, str]]:
    """Map each partition to (offset, leader epoch, metadata). The offsets may be of any type in `Offset`."""
    committed: dict[TopicPartition, tuple[int, int | None, str]] = {}
    for partition, value in offsets.items():
        if isinstance(value, CommittedOffset):
            committed[partition] = (value.offset, value.leader_epoch, value.metadata)
        elif isinstance(value, tuple):
            committed[partition] = (value[0], None, value[1])
        else:
            committed[partition] = (value, None, "")
    return committed


def metadata_request(topics: Iterable[str] | None, *, allow_auto_topic_creation: bool = False) -> Prepared:
    """Build a Metadata request for `topics`, all topics (None), or only the brokers (an empty list)."""
    requested = None if topics is None else sorted(set(topics))

    def build(version: int) -> MetadataRequest:
        # In version 0 an empty list means all topics, so a request for only the brokers is not possible.
        names = [] if version == 0 and not requested else requested
        return MetadataRequest(
            topics=None if names is None else [MetadataRequestTopic(name=name) for name in names],
            allow_auto_topic_creation=allow_auto_topic_creation if version >= 4 else True,
        )

    return Prepared(MetadataRequest, build)


def coordinator_request(key: str, key_type: int = 0) -> Prepared:
    """Build a FindCoordinator request for a group or, with key type 1, for a transactional id."""

    def build(version: int) -> FindCoordinatorRequest:
        if version >= 4:
            return FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
        return FindCoordinatorRequest(key=key, key_type=key_type)

    return Prepared(FindCoordinatorRequest, build)


def coordinator_of(response: FindCoordinatorResponse, version: int) -> BrokerAddress | tuple[int, str]:
    """Return the node id and address of the coordinator.

    If the response reports an error or names no coordinator, return (error code, error message).
    """
    if version >= 4 and not response.coordinators:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE, "the response contains no coordinator"
    coordinator = response.coordinators[0] if version >= 4 else response
    if coordinator.error_code:
        return coordinator.error_code, coordinator.error_message or ""
    if coordinator.node_id < 0:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE, f"the broker names node {coordinator.node_id}"
    return BrokerAddress(coordinator.node_id, coordinator.host, coordinator.port)


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[TopicPartition]]:
    """Map each topic to its partitions. The topics are sorted, and so are each topic's partitions."""
    grouped: dict[str, list[TopicPartition]] = {}
    for partition in sorted(partitions):
        grouped.setdefault(partition.topic, []).append(partition)
    return grouped


# The allowed values of the argument `node` of `Admin.request`, for error messages.
ROUTES: Final = (
    'None, a node id, "controller", ("group", name), ("transaction", transactional_id), '
    '("share", "GROUP:TOPIC_ID:PARTITION") or ("leader", topic, partition)'
)
# The allowed arguments of `timestamp_of`, for error messages.
ALLOWED_TIMESTAMPS = f"{', '.join(_SPECIAL_TIMESTAMPS)} or a time in ms since 1970, an integer of at least 0"


def timestamp_of(spec: str | int, name: str = "where", allowed: str = ALLOWED_TIMESTAMPS) -> int:
    """Return the timestamp for ListOffsets. `spec` is a word such as "earliest", or a time in ms.

    Raises ConfigError if `spec` is invalid. The error contains `name`, the name of the argument.
    """
    if isinstance(spec, str) and spec in _SPECIAL_TIMESTAMPS:
        return _SPECIAL_TIMESTAMPS[spec]
    value: object = spec
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63:
        return value
    raise ConfigError(name, spec, f"allowed: {allowed}")


def list_offsets_request(
    view: ClusterView, timestamps: Mapping[TopicPartition, int], isolation: int, timeout_ms: int
) -> Prepared:
    """Build a ListOffsets request for one leader.

    `timestamps` may contain Kafka's special values, such as -1. Building the request raises
    UnsupportedVersion if the leader does not support one of these values.
    """

    def build(version: int) -> ListOffsetsRequest:
        for name, timestamp in _SPECIAL_TIMESTAMPS.items():
            first_version, release = _TIMESTAMP_VERSIONS.get(timestamp, (0, ""))
            if version < first_version and timestamp in timestamps.values():
                allowed = f"{first_version} and higher (Kafka {release} and later) to look up {name!r}"
                raise UnsupportedVersion("ListOffsets", version, allowed)
        topics: list[ListOffsetsTopic] = []
        for topic, partitions in by_topic(timestamps).items():
            entries: list[ListOffsetsPartition] = []
            for partition in partitions:
                metadata = view.partition(partition)
                epoch = metadata.leader_epoch if metadata is not None and version >= 4 else None
                entries.append(
                    ListOffsetsPartition(
                        partition_index=partition.partition,
                        current_leader_epoch=-1 if epoch is None else epoch,
                        timestamp=timestamps[partition],
                    )
                )
            topics.append(ListOffsetsTopic(name=topic, partitions=entries))
        request = ListOffsetsRequest(replica_id=-1, topics=topics)
        if version >= 2:
            request.isolation_level = isolation
        if version >= 10:
            request.timeout_ms = timeout_ms
        return request

    return Prepared(ListOffsetsRequest, build)


def topic_ids_of(view: ClusterView, partitions: Iterable[TopicPartition]) -> dict[str, UUID]:
    """Return the ids of the partitions' topics. Topics whose id is unknown are omitted."""
    names = {partition.topic for partition in partitions}
    return {name: topic_id for name in names if (topic_id := view.topic_id(name)) is not None}


def offset_commit_request(
    ids: Mapping[str, UUID],
    group: str,
    offsets: Mapping[TopicPartition, tuple[int, int | None, str]],
    *,
    generation: int = -1,
    member_id: str = "",
    instance_id: str | None = None,
    may_use_names: bool = True,
) -> Prepared:
    """Build an OffsetCommit request. `offsets` maps a partition to (offset, leader epoch, metadata).

    Up to version 9, the request identifies topics by name. From version 10 on, it uses the topic ids in
    `ids`. If `may_use_names` is false, the request is sent only in version 10 or higher.
    """

    def build(version: int) -> OffsetCommitRequest:
        if version <= LAST_VERSION_WITH_NAMES and not may_use_names:
            raise UnsupportedVersion(
                "OffsetCommit",
                version,
                "10 and higher, because earlier versions identify topics by name, and topic ids are required",
            )
        topics: list[OffsetCommitRequestTopic] = []
        for name, partitions in by_topic(offsets).items():
            entries: list[OffsetCommitRequestPartition] = []
            for partition in partitions:
                offset, epoch, metadata = offsets[partition]
                entry = OffsetCommitRequestPartition(
                    partition_index=partition.partition, committed_offset=offset, committed_metadata=metadata
                )
                if version >= 6 and epoch is not None:
                    entry.committed_leader_epoch = epoch
                entries.append(entry)
            if version >= 10:
                topics.append(OffsetCommitRequestTopic(topic_id=ids[name], partitions=entries))
            else:
                topics.append(OffsetCommitRequestTopic(name=name, partitions=entries))
        request = OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=generation,
            member_id=member_id,
            topics=topics,
        )
        if version >= 7:
            request.group_instance_id = instance_id
        return request

    return Prepared(OffsetCommitRequest, build)


ValueT = TypeVar("ValueT")


def consistent_values(entries: Iterable[tuple[TopicPartition, ValueT]]) -> dict[TopicPartition, ValueT]:
    """Map each partition of a response to its value. A partition with contradictory entries is omitted."""
    values: dict[TopicPartition, ValueT] = {}
    contradicted: set[TopicPartition] = set()
    for partition, value in entries:
        first = values.setdefault(partition, value)
        if first is not value and first != value:
            contradicted.add(partition)
    return {partition: value for partition, value in values.items() if partition not in contradicted}


def offset_commit_codes(
    ids: Mapping[str, UUID],
    response: OffsetCommitResponse,
    version: int,
    requested: Mapping[TopicPartition, object],
) -> dict[TopicPartition, int]:
    """Map each requested partition to its error code. `ids` are the topic ids that the request contained."""
    names = {topic_id: name for name, topic_id in ids.items()}

    def entries() -> Iterator[tuple[TopicPartition, int]]:
        for topic in response.topics:
            name = names.get(topic.topic_id, "") if version >= 10 else topic.name
            for entry in topic.partitions:
                yield TopicPartition(name, entry.partition_index), entry.error_code

    return {
        partition: code for partition, code in consistent_values(entries()).items() if partition in requested
    }


def version_limit(view: ClusterView, topics: Iterable[str], last_version_with_names: int) -> int | None:
    """Return the highest version for a request about `topics`; None for no limit.

    If the id of a topic is unknown, the request must contain names, so `last_version_with_names` is the
    limit.
    """
    return None if all(view.topic_id(topic) for topic in topics) else last_version_with_names


def offset_fetch_request(
    group: str,
    partitions: Iterable[TopicPartition] | None,
    view: ClusterView,
    *,
    require_stable: bool = True,
    member_id: str | None = None,
    generation: int = -1,
) -> Prepared:
    """Build an OffsetFetch request for `partitions`, or for all partitions (None, from version 2 on).

    From version 10 on, the request contains topic ids. The id of an unknown topic is zero.
    """
    indexes_by_topic = (
        None
        if partitions is None
        else {
            topic: [partition.partition for partition in in_topic]
            for topic, in_topic in by_topic(partitions).items()
        }
    )

    def topic_entry(name: str, indexes: list[int], version: int) -> OffsetFetchRequestTopics:
        if version < 10:
            return OffsetFetchRequestTopics(name=name, partition_indexes=indexes)
        topic_id = view.topic_id(name) or NO_TOPIC_ID
        return OffsetFetchRequestTopics(topic_id=topic_id, partition_indexes=indexes)

    def build_before_version_8() -> OffsetFetchRequest:
        topics: list[OffsetFetchRequestTopic] | None = None
        if indexes_by_topic is not None:
            topics = [
                OffsetFetchRequestTopic(name=name, partition_indexes=indexes)
                for name, indexes in indexes_by_topic.items()
            ]
        return OffsetFetchRequest(group_id=group, topics=topics)

    def build_since_version_8(version: int) -> OffsetFetchRequest:
        topics: list[OffsetFetchRequestTopics] | None = None
        if indexes_by_topic is not None:
            topics = [topic_entry(name, indexes, version) for name, indexes in indexes_by_topic.items()]
        group_entry = OffsetFetchRequestGroup(group_id=group, topics=topics)
        if version >= 9 and member_id is not None:
            group_entry.member_id = member_id
            group_entry.member_epoch = generation
        return OffsetFetchRequest(groups=[group_entry])

    def build(version: int) -> OffsetFetchRequest:
        request = build_before_version_8() if version < 8 else build_since_version_8(version)
        if version >= 7:
            request.require_stable = require_stable
        return request

    return Prepared(OffsetFetchRequest, build)


def offset_fetch_result(
    view: ClusterView, response: OffsetFetchResponse, version: int, group: str
) -> tuple[int, dict[TopicPartition, CommittedOffset | int | None]] | None:
    """Return the group's error code, and the committed offset of each partition.

    The dict maps each partition to its committed offset, to None if no offset is committed, or to the
    partition's error code. The function returns None if the response does not contain the group.
    """
    topics: Iterable[tuple[str, Sequence[_OffsetFetchEntry]]]
    if version < 8:
        code = response.error_code if version >= _FIRST_VERSION_WITH_GROUP_ERROR else _group_error(response)
        topics = ((topic.name, topic.partitions) for topic in response.topics)
    else:
        group_entry = next((entry for entry in response.groups if entry.group_id == group), None)
        if group_entry is None:
            return None
        code = group_entry.error_code
        topics = (
            ((view.topic_name(topic.topic_id) or "") if version >= 10 else topic.name, topic.partitions)
            for topic in group_entry.topics
        )

    def committed_offset(entry: _OffsetFetchEntry) -> CommittedOffset | int | None:
        if entry.error_code:
            return entry.error_code
        if entry.committed_offset < 0:
            return None
        epoch = entry.committed_leader_epoch
        return CommittedOffset(entry.committed_offset, entry.metadata or "", epoch if epoch >= 0 else None)

    return code, consistent_values(
        (TopicPartition(name, entry.partition_index), committed_offset(entry))
        for name, entries in topics
        for entry in entries
    )


def _group_error(response: OffsetFetchResponse) -> int:
    """Return the group's error code, which responses before version 2 repeat for each partition.

    Follows Java's OffsetFetchResponse.topLevelError.
    """
    codes = (partition.error_code for topic in response.topics for partition in topic.partitions)
    return next((code for code in codes if code and code not in _PARTITION_ERRORS), 0)
