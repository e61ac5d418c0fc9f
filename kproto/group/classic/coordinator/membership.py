"""Being a member: SyncGroup, Heartbeat, the deadlines that end a membership, and LeaveGroup.

Rules that hold here:

* Between its JoinGroup's answer and the leader's plan a member waits in SyncGroup; later it gets its part
  at once.
* Heartbeats are fine while the plan is being made. Only a rebalance that gathers answers
  REBALANCE_IN_PROGRESS, and even that heartbeat is a sign of life.
* A member that waits for our answer is alive; the answer starts its session timeout. A newcomer's longer
  timeout runs while it waits.
* Whoever has not sent SyncGroup a rebalance timeout after the generation began is removed, heartbeats or not.
* Whatever a removed member still waits for is answered UNKNOWN_MEMBER_ID.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ....error_codes import ErrorCode
from ....messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ....messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity, MemberResponse
from ....messages.sync_group import SyncGroupRequest, SyncGroupResponse
from .errors import refuse, refuse_join
from .rebalance import because, end_gathering_if_all_are_here, prepare_rebalance, refuse_parked_sync, some
from .settings import NEW_MEMBER_JOIN_TIMEOUT_MS
from .state import NEVER, Group, GroupMember, GroupState, Received, Settled, Turn, member_error, move

_V_LEAVE_TOGETHER: Final = 3  # LeaveGroup names several members (KIP-345)


def sync_while_preparing(turn: Turn, group: Group, call: Received[SyncGroupRequest]) -> None:
    """Send the member back to JoinGroup; this is no sign of life."""
    refuse(turn, call, _sync_error(group, call.request) or ErrorCode.REBALANCE_IN_PROGRESS)


def sync_while_completing(turn: Turn, group: Group, call: Received[SyncGroupRequest]) -> None:
    """Wait for the plan; the leader brings it."""
    request = call.request
    if error := _sync_error(group, request):
        refuse(turn, call, error)
        return
    member = group.members[request.member_id]
    # A repeated SyncGroup takes the place of the earlier one, which is told that it is not over.
    refuse_parked_sync(turn, member, ErrorCode.REBALANCE_IN_PROGRESS)
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


def sync_while_stable(turn: Turn, group: Group, call: Received[SyncGroupRequest]) -> None:
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


def remove_the_silent(turn: Turn, group: Group, _: str) -> None:
    """Remove whoever has not sent SyncGroup in time, static members too; heartbeats save nobody."""
    silent = [group.members[member_id] for member_id in group.unsynced]
    for member in silent:
        _remove_member(turn, group, member)
    prepare_rebalance(turn, group, f"no SyncGroup from {some([member.name for member in silent])}")


def heartbeat_while_preparing(turn: Turn, group: Group, call: Received[HeartbeatRequest]) -> None:
    """Note the sign of life, and tell the member to join again."""
    _answer_heartbeat(turn, group, call, ErrorCode.REBALANCE_IN_PROGRESS)


def heartbeat_in_peace(turn: Turn, group: Group, call: Received[HeartbeatRequest]) -> None:
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


def expire_member(turn: Turn, group: Group, member_id: str) -> None:
    """Remove the member, unless it waits for our answer: that sets the deadline anew."""
    member = group.members[member_id]
    if not member.new and (member.join is not None or member.sync is not None):
        member.deadline = NEVER
        return
    timeout = NEW_MEMBER_JOIN_TIMEOUT_MS if member.new else member.session_timeout_ms
    _remove_member(turn, group, member)
    _go_on_without(turn, group, f"{member.name} was silent for {timeout} ms")


def expire_pending(turn: Turn, group: Group, member_id: str) -> None:
    """Forget the id; a rebalance that only waited for it ends."""
    del group.pending[member_id]
    end_gathering_if_all_are_here(turn, group)


def remove_those_who_leave(turn: Turn, group: Group, call: Received[LeaveGroupRequest]) -> None:
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
        _go_on_without(turn, group, some(left))
    else:
        # An id that was handed out may have been given back. (In Kafka that makes even a Stable group
        # rebalance.)
        end_gathering_if_all_are_here(turn, group)


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
    left.append(because(f"{member.name} left", identity.reason))
    _remove_member(turn, group, member)
    return ErrorCode.NONE


def _remove_member(turn: Turn, group: Group, member: GroupMember) -> None:
    if (call := group.unpark_join(member)) is not None:
        refuse_join(turn, call, ErrorCode.UNKNOWN_MEMBER_ID, "")
    # Kafka never answers this one, so that the connection of the removed member hangs.
    refuse_parked_sync(turn, member, ErrorCode.UNKNOWN_MEMBER_ID)
    group.remove(member.member_id)


def _go_on_without(turn: Turn, group: Group, reason: str) -> None:
    if group.state is GroupState.PREPARING_REBALANCE:
        end_gathering_if_all_are_here(turn, group)
    else:
        prepare_rebalance(turn, group, reason)
