"""Admin operations that look up offsets, delete records, and fetch and append encoded batches."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Final, TypeAlias, TypeVar

import msgspec

from kproto.error_codes import ErrorCode
from kproto.errors import RequestTimedOut
from kproto.group.subscription import TopicPartition
from kproto.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from kproto.messages.fetch import AbortedTransaction, FetchPartition, FetchRequest, FetchResponse, FetchTopic
from kproto.messages.list_offsets import ListOffsetsResponse
from kproto.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from kproto.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from kproto.wire.message import Message

from ...errors import broker_error
from ..error_actions import (
    ADMIN,
    EPOCHS,
    LIST_OFFSETS,
    PRODUCE,
    ErrorAction,
    Row,
    action_for,
)
from ..error_actions import FETCH as FETCH_ROW
from ..metadata.cluster import NO_TOPIC_ID, ClusterView
from ..network.call import Call, Prepared
from ..network.client import FETCH
from ..requests import (
    EARLIEST,
    ISOLATION_LEVELS,
    LATEST,
    by_topic,
    consistent_values,
    list_offsets_request,
    timestamp_of,
    version_limit,
)
from .cluster import await_partitions
from .fanout import Answer, Router, fan_out, to_leaders
from .plan import (
    UNKNOWN_TOPIC_RETRIES,
    Ask,
    Plan,
    Rest,
    expect_response,
    failed_without_response,
    pause_after_error,
    pause_for_missing,
    require_version,
)

T = TypeVar("T")
# The contents of a leader's response: for each partition, a pair (partition, (error code, result)).
PartitionResults: TypeAlias = Iterator[tuple[TopicPartition, tuple[int, T]]]

# The last version of Fetch and of Produce that identifies topics by name. Later versions use ids (KIP-516).
_LAST_VERSION_WITH_NAMES: Final = 12

UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class OffsetAt(msgspec.Struct, frozen=True):
    """The first record at or after a requested timestamp. `offset` is None if no such record exists."""

    offset: int | None
    timestamp: int | None
    leader_epoch: int | None


class FetchedBytes(msgspec.Struct, frozen=True):
    """A leader's response to a fetch of one partition: its record batches, encoded as they were received.

    After a `fetch` with `lent=True`, `records` is a view that keeps the whole response in memory.
    """

    records: bytes | memoryview
    error_code: int
    high_watermark: int
    last_stable_offset: int | None
    log_start_offset: int | None
    aborted: tuple[tuple[int, int], ...]  # (producer id, first offset)


def list_offsets(
    view: ClusterView,
    specs: Mapping[TopicPartition, str | int],
    clock: Callable[[], int],
    *,
    isolation: str,
    timeout_ms: int,
) -> Plan[dict[TopicPartition, OffsetAt]]:
    """Return the offset that each partition's leader finds for the timestamp in `specs`.

    A timestamp is a number (ms since 1970), or a word such as "earliest".
    """

    def request(batch: Mapping[TopicPartition, int]) -> Message | Prepared:
        return list_offsets_request(view, batch, ISOLATION_LEVELS[isolation], timeout_ms)

    def read(call: Call) -> PartitionResults[OffsetAt]:
        for topic in expect_response(ListOffsetsResponse, call).topics:
            for entry in topic.partitions:
                partition = TopicPartition(topic.name, entry.partition_index)
                has_no_offset = not entry.error_code and entry.offset < 0
                if has_no_offset and timestamps.get(partition) in (EARLIEST, LATEST):
                    # Every log has a start offset and an end offset, so an entry without an offset is
                    # invalid.
                    continue
                code = entry.error_code
                if code == ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT:
                    # The partition's messages have no timestamps, because their format is older than 0.10.
                    # As in Java, the offset is None.
                    code = ErrorCode.NONE
                offset_at = OffsetAt(
                    entry.offset if entry.offset >= 0 else None,
                    entry.timestamp if entry.timestamp >= 0 else None,
                    entry.leader_epoch if entry.leader_epoch >= 0 else None,
                )
                yield partition, (code, offset_at)

    timestamps = {partition: timestamp_of(spec) for partition, spec in specs.items()}
    return (yield from _ask_leaders(view, timestamps, clock, "ListOffsets", LIST_OFFSETS, request, read))


def epoch_ends(
    view: ClusterView, epochs: Mapping[TopicPartition, int], clock: Callable[[], int]
) -> Plan[dict[TopicPartition, int | None]]:
    """Return, for each partition in `epochs`, the end offset of its leader epoch.

    The end offset is None if the partition's leader does not know the epoch.
    """

    def read(call: Call) -> PartitionResults[int | None]:
        for topic in expect_response(OffsetForLeaderEpochResponse, call).topics:
            for entry in topic.partitions:
                end_offset = entry.end_offset if entry.end_offset >= 0 else None
                yield TopicPartition(topic.topic, entry.partition), (entry.error_code, end_offset)

    return (
        yield from _ask_leaders(view, epochs, clock, "OffsetForLeaderEpoch", EPOCHS, _epochs_request, read)
    )


def _ask_leaders(
    view: ClusterView,
    values: Mapping[TopicPartition, int],
    clock: Callable[[], int],
    api: str,
    row: Row,
    request: Callable[[Mapping[TopicPartition, int]], Message | Prepared],
    read: Callable[[Call], PartitionResults[T]],
) -> Plan[dict[TopicPartition, T]]:
    """Send each leader a request for its partitions, and retry until each partition has a result.

    `values` maps each partition to the value in its request: a timestamp or a leader epoch.

    If the error of a partition is not retriable, raises this error.
    """
    pending = dict(values)
    results: dict[TopicPartition, T] = {}
    error_counts: dict[TopicPartition, int] = {}
    while pending:
        yield from await_partitions(view, pending, clock)
        batches = _by_leader(view, pending)
        calls = yield [Ask(request(batch), node=leader) for leader, batch in batches.items()]
        why = "some partitions have no leader"
        for batch, call in zip(batches.values(), calls, strict=True):
            if failed_without_response(call):
                why = str(call.error)
                for partition in batch:
                    view.forget_leader(partition)
                continue
            missing = set(batch)
            for partition, (code, result) in consistent_values(read(call)).items():
                if partition not in batch:
                    continue
                missing.discard(partition)
                if code == 0:
                    results[partition] = result
                    pending.pop(partition, None)
                    continue
                error_counts[partition] = error_counts.get(partition, 0) + 1
                if error_counts[partition] > UNKNOWN_TOPIC_RETRIES and code == UNKNOWN:
                    raise broker_error(code, api, str(partition))
                why = pause_after_error(row, code, api, str(partition)).why
                view.forget_leader(partition)
            if missing:
                why = pause_for_missing(api, min(missing)).why
        if pending:
            yield Rest(why)
    return results


def _by_leader(
    view: ClusterView, values: Mapping[TopicPartition, int]
) -> dict[int, dict[TopicPartition, int]]:
    """Map the node id of each leader to the values of its partitions. Omit partitions without a leader."""
    batches: dict[int, dict[TopicPartition, int]] = {}
    for partition, value in values.items():
        leader = view.leader(partition)
        if leader is not None:
            batches.setdefault(leader, {})[partition] = value
    return batches


def delete_records(
    view: ClusterView, offsets: Mapping[TopicPartition, int], clock: Callable[[], int], *, timeout_ms: int
) -> Plan[dict[TopicPartition, int]]:
    """Delete the records below these offsets. Returns the new start offset of each partition.

    The offset -1 stands for the high watermark.
    """

    def request(partitions: Sequence[TopicPartition]) -> Message:
        topics = [
            DeleteRecordsTopic(
                name=name,
                partitions=[
                    DeleteRecordsPartition(partition_index=p.partition, offset=offsets[p]) for p in entries
                ],
            )
            for name, entries in by_topic(partitions).items()
        ]
        return DeleteRecordsRequest(topics=topics, timeout_ms=timeout_ms)

    def read(call: Call, items: Sequence[TopicPartition]) -> Iterator[Answer[TopicPartition, int]]:
        for topic in expect_response(DeleteRecordsResponse, call).topics:
            for entry in topic.partitions:
                partition = TopicPartition(topic.name, entry.partition_index)
                yield Answer(partition, entry.low_watermark, entry.error_code)

    router: Router[TopicPartition] = to_leaders(view, clock, lambda partition: partition)
    return (yield from fan_out(offsets, router, "DeleteRecords", ADMIN, request, read))


def _epochs_request(epochs: Mapping[TopicPartition, int]) -> Prepared:
    """Build an OffsetForLeaderEpoch request for the epoch of each partition."""
    topics = [
        OffsetForLeaderTopic(
            topic=name,
            partitions=[
                OffsetForLeaderPartition(partition=p.partition, leader_epoch=epochs[p]) for p in partitions
            ],
        )
        for name, partitions in by_topic(epochs).items()
    ]

    def build(version: int) -> Message:
        # Older brokers require the permission ClusterAction, which is meant for brokers.
        require_version("OffsetForLeaderEpoch", version, 3, "2.3", "to be sent by a client")
        return OffsetForLeaderEpochRequest(replica_id=-1, topics=topics)

    return Prepared(OffsetForLeaderEpochRequest, build)


def fetch(
    view: ClusterView,
    offsets: Mapping[TopicPartition, int],
    clock: Callable[[], int],
    *,
    isolation: str,
    max_wait_ms: int,
    min_bytes: int,
    max_bytes: int,
    partition_max_bytes: int,
    lent: bool = False,
) -> Plan[dict[TopicPartition, FetchedBytes]]:
    """Fetch the partitions once from their leaders, without fetch sessions.

    `offsets` maps each partition to the first offset to fetch. The result omits partitions without a leader.

    The error code of a partition is part of the result, and the fetch is not retried. If the leader has
    moved, the next fetch refreshes the metadata first.
    """
    yield from await_partitions(view, offsets, clock)
    batches = _by_leader(view, offsets)

    def request(batch: Mapping[TopicPartition, int]) -> Prepared:
        def build(version: int) -> FetchRequest:
            topics: list[FetchTopic] = []
            for name, partitions in by_topic(batch).items():
                entries = [
                    FetchPartition(
                        partition=partition.partition,
                        fetch_offset=batch[partition],
                        partition_max_bytes=partition_max_bytes,
                    )
                    for partition in partitions
                ]
                topic_id = view.topic_id(name)
                if version > _LAST_VERSION_WITH_NAMES:
                    topics.append(FetchTopic(topic_id=topic_id or NO_TOPIC_ID, partitions=entries))
                else:
                    topics.append(FetchTopic(topic=name, partitions=entries))
            return FetchRequest(
                max_wait_ms=max_wait_ms,
                min_bytes=min_bytes,
                max_bytes=max_bytes,
                isolation_level=ISOLATION_LEVELS[isolation],
                topics=topics,
                forgotten_topics_data=[],
            )

        return Prepared(FetchRequest, build)

    max_version = version_limit(view, (partition.topic for partition in offsets), _LAST_VERSION_WITH_NAMES)
    calls = yield [
        Ask(request(batch), node=leader, lane=FETCH, max_version=max_version)
        for leader, batch in batches.items()
    ]
    fetched: dict[TopicPartition, FetchedBytes] = {}
    for batch, call in zip(batches.values(), calls, strict=True):
        if failed_without_response(call):
            for partition in batch:
                view.forget_leader(partition)
        fetched |= _read_fetch_response(view, call, batch, lent=lent)
    return fetched


def _read_fetch_response(
    view: ClusterView, call: Call, batch: Collection[TopicPartition], *, lent: bool
) -> dict[TopicPartition, FetchedBytes]:
    """Return what a leader has returned for each partition of a request.

    A partition's leader is removed from `view` if the partition's error requires new metadata, or if the
    response does not contain the partition.

    Raises the error of the call if it failed, and BrokerError if the response has a top-level error code.
    """
    fetched: dict[TopicPartition, FetchedBytes] = {}
    response = expect_response(FetchResponse, call)
    if response.error_code:
        raise broker_error(response.error_code, "Fetch")
    for topic in response.responses:
        name = view.topic_name(topic.topic_id) if call.version > _LAST_VERSION_WITH_NAMES else topic.topic
        for entry in topic.partitions:
            partition = TopicPartition(name or "", entry.partition_index)
            if partition not in batch:
                continue
            if action_for(FETCH_ROW, entry.error_code) is ErrorAction.REFRESH_METADATA:
                view.forget_leader(partition)
            fetched[partition] = FetchedBytes(
                (entry.records if lent else bytes(entry.records)) if entry.records else b"",
                entry.error_code,
                entry.high_watermark,
                entry.last_stable_offset if entry.last_stable_offset >= 0 else None,
                entry.log_start_offset if entry.log_start_offset >= 0 else None,
                _aborted_transactions(entry.aborted_transactions),
            )
    for partition in set(batch) - fetched.keys():
        view.forget_leader(partition)
        # The response does not contain the partition. This error code makes the caller fetch the partition
        # again.
        fetched[partition] = FetchedBytes(b"", UNKNOWN, -1, None, None, ())
    return fetched


def _aborted_transactions(transactions: Sequence[AbortedTransaction] | None) -> tuple[tuple[int, int], ...]:
    """Return a pair (producer id, first offset) for each aborted transaction."""
    return tuple((aborted.producer_id, aborted.first_offset) for aborted in transactions or ())


def produce(
    view: ClusterView,
    partition: TopicPartition,
    records: bytes,
    clock: Callable[[], int],
    *,
    acks: int,
    timeout_ms: int,
) -> Plan[int]:
    """Append encoded batches to one partition; return the offset of the first record.

    The plan sends the records again only after a response with a retriable error. If the connection breaks or
    the request times out, the plan raises the error.
    """

    def build(version: int) -> ProduceRequest:
        entry = PartitionProduceData(index=partition.partition, records=records)
        if version > _LAST_VERSION_WITH_NAMES:
            topic_data = TopicProduceData(
                topic_id=view.topic_id(partition.topic) or NO_TOPIC_ID, partition_data=[entry]
            )
        else:
            topic_data = TopicProduceData(name=partition.topic, partition_data=[entry])
        return ProduceRequest(acks=acks, timeout_ms=timeout_ms, topic_data=[topic_data])

    while True:
        yield from await_partitions(view, [partition], clock)
        max_version = version_limit(view, [partition.topic], _LAST_VERSION_WITH_NAMES)
        [call] = yield [
            Ask(Prepared(ProduceRequest, build), node=view.leader(partition), max_version=max_version)
        ]
        if failed_without_response(call):
            # The records are not sent again, because the broker may have appended them. The cached leader is
            # removed, so that the metadata is refreshed before the next request.
            view.forget_leader(partition)
            raise call.error or RequestTimedOut("Produce", timeout_ms)
        entry = consistent_values(
            (TopicPartition(partition.topic, entry.index), entry)
            for topic in expect_response(ProduceResponse, call).responses
            for entry in topic.partition_responses
        ).get(partition)
        if entry is None:  # The outcome is unknown.
            detail = f"the broker's response does not contain {partition}"
            raise broker_error(ErrorCode.UNKNOWN_SERVER_ERROR, "Produce", detail)
        if entry.error_code == 0:
            return entry.base_offset
        detail = f"{partition} {entry.error_message or ''}".rstrip()
        pause = pause_after_error(PRODUCE, entry.error_code, "Produce", detail)
        view.forget_leader(partition)
        yield pause
