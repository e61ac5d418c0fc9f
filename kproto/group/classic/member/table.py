"""The client's half of the group protocol: one member of one group, without sockets or clocks.

Feed `step` with what happened and do what it returns, in order; ask `next_deadline` when to send a `Tick`.
The engine finds the coordinator, sends the requests and brings their answers back; the application lets go of
partitions when told to, and the engine answers `Released`.

The rules are those of Java's AbstractCoordinator and ConsumerCoordinator:

* A JoinGroup is sent only after the application let go: eager members of everything, cooperative ones of
  topics that they don't want any more. That is the only difference before the join; after it, a cooperative
  member lets go of what it did not get again, takes the assignment over, and joins a second time.
* Heartbeats go on while the application lets go and while the SyncGroup is open, but not while a JoinGroup
  is (but see below).
* An answer counts for what was sent: an UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION or FENCED_INSTANCE_ID that
  answers an older generation or member id changes nothing. One that answers the present, on any request,
  loses all partitions at once, and the member joins again and says why (KIP-800).
* Only one `Revoke` or `Lose` is unanswered at a time; a `Lose` takes the place of an open `Revoke`.
* The leader watches the partitions of all topics of the group, and asks for a rebalance when they changed.

Where kproto differs from Java, because Java's members lose records or fight for ever:

* FENCED_INSTANCE_ID ends the member for good. Java's joins again at the next poll and fences the other one
  back.
* An error that Java throws from one poll while it keeps the assignment, and sends no heartbeat, is `Fatal`
  and `Lose`: nobody may go on with partitions that the group gives to others.
* Partitions are lost when max.poll.interval.ms is over, not at the poll after it. It counts while the
  application is outside of poll, or in a callback: a poll that waits is alive however long it waits
  (librdkafka's rule; Java's counts from when poll was called, and no poll of Java's may wait that long).
* Who keeps partitions while it joins sends heartbeats meanwhile, beside the JoinGroup, which may be open for
  minutes: so it learns within a session that its coordinator is gone, or that it was put out, and that others
  have them. Java's goes on until the JoinGroup fails.
* A static leader whose process began anew asks DescribeGroups whether the plan that it leads on by is whole:
  the topics may have grown meanwhile. Java's takes what it sees then for what the plan was made with.
* A member that is told to join again at once, and again, waits from the sixth time on: Java's asks as fast
  as the coordinator answers.
* SyncGroup's COORDINATOR_LOAD_IN_PROGRESS is tried again after a backoff, as JoinGroup's is.
* Who shall lead, and is not in the list of members, says so: Java's plans for those that are listed, and has
  nothing itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

from ...protocol import (
    POLL_TIMEOUT,
    CoordinatorFound,
    CoordinatorLost,
    Failed,
    FindCoordinator,
    MemberAction,
    MemberEvent,
    PollBegan,
    PollEnded,
    Received,
    Refused,
    Released,
    RequestRejoin,
    Subscribe,
    Tick,
    Unsubscribe,
)
from .heartbeat import (
    beat,
    commit_answered,
    heartbeat_answered,
    plan_described,
    plan_not_described,
    session_timed_out,
)
from .leave import (
    close,
    close_now,
    close_sooner,
    fail,
    forget_let_go,
    forget_membership,
    join_answered_leaving,
    leave_answered,
    let_go,
    let_go_then,
    lose_coordinator,
    released_to_leave,
    send_leave,
    sync_answered_leaving,
)
from .reasons import (
    BEING_CLOSED,
    LEFT_BY_ITSELF,
    METADATA_CHANGED,
    REVOKED_SOME,
    UNSUBSCRIBED,
)
from .rebalance import adopt, join_answered, metadata, metadata_for_plan, prepare, sync_answered, watch
from .state import (
    JOINING,
    LOOKING,
    POLL_WATCHED,
    STABLE,
    UNJOINED,
    Member,
    MemberState,
    S,
    growing,
    heartbeat_failed,
    heartbeats,
    keeps,
    move,
    not_for_ever_at_once,
    poll_watched,
    want_rejoin,
)


def step(member: Member, event: MemberEvent, now: int) -> list[MemberAction]:
    """Let `event` happen at `now` (milliseconds) and return what to do, in order. Raises TypeError for what
    is no event.
    """
    out: list[MemberAction] = []
    row = TABLE.get(kind(event))
    if row is None:
        raise TypeError(
            f"event={event!r}: a member hears {', '.join(one.__name__ for one in get_args(MemberEvent))}"
        )
    row[member.state](member, event, now, out)
    _go_on(member, now, out)
    return out


def next_deadline(member: Member) -> int | None:
    """When to send the next `Tick`, in the same milliseconds as `now`; None: not before something happens."""
    found: list[int | None] = [member.close_at]
    known = member.coordinator is not None
    found.append(session_ends(member))
    if known and member.heartbeat is None and heartbeats(member):
        found.append(member.heartbeat_at)
    if _has_to_poll(member):
        found.append(member.poll_at)
    if known and (member.state is UNJOINED or (member.state is STABLE and member.rejoin_needed)):
        found.append(member.retry_at)
    if not known and not member.finding and member.state in LOOKING:
        found.append(member.find_at)
    soonest = None
    for at in found:
        if at is not None and (soonest is None or at < soonest):
            soonest = at
    return soonest


def session_ends(member: Member) -> int | None:
    """When the coordinator has been silent for too long, in the same milliseconds; None where that doesn't
    count. It is looked up again then, and with `Policy.lose_on_session_timeout` everything is lost.
    """
    loses = member.policy.lose_on_session_timeout
    if heartbeats(member):
        return member.session_at if loses or member.coordinator is not None else None
    return member.session_at if member.state is UNJOINED and keeps(member) else None


ANSWERED = {
    f"{api}Request": f"{api}Answered"
    for api in ("JoinGroup", "SyncGroup", "Heartbeat", "LeaveGroup", "DescribeGroups")
}


def kind(event: MemberEvent) -> str:
    """The row of the table: the event's name, and for answers the request's."""
    if isinstance(event, Received):
        asked = type(event.request).__name__
        return ANSWERED.get(asked, asked)
    return type(event).__name__


Out = list[MemberAction]


# Wanting and not wanting


def _subscribe(member: Member, event: Subscribe, now: int, out: Out) -> None:
    given: object = event.topics
    if isinstance(given, str):  # else each letter is one
        raise TypeError(f"topics={event.topics!r}: names of topics, as frozenset({{{event.topics!r}}})")
    if not event.topics and event.pattern is None:
        TABLE["Unsubscribe"][member.state](member, Unsubscribe(), now, out)
        return
    same_pattern = event.pattern is not None and event.pattern == member.pattern
    if same_pattern and member.leads and event.topics != member.topics and member.state is S.stable:
        # A pattern's matches changed because the metadata did, and Java looks at the metadata first.
        want_rejoin(member, METADATA_CHANGED)
    member.topics, member.pattern = event.topics, event.pattern
    if member.state is S.idle:
        move(member, S.unjoined)


def _unsubscribe(member: Member, event: Unsubscribe, now: int, out: Out) -> None:
    member.topics, member.pattern = frozenset(), None
    let_go_then(member, S.unsubscribing, UNSUBSCRIBED, now, out)


def _leave_before_joining(member: Member, event: Unsubscribe, now: int, out: Out) -> None:
    """There is nothing to leave; but the first JoinGroup says, as Java's, that it comes after a leave."""
    member.reason = LEFT_BY_ITSELF


