"""Plans that list, describe and delete groups, and compute the lag of a group."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import msgspec

from kproto.error_codes import ErrorCode
from kproto.errors import DecodeError, UnsupportedVersion
from kproto.group.subscription import Assignment, TopicPartition
from kproto.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from kproto.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from kproto.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from kproto.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from kproto.messages.share_group_describe import ShareGroupDescribeRequest
from kproto.messages.streams_group_describe import StreamsGroupDescribeRequest
from kproto.wire.message import Message

from ..error_actions import GROUPS
from ..metadata.cluster import ClusterView
from ..network.call import Call
from .cluster import find_coordinator, read_metadata
from .offsets import committed_offsets
from .plan import (
    Ask,
    Plan,
    Rest,
    expect_response,
    may_repeat,
    pause_after_error,
)
from .records import list_offsets

# The state that DescribeGroups returns for a group that does not exist.
DEAD = "Dead"


class ListedGroup(msgspec.Struct, frozen=True):
    """A group, as its coordinator returned it in ListGroups.

    `state` has the same values as `Group.state`; it is None from brokers before 2.6. `protocol_type` is
    "consumer" for consumers, "connect" for Kafka Connect, and "" for a group that only has committed offsets.
    `type` is "classic", "consumer" (KIP-848), "share" (KIP-932) or "streams" (KIP-1071); it is None from
    brokers before 3.8.
    """

    name: str
    state: str | None
    protocol_type: str
    type: str | None = None


class GroupMember(msgspec.Struct, frozen=True):
    """One member of a group: its client, and the partitions assigned to it.

    `partitions` is empty if the assignment cannot be decoded; `assignment_error` then says why. `partitions`
    is also empty for members of Streams groups, which are assigned tasks.
    """

    member_id: str
    client_id: str
    host: str
    group_instance_id: str | None
    partitions: tuple[TopicPartition, ...]
    assignment_error: str | None = None


class Group(msgspec.Struct, frozen=True):
    """A group with its members, committed offsets and lag, as its coordinator described it.

    `state` is Kafka's name of the group state: Empty, PreparingRebalance, CompletingRebalance, Stable, or
    Dead for a group that does not exist. A committed offset is that of the *next* record to read. `lag` maps
    each partition to the number of its records that the group has not committed. It covers all partitions of
    a topic if at least one of them has a commit or is assigned. If a partition has no commit, all of its
    records count. `type` is the value of `ListedGroup.type`, or None if the group does not exist. A share
    group has no committed offsets and no lag.
    """

    name: str
    state: str
    members: tuple[GroupMember, ...] = ()
    committed: Mapping[TopicPartition, int] = {}
    lag: Mapping[TopicPartition, int] = {}
    type: str | None = None

    @property
    def total_lag(self) -> int | None:
        """Total number of records that the group has not committed.

        The number is None for a group without commits and without assigned partitions.
        """
        return sum(self.lag.values()) if self.lag else None

    @property
    def owners(self) -> dict[TopicPartition, str]:
        """Map each partition to the member id of its owner."""
        return {partition: member.member_id for member in self.members for partition in member.partitions}


class _Description(msgspec.Struct, frozen=True):
    state: str
    type: str | None
    members: tuple[GroupMember, ...] = ()


# Group type -> the request that describes groups of this type. DescribeGroups only describes classic groups
# (KIP-1043).
_DESCRIBE_REQUESTS: Final[Mapping[str, type[Message]]] = {
    "consumer": ConsumerGroupDescribeRequest,
    "share": ShareGroupDescribeRequest,
    "streams": StreamsGroupDescribeRequest,
}


def groups(view: ClusterView, clock: Callable[[], int]) -> Plan[dict[str, ListedGroup]]:
    """Return every group of the cluster. Each broker lists the groups that it coordinates."""
    yield from read_metadata(view, [], clock)
    by_node: dict[int, dict[str, ListedGroup]] = {}
    while waiting := sorted(view.brokers.keys() - by_node.keys()):
        calls = yield [Ask(ListGroupsRequest(), node=node) for node in waiting]
        pause: Rest | None = None
        for node, call in zip(waiting, calls, strict=True):
            if may_repeat(call):
                pause = Rest(str(call.error))
                continue
            response = expect_response(ListGroupsResponse, call)
            if response.error_code:
                pause = pause_after_error(GROUPS, response.error_code, "ListGroups", f"broker {node}")
                continue
            by_node[node] = {
                listed_group.group_id: ListedGroup(
                    listed_group.group_id,
                    listed_group.group_state or None,
                    listed_group.protocol_type,
                    listed_group.group_type or None,
                )
                for listed_group in response.groups
            }
        if pause is not None:
            yield pause
            # The broker has been removed from the cluster: other brokers coordinate its groups now and list
            # them.
            yield from read_metadata(view, [], clock)
    return {
        name: listed_group for node in sorted(by_node) for name, listed_group in sorted(by_node[node].items())
    }


def group(view: ClusterView, name: str, clock: Callable[[], int]) -> Plan[Group]:
    """Return the group's state, members, committed offsets and lag."""
    description = yield from describe(view, name, clock)
    state, members = description.state, description.members
    if description.type == "share":
        return Group(name, state, members, type=description.type)
    values = yield from committed_offsets(view, name, None, clock)
    committed = {partition: value.offset for partition, value in values.items() if value is not None}
    owned = (partition for member in members for partition in member.partitions)
    lag = yield from _lag(view, committed, owned, clock)
    return Group(name, state, members, committed, lag, description.type)


