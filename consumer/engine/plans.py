"""Admin work as plans: generators that say what to ask, and are told the answers.

A plan yields either a list of `Ask` (all of them are sent at once; it is sent back the list of answers, in
the same order, each a message or the error that came instead) or a `Rest` (wait a while; the text says for
what). It returns its result, or raises what the caller shall see. `runner.py` runs them.

Rules that hold here:

* A plan retries what Kafka calls retriable, with growing pauses, for ever: whoever runs it holds the deadline
  and says in its error what the plan was last resting for.
* Wrong leaders and lost connections lead to fresh metadata; an unknown topic does not stay unknown
  quietly: after `PATIENCE` looks it is an `UnknownTopic` (it may have been created a moment ago).
* Offsets, epochs and timestamps that don't exist are None.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import TypeVar

from kproto.errors import ConfigError, ConnectionFailed, RequestTimedOut
from kproto.group.subscription import TopicPartition
from kproto.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from kproto.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from kproto.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from kproto.messages.fetch import AbortedTransaction, FetchPartition, FetchRequest, FetchResponse, FetchTopic
from kproto.messages.find_coordinator import FindCoordinatorResponse
from kproto.messages.list_offsets import (
    ListOffsetsResponse,
)
from kproto.messages.metadata import MetadataResponse
from kproto.messages.offset_commit import (
    OffsetCommitResponse,
)
from kproto.messages.offset_fetch import (
    OffsetFetchResponse,
)
from kproto.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from kproto.wire.message import Message

from ..errors import broker_error, is_retriable
from .connection import Call, Prepared
from .metadata import NO_TOPIC_ID, ClusterView, metadata_request
from .network import FETCH, MAIN
from .requests import (
    ISOLATION,
    CommittedOffset,
    by_topic,
    coordinator_of,
    coordinator_request,
    list_offsets_request,
    most_for_ids,
    offset_commit_codes,
    offset_commit_request,
    offset_fetch_request,
    offset_fetch_result,
    timestamp_of,
)

PATIENCE = 3  # more looks at the metadata, before a topic counts as unknown: 0.7 s

UNKNOWN_TOPIC_OR_PARTITION = 3
LEADER_NOT_AVAILABLE = 5
TOPIC_ALREADY_EXISTS = 36


@dataclass(slots=True)
class Ask:
    """One request to the broker `node`, or to any. `timeout_ms` None: request.timeout.ms."""

    request: Message | Prepared
    node: int | None = None
    lane: int = MAIN
    timeout_ms: int | None = None
    max_version: int | None = None


@dataclass(slots=True)
class Rest:
    """Nothing to do for a while, which grows from rest to rest; `why` is what a caller reads when it gives up
    meanwhile."""

    why: str


Answers = list[Call]
R = TypeVar("R")
Plan = Generator[list[Ask] | Rest, Answers, R]


@dataclass(frozen=True, slots=True)
class OffsetAt:
    """Where a timestamp is in a partition: `offset` None when no record is that young."""

    offset: int | None
    timestamp: int | None
    leader_epoch: int | None


@dataclass(frozen=True, slots=True)
class FetchedBytes:
    """What a leader answered for one partition: record batches as they are on the wire."""

    records: bytes
    error_code: int
    high_watermark: int
    last_stable_offset: int | None
    log_start_offset: int | None
    aborted: tuple[tuple[int, int], ...]  # (producer id, first offset)


def expect(kind: type[R], call: Call) -> R:
    """The call's answer, which must be a `kind`; raises the call's error."""
    if call.error is not None:
        raise call.error
    if not isinstance(call.response, kind):
        raise TypeError(f"{call.name}: expected {kind.__name__}, got {type(call.response).__name__}")
    return call.response


def lost(call: Call) -> bool:
    """True when the call may be repeated: the connection broke, or the broker was silent."""
    return isinstance(call.error, (ConnectionFailed, RequestTimedOut))


# ---- the cluster


def read_metadata(
    view: ClusterView, topics: Iterable[str] | None, clock: Callable[[], int]
) -> Plan[ClusterView]:
    """Asks any broker; every known address is tried before this fails."""
    wanted = None if topics is None else list(topics)
    [call] = yield [Ask(metadata_request(wanted))]
    view.update(expect(MetadataResponse, call), clock(), version=call.version, everything=wanted is None)
    return view


def know_topics(view: ClusterView, topics: Iterable[str], clock: Callable[[], int]) -> Plan[None]:
    """Waits until every topic is known with a leader for each partition; UnknownTopic after some looks."""
    wanted = sorted(set(topics))
    for look in count():
        missing = [name for name in wanted if not _complete(view, name)]
        if not missing:
            return
        denied = [
            (name, known.error_code) for name in missing if (known := view.topics.get(name)) is not None
        ]
        for name, code in denied:
            if code and not is_retriable(code):
                raise broker_error(code, "Metadata", f"topic {name!r}")
            if code == UNKNOWN_TOPIC_OR_PARTITION and look >= PATIENCE:
                raise broker_error(code, "Metadata", f"topic {name!r} doesn't exist on this cluster")
        if look:
            yield Rest(f"topic {missing[0]!r} has no leader for all of its partitions")
        yield from read_metadata(view, wanted, clock)


def _complete(view: ClusterView, name: str) -> bool:
    topic = view.topics.get(name)
    if topic is None or topic.error_code or not topic.partitions:
        return False
    return all(view.leader(TopicPartition(name, index)) is not None for index in topic.partitions)


def know_partitions(
    view: ClusterView, partitions: Iterable[TopicPartition], clock: Callable[[], int]
) -> Plan[None]:
    """Like `know_topics`, and every partition exists."""
    wanted = list(partitions)
    yield from know_topics(view, (partition.topic for partition in wanted), clock)
    for partition in wanted:
        if view.partition(partition) is None:
            yield from read_metadata(view, [partition.topic], clock)
        if view.partition(partition) is None:
            count = len(view.topics[partition.topic].partitions)
            detail = f"{partition.topic}-{partition.partition}: the topic has {count} partitions"
            raise broker_error(UNKNOWN_TOPIC_OR_PARTITION, "Metadata", detail)


def partitions_of(
    view: ClusterView, topic: str, clock: Callable[[], int], *, freshly: bool = False
) -> Plan[list[TopicPartition]]:
    """The topic's partitions, in order."""
    if freshly:
        yield from read_metadata(view, [topic], clock)
    yield from know_topics(view, [topic], clock)
    return [TopicPartition(topic, index) for index in sorted(view.topics[topic].partitions)]


