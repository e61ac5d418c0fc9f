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
* A static member (one with a `group.instance.id`) may come back without an id and takes the place of its former self,
  which is fenced. If the vote for the protocol stays the same, a Stable group doesn't rebalance for that.
* Whatever is due at `now` happens before the event is looked at.
* Whatever is not an answer but explains one (`Rebalancing`, `Settled`, `Emptied`) is told where it happens.

Follows Kafka 4.3's GroupMetadataManager for classic groups, KIP-345 (static members), KIP-389
(group.max.size), KIP-394 (MEMBER_ID_REQUIRED), KIP-559 (protocol in answers) and KIP-814 (skipAssignment).
Where it mends what Kafka does, a comment says so. It does not load, unload or write logs: the memory is the
store.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any, Final

from ..error_codes import ErrorCode
from ..messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from ..messages.describe_groups import DescribeGroupsRequest
from ..messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ..messages.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember
from ..messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity, MemberResponse
from ..messages.list_groups import ListGroupsRequest
from ..messages.offset_commit import OffsetCommitRequest
from ..messages.offset_delete import OffsetDeleteRequest
from ..messages.offset_fetch import OffsetFetchRequest
from ..messages.sync_group import SyncGroupRequest, SyncGroupResponse
from ..messages.txn_offset_commit import TxnOffsetCommitRequest
from ..wire.message import Message
from . import offsets
from .classic import (
    EDGES,
    NEVER,
    Action,
    Committed,
    Coordinator,
    Emptied,
    Event,
    Group,
    GroupMember,
    GroupState,
    Rebalancing,
    Received,
    Reply,
    Settled,
    Tick,
    Topics,
    TopicsDeleted,
    TransactionEnded,
    Turn,
    member_error,
    move,
)
from .describe import describe_groups, list_groups
from .offsets import CONSUMER, Deletion
from .refusals import protocol_name_on_the_wire, refuse, refuse_join
from .settings import NEW_MEMBER_JOIN_TIMEOUT_MS, Settings

__all__ = [
    "EDGES",
    "REQUESTS",
    "TABLE",
    "Action",
    "Committed",
    "Coordinator",
    "Emptied",
    "Event",
    "Group",
    "GroupMember",
    "GroupState",
    "Kind",
    "Rebalancing",
    "Received",
    "Reply",
    "Settings",
    "Settled",
    "Tick",
    "Topics",
    "TopicsDeleted",
    "TransactionEnded",
    "next_deadline",
    "step",
]

# The versions in which a rule came to be.
_V_REBALANCE_TIMEOUT: Final = 1  # JoinGroup: before, the session timeout counted for both
_V_MEMBER_ID_REQUIRED: Final = 4  # JoinGroup, KIP-394
_V_SKIP_ASSIGNMENT: Final = 9  # JoinGroup, KIP-814
_V_LEAVE_TOGETHER: Final = 3  # LeaveGroup, KIP-345
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


def step(coordinator: Coordinator, event: Event, now: int) -> list[Action]:
    """Let `event` happen at `now` (ms, never going back) and return what is to be done, in order.

    Raises TypeError for a request that is not in REQUESTS.
    """
    turn = Turn(coordinator, now)
    if coordinator.cleanup_deadline == NEVER:
        _plan_cleanup(turn)
    if coordinator.wake <= now:
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
    return None if coordinator.wake == NEVER else coordinator.wake


# Deadlines.


def _plan_cleanup(turn: Turn) -> None:
    coordinator = turn.coordinator
    coordinator.cleanup_deadline = turn.now + coordinator.settings.offsets_retention_check_interval_ms
    coordinator.wake = min(coordinator.wake, coordinator.cleanup_deadline)


def _fire_what_is_due(turn: Turn) -> None:
    coordinator = turn.coordinator
    for group in list(coordinator.groups.values()):
        if group.wake <= turn.now:
            _fire(turn, group)
    if coordinator.cleanup_deadline <= turn.now:
        offsets.clean_up(turn)
        _plan_cleanup(turn)
    wakes = (group.wake for group in coordinator.groups.values())
    coordinator.wake = min(coordinator.cleanup_deadline, min(wakes, default=NEVER))


