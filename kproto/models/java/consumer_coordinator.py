"""The callbacks and the assignment around a join (ConsumerCoordinator).

* With auto commit, onJoinPrepare commits the positions before it calls the listener (M75). If the membership
  is lost, onJoinPrepare calls the listener's onPartitionsLost (M76).

* If the membership is not lost, onJoinPrepare calls onPartitionsRevoked (M77, M78). An EAGER member passes
  all its partitions, even if it has none. A COOPERATIVE member passes the partitions of topics to which it no
  longer subscribes, and omits the call if there are no such partitions.

* onJoinComplete decodes and checks the assignment (M82, M83), then calls the listener: first
  onPartitionsRevoked (M84), then onPartitionsAssigned, even if no partition is new (M89).

* When the listener has returned, the application's thread continues (`kafka_consumer`).
"""

from __future__ import annotations

from collections.abc import Iterable

from ...errors import DecodeError
from ...group.classic.member.reasons import GENERATION_RESET, NOT_OUR_SUBSCRIPTION
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
    " (actual byte size {}) , this is not expected; it is possible that the leader's assign function is buggy"
    " and did not return any assignment for this member, or because static member is configured and the"
    " protocol is buggy hence did not get the assignment for this member"
)
# The log lines for an assignment with topics to which the member does not subscribe. kafka-clients 2.6.2 logs
# MISMATCH_2_6 at level WARN, and 4.3.1 logs MISMATCH at level INFO.
MISMATCH_2_6 = (
    "We received an assignment {} that doesn't match our current subscription {}; it is likely that the"
    " subscription has changed since we joined the group. Will try re-join the group with current"
    " subscription"
)
MISMATCH = (
    "Request joining group due to: received assignment {} does not match the current subscription {}; it is"
    " likely that the subscription has changed since we joined the group, will re-join with current"
    " subscription"
)


# -- onJoinPrepare


def on_join_prepare(state: JavaState, out: Out) -> bool:
    """Commit, then revoke partitions (onJoinPrepare). Return False while a commit or callback is pending."""
    if state.auto_commit and not _commit_before_join(state, out):
        return False
    state.needs_prepare = False
    state.prepare_commit, state.prepare_deadline = None, None
    _revoke_before_join(state, out)
    return state.thread.state is POLLING


def _commit_before_join(state: JavaState, out: Out) -> bool:
    """Commit before the join, and return whether the join may continue.

    kafka-clients 2.6 blocks poll until the commit response arrives (maybeAutoCommitOffsetsSync).
    kafka-clients 4.3 commits asynchronously: the join waits for the response, but poll continues (M75).
    """
    commit = state.prepare_commit
    if commit is None:
        if state.prepare_deadline is None:
            state.prepare_deadline = state.now + state.max_poll_ms
        offsets = offset_commits.all_consumed(state)
        if not state.cooperative and not state.release.commits_synchronously:
            for partition in state.assigned.values():
                partition.pending_revocation = True
        if not offsets:
            return True
        commit = state.prepare_commit = CommitOperation(offsets, synchronous=True)
        offset_commits.send_offset_commit(state, commit, out)
    if state.now >= (state.prepare_deadline or 0):
        return True
    if commit.open:
        if state.release.commits_synchronously:
            state.thread.move(BlockedOn.PREPARE_COMMIT)
        return False
    may_retry = commit.retriable or commit.retry_at is not None
    if commit.result == 0 or not may_retry:
        return True
    return _retry_commit(state, commit, out)


def _retry_commit(state: JavaState, commit: CommitOperation, out: Out) -> bool:
    """Retry a commit after retry.backoff.ms. Return False, because the commit is pending."""
    if commit.retry_at is None:
        commit.retry_at = state.now + RETRY_BACKOFF_MS
    elif commit.retry_at <= state.now:
        offset_commits.send_offset_commit(state, commit, out)
    return False


def continue_prepare_commit(state: JavaState, out: Out) -> bool:
    """Send or retry the commit that blocks poll (kafka-clients 2.6), at most until the rebalance timeout.

    Returns whether the commit is complete.
    """
    commit = state.prepare_commit
    assert commit is not None
    if state.now < (state.prepare_deadline or 0):
        if commit.open:
            return False
        if commit.result != 0 and (commit.retriable or commit.retry_at is not None):
            if commit.retry_at is None:
                commit.retry_at = state.now + RETRY_BACKOFF_MS
            if commit.retry_at > state.now:
                return False
            if state.coordinator is None:
                coordinator_lookup.lookup_coordinator(state, out)
                return False
            offset_commits.send_offset_commit(state, commit, out)
            return not commit.open
    state.thread.move(POLLING)
    return True


