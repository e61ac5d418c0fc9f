"""Helpers for all models: they build requests, parse responses, and keep cluster metadata.

The helpers make no decisions. Each model decides when it sends a request, to which broker, and how it handles
an error.
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
    """Return the highest version of an API that both the client and the broker support.

    If the broker does not offer the API, return the client's highest version.
    """
    highest = versions[api_key]
    return min(highest, offered[api_key][1]) if api_key in offered else highest


# -- metadata ---------------------------------------------------------------------------------------------


class PartitionLeader(NamedTuple):
    """The leader of a partition. Node -1 means that the partition has no leader."""

    node: int
    epoch: int


@dataclass(slots=True)
class ClusterMetadata:
    """A client's metadata of the cluster. `update` applies a Metadata response."""

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
        """Apply a Metadata response. If `whole` is true, remove the topics that the response lacks.

        The partitions of a topic with an error are removed. If the response has no brokers, the known brokers
        are kept.
        """
        if response.brokers:
            self.brokers = {broker.node_id: (broker.host, broker.port) for broker in response.brokers}
            self.racks = {
                broker.node_id: broker.rack for broker in response.brokers if broker.rack is not None
            }
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
                partition.partition_index: PartitionLeader(partition.leader_id, partition.leader_epoch)
                for partition in topic.partitions
            }
            for partition in topic.partitions:
                self.replicas[TopicPartition(name, partition.partition_index)] = tuple(
                    partition.replica_nodes
                )

    def leader(self, tp: TopicPartition) -> PartitionLeader | None:
        """Return the leader of a partition, or None if the leader is unknown."""
        leader = self.topics.get(tp.topic, {}).get(tp.partition)
        return leader if leader is not None and leader.node in self.brokers else None

    def partition_counts(self, topics: Iterable[str]) -> dict[str, int]:
        """Map the existing topics among `topics` to their partition counts."""
        return {topic: len(self.topics[topic]) for topic in topics if self.topics.get(topic)}

    def rack_sets(self, topics: Iterable[str]) -> dict[str, list[frozenset[str]]]:
        """Map each topic to a list with one set per partition: the racks of the partition's replicas.

        The result is empty if no broker has a rack.
        """
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
        """Return the topics whose name matches `pattern`, except names that begin with "__".

        If `full` is true, the pattern must match the whole name. Otherwise it may match a part, as in
        librdkafka.
        """
        regex = compiled(pattern)
        matches = regex.fullmatch if full else regex.search
        return frozenset(topic for topic in self.topics if matches(topic) and not topic.startswith("__"))


def metadata_request(topics: Iterable[str] | None, *, create: bool = False) -> MetadataRequest:
    """Build a Metadata request for `topics`.

    If `topics` is None, the request is for all topics. If it is empty, the response lists only the brokers
    (version 0 returns all topics).
    If `create` is true, the broker may create missing topics.
    """
    requested = None if topics is None else [MetadataRequestTopic(name=topic) for topic in topics]
    return MetadataRequest(topics=requested, allow_auto_topic_creation=create)


# -- the coordinator --------------------------------------------------------------------------------------


class FoundCoordinator(NamedTuple):
    """The result of FindCoordinator: the coordinator's address, or the error."""

    error: int
    node: int
    host: str
    port: int
    message: str | None


def find_coordinator_request(group_id: str, version: int) -> FindCoordinatorRequest:
    """Build a FindCoordinator request for a group.

    The request has a single key up to v3, and a list of keys from v4.
    """
    if version >= 4:
        return FindCoordinatorRequest(coordinator_keys=[group_id])
    return FindCoordinatorRequest(key=group_id)


def parse_find_coordinator(response: FindCoordinatorResponse) -> FoundCoordinator:
    """Read a FindCoordinator response of any version, and return its only coordinator."""
    coordinator = response.coordinators[0] if response.coordinators else response
    return FoundCoordinator(
        coordinator.error_code,
        coordinator.node_id,
        coordinator.host,
        coordinator.port,
        coordinator.error_message,
    )


