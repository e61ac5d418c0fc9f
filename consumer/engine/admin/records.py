"""Plans about what is in partitions: where times are, raw batches read and appended."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeAlias, TypeVar

import msgspec

from kproto.error_codes import ErrorCode
from kproto.errors import RequestTimedOut
from kproto.group.subscription import TopicPartition
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
    EPOCHS,
    LIST_OFFSETS,
    PRODUCE,
    ErrorAction,
    Row,
    action_for,
)
from ..error_actions import FETCH as FETCH_ROW
from ..metadata.cluster import NO_TOPIC_ID, ClusterView
from ..network.client import FETCH
from ..network.connection import Call, Prepared
from ..requests import EARLIEST, ISOLATION, LATEST, by_topic, list_offsets_request, said_once, timestamp_of
from .cluster import know_partitions
from .plan import PATIENCE, Ask, Plan, Rest, expect, left_out, lost, try_again

T = TypeVar("T")
Answers: TypeAlias = Iterator[tuple[TopicPartition, tuple[int, T]]]
"""Partition, and of it the error code and what was said."""

UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class OffsetAt(msgspec.Struct, frozen=True):
    """Where a timestamp is in a partition: `offset` None when no record is that young."""

    offset: int | None
    timestamp: int | None
    leader_epoch: int | None


class FetchedBytes(msgspec.Struct, frozen=True):
    """What a leader answered for one partition: record batches as they are on the wire. Lent ones are a view,
    which keeps the whole answer."""

    records: bytes | memoryview
    error_code: int
    high_watermark: int
    last_stable_offset: int | None
    log_start_offset: int | None
    aborted: tuple[tuple[int, int], ...]  # (producer id, first offset)


def list_offsets(
    view: ClusterView,
    wants: Mapping[TopicPartition, str | int],
    clock: Callable[[], int],
    *,
    isolation: str,
    timeout_ms: int,
) -> Plan[dict[TopicPartition, OffsetAt]]:
    """Where these times are, from each partition's leader."""

    def request(timestamps: Mapping[TopicPartition, int]) -> Message | Prepared:
        return list_offsets_request(view, timestamps, ISOLATION[isolation], timeout_ms)

    def read(call: Call) -> Answers[OffsetAt]:
        for topic in expect(ListOffsetsResponse, call).topics:
            for entry in topic.partitions:
                partition = TopicPartition(topic.name, entry.partition_index)
                if not entry.error_code and entry.offset < 0 and times.get(partition) in (EARLIEST, LATEST):
                    continue  # each log has a beginning and an end: this is no answer
                at = OffsetAt(
                    entry.offset if entry.offset >= 0 else None,
                    entry.timestamp if entry.timestamp >= 0 else None,
                    entry.leader_epoch if entry.leader_epoch >= 0 else None,
                )
                yield partition, (entry.error_code, at)

    times = {partition: timestamp_of(spec) for partition, spec in wants.items()}
    return (yield from _of_leaders(view, times, clock, "ListOffsets", LIST_OFFSETS, request, read))


def epoch_ends(
    view: ClusterView, wants: Mapping[TopicPartition, int], clock: Callable[[], int]
) -> Plan[dict[TopicPartition, int | None]]:
    """Where these leader epochs end in each log, as its leader has it; None where that can't be told."""

    def read(call: Call) -> Answers[int | None]:
        for topic in expect(OffsetForLeaderEpochResponse, call).topics:
            for entry in topic.partitions:
                end = entry.end_offset if entry.end_offset >= 0 else None
                yield TopicPartition(topic.topic, entry.partition), (entry.error_code, end)

    return (yield from _of_leaders(view, wants, clock, "OffsetForLeaderEpoch", EPOCHS, _epochs_request, read))


def _of_leaders(
    view: ClusterView,
    wants: Mapping[TopicPartition, int],
    clock: Callable[[], int],
    api: str,
    row: Row,
    request: Callable[[Mapping[TopicPartition, int]], Message | Prepared],
    read: Callable[[Call], Answers[T]],
) -> Plan[dict[TopicPartition, T]]:
    """What each partition's leader says to `request`, until all have said it."""
    open_ones = dict(wants)
    found: dict[TopicPartition, T] = {}
    turns: dict[TopicPartition, int] = {}
    while open_ones:
        yield from know_partitions(view, open_ones, clock)
        nodes: dict[int, dict[TopicPartition, int]] = {}
        for partition, wanted in open_ones.items():
            leader = view.leader(partition)
            if leader is not None:
                nodes.setdefault(leader, {})[partition] = wanted
        calls = yield [Ask(request(asked), node=node) for node, asked in nodes.items()]
        why = "some partitions have no leader"
        for asked, call in zip(nodes.values(), calls, strict=True):
            if lost(call):
                why = str(call.error)
                for partition in asked:
                    view.forget_leader(partition)
                continue
            unsaid = set(asked)
            for partition, (code, answer) in said_once(read(call)).items():
                if partition not in asked:
                    continue
                unsaid.discard(partition)
                if code == 0:
                    found[partition] = answer
                    open_ones.pop(partition, None)
                    continue
                turns[partition] = turns.get(partition, 0) + 1
                if turns[partition] > PATIENCE and code == UNKNOWN:
                    raise broker_error(code, api, str(partition))
                why = try_again(row, code, api, str(partition)).why
                view.forget_leader(partition)
            if unsaid:
                why = left_out(api, min(unsaid)).why
        if open_ones:
            yield Rest(why)
    return found


