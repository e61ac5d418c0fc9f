"""Requests of members (SyncGroup, Heartbeat, LeaveGroup), and the deadlines that remove a member.

* R63, R66: a SyncGroup that arrives before the leader's assignment waits for it. A SyncGroup that arrives
  after the leader's assignment is answered immediately.

* R73, R74: Heartbeat succeeds in CompletingRebalance. In PreparingRebalance the error code is
  REBALANCE_IN_PROGRESS, but the session timeout restarts.

* R133, R135: once a member's first generation has begun, the member does not expire while the response to its
  JoinGroup or SyncGroup is delayed. The response restarts the session timeout.

* R134: until its first generation begins, a new member can expire while its JoinGroup is delayed. Its timeout
  is NEW_MEMBER_JOIN_TIMEOUT_MS, or the session timeout after a Heartbeat or OffsetCommit of the member.

* R146, R147: after a generation starts, each member must send SyncGroup within the largest rebalance timeout
  of the members. Otherwise the member is removed, even if it sends heartbeats.

* R81: the delayed requests of a removed member are answered with UNKNOWN_MEMBER_ID.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ....error_codes import ErrorCode
from ....errors import brief_list
from ....machine import NEVER, RequestReceived
from ....messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ....messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity, MemberResponse
from ....messages.sync_group import SyncGroupRequest, SyncGroupResponse
from ....wire.message import Message
from ...protocol import RebalanceCompleted
from ...settings import NEW_MEMBER_JOIN_TIMEOUT_MS
from .rebalance import cancel_sync, complete_join_if_all_joined, prepare_rebalance, with_reason
from .responses import send_error, send_join_error
from .state import (
    ClassicGroup,
    ClassicGroupMember,
    ClassicGroupState,
    GroupContext,
    MemberRemoved,
    member_error,
    move,
)

_BATCH_LEAVE_VERSION: Final = 3  # From this version on, LeaveGroup has a list of members (KIP-345).


def refuse_unknown_member(context: GroupContext, group: ClassicGroup, call: RequestReceived[Message]) -> None:
    """Answer UNKNOWN_MEMBER_ID: the group has no members or does not exist."""
    send_error(context, call, ErrorCode.UNKNOWN_MEMBER_ID)


# SyncGroup.


def sync_while_preparing(
    context: GroupContext, group: ClassicGroup, call: RequestReceived[SyncGroupRequest]
) -> None:
    """Answer with the error of `_sync_error` or, without an error, with REBALANCE_IN_PROGRESS.

    The session timeout is not restarted.
    """
    send_error(context, call, _sync_error(group, call.request) or ErrorCode.REBALANCE_IN_PROGRESS)


def sync_while_completing(
    context: GroupContext, group: ClassicGroup, call: RequestReceived[SyncGroupRequest]
) -> None:
    """Delay the response to a follower's SyncGroup; distribute the assignments of the leader's SyncGroup.

    An earlier SyncGroup of the same member that is still delayed is answered with REBALANCE_IN_PROGRESS.
    """
    request = call.request
    if error := _sync_error(group, request):
        send_error(context, call, error)
        return
    member = group.members[request.member_id]
    cancel_sync(context, member, ErrorCode.REBALANCE_IN_PROGRESS)
    member.sync = call
    _mark_synced(group, member)
    if group.leader == member.member_id:
        _distribute_assignments(
            context, group, {entry.member_id: entry.assignment for entry in request.assignments}
        )


def _distribute_assignments(
    context: GroupContext, group: ClassicGroup, assignments: dict[str, bytes]
) -> None:
    """Store the leader's assignments, answer every delayed SyncGroup, and move to Stable (R64, R65).

    A member that the leader left out receives an empty assignment. The assignments are not decoded (R185).
    """
    for member_id, member in group.members.items():
        member.assignment = assignments.get(member_id, b"")
        call, member.sync = member.sync, None
        if call is not None:
            _send_assignment(context, group, member, call)
    move(context, group, ClassicGroupState.STABLE)
    context.actions.append(RebalanceCompleted(group.group_id, group.generation, tuple(group.members)))


def sync_while_stable(
    context: GroupContext, group: ClassicGroup, call: RequestReceived[SyncGroupRequest]
) -> None:
    """Answer with the member's assignment. If the leader sends assignments in Stable, they are ignored."""
    if error := _sync_error(group, call.request):
        send_error(context, call, error)
        return
    member = group.members[call.request.member_id]
    _mark_synced(group, member)
    _send_assignment(context, group, member, call)