def _fire(turn: Turn, group: Group) -> None:
    """Let every deadline of the group that has passed happen, oldest first, unless an older one has moved it."""
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
    group.wake = group.earliest_deadline()


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


# Joining: which of the four kinds is it, and may it?


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
    _end_gathering_if_all_are_here(turn, group)


def _kind_of_join(group: Group, call: Received[JoinGroupRequest]) -> Kind:
    request = call.request
    if request.member_id:
        return Kind.JOIN_AS_NEWCOMER if request.member_id in group.pending else Kind.JOIN_AGAIN
    if request.group_instance_id is None:
        return Kind.JOIN_WITHOUT_ID if call.version >= _V_MEMBER_ID_REQUIRED else Kind.JOIN_AS_NEWCOMER
    return Kind.JOIN_AS_SUCCESSOR if request.group_instance_id in group.instances else Kind.JOIN_AS_NEWCOMER


def _has_room(turn: Turn, group: Group, member_id: str) -> bool:
    """May one more join?

    While members gather those that wait count, then those that are in; handed out ids never.
    """
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
    _join_group(turn, group, call)


def _hand_out_id(turn: Turn, group: Group, call: Received[JoinGroupRequest]) -> None:
    """Answer MEMBER_ID_REQUIRED with the id to come back with, and wait for it for a session timeout."""
    member_id = _new_member_id(call)
    group.pending[member_id] = turn.wake_at(group, turn.now + call.request.session_timeout_ms)
    refuse_join(turn, call, ErrorCode.MEMBER_ID_REQUIRED, member_id)


def _admit(turn: Turn, group: Group, call: Received[JoinGroupRequest]) -> None:
    """Take the newcomer in and let it wait; a group that doesn't gather already begins to."""
    member = _add_member(turn, group, call)
    if member is not None:
        _prepare_rebalance(turn, group, _because(f"{member.name} joined", call.request.reason))


def _admit_while_preparing(turn: Turn, group: Group, call: Received[JoinGroupRequest]) -> None:
    """Take the newcomer in and let it wait; it prolongs the initial delay."""
    if _add_member(turn, group, call) is not None:
        group.newcomers = True


def _add_member(turn: Turn, group: Group, call: Received[JoinGroupRequest]) -> GroupMember | None:
    request = call.request
    if request.member_id and request.group_instance_id is not None:
        # An id that was handed out belongs to a dynamic member. No client does this; Kafka stumbles over it.
        refuse_join(turn, call, ErrorCode.UNKNOWN_SERVER_ERROR, "")
        return None
    member = GroupMember(
        member_id=request.member_id or _new_member_id(call),
        group_instance_id=request.group_instance_id,
        client_id=call.client_id,
        client_host=call.client_host,
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=_rebalance_timeout(call),
        protocols=_protocols(request),
    )
    if not group.members:
        group.protocol_type = request.protocol_type
    group.add(member)
    group.park_join(member, call)
    member.deadline = turn.wake_at(group, turn.now + NEW_MEMBER_JOIN_TIMEOUT_MS)
    return member


def _succeed_while_preparing(turn: Turn, group: Group, call: Received[JoinGroupRequest]) -> None:
    """Take the place of the former self and wait with the others."""
    _replace(turn, group, call)


def _succeed_while_completing(turn: Turn, group: Group, call: Received[JoinGroupRequest]) -> None:
    """Take the place of the former self. The plan in the making names the old id, so make a new one."""
    member = _replace(turn, group, call)
    _prepare_rebalance(turn, group, f"static member {member.name} came back while the plan was being made")


