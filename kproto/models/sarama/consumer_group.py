"""The ConsumerGroup: the loop around Consume, and Consume itself (sarama v1.61.1).

The module follows consumer_group.go and consumer_group_cooperative.go.

* The application calls Consume in a loop, as sarama requires. If Consume returns an error, the error is
  reported, and the next call follows after 300 ms. Otherwise it follows immediately.

* With the option "Once" the application calls Consume a single time, and the return of Consume is reported.

* Consume refreshes the metadata of its topics, joins, and fetches the offset of every claimed partition. Then
  it calls Setup, starts a ConsumeClaim for each claimed partition, and waits for the end of the session
  (M64).

* If an offset cannot be fetched, the session is released without Cleanup.

* The member id is kept until the group is closed. Only errors of JoinGroup and SyncGroup reset it (M38,
  M39, M48, M49). A new subscription ends only the current Consume: the member does not leave the group.

* `consumer_group_close` implements the end of a session. `consumer_group_cooperative` implements the
  rebalance of a member with only cooperative-sticky strategies.
"""

from __future__ import annotations

from ...error_codes import ErrorCode
from . import errors
from .consumer_group_close import (
    close,
    finish_release,
    leave,
    leave_if_closed,
    leave_on_coordinator,
    on_cleanup_returned,
    on_heartbeat_stopped,
    on_leave_response,
    release,
    return_from_consume,
    stop_heartbeat,
)
from .consumer_group_cooperative import (
    check_revoked,
    on_commits_locked,
    on_generation_locked,
    on_rejoined,
    on_revoke_timeout,
    on_revoked_committed,
    on_topic_refreshed,
    rejoin,
    start_added_claims,
)
from .consumer_group_join import Join
from .consumer_group_session import GroupSession
from .consumer_group_state import Joined, S, SaramaGroup, SaramaGroupState
from .errors import GoError
from .initial_offset import InitialOffsetFetch
from .offset_manager import PartitionOffset
from .routines import row
from .versions import RELEASES

__all__ = ["SaramaGroup", "SaramaGroupState"]

# NewClient succeeds even if the first Metadata response contains one of these error codes.
_TOLERATED_AT_START = {
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.REPLICA_NOT_AVAILABLE,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
}


# Consume


def _on_connected(group: SaramaGroup, error: GoError | None) -> None:
    if error is not None and error.code not in _TOLERATED_AT_START:
        group.client.report(error)
        close(group)
        return
    group.client.start_updater()
    group.move(S.IDLE)
    _consume(group, None)


def _consume(group: SaramaGroup, payload: object) -> None:
    """Leave if the group is closed, else start Consume if the application requested topics."""
    if group.closed:
        leave(group)
        return
    if group.state is not S.IDLE:
        group.move(S.IDLE)
    group.canceled = False
    if group.requested_topics is None:
        return
    group.topics = group.requested_topics
    if not group.topics:
        return_from_consume(group, GoError("errors.errorString", "no topics provided"))
        return
    group.move(S.REFRESHING)
    group.client.metadata.request_refresh(group, group.topics)


def _on_refreshed(group: SaramaGroup, error: GoError | None) -> None:
    if error is not None:
        return_from_consume(group, error)
        return
    group.move(S.JOINING)
    join = group.join = Join(group, group.topics, None)
    join.start()


def _on_joined(group: SaramaGroup, result: Joined | GoError) -> None:
    group.join = None
    if isinstance(result, GoError):
        return_from_consume(group, result)
        return
    session = group.session = GroupSession(group, result.member_id, result.generation)
    session.claims = result.claims
    if group.canceled:
        session.cause = errors.CANCELED
    group.joined = result
    group.client.wake(session.heartbeat, "start")
    group.unfetched_claims = list(result.claims)
    group.move(S.FETCHING_OFFSETS)
    _fetch_next_offset(group, None)


def _fetch_next_offset(group: SaramaGroup, payload: object) -> None:
    """Fetch the next claim's offset.

    When the offsets of all claims have been fetched, a new session calls Setup. A continuing session starts
    the added claims.
    """
    session = group.session
    assert session is not None
    if group.unfetched_claims:
        InitialOffsetFetch(session.offsets, group, group.unfetched_claims[0]).start()
    elif group.state is S.FETCHING_OFFSETS:
        group.move(S.SETTING_UP)
        group.last_session = session
        kind = "setup" if session.cooperative else "assigned"
        group.application.run_callback(kind, session.claims, group)
    else:
        start_added_claims(group)


def _on_offset_fetched(group: SaramaGroup, result: PartitionOffset | GoError) -> None:
    session = group.session
    assert session is not None
    if isinstance(result, GoError):
        group.error = result
        release(group)
        return
    session.offsets.partition_offsets[group.unfetched_claims.pop(0)] = result
    _fetch_next_offset(group, None)


def _on_setup_returned(group: SaramaGroup, payload: object) -> None:
    session, joined = group.session, group.joined
    assert session is not None
    assert joined is not None
    session.start_claims(session.claims)
    group.move(S.RUNNING)
    session.watch_partitions(_watched_counts(group, joined))
    _check_session(group, None)


def _watched_counts(group: SaramaGroup, joined: Joined) -> dict[str, int] | None:
    """Return the partition counts that this member checks, or None for a member without a checker.

    The leader checks all topics of the group. Before sarama 1.41, each member checked the topics of its own
    Consume call instead.
    """
    client = group.client
    if client.settings.release == RELEASES[-1]:
        return joined.partition_counts
    return {topic: len(client.metadata.partitions(topic)) for topic in group.topics}


def _check_session(group: SaramaGroup, payload: object) -> None:
    """Release the session if it has ended; rejoin if a cooperative rebalance is due."""
    session = group.session
    assert session is not None
    if group.closed or session.cause is not None:
        release(group)
    elif session.rejoin_cause is not None:
        group.last_cause = session.rejoin_cause
        rejoin(group)


SaramaGroup.TABLE = {
    "consume": row(
        S, IDLE=_consume, REFRESHING=_consume, JOINING=_consume, STOPPING=_consume, PAUSING=_consume
    ),
    "fetch_offsets": row(S, FETCHING_ADDED_OFFSETS=_fetch_next_offset),
    "metadata_refreshed": row(
        S, CONNECTING=_on_connected, REFRESHING=_on_refreshed, REFRESHING_TOPICS=on_topic_refreshed
    ),
    "group_joined": row(S, JOINING=_on_joined, REJOINING=on_rejoined),
    "offset_fetched": row(S, FETCHING_OFFSETS=_on_offset_fetched, FETCHING_ADDED_OFFSETS=_on_offset_fetched),
    "callback_returned": row(S, SETTING_UP=_on_setup_returned, CLEANING_UP=on_cleanup_returned),
    "check": row(
        S,
        RUNNING=_check_session,
        REVOKING=check_revoked,
        RELEASING=finish_release,
        IDLE=leave_if_closed,
        PAUSING=leave_if_closed,
    ),
    "generation_locked": row(S, LOCKING=on_generation_locked),
    "commits_locked": row(S, LOCKING=on_commits_locked),
    "offsets_closed": row(S, CLOSING_OFFSETS=stop_heartbeat, COMMITTING_REVOKED=on_revoked_committed),
    "stopped": row(S, STOPPING=on_heartbeat_stopped),
    "timer_elapsed": row(S, REVOKING=on_revoke_timeout, PAUSING=_consume),
    "coordinator_found": row(S, FINDING_COORDINATOR=leave_on_coordinator),
    "response": row(S, LEAVING=on_leave_response),
}
