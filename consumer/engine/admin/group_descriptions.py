"""Admin operations that describe classic groups, and groups of newer types.

These are consumer (KIP-848), share (KIP-932) and streams (KIP-1071).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from kproto.error_codes import ErrorCode
from kproto.errors import (
    BrokerError,
    DecodeError,
    KprotoError,
    PartialFailure,
    RequestTimedOut,
    UnsupportedVersion,
)
from kproto.group.subscription import Assignment, TopicPartition
from kproto.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from kproto.messages.describe_groups import DescribedGroup as ClassicGroup
from kproto.messages.describe_groups import DescribedGroupMember as ClassicMember
from kproto.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from kproto.messages.share_group_describe import ShareGroupDescribeRequest
from kproto.messages.streams_group_describe import StreamsGroupDescribeRequest
from kproto.wire.message import Message

from ..error_actions import GROUPS
from ..metadata.cluster import ClusterView
from ..network.call import Call, Prepared
from .cluster import COORDINATOR_KEYS
from .fanout import Answer, Router, fan_out, to_coordinators
from .plan import Plan, expect_response
from .topic_descriptions import operations_of

GROUP_KEY: Final = COORDINATOR_KEYS.index("group")
# The state that DescribeGroups returns for a group that does not exist or is not of type "classic".
DEAD: Final = "Dead"
# The error codes for a group that is not of the requested type, and for a coordinator that does not support
# the requested type.
_OTHER_TYPE_CODES: Final = (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION)
# Group type -> the request that describes groups of this type (KIP-1043).
_DESCRIBE_REQUESTS: Final[Mapping[str, type[Message]]] = {
    "consumer": ConsumerGroupDescribeRequest,
    "share": ShareGroupDescribeRequest,
    "streams": StreamsGroupDescribeRequest,
}
GROUP_TYPES: Final = ("classic", *_DESCRIBE_REQUESTS)


class StreamsTasks(msgspec.Struct, frozen=True):
    """The tasks of a member of a Streams group: partitions by subtopology id.

    Java: StreamsGroupMemberAssignment.
    """

    active: Mapping[str, tuple[int, ...]]
    standby: Mapping[str, tuple[int, ...]]
    warmup: Mapping[str, tuple[int, ...]]


class GroupMember(msgspec.Struct, frozen=True):
    """One member of a group: its client, and the partitions assigned to it. Java: MemberDescription.

    If the assignment cannot be decoded, `partitions` is empty, and `assignment_error` gives the reason.

    For a member of a Streams group, `partitions` is always empty: its assignment is in `tasks`.

    `target_partitions` are the partitions that a member of a group of type "consumer" will have after the
    rebalance.

    `member_epoch` is None for members of classic groups.
    """

    member_id: str
    client_id: str
    host: str
    group_instance_id: str | None
    partitions: tuple[TopicPartition, ...]
    assignment_error: str | None = None
    member_epoch: int | None = None
    target_partitions: tuple[TopicPartition, ...] | None = None
    tasks: StreamsTasks | None = None


class StreamsSubtopology(msgspec.Struct, frozen=True):
    """A subtopology of a Streams application, with the topics that it reads and writes.

    Java: StreamsGroupSubtopologyDescription.
    """

    subtopology_id: str
    source_topics: tuple[str, ...]
    repartition_sink_topics: tuple[str, ...]
    state_changelog_topics: tuple[str, ...]
    repartition_source_topics: tuple[str, ...]


class GroupDescription(msgspec.Struct, frozen=True):
    """A group with its members, as its coordinator described it.

    `type` is "classic", "consumer", "share" or "streams".

    `state` is Kafka's name for the state, such as Stable or Empty. `coordinator` is a node id.

    `protocol_type` is "consumer" for consumers, and "" for a classic group that has only committed offsets.

    `assignor` is the name of the group's assignor, or None for a group without an assignor.

    `authorized_operations` is None if the operations were not requested.

    The epochs are None for classic groups. `subtopologies` is None unless the group is a Streams group with a
    topology.

    Java: ConsumerGroupDescription, ClassicGroupDescription, ShareGroupDescription and
    StreamsGroupDescription.
    """

    group_id: str
    type: str
    state: str
    members: tuple[GroupMember, ...]
    coordinator: int
    protocol_type: str
    assignor: str | None = None
    authorized_operations: frozenset[str] | None = None
    group_epoch: int | None = None
    target_assignment_epoch: int | None = None
    subtopologies: tuple[StreamsSubtopology, ...] | None = None


def describe_groups(
    view: ClusterView,
    group_type: str,
    names: Collection[str],
    clock: Callable[[], int],
    *,
    include_authorized_operations: bool,
) -> Plan[dict[str, GroupDescription]]:
    """Describe groups of one type. For a group of another type the error is GROUP_ID_NOT_FOUND."""
    request_type = _DESCRIBE_REQUESTS.get(group_type, DescribeGroupsRequest)

    def request(items: Sequence[str]) -> Prepared:
        def build(version: int) -> Message:
            if group_type == "classic":
                # Earlier versions of DescribeGroups have no authorized operations (KIP-430).
                has_operations = version >= 3
                return DescribeGroupsRequest(
                    groups=list(items),
                    include_authorized_operations=include_authorized_operations and has_operations,
                )
            message: Message = _DESCRIBE_REQUESTS[group_type](  # type: ignore[call-arg]
                group_ids=list(items), include_authorized_operations=include_authorized_operations
            )
            return message

        return Prepared(request_type, build)

    def read(call: Call, items: Sequence[str]) -> Iterator[Answer[str, GroupDescription]]:
        node = -1 if call.node is None else call.node
        if group_type == "classic":
            for entry in expect_response(DescribeGroupsResponse, call).groups:
                code = entry.error_code
                if not code and entry.group_state == DEAD:
                    # From version 6 of DescribeGroups on, the coordinator itself returns this code
                    # (KIP-1043).
                    code = ErrorCode.GROUP_ID_NOT_FOUND
                yield Answer(entry.group_id, _classic_group(entry, node), code, entry.error_message)
        else:
            response: Any = expect_response(Message, call)
            for entry in response.groups:
                description = _newer_group(group_type, entry, node)
                yield Answer(entry.group_id, description, entry.error_code, entry.error_message)

    router: Router[str] = to_coordinators(view, GROUP_KEY)
    api = request_type.__name__.removesuffix("Request")
    return (yield from fan_out(names, router, api, GROUPS, request, read, name=group_name))


def describe_consumer_groups(
    view: ClusterView,
    names: Collection[str],
    clock: Callable[[], int],
    *,
    include_authorized_operations: bool,
) -> Plan[dict[str, GroupDescription]]:
    """Describe groups of type "consumer" or "classic", as Java's DescribeConsumerGroupsHandler does.

    Groups that are not of type "consumer" are then described as classic groups. If the deadline has passed
    before the first request for classic groups, these groups fail with RequestTimedOut.
    """
    options = {"include_authorized_operations": include_authorized_operations}
    try:
        return (yield from describe_groups(view, "consumer", names, clock, **options))
    except PartialFailure as consumer_failure:
        classic_names = [name for name, error in consumer_failure.failed.items() if is_other_type(error)]
        if not classic_names:
            raise
        api, succeeded = consumer_failure.call, consumer_failure.succeeded
        failed = {name: error for name, error in consumer_failure.failed.items() if name not in classic_names}
    timeout = next((error for error in failed.values() if isinstance(error, RequestTimedOut)), None)
    try:
        if timeout is None:
            succeeded |= yield from describe_groups(view, "classic", classic_names, clock, **options)
        else:  # The deadline has passed, so the runner sends no further request.
            failed |= dict.fromkeys(classic_names, timeout)
    except PartialFailure as classic_failure:
        api = classic_failure.call
        succeeded |= classic_failure.succeeded
        failed |= classic_failure.failed
    if failed:
        raise PartialFailure(
            api,
            {name: succeeded[name] for name in names if name in succeeded},
            {name: failed[name] for name in names if name in failed},
        )
    return {name: succeeded[name] for name in dict.fromkeys(names)}


def is_other_type(error: KprotoError) -> bool:
    """Return whether the error says that the group is not of the requested type, or does not exist."""
    return isinstance(error, UnsupportedVersion) or (
        isinstance(error, BrokerError) and error.code in _OTHER_TYPE_CODES
    )


def group_name(group: str) -> str:
    return f"group {group!r}"


def _classic_group(entry: ClassicGroup, node: int) -> GroupDescription:
    """Return the description of a classic group, from the DescribeGroups response of the broker `node`."""
    is_consumer_group = entry.protocol_type == "consumer"
    return GroupDescription(
        group_id=entry.group_id,
        type="classic",
        state=entry.group_state,
        members=tuple(_classic_member(member, is_consumer_group) for member in entry.members),
        coordinator=node,
        protocol_type=entry.protocol_type,
        assignor=entry.protocol_data or None,
        authorized_operations=operations_of(entry.authorized_operations),
    )


def _classic_member(member: ClassicMember, is_consumer: bool) -> GroupMember:
    partitions, assignment_error = _decode_assignment(member.member_assignment) if is_consumer else ((), None)
    return GroupMember(
        member_id=member.member_id,
        client_id=member.client_id,
        host=member.client_host,
        group_instance_id=member.group_instance_id,
        partitions=partitions,
        assignment_error=assignment_error,
    )


def _decode_assignment(assignment: bytes) -> tuple[tuple[TopicPartition, ...], str | None]:
    """Decode a SyncGroup assignment: return (partitions, None), or ((), the reason for the failure)."""
    try:
        return tuple(sorted(Assignment.decode(assignment).partitions)) if assignment else (), None
    except DecodeError as error:
        return (), str(error)


def _newer_group(group_type: str, entry: Any, node: int) -> GroupDescription:
    """Return the description of a group of type "consumer", "share" or "streams" (KIP-848 and later)."""
    topology = entry.topology if group_type == "streams" else None
    return GroupDescription(
        group_id=entry.group_id,
        type=group_type,
        state=entry.group_state,
        members=tuple(_newer_member(group_type, member) for member in entry.members),
        coordinator=node,
        protocol_type=group_type,
        assignor=entry.assignor_name or None,
        authorized_operations=operations_of(entry.authorized_operations),
        group_epoch=entry.group_epoch,
        target_assignment_epoch=entry.assignment_epoch,
        subtopologies=(
            None if topology is None else tuple(map(_streams_subtopology, topology.subtopologies or ()))
        ),
    )


def _newer_member(group_type: str, member: Any) -> GroupMember:
    is_streams = group_type == "streams"
    return GroupMember(
        member_id=member.member_id,
        client_id=member.client_id,
        host=member.client_host,
        group_instance_id=None if group_type == "share" else member.instance_id,
        partitions=() if is_streams else _partitions_of(member.assignment),
        member_epoch=member.member_epoch,
        target_partitions=_partitions_of(member.target_assignment) if group_type == "consumer" else None,
        tasks=_streams_tasks(member.assignment) if is_streams else None,
    )


def _partitions_of(assignment: Any) -> tuple[TopicPartition, ...]:
    """Return the partitions of an `assignment` in a ConsumerGroupDescribe or ShareGroupDescribe response."""
    return tuple(
        sorted(
            TopicPartition(topic.topic_name, number)
            for topic in assignment.topic_partitions
            for number in topic.partitions
        )
    )


def _streams_tasks(assignment: Any) -> StreamsTasks:
    def by_subtopology(tasks: Any) -> dict[str, tuple[int, ...]]:
        return {entry.subtopology_id: tuple(entry.partitions) for entry in tasks}

    return StreamsTasks(
        active=by_subtopology(assignment.active_tasks),
        standby=by_subtopology(assignment.standby_tasks),
        warmup=by_subtopology(assignment.warmup_tasks),
    )


def _streams_subtopology(entry: Any) -> StreamsSubtopology:
    return StreamsSubtopology(
        subtopology_id=entry.subtopology_id,
        source_topics=tuple(entry.source_topics),
        repartition_sink_topics=tuple(entry.repartition_sink_topics),
        state_changelog_topics=tuple(topic.name for topic in entry.state_changelog_topics),
        repartition_source_topics=tuple(topic.name for topic in entry.repartition_source_topics),
    )
