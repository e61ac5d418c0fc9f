"""Admin operations that list and change committed offsets, and the start offsets of share groups.

The operations identify topics by name, as Java's admin client does, so that offsets of deleted topics are
listed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Final
from uuid import UUID

import msgspec

from kproto.error_codes import ErrorCode
from kproto.group.subscription import TopicPartition
from kproto.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
    AlterShareGroupOffsetsResponse,
)
from kproto.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
    DeleteShareGroupOffsetsResponse,
)
from kproto.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponsePartition,
)
from kproto.messages.offset_commit import OffsetCommitResponse
from kproto.messages.offset_fetch import OffsetFetchResponse

from ..error_actions import GROUPS, OFFSET_COMMIT, OFFSET_FETCH
from ..metadata.cluster import ClusterView
from ..network.call import Call, Prepared
from ..requests import (
    LAST_VERSION_WITH_NAMES,
    CommittedOffset,
    by_topic,
    offset_commit_codes,
    offset_commit_request,
    offset_fetch_request,
    offset_fetch_result,
)
from .fanout import Answer, Router, fan_out, for_all, to_coordinators
from .group_descriptions import GROUP_KEY, group_name
from .plan import Plan, expect_response

# Without topic ids, an OffsetCommit request identifies topics by name.
_NO_TOPIC_IDS: Final[Mapping[str, UUID]] = {}


class SharePartitionOffset(msgspec.Struct, frozen=True):
    """Where a share group begins to read a partition (KIP-932). Java: SharePartitionOffsetInfo.

    `start_offset` is the first unacknowledged offset. `lag` is the number of unacknowledged records, or None
    from brokers before 4.2.
    """

    start_offset: int
    leader_epoch: int | None = None
    lag: int | None = None


# ---- groups of consumers, and of Streams applications


def list_consumer_group_offsets(
    view: ClusterView,
    groups: Mapping[str, Collection[TopicPartition] | None],
    clock: Callable[[], int],
    *,
    require_stable: bool,
) -> Plan[dict[str, dict[TopicPartition, CommittedOffset | None]]]:
    """Return the committed offsets of each group's partitions.

    `groups` maps a group to the requested partitions, or to None for all partitions with committed offsets.
    In the result, the value for a partition is None if the group has no committed offset for the partition.
    """

    def request(names: Sequence[str]) -> Prepared:
        [name] = names
        return offset_fetch_request(name, groups[name], view, require_stable=require_stable)

    def read(
        call: Call, names: Sequence[str]
    ) -> Iterator[Answer[str, dict[TopicPartition, CommittedOffset | None]]]:
        [name] = names
        response = expect_response(OffsetFetchResponse, call)
        result = offset_fetch_result(view, response, call.version, name)
        if result is not None:
            code, entries = result
            offsets: dict[TopicPartition, CommittedOffset | None] = {}
            message = None
            for partition, entry in sorted(entries.items()):
                if not isinstance(entry, int):
                    offsets[partition] = entry
                elif not code:
                    code, message = entry, str(partition)
            yield Answer(name, offsets, code, message)

    router: Router[str] = to_coordinators(view, GROUP_KEY)
    return (
        yield from fan_out(
            groups,
            router,
            "OffsetFetch",
            OFFSET_FETCH,
            request,
            read,
            one_by_one=True,
            max_version=LAST_VERSION_WITH_NAMES,
            name=group_name,
        )
    )


def alter_consumer_group_offsets(
    view: ClusterView,
    group: str,
    offsets: Mapping[TopicPartition, tuple[int, int | None, str]],
    clock: Callable[[], int],
) -> Plan[dict[TopicPartition, None]]:
    """Commit offsets for a group without members.

    `offsets` maps each partition to (offset, leader epoch, metadata).
    """

    def request(partitions: Sequence[TopicPartition]) -> Prepared:
        requested = {partition: offsets[partition] for partition in partitions}
        return offset_commit_request(_NO_TOPIC_IDS, group, requested)

    def read(call: Call, partitions: Sequence[TopicPartition]) -> Iterator[Answer[TopicPartition, None]]:
        response = expect_response(OffsetCommitResponse, call)
        for partition, code in offset_commit_codes(_NO_TOPIC_IDS, response, call.version, offsets).items():
            has_members = code == ErrorCode.UNKNOWN_MEMBER_ID
            message = "the group has members: stop them first" if has_members else None
            yield Answer(partition, None, code, message)

    router: Router[TopicPartition] = to_coordinators(view, GROUP_KEY, lambda partition: group)
    return (
        yield from fan_out(
            offsets,
            router,
            "OffsetCommit",
            OFFSET_COMMIT,
            request,
            read,
            max_version=LAST_VERSION_WITH_NAMES,
            name=_item_name_in(group),
        )
    )


# ---- share groups


def list_share_group_offsets(
    view: ClusterView, groups: Mapping[str, Collection[TopicPartition] | None], clock: Callable[[], int]
) -> Plan[dict[str, dict[TopicPartition, SharePartitionOffset | None]]]:
    """Return the start offsets of each share group.

    The value for a partition is None if the group has no start offset for it.
    """

    def request(names: Sequence[str]) -> DescribeShareGroupOffsetsRequest:
        entries: list[DescribeShareGroupOffsetsRequestGroup] = []
        for name in names:
            partitions = groups[name]
            topics = None  # All topics.
            if partitions is not None:
                topics = [
                    DescribeShareGroupOffsetsRequestTopic(
                        topic_name=topic, partitions=[partition.partition for partition in topic_partitions]
                    )
                    for topic, topic_partitions in by_topic(partitions).items()
                ]
            entries.append(DescribeShareGroupOffsetsRequestGroup(group_id=name, topics=topics))
        return DescribeShareGroupOffsetsRequest(groups=entries)

    def read(
        call: Call, names: Sequence[str]
    ) -> Iterator[Answer[str, dict[TopicPartition, SharePartitionOffset | None]]]:
        for group in expect_response(DescribeShareGroupOffsetsResponse, call).groups:
            code, message = group.error_code, group.error_message
            offsets: dict[TopicPartition, SharePartitionOffset | None] = {}
            for topic in group.topics:
                for entry in topic.partitions:
                    partition = TopicPartition(topic.topic_name, entry.partition_index)
                    if entry.error_code and not code:
                        code, message = entry.error_code, f"{partition} {entry.error_message or ''}".rstrip()
                    offsets[partition] = _share_partition_offset(entry)
            yield Answer(group.group_id, dict(sorted(offsets.items())), code, message)

    router: Router[str] = to_coordinators(view, GROUP_KEY)
    api = "DescribeShareGroupOffsets"
    return (yield from fan_out(groups, router, api, GROUPS, request, read, name=group_name))


def _share_partition_offset(entry: DescribeShareGroupOffsetsResponsePartition) -> SharePartitionOffset | None:
    if entry.start_offset < 0:
        return None
    return SharePartitionOffset(
        entry.start_offset,
        leader_epoch=entry.leader_epoch if entry.leader_epoch >= 0 else None,
        lag=entry.lag if entry.lag >= 0 else None,
    )


def alter_share_group_offsets(
    view: ClusterView, group: str, offsets: Mapping[TopicPartition, int], clock: Callable[[], int]
) -> Plan[dict[TopicPartition, None]]:
    """Set the start offset of each partition in a share group without members."""

    def request(partitions: Sequence[TopicPartition]) -> AlterShareGroupOffsetsRequest:
        return AlterShareGroupOffsetsRequest(
            group_id=group,
            topics=[
                AlterShareGroupOffsetsRequestTopic(
                    topic_name=topic,
                    partitions=[
                        AlterShareGroupOffsetsRequestPartition(
                            partition_index=partition.partition, start_offset=offsets[partition]
                        )
                        for partition in topic_partitions
                    ],
                )
                for topic, topic_partitions in by_topic(partitions).items()
            ],
        )

    def read(call: Call, partitions: Sequence[TopicPartition]) -> Iterator[Answer[TopicPartition, None]]:
        response = expect_response(AlterShareGroupOffsetsResponse, call)
        if response.error_code:
            yield from for_all(partitions, response.error_code, response.error_message)
        for topic in response.responses:
            for entry in topic.partitions:
                partition = TopicPartition(topic.topic_name, entry.partition_index)
                yield Answer(partition, None, entry.error_code, entry.error_message)

    router: Router[TopicPartition] = to_coordinators(view, GROUP_KEY, lambda partition: group)
    api = "AlterShareGroupOffsets"
    return (yield from fan_out(offsets, router, api, GROUPS, request, read, name=_item_name_in(group)))


def delete_share_group_offsets(
    view: ClusterView, group: str, topics: Collection[str], clock: Callable[[], int]
) -> Plan[dict[str, None]]:
    """Delete the start offsets of these topics in a share group without members."""

    def request(names: Sequence[str]) -> DeleteShareGroupOffsetsRequest:
        entries = [DeleteShareGroupOffsetsRequestTopic(topic_name=name) for name in names]
        return DeleteShareGroupOffsetsRequest(group_id=group, topics=entries)

    def read(call: Call, names: Sequence[str]) -> Iterator[Answer[str, None]]:
        response = expect_response(DeleteShareGroupOffsetsResponse, call)
        if response.error_code:
            yield from for_all(names, response.error_code, response.error_message)
        for topic in response.responses:
            yield Answer(topic.topic_name, None, topic.error_code, topic.error_message)

    router: Router[str] = to_coordinators(view, GROUP_KEY, lambda topic: group)
    api = "DeleteShareGroupOffsets"
    return (yield from fan_out(topics, router, api, GROUPS, request, read, name=_item_name_in(group)))


def _item_name_in(group: str) -> Callable[[object], str]:
    """Return a function that describes a partition or topic of the group for error messages."""
    return lambda item: f"group {group!r}, {item}"
