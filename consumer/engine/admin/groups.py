"""Plans about groups themselves: which there are, who is in them, how far behind they are, and their end."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import msgspec

from kproto.error_codes import ErrorCode
from kproto.errors import UnsupportedVersion
from kproto.group.subscription import Assignment, TopicPartition
from kproto.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from kproto.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from kproto.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from kproto.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from kproto.wire.message import Message

from ..error_actions import GROUPS
from ..metadata.cluster import ClusterView
from ..network.connection import Call
from .cluster import find_coordinator, read_metadata
from .offsets import committed_offsets
from .plan import Ask, Plan, Rest, expect, lost, try_again
from .records import list_offsets

DEAD = "Dead"
"""The state of a group that doesn't exist (Kafka's word)."""


class ListedGroup(msgspec.Struct, frozen=True):
    """A group as its coordinator lists it.

    `state` is as in `Group`, None from brokers before 2.6; `protocol_type` is "consumer" for consumers,
    "connect" for Kafka Connect, "" for a group that only ever had its offsets committed.
    """

    name: str
    state: str | None
    protocol_type: str


class GroupMember(msgspec.Struct, frozen=True):
    """One member of a group: who it says it is, and which partitions the leader gave it."""

    member_id: str
    client_id: str
    host: str
    group_instance_id: str | None
    partitions: tuple[TopicPartition, ...]


class Group(msgspec.Struct, frozen=True):
    """A group as its coordinator saw it at one moment.

    `state` is Kafka's word: Empty, PreparingRebalance, CompletingRebalance, Stable, or Dead for a group that
    doesn't exist. `committed` are offsets of the *next* record to read. `lag` is how many records the group
    has not committed, for each partition of the topics of which it committed something or a member reads;
    where nothing is committed of a partition, all that it holds.
    """

    name: str
    state: str
    members: tuple[GroupMember, ...] = ()
    committed: Mapping[TopicPartition, int] = {}
    lag: Mapping[TopicPartition, int] = {}

    @property
    def total_lag(self) -> int | None:
        """Records that the group has not committed, over all of `lag`. None, which is not 0, for a group that
        has committed nothing yet and has no partitions.
        """
        return sum(self.lag.values()) if self.lag else None

    @property
    def owners(self) -> dict[TopicPartition, str]:
        """Partition -> the member id that has it."""
        return {partition: member.member_id for member in self.members for partition in member.partitions}


Described = tuple[str, tuple[GroupMember, ...]]


def groups(view: ClusterView, clock: Callable[[], int]) -> Plan[dict[str, ListedGroup]]:
    """Every group of the cluster: each broker lists those that it coordinates."""
    yield from read_metadata(view, [], clock)
    found: dict[int, dict[str, ListedGroup]] = {}
    while waiting := sorted(view.brokers.keys() - found.keys()):
        calls = yield [Ask(ListGroupsRequest(), node=node) for node in waiting]
        rest: Rest | None = None
        for node, call in zip(waiting, calls, strict=True):
            if lost(call):
                rest = Rest(str(call.error))
                continue
            answer = expect(ListGroupsResponse, call)
            if answer.error_code:
                rest = try_again(GROUPS, answer.error_code, "ListGroups", f"broker {node}")
                continue
            found[node] = {
                one.group_id: ListedGroup(one.group_id, one.group_state or None, one.protocol_type)
                for one in answer.groups
            }
        if rest is not None:
            yield rest
            yield from read_metadata(view, [], clock)  # a broker that has gone has given its groups away
    return {name: one for node in sorted(found) for name, one in sorted(found[node].items())}


def group(view: ClusterView, name: str, clock: Callable[[], int]) -> Plan[Group]:
    """The group now: its state, its members, what it committed and how far behind it is."""
    state, members = yield from _described(view, name, clock)
    values = yield from committed_offsets(view, name, None, clock)
    committed = {partition: value.offset for partition, value in values.items() if value is not None}
    owned = (partition for member in members for partition in member.partitions)
    lag = yield from _lag(view, committed, owned, clock)
    return Group(name, state, members, committed, lag)


def _described(view: ClusterView, name: str, clock: Callable[[], int]) -> Plan[Described]:
    """Its state and its members."""
    while True:
        call = yield from _asked(view, name, DescribeGroupsRequest(groups=[name]), clock)
        told = next(
            (one for one in expect(DescribeGroupsResponse, call).groups if one.group_id == name), None
        )
        if told is None:
            yield Rest(f"the response to DescribeGroups does not contain group {name!r}")
        elif told.group_state == DEAD:
            return (yield from _described_newer(view, name, clock))
        elif told.error_code:
            yield try_again(GROUPS, told.error_code, "DescribeGroups", f"group {name!r}")
        else:
            consumers = told.protocol_type == "consumer"
            return told.group_state, tuple(
                GroupMember(
                    one.member_id,
                    one.client_id,
                    one.client_host,
                    one.group_instance_id,
                    _partitions(one.member_assignment) if consumers else (),
                )
                for one in told.members
            )


def _described_newer(view: ClusterView, name: str, clock: Callable[[], int]) -> Plan[Described]:
    """Brokers say of a group of the new protocol (KIP-848) that it is dead, as of one that doesn't exist,
    unless they are asked in that protocol's own words."""
    request = ConsumerGroupDescribeRequest(group_ids=[name], include_authorized_operations=False)
    while True:
        call = yield from _asked(view, name, request, clock)
        if isinstance(call.error, UnsupportedVersion):
            return DEAD, ()
        answer = expect(ConsumerGroupDescribeResponse, call)
        told = next((one for one in answer.groups if one.group_id == name), None)
        if told is None:
            yield Rest(f"the response to ConsumerGroupDescribe does not contain group {name!r}")
            continue
        if told.error_code in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION):
            return DEAD, ()
        if told.error_code:
            yield try_again(GROUPS, told.error_code, "ConsumerGroupDescribe", f"group {name!r}")
            continue
        return told.group_state, tuple(
            GroupMember(
                one.member_id,
                one.client_id,
                one.client_host,
                one.instance_id,
                tuple(
                    sorted(
                        TopicPartition(topic.topic_name, number)
                        for topic in one.assignment.topic_partitions
                        for number in topic.partitions
                    )
                ),
            )
            for one in told.members
        )