def describe(view: ClusterView, name: str, clock: Callable[[], int]) -> Plan[_Description]:
    """Return the state, the type and the members of a group.

    DescribeGroups returns the state Dead both for a group that is not of type "classic" and for a group that
    does not exist.
    """
    while True:
        call = yield from _request_coordinator(view, name, DescribeGroupsRequest(groups=[name]), clock)
        description = next(
            (
                member
                for member in expect_response(DescribeGroupsResponse, call).groups
                if member.group_id == name
            ),
            None,
        )
        if description is None:
            yield Rest(f"the response to DescribeGroups does not contain group {name!r}")
        elif description.group_state == DEAD:
            break
        elif description.error_code:
            yield pause_after_error(GROUPS, description.error_code, "DescribeGroups", f"group {name!r}")
        else:
            consumers = description.protocol_type == "consumer"
            return _Description(
                description.group_state,
                "classic",
                tuple(
                    GroupMember(
                        member.member_id,
                        member.client_id,
                        member.client_host,
                        member.group_instance_id,
                        *(_assigned_partitions(member.member_assignment) if consumers else ((), None)),
                    )
                    for member in description.members
                ),
            )
    for group_type, request in _DESCRIBE_REQUESTS.items():
        described = yield from _describe_as(group_type, request, view, name, clock)
        if described is not None:
            return described
    return _Description(DEAD, None)


def _describe_as(
    group_type: str, request: type[Message], view: ClusterView, name: str, clock: Callable[[], int]
) -> Plan[_Description | None]:
    """Describe the group `name` as a group of the type `group_type`. Returns None if it is not a group of
    this type.
    """
    message = request(group_ids=[name], include_authorized_operations=False)  # type: ignore[call-arg]
    while True:
        call = yield from _request_coordinator(view, name, message, clock)
        if isinstance(call.error, UnsupportedVersion):
            return None
        response: Any = expect_response(Message, call)
        description = next((member for member in response.groups if member.group_id == name), None)
        if description is None:
            yield Rest(f"the response to {call.name} does not contain group {name!r}")
        elif description.error_code in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION):
            return None
        elif description.error_code:
            yield pause_after_error(GROUPS, description.error_code, call.name, f"group {name!r}")
        else:
            return _Description(
                description.group_state,
                group_type,
                tuple(
                    GroupMember(
                        member.member_id,
                        member.client_id,
                        member.client_host,
                        None if group_type == "share" else member.instance_id,
                        () if group_type == "streams" else _named_partitions(member.assignment),
                    )
                    for member in description.members
                ),
            )


def _named_partitions(assignment: Any) -> tuple[TopicPartition, ...]:
    """Return the partitions of an `assignment` in a ConsumerGroupDescribe or ShareGroupDescribe response."""
    return tuple(
        sorted(
            TopicPartition(topic.topic_name, number)
            for topic in assignment.topic_partitions
            for number in topic.partitions
        )
    )


def _request_coordinator(
    view: ClusterView, name: str, request: Message, clock: Callable[[], int]
) -> Plan[Call]:
    """Send a request to the group's coordinator.

    If the coordinator does not respond, it is looked up again, and the request is sent again.
    """
    while True:
        node = yield from find_coordinator(view, name, clock)
        [call] = yield [Ask(request, node=node)]
        if not may_repeat(call):
            return call
        yield Rest(str(call.error))


def _assigned_partitions(assignment: bytes) -> tuple[tuple[TopicPartition, ...], str | None]:
    """Decode an assignment of SyncGroup: return (partitions, None), or ((), why it cannot be decoded)."""
    try:
        return tuple(sorted(Assignment.decode(assignment).partitions)) if assignment else (), None
    except DecodeError as error:
        return (), str(error)


def _lag(
    view: ClusterView,
    committed: Mapping[TopicPartition, int],
    owned: Iterable[TopicPartition],
    clock: Callable[[], int],
) -> Plan[dict[TopicPartition, int]]:
    """Return the lag of each partition of the topics with a committed offset or an assigned partition."""
    topics = sorted({partition.topic for partition in (*committed, *owned)})
    if not topics:
        return {}
    yield from read_metadata(view, topics, clock)
    partitions = [
        TopicPartition(topic, number)
        for topic in topics
        if (topic_view := view.topics.get(topic)) is not None
        for number in sorted(topic_view.partitions)
    ]
    level, limit = "read_uncommitted", 30_000
    uncommitted = dict.fromkeys(
        (partition for partition in partitions if partition not in committed), "earliest"
    )
    starts = yield from list_offsets(view, uncommitted, clock, isolation=level, timeout_ms=limit)
    latest = dict.fromkeys(partitions, "latest")
    ends = yield from list_offsets(view, latest, clock, isolation=level, timeout_ms=limit)
    reached = {partition: start.offset or 0 for partition, start in starts.items()} | dict(committed)
    return {partition: max(0, (ends[partition].offset or 0) - reached[partition]) for partition in partitions}


def delete_groups(view: ClusterView, names: Iterable[str], clock: Callable[[], int]) -> Plan[None]:
    """Delete groups and their committed offsets. The groups must have no members."""
    for name in dict.fromkeys(names):
        repeated = False
        while True:
            node = yield from find_coordinator(view, name, clock)
            [call] = yield [Ask(DeleteGroupsRequest(groups_names=[name]), node=node)]
            if may_repeat(call):
                repeated = True
                yield Rest(str(call.error))
                continue
            results = [
                result
                for result in expect_response(DeleteGroupsResponse, call).results
                if result.group_id == name
            ]
            if not results:
                yield Rest(f"the response to DeleteGroups does not contain group {name!r}")
                continue
            code = results[0].error_code
            if code == ErrorCode.NONE or (repeated and code == ErrorCode.GROUP_ID_NOT_FOUND):
                break
            hint = " has members: stop them first" if code == ErrorCode.NON_EMPTY_GROUP else ""
            yield pause_after_error(GROUPS, code, "DeleteGroups", f"group {name!r}{hint}")