def _succeed_while_stable(turn: Turn, group: Group, call: Received[JoinGroupRequest]) -> None:
    """Take the place of the former self, and its assignment, unless the vote for the protocol changes."""
    former_leader = group.leader
    member = _replace(turn, group, call)
    vote = group.vote()
    if vote != group.protocol_name:
        change = f"changes the protocol from {group.protocol_name} to {vote}"
        _prepare_rebalance(turn, group, f"static member {member.name} came back and {change}")
        return
    group.unpark_join(member)
    skip = call.version >= _V_SKIP_ASSIGNMENT
    leads = group.leader == member.member_id
    # Without skipAssignment a leader would make a plan that nobody waits for: so it is told that it doesn't
    # lead.
    _answer_join(
        turn,
        group,
        member,
        call,
        leader=group.leader if skip else former_leader,
        members=_members_for_leader(group) if skip and leads else [],
        skip_assignment=skip and leads,
    )


def _replace(turn: Turn, group: Group, call: Received[JoinGroupRequest]) -> GroupMember:
    """Let the new incarnation wait in the place of the old one, whose open requests are fenced."""
    request = call.request
    assert request.group_instance_id is not None
    member = group.members[group.instances[request.group_instance_id]]
    if (join := group.unpark_join(member)) is not None:
        refuse_join(turn, join, ErrorCode.FENCED_INSTANCE_ID, member.member_id)
    _refuse_parked_sync(turn, member, ErrorCode.FENCED_INSTANCE_ID)
    group.rename(member, _new_member_id(call))
    # The first stretch still has the old session timeout, as in Kafka; the new one counts from the next
    # sign of life.
    turn.refresh_session(group, member)
    # Kafka keeps this True, so that a replaced newcomer can expire while it waits in JoinGroup.
    member.new = False
    _update(group, member, call)
    group.park_join(member, call)
    return member


def _join_again_while_preparing(turn: Turn, group: Group, call: Received[JoinGroupRequest]) -> None:
    """Wait with the others."""
    if (member := _known(turn, group, call)) is not None:
        _park(turn, group, member, call)


def _join_again_while_completing(turn: Turn, group: Group, call: Received[JoinGroupRequest]) -> None:
    """Tell the member what it missed; if it offers something else than before, gather anew."""
    member = _known(turn, group, call)
    if member is None:
        return
    if member.protocols != _protocols(call.request):
        _park(turn, group, member, call)
        _prepare_rebalance(
            turn, group, _because(f"{member.name} changed what it offers", call.request.reason)
        )
        return
    leads = group.leader == member.member_id
    _answer_join(
        turn, group, member, call, leader=group.leader, members=_members_for_leader(group) if leads else []
    )


def _join_again_while_stable(turn: Turn, group: Group, call: Received[JoinGroupRequest]) -> None:
    """A leader wants a new plan, and a member with other protocols needs one;

    Anyone else is told what it missed.
    """
    member = _known(turn, group, call)
    if member is None:
        return
    if group.leader == member.member_id:
        what = f"leader {member.name} rejoined"
    elif member.protocols != _protocols(call.request):
        what = f"{member.name} changed what it offers"
    else:
        # Neither its timeouts are taken over nor does this count as a sign of life, as in Kafka.
        _answer_join(turn, group, member, call, leader=group.leader, members=[])
        return
    _park(turn, group, member, call)
    _prepare_rebalance(turn, group, _because(what, call.request.reason))


def _known(turn: Turn, group: Group, call: Received[JoinGroupRequest]) -> GroupMember | None:
    request = call.request
    if error := member_error(group, request.member_id, request.group_instance_id):
        refuse(turn, call, error)
        return None
    return group.members[request.member_id]


def _park(turn: Turn, group: Group, member: GroupMember, call: Received[JoinGroupRequest]) -> None:
    if (earlier := group.unpark_join(member)) is not None:
        # Kafka never answers a JoinGroup that the same member has repeated; we tell it that it is not over.
        refuse(turn, earlier, ErrorCode.REBALANCE_IN_PROGRESS)
    _update(group, member, call)
    group.park_join(member, call)


def _update(group: Group, member: GroupMember, call: Received[JoinGroupRequest]) -> None:
    group.update(member, _protocols(call.request))
    member.session_timeout_ms = call.request.session_timeout_ms
    member.rebalance_timeout_ms = _rebalance_timeout(call)


# Gathering: from the reason of a rebalance to the answers of all JoinGroups.


