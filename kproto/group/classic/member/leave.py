"""Leaving the group, because the application unsubscribes, closes the consumer or does not poll in time."""

from __future__ import annotations

from ....errors import UnsupportedVersion
from ....messages.join_group import JoinGroupRequest, JoinGroupResponse
from ....messages.leave_group import LeaveGroupRequest, MemberIdentity
from ....wire.message import Message
from ...protocol import (
    CloseRequested,
    Left,
    Received,
    Released,
    RevokePurpose,
    Send,
    SendFailed,
    SendRefused,
    Unsubscribed,
)
from .membership import forget_membership
from .reasons import BEING_CLOSED, LEFT_BY_ITSELF, MAX_REASON, UNSUBSCRIBED
from .revocation import finish_release, lose, revoke
from .state import Actions, Member, MemberState, S, move

# From this version on, LeaveGroup has a list of members, each with its reason (KIP-345, KIP-800).
LEAVE_GROUP_WITH_MEMBERS = 3
# From this version on, JoinGroup includes the member's group.instance.id (KIP-345).
STATIC_MEMBERS = 5


def send_leave(member: Member, reason: str, out: Actions) -> Message | None:
    """Send LeaveGroup for a dynamic member that the coordinator may know; return the request (M60, M115).

    A static member does not leave: its partitions stay assigned to it until its session times out (KIP-345).
    """
    if member.config.group_instance_id is not None or member.coordinator is None or not member.member_id:
        return None
    identity = MemberIdentity(member_id=member.member_id, group_instance_id=None, reason=reason[:MAX_REASON])
    request = LeaveGroupRequest(group_id=member.config.group_id, members=[identity])
    out.append(Send(request, urgent=member.rebalance_request is not None))
    return request


def in_version(request: Message, version: int) -> Message:
    """Return a member's request in the layout of `version`. Encoding the result may still raise EncodeError.

    Only LeaveGroup depends on the version: up to v2 it has one member id, and from v3 on a list of members
    (KIP-345).

    As in Java's JoinGroupRequest.Builder, UnsupportedVersion is raised for the JoinGroup of a static member
    if the version has no field for the instance id.
    """
    if isinstance(request, JoinGroupRequest) and version < STATIC_MEMBERS and request.group_instance_id:
        allowed = (
            f"{STATIC_MEMBERS} and higher (Kafka 2.3 and later) with group_instance_id "
            f"{request.group_instance_id!r}; omit this option to join as a dynamic member"
        )
        raise UnsupportedVersion("JoinGroup", version, allowed)
    if isinstance(request, LeaveGroupRequest) and version < LEAVE_GROUP_WITH_MEMBERS and request.members:
        return LeaveGroupRequest(group_id=request.group_id, member_id=request.members[0].member_id)
    return request


# The release of the partitions before LeaveGroup is sent.


def _release_then_leave(member: Member, state: MemberState, now: int, out: Actions) -> None:
    """Move to `state`, revoke all partitions, then leave (M97).

    If the application is already releasing some partitions, `on_released` revokes the others afterwards.

    A member that leaves during a rebalance loses its partitions, instead of revoking them, because the next
    generation may already have assigned them to another member.
    """
    if member.state is S.UNJOINED or member.is_rebalancing:
        member.generation = None
    member.pending_assignment = None
    move(member, state)
    if member.unreleased is None:
        _release_all_or_leave(member, now, out)


def _release_all_or_leave(member: Member, now: int, out: Actions) -> None:
    """Revoke the member's partitions, or lose them without a generation; without partitions, leave."""
    if member.owned:
        is_closing = member.state is S.CLOSING
        reason = BEING_CLOSED if is_closing else UNSUBSCRIBED
        if member.generation is None:
            lose(member, member.owned, reason, out)
        else:
            purpose = RevokePurpose.CLOSE if is_closing else RevokePurpose.UNSUBSCRIBE
            revoke(member, member.owned, purpose, reason, out)
    elif member.state is S.UNSUBSCRIBING:
        _leave_after_unsubscribe(member, now, out)
    else:
        _leave_and_close(member, now, out)