def leader_of(view: ClusterView, partition: TopicPartition, clock: Callable[[], int]) -> Plan[int]:
    """The node id of the partition's leader."""
    yield from know_partitions(view, [partition], clock)
    leader = view.leader(partition)
    if leader is None:
        raise broker_error(LEADER_NOT_AVAILABLE, "Metadata", str(partition))
    return leader


def find_coordinator(view: ClusterView, group: str, clock: Callable[[], int], key_type: int = 0) -> Plan[int]:
    """The node id of the group's coordinator, with its address known."""
    while True:
        [call] = yield [Ask(coordinator_request(group, key_type))]
        found = coordinator_of(expect(FindCoordinatorResponse, call), call.version)
        if isinstance(found, int):
            if found in view.brokers:
                return found
            yield from read_metadata(view, [], clock)
            if found in view.brokers:
                return found
            why = f"broker {found} coordinates group {group!r}, but the cluster doesn't list it"
        else:
            code, why = found
            if not is_retriable(code):
                raise broker_error(code, "FindCoordinator", why or f"group {group!r}")
            why = f"no coordinator for group {group!r} yet (error {code})"
        yield Rest(why)


# ---- topics


def on_controller(
    view: ClusterView,
    request: Callable[[], Message],
    clock: Callable[[], int],
    codes: Callable[[Call], list[int]],
) -> Plan[Call]:
    """Asks the controller; NOT_CONTROLLER and lost connections lead to another look at the metadata."""
    while True:
        if view.controller is None or view.controller not in view.brokers:
            yield from read_metadata(view, [], clock)
        node = view.controller if view.controller in view.brokers else None
        [call] = yield [Ask(request(), node=node)]
        if lost(call):
            view.controller = None
            yield from read_metadata(view, [], clock)
            yield Rest(str(call.error))
            continue
        again = [
            code for code in codes(call) if code and code != UNKNOWN_TOPIC_OR_PARTITION and is_retriable(code)
        ]
        if not again:
            return call
        view.controller = None
        yield Rest(f"{call.name} was answered with error {again[0]}")


def create_topics(
    view: ClusterView,
    topics: Mapping[str, int],
    clock: Callable[[], int],
    *,
    replication_factor: int,
    configs: Mapping[str, str],
    timeout_ms: int,
    exist_ok: bool,
) -> Plan[None]:
    """Creates topics and waits until each partition has a leader."""

    def request() -> CreateTopicsRequest:
        return CreateTopicsRequest(
            topics=[
                CreatableTopic(
                    name=name,
                    num_partitions=count,
                    replication_factor=replication_factor,
                    assignments=[],
                    configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
                )
                for name, count in topics.items()
            ],
            timeout_ms=timeout_ms,
        )

    def codes(call: Call) -> list[int]:
        return [topic.error_code for topic in expect(CreateTopicsResponse, call).topics]

    call = yield from on_controller(view, request, clock, codes)
    for topic in expect(CreateTopicsResponse, call).topics:
        if topic.error_code and not (exist_ok and topic.error_code == TOPIC_ALREADY_EXISTS):
            raise broker_error(
                topic.error_code, "CreateTopics", f"topic {topic.name!r}: {topic.error_message or ''}"
            )
    yield from _grown(view, topics, clock)