def _prepare_rebalance(turn: Turn, group: Group, reason: str) -> None:
    for member in group.members.values():
        if group.state is GroupState.COMPLETING_REBALANCE:
            member.assignment = b""
        if member.sync is not None:
            _refuse_parked_sync(turn, member, ErrorCode.REBALANCE_IN_PROGRESS)
            turn.refresh_session(group, member)
    group.unsynced.clear()
    group.sync_deadline = NEVER
    patience = group.longest_rebalance_timeout()
    group.newcomers = False
    group.initial_delay_left = None
    if group.state is GroupState.EMPTY:
        delay = turn.coordinator.settings.group_initial_rebalance_delay_ms
        group.initial_delay_left = max(patience - delay, 0)
        patience = delay
    group.join_deadline = turn.wake_at(group, turn.now + patience)
    group.rebalance_reason = reason
    move(turn, group, GroupState.PREPARING_REBALANCE)
    turn.actions.append(Rebalancing(group.group_id, group.generation, reason))
    _end_gathering_if_all_are_here(turn, group)


def _end_gathering_if_all_are_here(turn: Turn, group: Group) -> None:
    """The initial delay never ends early.

    (In Kafka it does when a member or a handed out id expires in it.)
    """
    if (
        group.state is GroupState.PREPARING_REBALANCE
        and group.initial_delay_left is None
        and group.waiting == len(group.members)
        and not group.pending
    ):
        _end_gathering(turn, group)


def _stop_waiting(turn: Turn, group: Group, _: str) -> None:
    """Begin the generation with those who came, or prolong the initial delay for others to come."""
    left = group.initial_delay_left
    if left and group.newcomers:
        group.newcomers = False
        delay = turn.coordinator.settings.group_initial_rebalance_delay_ms
        group.initial_delay_left = max(left - delay, 0)
        group.join_deadline = turn.wake_at(group, turn.now + min(delay, left))
    else:
        _end_gathering(turn, group)


def _end_gathering(turn: Turn, group: Group) -> None:
    absent = [member for member in group.members.values() if member.join is None]
    for member in absent:
        if member.group_instance_id is None:
            group.remove(member.member_id)
    if group.members and not group.waiting:
        # Only static members are left, and none has come: wait on. (At least a millisecond, or time stands
        # still.)
        group.join_deadline = turn.wake_at(group, turn.now + max(group.longest_rebalance_timeout(), 1))
        return
    group.join_deadline = NEVER
    group.initial_delay_left = None
    group.generation += 1
    if group.members:
        _begin_generation(turn, group)
        return
    group.protocol_name = None
    group.subscriptions = ()
    move(turn, group, GroupState.EMPTY)
    turn.actions.append(Emptied(group.group_id, group.generation, group.rebalance_reason))


def _begin_generation(turn: Turn, group: Group) -> None:
    """Choose leader and protocol, answer everyone, and expect a SyncGroup from each, absent static members too."""
    if group.leader is None or group.members[group.leader].join is None:
        group.leader = next(
            member_id for member_id, member in group.members.items() if member.join is not None
        )
    group.protocol_name = group.vote()
    if group.protocol_type == CONSUMER:
        group.subscriptions = tuple(member.metadata(group.protocol_name) for member in group.members.values())
    move(turn, group, GroupState.COMPLETING_REBALANCE)
    for_leader = _members_for_leader(group)
    for member_id, member in group.members.items():
        member.new = False
        turn.refresh_session(group, member)
        group.unsynced[member_id] = None
        if (call := group.unpark_join(member)) is not None:
            members = for_leader if member_id == group.leader else []
            _answer_join(turn, group, member, call, leader=group.leader, members=members)
    group.sync_deadline = turn.wake_at(group, turn.now + group.longest_rebalance_timeout())


def _members_for_leader(group: Group) -> list[JoinGroupResponseMember]:
    return [
        JoinGroupResponseMember(
            member_id=member.member_id,
            group_instance_id=member.group_instance_id,
            metadata=member.metadata(group.protocol_name),
        )
        for member in group.members.values()
    ]


