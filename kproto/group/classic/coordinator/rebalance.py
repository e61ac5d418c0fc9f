"""The join phase of a rebalance, from its start to the JoinGroup responses.

* R50: a rebalance that starts in CompletingRebalance discards the assignment, and answers each delayed
  SyncGroup with REBALANCE_IN_PROGRESS. The sessions of the members that sent these requests restart.

* R139: the join phase waits for JoinGroup from all members. The longest wait is the largest rebalance timeout
  of the members at the start of the phase.

* R141, R142, R143: in a group that was Empty, the join phase lasts for the initial delay,
  `group.initial.rebalance.delay.ms`. New members extend the delay, at most up to the rebalance timeout of
  the first member.

* R51: outside of the initial delay, the join phase completes early when all members have joined and no member
  id is pending.

* R144: in kproto the initial delay never ends early. In Kafka it ends early if a member or a pending
  member id expires.

* R52, R147: at the end of the join phase, dynamic members that have not joined are removed. Static members
  stay and are part of the assignment, but are removed if they do not send SyncGroup in time.

* R53, R140: if only static members remain after the removal of dynamic members, and none of them has joined,
  the join phase continues for another rebalance timeout.

* R160, R162: a leader that has joined remains the leader. Otherwise the first member in the group's order
  that has joined becomes the leader (R163).
"""

from __future__ import annotations

from ....error_codes import ErrorCode
from ....machine import NEVER, RequestReceived
from ....messages.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember
from .offsets import CONSUMER
from .responses import send_error, wire_protocol_name
from .state import (
    ClassicGroup,
    ClassicGroupMember,
    ClassicGroupState,
    GenerationStarted,
    GroupContext,
    GroupEmptied,
    MemberRemoved,
    RebalanceStarted,
    move,
)


def prepare_rebalance(context: GroupContext, group: ClassicGroup, reason: str) -> None:
    """Start a rebalance (R50, R139, R141). `reason` is a sentence for logs and `Server.observe`.

    The join phase completes within this call if all members have joined already.
    """
    for member in group.members.values():
        if group.state is ClassicGroupState.COMPLETING_REBALANCE:
            member.assignment = b""
        if member.sync is not None:
            cancel_sync(context, member, ErrorCode.REBALANCE_IN_PROGRESS)
            context.restart_session(group, member)
    group.unsynced.clear()
    group.sync_deadline = NEVER
    join_timeout_ms = group.max_rebalance_timeout()
    group.new_member_added = False
    group.initial_delay_left = None
    if group.state is ClassicGroupState.EMPTY:
        initial_delay_ms = context.coordinator.settings.group_initial_rebalance_delay_ms
        group.initial_delay_left = max(join_timeout_ms - initial_delay_ms, 0)
        join_timeout_ms = initial_delay_ms
    group.join_deadline = context.wake_at(group, context.now + join_timeout_ms)
    group.rebalance_reasons = [reason]
    move(context, group, ClassicGroupState.PREPARING_REBALANCE)
    context.actions.append(RebalanceStarted(group.group_id, group.generation, reason))
    complete_join_if_all_joined(context, group)


def complete_join_if_all_joined(context: GroupContext, group: ClassicGroup) -> None:
    """Complete the join phase if all members have joined and no member id is pending (R22, R51, R144).

    During the initial delay, do nothing.
    """
    if (
        group.state is ClassicGroupState.PREPARING_REBALANCE
        and group.initial_delay_left is None
        and group.awaiting_join == len(group.members)
        and not group.pending
    ):
        _complete_join(context, group)


def on_join_deadline(context: GroupContext, group: ClassicGroup, _: str) -> None:
    """Complete the join phase, or extend an initial delay during which members joined (R142, R143, R145)."""
    remaining_ms = group.initial_delay_left
    if remaining_ms and group.new_member_added:
        group.new_member_added = False
        extension_ms = min(context.coordinator.settings.group_initial_rebalance_delay_ms, remaining_ms)
        group.initial_delay_left = remaining_ms - extension_ms
        group.join_deadline = context.wake_at(group, context.now + extension_ms)
    else:
        _complete_join(context, group)


