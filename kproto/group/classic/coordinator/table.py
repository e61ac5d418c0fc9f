"""The broker's half of the classic group protocol: who is a member, who leads, and in which generation.

    coordinator = Coordinator(Settings(), topics)
    actions = step(coordinator, Received(token, request, version, ...), now)

`step` takes what happened and says what to do; `next_deadline` says when it wants a `Tick`. Requests of
REQUESTS are understood. Every request gets exactly one `Reply`; JoinGroup and SyncGroup may have to wait
for it.

The life of a group:

* Dead -> Empty: someone joins, or commits offsets without a generation.
* -> PreparingRebalance: the members gather. Whoever wants to be in the next generation sends JoinGroup and
  waits. The phase ends when all have come and no handed out id is outstanding, or with the rebalance
  timeout, which dynamic members that have not come don't survive. In a group that was Empty it waits for
  `group.initial.rebalance.delay.ms` instead, and again as long as others keep coming, so that a fleet that
  starts together is one rebalance.
* -> CompletingRebalance: the generation counts up, all JoinGroups are answered, and the leader makes the
  plan. All wait in SyncGroup. Heartbeats are fine here: only PreparingRebalance answers
  REBALANCE_IN_PROGRESS.
* -> Stable: the leader's SyncGroup came. Whoever has not sent SyncGroup a rebalance timeout later is removed.
* A member that comes, leaves, falls silent, or changes what it offers starts the next rebalance; so does a
  leader that rejoins, for it wants a new plan. A follower that rejoins with nothing new is told what it
  should know already.
* -> Empty: a rebalance found nobody. That counts as a generation too.

Rules that hold here:

* A request is looked at in this order: group id, instance id, member id, generation, protocol, state. So a
  member whose place was taken by another process is FENCED_INSTANCE_ID before it is unknown, and unknown
  before it is late.
* A static member (one with a `group.instance.id`) may come back without an id and takes the place of its
  former self, which is fenced. If the vote for the protocol stays the same, a Stable group doesn't rebalance
  for that.
* Whatever is due at `now` happens before the event is looked at.
* Whatever is not an answer but explains one (`Rebalancing`, `Settled`, `Emptied`) is told where it happens.

Follows Kafka 4.3's GroupMetadataManager for classic groups, KIP-345 (static members), KIP-389
(group.max.size), KIP-394 (MEMBER_ID_REQUIRED), KIP-559 (protocol in answers) and KIP-814 (skipAssignment).
Where it mends what Kafka does, a comment says so. It does not load, unload or write logs: the memory is the
store.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any, Final

from ....error_codes import ErrorCode
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
from . import deletion, joins, membership, offsets, rebalance
from .description import describe_groups, list_groups
from .errors import refuse, refuse_join
from .state import (
    NEVER,
    Action,
    Coordinator,
    Event,
    Group,
    GroupState,
    Received,
    Tick,
    TopicsDeleted,
    TransactionEnded,
    Turn,
    move,
)

# The versions in which a rule came to be.
_V_MEMBER_ID_REQUIRED: Final = 4  # JoinGroup, KIP-394
_V_PROTOCOL_IN_SYNC: Final = 5  # SyncGroup, KIP-559


class Kind(Enum):
    """What can happen to a group: the rows of TABLE."""

    JOIN_WITHOUT_ID = "a dynamic member joins for the first time, v4 or later"
    JOIN_AS_NEWCOMER = "a member joins that is known but not in yet, or need not ask for an id first"
    JOIN_AS_SUCCESSOR = "a static member comes back without its id"
    JOIN_AGAIN = "a member joins with its id"
    SYNC = "SyncGroup"
    HEARTBEAT = "Heartbeat"
    LEAVE = "LeaveGroup"
    COMMIT = "OffsetCommit"
    TXN_COMMIT = "TxnOffsetCommit"
    DELETE_OFFSETS = "OffsetDelete"
    DELETE = "DeleteGroups"
    JOIN_DEADLINE = "the initial delay or the rebalance timeout is over"
    SYNC_DEADLINE = "a rebalance timeout has passed since the generation began, and SyncGroups are missing"
    SESSION_DEADLINE = "a member has been silent for its session timeout"
    PENDING_DEADLINE = "an id that was handed out has not come back within the session timeout"

    __hash__ = object.__hash__  # an Enum's own is written in Python


EVENTS: Final = (Received, Tick, TopicsDeleted, TransactionEnded)


def step(coordinator: Coordinator, event: Event, now: int) -> list[Action]:
    """Let `event` happen at `now` (ms, never going back) and return what is to be done, in order.

    Raises TypeError for what is no event, a request that is not in REQUESTS, and no whole number of ms.
    """
    if type(event) not in EVENTS:
        raise TypeError(f"event={event!r}: a coordinator hears {', '.join(one.__name__ for one in EVENTS)}")
    if type(now) is not int:
        raise TypeError(f"now={now!r}: whole milliseconds")
    turn = Turn(coordinator, now)
    if coordinator.cleanup_deadline == NEVER:
        _plan_cleanup(turn)
    _fire_what_is_due(turn)
    match event:
        case Received():
            hear = _HEARS.get(type(event.request))
            if hear is None:
                raise TypeError(f"{type(event.request).__name__} is no request to a group coordinator")
            hear(turn, event)
        case TopicsDeleted():
            offsets.forget_topics(turn, event.names)
        case TransactionEnded():
            offsets.end_transaction(turn, event.producer_id, event.committed)
        case Tick():
            pass
    return turn.actions


def next_deadline(coordinator: Coordinator) -> int | None:
    """When the next `Tick` is due at the latest, in ms of the same clock; None before the first event.

    It may be too early, never too late: a Tick at which nothing is due moves it.
    """
    of_groups = coordinator.deadlines.earliest()
    if of_groups is not None and of_groups < coordinator.cleanup_deadline:
        return of_groups
    return None if coordinator.cleanup_deadline == NEVER else coordinator.cleanup_deadline


# Deadlines.


def _plan_cleanup(turn: Turn) -> None:
    coordinator = turn.coordinator
    coordinator.cleanup_deadline = turn.now + coordinator.settings.offsets_retention_check_interval_ms


def _fire_what_is_due(turn: Turn) -> None:
    coordinator = turn.coordinator
    for group_id in list(coordinator.deadlines.take(turn.now)):
        _fire(turn, coordinator.groups[group_id])
    if coordinator.cleanup_deadline <= turn.now:
        offsets.clean_up(turn)
        _plan_cleanup(turn)


def _fire(turn: Turn, group: Group) -> None:
    """Let what is due in the group happen, oldest first, unless something older has moved its deadline."""
    now = turn.now
    due: list[tuple[int, Kind, str]] = [
        (member.deadline, Kind.SESSION_DEADLINE, member_id)
        for member_id, member in group.members.items()
        if member.deadline <= now
    ]
    due += [(at, Kind.PENDING_DEADLINE, member_id) for member_id, at in group.pending.items() if at <= now]
    due += [(group.join_deadline, Kind.JOIN_DEADLINE, "")] if group.join_deadline <= now else []
    due += [(group.sync_deadline, Kind.SYNC_DEADLINE, "")] if group.sync_deadline <= now else []
    for at, kind, member_id in sorted(due, key=lambda one: one[0]):
        if at == _deadline(group, kind, member_id):
            TABLE[kind, group.state](turn, group, member_id)
    group.wake = NEVER
    turn.wake_at(group, group.earliest_deadline())


def _deadline(group: Group, kind: Kind, member_id: str) -> int:
    match kind:
        case Kind.SESSION_DEADLINE:
            return group.members[member_id].deadline if member_id in group else NEVER
        case Kind.PENDING_DEADLINE:
            return group.pending.get(member_id, NEVER)
        case Kind.JOIN_DEADLINE:
            return group.join_deadline
        case _:
            return group.sync_deadline


# Requests: read what concerns no state, find the group, and go to the table.


def _join(turn: Turn, call: Received[JoinGroupRequest]) -> None:
    request, settings = call.request, turn.coordinator.settings
    longest = settings.group_max_session_timeout_ms
    if not request.group_id:
        refuse(turn, call, ErrorCode.INVALID_GROUP_ID)
    elif not settings.group_min_session_timeout_ms <= request.session_timeout_ms <= longest:
        refuse(turn, call, ErrorCode.INVALID_SESSION_TIMEOUT)
    else:
        _join_group(turn, turn.coordinator.find(request.group_id), call)


def _join_group(turn: Turn, group: Group, call: Received[JoinGroupRequest]) -> None:
    request = call.request
    if group.state is not GroupState.DEAD and not _has_room(turn, group, request.member_id):
        # A member that finds the group full is out, even if it was in: so do oversized groups shrink.
        group.remove(request.member_id)
        refuse_join(turn, call, ErrorCode.GROUP_MAX_SIZE_REACHED, "")
    elif group.state is not GroupState.DEAD and not group.accepts(
        request.protocol_type, (protocol.name for protocol in request.protocols)
    ):
        refuse(turn, call, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    else:
        TABLE[_kind_of_join(group, call), group.state](turn, group, call)
    rebalance.end_gathering_if_all_are_here(turn, group)


def _kind_of_join(group: Group, call: Received[JoinGroupRequest]) -> Kind:
    request = call.request
    if request.member_id:
        return Kind.JOIN_AS_NEWCOMER if request.member_id in group.pending else Kind.JOIN_AGAIN
    if request.group_instance_id is None:
        return Kind.JOIN_WITHOUT_ID if call.version >= _V_MEMBER_ID_REQUIRED else Kind.JOIN_AS_NEWCOMER
    return Kind.JOIN_AS_SUCCESSOR if request.group_instance_id in group.instances else Kind.JOIN_AS_NEWCOMER


def _has_room(turn: Turn, group: Group, member_id: str) -> bool:
    """May it join? While members gather those that wait count, later those that are in."""
    room = turn.coordinator.settings.group_max_size
    member = group.members.get(member_id)
    match group.state:
        case GroupState.PREPARING_REBALANCE:
            return (member is not None and member.join is not None) or group.waiting < room
        case GroupState.COMPLETING_REBALANCE | GroupState.STABLE:
            return member is not None or len(group.members) < room
        case _:
            return True


def _found_and_join(turn: Turn, group: Group, call: Received[JoinGroupRequest]) -> None:
    """Found the group, Empty as it is, then join it."""
    move(turn, group, GroupState.EMPTY)
    group.written = True
    _join_group(turn, group, call)


def _sync(turn: Turn, call: Received[SyncGroupRequest]) -> None:
    request = call.request
    if call.version >= _V_PROTOCOL_IN_SYNC and (
        request.protocol_type is None or request.protocol_name is None
    ):
        refuse(turn, call, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    elif not request.group_id:
        refuse(turn, call, ErrorCode.INVALID_GROUP_ID)
    else:
        group = turn.coordinator.find(request.group_id)
        TABLE[Kind.SYNC, group.state](turn, group, call)


def _heartbeat(turn: Turn, call: Received[HeartbeatRequest]) -> None:
    if not call.request.group_id:
        refuse(turn, call, ErrorCode.INVALID_GROUP_ID)
        return
    group = turn.coordinator.find(call.request.group_id)
    TABLE[Kind.HEARTBEAT, group.state](turn, group, call)


def _leave(turn: Turn, call: Received[LeaveGroupRequest]) -> None:
    if not call.request.group_id:
        refuse(turn, call, ErrorCode.INVALID_GROUP_ID)
        return
    group = turn.coordinator.find(call.request.group_id)
    TABLE[Kind.LEAVE, group.state](turn, group, call)


def _commit(turn: Turn, call: Received[OffsetCommitRequest]) -> None:
    _to_table(turn, Kind.COMMIT, call.request.group_id, offsets.read_commit(turn, call))


def _txn_commit(turn: Turn, call: Received[TxnOffsetCommitRequest]) -> None:
    commit = offsets.read_txn_commit(turn, call)
    if commit.open_ and not call.request.group_id:
        commit.refuse(turn, ErrorCode.INVALID_GROUP_ID)
    else:
        _to_table(turn, Kind.TXN_COMMIT, call.request.group_id, commit)


def _to_table(turn: Turn, kind: Kind, group_id: str, commit: offsets.Commit) -> None:
    if commit.open_:
        group = turn.coordinator.find(group_id)
        TABLE[kind, group.state](turn, group, commit)
    else:
        commit.answer(turn)


def _delete_offsets(turn: Turn, call: Received[OffsetDeleteRequest]) -> None:
    offset_deletion = deletion.read_deletion(turn, call)
    group = turn.coordinator.find(call.request.group_id)
    if not call.request.group_id:
        refuse(turn, call, ErrorCode.INVALID_GROUP_ID)
    else:
        TABLE[Kind.DELETE_OFFSETS, group.state](turn, group, offset_deletion)


def _delete_groups(turn: Turn, call: Received[DeleteGroupsRequest]) -> None:
    results: list[DeletableGroupResult] = []
    for group_id in dict.fromkeys(call.request.groups_names):
        group = turn.coordinator.find(group_id)
        TABLE[Kind.DELETE, group.state](turn, group, results)
    turn.reply(call, DeleteGroupsResponse(throttle_time_ms=0, results=results))


# Refusals.


def _unknown_member(turn: Turn, group: Group, call: Received[Message]) -> None:
    """Refuse with UNKNOWN_MEMBER_ID: there are no members."""
    refuse(turn, call, ErrorCode.UNKNOWN_MEMBER_ID)


def _impossible(turn: Turn, group: Group, what: object) -> None:
    """Can't happen: this state has nothing that could come back or come due."""
    raise AssertionError(f"{group.state.value} group {group.group_id!r}: {what!r}")