def _forget_topics(member: Member, event: Unsubscribe, now: int, out: Out) -> None:
    member.topics, member.pattern = frozenset(), None


def _request_rejoin(member: Member, event: RequestRejoin, now: int, out: Out) -> None:
    want_rejoin(member, event.reason)


# The application polls, and lets go


def _poll_began(member: Member, event: PollBegan, now: int, out: Out) -> None:
    member.polling = True
    poll_watched(member, now)


def _poll_ended(member: Member, event: PollEnded, now: int, out: Out) -> None:
    member.polling = False
    poll_watched(member, now)


def _poll_began_again(member: Member, event: PollBegan, now: int, out: Out) -> None:
    """The application is back after it was dropped, or has seen the error that `Fatal` reported."""
    member.polling = True
    move(member, S.unjoined if member.letting_go is None else S.releasing)


def _released(member: Member, event: Released, now: int, out: Out) -> None:
    forget_let_go(member)


def _released_to_join(member: Member, event: Released, now: int, out: Out) -> None:
    forget_let_go(member)
    member.prepared = True
    move(member, S.unjoined)


def _released_to_adopt(member: Member, event: Released, now: int, out: Out) -> None:
    forget_let_go(member)
    assert member.adopting is not None
    adopt(member, member.adopting, out)
    want_rejoin(member, REVOKED_SOME)
    not_for_ever_at_once(member, now)


