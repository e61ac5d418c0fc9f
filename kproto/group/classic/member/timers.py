"""The deadlines of a member, and its actions when a deadline has passed.

A member has deadlines for heartbeats, the session timeout, max.poll.interval.ms, backoffs and the timeout of
close.
"""

from __future__ import annotations

from ....deadlines import earliest
from ...protocol import POLL_TIMEOUT, PollEntered, PollLeft, Tick
from .heartbeat import on_session_timeout, send_heartbeat
from .leave import close_now, send_leave
from .membership import forget_membership
from .reasons import BEING_CLOSED, LEFT_BY_ITSELF
from .revocation import lose_all
from .state import (
    NEEDS_COORDINATOR,
    POLL_TIMED,
    STABLE,
    TIMED_WHILE_JOINING,
    UNJOINED,
    Actions,
    Member,
    S,
    keeps_partitions,
    move,
    restart_poll_interval,
    sends_heartbeats,
)


def next_deadline(member: Member) -> int | None:
    """Return the time at which a `Tick` is due, or None if only another event can change the member."""
    has_coordinator = member.coordinator is not None
    heartbeats = sends_heartbeats(member)
    deadlines = [member.close_ends_at, session_end(member, heartbeats), poll_end(member)]
    if heartbeats and has_coordinator and member.heartbeat_request is None:
        deadlines.append(member.heartbeat_at)
    if has_coordinator and (member.state is UNJOINED or (member.state is STABLE and member.rejoin_needed)):
        deadlines.append(member.join_at)
    if not has_coordinator and not member.is_finding_coordinator and member.state in NEEDS_COORDINATOR:
        deadlines.append(member.lookup_at)
    return earliest(*deadlines)


def session_end(member: Member, heartbeats: bool) -> int | None:
    """Return the time at which the session times out, or None while the timeout does not apply.

    `heartbeats` is the result of `sends_heartbeats`. The timeout applies to a member that sends heartbeats.
    A session timeout starts a new coordinator lookup, so by default it does not apply while the coordinator
    is unknown. With `Policy.lose_on_session_timeout`, the member also loses all its partitions. The timeout
    then applies even if the coordinator is unknown, and to an unjoined member with partitions.
    """
    loses_partitions = member.policy.lose_on_session_timeout
    if heartbeats:
        return member.session_ends_at if loses_partitions or member.coordinator is not None else None
    return member.session_ends_at if member.state is UNJOINED and keeps_partitions(member) else None


def poll_end(member: Member) -> int | None:
    """Return the time at which max.poll.interval.ms expires, or None while the interval does not apply.

    By default, as in Java, the interval does not apply while the coordinator is unknown, and not while the
    member joins. With `Policy.lose_on_session_timeout` it also applies in these two states (M107).
    """
    if member.policy.lose_on_session_timeout:
        applies = member.state in POLL_TIMED or member.state in TIMED_WHILE_JOINING
    else:
        applies = member.state in POLL_TIMED and member.coordinator is not None
    return member.poll_ends_at if applies else None


def on_tick(member: Member, event: Tick, now: int, out: Actions) -> None:
    """Handle one of the deadlines that have passed, chosen in this order: close, session, poll, heartbeat
    (M107).

    Java's AbstractCoordinator.HeartbeatThread checks the session, poll and heartbeat deadlines in this order.
    """
    if member.close_ends_at is not None and now >= member.close_ends_at:
        if member.state is S.CLOSING and member.leaves_on_close:
            # The timeout of close has passed, so the member does not wait for the response to this
            # LeaveGroup.
            send_leave(member, BEING_CLOSED, out)
        close_now(member, out)
        return
    heartbeats = sends_heartbeats(member)
    session_ends_at = session_end(member, heartbeats)
    if session_ends_at is not None and now >= session_ends_at:
        on_session_timeout(member, now, out)
        return
    poll_ends_at = poll_end(member)
    if poll_ends_at is not None and now >= poll_ends_at:
        _expire_member(member, out)
        return
    is_heartbeat_due = member.heartbeat_at is not None and now >= member.heartbeat_at
    can_send_heartbeat = member.heartbeat_request is None and member.coordinator is not None
    if heartbeats and is_heartbeat_due and can_send_heartbeat:
        send_heartbeat(member, now, out)


def _expire_member(member: Member, out: Actions) -> None:
    """Leave the group, because the application has not polled for max.poll.interval.ms (M16, M110)."""
    send_leave(member, POLL_TIMEOUT, out)
    forget_membership(member, LEFT_BY_ITSELF, keep_id=False)
    lose_all(member, POLL_TIMEOUT, out)
    move(member, S.EXPIRED)


def on_poll_began(member: Member, event: PollEntered, now: int, out: Actions) -> None:
    """Stop the timer of max.poll.interval.ms until the application leaves poll (M112)."""
    member.is_polling = True
    restart_poll_interval(member, now)


def on_poll_ended(member: Member, event: PollLeft, now: int, out: Actions) -> None:
    """Start the timer of max.poll.interval.ms, because the application has left poll."""
    member.is_polling = False
    restart_poll_interval(member, now)


def on_poll_began_again(member: Member, event: PollEntered, now: int, out: Actions) -> None:
    """Rejoin at the first poll after max.poll.interval.ms has expired or `Fatal` was reported (M110)."""
    member.is_polling = True
    move(member, S.UNJOINED if member.unreleased is None else S.RELEASING)
