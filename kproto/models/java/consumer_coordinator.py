"""ConsumerCoordinator's part of a rebalance: what is let go before the join, and taken over behind it.

onJoinPrepare: commit; lost (M76), or revoked of everything (EAGER, also of nothing), or of topics that left
the subscription (COOPERATIVE, M77, M78). onJoinComplete: M82 to M91, the listener hears of revoked before
assigned, and of assigned also when nothing is new. `kafka_consumer` goes on when the listener has returned.
"""

from __future__ import annotations

from collections.abc import Iterable

from ...errors import DecodeError
from ...group.classic.member.reasons import NOT_OUR_SUBSCRIPTION
from ...group.subscription import Assignment, TopicPartition
from ...patterns import compiled
from .. import contract as c
from . import abstract_coordinator, coordinator_lookup, offset_commits, plugins
from .hash_order import partition_order, set_order
from .state import (
    NO_GENERATION,
    POLLING,
    RETRY_BACKOFF_MS,
    Block,
    Committing,
    MemberState,
    Out,
    Partition,
    State,
    Then,
)

M = MemberState
TOO_SHORT = (
    "There are insufficient bytes available to read assignment from the sync-group response"
    " (actual byte size {}) , this is not expected; ..."
)
MISMATCH = (
    "that doesn't match our current subscription ... Will try re-join the group with current subscription"
)


# -- onJoinPrepare


def prepare(state: State, out: Out) -> bool:
    """Commit, then let go; False while something is open."""
    if state.auto_commit and not _committed_before_join(state, out):
        return False
    state.needs_prepare = False
    state.prepare_commit, state.prepare_until = None, None
    _let_go(state, out)
    return state.block is POLLING


def _committed_before_join(state: State, out: Out) -> bool:
    """2.6: maybeAutoCommitOffsetsSync, and poll is blocked. 4.3: an asynchronous one, and it is not (M75)."""
    op = state.prepare_commit
    if op is None:
        if state.prepare_until is None:
            state.prepare_until = state.now + state.max_poll_ms
        offsets = offset_commits.consumed(state)
        if not state.cooperative and not state.rules.blocking_commit:
            for one in state.assigned.values():
                one.going = True
        if not offsets:
            return True
        op = state.prepare_commit = Committing(offsets, told=True)
        offset_commits.try_send(state, op, out)
    if op.open and state.rules.blocking_commit:
        state.block = Block.prepare_commit
        return False
    if op.open:
        return state.now >= (state.prepare_until or 0)
    if op.result == 0 or not (op.retriable or op.again_at is not None):
        return True
    return _commit_again(state, op, out)


def _commit_again(state: State, op: Committing, out: Out) -> bool:
    """A retriable failure: once more after the backoff, as long as the rebalance timeout lasts."""
    if state.prepare_until is not None and state.now >= state.prepare_until:
        return True
    if op.again_at is None:
        op.again_at = state.now + RETRY_BACKOFF_MS
    elif op.again_at <= state.now:
        offset_commits.try_send(state, op, out)
    if state.rules.blocking_commit:
        state.block = Block.prepare_commit
    return False


def commit_turn(state: State, out: Out) -> bool:
    op = state.prepare_commit
    assert op is not None
    if op.open:
        return False
    if op.again_at is not None and op.again_at > state.now and not op.retriable and state.coordinator is None:
        coordinator_lookup.look_up(state, out)
        return False
    if op.result == 0 or not (op.retriable or op.again_at is not None):
        state.block = POLLING
        return True
    if op.again_at is None:
        op.again_at = state.now + RETRY_BACKOFF_MS
    if op.again_at > state.now:
        return False
    if state.coordinator is None:
        coordinator_lookup.look_up(state, out)
        return False
    offset_commits.try_send(state, op, out)
    return not op.open


def is_lost(state: State) -> bool:
    """Whether the membership is gone: in 2.6 neither generation nor id, since then one of them (M76)."""
    no_generation, no_id = state.generation.number == -1, not state.generation.member_id
    return (no_generation and no_id) if state.rules.lost_needs_both else (no_generation or no_id)