# The coordinator


def _coordinator_found(member: Member, event: CoordinatorFound, now: int, out: Out) -> None:
    member.coordinator, member.finding, member.find_at = event.node, False, None
    member.finds_failed = 0
    if member.session_at is not None and not member.policy.lose_on_session_timeout:
        member.session_at = now + member.config.session_timeout_ms


def _coordinator_lost(member: Member, event: CoordinatorLost, now: int, out: Out) -> None:
    if member.finding:
        member.finding = False
        member.find_at = now + growing(member, member.finds_failed)
        member.finds_failed += 1
        return
    lose_coordinator(member, now)


def _coordinator_lost_leaving(member: Member, event: CoordinatorLost, now: int, out: Out) -> None:
    close_now(member, out)


def _failed(member: Member, event: Failed, now: int, out: Out) -> None:
    if event.request is member.open or event.request is member.heartbeat:
        if event.request is member.heartbeat:
            heartbeat_failed(member, now)
            if member.state is S.joining:  # which is another connection's
                member.heartbeat = None
                return
        lose_coordinator(member, now)


def _refused(member: Member, event: Refused, now: int, out: Out) -> None:
    if event.request is member.open:
        member.open = None
        fail(member, event.error, type(event.error).__name__, out)


def _refused_leaving(member: Member, event: Refused, now: int, out: Out) -> None:
    if event.request is member.open:
        member.open = None


def _leave_refused(member: Member, event: Refused, now: int, out: Out) -> None:
    if event.request is member.leave:
        close_now(member, out)


def _leave_failed(member: Member, event: Failed, now: int, out: Out) -> None:
    if event.request is member.leave:
        close_now(member, out)


# Time


def _tick(member: Member, event: Tick, now: int, out: Out) -> None:
    if member.close_at is not None and now >= member.close_at:
        if member.state is S.closing and member.leave_on_close:
            send_leave(member, BEING_CLOSED, out)  # nobody waits for its answer
        close_now(member, out)
        return
    if _has_to_poll(member) and member.poll_at is not None and now >= member.poll_at:
        _drop(member, out)
        return
    ends = session_ends(member)
    if ends is not None and now >= ends:
        session_timed_out(member, now, out)
        return
    due = member.heartbeat_at is not None and now >= member.heartbeat_at
    if due and member.heartbeat is None and member.coordinator is not None and heartbeats(member):
        beat(member, now, out)


def _has_to_poll(member: Member) -> bool:
    """Whether max.poll.interval.ms counts."""
    joins = member.policy.lose_on_session_timeout and member.state in JOINING
    return joins or member.state in POLL_WATCHED


def _drop(member: Member, out: Out) -> None:
    """The application did not poll in time: leave, so that others can have the partitions."""
    send_leave(member, POLL_TIMEOUT, out)
    forget_membership(member, LEFT_BY_ITSELF, keep_id=False)
    if member.owned:
        let_go(member, member.owned, True, POLL_TIMEOUT, out)
    move(member, S.dropped)


