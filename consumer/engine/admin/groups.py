"""Admin operations that list the groups of a cluster, and compute the lag of a group."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from kproto.errors import BrokerError, PartialFailure, UnsupportedVersion
from kproto.group.subscription import TopicPartition
from kproto.lazy_imports import render_html
from kproto.messages.list_groups import ListGroupsRequest, ListGroupsResponse

from ..error_actions import GROUPS
from ..metadata.cluster import ClusterView
from ..network.call import Call, Prepared
from .cluster import read_metadata
from .fanout import Answer, Router, fan_out, single_value, to_nodes
from .group_descriptions import (
    DEAD,
    GROUP_TYPES,
    GroupDescription,
    GroupMember,
    describe_groups,
    is_other_type,
)
from .offsets import committed_offsets
from .plan import Plan, Rest, expect_response, require_version
from .records import list_offsets


class ListedGroup(msgspec.Struct, frozen=True):
    """A group, as its coordinator returned it in ListGroups.

    `state` takes the same values as `Group.state`, and is None if the broker is older than 2.6.

    `protocol_type` is "consumer" for consumers, "connect" for Kafka Connect, and "" for a group that has only
    committed offsets.

    `type` is "classic", "consumer" (KIP-848), "share" (KIP-932) or "streams" (KIP-1071). It is None if
    the broker is older than 3.8.
    """

    name: str
    state: str | None
    protocol_type: str
    type: str | None = None


class Group(msgspec.Struct, frozen=True):
    """A group with its members, committed offsets and lag, as its coordinator described it.

    `state` is Kafka's name for the group state: Empty, Stable, or Dead for a group that does not exist. A
    classic group may also be in PreparingRebalance or CompletingRebalance. A group of type "consumer" or
    "streams" may be Assigning or Reconciling, and a Streams group NotReady.

    A committed offset is the offset of the *next* record to read.

    `lag` maps each partition to the number of records after its committed offset, or to the number of all its
    records if it has no committed offset.

    `lag` contains every partition of a topic if at least one of them has a committed offset or is assigned.

    `type` is the value of `ListedGroup.type`, or None if the group does not exist. A share group has no
    committed offsets and no lag.

    `assignor` is the name of the current assignor, such as "range". It is None for a group without members
    and for a Streams group.
    """

    name: str
    state: str
    members: tuple[GroupMember, ...] = ()
    committed: Mapping[TopicPartition, int] = {}
    lag: Mapping[TopicPartition, int] = {}
    type: str | None = None
    assignor: str | None = None

    def _repr_html_(self) -> str:
        """Return an HTML table of the partitions and their owners, for display in a notebook."""
        return render_html("kproto.inspect.notebook:group", self)

    @property
    def total_lag(self) -> int | None:
        """The sum of `lag` over all partitions, in records.

        The value is None for a group without committed offsets and without assigned partitions.
        """
        return sum(self.lag.values()) if self.lag else None

    @property
    def owners(self) -> dict[TopicPartition, str]:
        """The member id of each partition's owner."""
        return {partition: member.member_id for member in self.members for partition in member.partitions}