def _asked(view: ClusterView, name: str, request: Message, clock: Callable[[], int]) -> Plan[Call]:
    """What the group's coordinator answers, whoever that is when it does."""
    while True:
        node = yield from find_coordinator(view, name, clock)
        [call] = yield [Ask(request, node=node)]
        if not lost(call):
            return call
        yield Rest(str(call.error))


def _partitions(assignment: bytes) -> tuple[TopicPartition, ...]:
    return tuple(sorted(Assignment.decode(assignment).partitions)) if assignment else ()


def _lag(
    view: ClusterView,
    committed: Mapping[TopicPartition, int],
    owned: Iterable[TopicPartition],
    clock: Callable[[], int],
) -> Plan[dict[TopicPartition, int]]:
    topics = sorted({one.topic for one in (*committed, *owned)})
    if not topics:
        return {}
    yield from read_metadata(view, topics, clock)
    known = [
        TopicPartition(topic, number)
        for topic in topics
        if (there := view.topics.get(topic)) is not None
        for number in sorted(there.partitions)
    ]
    level, limit = "read_uncommitted", 30_000
    fresh = dict.fromkeys((one for one in known if one not in committed), "earliest")
    begins = yield from list_offsets(view, fresh, clock, isolation=level, timeout_ms=limit)
    latest = dict.fromkeys(known, "latest")
    ends = yield from list_offsets(view, latest, clock, isolation=level, timeout_ms=limit)
    reached = {one: found.offset or 0 for one, found in begins.items()} | dict(committed)
    return {one: max(0, (ends[one].offset or 0) - reached[one]) for one in known}


def delete_groups(view: ClusterView, names: Iterable[str], clock: Callable[[], int]) -> Plan[None]:
    """Forgets groups without members, and what they committed."""
    for name in dict.fromkeys(names):
        repeated = False
        while True:
            node = yield from find_coordinator(view, name, clock)
            [call] = yield [Ask(DeleteGroupsRequest(groups_names=[name]), node=node)]
            if lost(call):
                repeated = True
                yield Rest(str(call.error))
                continue
            told = [one for one in expect(DeleteGroupsResponse, call).results if one.group_id == name]
            if not told:
                yield Rest(f"the response to DeleteGroups does not contain group {name!r}")
                continue
            code = told[0].error_code
            if code == ErrorCode.NONE or (repeated and code == ErrorCode.GROUP_ID_NOT_FOUND):
                break
            has = " has members: stop them first" if code == ErrorCode.NON_EMPTY_GROUP else ""
            yield try_again(GROUPS, code, "DeleteGroups", f"group {name!r}{has}")
