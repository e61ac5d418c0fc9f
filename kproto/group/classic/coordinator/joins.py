"""JoinGroup: new members, static members that restart, and members that rejoin.

The handlers of this module are the cells of the JoinGroup rows in `table`, which has one handler for each
event and state of the group.

* R25, R30: a new dynamic member first receives a member id, and is added when it joins again with this id
  (KIP-394).

* R26, R27: static members, and clients that use JoinGroup below v4, are added at their first JoinGroup.

* R25, R51, R138: the member id of a new dynamic member is pending until its second JoinGroup, at most for one
  session timeout. The only effect of a pending member id is that the rebalance waits for it.

* R31, R55: the JoinGroup of a new member, and of a member that needs a new assignment, is answered when the
  next generation begins.

* R42: a static member that restarts receives a new member id, and takes over the assignment of its former
  process, which is fenced (KIP-345).

* R38: the metadata of a member has changed if its protocols differ in number, order, name or bytes.
"""

from __future__ import annotations

from typing import Final

from ....error_codes import ErrorCode
from ....machine import RequestReceived
from ....messages.join_group import JoinGroupRequest
from ...settings import NEW_MEMBER_JOIN_TIMEOUT_MS
from .rebalance import (
    cancel_sync,
    complete_join_if_all_joined,
    leader_member_list,
    prepare_rebalance,
    send_join_response,
    with_reason,
)
from .responses import send_error, send_join_error
from .state import ClassicGroup, ClassicGroupMember, GroupContext, MemberRemoved, member_error

# From this version on, JoinGroup has a rebalance timeout. In version 0 the session timeout is used instead.
_REBALANCE_TIMEOUT_VERSION: Final = 1
_SKIP_ASSIGNMENT_VERSION: Final = 9  # KIP-814


# Rejections.


def refuse_because_full(
    context: GroupContext, group: ClassicGroup, call: RequestReceived[JoinGroupRequest]
) -> None:
    """Answer GROUP_MAX_SIZE_REACHED. If the sender's member id is pending, remove it.

    A sender that is a member, but has not joined yet, is removed if `group.max.size` members have joined. So
    a group above this size shrinks. A member that is rejected because its metadata is too large stays in the
    group with its earlier metadata.

    If all other members have joined, the removal completes the join phase (R22). In Kafka 4.3, the join phase
    lasts until the rebalance timeout instead.
    """
    member_id = call.request.member_id
    member = group.members.get(member_id)
    max_size = context.coordinator.settings.group_max_size
    if member is None:
        group.remove(member_id)
    elif member.join is None and group.awaiting_join >= max_size:
        reason = f"the group has more than {max_size} members"
        context.actions.append(MemberRemoved(group.group_id, member_id, reason))
        group.remove(member_id)
    send_join_error(context, call, ErrorCode.GROUP_MAX_SIZE_REACHED, "")
    complete_join_if_all_joined(context, group)


def refuse_protocols(
    context: GroupContext, group: ClassicGroup, call: RequestReceived[JoinGroupRequest]
) -> None:
    """Answer INCONSISTENT_GROUP_PROTOCOL: no protocol of the member is supported by all members."""
    send_error(context, call, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)


# New members.


def issue_member_id(
    context: GroupContext, group: ClassicGroup, call: RequestReceived[JoinGroupRequest]
) -> None:
    """Answer MEMBER_ID_REQUIRED with a new member id, which is valid for one session timeout."""
    member_id = _new_member_id(call)
    group.pending[member_id] = context.wake_at(group, context.now + call.request.session_timeout_ms)
    send_join_error(context, call, ErrorCode.MEMBER_ID_REQUIRED, member_id)


def add_member(context: GroupContext, group: ClassicGroup, call: RequestReceived[JoinGroupRequest]) -> None:
    """Add the member and start a rebalance."""
    member = _add_member(context, group, call)
    if member is not None:
        prepare_rebalance(context, group, with_reason(f"{member.label} joined", call.request.reason))


def add_member_while_preparing(
    context: GroupContext, group: ClassicGroup, call: RequestReceived[JoinGroupRequest]
) -> None:
    """Add the member to the rebalance in progress. An initial delay that is in progress is extended."""
    member = _add_member(context, group, call)
    if member is not None:
        group.new_member_added = True
        group.rebalance_reasons.append(with_reason(f"{member.label} joined", call.request.reason))
    complete_join_if_all_joined(context, group)