def _send_assignment(
    context: GroupContext,
    group: ClassicGroup,
    member: ClassicGroupMember,
    call: RequestReceived[SyncGroupRequest],
) -> None:
    """Answer a SyncGroup with the member's assignment, and restart the member's session timeout."""
    # Unlike in Kafka 4.3, the session timeout also restarts if SyncGroup arrives in Stable.
    context.restart_session(group, member)
    response = SyncGroupResponse(
        error_code=ErrorCode.NONE,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        assignment=member.assignment,
    )
    context.reply(call, response)


def _mark_synced(group: ClassicGroup, member: ClassicGroupMember) -> None:
    """Record that the member has sent SyncGroup in this generation (R146, R148)."""
    group.unsynced.pop(member.member_id, None)
    if not group.unsynced:
        group.sync_deadline = NEVER


def _sync_error(group: ClassicGroup, request: SyncGroupRequest) -> ErrorCode:
    """Return the error code with which a SyncGroup is rejected, or NONE (R60).

    The protocol type and name are compared only if both the request and the group have them.
    """
    if error := member_error(group, request.member_id, request.group_instance_id):
        return error
    if request.generation_id != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    for requested, selected in (
        (request.protocol_type, group.protocol_type),
        (request.protocol_name, group.protocol_name),
    ):
        if requested is not None and selected is not None and requested != selected:
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    return ErrorCode.NONE


def remove_unsynced_members(context: GroupContext, group: ClassicGroup, _: str) -> None:
    """Remove all members that have not sent SyncGroup in time, including static ones; start a rebalance."""
    unsynced = [group.members[member_id] for member_id in group.unsynced]
    for member in unsynced:
        _remove_member(context, group, member, f"no SyncGroup from {member.label}")
    prepare_rebalance(
        context, group, f"no SyncGroup from {brief_list([member.label for member in unsynced], 3)}"
    )


# Heartbeat.


def heartbeat_while_preparing(
    context: GroupContext, group: ClassicGroup, call: RequestReceived[HeartbeatRequest]
) -> None:
    """Restart the session timeout and answer REBALANCE_IN_PROGRESS, so that the member joins again."""
    _answer_heartbeat(context, group, call, ErrorCode.REBALANCE_IN_PROGRESS)


def heartbeat(context: GroupContext, group: ClassicGroup, call: RequestReceived[HeartbeatRequest]) -> None:
    """Restart the member's session timeout and answer NONE."""
    _answer_heartbeat(context, group, call, ErrorCode.NONE)


def _answer_heartbeat(
    context: GroupContext, group: ClassicGroup, call: RequestReceived[HeartbeatRequest], code: ErrorCode
) -> None:
    """Answer with `code`, or with an error if the member id or the generation is wrong (R71)."""
    request = call.request
    error = member_error(group, request.member_id, request.group_instance_id)
    if not error and request.generation_id != group.generation:
        error = ErrorCode.ILLEGAL_GENERATION
    if not error:
        context.restart_session(group, group.members[request.member_id])
    context.reply(call, HeartbeatResponse(error_code=error or code))


# Expiry.


def expire_member(context: GroupContext, group: ClassicGroup, member_id: str) -> None:
    """Remove the member, because its session has timed out.

    A static member is removed, too (R136). A member with a delayed JoinGroup or SyncGroup is kept, because
    the response will restart its session timeout (R135). A new member is removed nevertheless (R134).
    """
    member = group.members[member_id]
    if not member.new and (member.join is not None or member.sync is not None):
        member.deadline = NEVER
        return
    timeout = NEW_MEMBER_JOIN_TIMEOUT_MS if member.new else member.session_timeout_ms
    reason = f"{member.label} sent nothing for {timeout} ms"
    _remove_member(context, group, member, reason)
    _rebalance_after_removal(context, group, [reason])