def is_lost(state: JavaState) -> bool:
    """Return whether the membership is lost (M76).

    In 4.3 the membership is lost if the generation or the member id is missing. In 2.6 it is lost only if
    both are missing.
    """
    no_generation, no_id = state.generation.number == -1, not state.generation.member_id
    return (no_generation and no_id) if state.release.lost_needs_both else (no_generation or no_id)


def _order_for_listener(state: JavaState, partitions: Iterable[TopicPartition]) -> tuple[TopicPartition, ...]:
    """Return `partitions` in the order in which Java passes them to the rebalance listener."""
    return tuple(sorted(partitions) if state.release.sorts_partitions else set_order(partitions))


def _revoke_before_join(state: JavaState, out: Out) -> None:
    """Call the listener for the partitions that are lost or revoked before the join."""
    owned = _order_for_listener(state, state.assigned)
    if is_lost(state):
        if owned:
            invoke_listener(state, "lost", owned, Continuation.JOIN_PREPARE, out)
            return
    elif not state.cooperative:
        invoke_listener(state, "revoked", owned, Continuation.JOIN_PREPARE, out)
        return
    else:
        revoked = tuple(tp for tp in owned if tp.topic not in state.topics)
        if revoked:
            invoke_listener(state, "revoked", revoked, Continuation.JOIN_PREPARE, out)
            return
    finish_join_prepare(state)


def finish_join_prepare(state: JavaState) -> None:
    """Record that the member is no longer the leader, and forget its metadata snapshot."""
    state.is_leader, state.group_topics = False, frozenset()


# -- onJoinComplete


def on_join_complete(state: JavaState, out: Out) -> None:
    """Check the assignment, and revoke the owned partitions that it does not contain.

    Only COOPERATIVE members revoke partitions here. EAGER members revoked all partitions before they joined.
    """
    assignment_bytes = state.join_result
    assert assignment_bytes is not None
    if state.state is not M.STABLE or state.generation == NO_GENERATION:
        reason = GENERATION_RESET.format(state.generation.member_id)
        abstract_coordinator.reset_state_and_rejoin(state, reason)
        finish_join_complete(state)
        return
    if not state.is_leader:
        state.assignment_snapshot = None
    if abstract_coordinator.lookup_assignor(state) is None:
        state.pending_exception = abstract_coordinator.unknown_assignor_error(state)
        return
    state.group_metadata = state.generation
    if len(assignment_bytes) < 2:
        state.pending_exception = ("IllegalStateException", TOO_SHORT.format(len(assignment_bytes)))
        return
    try:
        assigned = Assignment.decode(assignment_bytes).partitions
    except DecodeError as error:
        state.pending_exception = ("SchemaException", str(error))
        return
    if not all(_matches_subscription(state, tp.topic) for tp in assigned):
        _log_mismatch(state, assigned, out)
        abstract_coordinator.request_rejoin(state, NOT_OUR_SUBSCRIPTION)
        finish_join_complete(state)
        return
    if state.pattern is not None:
        assigned_topics = frozenset(tp.topic for tp in assigned)
        state.topics |= assigned_topics
        state.joined_topics = (state.joined_topics or frozenset()) | assigned_topics
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


def _log_mismatch(state: JavaState, assigned: Iterable[TopicPartition], out: Out) -> None:
    """Log that the assignment has topics to which the member does not subscribe."""
    level, text = ("INFO", MISMATCH) if state.release.reasons else ("WARN", MISMATCH_2_6)
    received = f"[{', '.join(map(str, assigned))}]"
    out.append(c.Notify("log", level, text.format(received, _subscription_text(state))))


def _subscription_text(state: JavaState) -> str:
    """Return the subscription as it appears in log lines (SubscriptionState.prettyString)."""
    return f"Subscribe({','.join(state.topics) if state.pattern is None else state.pattern})"


def _matches_subscription(state: JavaState, topic: str) -> bool:
    """Return whether the subscription contains `topic`."""
    if state.pattern is not None:
        return compiled(state.pattern).fullmatch(topic) is not None
    return topic in state.topics


def assign_from_subscribed(state: JavaState, out: Out) -> None:
    """Adopt the assignment and call onPartitionsAssigned with the new partitions.

    The assignor's onAssignment runs before the subscription receives the assignment (invokeOnAssignment, then
    assignFromSubscribed).
    """
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
    """End the join. The next join begins with onJoinPrepare."""
    state.join_result, state.needs_prepare = None, True


# -- the listener


def invoke_listener(
    state: JavaState, kind: str, partitions: tuple[TopicPartition, ...], then: Continuation, out: Out
) -> None:
    """Call the listener. `then` is the continuation to run when the listener has returned."""
    thread = state.thread
    thread.state_before_callback = thread.state
    thread.move(BlockedOn.CALLBACK)
    thread.continuation, thread.callback_partitions = then, partitions
    assignment = tuple(state.assigned) if kind == "assigned" else None
    out.append(c.RunCallback(kind, partitions, assignment=assignment))
