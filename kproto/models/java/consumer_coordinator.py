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
    BlockedOn,
    CommitOperation,
    Continuation,
    JavaMemberState,
    JavaState,
    Out,
    TopicPartitionState,
)

M = JavaMemberState
TOO_SHORT = (
    "There are insufficient bytes available to read assignment from the sync-group response"
    " (actual byte size {}) , this is not expected; ..."
)
MISMATCH = (
    "that doesn't match our current subscription ... Will try re-join the group with current subscription"
)


# -- onJoinPrepare


def on_join_prepare(state: JavaState, out: Out) -> bool:
    """Commit, then let go; False while something is open."""
    if state.auto_commit and not _commit_before_join(state, out):
        return False
    state.needs_prepare = False
    state.prepare_commit, state.prepare_until = None, None
    _revoke_before_join(state, out)
    return state.blocked_on is POLLING


def _commit_before_join(state: JavaState, out: Out) -> bool:
    """2.6: maybeAutoCommitOffsetsSync, and poll is blocked. 4.3: an asynchronous one, and it is not (M75)."""
    op = state.prepare_commit
    if op is None:
        if state.prepare_until is None:
            state.prepare_until = state.now + state.max_poll_ms
        offsets = offset_commits.all_consumed(state)
        if not state.cooperative and not state.release.commits_synchronously:
            for one in state.assigned.values():
                one.pending_revocation = True
        if not offsets:
            return True
        op = state.prepare_commit = CommitOperation(offsets, synchronous=True)
        offset_commits.send_offset_commit(state, op, out)
    if op.open and state.release.commits_synchronously:
        state.blocked_on = BlockedOn.PREPARE_COMMIT
        return False
    if op.open:
        return state.now >= (state.prepare_until or 0)
    if op.result == 0 or not (op.retriable or op.retry_at is not None):
        return True
    return _retry_commit(state, op, out)


def _retry_commit(state: JavaState, op: CommitOperation, out: Out) -> bool:
    """A retriable failure: once more after the backoff, as long as the rebalance timeout lasts."""
    if state.prepare_until is not None and state.now >= state.prepare_until:
        return True
    if op.retry_at is None:
        op.retry_at = state.now + RETRY_BACKOFF_MS
    elif op.retry_at <= state.now:
        offset_commits.send_offset_commit(state, op, out)
    if state.release.commits_synchronously:
        state.blocked_on = BlockedOn.PREPARE_COMMIT
    return False


def continue_prepare_commit(state: JavaState, out: Out) -> bool:
    op = state.prepare_commit
    assert op is not None
    if op.open:
        return False
    if op.retry_at is not None and op.retry_at > state.now and not op.retriable and state.coordinator is None:
        coordinator_lookup.lookup_coordinator(state, out)
        return False
    if op.result == 0 or not (op.retriable or op.retry_at is not None):
        state.blocked_on = POLLING
        return True
    if op.retry_at is None:
        op.retry_at = state.now + RETRY_BACKOFF_MS
    if op.retry_at > state.now:
        return False
    if state.coordinator is None:
        coordinator_lookup.lookup_coordinator(state, out)
        return False
    offset_commits.send_offset_commit(state, op, out)
    return not op.open


def is_lost(state: JavaState) -> bool:
    """Whether the membership is gone: in 2.6 neither generation nor id, since then one of them (M76)."""
    no_generation, no_id = state.generation.number == -1, not state.generation.member_id
    return (no_generation and no_id) if state.release.lost_needs_both else (no_generation or no_id)


def _order_for_listener(state: JavaState, partitions: Iterable[TopicPartition]) -> tuple[TopicPartition, ...]:
    """As a listener gets them."""
    return tuple(sorted(partitions) if state.release.sorts_partitions else set_order(partitions))