def _answer_join(
    turn: Turn,
    group: Group,
    member: GroupMember,
    call: Received[JoinGroupRequest],
    *,
    leader: str | None,
    members: list[JoinGroupResponseMember],
    skip_assignment: bool = False,
) -> None:
    turn.reply(
        call,
        JoinGroupResponse(
            error_code=ErrorCode.NONE,
            generation_id=group.generation,
            protocol_type=group.protocol_type,
            protocol_name=protocol_name_on_the_wire(group.protocol_name, call.version),
            leader=leader or "",
            skip_assignment=skip_assignment,
            member_id=member.member_id,
            members=members,
        ),
    )


# Syncing: from the plan to everyone's assignment.


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


def _sync_error(group: Group, request: SyncGroupRequest) -> ErrorCode:
    if error := member_error(group, request.member_id, request.group_instance_id):
        return error
    if request.generation_id != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    # What the group doesn't have yet (before its first generation) can't contradict.
    for said, known in (
        (request.protocol_type, group.protocol_type),
        (request.protocol_name, group.protocol_name),
    ):
        if said is not None and known is not None and said != known:
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    return ErrorCode.NONE


def _sync_while_preparing(turn: Turn, group: Group, call: Received[SyncGroupRequest]) -> None:
    """Send the member back to JoinGroup; this is no sign of life."""
    refuse(turn, call, _sync_error(group, call.request) or ErrorCode.REBALANCE_IN_PROGRESS)


def _sync_while_completing(turn: Turn, group: Group, call: Received[SyncGroupRequest]) -> None:
    """Wait for the plan; the leader brings it."""
    request = call.request
    if error := _sync_error(group, request):
        refuse(turn, call, error)
        return
    member = group.members[request.member_id]
    # A repeated SyncGroup takes the place of the earlier one, which is told that it is not over.
    _refuse_parked_sync(turn, member, ErrorCode.REBALANCE_IN_PROGRESS)
    member.sync = call
    _has_synced(group, member)
    if group.leader == member.member_id:
        _adopt_plan(turn, group, {one.member_id: one.assignment for one in request.assignments})


def _adopt_plan(turn: Turn, group: Group, plan: dict[str, bytes]) -> None:
    """Give everyone its part, or nothing if the leader forgot it, and answer those who wait."""
    for member_id, member in group.members.items():
        member.assignment = plan.get(member_id, b"")
        call, member.sync = member.sync, None
        if call is not None:
            _answer_sync(turn, group, member, call)
    move(turn, group, GroupState.STABLE)
    turn.actions.append(Settled(group.group_id, group.generation, tuple(group.members)))


def _sync_while_stable(turn: Turn, group: Group, call: Received[SyncGroupRequest]) -> None:
    """Hand the member its assignment; a plan that a leader sends now comes too late and is ignored."""
    if error := _sync_error(group, call.request):
        refuse(turn, call, error)
        return
    member = group.members[call.request.member_id]
    _has_synced(group, member)
    _answer_sync(turn, group, member, call)


def _answer_sync(turn: Turn, group: Group, member: GroupMember, call: Received[SyncGroupRequest]) -> None:
    # A sign of life in Stable too, where Kafka 4.3 doesn't count it as one.
    turn.refresh_session(group, member)
    response = SyncGroupResponse(
        error_code=ErrorCode.NONE,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        assignment=member.assignment,
    )
    turn.reply(call, response)


def _has_synced(group: Group, member: GroupMember) -> None:
    group.unsynced.pop(member.member_id, None)
    if not group.unsynced:
        group.sync_deadline = NEVER


def _remove_the_silent(turn: Turn, group: Group, _: str) -> None:
    """Remove whoever has not sent SyncGroup in time, static members too;

    Heartbeats alone don't save anyone.
    """
    silent = [group.members[member_id] for member_id in group.unsynced]
    for member in silent:
        _remove_member(turn, group, member)
    _prepare_rebalance(turn, group, f"no SyncGroup from {_some([member.name for member in silent])}")


