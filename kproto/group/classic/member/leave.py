"""How a member lets go of partitions, how it leaves, and what it does when the coordinator refuses it."""

from __future__ import annotations

from collections.abc import Iterable

from ....error_codes import ErrorCode
from ....errors import BrokerError, Fenced, KprotoError, NotAuthorized
from ....messages.join_group import JoinGroupResponse
from ....messages.leave_group import LeaveGroupRequest, MemberIdentity
from ....wire.message import Message
from ...protocol import Close, Fatal, Left, Lose, MemberConfig, Received, Released, Revoke, Send
from ...subscription import TopicPartition
from .reasons import (
    BEING_CLOSED,
    ENCOUNTERED,
    FAILED_WITH,
    JAVA_EXCEPTIONS,
    LEFT_BY_ITSELF,
    MAX_REASON,
    UNSUBSCRIBED,
)
from .state import Member, MemberState, Out, S, move, want_rejoin

LEAVE_SEVERAL = 3

# Letting go


def let_go(
    member: Member,
    partitions: Iterable[TopicPartition],
    lost: bool,
    reason: str,
    out: Out,
    *,
    precedes_join_or_close: bool = False,
) -> None:
    going = tuple(sorted(partitions))
    member.letting_go = going
    member.given_back.update(going)
    out.append(Lose(going, reason) if lost else Revoke(going, reason, precedes_join_or_close))


def forget_let_go(member: Member) -> None:
    gone = set(member.letting_go or ())
    member.owned = tuple(tp for tp in member.owned if tp not in gone)
    member.letting_go = None


def let_go_then(member: Member, then: MemberState, reason: str, now: int, out: Out) -> None:
    """Leave by the front door: the application lets go of everything, then LeaveGroup."""
    if member.state is S.unjoined or member.rebalancing:
        member.generation = None  # nobody knows whether the partitions are still this member's
    member.adopting = None
    move(member, then)
    if member.letting_go is not None:
        return
    if member.owned:
        closes = then is S.closing
        let_go(member, member.owned, member.generation is None, reason, out, precedes_join_or_close=closes)
    elif then is S.unsubscribing:
        leave_unsubscribed(member, now, out)
    else:
        leave_closing(member, now, out)


def released_to_leave(member: Member, event: Released, now: int, out: Out) -> None:
    forget_let_go(member)
    if member.owned:  # what was let go of was only a part
        closes = member.state is S.closing
        let_go(
            member,
            member.owned,
            member.generation is None,
            UNSUBSCRIBED,
            out,
            precedes_join_or_close=closes,
        )
    elif member.state is S.unsubscribing:
        leave_unsubscribed(member, now, out)
    else:
        leave_closing(member, now, out)


def leave_unsubscribed(member: Member, now: int, out: Out) -> None:
    send_leave(member, UNSUBSCRIBED, out)
    forget_membership(member, LEFT_BY_ITSELF, keep_id=False)
    move(member, S.unjoined if member.topics or member.pattern is not None else S.idle)


def leave_closing(member: Member, now: int, out: Out) -> None:
    member.leave = send_leave(member, BEING_CLOSED, out) if member.leave_on_close else None
    if member.leave is None:
        close_now(member, out)
    else:
        move(member, S.leaving)


def send_leave(member: Member, reason: str, out: Out) -> Message | None:
    """Static members don't leave: their partitions wait for them until the session times out (KIP-345)."""
    if member.config.group_instance_id is not None or member.coordinator is None or not member.member_id:
        return None
    who = MemberIdentity(member_id=member.member_id, group_instance_id=None, reason=reason[:MAX_REASON])
    request = LeaveGroupRequest(group_id=member.config.group_id, members=[who])
    out.append(Send(request, urgent=member.open is not None))
    return request


def in_version(request: Message, version: int) -> Message:
    """One of a member's requests as this version says it; EncodeError comes later, where none can.

    Only LeaveGroup was ever said otherwise: up to version 2 it names one member, then several (KIP-345).
    """
    if isinstance(request, LeaveGroupRequest) and version < LEAVE_SEVERAL and request.members:
        return LeaveGroupRequest(group_id=request.group_id, member_id=request.members[0].member_id)
    return request


def close_now(member: Member, out: Out) -> None:
    forget_membership(member, BEING_CLOSED, keep_id=False)
    member.owned, member.letting_go, member.close_at = (), None, None
    move(member, S.closed)
    out.append(Left())


def close(member: Member, event: Close, now: int, out: Out) -> None:
    member.close_at = now + event.timeout_ms
    member.leave_on_close = event.leave
    member.topics, member.pattern = frozenset(), None
    let_go_then(member, S.closing, BEING_CLOSED, now, out)


