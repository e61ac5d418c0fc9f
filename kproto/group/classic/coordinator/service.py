"""The classic coordinator's implementation of `GroupCoordinator`, the interface that the broker uses."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from ....error_codes import ErrorCode
from ....machine import RequestReceived, SendResponse
from ....messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from ....messages.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse
from ....messages.list_groups import ListGroupsRequest, ListGroupsResponse
from ....messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from ....wire.message import Message
from ...protocol import CoordinatorAction, CoordinatorEvent, GroupDescription, MemberDescription
from ...subscription import TopicPartition
from . import responses, table
from .description import CLASSIC
from .state import CoordinatorState, GroupContext

# From this version on, OffsetFetch has an error code for the whole request.
_OFFSET_FETCH_ERROR_VERSION = 2
# From this version on, OffsetFetch has a list of groups (KIP-709).
_BATCH_FETCH_VERSION = 8


class ClassicCoordinator(CoordinatorState):
    """The coordinator of all classic groups of a cluster: Kafka's GroupCoordinatorService and its shards."""

    __slots__ = ()

    @property
    def requests(self) -> Collection[type[Message]]:
        """The request classes that `step` serves."""
        return table.REQUESTS

    def step(self, event: CoordinatorEvent, now: int) -> list[CoordinatorAction]:
        """Apply one event and return the actions to perform, in order."""
        return table.step(self, event, now)

    def next_deadline(self) -> int | None:
        """Return the time at which a `Tick` is due, or None if no deadline is set."""
        return table.next_deadline(self)

    def group_ids(self) -> Collection[str]:
        """Return the ids of all groups, including groups that have offsets but no members."""
        return self.groups.keys()

    def describe(self, group_id: str) -> GroupDescription | None:
        """Return the group as it is now, or None if it does not exist."""
        group = self.groups.get(group_id)
        if group is None:
            return None
        return GroupDescription(
            group_id=group_id,
            group_type=CLASSIC,
            protocol_type=group.protocol_type or "",
            state=group.state.value,
            epoch=group.generation,
            members=tuple(
                MemberDescription(
                    member.member_id,
                    member.group_instance_id,
                    member.client_id,
                    member.client_host,
                    member.assignment,
                )
                for member in group.members.values()
            ),
            leader=group.leader,
        )

    def committed_offset(self, group_id: str, partition: TopicPartition) -> int | None:
        """Return the group's committed offset for a partition, or None if no offset is committed."""
        group = self.groups.get(group_id)
        offsets = {} if group is None else group.offsets.get(partition.topic, {})
        stored = offsets.get(partition.partition)
        return None if stored is None else stored.offset

    def has_pending_offsets(self, group_id: str, producer_id: int) -> bool:
        """Return whether the producer's open transaction contains offsets of the group."""
        group = self.groups.get(group_id)
        return group is not None and producer_id in group.pending_transactions

    def hand_over(self, group_id: str, ready_at: int) -> list[SendResponse]:
        """Answer delayed requests with NOT_COORDINATOR because another node takes over (R175, R179).

        `ready_at` is the time at which the new coordinator will have loaded the group. All session timeouts
        restart at this time (GroupMetadataManager.onUnloaded and onLoaded).
        """
        group = self.groups.get(group_id)
        if group is None:
            return []
        actions: list[SendResponse] = []
        # `restart_session` reads the time from this context.
        context = GroupContext(self, now=ready_at)
        for member in group.members.values():
            delayed_calls: list[RequestReceived[Any] | None] = [group.release_join(member), member.sync]
            member.sync = None
            for call in delayed_calls:
                if call is not None:
                    response = self.error_response(call.request, ErrorCode.NOT_COORDINATOR, call.version)
                    actions.append(SendResponse(call.token, response))
            context.restart_session(group, member)
        return actions

    def error_response(self, request: Message, code: ErrorCode, version: int) -> Message:
        """Return a response that only reports this error.

        `request` must be of a class in `requests`.
        """
        match request:
            case OffsetFetchRequest():
                return _offset_fetch_error(request, code, version)
            case DescribeGroupsRequest():
                return DescribeGroupsResponse(
                    groups=[describe_error(group_id, code) for group_id in request.groups]
                )
            case DeleteGroupsRequest():
                results = [
                    DeletableGroupResult(group_id=group_id, error_code=code)
                    for group_id in request.groups_names
                ]
                return DeleteGroupsResponse(throttle_time_ms=0, results=results)
            case ListGroupsRequest():
                return ListGroupsResponse(error_code=code, groups=[])
            case _:
                return responses.error_response(request, code, version)


def describe_error(group_id: str, code: ErrorCode) -> DescribedGroup:
    """Return the entry of DescribeGroups for a group that cannot be described."""
    return DescribedGroup(
        error_code=code, group_id=group_id, group_state="", protocol_type="", protocol_data="", members=[]
    )


def _offset_fetch_error(request: OffsetFetchRequest, code: ErrorCode, version: int) -> OffsetFetchResponse:
    """Return an OffsetFetch response that only reports this error (R4, R104).

    The error is reported per group from v8 on, once for the whole request in v2 to v7, and per partition
    below v2.
    """
    if version >= _BATCH_FETCH_VERSION:
        groups = [
            OffsetFetchResponseGroup(group_id=group.group_id, topics=[], error_code=code)
            for group in request.groups
        ]
        return OffsetFetchResponse(groups=groups)
    if version >= _OFFSET_FETCH_ERROR_VERSION:
        return OffsetFetchResponse(topics=[], error_code=code)
    return OffsetFetchResponse(
        topics=[
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=index, committed_offset=-1, metadata="", error_code=code
                    )
                    for index in topic.partition_indexes
                ],
            )
            for topic in request.topics or ()
        ]
    )