def create_partitions(
    view: ClusterView, totals: Mapping[str, int], clock: Callable[[], int], *, timeout_ms: int
) -> Plan[None]:
    """Grows topics to these numbers of partitions and waits until each has a leader."""

    def request() -> CreatePartitionsRequest:
        return CreatePartitionsRequest(
            topics=[
                CreatePartitionsTopic(name=name, count=total, assignments=None)
                for name, total in totals.items()
            ],
            timeout_ms=timeout_ms,
            validate_only=False,
        )

    def codes(call: Call) -> list[int]:
        return [topic.error_code for topic in expect(CreatePartitionsResponse, call).results]

    call = yield from on_controller(view, request, clock, codes)
    for topic in expect(CreatePartitionsResponse, call).results:
        if topic.error_code:
            detail = f"topic {topic.name!r}: {topic.error_message or ''}"
            raise broker_error(topic.error_code, "CreatePartitions", detail)
    yield from _grown(view, totals, clock)


def delete_topics(
    view: ClusterView, topics: Sequence[str], clock: Callable[[], int], *, timeout_ms: int
) -> Plan[None]:
    """Deletes topics with all of their records."""

    def build(version: int) -> DeleteTopicsRequest:
        if version >= 6:
            states = [DeleteTopicState(name=name, topic_id=NO_TOPIC_ID) for name in topics]
            return DeleteTopicsRequest(topics=states, timeout_ms=timeout_ms)
        return DeleteTopicsRequest(topic_names=list(topics), timeout_ms=timeout_ms)

    yield from read_metadata(view, [], clock)
    [call] = yield [Ask(Prepared(DeleteTopicsRequest, build), node=view.controller)]
    for topic in expect(DeleteTopicsResponse, call).responses:
        if topic.error_code:
            raise broker_error(topic.error_code, "DeleteTopics", f"topic {topic.name!r}")
    for name in topics:
        view.topics.pop(name, None)


def _grown(view: ClusterView, totals: Mapping[str, int], clock: Callable[[], int]) -> Plan[None]:
    while True:
        yield from read_metadata(view, totals, clock)
        late = [
            name
            for name, total in totals.items()
            if not _complete(view, name) or (total > 0 and len(view.topics[name].partitions) < total)
        ]
        if not late:
            return
        yield Rest(f"topic {late[0]!r} has no leader for all of its partitions yet")


# ---- offsets


def list_offsets(
    view: ClusterView,
    wants: Mapping[TopicPartition, str | int],
    clock: Callable[[], int],
    *,
    isolation: str,
    timeout_ms: int,
) -> Plan[dict[TopicPartition, OffsetAt]]:
    """Where these times are, from each partition's leader."""
    open_ones = {partition: timestamp_of(spec) for partition, spec in wants.items()}
    found: dict[TopicPartition, OffsetAt] = {}
    turns: dict[TopicPartition, int] = {}
    while open_ones:
        yield from know_partitions(view, open_ones, clock)
        nodes: dict[int, dict[TopicPartition, int]] = {}
        for partition, timestamp in open_ones.items():
            leader = view.leader(partition)
            if leader is not None:
                nodes.setdefault(leader, {})[partition] = timestamp
        level = ISOLATION[isolation]
        calls = yield [
            Ask(list_offsets_request(view, timestamps, level, timeout_ms), node=node)
            for node, timestamps in nodes.items()
        ]
        why = "some partitions have no leader"
        for (_, timestamps), call in zip(nodes.items(), calls, strict=True):
            if lost(call):
                why = str(call.error)
                for partition in timestamps:
                    view.forget_leader(partition)
                continue
            for topic in expect(ListOffsetsResponse, call).topics:
                for entry in topic.partitions:
                    partition = TopicPartition(topic.name, entry.partition_index)
                    if entry.error_code == 0:
                        found[partition] = OffsetAt(
                            entry.offset if entry.offset >= 0 else None,
                            entry.timestamp if entry.timestamp >= 0 else None,
                            entry.leader_epoch if entry.leader_epoch >= 0 else None,
                        )
                        open_ones.pop(partition, None)
                        continue
                    turns[partition] = turns.get(partition, 0) + 1
                    gone = entry.error_code == UNKNOWN_TOPIC_OR_PARTITION and turns[partition] > PATIENCE
                    if gone or not is_retriable(entry.error_code):
                        raise broker_error(
                            entry.error_code, "ListOffsets", f"{partition.topic}-{partition.partition}"
                        )
                    why = (
                        f"{partition.topic}-{partition.partition} was answered with error {entry.error_code}"
                    )
                    view.forget_leader(partition)
        if open_ones:
            yield Rest(why)
    return found