def _add_member(
    context: GroupContext, group: ClassicGroup, call: RequestReceived[JoinGroupRequest]
) -> ClassicGroupMember | None:
    """Add the sender to the group, and delay the response to its JoinGroup.

    Return the new member, or None if the request is answered with an error.
    """
    request = call.request
    if request.member_id and request.group_instance_id is not None:
        # The request has both an instance id and the member id of a dynamic member; no client sends such a
        # request. Kafka throws an IllegalStateException, and answers with this error code.
        send_join_error(context, call, ErrorCode.UNKNOWN_SERVER_ERROR, "")
        return None
    member = ClassicGroupMember(
        member_id=request.member_id or _new_member_id(call),
        group_instance_id=request.group_instance_id,
        client_id=call.client_id,
        client_host=call.client_host,
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=_rebalance_timeout_ms(call),
        protocols=_protocols(request),
    )
    if not group.members:
        group.protocol_type = request.protocol_type
    group.add(member)
    group.hold_join(member, call)
    member.deadline = context.wake_at(group, context.now + NEW_MEMBER_JOIN_TIMEOUT_MS)
    return member


# Static members that restart.


def replace_member_while_preparing(
    context: GroupContext, group: ClassicGroup, call: RequestReceived[JoinGroupRequest]
) -> None:
    """Replace the former process of the static member by the restarted one.

    The JoinGroup of the restarted member is answered when the next generation begins.
    """
    _replace_incarnation(context, group, call)
    complete_join_if_all_joined(context, group)


def replace_member_while_completing(
    context: GroupContext, group: ClassicGroup, call: RequestReceived[JoinGroupRequest]
) -> None:
    """Replace the former process of the static member by the restarted one, and start a rebalance.

    The rebalance is necessary because the assignment that the leader computes names the old member id.
    """
    member = _replace_incarnation(context, group, call)
    prepare_rebalance(
        context, group, f"static member {member.label} restarted while the assignment was computed"
    )


def replace_member_while_stable(
    context: GroupContext, group: ClassicGroup, call: RequestReceived[JoinGroupRequest]
) -> None:
    """Replace the former process of the static member by the restarted one.

    The JoinGroup of the restarted member is answered immediately, unless its metadata makes the group select
    another protocol. In that case, a rebalance starts.

    From JoinGroup v9 on, the response to a restarted leader has skipAssignment set (R43).

    Below v9, the response to a restarted leader names the former member id as the leader, so that the client
    sends SyncGroup as a follower and receives its stored assignment. If the response named the new member id,
    the client would compute an assignment, which the coordinator ignores in Stable.
    """
    former_leader = group.leader
    member = _replace_incarnation(context, group, call)
    protocol_name = group.select_protocol()
    if protocol_name != group.protocol_name:
        change = f"changes the protocol from {group.protocol_name} to {protocol_name}"
        prepare_rebalance(context, group, f"static member {member.label} restarted and {change}")
        return
    group.release_join(member)
    supports_skip_assignment = call.version >= _SKIP_ASSIGNMENT_VERSION
    is_leader = group.leader == member.member_id
    send_join_response(
        context,
        group,
        member,
        call,
        leader=group.leader if supports_skip_assignment else former_leader,
        members=leader_member_list(group) if supports_skip_assignment and is_leader else [],
        skip_assignment=supports_skip_assignment and is_leader,
    )


def _replace_incarnation(
    context: GroupContext, group: ClassicGroup, call: RequestReceived[JoinGroupRequest]
) -> ClassicGroupMember:
    """Give a restarted static member a new member id, and delay the response to its JoinGroup.

    The delayed requests of the former member id are answered with FENCED_INSTANCE_ID (R42).
    """
    request = call.request
    assert request.group_instance_id is not None
    member = group.members[group.instances[request.group_instance_id]]
    if (join := group.release_join(member)) is not None:
        send_join_error(context, join, ErrorCode.FENCED_INSTANCE_ID, member.member_id)
    cancel_sync(context, member, ErrorCode.FENCED_INSTANCE_ID)
    reason = f"{member.label} was replaced by another process with its instance id"
    context.actions.append(MemberRemoved(group.group_id, member.member_id, reason))
    group.rename(member, _new_member_id(call))
    # As in Kafka, the session timeout that the former process requested applies until the session is
    # restarted again, for example by the next heartbeat. From then on, the session timeout of this JoinGroup
    # applies.
    context.restart_session(group, member)
    # The replacement cannot expire while its JoinGroup waits, because its flag `new` is False. Kafka keeps
    # the flag of the former process, so in Kafka the replacement of a new member can expire.
    member.new = False
    _update_member(group, member, call)
    group.hold_join(member, call)
    return member


