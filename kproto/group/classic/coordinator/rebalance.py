"""Rebalancing: from the reason of a rebalance to the answers of all JoinGroups.

Rules that hold here:

* A rebalance takes the plan of an unfinished generation back, sends those who wait for it back to
  JoinGroup, and waits: from Empty for the initial delay, else for the longest rebalance timeout of the
  members there are now.
* It ends early when everyone has come and no handed out id is outstanding; in the initial delay it never
  does. (In Kafka it does when a member or a handed out id expires in it.)
* When it ends, dynamic members that have not come are out. Static ones stay, get a part in the plan, and
  are only missed when they don't send SyncGroup. If none but absent static members are left, it waits on.
* The leader stays the leader while it comes; else the member that came first leads.
"""

from __future__ import annotations

from collections.abc import Sequence

from ....error_codes import ErrorCode
from ....messages.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember
from .errors import protocol_name_on_the_wire, refuse
from .offsets import CONSUMER
from .state import NEVER, Emptied, Group, GroupMember, GroupState, Rebalancing, Received, Turn, move


def prepare_rebalance(turn: Turn, group: Group, reason: str) -> None:
    """Begin to gather: `reason` is for people. Everyone that waits for the plan is sent back to JoinGroup."""
    for member in group.members.values():
        if group.state is GroupState.COMPLETING_REBALANCE:
            member.assignment = b""
        if member.sync is not None:
            refuse_parked_sync(turn, member, ErrorCode.REBALANCE_IN_PROGRESS)
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
    end_gathering_if_all_are_here(turn, group)


def end_gathering_if_all_are_here(turn: Turn, group: Group) -> None:
    """Begin the generation if nobody is awaited any more. The initial delay never ends early."""
    if (
        group.state is GroupState.PREPARING_REBALANCE
        and group.initial_delay_left is None
        and group.waiting == len(group.members)
        and not group.pending
    ):
        _end_gathering(turn, group)


def stop_waiting(turn: Turn, group: Group, _: str) -> None:
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
        # Only static members are left, and none has come: wait on, a millisecond at least.
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
    """Choose leader and protocol, answer all, and expect a SyncGroup of each, absent static ones too."""
    if group.leader is None or group.members[group.leader].join is None:
        group.leader = next(
            member_id for member_id, member in group.members.items() if member.join is not None
        )
    group.protocol_name = group.vote()
    if group.protocol_type == CONSUMER:
        group.subscriptions = tuple(member.metadata(group.protocol_name) for member in group.members.values())
    move(turn, group, GroupState.COMPLETING_REBALANCE)
    for_leader = members_for_leader(group)
    for member_id, member in group.members.items():
        member.new = False
        turn.refresh_session(group, member)
        group.unsynced[member_id] = None
        if (call := group.unpark_join(member)) is not None:
            members = for_leader if member_id == group.leader else []
            answer_join(turn, group, member, call, leader=group.leader, members=members)
    group.sync_deadline = turn.wake_at(group, turn.now + group.longest_rebalance_timeout())


def members_for_leader(group: Group) -> list[JoinGroupResponseMember]:
    """Every member with what it said under the group's protocol: what a leader makes its plan of."""
    return [
        JoinGroupResponseMember(
            member_id=member.member_id,
            group_instance_id=member.group_instance_id,
            metadata=member.metadata(group.protocol_name),
        )
        for member in group.members.values()
    ]


def answer_join(
    turn: Turn,
    group: Group,
    member: GroupMember,
    call: Received[JoinGroupRequest],
    *,
    leader: str | None,
    members: list[JoinGroupResponseMember],
    skip_assignment: bool = False,
) -> None:
    """Answer a JoinGroup with the group's generation. `members` is empty for all but the leader."""
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


def refuse_parked_sync(turn: Turn, member: GroupMember, code: ErrorCode) -> None:
    """Answer the member's SyncGroup, if one waits, with this error."""
    if member.sync is not None:
        call, member.sync = member.sync, None
        refuse(turn, call, code)


def because(what: str, reason: str | None) -> str:
    """What happened, with the reason that the client gave (KIP-800) if it gave one."""
    return f"{what}: {reason}" if reason else what


def some(names: Sequence[str]) -> str:
    """The names, or the first three of many: a reason is for people."""
    shown = ", ".join(names[:3])
    return shown if len(names) <= 3 else f"{shown} and {len(names) - 3} more"