def _epochs_request(epochs: Mapping[TopicPartition, int]) -> OffsetForLeaderEpochRequest:
    topics = [
        OffsetForLeaderTopic(
            topic=name,
            partitions=[
                OffsetForLeaderPartition(partition=p.partition, leader_epoch=epochs[p]) for p in partitions
            ],
        )
        for name, partitions in by_topic(epochs).items()
    ]
    return OffsetForLeaderEpochRequest(replica_id=-1, topics=topics)


def fetch(
    view: ClusterView,
    wants: Mapping[TopicPartition, int],
    clock: Callable[[], int],
    *,
    isolation: str,
    max_wait_ms: int,
    min_bytes: int,
    max_bytes: int,
    partition_max_bytes: int,
    lent: bool = False,
) -> Plan[dict[TopicPartition, FetchedBytes]]:
    """One round of fetches without a session, one request per leader. Partition errors are data in the
    result.

    A partition whose leader moved has its error in the result too; ask again, metadata is fresh then.
    """
    yield from know_partitions(view, wants, clock)
    nodes: dict[int, dict[TopicPartition, int]] = {}
    for partition, offset in wants.items():
        leader = view.leader(partition)
        if leader is not None:
            nodes.setdefault(leader, {})[partition] = offset

    def request(offsets: Mapping[TopicPartition, int]) -> Prepared:
        def build(version: int) -> FetchRequest:
            topics: list[FetchTopic] = []
            for name, partitions in by_topic(offsets).items():
                entries = [
                    FetchPartition(
                        partition=partition.partition,
                        fetch_offset=offsets[partition],
                        partition_max_bytes=partition_max_bytes,
                    )
                    for partition in partitions
                ]
                topic_id = view.topic_id(name)
                if version >= 13:
                    topics.append(FetchTopic(topic_id=topic_id or NO_TOPIC_ID, partitions=entries))
                else:
                    topics.append(FetchTopic(topic=name, partitions=entries))
            return FetchRequest(
                max_wait_ms=max_wait_ms,
                min_bytes=min_bytes,
                max_bytes=max_bytes,
                isolation_level=ISOLATION[isolation],
                topics=topics,
                forgotten_topics_data=[],
            )

        return Prepared(FetchRequest, build)

    most = None if all(view.topic_id(partition.topic) for partition in wants) else 12
    calls = yield [
        Ask(request(offsets), node=node, lane=FETCH, max_version=most) for node, offsets in nodes.items()
    ]
    result: dict[TopicPartition, FetchedBytes] = {}
    for (_, offsets), call in zip(nodes.items(), calls, strict=True):
        if lost(call):
            for partition in offsets:
                view.forget_leader(partition)
        response = expect(FetchResponse, call)
        if response.error_code:
            raise broker_error(response.error_code, "Fetch")
        for topic in response.responses:
            name = view.topic_name(topic.topic_id) if call.version >= 13 else topic.topic
            for entry in topic.partitions:
                partition = TopicPartition(name or "", entry.partition_index)
                if partition not in offsets:
                    continue
                if action_for(FETCH_ROW, entry.error_code) is ErrorAction.REFRESH_METADATA:
                    view.forget_leader(partition)
                result[partition] = FetchedBytes(
                    (entry.records if lent else bytes(entry.records)) if entry.records else b"",
                    entry.error_code,
                    entry.high_watermark,
                    entry.last_stable_offset if entry.last_stable_offset >= 0 else None,
                    entry.log_start_offset if entry.log_start_offset >= 0 else None,
                    _aborted(entry.aborted_transactions),
                )
        for partition in offsets.keys() - result.keys():
            view.forget_leader(partition)
            result[partition] = FetchedBytes(b"", UNKNOWN, -1, None, None, ())  # it has to be asked again
    return result


def _aborted(transactions: Sequence[AbortedTransaction] | None) -> tuple[tuple[int, int], ...]:
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
    """Appends encoded batches to one partition; returns the offset of the first record."""

    def build(version: int) -> ProduceRequest:
        entry = PartitionProduceData(index=partition.partition, records=records)
        if version >= 13:
            data = TopicProduceData(
                topic_id=view.topic_id(partition.topic) or NO_TOPIC_ID, partition_data=[entry]
            )
        else:
            data = TopicProduceData(name=partition.topic, partition_data=[entry])
        return ProduceRequest(acks=acks, timeout_ms=timeout_ms, topic_data=[data])

    while True:
        yield from know_partitions(view, [partition], clock)
        most = None if view.topic_id(partition.topic) else 12
        [call] = yield [Ask(Prepared(ProduceRequest, build), node=view.leader(partition), max_version=most)]
        if lost(call):
            # Whether the records arrived is not known here; without an idempotent producer nobody may
            # repeat them. Who leads is asked before the next ones.
            view.forget_leader(partition)
            raise call.error or RequestTimedOut("Produce", timeout_ms)
        entry = said_once(
            (TopicPartition(partition.topic, entry.index), entry)
            for topic in expect(ProduceResponse, call).responses
            for entry in topic.partition_responses
        ).get(partition)
        if entry is None:  # nor is it known here
            detail = f"the broker's response does not contain {partition}"
            raise broker_error(ErrorCode.UNKNOWN_SERVER_ERROR, "Produce", detail)
        if entry.error_code == 0:
            return entry.base_offset
        detail = f"{partition} {entry.error_message or ''}".rstrip()
        rest = try_again(PRODUCE, entry.error_code, "Produce", detail)
        view.forget_leader(partition)
        yield rest
