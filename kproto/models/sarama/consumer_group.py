"""The ConsumerGroup: the loop around Consume, and Consume itself (sarama consumer_group.go and
consumer_group_cooperative.go, v1.61.1).

* The application calls Consume in a loop, as sarama wants it. An error is told, and the next call comes
  300 ms later. With the option "Once" it is called once, and its return is all (S1-3).
* Consume refreshes the metadata of its topics, joins, fetches every claim's offset, calls Setup, and starts
  the claims; then it waits for the end of the session (M64). If an offset can't be fetched the session is
  released without Cleanup.
* The member id lives as long as the group: only JoinGroup and SyncGroup make it forget it (M59). A new
  subscription ends the present Consume and nothing else: the member does not leave (M99).
* `consumer_group_close` holds the end of a session, `consumer_group_cooperative` a rebalance while all
  strategies are cooperative-sticky.
"""

from __future__ import annotations

from ...error_codes import ErrorCode
from . import errors
from .consumer_group_close import (
    cleaned_up,
    close,
    found_to_leave,
    leave,
    leave_now,
    left,
    release,
    released,
    returned,
    stop_heartbeat,
    stopped,
)
from .consumer_group_cooperative import (
    added,
    has_lock,
    learned,
    locked,
    look_revoked,
    rejoin,
    rejoined,
    removed,
    revoke_timed_out,
)
from .consumer_group_join import Join
from .consumer_group_session import Session
from .consumer_group_state import Group, GroupState, Joined, S
from .errors import Trouble
from .initial_offset import CommittedOffset
from .offset_manager import Managed
from .routines import ignored, only

__all__ = ["Group", "GroupState"]

_CLIENT_STARTS = {
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.REPLICA_NOT_AVAILABLE,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
}


# Consume


def _connected(group: Group, trouble: Trouble | None) -> None:
    if trouble is not None and trouble.code not in _CLIENT_STARTS:
        group.client.report(trouble)
        close(group)
        return
    group.client.keep_fresh()
    group.move(S.idle)
    _consume(group, None)


def _consume(group: Group, what: object) -> None:
    """The loop: one more Consume, if the application still wants one."""
    if group.closed:
        leave(group)
        return
    if group.state is not S.idle:
        group.move(S.idle)
    group.canceled = False
    if group.wanted is None:
        return
    group.topics = group.wanted
    if not group.topics:
        returned(group, Trouble("errors.errorString", "no topics provided"))
        return
    group.move(S.refreshing)
    group.client.metadata.want(group, group.topics)


def _refreshed(group: Group, trouble: Trouble | None) -> None:
    if trouble is not None:
        returned(group, trouble)
        return
    group.move(S.joining)
    join = group.join = Join(group, group.topics, None)
    join.start()


def _joined(group: Group, result: Joined | Trouble) -> None:
    group.join = None
    if isinstance(result, Trouble):
        returned(group, result)
        return
    session = group.session = Session(group, result.member_id, result.generation)
    session.claims = result.claims
    if group.canceled:
        session.cause = errors.CANCELED
    group.joined = result
    group.client.wake(session.heartbeat, "start")
    group.pending = list(result.claims)
    group.move(S.managing)
    _manage(group, None)


def _manage(group: Group, what: object) -> None:
    session = group.session
    assert session is not None
    if group.pending:
        CommittedOffset(session.offsets, group, group.pending[0]).start()
    elif group.state is S.managing:
        group.move(S.setting_up)
        group.latest = session
        kind = "setup" if session.cooperative else "assigned"
        group.application.tell(kind, session.claims, group)
    else:
        added(group)


def _managed(group: Group, found: Managed | Trouble) -> None:
    session = group.session
    assert session is not None
    if isinstance(found, Trouble):
        group.error = found
        release(group)
        return
    session.offsets.managed[group.pending.pop(0)] = found
    _manage(group, None)


def _set_up(group: Group, what: object) -> None:
    session, joined = group.session, group.joined
    assert session is not None
    assert joined is not None
    session.start(session.claims)
    group.move(S.running)
    session.watch_partitions(joined.counts)
    _look(group, None)


def _look(group: Group, what: object) -> None:
    """Running: is the session over, or is there a rebalance to join?"""
    session = group.session
    assert session is not None
    if group.closed or session.cause is not None:
        release(group)
    elif session.rejoin is not None:
        group.last_cause = session.rejoin
        rejoin(group)


Group.TABLE = {
    "again": only(
        S, idle=_consume, refreshing=_consume, joining=_consume, stopping=_consume, pausing=_consume
    ),
    "manage": only(S, adding=_manage),
    "refreshed": only(S, connecting=_connected, refreshing=_refreshed, learning=learned),
    "joined": only(S, joining=_joined, rejoining=rejoined),
    "managed": only(S, managing=_managed, adding=_managed),
    "told": only(S, setting_up=_set_up, cleaning_up=cleaned_up),
    "look": only(
        S, running=_look, revoking=look_revoked, releasing=released, idle=leave_now, pausing=leave_now
    ),
    "has_lock": only(S, locking=has_lock),
    "locked": only(S, locking=locked),
    "let_go": only(S, letting_go=stop_heartbeat, removing=removed),
    "stopped": only(S, stopping=stopped, closed=ignored),
    "elapsed": only(S, revoking=revoke_timed_out, pausing=_consume),
    "found": only(S, looking=found_to_leave),
    "answered": only(S, leaving=left),
}