# ---- records


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
                if entry.error_code and is_retriable(entry.error_code):
                    view.forget_leader(partition)
                result[partition] = FetchedBytes(
                    bytes(entry.records or b""),
                    entry.error_code,
                    entry.high_watermark,
                    entry.last_stable_offset if entry.last_stable_offset >= 0 else None,
                    entry.log_start_offset if entry.log_start_offset >= 0 else None,
                    _aborted(entry.aborted_transactions),
                )
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
            # repeat them.
            raise call.error or RequestTimedOut("Produce", timeout_ms)
        entry = expect(ProduceResponse, call).responses[0].partition_responses[0]
        if entry.error_code == 0:
            return entry.base_offset
        if not is_retriable(entry.error_code):
            detail = f"{partition.topic}-{partition.partition} {entry.error_message or ''}".rstrip()
            raise broker_error(entry.error_code, "Produce", detail)
        view.forget_leader(partition)
        yield Rest(f"{partition.topic}-{partition.partition} answered error {entry.error_code}")


# ---- committed offsets


def commit_offsets(
    view: ClusterView,
    group: str,
    offsets: Mapping[TopicPartition, tuple[int, int | None, str]],
    clock: Callable[[], int],
) -> Plan[None]:
    """Commits without being a member; allowed while the group has no members (or doesn't exist)."""
    if not offsets:
        return
    while True:
        node = yield from find_coordinator(view, group, clock)
        most = most_for_ids(view, (partition.topic for partition in offsets), 9)
        [call] = yield [Ask(offset_commit_request(view, group, offsets), node=node, max_version=most)]
        if lost(call):
            yield Rest(str(call.error))
            continue
        codes = offset_commit_codes(view, expect(OffsetCommitResponse, call), call.version)
        bad = {partition: code for partition, code in codes.items() if code}
        if not bad:
            return
        partition, code = next(iter(bad.items()))
        detail = f"group {group!r}, {partition.topic}-{partition.partition}"
        if not is_retriable(code) or code == UNKNOWN_TOPIC_OR_PARTITION:
            raise broker_error(code, "OffsetCommit", detail)
        yield Rest(f"OffsetCommit for {detail}: error {code}")


def committed_offsets(
    view: ClusterView,
    group: str,
    partitions: Iterable[TopicPartition] | None,
    clock: Callable[[], int],
) -> Plan[dict[TopicPartition, CommittedOffset | None]]:
    """What the group committed; None for a partition without a commit. All partitions when none are named."""
    wanted = None if partitions is None else list(partitions)
    while True:
        node = yield from find_coordinator(view, group, clock)
        if wanted is None:
            yield from read_metadata(view, None, clock)
        most = 9 if wanted is None else most_for_ids(view, (partition.topic for partition in wanted), 9)
        [call] = yield [Ask(offset_fetch_request(group, wanted, view), node=node, max_version=most)]
        if lost(call):
            yield Rest(str(call.error))
            continue
        code, found = offset_fetch_result(view, expect(OffsetFetchResponse, call), call.version)
        bad = [code] if code else [value for value in found.values() if isinstance(value, int)]
        if not bad:
            return {partition: value for partition, value in found.items() if not isinstance(value, int)}
        if not is_retriable(bad[0]):
            raise broker_error(bad[0], "OffsetFetch", f"group {group!r}")
        yield Rest(f"OffsetFetch for group {group!r}: error {bad[0]}")


# ---- one request, with the retries that make sense for it


Route = int | tuple[str, str] | tuple[str, str, int] | str | None


def request(
    view: ClusterView, message: Message | Prepared, route: Route, clock: Callable[[], int]
) -> Plan[tuple[Message, int]]:
    """Sends one request where `route` says; returns (response, version). Lost connections are not retried."""
    node: int | None = None
    if isinstance(route, int):
        node = route
        if node not in view.brokers:
            yield from read_metadata(view, [], clock)
    elif route == "controller":
        yield from read_metadata(view, [], clock)
        node = view.controller
    elif isinstance(route, tuple) and len(route) == 2 and route[0] == "group":
        node = yield from find_coordinator(view, route[1], clock)
    elif isinstance(route, tuple) and len(route) == 3 and route[0] == "leader":
        partition = TopicPartition(route[1], route[2])
        yield from know_partitions(view, [partition], clock)
        node = view.leader(partition)
    elif route is not None:
        raise ConfigError(
            "node", route, 'None, a node id, "controller", ("group", name) or ("leader", topic, partition)'
        )
    [call] = yield [Ask(message, node=node)]
    return expect(Message, call), call.version