def list_groups(
    view: ClusterView,
    clock: Callable[[], int],
    *,
    states: Collection[str] = (),
    types: Collection[str] = (),
    protocol_types: Collection[str] = (),
) -> Plan[dict[str, ListedGroup]]:
    """Return the groups of the cluster, by name. Each broker lists the groups that it coordinates.

    If a broker leaves the cluster during the call, other brokers become the coordinators of its groups. The
    requests are then sent again to all remaining brokers.
    """

    def build(version: int) -> ListGroupsRequest:
        if states:
            require_version("ListGroups", version, 4, "2.6", "to filter by state")
        if types:
            require_version("ListGroups", version, 5, "3.8", "to filter by type")
        return ListGroupsRequest(states_filter=list(states), types_filter=list(types))

    def request(nodes: Sequence[int]) -> Prepared:
        return Prepared(ListGroupsRequest, build)

    def read(call: Call, nodes: Sequence[int]) -> Iterator[Answer[int, dict[str, ListedGroup]]]:
        response = expect_response(ListGroupsResponse, call)
        listings = {
            entry.group_id: ListedGroup(
                entry.group_id, entry.group_state or None, entry.protocol_type, entry.group_type or None
            )
            for entry in response.groups
            if not protocol_types or entry.protocol_type in protocol_types
        }
        for node in nodes:
            yield Answer(node, listings, response.error_code)

    while True:
        yield from read_metadata(view, [], clock)
        router: Router[int] = to_nodes(view, clock, lambda node: node)
        nodes = sorted(view.brokers)
        broker_label = "broker {}".format
        try:
            by_node = yield from fan_out(
                nodes, router, "ListGroups", GROUPS, request, read, name=broker_label
            )
        except PartialFailure as failure:
            if all(node in view.brokers for node in failure.failed):
                raise
            yield Rest("a broker left the cluster while its groups were listed")
        else:
            return dict(sorted(listed for groups in by_node.values() for listed in groups.items()))


def group(
    view: ClusterView, name: str, clock: Callable[[], int], *, require_stable: bool = False
) -> Plan[Group]:
    """Return the group's state, members, committed offsets and lag.

    With `require_stable` the plan waits for open transactions that commit offsets of the group.
    """
    description = yield from describe_group(view, name, clock)
    if description is None:
        result = Group(name, DEAD)
    else:
        result = Group(
            name,
            description.state,
            description.members,
            type=description.type,
            assignor=description.assignor,
        )
    if result.type == "share":
        return result
    values = yield from committed_offsets(view, name, None, clock, require_stable=require_stable)
    committed = {partition: value.offset for partition, value in values.items() if value is not None}
    assigned = (partition for member in result.members for partition in member.partitions)
    lag = yield from _partition_lags(view, committed, assigned, clock)
    return replace(result, committed=committed, lag=lag)


def describe_group(view: ClusterView, name: str, clock: Callable[[], int]) -> Plan[GroupDescription | None]:
    """Return the description of a group of any type, or None if the group does not exist."""
    for group_type in GROUP_TYPES:
        try:
            return (
                yield from single_value(
                    describe_groups(view, group_type, [name], clock, include_authorized_operations=False)
                )
            )
        except (BrokerError, UnsupportedVersion) as error:
            if not is_other_type(error):
                raise
    return None


def _partition_lags(
    view: ClusterView,
    committed: Mapping[TopicPartition, int],
    assigned: Iterable[TopicPartition],
    clock: Callable[[], int],
) -> Plan[dict[TopicPartition, int]]:
    """Return the lag of all partitions of each topic that has a committed offset or an assigned partition.

    The lag of a partition without a committed offset counts from the start of its log.
    """
    topics = sorted({partition.topic for partition in (*committed, *assigned)})
    if not topics:
        return {}
    yield from read_metadata(view, topics, clock)
    partitions = [
        TopicPartition(topic, number)
        for topic in topics
        if (topic_view := view.topics.get(topic)) is not None
        for number in sorted(topic_view.partitions)
    ]
    isolation, timeout_ms = "read_uncommitted", 30_000
    earliest = dict.fromkeys(
        (partition for partition in partitions if partition not in committed), "earliest"
    )
    starts = yield from list_offsets(view, earliest, clock, isolation=isolation, timeout_ms=timeout_ms)
    latest = dict.fromkeys(partitions, "latest")
    ends = yield from list_offsets(view, latest, clock, isolation=isolation, timeout_ms=timeout_ms)
    next_offsets = {partition: start.offset or 0 for partition, start in starts.items()} | dict(committed)
    end_offsets = {partition: end.offset or 0 for partition, end in ends.items()}
    return {partition: max(0, end_offsets[partition] - next_offsets[partition]) for partition in partitions}
