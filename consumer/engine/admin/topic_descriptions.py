"""Admin operations that list and describe topics, with their partitions, replicas and allowed operations."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Final, TypeAlias
from uuid import UUID

import msgspec
from msgspec.structs import replace

from kproto.errors import PartialFailure
from kproto.group.subscription import TopicPartition
from kproto.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsRequestCursor,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponseCursor,
    DescribeTopicPartitionsResponsePartition,
    TopicRequest,
)
from kproto.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)

from ..error_actions import METADATA
from ..metadata.cluster import NO_TOPIC_ID, ClusterView
from ..network.call import Call, Prepared
from .fanout import Answer, Router, ask_broker, fan_out, to_any_broker
from .plan import Ask, DeadlinePassed, Plan, expect_response

# The value of a bit field of authorized operations if the operations were not requested.
_NOT_REQUESTED: Final = -0x80000000
# Kafka's AclOperation codes. Each code is also the position of the operation's bit in a bit field of
# authorized operations.
OPERATIONS: Final = {
    "any": 1,
    "all": 2,
    "read": 3,
    "write": 4,
    "create": 5,
    "delete": 6,
    "alter": 7,
    "describe": 8,
    "cluster_action": 9,
    "describe_configs": 10,
    "alter_configs": 11,
    "idempotent_write": 12,
    "create_tokens": 13,
    "describe_tokens": 14,
    "two_phase_commit": 15,
}


class TopicListing(msgspec.Struct, frozen=True):
    """A topic of the cluster. `topic_id` is None from brokers before 2.8. Java: TopicListing."""

    name: str
    topic_id: UUID | None
    is_internal: bool


class TopicPartitionInfo(msgspec.Struct, frozen=True):
    """One partition of a topic: the node ids of its leader and its replicas. Java: TopicPartitionInfo.

    `leader` is None if the partition has no leader. The first of `replicas` is the preferred leader.

    `isr` contains the in-sync replicas. `offline_replicas` contains the replicas whose broker or log
    directory is offline.

    `elr` contains the eligible leader replicas, and `last_known_elr` the last known ones (KIP-966). Both are
    None from brokers before 4.0.
    """

    partition: int
    leader: int | None
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline_replicas: tuple[int, ...] = ()
    leader_epoch: int | None = None
    elr: tuple[int, ...] | None = None
    last_known_elr: tuple[int, ...] | None = None


class TopicDescription(msgspec.Struct, frozen=True):
    """A topic with its partitions, in ascending order. Java: TopicDescription.

    `topic_id` is None from brokers before 2.8.

    `authorized_operations` contains the operations that the client may perform, such as "read". It is None if
    they were not requested (KIP-430).
    """

    name: str
    topic_id: UUID | None
    is_internal: bool
    partitions: tuple[TopicPartitionInfo, ...]
    authorized_operations: frozenset[str] | None = None


def list_topics(
    view: ClusterView, clock: Callable[[], int], *, include_internal: bool
) -> Plan[dict[str, TopicListing]]:
    """Return every topic that the client may describe, sorted by name."""

    def read(call: Call) -> tuple[int, str | None, dict[str, TopicListing]]:
        response = expect_response(MetadataResponse, call)
        listings = {
            topic.name: TopicListing(topic.name, _topic_id(topic), topic.is_internal)
            for topic in sorted(response.topics, key=lambda topic: topic.name or "")
            if topic.name and (include_internal or not topic.is_internal)
        }
        return response.error_code, None, listings

    request = _metadata_request(None, include_authorized_operations=False)
    return (yield from ask_broker(to_any_broker(view, clock), "Metadata", METADATA, request, read))


def describe_topics(
    view: ClusterView,
    names: Collection[str],
    clock: Callable[[], int],
    *,
    include_authorized_operations: bool,
) -> Plan[dict[str, TopicDescription]]:
    """Return the description of each topic. From version 4 on, the request does not create missing topics."""

    def request(items: Sequence[str]) -> Prepared:
        return _metadata_request(items, include_authorized_operations)

    def read(call: Call, items: Sequence[str]) -> Iterator[Answer[str, TopicDescription]]:
        for topic in expect_response(MetadataResponse, call).topics:
            yield Answer(topic.name or "", _topic_description(topic), topic.error_code)

    router: Router[str] = to_any_broker(view, clock)
    failure: PartialFailure | None = None
    try:
        topics: Mapping[str, TopicDescription] = yield from fan_out(
            names, router, "Metadata", METADATA, request, read, name=lambda name: f"topic {name!r}"
        )
    except PartialFailure as error:
        failure, topics = error, error.succeeded
    eligible_leaders = yield from _describe_eligible_leaders(sorted(topics))
    described = {name: _with_eligible_leaders(topic, eligible_leaders) for name, topic in topics.items()}
    if failure is not None:
        raise PartialFailure(failure.call, described, failure.failed)
    return described


# The entries of DescribeTopicPartitions responses, which contain the eligible leader replicas.
EligibleLeaders: TypeAlias = dict[TopicPartition, DescribeTopicPartitionsResponsePartition]


def _describe_eligible_leaders(topics: Sequence[str]) -> Plan[EligibleLeaders]:
    """Return each partition's eligible leader replicas, which Metadata responses do not contain.

    A response contains at most 2,000 partitions. The next request continues at the cursor of the previous
    response.

    If a request fails, the plan raises no error: it returns the partitions of the earlier responses.
    """
    leaders: EligibleLeaders = {}
    request: DescribeTopicPartitionsRequest | None = None
    if topics:
        request = DescribeTopicPartitionsRequest(topics=[TopicRequest(name=name) for name in topics])
    while request is not None:
        try:
            [call] = yield [Ask(request)]
        except DeadlinePassed:
            break
        if call.error is not None:
            break
        response = expect_response(DescribeTopicPartitionsResponse, call)
        for topic in response.topics:
            for entry in topic.partitions:
                leaders[TopicPartition(topic.name or "", entry.partition_index)] = entry
        request = _next_page(request, response.next_cursor)
    return leaders


def _next_page(
    request: DescribeTopicPartitionsRequest, cursor: DescribeTopicPartitionsResponseCursor | None
) -> DescribeTopicPartitionsRequest | None:
    """Return the request for the page that starts at the cursor, or None after the last page.

    The result is also None if the cursor does not advance, so that a faulty broker cannot cause endless
    requests.
    """
    if cursor is None:
        return None
    next_cursor = DescribeTopicPartitionsRequestCursor(
        topic_name=cursor.topic_name, partition_index=cursor.partition_index
    )
    previous = request.cursor
    if previous is not None and (previous.topic_name, previous.partition_index) >= (
        next_cursor.topic_name,
        next_cursor.partition_index,
    ):
        return None
    return DescribeTopicPartitionsRequest(topics=request.topics, cursor=next_cursor)


def _with_eligible_leaders(topic: TopicDescription, leaders: EligibleLeaders) -> TopicDescription:
    """Return the description with the eligible leader replicas of each partition in `leaders`."""

    def describe_partition(info: TopicPartitionInfo) -> TopicPartitionInfo:
        entry = leaders.get(TopicPartition(topic.name, info.partition))
        if entry is None:
            return info
        return replace(
            info,
            elr=tuple(entry.eligible_leader_replicas or ()),
            last_known_elr=tuple(entry.last_known_elr or ()),
        )

    return replace(topic, partitions=tuple(map(describe_partition, topic.partitions)))


def _metadata_request(names: Sequence[str] | None, include_authorized_operations: bool) -> Prepared:
    """Return a Metadata request for these topics, or for all topics if `names` is None."""

    def build(version: int) -> MetadataRequest:
        topics = None if names is None else [MetadataRequestTopic(name=name) for name in names]
        return MetadataRequest(
            # In version 0 an empty list stands for all topics, and null is not allowed.
            topics=[] if topics is None and version == 0 else topics,
            allow_auto_topic_creation=version < 4,  # Requests below v4 cannot forbid topic creation.
            include_topic_authorized_operations=include_authorized_operations and version >= 8,
        )

    return Prepared(MetadataRequest, build)


def _topic_id(topic: MetadataResponseTopic) -> UUID | None:
    return None if topic.topic_id == NO_TOPIC_ID else topic.topic_id


def _topic_description(topic: MetadataResponseTopic) -> TopicDescription:
    return TopicDescription(
        topic.name or "",
        _topic_id(topic),
        topic.is_internal,
        tuple(
            TopicPartitionInfo(
                entry.partition_index,
                entry.leader_id if entry.leader_id >= 0 else None,
                tuple(entry.replica_nodes),
                tuple(entry.isr_nodes),
                tuple(entry.offline_replicas),
                entry.leader_epoch if entry.leader_epoch >= 0 else None,
            )
            for entry in sorted(topic.partitions, key=lambda entry: entry.partition_index)
        ),
        operations_of(topic.topic_authorized_operations),
    )


def operations_of(bits: int) -> frozenset[str] | None:
    """Return the operations that are set in a bit field, or None if they were not requested."""
    if bits == _NOT_REQUESTED:
        return None
    return frozenset(name for name, bit in OPERATIONS.items() if bits >> bit & 1)