# What every event may have made possible


def _go_on(member: Member, now: int, out: Out) -> None:
    if member.state is STABLE:
        watch(member)
    if member.coordinator is None:
        look_up = not member.finding and member.state in LOOKING
        if look_up and (member.find_at is None or now >= member.find_at):
            member.finding = True
            out.append(FindCoordinator())
        return
    wants_to = member.state is UNJOINED or (member.state is STABLE and member.rejoin_needed)
    if wants_to and not _waits(member, now):
        prepare(member, out)


def _ignored(member: Member, event: MemberEvent, now: int, out: Out) -> None:
    """It changes nothing here."""


def _waits(member: Member, now: int) -> bool:
    return member.retry_at is not None and now < member.retry_at


# The table: for every event and state what is done


Handler = Callable[[Member, Any, int, Out], None]


def _row(everywhere: Handler, **special: Handler) -> dict[MemberState, Handler]:
    row = dict.fromkeys(MemberState, everywhere)
    row.update({MemberState[name]: handler for name, handler in special.items()})
    return row


def _only(handler: Handler, *states: MemberState, **special: Handler) -> dict[MemberState, Handler]:
    return {**_row(_ignored, **special), **dict.fromkeys(states, handler)}


_JOINED = (S.planning, S.syncing, S.adopting, S.stable)
_MEMBER = (S.unjoined, S.releasing, S.joining, *_JOINED)

TABLE: dict[str, dict[MemberState, Handler]] = {
    "Subscribe": _only(_subscribe, S.idle, *_MEMBER, S.dropped, S.failed, S.unsubscribing),
    "Unsubscribe": _only(
        _unsubscribe,
        *_MEMBER,
        S.dropped,
        S.failed,
        idle=_leave_before_joining,
        unsubscribing=_forget_topics,
    ),
    "RequestRejoin": _only(_request_rejoin, S.stable, S.adopting),
    "PollBegan": _row(_poll_began, dropped=_poll_began_again, failed=_poll_began_again),
    "PollEnded": _row(_poll_ended),
    "Released": _row(
        _ignored,
        releasing=_released_to_join,
        adopting=_released_to_adopt,
        unsubscribing=released_to_leave,
        closing=released_to_leave,
        dropped=_released,
        failed=_released,
        fenced=_released,
    ),
    "CoordinatorFound": _row(_coordinator_found, closed=_ignored),
    "CoordinatorLost": _row(_coordinator_lost, leaving=_coordinator_lost_leaving, closed=_ignored),
    "Failed": _row(_failed, leaving=_leave_failed, closed=_ignored),
    "Refused": _only(
        _refused,
        S.joining,
        S.syncing,
        stable=plan_not_described,
        unsubscribing=_refused_leaving,
        closing=_refused_leaving,
        leaving=_leave_refused,
    ),
    "JoinGroupAnswered": _only(
        join_answered, S.joining, unsubscribing=join_answered_leaving, closing=join_answered_leaving
    ),
    "SyncGroupAnswered": _only(
        sync_answered, S.syncing, unsubscribing=sync_answered_leaving, closing=sync_answered_leaving
    ),
    "HeartbeatAnswered": _only(heartbeat_answered, *_MEMBER, S.unsubscribing, S.closing),
    "LeaveGroupAnswered": _only(leave_answered, S.leaving),
    "DescribeGroupsAnswered": _only(plan_described, S.stable),
    "CommitAnswered": _only(commit_answered, *_MEMBER, S.unsubscribing, S.closing),
    "Metadata": _row(metadata, planning=metadata_for_plan, closed=_ignored),
    "Close": _row(close, closing=close_sooner, leaving=close_sooner, closed=_ignored),
    "Tick": _row(_tick, idle=_ignored, closed=_ignored),
}
