"""What any client does with the protocol and does alike: requests by version, what an answer says, metadata.

Nothing here decides anything: when to ask, whom, and what to make of an error is each client's own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from ..error_codes import ErrorCode
from ..errors import RecordError
from ..group.subscription import TopicPartition, by_topic
from ..messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)
from ..messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ..messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from ..messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from ..messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from ..messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from ..messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from ..patterns import compiled
from ..records.batch import Batch
from ..records.reader import AbortedTransactions, batches
from ..wire.types import ZERO_UUID
from .contract import ModelRecord

Offered = Mapping[int, tuple[int, int]]


def negotiate_version(versions: Mapping[int, int], offered: Offered, api_key: int) -> int:
    """The version of an API that a client speaks with this broker: the highest that both know."""
    known = versions[api_key]
    return min(known, offered[api_key][1]) if api_key in offered else known


# -- metadata ---------------------------------------------------------------------------------------------


class PartitionLeader(NamedTuple):
    """Who leads a partition; node -1 is nobody."""

    node: int
    epoch: int


@dataclass(slots=True)
class ClusterMetadata:
    """What a client knows of the cluster; `update` applies a response."""

    brokers: dict[int, tuple[str, int]] = field(default_factory=dict[int, tuple[str, int]])
    racks: dict[int, str] = field(default_factory=dict[int, str])
    topics: dict[str, dict[int, PartitionLeader]] = field(
        default_factory=dict[str, dict[int, PartitionLeader]]
    )
    replicas: dict[TopicPartition, tuple[int, ...]] = field(
        default_factory=dict[TopicPartition, "tuple[int, ...]"]
    )
    ids: dict[str, UUID] = field(default_factory=dict[str, UUID])
    names: dict[UUID, str] = field(default_factory=dict[UUID, str])
    errors: dict[str, int] = field(default_factory=dict[str, int])
    controller: int = -1

    def update(self, response: MetadataResponse, *, whole: bool = False) -> None:
        """Take over what an answer says of its topics; with `whole`, forget all others."""
        if response.brokers:
            self.brokers = {one.node_id: (one.host, one.port) for one in response.brokers}
            self.racks = {one.node_id: one.rack for one in response.brokers if one.rack is not None}
        self.controller = response.controller_id
        if whole:
            self.topics, self.errors, self.ids, self.names, self.replicas = {}, {}, {}, {}, {}
        for topic in response.topics:
            name = topic.name
            if name is None:
                continue
            self.errors.pop(name, None)
            if topic.error_code:
                self.topics.pop(name, None)
                self.errors[name] = topic.error_code
                continue
            if topic.topic_id != ZERO_UUID:
                self.names.pop(self.ids.get(name, ZERO_UUID), None)
                self.ids[name], self.names[topic.topic_id] = topic.topic_id, name
            self.topics[name] = {
                one.partition_index: PartitionLeader(one.leader_id, one.leader_epoch)
                for one in topic.partitions
            }
            for one in topic.partitions:
                self.replicas[TopicPartition(name, one.partition_index)] = tuple(one.replica_nodes)

    def leader(self, tp: TopicPartition) -> PartitionLeader | None:
        """The leader of a partition, or None while nobody is known."""
        found = self.topics.get(tp.topic, {}).get(tp.partition)
        return found if found is not None and found.node in self.brokers else None

    def partition_counts(self, topics: Iterable[str]) -> dict[str, int]:
        """How many partitions those of `topics` have that are there."""
        return {topic: len(self.topics[topic]) for topic in topics if self.topics.get(topic)}

    def rack_sets(self, topics: Iterable[str]) -> dict[str, list[frozenset[str]]]:
        """For each partition of each topic the racks of its replicas, where brokers have racks."""
        if not self.racks:
            return {}
        return {
            topic: [
                frozenset(
                    self.racks[node]
                    for node in self.replicas.get(TopicPartition(topic, index), ())
                    if node in self.racks
                )
                for index in sorted(self.topics[topic])
            ]
            for topic in topics
            if topic in self.topics
        }

    def matching_topics(self, pattern: str, *, full: bool) -> frozenset[str]:
        """The topics that a pattern means: from end to end, or (librdkafka) anywhere."""
        found = compiled(pattern)
        test = found.fullmatch if full else found.search
        return frozenset(topic for topic in self.topics if test(topic) and not topic.startswith("__"))


def metadata_request(topics: Iterable[str] | None, *, create: bool = False) -> MetadataRequest:
    """Ask for `topics`; for all of them with None, for the brokers only with none."""
    asked = None if topics is None else [MetadataRequestTopic(name=topic) for topic in topics]
    return MetadataRequest(topics=asked, allow_auto_topic_creation=create)


# -- the coordinator --------------------------------------------------------------------------------------


class FoundCoordinator(NamedTuple):
    """What a FindCoordinator answer says."""

    error: int
    node: int
    host: str
    port: int
    message: str | None


def find_coordinator_request(group_id: str, version: int) -> FindCoordinatorRequest:
    """Ask for a group's coordinator: one key until v3, a list of them from v4 on."""
    if version >= 4:
        return FindCoordinatorRequest(coordinator_keys=[group_id])
    return FindCoordinatorRequest(key=group_id)