def _complete_join(context: GroupContext, group: ClassicGroup) -> None:
    """Remove dynamic members that have not joined, and start the next generation (R52, R53, R54, R140, R167).

    A group without remaining members becomes Empty. If all remaining members are static members that have not
    joined, the join phase continues.
    """
    waited_ms = group.max_rebalance_timeout()
    absent_members = [member for member in group.members.values() if member.join is None]
    for member in absent_members:
        if member.group_instance_id is None:
            group.remove(member.member_id)
            reason = f"{member.label} did not rejoin within {waited_ms} ms"
            context.actions.append(MemberRemoved(group.group_id, member.member_id, reason))
    if group.members and not group.awaiting_join:
        # All remaining members are static, and none of them has joined. Wait for another rebalance timeout,
        # at least 1 ms, so that the deadline is in the future.
        group.join_deadline = context.wake_at(group, context.now + max(group.max_rebalance_timeout(), 1))
        return
    group.join_deadline = NEVER
    group.initial_delay_left = None
    group.generation += 1
    if group.members:
        _start_generation(context, group)
        return
    group.protocol_name = None
    group.subscriptions = ()
    move(context, group, ClassicGroupState.EMPTY)
    context.actions.append(GroupEmptied(group.group_id, group.generation, group.rebalance_reasons[0]))


def _start_generation(context: GroupContext, group: ClassicGroup) -> None:
    """Select the leader and the protocol, and answer every JoinGroup (R55, R162).

    Every member must now send SyncGroup within a rebalance timeout (R146), including static members that have
    not joined.
    """
    if group.leader is None or group.members[group.leader].join is None:
        group.leader = next(
            member_id for member_id, member in group.members.items() if member.join is not None
        )
    group.protocol_name = group.select_protocol()
    if group.protocol_type == CONSUMER:
        group.subscriptions = tuple(member.metadata(group.protocol_name) for member in group.members.values())
    move(context, group, ClassicGroupState.COMPLETING_REBALANCE)
    reasons = tuple(dict.fromkeys(group.rebalance_reasons))
    context.actions.append(GenerationStarted(group.group_id, group.generation, reasons))
    leader_members = leader_member_list(group)
    for member_id, member in group.members.items():
        member.new = False
        context.restart_session(group, member)
        group.unsynced[member_id] = None
        if (call := group.release_join(member)) is not None:
            members = leader_members if member_id == group.leader else []
            send_join_response(context, group, member, call, leader=group.leader, members=members)
    group.sync_deadline = context.wake_at(group, context.now + group.max_rebalance_timeout())


def leader_member_list(group: ClassicGroup) -> list[JoinGroupResponseMember]:
    """Return the members in the leader's JoinGroup response, with the selected protocol's metadata (R40)."""
    return [
        JoinGroupResponseMember(
            member_id=member.member_id,
            group_instance_id=member.group_instance_id,
            metadata=member.metadata(group.protocol_name),
        )
        for member in group.members.values()
    ]


def send_join_response(
    context: GroupContext,
    group: ClassicGroup,
    member: ClassicGroupMember,
    call: RequestReceived[JoinGroupRequest],
    *,
    leader: str | None,
    members: list[JoinGroupResponseMember],
    skip_assignment: bool = False,
) -> None:
    """Answer a JoinGroup with the group's generation (R40). For a follower `members` is empty."""
    context.reply(
        call,
        JoinGroupResponse(
            error_code=ErrorCode.NONE,
            generation_id=group.generation,
            protocol_type=group.protocol_type,
            protocol_name=wire_protocol_name(group.protocol_name, call.version),
            leader=leader or "",
            skip_assignment=skip_assignment,
            member_id=member.member_id,
            members=members,
        ),
    )


def cancel_sync(context: GroupContext, member: ClassicGroupMember, code: ErrorCode) -> None:
    """If the member has a delayed SyncGroup, answer it with the error `code`."""
    if member.sync is not None:
        call, member.sync = member.sync, None
        send_error(context, call, code)


def with_reason(event: str, reason: str | None) -> str:
    """Return `event`, followed by the client's reason if the client sent one (R39, KIP-800)."""
    return f"{event}: {reason}" if reason else event