def _refuse_parked_sync(turn: Turn, member: GroupMember, code: ErrorCode) -> None:
    if member.sync is not None:
        call, member.sync = member.sync, None
        refuse(turn, call, code)


# Staying: heartbeats and session timeouts.


def _heartbeat(turn: Turn, call: Received[HeartbeatRequest]) -> None:
    if not call.request.group_id:
        refuse(turn, call, ErrorCode.INVALID_GROUP_ID)
        return
    group = turn.coordinator.find(call.request.group_id)
    TABLE[Kind.HEARTBEAT, group.state](turn, group, call)


def _heartbeat_while_preparing(turn: Turn, group: Group, call: Received[HeartbeatRequest]) -> None:
    """Note the sign of life, and tell the member to join again."""
    _answer_heartbeat(turn, group, call, ErrorCode.REBALANCE_IN_PROGRESS)


def _heartbeat_in_peace(turn: Turn, group: Group, call: Received[HeartbeatRequest]) -> None:
    """Note the sign of life. Fine also while the plan is being made, whatever some say of that state."""
    _answer_heartbeat(turn, group, call, ErrorCode.NONE)


def _answer_heartbeat(turn: Turn, group: Group, call: Received[HeartbeatRequest], code: ErrorCode) -> None:
    request = call.request
    error = member_error(group, request.member_id, request.group_instance_id)
    if not error and request.generation_id != group.generation:
        error = ErrorCode.ILLEGAL_GENERATION
    if not error:
        turn.refresh_session(group, group.members[request.member_id])
    turn.reply(call, HeartbeatResponse(error_code=error or code))


def _expire_member(turn: Turn, group: Group, member_id: str) -> None:
    """Remove the member, unless it waits for our answer:

    Then it lives, and its answer sets the deadline anew.
    """
    member = group.members[member_id]
    if not member.new and (member.join is not None or member.sync is not None):
        member.deadline = NEVER
        return
    timeout = NEW_MEMBER_JOIN_TIMEOUT_MS if member.new else member.session_timeout_ms
    _remove_member(turn, group, member)
    _go_on_without(turn, group, f"{member.name} was silent for {timeout} ms")


def _expire_pending(turn: Turn, group: Group, member_id: str) -> None:
    """Forget the id; a rebalance that only waited for it ends."""
    del group.pending[member_id]
    _end_gathering_if_all_are_here(turn, group)


# Leaving.


def _leave(turn: Turn, call: Received[LeaveGroupRequest]) -> None:
    if not call.request.group_id:
        refuse(turn, call, ErrorCode.INVALID_GROUP_ID)
        return
    group = turn.coordinator.find(call.request.group_id)
    TABLE[Kind.LEAVE, group.state](turn, group, call)


def _remove_those_who_leave(turn: Turn, group: Group, call: Received[LeaveGroupRequest]) -> None:
    """Remove each that is a member, answer, and go on without them: at most one rebalance for all."""
    request = call.request
    identities: Sequence[MemberIdentity] = request.members
    if call.version < _V_LEAVE_TOGETHER:
        identities = [MemberIdentity(member_id=request.member_id, group_instance_id=None)]
    left: list[str] = []
    answers = [
        MemberResponse(
            member_id=identity.member_id,
            group_instance_id=identity.group_instance_id,
            error_code=_remove_one(turn, group, identity, left),
        )
        for identity in identities
    ]
    if call.version < _V_LEAVE_TOGETHER:
        turn.reply(call, LeaveGroupResponse(error_code=answers[0].error_code))
    else:
        turn.reply(call, LeaveGroupResponse(error_code=ErrorCode.NONE, members=answers))
    if left:
        _go_on_without(turn, group, f"{_some(left)} left")
    else:
        # An id that was handed out may have been given back. (In Kafka that makes even a Stable group
        # rebalance.)
        _end_gathering_if_all_are_here(turn, group)