# The table: what happens in which state. It is the dispatch, and it is what is drawn.

_Handler = Callable[[Turn, Group, Any], None]

_ROWS: dict[Kind, tuple[_Handler, _Handler, _Handler, _Handler, _Handler]] = {
    # In the order of GroupState: Dead, Empty, PreparingRebalance, CompletingRebalance, Stable.
    Kind.JOIN_WITHOUT_ID: (
        _found_and_join,
        joins.hand_out_id,
        joins.hand_out_id,
        joins.hand_out_id,
        joins.hand_out_id,
    ),
    Kind.JOIN_AS_NEWCOMER: (
        _found_and_join,
        joins.admit,
        joins.admit_while_preparing,
        joins.admit,
        joins.admit,
    ),
    Kind.JOIN_AS_SUCCESSOR: (
        _impossible,
        _impossible,
        joins.succeed_while_preparing,
        joins.succeed_while_completing,
        joins.succeed_while_stable,
    ),
    Kind.JOIN_AGAIN: (
        _unknown_member,
        _unknown_member,
        joins.join_again_while_preparing,
        joins.join_again_while_completing,
        joins.join_again_while_stable,
    ),
    Kind.SYNC: (
        _unknown_member,
        _unknown_member,
        membership.sync_while_preparing,
        membership.sync_while_completing,
        membership.sync_while_stable,
    ),
    Kind.HEARTBEAT: (
        _unknown_member,
        _unknown_member,
        membership.heartbeat_while_preparing,
        membership.heartbeat_in_peace,
        membership.heartbeat_in_peace,
    ),
    Kind.LEAVE: (
        membership.remove_those_who_leave,
        membership.remove_those_who_leave,
        membership.remove_those_who_leave,
        membership.remove_those_who_leave,
        membership.remove_those_who_leave,
    ),
    Kind.COMMIT: (
        offsets.commit_to_new_group,
        offsets.commit_to_empty_group,
        offsets.commit_by_member,
        offsets.commit_while_completing,
        offsets.commit_by_member,
    ),
    Kind.TXN_COMMIT: (
        offsets.commit_to_new_group,
        offsets.txn_commit,
        offsets.txn_commit,
        offsets.txn_commit,
        offsets.txn_commit,
    ),
    Kind.DELETE_OFFSETS: (
        deletion.delete_offsets_of_nobody,
        deletion.delete_from_empty_group,
        deletion.delete_unread_offsets,
        deletion.delete_unread_offsets,
        deletion.delete_unread_offsets,
    ),
    Kind.DELETE: (deletion.delete_nothing, deletion.delete, deletion.keep, deletion.keep, deletion.keep),
    Kind.JOIN_DEADLINE: (_impossible, _impossible, rebalance.stop_waiting, _impossible, _impossible),
    Kind.SYNC_DEADLINE: (
        _impossible,
        _impossible,
        _impossible,
        membership.remove_the_silent,
        membership.remove_the_silent,
    ),
    Kind.SESSION_DEADLINE: (
        _impossible,
        _impossible,
        membership.expire_member,
        membership.expire_member,
        membership.expire_member,
    ),
    Kind.PENDING_DEADLINE: (
        _impossible,
        membership.expire_pending,
        membership.expire_pending,
        membership.expire_pending,
        membership.expire_pending,
    ),
}

TABLE: Final[dict[tuple[Kind, GroupState], _Handler]] = {
    (kind, state): handler
    for kind, row in _ROWS.items()
    for state, handler in zip(GroupState, row, strict=True)
}

# Which request is read by which function; those that concern one group go on to the table.
_HEARS: Final[dict[type[Message], Callable[[Turn, Received[Any]], None]]] = {
    JoinGroupRequest: _join,
    SyncGroupRequest: _sync,
    HeartbeatRequest: _heartbeat,
    LeaveGroupRequest: _leave,
    OffsetCommitRequest: _commit,
    OffsetFetchRequest: offsets.fetch,
    OffsetDeleteRequest: _delete_offsets,
    TxnOffsetCommitRequest: _txn_commit,
    DescribeGroupsRequest: describe_groups,
    ListGroupsRequest: list_groups,
    DeleteGroupsRequest: _delete_groups,
}

REQUESTS: Final = frozenset(_HEARS)
"""The requests that `step` understands."""