# -- committed offsets ------------------------------------------------------------------------------------


class OffsetToCommit(NamedTuple):
    """The offset to commit for one partition."""

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
    """Build an OffsetCommit request for `offsets`. Topics and partitions keep the order of `offsets`."""
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
        topics=[
            OffsetCommitRequestTopic(name=name, partitions=partitions) for name, partitions in topics.items()
        ],
    )


def commit_errors(response: OffsetCommitResponse) -> dict[TopicPartition, int]:
    """Map each partition of an OffsetCommit response to its error code."""
    return {
        TopicPartition(topic.name, partition.partition_index): partition.error_code
        for topic in response.topics
        for partition in topic.partitions
    }


class FetchedOffset(NamedTuple):
    """The committed offset of one partition, or -1 if nothing was committed."""

    offset: int
    epoch: int
    error: int


def offset_fetch_request(
    group_id: str, partitions: Iterable[TopicPartition], version: int, *, stable: bool
) -> OffsetFetchRequest:
    """Build an OffsetFetch request for the committed offsets of `partitions`.

    If `stable` is true, the broker rejects partitions with pending transactional commits. Versions before v7
    do not have this option.
    """
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
    """Return the error code of an OffsetFetch response, and a map: partition -> committed offset."""
    body = response.groups[0] if response.groups else response
    return body.error_code, {
        TopicPartition(topic.name, partition.partition_index): FetchedOffset(
            partition.committed_offset, partition.committed_leader_epoch, partition.error_code
        )
        for topic in body.topics
        for partition in topic.partitions
    }


# -- positions --------------------------------------------------------------------------------------------

# Timestamps in a ListOffsets request that stand for the end (-1) and the start (-2) of the log.
LATEST, EARLIEST = -1, -2


def list_offsets_request(
    timestamps: Mapping[TopicPartition, tuple[int, int]], *, isolation: int, timeout_ms: int = 0
) -> ListOffsetsRequest:
    """Build a ListOffsets request from a map: partition -> (timestamp, current leader epoch)."""
    topics: dict[str, list[ListOffsetsPartition]] = {}
    for (topic, index), (timestamp, epoch) in timestamps.items():
        topics.setdefault(topic, []).append(
            ListOffsetsPartition(partition_index=index, current_leader_epoch=epoch, timestamp=timestamp)
        )
    return ListOffsetsRequest(
        replica_id=-1,
        isolation_level=isolation,
        topics=[ListOffsetsTopic(name=name, partitions=partitions) for name, partitions in topics.items()],
        timeout_ms=timeout_ms,
    )


class ListedOffset(NamedTuple):
    """One partition's result in a ListOffsets or OffsetForLeaderEpoch response."""

    error: int
    offset: int
    epoch: int


def parse_list_offsets(response: ListOffsetsResponse) -> dict[TopicPartition, ListedOffset]:
    """Map each partition of a ListOffsets response to its error, offset and leader epoch."""
    return {
        TopicPartition(topic.name, partition.partition_index): ListedOffset(
            partition.error_code, partition.offset, partition.leader_epoch
        )
        for topic in response.topics
        for partition in topic.partitions
    }


def offset_for_leader_epoch_request(
    epochs: Mapping[TopicPartition, tuple[int, int]],
) -> OffsetForLeaderEpochRequest:
    """Build an OffsetForLeaderEpoch request.

    `epochs` maps each partition to a pair: the leader epoch of the position, and the current leader epoch.
    """
    topics: dict[str, list[OffsetForLeaderPartition]] = {}
    for (topic, index), (epoch, current_epoch) in epochs.items():
        topics.setdefault(topic, []).append(
            OffsetForLeaderPartition(partition=index, current_leader_epoch=current_epoch, leader_epoch=epoch)
        )
    return OffsetForLeaderEpochRequest(
        replica_id=-1,
        topics=[
            OffsetForLeaderTopic(topic=name, partitions=partitions) for name, partitions in topics.items()
        ],
    )