def parse_find_coordinator(response: FindCoordinatorResponse) -> FoundCoordinator:
    """The one coordinator in an answer of any version."""
    one = response.coordinators[0] if response.coordinators else response
    return FoundCoordinator(one.error_code, one.node_id, one.host, one.port, one.error_message)


# -- committed offsets ------------------------------------------------------------------------------------


class OffsetToCommit(NamedTuple):
    """What is committed for one partition."""

    offset: int
    epoch: int = -1
    metadata: str | None = ""


def offset_commit_request(
    group_id: str,
    generation: int,
    member_id: str,
    instance: str | None,
    offsets: Mapping[TopicPartition, OffsetToCommit],
) -> OffsetCommitRequest:
    """Commit `offsets`, in the order of their topics as they come."""
    topics: dict[str, list[OffsetCommitRequestPartition]] = {}
    for (topic, index), (offset, epoch, metadata) in offsets.items():
        topics.setdefault(topic, []).append(
            OffsetCommitRequestPartition(
                partition_index=index,
                committed_offset=offset,
                committed_leader_epoch=epoch,
                committed_metadata=metadata,
            )
        )
    return OffsetCommitRequest(
        group_id=group_id,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        group_instance_id=instance,
        topics=[OffsetCommitRequestTopic(name=name, partitions=found) for name, found in topics.items()],
    )


def commit_errors(response: OffsetCommitResponse) -> dict[TopicPartition, int]:
    """The error code of each partition of a commit."""
    return {
        TopicPartition(topic.name, one.partition_index): one.error_code
        for topic in response.topics
        for one in topic.partitions
    }


class FetchedOffset(NamedTuple):
    """What the group has committed for one partition; offset -1 is nothing."""

    offset: int
    epoch: int
    error: int


def offset_fetch_request(
    group_id: str, partitions: Iterable[TopicPartition], version: int, *, stable: bool
) -> OffsetFetchRequest:
    """Ask what the group committed for `partitions`."""
    if version >= 8:
        group = OffsetFetchRequestGroup(
            group_id=group_id,
            topics=[
                OffsetFetchRequestTopics(name=name, partition_indexes=indexes)
                for name, indexes in by_topic(partitions)
            ],
        )
        return OffsetFetchRequest(groups=[group], require_stable=stable)
    topics = [
        OffsetFetchRequestTopic(name=name, partition_indexes=indexes)
        for name, indexes in by_topic(partitions)
    ]
    return OffsetFetchRequest(group_id=group_id, topics=topics, require_stable=stable and version >= 7)


def parse_offset_fetch(response: OffsetFetchResponse) -> tuple[int, dict[TopicPartition, FetchedOffset]]:
    """The error of the whole answer, and what it says of each partition."""
    body = response.groups[0] if response.groups else response
    return body.error_code, {
        TopicPartition(topic.name, one.partition_index): FetchedOffset(
            one.committed_offset, one.committed_leader_epoch, one.error_code
        )
        for topic in body.topics
        for one in topic.partitions
    }


# -- positions --------------------------------------------------------------------------------------------

# The timestamps that ask for the end and the beginning of a log.
LATEST, EARLIEST = -1, -2


def list_offsets_request(
    wanted: Mapping[TopicPartition, tuple[int, int]], *, isolation: int, timeout_ms: int = 0
) -> ListOffsetsRequest:
    """Ask for offsets by time: partition -> (timestamp, current leader epoch)."""
    topics: dict[str, list[ListOffsetsPartition]] = {}
    for (topic, index), (timestamp, epoch) in wanted.items():
        topics.setdefault(topic, []).append(
            ListOffsetsPartition(partition_index=index, current_leader_epoch=epoch, timestamp=timestamp)
        )
    return ListOffsetsRequest(
        replica_id=-1,
        isolation_level=isolation,
        topics=[ListOffsetsTopic(name=name, partitions=found) for name, found in topics.items()],
        timeout_ms=timeout_ms,
    )


class ListedOffset(NamedTuple):
    """One partition's answer to ListOffsets."""

    error: int
    offset: int
    epoch: int