# Members that rejoin with their member id.


def rejoin_while_preparing(
    context: GroupContext, group: ClassicGroup, call: RequestReceived[JoinGroupRequest]
) -> None:
    """Delay the response until the next generation begins."""
    if (member := _find_member(context, group, call)) is not None:
        _update_and_delay(context, group, member, call)
    complete_join_if_all_joined(context, group)


def rejoin_while_completing(
    context: GroupContext, group: ClassicGroup, call: RequestReceived[JoinGroupRequest]
) -> None:
    """Answer with the current generation, or start a rebalance if the member's metadata changed."""
    member = _find_member(context, group, call)
    if member is None:
        return
    if member.protocols != _protocols(call.request):
        _update_and_delay(context, group, member, call)
        prepare_rebalance(
            context, group, with_reason(f"{member.label} changed its metadata", call.request.reason)
        )
        return
    is_leader = group.leader == member.member_id
    send_join_response(
        context,
        group,
        member,
        call,
        leader=group.leader,
        members=leader_member_list(group) if is_leader else [],
    )


def rejoin_while_stable(
    context: GroupContext, group: ClassicGroup, call: RequestReceived[JoinGroupRequest]
) -> None:
    """Start a rebalance if the leader rejoins or the metadata has changed; otherwise answer immediately."""
    member = _find_member(context, group, call)
    if member is None:
        return
    if group.leader == member.member_id:
        reason = f"leader {member.label} rejoined"
    elif member.protocols != _protocols(call.request):
        reason = f"{member.label} changed its metadata"
    else:
        # As in Kafka, the timeouts in this request are ignored, and it does not restart the session timeout
        # (R36).
        send_join_response(context, group, member, call, leader=group.leader, members=[])
        return
    _update_and_delay(context, group, member, call)
    prepare_rebalance(context, group, with_reason(reason, call.request.reason))


def _find_member(
    context: GroupContext, group: ClassicGroup, call: RequestReceived[JoinGroupRequest]
) -> ClassicGroupMember | None:
    """Return the member that sent the request.

    If the sender is not a member, answer with an error and return None (R15).
    """
    request = call.request
    if error := member_error(group, request.member_id, request.group_instance_id):
        send_error(context, call, error)
        return None
    return group.members[request.member_id]


def _update_and_delay(
    context: GroupContext,
    group: ClassicGroup,
    member: ClassicGroupMember,
    call: RequestReceived[JoinGroupRequest],
) -> None:
    """Apply the request to the member, and delay its response until the next generation (R31).

    If an earlier JoinGroup of the same member is pending, it is answered with REBALANCE_IN_PROGRESS. Kafka
    never answers the earlier one.
    """
    if (earlier := group.release_join(member)) is not None:
        send_error(context, earlier, ErrorCode.REBALANCE_IN_PROGRESS)
    _update_member(group, member, call)
    group.hold_join(member, call)


def _update_member(
    group: ClassicGroup, member: ClassicGroupMember, call: RequestReceived[JoinGroupRequest]
) -> None:
    """Apply the protocols and the timeouts of a JoinGroup to the member."""
    group.set_protocols(member, _protocols(call.request))
    member.session_timeout_ms = call.request.session_timeout_ms
    member.rebalance_timeout_ms = _rebalance_timeout_ms(call)


def _new_member_id(call: RequestReceived[JoinGroupRequest]) -> str:
    """Return a new member id (R28).

    The id of a static member starts with its instance id. With JoinGroup below v9, a
    franz-go member that restarts recognizes by this prefix that the leader's id is its own former id.
    """
    instance_id = call.request.group_instance_id
    return f"{call.client_id if instance_id is None else instance_id}-{call.random_id}"


def _rebalance_timeout_ms(call: RequestReceived[JoinGroupRequest]) -> int:
    """Return the rebalance timeout of a JoinGroup.

    JoinGroup v0 has no rebalance timeout: the session timeout is used instead (R2).
    """
    request = call.request
    return (
        request.rebalance_timeout_ms
        if call.version >= _REBALANCE_TIMEOUT_VERSION
        else request.session_timeout_ms
    )


def _protocols(request: JoinGroupRequest) -> tuple[tuple[str, bytes], ...]:
    return tuple((protocol.name, protocol.metadata) for protocol in request.protocols)