def _remove_one(turn: Turn, group: Group, identity: MemberIdentity, left: list[str]) -> ErrorCode:
    member_id, instance_id = identity.member_id, identity.group_instance_id
    if member_id in group.pending:
        del group.pending[member_id]
        return ErrorCode.NONE
    if not member_id and instance_id is not None:
        # An administrator removes a static member by the name it knows; no such name gives no such member.
        member_id = group.instances.get(instance_id, "")
    if error := member_error(group, member_id, instance_id):
        return error
    member = group.members[member_id]
    left.append(_because(member.name, identity.reason))
    _remove_member(turn, group, member)
    return ErrorCode.NONE


def _remove_member(turn: Turn, group: Group, member: GroupMember) -> None:
    if (call := group.unpark_join(member)) is not None:
        refuse_join(turn, call, ErrorCode.UNKNOWN_MEMBER_ID, "")
    # Kafka never answers this one, so that the connection of the removed member hangs.
    _refuse_parked_sync(turn, member, ErrorCode.UNKNOWN_MEMBER_ID)
    group.remove(member.member_id)


def _go_on_without(turn: Turn, group: Group, reason: str) -> None:
    if group.state is GroupState.PREPARING_REBALANCE:
        _end_gathering_if_all_are_here(turn, group)
    else:
        _prepare_rebalance(turn, group, reason)


# The rest of a group's requests.


def _commit(turn: Turn, call: Received[OffsetCommitRequest]) -> None:
    _to_table(turn, Kind.COMMIT, call.request.group_id, offsets.read_commit(turn, call))


def _txn_commit(turn: Turn, call: Received[TxnOffsetCommitRequest]) -> None:
    if call.request.group_id:
        _to_table(turn, Kind.TXN_COMMIT, call.request.group_id, offsets.read_txn_commit(turn, call))
    else:
        refuse(turn, call, ErrorCode.INVALID_GROUP_ID)


def _to_table(turn: Turn, kind: Kind, group_id: str, commit: offsets.Commit) -> None:
    if commit.open_:
        group = turn.coordinator.find(group_id)
        TABLE[kind, group.state](turn, group, commit)
    else:
        commit.answer(turn)


def _delete_offsets(turn: Turn, call: Received[OffsetDeleteRequest]) -> None:
    deletion = offsets.read_deletion(turn, call)
    group = turn.coordinator.find(call.request.group_id)
    if not deletion.open_:
        deletion.answer(turn)
    elif not call.request.group_id:
        refuse(turn, call, ErrorCode.INVALID_GROUP_ID)
    else:
        TABLE[Kind.DELETE_OFFSETS, group.state](turn, group, deletion)


def _delete_offsets_of_nobody(turn: Turn, group: Group, deletion: Deletion) -> None:
    """There is no such group."""
    refuse(turn, deletion.call, ErrorCode.GROUP_ID_NOT_FOUND)


def _delete_unread_offsets(turn: Turn, group: Group, deletion: Deletion) -> None:
    """Delete what no consumer reads; what members of another kind read isn't known, so nothing of theirs."""
    if group.protocol_type == CONSUMER:
        offsets.delete_from_group_with_members(turn, group, deletion)
    else:
        refuse(turn, deletion.call, ErrorCode.NON_EMPTY_GROUP)


def _delete_groups(turn: Turn, call: Received[DeleteGroupsRequest]) -> None:
    results: list[DeletableGroupResult] = []
    for group_id in dict.fromkeys(call.request.groups_names):
        group = turn.coordinator.find(group_id)
        TABLE[Kind.DELETE, group.state](turn, group, results)
    turn.reply(call, DeleteGroupsResponse(throttle_time_ms=0, results=results))


def _delete(turn: Turn, group: Group, results: list[DeletableGroupResult]) -> None:
    """Forget the group with its offsets, promised ones and handed out ids too."""
    move(turn, group, GroupState.DEAD)
    results.append(DeletableGroupResult(group_id=group.group_id, error_code=ErrorCode.NONE))


def _delete_nothing(turn: Turn, group: Group, results: list[DeletableGroupResult]) -> None:
    """There is no such group."""
    results.append(DeletableGroupResult(group_id=group.group_id, error_code=ErrorCode.GROUP_ID_NOT_FOUND))