def parse_list_offsets(response: ListOffsetsResponse) -> dict[TopicPartition, ListedOffset]:
    return {
        TopicPartition(topic.name, one.partition_index): ListedOffset(
            one.error_code, one.offset, one.leader_epoch
        )
        for topic in response.topics
        for one in topic.partitions
    }


def offset_for_leader_epoch_request(
    wanted: Mapping[TopicPartition, tuple[int, int]],
) -> OffsetForLeaderEpochRequest:
    """Ask where leader epochs end: partition -> (epoch of the position, current leader epoch)."""
    topics: dict[str, list[OffsetForLeaderPartition]] = {}
    for (topic, index), (epoch, current) in wanted.items():
        topics.setdefault(topic, []).append(
            OffsetForLeaderPartition(partition=index, current_leader_epoch=current, leader_epoch=epoch)
        )
    return OffsetForLeaderEpochRequest(
        replica_id=-1,
        topics=[OffsetForLeaderTopic(topic=name, partitions=found) for name, found in topics.items()],
    )


def parse_offset_for_leader_epoch(
    response: OffsetForLeaderEpochResponse,
) -> dict[TopicPartition, ListedOffset]:
    return {
        TopicPartition(topic.topic, one.partition): ListedOffset(
            one.error_code, one.end_offset, one.leader_epoch
        )
        for topic in response.topics
        for one in topic.partitions
    }


# -- fetching ---------------------------------------------------------------------------------------------


class FetchStart(NamedTuple):
    """Where to read one partition from."""

    offset: int
    epoch: int = -1
    max_bytes: int = 1_048_576


def fetch_request(
    wanted: Mapping[TopicPartition, FetchStart],
    cluster: ClusterMetadata,
    *,
    wait_ms: int,
    min_bytes: int = 1,
    max_bytes: int = 52_428_800,
    isolation: int = 0,
    session: tuple[int, int] = (0, -1),
    forgotten: Iterable[TopicPartition] = (),
    rack: str = "",
) -> FetchRequest:
    """Read from `wanted`, in its order; ids go along for the versions that name topics by them."""
    topics: dict[str, list[FetchPartition]] = {}
    for (topic, index), (offset, epoch, bound) in wanted.items():
        topics.setdefault(topic, []).append(
            FetchPartition(
                partition=index, current_leader_epoch=epoch, fetch_offset=offset, partition_max_bytes=bound
            )
        )
    ids = cluster.ids
    return FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=isolation,
        session_id=session[0],
        session_epoch=session[1],
        topics=[
            FetchTopic(topic=name, topic_id=ids.get(name, ZERO_UUID), partitions=found)
            for name, found in topics.items()
        ],
        forgotten_topics_data=[
            ForgottenTopic(topic=name, topic_id=ids.get(name, ZERO_UUID), partitions=indexes)
            for name, indexes in (by_topic(forgotten) if forgotten else ())
        ],
        rack_id=rack,
    )


def parse_fetch(
    response: FetchResponse, cluster: ClusterMetadata
) -> Iterator[tuple[TopicPartition, PartitionData]]:
    """The partitions of an answer, by name; those of an id that nobody knows are left out."""
    for topic in response.responses:
        name = topic.topic or cluster.names.get(topic.topic_id)
        if name is not None:
            for one in topic.partitions:
                yield TopicPartition(name, one.partition_index), one


class FetchedRecords(NamedTuple):
    """What a partition's answer held from an offset on."""

    records: list[ModelRecord]
    # Where to go on reading: behind the last whole batch, whatever was in it.
    position: int
    # The leader epoch of the last batch; -1 where there was none.
    epoch: int


def read_records(tp: TopicPartition, data: PartitionData, offset: int, *, committed: bool) -> FetchedRecords:
    """The records of a partition from `offset` on; with `committed`, without those of aborted transactions.

    A broken batch ends it: what stood before it is given.
    """
    found: list[ModelRecord] = []
    position, epoch = offset, -1
    if not data.records:
        return FetchedRecords(found, position, epoch)
    aborted = None
    if committed and data.aborted_transactions:
        aborted = AbortedTransactions(
            [(one.producer_id, one.first_offset) for one in data.aborted_transactions]
        )
    for batch in _complete_batches(data.records):
        if batch.last_offset < position:
            continue
        skipped = aborted is not None and aborted.skips(batch)
        if not skipped and not batch.is_control:
            found += [
                ModelRecord(tp, one.offset, one.timestamp, one.key, one.value)
                for one in batch.records()
                if one.offset >= position
            ]
        position, epoch = batch.last_offset + 1, batch.partition_leader_epoch
    return FetchedRecords(found, position, epoch)


def _complete_batches(records: bytes) -> Iterator[Batch]:
    try:
        yield from batches(records)
    except RecordError:
        return


def error_name(code: int) -> str:
    """Kafka's name of an error code."""
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"ERROR_{code}"