def expire_pending_member(context: GroupContext, group: ClassicGroup, member_id: str) -> None:
    """Remove the pending member id. A rebalance that waited only for this id completes."""
    del group.pending[member_id]
    complete_join_if_all_joined(context, group)


# LeaveGroup.


def remove_leaving_members(
    context: GroupContext, group: ClassicGroup, call: RequestReceived[LeaveGroupRequest]
) -> None:
    """Remove every member that the request names, send the response, and start at most one rebalance."""
    request = call.request
    identities: Sequence[MemberIdentity] = request.members
    if call.version < _BATCH_LEAVE_VERSION:
        identities = [MemberIdentity(member_id=request.member_id, group_instance_id=None)]
    reasons: list[str] = []
    results = [
        MemberResponse(
            member_id=identity.member_id,
            group_instance_id=identity.group_instance_id,
            error_code=_remove_leaving_member(context, group, identity, reasons),
        )
        for identity in identities
    ]
    if call.version < _BATCH_LEAVE_VERSION:
        context.reply(call, LeaveGroupResponse(error_code=results[0].error_code))
    else:
        context.reply(call, LeaveGroupResponse(error_code=ErrorCode.NONE, members=results))
    if reasons:
        _rebalance_after_removal(context, group, reasons)
    else:
        # The request has removed no members, but perhaps pending member ids. Their removal may complete the
        # join phase. Kafka's coordinator instead starts a rebalance when it removes a pending member id, even
        # in a Stable group.
        complete_join_if_all_joined(context, group)


def _remove_leaving_member(
    context: GroupContext, group: ClassicGroup, identity: MemberIdentity, reasons: list[str]
) -> ErrorCode:
    """Remove a member named in LeaveGroup; return NONE or the error code (R78, R79, R80).

    If a member is removed, the reason is appended to `reasons`. The removal of a pending member id adds no
    reason.

    An entry with an instance id and no member id is an administrator's request to remove a static member. By
    default, a static member sends no LeaveGroup when it closes (R84).
    """
    member_id, instance_id = identity.member_id, identity.group_instance_id
    if member_id in group.pending:
        del group.pending[member_id]
        return ErrorCode.NONE
    if not member_id and instance_id is not None:
        member_id = group.instances.get(instance_id, "")
    if error := member_error(group, member_id, instance_id):
        return error
    member = group.members[member_id]
    reasons.append(with_reason(f"{member.label} left", identity.reason))
    _remove_member(context, group, member, reasons[-1])
    return ErrorCode.NONE


def _remove_member(
    context: GroupContext, group: ClassicGroup, member: ClassicGroupMember, reason: str
) -> None:
    """Remove a member and answer its delayed requests with UNKNOWN_MEMBER_ID (R81).

    Kafka does not answer the delayed SyncGroup of a removed member. Responses are in the order of requests,
    so Kafka answers no later request on this connection either.
    """
    if (call := group.release_join(member)) is not None:
        send_join_error(context, call, ErrorCode.UNKNOWN_MEMBER_ID, "")
    cancel_sync(context, member, ErrorCode.UNKNOWN_MEMBER_ID)
    group.remove(member.member_id)
    context.actions.append(MemberRemoved(group.group_id, member.member_id, reason))


def _rebalance_after_removal(context: GroupContext, group: ClassicGroup, reasons: Sequence[str]) -> None:
    """Start a rebalance or, during a join phase, check whether this phase is complete (R81, R83)."""
    if group.state is ClassicGroupState.PREPARING_REBALANCE:
        group.rebalance_reasons += reasons
        complete_join_if_all_joined(context, group)
    else:
        prepare_rebalance(context, group, brief_list(reasons, 3))