def on_released(member: Member, event: Released, now: int, out: Actions) -> None:
    """Remove the released partitions from `owned`.

    If the member still owns partitions, release them. Otherwise, leave the group.
    """
    finish_release(member)
    _release_all_or_leave(member, now, out)


# Unsubscribe


def on_unsubscribe(member: Member, event: Unsubscribed, now: int, out: Actions) -> None:
    """Revoke all partitions, then leave the group (M17, M99)."""
    member.topics, member.pattern = frozenset(), None
    _release_then_leave(member, S.UNSUBSCRIBING, now, out)


def on_unsubscribe_idle(member: Member, event: Unsubscribed, now: int, out: Actions) -> None:
    """Stay idle. As in Java, the next JoinGroup has the reason `LEFT_BY_ITSELF`."""
    member.rejoin_reason = LEFT_BY_ITSELF


def on_unsubscribe_again(member: Member, event: Unsubscribed, now: int, out: Actions) -> None:
    """Drop a subscription made while the member was leaving, so that the member stays idle afterwards."""
    member.topics, member.pattern = frozenset(), None


def _leave_after_unsubscribe(member: Member, now: int, out: Actions) -> None:
    send_leave(member, UNSUBSCRIBED, out)
    forget_membership(member, LEFT_BY_ITSELF, keep_id=False)
    move(member, S.UNJOINED if member.topics or member.pattern is not None else S.IDLE)


# Close


def on_close(member: Member, event: CloseRequested, now: int, out: Actions) -> None:
    """Revoke all partitions, leave the group if `event.leave` is true, and close within the timeout (M98)."""
    member.close_ends_at = now + event.timeout_ms
    member.leaves_on_close = event.leave
    member.topics, member.pattern = frozenset(), None
    _release_then_leave(member, S.CLOSING, now, out)


def on_close_again(member: Member, event: CloseRequested, now: int, out: Actions) -> None:
    """Close by the earlier of the two deadlines, because `CloseRequested` arrived twice."""
    assert member.close_ends_at is not None
    member.close_ends_at = min(member.close_ends_at, now + event.timeout_ms)


def _leave_and_close(member: Member, now: int, out: Actions) -> None:
    """Send LeaveGroup and wait for its response, or close now if no LeaveGroup has to be sent."""
    member.leave_request = send_leave(member, BEING_CLOSED, out) if member.leaves_on_close else None
    if member.leave_request is None:
        close_now(member, out)
    else:
        move(member, S.LEAVING)


def close_now(member: Member, out: Actions) -> None:
    """Close immediately: drop the membership and all partitions without callbacks, and add `Left`."""
    forget_membership(member, BEING_CLOSED, keep_id=False)
    member.owned, member.unreleased, member.close_ends_at = (), None, None
    move(member, S.CLOSED)
    out.append(Left())


# Responses to the requests of a member that is about to leave.


def on_leave_response(member: Member, event: Received, now: int, out: Actions) -> None:
    """Close the member, whatever error code the response has (M60)."""
    if event.request is member.leave_request:
        close_now(member, out)


def on_leave_failed(member: Member, event: SendFailed, now: int, out: Actions) -> None:
    """Close the member, because LeaveGroup got no response."""
    if event.request is member.leave_request:
        close_now(member, out)


def on_leave_refused(member: Member, event: SendRefused, now: int, out: Actions) -> None:
    """Close the member although LeaveGroup cannot be sent."""
    if event.request is member.leave_request:
        close_now(member, out)


def on_join_response(member: Member, event: Received, now: int, out: Actions) -> None:
    """Store the member id that the response assigns, because LeaveGroup needs it."""
    assert isinstance(event.response, JoinGroupResponse)
    if event.request is member.rebalance_request:
        member.rebalance_request = None
        member.member_id = event.response.member_id or member.member_id


def on_sync_response(member: Member, event: Received, now: int, out: Actions) -> None:
    """Ignore the assignment, because the member is about to leave."""
    if event.request is member.rebalance_request:
        member.rebalance_request = None


def on_refused(member: Member, event: SendRefused, now: int, out: Actions) -> None:
    """Ignore a refused JoinGroup or SyncGroup, because the member is about to leave."""
    if event.request is member.rebalance_request:
        member.rebalance_request = None