def close_sooner(member: Member, event: Close, now: int, out: Out) -> None:
    assert member.close_at is not None
    member.close_at = min(member.close_at, now + event.timeout_ms)


def leave_answered(member: Member, event: Received, now: int, out: Out) -> None:
    if event.request is member.leave:
        close_now(member, out)


def join_answered_leaving(member: Member, event: Received, now: int, out: Out) -> None:
    """The answer to a JoinGroup that is not wanted any more still says who has to leave."""
    assert isinstance(event.response, JoinGroupResponse)
    if event.request is member.open:
        member.open = None
        member.member_id = event.response.member_id or member.member_id


def sync_answered_leaving(member: Member, event: Received, now: int, out: Out) -> None:
    if event.request is member.open:
        member.open = None


# Refusals


def encountered(member: Member, code: int, request: str, out: Out) -> None:
    """The coordinator doesn't know the present member or generation: lose, join again at once, say why."""
    if member.state is S.joining and not member.owned:
        return  # nothing to lose, and the open JoinGroup asks the same question
    reason = ENCOUNTERED.format(ErrorCode(code).name, request)
    reset(member, reason, out, keep_id=code == ErrorCode.ILLEGAL_GENERATION)


def reset(member: Member, reason: str, out: Out, *, keep_id: bool) -> None:
    forget_membership(member, reason, keep_id=keep_id)
    if member.owned:
        let_go(member, member.owned, True, reason, out)
    if member.state in (S.unsubscribing, S.closing):
        return
    move(member, S.unjoined if member.letting_go is None else S.releasing)


def fail(member: Member, error: KprotoError, reason: str, out: Out) -> None:
    """Report what only the application can mend. The next poll tries again, with the same member id."""
    forget_membership(member, FAILED_WITH.format(reason), keep_id=True)
    if member.owned:
        let_go(member, member.owned, True, member.reason, out)
    move(member, S.failed)
    out.append(Fatal(error))


def fence(member: Member, request: str, out: Out) -> None:
    code = ErrorCode.FENCED_INSTANCE_ID
    final = not member.policy.fenced_join_again
    reason = FAILED_WITH.format(JAVA_EXCEPTIONS[code])
    refused = request != "Heartbeat"  # a JoinGroup or SyncGroup, that is: Java's goes on as whom it was
    if not final and not refused:
        reason = ENCOUNTERED.format(code.name, "HEARTBEAT")
    forget_membership(member, reason, keep_id=not final and refused)
    if member.owned:
        let_go(member, member.owned, True, member.reason, out)
    if final:
        move(member, S.fenced)
    elif member.state not in (S.unsubscribing, S.closing):
        move(member, S.failed)
    detail = (
        f"another process joined as group.instance.id {member.config.group_instance_id!r}; this one must stop"
    )
    out.append(Fatal(Fenced(code, request, detail), final=final))


def forget_membership(member: Member, reason: str, *, keep_id: bool) -> None:
    member.generation, member.protocol = None, None
    member.put_out = member.config.group_instance_id is not None
    if not keep_id:
        member.member_id = ""
    member.rejoin_needed, member.reason, member.prepared = True, reason, True
    member.open, member.heartbeat, member.adopting = None, None, None
    member.heartbeat_at = member.session_at = member.poll_at = member.retry_at = None
    member.leads, member.group, member.snapshot = False, {}, None


def join_later(member: Member, reason: str, now: int, backoff_ms: int) -> None:
    want_rejoin(member, FAILED_WITH.format(reason))
    member.open = None
    member.retry_at = now + backoff_ms if backoff_ms else None
    move(member, S.unjoined)


def lose_coordinator(member: Member, now: int) -> None:
    """Look for another one; the JoinGroup or SyncGroup that is open there failed, the membership has not."""
    member.coordinator, member.heartbeat, member.open = None, None, None
    if member.rebalancing:
        join_later(member, "DisconnectException", now, member.config.retry_backoff_ms)


def error(code: int, request: str, config: MemberConfig) -> BrokerError:
    refused = code == ErrorCode.GROUP_AUTHORIZATION_FAILED
    detail = f"group {config.group_id!r}"
    if code == ErrorCode.INVALID_SESSION_TIMEOUT:
        bounds = "its group.min.session.timeout.ms and group.max.session.timeout.ms"
        detail += (
            f", session.timeout.ms={config.session_timeout_ms}: the broker allows what lies within {bounds}"
        )
    return (NotAuthorized if refused else BrokerError)(code, request, detail)
