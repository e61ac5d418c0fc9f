"""Admin operations that delete groups and their committed offsets, and remove members of groups."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence

from kproto.error_codes import ErrorCode
from kproto.errors import UnsupportedVersion
from kproto.group.subscription import TopicPartition
from kproto.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from kproto.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from kproto.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)

from ..error_actions import GROUPS
from ..metadata.cluster import ClusterView
from ..network.call import Call, Prepared
from ..requests import by_topic
from .fanout import Answer, Router, fan_out, for_all, to_coordinators
from .group_descriptions import GROUP_KEY, group_name
from .groups import describe_group
from .plan import Plan, expect_response


def delete_groups(
    view: ClusterView, names: Collection[str], clock: Callable[[], int]
) -> Plan[dict[str, None]]:
    """Delete groups of any type, together with their committed offsets. A group must have no members."""

    def request(items: Sequence[str]) -> DeleteGroupsRequest:
        return DeleteGroupsRequest(groups_names=list(items))

    def read(call: Call, items: Sequence[str]) -> Iterator[Answer[str, None]]:
        for result in expect_response(DeleteGroupsResponse, call).results:
            message = result.error_message
            if result.error_code == ErrorCode.NON_EMPTY_GROUP:
                message = "the group has members: stop them first"
            yield Answer(result.group_id, None, result.error_code, message)

    router: Router[str] = to_coordinators(view, GROUP_KEY)
    return (
        yield from fan_out(
            names,
            router,
            "DeleteGroups",
            GROUPS,
            request,
            read,
            executed_code=ErrorCode.GROUP_ID_NOT_FOUND,
            name=group_name,
        )
    )


def remove_members(
    view: ClusterView,
    group: str,
    instance_ids: Collection[str] | None,
    reason: str | None,
    clock: Callable[[], int],
) -> Plan[dict[str, None]]:
    """Remove static members from a group, or all members if `instance_ids` is None.

    The keys of the result are the instance ids or, if all members are removed, the member ids.
    """
    if instance_ids is None:
        description = yield from describe_group(view, group, clock)
        members = {
            member.member_id: MemberIdentity(
                member_id=member.member_id, group_instance_id=member.group_instance_id, reason=reason
            )
            for member in (description.members if description is not None else ())
        }
    else:
        members = {
            instance_id: MemberIdentity(member_id="", group_instance_id=instance_id, reason=reason)
            for instance_id in instance_ids
        }

    def request(keys: Sequence[str]) -> Prepared:
        def build(version: int) -> LeaveGroupRequest:
            if version < 3:
                raise UnsupportedVersion("LeaveGroup", version, "3 and higher (Kafka 2.4 and later)")
            return LeaveGroupRequest(group_id=group, members=[members[key] for key in keys])

        return Prepared(LeaveGroupRequest, build)

    def read(call: Call, keys: Sequence[str]) -> Iterator[Answer[str, None]]:
        response = expect_response(LeaveGroupResponse, call)
        if response.error_code:
            yield from for_all(keys, response.error_code)
        for entry in response.members:
            key = entry.member_id if instance_ids is None else entry.group_instance_id or ""
            yield Answer(key, None, entry.error_code)

    router: Router[str] = to_coordinators(view, GROUP_KEY, lambda key: group)
    return (
        yield from fan_out(
            members,
            router,
            "LeaveGroup",
            GROUPS,
            request,
            read,
            executed_code=ErrorCode.UNKNOWN_MEMBER_ID,
            name=lambda key: f"group {group!r}, member {key!r}",
        )
    )


def delete_offsets(
    view: ClusterView, group: str, partitions: Collection[TopicPartition], clock: Callable[[], int]
) -> Plan[dict[TopicPartition, None]]:
    """Delete the committed offsets of these partitions in a group."""

    def request(items: Sequence[TopicPartition]) -> OffsetDeleteRequest:
        return OffsetDeleteRequest(
            group_id=group,
            topics=[
                OffsetDeleteRequestTopic(
                    name=topic,
                    partitions=[
                        OffsetDeleteRequestPartition(partition_index=partition.partition)
                        for partition in topic_partitions
                    ],
                )
                for topic, topic_partitions in by_topic(items).items()
            ],
        )

    def read(call: Call, items: Sequence[TopicPartition]) -> Iterator[Answer[TopicPartition, None]]:
        response = expect_response(OffsetDeleteResponse, call)
        if response.error_code:
            yield from for_all(items, response.error_code)
        for topic in response.topics:
            for entry in topic.partitions:
                yield Answer(TopicPartition(topic.name, entry.partition_index), None, entry.error_code)

    router: Router[TopicPartition] = to_coordinators(view, GROUP_KEY, lambda partition: group)

    def name(partition: TopicPartition) -> str:
        return f"group {group!r}, {partition}"

    return (yield from fan_out(partitions, router, "OffsetDelete", GROUPS, request, read, name=name))
