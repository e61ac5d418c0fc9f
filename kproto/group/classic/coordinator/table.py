"""The classic group coordinator: membership, leadership and generations.

    coordinator = ClassicCoordinator(GroupSettings(), topics)
    actions = step(coordinator, RequestReceived(token, request, version, ...), now)

`step` applies one event and returns the actions to perform. `next_deadline` returns the time at which the
caller must send a `Tick`.

Every request of REQUESTS gets exactly one `SendResponse`. The responses to JoinGroup and SyncGroup may be
delayed.

States and transitions (R11):

* Dead -> Empty: a member joins, or a client commits offsets without a generation.

* Empty, Stable, CompletingRebalance -> PreparingRebalance: a member joins, leaves, expires or changes its
  metadata, or the leader rejoins.

* In PreparingRebalance, the coordinator waits for JoinGroup from every member and every pending member id, at
  most for the rebalance timeout. Then dynamic members that have not joined are removed. Static members
  remain.

* Empty -> PreparingRebalance: the coordinator waits for `group.initial.rebalance.delay.ms`. New members
  extend this delay, so that consumers that start together cause only one rebalance.

* PreparingRebalance -> CompletingRebalance: the generation is incremented, and every JoinGroup is answered.
  SyncGroup requests then wait for the leader's assignment.

* Heartbeats succeed in CompletingRebalance. In PreparingRebalance they are answered with
  REBALANCE_IN_PROGRESS.

* CompletingRebalance -> Stable: the leader's SyncGroup arrives. Members that do not send SyncGroup within a
  rebalance timeout are removed.

* PreparingRebalance -> Empty: all members have left or were removed. This transition also increments the
  generation.

* Empty -> Dead: the group is deleted, or a cleanup finds that it has no offsets (R156).

The rules of this module follow. Each handler's docstring names the rules that the handler implements.

* R14: JoinGroup, SyncGroup, Heartbeat, LeaveGroup, TxnOffsetCommit and OffsetDelete with an empty group id
  are answered with INVALID_GROUP_ID. The other requests accept an empty group id.

* R15, R16: after the group id of a request, the coordinator validates the instance id, then the member id and
  the generation. So a request from the former process of a static member is answered with FENCED_INSTANCE_ID,
  not with UNKNOWN_MEMBER_ID.

* Deadlines that are due at `now` fire before the event, the oldest first.

The module follows GroupMetadataManager of Kafka 4.3 for classic groups, with KIP-345 (static members),
KIP-389 (group.max.size), KIP-394 (MEMBER_ID_REQUIRED), KIP-559 (protocol in responses) and KIP-814
(skipAssignment).

A comment marks each deliberate difference from Kafka.

Groups are kept in memory only. They are neither loaded from a log nor written to one.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from operator import itemgetter
from typing import Any, Final

from ....error_codes import ErrorCode as E
from ....machine import IMPOSSIBLE, NEVER, Cell, RequestReceived, Table, Tick
from ....messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from ....messages.describe_groups import DescribeGroupsRequest
from ....messages.heartbeat import HeartbeatRequest
from ....messages.join_group import JoinGroupRequest
from ....messages.leave_group import LeaveGroupRequest
from ....messages.list_groups import ListGroupsRequest
from ....messages.offset_commit import OffsetCommitRequest
from ....messages.offset_delete import OffsetDeleteRequest
from ....messages.offset_fetch import OffsetFetchRequest
from ....messages.sync_group import SyncGroupRequest
from ....messages.txn_offset_commit import TxnOffsetCommitRequest
from ....wire.message import Message
from ...protocol import CoordinatorAction, CoordinatorEvent, TopicsDeleted, TransactionEnded
from ...settings import MAX_GROUP_METADATA_BYTES
from . import deletion, joins, membership, offsets, rebalance
from .description import describe_groups, list_groups
from .responses import send_error
from .state import EDGES, ClassicGroup, ClassicGroupState, CoordinatorState, GroupContext, move

# From this version on, JoinGroup may be answered with MEMBER_ID_REQUIRED (KIP-394).
_MEMBER_ID_REQUIRED_VERSION: Final = 4
# From this version on, SyncGroup has a protocol type and name (KIP-559).
_PROTOCOL_IN_SYNC_VERSION: Final = 5


class GroupEventKind(Enum):
    """The kinds of events: the rows of the table, whose columns are the states of a group."""

    REQUEST_MEMBER_ID = "JoinGroup v4 or later of a new dynamic member without a member id"
    JOIN_NEW_MEMBER = "JoinGroup of a new member that needs no member id, or returns with a pending one"
    REPLACE_STATIC_MEMBER = "JoinGroup of a known static member without a member id"
    REJOIN = "JoinGroup with the id of a member"
    JOIN_FULL_GROUP = "JoinGroup to a group of group.max.size members"
    JOIN_INCOMPATIBLE = "JoinGroup with protocols that the other members do not support"
    SYNC = "SyncGroup"
    HEARTBEAT = "Heartbeat"
    LEAVE = "LeaveGroup"
    COMMIT = "OffsetCommit"
    TXN_COMMIT = "TxnOffsetCommit"
    DELETE_OFFSETS = "OffsetDelete"
    DELETE = "DeleteGroups"
    JOIN_DEADLINE = "the initial delay or the rebalance timeout of the join phase has passed"
    SYNC_DEADLINE = "SyncGroups are missing a rebalance timeout after the generation began"
    SESSION_DEADLINE = "the session timeout of a member has passed"
    PENDING_DEADLINE = "a pending member id was not used within the session timeout"

    __hash__ = object.__hash__  # This is faster than Enum's own __hash__, which is written in Python.


EVENTS: Final = (RequestReceived, Tick, TopicsDeleted, TransactionEnded)


def step(coordinator: CoordinatorState, event: CoordinatorEvent, now: int) -> list[CoordinatorAction]:
    """Apply `event` at the time `now` and return the actions to perform, in order.

    `now` is in ms and must never decrease.

    Raises TypeError if the event is not one of EVENTS, the request is not one of REQUESTS, or `now` is not an
    int.
    """
    if type(event) not in EVENTS:
        names = ", ".join(event_type.__name__ for event_type in EVENTS)
        raise TypeError(f"event={event!r}: not an event of a group coordinator; expected one of {names}")
    if type(now) is not int:
        raise TypeError(f"now={now!r}: must be an int, in milliseconds")
    context = GroupContext(coordinator, now)
    if coordinator.cleanup_deadline == NEVER:  # This is the first event.
        _schedule_next_cleanup(context)
    _fire_deadlines(context)
    match event:
        case RequestReceived():
            handler = _REQUEST_HANDLERS.get(type(event.request))
            if handler is None:
                raise TypeError(
                    f"{type(event.request).__name__} is not a request of a group coordinator; see REQUESTS"
                )
            handler(context, event)
        case TopicsDeleted():
            offsets.forget_topics(context, event.names)
        case TransactionEnded():
            offsets.end_transaction(context, event.producer_id, event.committed)
        case Tick():
            pass
    return context.actions


def next_deadline(coordinator: CoordinatorState) -> int | None:
    """Return the time at which a `Tick` is due, in ms of the clock of `step`; None before the first event.

    The returned time may be earlier than the next deadline, but never later. A `Tick` before the deadline
    only corrects the returned time.
    """
    group_deadline = coordinator.deadlines.earliest()
    if group_deadline is not None and group_deadline < coordinator.cleanup_deadline:
        return group_deadline
    return None if coordinator.cleanup_deadline == NEVER else coordinator.cleanup_deadline


# Deadlines.


def _schedule_next_cleanup(context: GroupContext) -> None:
    """Set the time of the next cleanup, which drops expired offsets and the Empty groups without offsets."""
    coordinator = context.coordinator
    interval = coordinator.settings.offsets_retention_check_interval_ms
    coordinator.cleanup_deadline = context.now + interval


def _fire_deadlines(context: GroupContext) -> None:
    """Fire the due deadlines of all groups, then clean up if the cleanup is due."""
    coordinator = context.coordinator
    for group_id in list(coordinator.deadlines.take(context.now)):
        _fire_group_deadlines(context, coordinator.groups[group_id])
    if coordinator.cleanup_deadline <= context.now:
        offsets.clean_up(context)
        _schedule_next_cleanup(context)


def _fire_group_deadlines(context: GroupContext, group: ClassicGroup) -> None:
    """Fire the due deadlines of a group, the oldest first.

    If the handler of an earlier deadline has postponed a later deadline, the later deadline does not fire at
    its old time (R132).
    """
    now = context.now
    due: list[tuple[int, GroupEventKind, str]] = [
        (member.deadline, GroupEventKind.SESSION_DEADLINE, member_id)
        for member_id, member in group.members.items()
        if member.deadline <= now
    ]
    due += [
        (deadline, GroupEventKind.PENDING_DEADLINE, member_id)
        for member_id, deadline in group.pending.items()
        if deadline <= now
    ]
    if group.join_deadline <= now:
        due.append((group.join_deadline, GroupEventKind.JOIN_DEADLINE, ""))
    if group.sync_deadline <= now:
        due.append((group.sync_deadline, GroupEventKind.SYNC_DEADLINE, ""))
    for deadline, kind, member_id in sorted(due, key=itemgetter(0)):
        if deadline == _current_deadline(group, kind, member_id):
            TABLE[kind, group.state].act(context, group, member_id)
    # The caller has taken the group out of `coordinator.deadlines`. `wake_at` puts the group back.
    group.wake = NEVER
    context.wake_at(group, group.earliest_deadline())


def _current_deadline(group: ClassicGroup, kind: GroupEventKind, member_id: str) -> int:
    """Return the deadline as it is now, or NEVER if it is not set or the member has been removed."""
    match kind:
        case GroupEventKind.SESSION_DEADLINE:
            return group.members[member_id].deadline if member_id in group else NEVER
        case GroupEventKind.PENDING_DEADLINE:
            return group.pending.get(member_id, NEVER)
        case GroupEventKind.JOIN_DEADLINE:
            return group.join_deadline
        case _:
            return group.sync_deadline


# Handlers of requests. Each makes the checks that do not depend on the group's state, finds the group, and
# calls the table's handler for the request in the group's state.


def _on_join_group(context: GroupContext, call: RequestReceived[JoinGroupRequest]) -> None:
    """Reject an empty group id first (R13, R14), then a session timeout that is out of bounds (R19)."""
    request, settings = call.request, context.coordinator.settings
    shortest_ms, longest_ms = settings.group_min_session_timeout_ms, settings.group_max_session_timeout_ms
    if not request.group_id:
        send_error(context, call, E.INVALID_GROUP_ID)
    elif not shortest_ms <= request.session_timeout_ms <= longest_ms:
        send_error(context, call, E.INVALID_SESSION_TIMEOUT)
    else:
        _dispatch_join(context, context.coordinator.find(request.group_id), call)


def _dispatch_join(
    context: GroupContext, group: ClassicGroup, call: RequestReceived[JoinGroupRequest]
) -> None:
    """Call the table's handler for this kind of JoinGroup in the group's state."""
    TABLE[_join_event_kind(context, group, call), group.state].act(context, group, call)


def _join_event_kind(
    context: GroupContext, group: ClassicGroup, call: RequestReceived[JoinGroupRequest]
) -> GroupEventKind:
    """Return the kind of a JoinGroup, which selects the row of the table.

    The size of the group (R21) is checked first, then the protocols (R24), then the member id.
    """
    request = call.request
    member_id, instance_id = request.member_id, request.group_instance_id
    if group.state is not ClassicGroupState.DEAD:
        if not _has_member_capacity(context, group, member_id) or not _has_metadata_capacity(group, request):
            return GroupEventKind.JOIN_FULL_GROUP
        names = (protocol.name for protocol in request.protocols)
        if not group.accepts_protocols(request.protocol_type, names):
            return GroupEventKind.JOIN_INCOMPATIBLE
    if member_id:
        return GroupEventKind.JOIN_NEW_MEMBER if member_id in group.pending else GroupEventKind.REJOIN
    if instance_id is not None:
        is_known = instance_id in group.instances
        return GroupEventKind.REPLACE_STATIC_MEMBER if is_known else GroupEventKind.JOIN_NEW_MEMBER
    if call.version >= _MEMBER_ID_REQUIRED_VERSION:
        return GroupEventKind.REQUEST_MEMBER_ID
    return GroupEventKind.JOIN_NEW_MEMBER


def _has_member_capacity(context: GroupContext, group: ClassicGroup, member_id: str) -> bool:
    """Return whether `group.max.size` permits this member in the group (R21).

    In PreparingRebalance, only the members that have joined count towards the limit, and each of them may
    join again. In CompletingRebalance and Stable, all members count, and each may rejoin.
    """
    max_size = context.coordinator.settings.group_max_size
    member = group.members.get(member_id)
    match group.state:
        case ClassicGroupState.PREPARING_REBALANCE:
            return (member is not None and member.join is not None) or group.awaiting_join < max_size
        case ClassicGroupState.COMPLETING_REBALANCE | ClassicGroupState.STABLE:
            return member is not None or len(group.members) < max_size
        case _:
            return True


def _has_metadata_capacity(group: ClassicGroup, request: JoinGroupRequest) -> bool:
    """Return whether MAX_GROUP_METADATA_BYTES permits the metadata of this request (R21).

    The limit applies to the sum of all members' metadata. The metadata of the request replaces the member's
    metadata from its last JoinGroup.
    """
    # A restarted static member sends no member id, and is found by its instance id.
    member_id = group.instances.get(request.group_instance_id or "", request.member_id)
    member = group.members.get(member_id)
    replaced_size = 0 if member is None else member.metadata_size()
    new_size = sum(len(protocol.metadata) for protocol in request.protocols)
    return group.metadata_size - replaced_size + new_size <= MAX_GROUP_METADATA_BYTES


def _create_group(
    context: GroupContext, group: ClassicGroup, call: RequestReceived[JoinGroupRequest]
) -> None:
    """Create the group, then apply the request to the Empty group."""
    move(context, group, ClassicGroupState.EMPTY)
    group.written = True
    _dispatch_join(context, group, call)


def _on_sync_group(context: GroupContext, call: RequestReceived[SyncGroupRequest]) -> None:
    """Reject a SyncGroup of v5 or later without protocol type or name (R57), or with an empty group id (R14).

    A SyncGroup whose assignments are larger than MAX_GROUP_METADATA_BYTES is answered with
    UNKNOWN_SERVER_ERROR, as in Kafka.
    """
    request = call.request
    lacks_protocol = request.protocol_type is None or request.protocol_name is None
    if call.version >= _PROTOCOL_IN_SYNC_VERSION and lacks_protocol:
        send_error(context, call, E.INCONSISTENT_GROUP_PROTOCOL)
    elif sum(len(entry.assignment) for entry in request.assignments) > MAX_GROUP_METADATA_BYTES:
        send_error(context, call, E.UNKNOWN_SERVER_ERROR)
    elif not request.group_id:
        send_error(context, call, E.INVALID_GROUP_ID)
    else:
        group = context.coordinator.find(request.group_id)
        TABLE[GroupEventKind.SYNC, group.state].act(context, group, call)


def _on_heartbeat(context: GroupContext, call: RequestReceived[HeartbeatRequest]) -> None:
    """Reject an empty group id (R14); otherwise call the handler in the table."""
    if not call.request.group_id:
        send_error(context, call, E.INVALID_GROUP_ID)
        return
    group = context.coordinator.find(call.request.group_id)
    TABLE[GroupEventKind.HEARTBEAT, group.state].act(context, group, call)


def _on_leave_group(context: GroupContext, call: RequestReceived[LeaveGroupRequest]) -> None:
    """Reject an empty group id (R14); otherwise call the handler in the table."""
    if not call.request.group_id:
        send_error(context, call, E.INVALID_GROUP_ID)
        return
    group = context.coordinator.find(call.request.group_id)
    TABLE[GroupEventKind.LEAVE, group.state].act(context, group, call)


def _on_offset_commit(context: GroupContext, call: RequestReceived[OffsetCommitRequest]) -> None:
    """Call the handler in the table. Unlike other requests, an OffsetCommit may have an empty group id."""
    _dispatch_commit(
        context, GroupEventKind.COMMIT, call.request.group_id, offsets.read_commit(context, call)
    )


def _on_txn_offset_commit(context: GroupContext, call: RequestReceived[TxnOffsetCommitRequest]) -> None:
    """Reject an empty group id (R106); otherwise call the handler in the table.

    If the request names no existing partition, the group id is not checked.
    """
    attempt = offsets.read_txn_commit(context, call)
    if attempt.existing and not call.request.group_id:
        attempt.refuse(context, E.INVALID_GROUP_ID)
    else:
        _dispatch_commit(context, GroupEventKind.TXN_COMMIT, call.request.group_id, attempt)


def _dispatch_commit(
    context: GroupContext, kind: GroupEventKind, group_id: str, attempt: offsets.CommitAttempt
) -> None:
    """Call the handler of `kind`, or only send errors if no partition of the request exists."""
    if attempt.existing:
        group = context.coordinator.find(group_id)
        TABLE[kind, group.state].act(context, group, attempt)
    else:
        attempt.answer(context)


def _on_offset_delete(context: GroupContext, call: RequestReceived[OffsetDeleteRequest]) -> None:
    """Reject an empty group id (R14, R126); otherwise call the handler in the table."""
    if not call.request.group_id:
        send_error(context, call, E.INVALID_GROUP_ID)
        return
    group = context.coordinator.find(call.request.group_id)
    offset_deletion = deletion.read_offset_deletion(context, call)
    TABLE[GroupEventKind.DELETE_OFFSETS, group.state].act(context, group, offset_deletion)


def _on_delete_groups(context: GroupContext, call: RequestReceived[DeleteGroupsRequest]) -> None:
    """Delete each group once, even if the request names it several times (R125)."""
    results: list[DeletableGroupResult] = []
    for group_id in dict.fromkeys(call.request.groups_names):
        group = context.coordinator.find(group_id)
        TABLE[GroupEventKind.DELETE, group.state].act(context, group, results)
    context.reply(call, DeleteGroupsResponse(throttle_time_ms=0, results=results))


# Maps the class of a request to its handler. The handlers dispatch requests about one group to the table.
_REQUEST_HANDLERS: Final[dict[type[Message], Callable[[GroupContext, RequestReceived[Any]], None]]] = {
    JoinGroupRequest: _on_join_group,
    SyncGroupRequest: _on_sync_group,
    HeartbeatRequest: _on_heartbeat,
    LeaveGroupRequest: _on_leave_group,
    OffsetCommitRequest: _on_offset_commit,
    OffsetFetchRequest: offsets.fetch_offsets,
    OffsetDeleteRequest: _on_offset_delete,
    TxnOffsetCommitRequest: _on_txn_offset_commit,
    DescribeGroupsRequest: describe_groups,
    ListGroupsRequest: list_groups,
    DeleteGroupsRequest: _on_delete_groups,
}

# The requests that `step` serves.
REQUESTS: Final = frozenset(_REQUEST_HANDLERS)


# The table. The columns of a row are Dead, Empty, PreparingRebalance, CompletingRebalance and Stable.

_EMPTY = ClassicGroupState.EMPTY
_PREPARING = ClassicGroupState.PREPARING_REBALANCE
_COMPLETING = ClassicGroupState.COMPLETING_REBALANCE

_MEMBER_ID_ERRORS = (E.UNKNOWN_MEMBER_ID, E.FENCED_INSTANCE_ID)
_MEMBERSHIP_ERRORS = (*_MEMBER_ID_ERRORS, E.ILLEGAL_GENERATION)
_SYNC_ERRORS = (*_MEMBERSHIP_ERRORS, E.INCONSISTENT_GROUP_PROTOCOL)
_PARTITION_ERRORS = (E.UNKNOWN_TOPIC_OR_PARTITION, E.UNKNOWN_TOPIC_ID)
_COMMIT_RESULTS = (E.NONE, E.OFFSET_METADATA_TOO_LARGE, *_PARTITION_ERRORS)

_CREATE = Cell(_create_group, to=(_EMPTY,), rules=("R20",))
_ISSUE_MEMBER_ID = Cell(joins.issue_member_id, errors=(E.MEMBER_ID_REQUIRED,), rules=("R25", "R28", "R138"))
_REFUSE_BECAUSE_FULL = Cell(joins.refuse_because_full, errors=(E.GROUP_MAX_SIZE_REACHED,), rules=("R21",))
_REFUSE_PROTOCOLS = Cell(joins.refuse_protocols, errors=(E.INCONSISTENT_GROUP_PROTOCOL,), rules=("R24",))
_SERVER_ERRORS = (E.UNKNOWN_SERVER_ERROR,)
_LEAVE_RULES = ("R76", "R78", "R79", "R80", "R81", "R82", "R83")
_TXN_COMMIT = Cell(
    offsets.commit_in_transaction, errors=(*_COMMIT_RESULTS, *_MEMBERSHIP_ERRORS), rules=("R110", "R111")
)
_DELETE_UNSUBSCRIBED = Cell(
    deletion.delete_unsubscribed_offsets,
    errors=(E.NONE, E.NON_EMPTY_GROUP, E.GROUP_SUBSCRIBED_TO_TOPIC, E.UNKNOWN_TOPIC_OR_PARTITION),
    rules=("R126", "R127", "R128"),
)
_REFUSE_DELETION = Cell(deletion.refuse_deletion, errors=(E.NON_EMPTY_GROUP,), rules=("R124",))
_EXPIRE_PENDING = Cell(membership.expire_pending_member, rules=("R138",))

TABLE: Final = Table(
    ClassicGroupState,
    EDGES,
    {
        GroupEventKind.REQUEST_MEMBER_ID: (
            _CREATE,
            _ISSUE_MEMBER_ID,
            _ISSUE_MEMBER_ID,
            _ISSUE_MEMBER_ID,
            _ISSUE_MEMBER_ID,
        ),
        GroupEventKind.JOIN_NEW_MEMBER: (
            _CREATE,
            Cell(
                joins.add_member, to=(_PREPARING,), errors=_SERVER_ERRORS, rules=("R26", "R27", "R29", "R30")
            ),
            Cell(
                joins.add_member_while_preparing,
                to=(_COMPLETING,),
                errors=(E.NONE, *_SERVER_ERRORS),
                rules=("R22", "R26", "R27", "R29", "R30", "R142"),
            ),
            Cell(
                joins.add_member,
                to=(_PREPARING,),
                errors=(E.REBALANCE_IN_PROGRESS, *_SERVER_ERRORS),
                rules=("R26", "R27", "R29", "R30", "R50"),
            ),
            Cell(
                joins.add_member, to=(_PREPARING,), errors=_SERVER_ERRORS, rules=("R26", "R27", "R29", "R30")
            ),
        ),
        GroupEventKind.REPLACE_STATIC_MEMBER: (
            IMPOSSIBLE,
            IMPOSSIBLE,
            Cell(
                joins.replace_member_while_preparing,
                to=(_COMPLETING,),
                errors=(E.NONE, E.FENCED_INSTANCE_ID),
                rules=("R22", "R42", "R47", "R133"),
            ),
            Cell(
                joins.replace_member_while_completing,
                to=(_PREPARING, _COMPLETING),
                errors=(E.NONE, E.FENCED_INSTANCE_ID, E.REBALANCE_IN_PROGRESS),
                rules=("R42", "R46", "R133"),
            ),
            Cell(
                joins.replace_member_while_stable,
                to=(_PREPARING, _COMPLETING),
                errors=(E.NONE,),
                rules=("R42", "R43", "R45", "R133"),
            ),
        ),
        GroupEventKind.REJOIN: (
            Cell(membership.refuse_unknown_member, errors=(E.UNKNOWN_MEMBER_ID,), rules=("R20",)),
            Cell(membership.refuse_unknown_member, errors=(E.UNKNOWN_MEMBER_ID,), rules=("R37",)),
            Cell(
                joins.rejoin_while_preparing,
                to=(_COMPLETING,),
                errors=(E.NONE, E.REBALANCE_IN_PROGRESS, *_MEMBER_ID_ERRORS),
                rules=("R22", "R31", "R48"),
            ),
            Cell(
                joins.rejoin_while_completing,
                to=(_PREPARING, _COMPLETING),
                errors=(E.NONE, E.REBALANCE_IN_PROGRESS, *_MEMBER_ID_ERRORS),
                rules=("R32", "R33", "R38", "R48"),
            ),
            Cell(
                joins.rejoin_while_stable,
                to=(_PREPARING, _COMPLETING),
                errors=(E.NONE, *_MEMBER_ID_ERRORS),
                rules=("R34", "R35", "R36", "R38", "R48"),
            ),
        ),
        GroupEventKind.JOIN_FULL_GROUP: (
            IMPOSSIBLE,
            _REFUSE_BECAUSE_FULL,
            Cell(
                joins.refuse_because_full,
                to=(_COMPLETING,),
                errors=(E.GROUP_MAX_SIZE_REACHED, E.NONE),
                rules=("R21", "R22"),
            ),
            _REFUSE_BECAUSE_FULL,
            _REFUSE_BECAUSE_FULL,
        ),
        GroupEventKind.JOIN_INCOMPATIBLE: (
            IMPOSSIBLE,
            _REFUSE_PROTOCOLS,
            _REFUSE_PROTOCOLS,
            _REFUSE_PROTOCOLS,
            _REFUSE_PROTOCOLS,
        ),
        GroupEventKind.SYNC: (
            Cell(membership.refuse_unknown_member, errors=(E.UNKNOWN_MEMBER_ID,), rules=("R59",)),
            Cell(membership.refuse_unknown_member, errors=(E.UNKNOWN_MEMBER_ID,), rules=("R61",)),
            Cell(
                membership.sync_while_preparing,
                errors=(E.REBALANCE_IN_PROGRESS, *_SYNC_ERRORS),
                rules=("R60", "R62"),
            ),
            Cell(
                membership.sync_while_completing,
                to=(ClassicGroupState.STABLE,),
                errors=(E.NONE, E.REBALANCE_IN_PROGRESS, *_SYNC_ERRORS),
                rules=("R60", "R63", "R64", "R65", "R148"),
            ),
            Cell(
                membership.sync_while_stable,
                errors=(E.NONE, *_SYNC_ERRORS),
                rules=("R60", "R66", "R148"),
            ),
        ),
        GroupEventKind.HEARTBEAT: (
            Cell(membership.refuse_unknown_member, errors=(E.UNKNOWN_MEMBER_ID,), rules=("R70",)),
            Cell(membership.refuse_unknown_member, errors=(E.UNKNOWN_MEMBER_ID,), rules=("R72",)),
            Cell(
                membership.heartbeat_while_preparing,
                errors=(E.REBALANCE_IN_PROGRESS, *_MEMBERSHIP_ERRORS),
                rules=("R71", "R73"),
            ),
            Cell(membership.heartbeat, errors=(E.NONE, *_MEMBERSHIP_ERRORS), rules=("R71", "R74")),
            Cell(membership.heartbeat, errors=(E.NONE, *_MEMBERSHIP_ERRORS), rules=("R71", "R75")),
        ),
        GroupEventKind.LEAVE: (
            Cell(
                membership.remove_leaving_members, errors=(E.NONE, E.UNKNOWN_MEMBER_ID), rules=("R76", "R77")
            ),
            Cell(
                membership.remove_leaving_members,
                errors=(E.NONE, E.UNKNOWN_MEMBER_ID),
                rules=("R76", "R78", "R79", "R80"),
            ),
            Cell(
                membership.remove_leaving_members,
                to=(_COMPLETING, _EMPTY),
                errors=(E.NONE, *_MEMBER_ID_ERRORS),
                rules=_LEAVE_RULES,
            ),
            Cell(
                membership.remove_leaving_members,
                to=(_PREPARING, _EMPTY),
                errors=(E.NONE, E.REBALANCE_IN_PROGRESS, *_MEMBER_ID_ERRORS),
                rules=_LEAVE_RULES,
            ),
            Cell(
                membership.remove_leaving_members,
                to=(_PREPARING, _EMPTY),
                errors=(E.NONE, *_MEMBER_ID_ERRORS),
                rules=_LEAVE_RULES,
            ),
        ),
        GroupEventKind.COMMIT: (
            Cell(
                offsets.commit_to_missing_group,
                to=(_EMPTY,),
                errors=(*_COMMIT_RESULTS, E.GROUP_ID_NOT_FOUND, E.ILLEGAL_GENERATION),
                rules=("R86", "R91", "R92", "R95"),
            ),
            Cell(
                offsets.commit_to_empty_group,
                errors=(*_COMMIT_RESULTS, E.UNKNOWN_MEMBER_ID),
                rules=("R88", "R91", "R92"),
            ),
            Cell(
                offsets.commit_by_member,
                errors=(*_COMMIT_RESULTS, *_MEMBERSHIP_ERRORS),
                rules=("R88", "R89", "R91", "R92"),
            ),
            Cell(
                offsets.commit_while_completing,
                errors=(E.REBALANCE_IN_PROGRESS, *_MEMBERSHIP_ERRORS, *_PARTITION_ERRORS),
                rules=("R88",),
            ),
            Cell(
                offsets.commit_by_member,
                errors=(*_COMMIT_RESULTS, *_MEMBERSHIP_ERRORS),
                rules=("R88", "R91", "R92"),
            ),
        ),
        GroupEventKind.TXN_COMMIT: (
            Cell(
                offsets.commit_to_missing_group,
                to=(_EMPTY,),
                errors=(*_COMMIT_RESULTS, E.GROUP_ID_NOT_FOUND, E.ILLEGAL_GENERATION),
                rules=("R109", "R111"),
            ),
            _TXN_COMMIT,
            _TXN_COMMIT,
            _TXN_COMMIT,
            _TXN_COMMIT,
        ),
        GroupEventKind.DELETE_OFFSETS: (
            Cell(deletion.delete_offsets_of_missing_group, errors=(E.GROUP_ID_NOT_FOUND,), rules=("R126",)),
            Cell(
                deletion.delete_offsets_of_empty_group,
                errors=(E.NONE, E.UNKNOWN_TOPIC_OR_PARTITION),
                rules=("R112", "R127"),
            ),
            _DELETE_UNSUBSCRIBED,
            _DELETE_UNSUBSCRIBED,
            _DELETE_UNSUBSCRIBED,
        ),
        GroupEventKind.DELETE: (
            Cell(deletion.delete_missing_group, errors=(E.GROUP_ID_NOT_FOUND,), rules=("R123",)),
            Cell(
                deletion.delete_group,
                to=(ClassicGroupState.DEAD,),
                errors=(E.NONE,),
                rules=("R112", "R125"),
            ),
            _REFUSE_DELETION,
            _REFUSE_DELETION,
            _REFUSE_DELETION,
        ),
        GroupEventKind.JOIN_DEADLINE: (
            IMPOSSIBLE,
            IMPOSSIBLE,
            Cell(
                rebalance.on_join_deadline,
                to=(_COMPLETING, _EMPTY),
                errors=(E.NONE,),
                rules=("R52", "R53", "R54", "R55", "R139", "R140", "R141", "R142", "R143"),
            ),
            IMPOSSIBLE,
            IMPOSSIBLE,
        ),
        GroupEventKind.SYNC_DEADLINE: (
            IMPOSSIBLE,
            IMPOSSIBLE,
            IMPOSSIBLE,
            Cell(
                membership.remove_unsynced_members,
                to=(_PREPARING, _EMPTY),
                errors=(E.REBALANCE_IN_PROGRESS,),
                rules=("R146", "R147"),
            ),
            Cell(membership.remove_unsynced_members, to=(_PREPARING, _EMPTY), rules=("R146", "R147")),
        ),
        GroupEventKind.SESSION_DEADLINE: (
            IMPOSSIBLE,
            IMPOSSIBLE,
            Cell(
                membership.expire_member,
                to=(_COMPLETING, _EMPTY),
                errors=(E.NONE, E.UNKNOWN_MEMBER_ID),
                rules=("R81", "R134", "R135", "R136", "R140"),
            ),
            Cell(
                membership.expire_member,
                to=(_PREPARING, _EMPTY),
                errors=(E.REBALANCE_IN_PROGRESS,),
                rules=("R81", "R135", "R136"),
            ),
            Cell(membership.expire_member, to=(_PREPARING, _EMPTY), rules=("R81", "R136")),
        ),
        GroupEventKind.PENDING_DEADLINE: (
            IMPOSSIBLE,
            _EXPIRE_PENDING,
            Cell(
                membership.expire_pending_member,
                to=(_COMPLETING, _EMPTY),
                errors=(E.NONE,),
                rules=("R51", "R138"),
            ),
            _EXPIRE_PENDING,
            _EXPIRE_PENDING,
        ),
    },
)