def parse_offset_for_leader_epoch(
    response: OffsetForLeaderEpochResponse,
) -> dict[TopicPartition, ListedOffset]:
    """Map each partition of an OffsetForLeaderEpoch response to its error, end offset and leader epoch."""
    return {
        TopicPartition(topic.topic, partition.partition): ListedOffset(
            partition.error_code, partition.end_offset, partition.leader_epoch
        )
        for topic in response.topics
        for partition in topic.partitions
    }


# -- fetching ---------------------------------------------------------------------------------------------


class FetchStart(NamedTuple):
    """The entry of one partition in a Fetch request: offset, leader epoch and size limit."""

    offset: int
    epoch: int = -1
    max_bytes: int = 1_048_576


def fetch_request(
    partitions_to_fetch: Mapping[TopicPartition, FetchStart],
    cluster: ClusterMetadata,
    *,
    wait_ms: int,
    min_bytes: int = 1,
    max_bytes: int = 52_428_800,
    isolation: int = 0,
    session: tuple[int, int] = (0, -1),
    forgotten: Iterable[TopicPartition] = (),
    rack: str = "",
    log_start_offset: int = -1,
) -> FetchRequest:
    """Build a Fetch request with the partitions in the order of `partitions_to_fetch`.

    The request has names and ids of topics, because some versions send names and others send ids. Brokers use
    `log_start_offset` only in requests from followers. Consumers send a constant, which differs between
    clients. `session` is the id and the epoch of the fetch session.
    """
    topics: dict[str, list[FetchPartition]] = {}
    for (topic, index), (offset, epoch, partition_max_bytes) in partitions_to_fetch.items():
        topics.setdefault(topic, []).append(
            FetchPartition(
                partition=index,
                current_leader_epoch=epoch,
                fetch_offset=offset,
                log_start_offset=log_start_offset,
                partition_max_bytes=partition_max_bytes,
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
            FetchTopic(topic=name, topic_id=ids.get(name, ZERO_UUID), partitions=partitions)
            for name, partitions in topics.items()
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
    """Yield each partition of a Fetch response with its topic's name.

    A partition whose topic id is unknown is skipped.
    """
    for topic in response.responses:
        name = topic.topic or cluster.names.get(topic.topic_id)
        if name is not None:
            for partition in topic.partitions:
                yield TopicPartition(name, partition.partition_index), partition


class FetchedRecords(NamedTuple):
    """The records of one partition in a Fetch response, from the requested offset on."""

    records: list[ModelRecord]
    # The next offset to fetch: the one after the last complete batch, even if that batch has no records.
    position: int
    # The leader epoch of the last batch that was read, or -1 if no batch was read.
    epoch: int


def read_records(tp: TopicPartition, data: PartitionData, offset: int, *, committed: bool) -> FetchedRecords:
    """Read the records of a partition from `offset` on.

    If `committed` is true, records of aborted transactions are skipped. If a batch is corrupt, only the
    records before the batch are returned.
    """
    records: list[ModelRecord] = []
    position, epoch = offset, -1
    if not data.records:
        return FetchedRecords(records, position, epoch)
    aborted = None
    if committed and data.aborted_transactions:
        aborted = AbortedTransactions(
            [(transaction.producer_id, transaction.first_offset) for transaction in data.aborted_transactions]
        )
    for batch in _complete_batches(data.records):
        if batch.last_offset < position:
            continue
        is_aborted = aborted is not None and aborted.skips(batch)
        if not is_aborted and not batch.is_control:
            records += [
                ModelRecord(tp, record.offset, record.timestamp, record.key, record.value)
                for record in batch.records()
                if record.offset >= position
            ]
        position, epoch = batch.last_offset + 1, batch.partition_leader_epoch
    return FetchedRecords(records, position, epoch)


def _complete_batches(records: bytes) -> Iterator[Batch]:
    """Yield the batches before the first corrupt one."""
    try:
        yield from batches(records)
    except RecordError:
        return


def error_name(code: int) -> str:
    """Return Kafka's name for an error code."""
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"ERROR_{code}"