def _in_order(state: State, partitions: Iterable[TopicPartition]) -> tuple[TopicPartition, ...]:
    """As a listener gets them."""
    return tuple(sorted(partitions) if state.rules.sorts else set_order(partitions))


def _let_go(state: State, out: Out) -> None:
    owned = _in_order(state, state.assigned)
    if is_lost(state):
        if owned:
            tell(state, "lost", owned, Then.joined_prepare, out)
            return
    elif not state.cooperative:
        tell(state, "revoked", owned, Then.joined_prepare, out)
        return
    else:
        going = tuple(tp for tp in owned if tp.topic not in state.topics)
        if going:
            tell(state, "revoked", going, Then.joined_prepare, out)
            return
    prepared(state)


def prepared(state: State) -> None:
    state.leads, state.group_topics = False, frozenset()


# -- onJoinComplete


def complete(state: State, out: Out) -> None:
    data = state.join_done
    assert data is not None
    if state.state is not M.stable or state.generation == NO_GENERATION:
        abstract_coordinator.reset(state, state.reason)
        completed(state)
        return
    if not state.leads:
        state.planned = None
    if abstract_coordinator.chosen_assignor(state) is None:
        state.thrown = abstract_coordinator.unknown_assignor(state)
        return
    state.group_metadata = state.generation
    if len(data) < 2:
        state.thrown = ("IllegalStateException", TOO_SHORT.format(len(data)))
        return
    try:
        assigned = Assignment.decode(data).partitions
    except DecodeError as error:
        state.thrown = ("SchemaException", str(error))
        return
    if not all(_matches(state, tp.topic) for tp in assigned):
        out.append(
            c.Notify("log", "WARN", f"We received an assignment {list(map(str, assigned))} {MISMATCH}")
        )
        abstract_coordinator.want_rejoin(state, NOT_OUR_SUBSCRIPTION)
        completed(state)
        return
    if state.pattern is not None:
        met = frozenset(tp.topic for tp in assigned)
        state.topics, state.joined_topics = state.topics | met, (state.joined_topics or frozenset()) | met
    state.given = tuple(assigned)
    state.adopting = tuple(sorted(set(assigned)) if state.rules.sorts else partition_order(assigned))
    owned = set(state.assigned)
    state.added = _in_order(state, (tp for tp in state.adopting if tp not in owned))
    revoked = _in_order(state, owned.difference(assigned)) if state.cooperative else ()
    if revoked:
        tell(state, "revoked", revoked, Then.complete_revoked, out)
    else:
        adopt(state, out)


def _matches(state: State, topic: str) -> bool:
    if state.pattern is not None:
        return compiled(state.pattern).fullmatch(topic) is not None
    return topic in state.topics


def adopt(state: State, out: Out) -> None:
    """invokeOnAssignment, assignFromSubscribed, and onPartitionsAssigned of what is new."""
    assignor = abstract_coordinator.chosen_assignor(state)
    if assignor is not None:
        state.previous[assignor.name] = (state.given, state.generation.number)
    if isinstance(assignor, plugins.OwnAssignor):
        try:
            assignor.on_assignment(state.adopting, state.generation.number)
        except Exception as error:
            state.raised = state.raised or (type(error).__name__, str(error))
    if state.auto_commit:
        state.commit_at = state.now + state.auto_commit_ms
    state.assigned = {tp: state.assigned.get(tp) or Partition() for tp in state.adopting}
    state.settled = False
    tell(state, "assigned", state.added, Then.complete_assigned, out)


def completed(state: State) -> None:
    state.join_done, state.needs_prepare = None, True


# -- the listener


def tell(state: State, kind: str, partitions: tuple[TopicPartition, ...], then: Then, out: Out) -> None:
    state.after = state.block
    state.block, state.then, state.telling = Block.callback, then, partitions
    out.append(c.RunCallback(kind, partitions))