def _revoke_before_join(state: JavaState, out: Out) -> None:
    owned = _order_for_listener(state, state.assigned)
    if is_lost(state):
        if owned:
            invoke_listener(state, "lost", owned, Continuation.JOIN_PREPARE, out)
            return
    elif not state.cooperative:
        invoke_listener(state, "revoked", owned, Continuation.JOIN_PREPARE, out)
        return
    else:
        going = tuple(tp for tp in owned if tp.topic not in state.topics)
        if going:
            invoke_listener(state, "revoked", going, Continuation.JOIN_PREPARE, out)
            return
    finish_join_prepare(state)


def finish_join_prepare(state: JavaState) -> None:
    state.is_leader, state.group_topics = False, frozenset()


# -- onJoinComplete


def on_join_complete(state: JavaState, out: Out) -> None:
    data = state.join_result
    assert data is not None
    if state.state is not M.STABLE or state.generation == NO_GENERATION:
        abstract_coordinator.reset_state_and_rejoin(state, state.reason)
        finish_join_complete(state)
        return
    if not state.is_leader:
        state.assignment_snapshot = None
    if abstract_coordinator.lookup_assignor(state) is None:
        state.pending_exception = abstract_coordinator.unknown_assignor_error(state)
        return
    state.group_metadata = state.generation
    if len(data) < 2:
        state.pending_exception = ("IllegalStateException", TOO_SHORT.format(len(data)))
        return
    try:
        assigned = Assignment.decode(data).partitions
    except DecodeError as error:
        state.pending_exception = ("SchemaException", str(error))
        return
    if not all(_matches_subscription(state, tp.topic) for tp in assigned):
        out.append(
            c.Notify("log", "WARN", f"We received an assignment {list(map(str, assigned))} {MISMATCH}")
        )
        abstract_coordinator.request_rejoin(state, NOT_OUR_SUBSCRIPTION)
        finish_join_complete(state)
        return
    if state.pattern is not None:
        met = frozenset(tp.topic for tp in assigned)
        state.topics, state.joined_topics = state.topics | met, (state.joined_topics or frozenset()) | met
    state.leader_assignment = tuple(assigned)
    state.new_assignment = tuple(
        sorted(set(assigned)) if state.release.sorts_partitions else partition_order(assigned)
    )
    owned = set(state.assigned)
    state.added_partitions = _order_for_listener(
        state, (tp for tp in state.new_assignment if tp not in owned)
    )
    revoked = _order_for_listener(state, owned.difference(assigned)) if state.cooperative else ()
    if revoked:
        invoke_listener(state, "revoked", revoked, Continuation.JOIN_COMPLETE_REVOKED, out)
    else:
        assign_from_subscribed(state, out)


def _matches_subscription(state: JavaState, topic: str) -> bool:
    if state.pattern is not None:
        return compiled(state.pattern).fullmatch(topic) is not None
    return topic in state.topics


def assign_from_subscribed(state: JavaState, out: Out) -> None:
    """invokeOnAssignment, assignFromSubscribed, and onPartitionsAssigned of what is new."""
    assignor = abstract_coordinator.lookup_assignor(state)
    if assignor is not None:
        state.previous[assignor.name] = (state.leader_assignment, state.generation.number)
    if isinstance(assignor, plugins.CustomAssignor):
        try:
            assignor.on_assignment(state.new_assignment, state.generation.number)
        except Exception as error:
            state.callback_exception = state.callback_exception or (type(error).__name__, str(error))
    if state.auto_commit:
        state.auto_commit_at = state.now + state.auto_commit_ms
    state.assigned = {tp: state.assigned.get(tp) or TopicPartitionState() for tp in state.new_assignment}
    state.positions_settled = False
    invoke_listener(state, "assigned", state.added_partitions, Continuation.JOIN_COMPLETE_ASSIGNED, out)


def finish_join_complete(state: JavaState) -> None:
    state.join_result, state.needs_prepare = None, True


# -- the listener


def invoke_listener(
    state: JavaState, kind: str, partitions: tuple[TopicPartition, ...], then: Continuation, out: Out
) -> None:
    state.blocked_before_callback = state.blocked_on
    state.blocked_on, state.continuation, state.callback_partitions = BlockedOn.CALLBACK, then, partitions
    out.append(c.RunCallback(kind, partitions))
