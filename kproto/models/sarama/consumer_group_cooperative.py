"""A cooperative rebalance of a ConsumerGroup (sarama consumer_group_cooperative.go, v1.61.1).

* One Consume and one session for all generations. A rebalance is joined with what is owned; claims that are
  kept run on; revoked ones are ended and waited for (at most Rebalance.Timeout), then committed with the
  *new* generation, then new ones are started; who revoked anything joins again, without a reason (M64, M103).
* The join waits for the heartbeat and the commits that are under way; those that come later wait for it.
* Any error of it ends the session, and is what Consume returns.
"""

from __future__ import annotations

from . import errors
from .consumer_group_close import release
from .consumer_group_join import Held, Join
from .consumer_group_state import Group, Joined, S
from .errors import Trouble
from .offset_manager_close import LastFlush


def rejoin(group: Group) -> None:
    group.move(S.locking)
    assert group.session is not None
    group.session.lock(group)


def has_lock(group: Group, what: object) -> None:
    assert group.session is not None
    group.session.rejoin = None  # this join is the answer to all that was told before it
    group.session.offsets.lock_generation(group)


def locked(group: Group, what: object) -> None:
    session = group.session
    assert session is not None
    group.move(S.rejoining)
    join = group.join = Join(group, group.topics, Held(session.claims, session.generation))
    join.start()


def rejoined(group: Group, result: Joined | Trouble) -> None:
    session = group.session
    assert session is not None
    group.join = None
    if not isinstance(result, Trouble):
        session.member_id, session.generation = result.member_id, result.generation
    session.offsets.unlock_generation(session.member_id, session.generation)
    session.unlock()
    if isinstance(result, Trouble):
        group.error = result
        release(group)
        return
    group.joined = result
    revoked = [partition for partition in session.claims if partition not in result.claims]
    if not revoked:
        _learn(group)
        return
    for partition in revoked:
        session.revoke(partition)
    group.move(S.revoking)
    group.client.sleep(group, group.client.now + group.client.settings.group_rebalance_timeout)
    look_revoked(group, None)


def look_revoked(group: Group, what: object) -> None:
    session, joined = group.session, group.joined
    assert session is not None
    assert joined is not None
    if not session.ending:
        group.move(S.removing)
        revoked = frozenset(session.claims).difference(joined.claims)
        LastFlush(session.offsets, group, revoked).start()


def revoke_timed_out(group: Group, what: object) -> None:
    session = group.session
    assert session is not None
    session.report(errors.REBALANCE_TIMED_OUT)
    session.cancel(errors.REBALANCE_TIMED_OUT)
    group.error = errors.REBALANCE_TIMED_OUT
    release(group)


def removed(group: Group, what: object) -> None:
    _learn(group)


def _learn(group: Group) -> None:
    session, joined = group.session, group.joined
    assert session is not None
    assert joined is not None
    group.pending = [partition for partition in joined.claims if partition not in session.claims]
    group.unlearned = sorted({partition.topic for partition in group.pending})
    group.move(S.learning)
    _learn_next(group)


def _learn_next(group: Group) -> None:
    if group.unlearned:
        group.client.metadata.want(group, (group.unlearned.pop(0),))
        return
    group.move(S.adding)
    group.client.resume(group, "manage")


def learned(group: Group, trouble: Trouble | None) -> None:
    if trouble is not None:
        group.error = trouble
        release(group)
    else:
        _learn_next(group)


def added(group: Group) -> None:
    session, joined = group.session, group.joined
    assert session is not None
    assert joined is not None
    before, session.claims = session.claims, joined.claims
    session.start(partition for partition in joined.claims if partition not in before)
    session.watch_partitions(joined.counts)
    if all(partition in joined.claims for partition in before):
        group.move(S.running)
        group.client.resume(group, "look")
    else:
        rejoin(group)
