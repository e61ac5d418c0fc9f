"""A cooperative rebalance of a ConsumerGroup (sarama consumer_group_cooperative.go, v1.61.1).

* All generations share one Consume and one session. The member joins with the partitions that it owns. Claims
  that it keeps continue without interruption (M64, M103).

* The member waits at most Rebalance.Timeout for its revoked claims to end. It commits their offsets
  with the *new* generation, and then starts the added claims.

* A member that revoked a claim joins again. Its JoinGroup contains no reason.

* The join waits for the heartbeat and the commits in flight. Later heartbeats and commits wait for the join.

* An error during the rebalance ends the session, and Consume returns the error.
"""

from __future__ import annotations

from . import errors
from .consumer_group_close import release
from .consumer_group_join import Join, OwnedClaims
from .consumer_group_state import Joined, S, SaramaGroup
from .errors import GoError
from .offset_manager_close import LastFlush


def rejoin(group: SaramaGroup) -> None:
    """Join again with the owned claims, after the heartbeat and the commits in flight have ended."""
    group.move(S.LOCKING)
    assert group.session is not None
    group.session.lock_generation(group)


def on_generation_locked(group: SaramaGroup, payload: object) -> None:
    assert group.session is not None
    # Forget the rebalances that were signalled before: the join that starts now serves all of them.
    group.session.rejoin_cause = None
    group.session.offsets.lock_generation(group)


def on_commits_locked(group: SaramaGroup, payload: object) -> None:
    session = group.session
    assert session is not None
    group.move(S.REJOINING)
    join = group.join = Join(group, group.topics, OwnedClaims(session.claims, session.generation))
    join.start()


def on_rejoined(group: SaramaGroup, result: Joined | GoError) -> None:
    """Adopt the new generation, and revoke the claims that it does not contain."""
    session = group.session
    assert session is not None
    group.join = None
    if not isinstance(result, GoError):
        session.member_id, session.generation = result.member_id, result.generation
    session.offsets.unlock_generation(session.member_id, session.generation)
    session.unlock_generation()
    if isinstance(result, GoError):
        group.error = result
        release(group)
        return
    group.joined = result
    revoked = [partition for partition in session.claims if partition not in result.claims]
    if not revoked:
        _refresh_added_topics(group)
        return
    for partition in revoked:
        session.revoke_claim(partition)
    group.move(S.REVOKING)
    group.client.sleep(group, group.client.now + group.client.settings.group_rebalance_timeout)
    check_revoked(group, None)


def check_revoked(group: SaramaGroup, payload: object) -> None:
    """Commit the offsets of the revoked claims as soon as all of these claims have ended."""
    session, joined = group.session, group.joined
    assert session is not None
    assert joined is not None
    if not session.ending_claims:
        group.move(S.COMMITTING_REVOKED)
        revoked = frozenset(session.claims).difference(joined.claims)
        LastFlush(session.offsets, group, revoked).start()


def on_revoke_timeout(group: SaramaGroup, payload: object) -> None:
    session = group.session
    assert session is not None
    session.report(errors.REBALANCE_TIMED_OUT)
    session.cancel(errors.REBALANCE_TIMED_OUT)
    group.error = errors.REBALANCE_TIMED_OUT
    release(group)


def on_revoked_committed(group: SaramaGroup, payload: object) -> None:
    _refresh_added_topics(group)


def _refresh_added_topics(group: SaramaGroup) -> None:
    """Refresh the metadata of the topics of the added claims, one topic after the other."""
    session, joined = group.session, group.joined
    assert session is not None
    assert joined is not None
    group.unfetched_claims = [partition for partition in joined.claims if partition not in session.claims]
    group.added_topics = sorted({partition.topic for partition in group.unfetched_claims})
    group.move(S.REFRESHING_TOPICS)
    _refresh_next_topic(group)


def _refresh_next_topic(group: SaramaGroup) -> None:
    if group.added_topics:
        group.client.metadata.request_refresh(group, (group.added_topics.pop(0),))
        return
    group.move(S.FETCHING_ADDED_OFFSETS)
    group.client.resume(group, "fetch_offsets")


def on_topic_refreshed(group: SaramaGroup, error: GoError | None) -> None:
    if error is not None:
        group.error = error
        release(group)
    else:
        _refresh_next_topic(group)


def start_added_claims(group: SaramaGroup) -> None:
    """Start the added claims, and join again if this member revoked a claim."""
    session, joined = group.session, group.joined
    assert session is not None
    assert joined is not None
    previous, session.claims = session.claims, joined.claims
    session.start_claims(partition for partition in joined.claims if partition not in previous)
    session.watch_partitions(joined.partition_counts)
    if all(partition in joined.claims for partition in previous):
        group.move(S.RUNNING)
        group.client.resume(group, "check")
    else:
        rejoin(group)