def _keep(turn: Turn, group: Group, results: list[DeletableGroupResult]) -> None:
    """A group with members is not deleted."""
    results.append(DeletableGroupResult(group_id=group.group_id, error_code=ErrorCode.NON_EMPTY_GROUP))


# Refusals.


def _unknown_member(turn: Turn, group: Group, call: Received[Message]) -> None:
    """Refuse with UNKNOWN_MEMBER_ID: there are no members."""
    refuse(turn, call, ErrorCode.UNKNOWN_MEMBER_ID)


def _impossible(turn: Turn, group: Group, what: object) -> None:
    """Can't happen: this state has nothing that could come back or come due."""
    raise AssertionError(f"{group.state.value} group {group.group_id!r}: {what!r}")


# Shared.


def _new_member_id(call: Received[JoinGroupRequest]) -> str:
    """The instance id in front is a promise: some clients tell by it that they lead (franz-go)."""
    name = call.request.group_instance_id
    return f"{call.client_id if name is None else name}-{call.random_id}"


def _rebalance_timeout(call: Received[JoinGroupRequest]) -> int:
    request = call.request
    return (
        request.rebalance_timeout_ms if call.version >= _V_REBALANCE_TIMEOUT else request.session_timeout_ms
    )


def _protocols(request: JoinGroupRequest) -> tuple[tuple[str, bytes], ...]:
    return tuple((protocol.name, protocol.metadata) for protocol in request.protocols)


def _because(what: str, reason: str | None) -> str:
    return f"{what}: {reason}" if reason else what


def _some(names: Sequence[str]) -> str:
    """The names, or the first three of many: a reason is for people."""
    shown = ", ".join(names[:3])
    return shown if len(names) <= 3 else f"{shown} and {len(names) - 3} more"


# The table: what happens in which state. It is the dispatch, and it is what is drawn.

_Handler = Callable[[Turn, Group, Any], None]

_ROWS: dict[Kind, tuple[_Handler, _Handler, _Handler, _Handler, _Handler]] = {
    # In the order of GroupState: Dead, Empty, PreparingRebalance, CompletingRebalance, Stable.
    Kind.JOIN_WITHOUT_ID: (_found_and_join, _hand_out_id, _hand_out_id, _hand_out_id, _hand_out_id),
    Kind.JOIN_AS_NEWCOMER: (_found_and_join, _admit, _admit_while_preparing, _admit, _admit),
    Kind.JOIN_AS_SUCCESSOR: (
        _impossible,
        _impossible,
        _succeed_while_preparing,
        _succeed_while_completing,
        _succeed_while_stable,
    ),
    Kind.JOIN_AGAIN: (
        _unknown_member,
        _unknown_member,
        _join_again_while_preparing,
        _join_again_while_completing,
        _join_again_while_stable,
    ),
    Kind.SYNC: (
        _unknown_member,
        _unknown_member,
        _sync_while_preparing,
        _sync_while_completing,
        _sync_while_stable,
    ),
    Kind.HEARTBEAT: (
        _unknown_member,
        _unknown_member,
        _heartbeat_while_preparing,
        _heartbeat_in_peace,
        _heartbeat_in_peace,
    ),
    Kind.LEAVE: (
        _remove_those_who_leave,
        _remove_those_who_leave,
        _remove_those_who_leave,
        _remove_those_who_leave,
        _remove_those_who_leave,
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
        _delete_offsets_of_nobody,
        offsets.delete_from_empty_group,
        _delete_unread_offsets,
        _delete_unread_offsets,
        _delete_unread_offsets,
    ),
    Kind.DELETE: (_delete_nothing, _delete, _keep, _keep, _keep),
    Kind.JOIN_DEADLINE: (_impossible, _impossible, _stop_waiting, _impossible, _impossible),
    Kind.SYNC_DEADLINE: (_impossible, _impossible, _impossible, _remove_the_silent, _remove_the_silent),
    Kind.SESSION_DEADLINE: (_impossible, _impossible, _expire_member, _expire_member, _expire_member),
    Kind.PENDING_DEADLINE: (_impossible, _expire_pending, _expire_pending, _expire_pending, _expire_pending),
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
