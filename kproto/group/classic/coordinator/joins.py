"""JoinGroup, one function for each kind of joining and state: the rows JOIN_... of the coordinator's table.

Rules that hold here:

* A dynamic newcomer gets an id first and is no member until it comes back with it (KIP-394). Until then it
  only keeps a rebalance from ending. Old versions and static members are taken in at once.
* Whoever is taken in, or rejoins for a new plan, waits: its JoinGroup is answered when the generation begins.
* A static member that comes back without its id gets a new one, and the place and assignment of its former
  self (KIP-345).
* A member whose protocols are what they were, in the same order and byte by byte, has nothing new to say.
"""

from __future__ import annotations

from typing import Final

from ....error_codes import ErrorCode
from ....messages.join_group import JoinGroupRequest
from .errors import refuse, refuse_join
from .rebalance import (
    answer_join,
    because,
    members_for_leader,
    prepare_rebalance,
    refuse_parked_sync,
)
from .settings import NEW_MEMBER_JOIN_TIMEOUT_MS
from .state import Group, GroupMember, Received, Turn, member_error

_V_REBALANCE_TIMEOUT: Final = 1  # before, the session timeout counted for both
_V_SKIP_ASSIGNMENT: Final = 9  # KIP-814


def hand_out_id(turn: Turn, group: Group, call: Received[JoinGroupRequest]) -> None:
    """Answer MEMBER_ID_REQUIRED with the id to come back with, and wait for it for a session timeout."""
    member_id = _new_member_id(call)
    group.pending[member_id] = turn.wake_at(group, turn.now + call.request.session_timeout_ms)
    refuse_join(turn, call, ErrorCode.MEMBER_ID_REQUIRED, member_id)


def admit(turn: Turn, group: Group, call: Received[JoinGroupRequest]) -> None:
    """Take the newcomer in and let it wait; a group that doesn't gather already begins to."""
    member = _add_member(turn, group, call)
    if member is not None:
        prepare_rebalance(turn, group, because(f"{member.name} joined", call.request.reason))


def admit_while_preparing(turn: Turn, group: Group, call: Received[JoinGroupRequest]) -> None:
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


def succeed_while_preparing(turn: Turn, group: Group, call: Received[JoinGroupRequest]) -> None:
    """Take the place of the former self and wait with the others."""
    _replace(turn, group, call)


def succeed_while_completing(turn: Turn, group: Group, call: Received[JoinGroupRequest]) -> None:
    """Take the place of the former self. The plan in the making names the old id, so make a new one."""
    member = _replace(turn, group, call)
    prepare_rebalance(turn, group, f"static member {member.name} came back while the plan was being made")


def succeed_while_stable(turn: Turn, group: Group, call: Received[JoinGroupRequest]) -> None:
    """Take the place of the former self, and its assignment, unless the vote for the protocol changes."""
    former_leader = group.leader
    member = _replace(turn, group, call)
    vote = group.vote()
    if vote != group.protocol_name:
        change = f"changes the protocol from {group.protocol_name} to {vote}"
        prepare_rebalance(turn, group, f"static member {member.name} came back and {change}")
        return
    group.unpark_join(member)
    skip = call.version >= _V_SKIP_ASSIGNMENT
    leads = group.leader == member.member_id
    # Without skipAssignment a leader would make a plan nobody waits for: so it is not told that it leads.
    answer_join(
        turn,
        group,
        member,
        call,
        leader=group.leader if skip else former_leader,
        members=members_for_leader(group) if skip and leads else [],
        skip_assignment=skip and leads,
    )


def _replace(turn: Turn, group: Group, call: Received[JoinGroupRequest]) -> GroupMember:
    """Let the new incarnation wait in the place of the old one, whose open requests are fenced."""
    request = call.request
    assert request.group_instance_id is not None
    member = group.members[group.instances[request.group_instance_id]]
    if (join := group.unpark_join(member)) is not None:
        refuse_join(turn, join, ErrorCode.FENCED_INSTANCE_ID, member.member_id)
    refuse_parked_sync(turn, member, ErrorCode.FENCED_INSTANCE_ID)
    group.rename(member, _new_member_id(call))
    # The first stretch still has the old session timeout, as in Kafka; the next sign of life starts the new.
    turn.refresh_session(group, member)
    # Kafka keeps this True, so that a replaced newcomer can expire while it waits in JoinGroup.
    member.new = False
    _update(group, member, call)
    group.park_join(member, call)
    return member


def join_again_while_preparing(turn: Turn, group: Group, call: Received[JoinGroupRequest]) -> None:
    """Wait with the others."""
    if (member := _known(turn, group, call)) is not None:
        _park(turn, group, member, call)


def join_again_while_completing(turn: Turn, group: Group, call: Received[JoinGroupRequest]) -> None:
    """Tell the member what it missed; if it offers something else than before, gather anew."""
    member = _known(turn, group, call)
    if member is None:
        return
    if member.protocols != _protocols(call.request):
        _park(turn, group, member, call)
        prepare_rebalance(turn, group, because(f"{member.name} changed what it offers", call.request.reason))
        return
    leads = group.leader == member.member_id
    answer_join(
        turn, group, member, call, leader=group.leader, members=members_for_leader(group) if leads else []
    )


def join_again_while_stable(turn: Turn, group: Group, call: Received[JoinGroupRequest]) -> None:
    """Rebalance for a leader, or for a member with something new; tell anyone else what it missed."""
    member = _known(turn, group, call)
    if member is None:
        return
    if group.leader == member.member_id:
        what = f"leader {member.name} rejoined"
    elif member.protocols != _protocols(call.request):
        what = f"{member.name} changed what it offers"
    else:
        # Neither its timeouts are taken over nor does this count as a sign of life, as in Kafka.
        answer_join(turn, group, member, call, leader=group.leader, members=[])
        return
    _park(turn, group, member, call)
    prepare_rebalance(turn, group, because(what, call.request.reason))


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
