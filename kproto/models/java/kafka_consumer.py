"""KafkaConsumer's calls, as its application's thread makes them: poll with the join in it, commit, close.

poll (M119 to M121): coordinator, join, the timer's commit, positions, then records; with records the next
fetches go out before they are returned. What is open is not waited for longer than the call has time, but:

* ensureCoordinatorReady waits in the poll for a coordinator, and nothing is returned meanwhile.
* onJoinPrepare of 2.6 waits for its commit however long poll's time was (S2-25). 4.3 polls on (M75).
* A join goes on over several polls; its JoinGroup is never sent twice (M21).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ...error_codes import ErrorCode as E
from ...group.classic.member.reasons import (
    BEING_CLOSED,
    FAILED_WITH,
    METADATA_CHANGED,
    REVOKED_SOME,
    SUBSCRIPTION_CHANGED,
    UNSUBSCRIBED,
)
from ...group.subscription import TopicPartition
from ...messages.leave_group import LeaveGroupRequest
from .. import contract as c
from . import (
    abstract_coordinator,
    consumer_coordinator,
    consumer_metadata,
    coordinator_lookup,
    fetcher,
    heartbeat_thread,
    offset_commits,
    offset_fetcher,
    plugins,
)
from .release import callback_exception, exception_name, wrap_callback_error
from .state import (
    DISCONNECTED,
    FOREVER,
    NO_GENERATION,
    NOTHING,
    POLLING,
    RETRIABLE,
    RETRY_BACKOFF_MS,
    BlockedOn,
    CommitOperation,
    Continuation,
    FetchStates,
    JavaMemberState,
    JavaState,
    LegacyPoll,
    Out,
    TopicPartitionState,
)

M = JavaMemberState
CLOSE_MS = 30_000
CLOSED = ("IllegalStateException", "This consumer has already been closed.")
CONCURRENT = (
    "ConcurrentModificationException",
    "KafkaConsumer is not safe for multi-threaded access",
)


def run_application_thread(state: JavaState, out: Out) -> None:
    """Let the application's thread go on as far as it can."""
    while state.blocked_on is not NOTHING and BLOCKS[state.blocked_on](state, out):
        pass


# -- poll


def poll(state: JavaState, event: c.PollCalled, out: Out) -> None:
    if state.blocked_on is not NOTHING:  # the application's thread is in a call: this is another one
        out.append(c.Notify("error", *CONCURRENT))
        return
    state.metrics.record_poll_start(state.now)
    state.blocked_on = POLLING
    state.poll_deadline, state.poll_limit = state.now + event.timeout_ms, event.limit
    state.legacy_poll = LegacyPoll(state.poll_deadline, event.timeout_ms) if event.patient else None
    if not state.auto_assigned and not state.assigned:
        text = "Consumer is not subscribed to any topics or assigned any partitions"
        _return_from_poll(state, out, error=("IllegalStateException", text))


def _return_from_poll(
    state: JavaState, out: Out, records: tuple[c.ModelRecord, ...] = (), error: tuple[str, str] | None = None
) -> None:
    state.blocked_on = NOTHING
    state.max_poll_deadline = state.now + state.max_poll_ms
    if records:
        records = plugins.on_consume(state.interceptors, records, out)
    state.metrics.record_poll_end(state.now)
    out.append(c.FinishPoll(records, error))


def _continue_poll(state: JavaState, out: Out) -> bool:
    if state.wakeup_pending:
        state.wakeup_pending = False
        _return_from_poll(state, out, error=offset_commits.WAKEUP)
        return False
    if state.completed_commits:
        offset_commits.invoke_completed_callbacks(state, out)
    if state.commit_fenced:
        _return_from_poll(state, out, error=offset_commits.COMMIT_FENCED)
        return False
    error = state.heartbeat_exception or state.pending_exception or state.find_error
    if error is not None:
        _throw_from_poll(state, error, out)
        return False
    state.max_poll_deadline = state.now + state.max_poll_ms
    ready = _poll_coordinator(state, out)
    if state.blocked_on is not POLLING or state.pending_exception is not None:
        return True
    if ready:
        offset_commits.maybe_auto_commit_async(state, out)
        if not state.positions_settled:
            offset_fetcher.update_fetch_positions(state, out)
    records: tuple[c.ModelRecord, ...] = ()
    waits = state.legacy_poll is not None and _is_waiting_for_metadata(state, state.legacy_poll, ready)
    if state.buffer and not waits and not _is_waiting_for_coordinator(state):
        records = fetcher.collect_fetch(state, state.poll_limit)
    fetcher.send_fetches(state, out)
    if records or state.now >= state.poll_deadline:
        _return_from_poll(state, out, records)
    return state.pending_exception is not None and state.blocked_on is POLLING


def _throw_from_poll(state: JavaState, error: tuple[str, str], out: Out) -> None:
    """Poll throws what is oldest: the heartbeat thread's failure first."""
    if state.heartbeat_exception is not None:
        state.heartbeat_exception = None
    elif state.pending_exception is not None:
        state.pending_exception = None
    else:
        state.find_error = None
    _return_from_poll(state, out, error=error)


def _is_waiting_for_coordinator(state: JavaState) -> bool:
    return state.auto_assigned and state.coordinator is None and state.now < state.poll_deadline


def _is_waiting_for_metadata(state: JavaState, patience: LegacyPoll, ready: bool) -> bool:
    """poll(long): updateAssignmentMetadataIfNeeded takes as long as it takes (S2-11).

    Its timer isn't looked at meanwhile. When it was over by then, one call of the network client is left, as
    long as that timer still says; whatever that receives first is the end.
    """
    if not ready or any(one.fetch_state is FetchStates.INITIALIZING for one in state.assigned.values()):
        state.poll_deadline = FOREVER
        return True
    if state.poll_deadline == FOREVER:
        late = state.now >= patience.deadline
        state.poll_deadline = state.now + patience.timeout_ms if late else patience.deadline
        patience.ends_with_next_event = late
    elif patience.ends_with_next_event:
        state.poll_deadline = state.now
    return False


def wakeup(state: JavaState, event: c.WakeupCalled, out: Out) -> None:
    """ConsumerNetworkClient.wakeup: whatever waits throws, else the next call that would wait.

    In onJoinPrepare it finds a join that is marked as prepared, and isn't: the commit has no result, nobody
    is told of revoked, and the join goes on with the next poll.
    """
    waiting = [one for one in state.commits if one.synchronous]
    if state.closing:
        return
    if waiting:
        for op in waiting:
            state.commits.remove(op)
            out.append(c.FinishCommit(op.token, offset_commits.WAKEUP))
        return
    state.wakeup_pending = True
    if state.prepare_commit is not None and state.blocked_on is not NOTHING:
        state.needs_prepare, state.prepare_commit, state.prepare_until = False, None, None
        state.blocked_on = POLLING


def _poll_coordinator(state: JavaState, out: Out) -> bool:
    """ConsumerCoordinator.poll: whether the member is in its group with nothing pending."""
    if not state.auto_assigned:
        return True
    if state.coordinator is None:
        coordinator_lookup.lookup_coordinator(state, out)
        return False
    while rejoin_needed_or_pending(state):
        if not _pattern_is_fresh(state) or not _join_group_if_needed(state, out):
            return False
    state.pattern_refresh_since = None
    return True


def _pattern_is_fresh(state: JavaState) -> bool:
    """A pattern is matched anew before each join (M201)."""
    if state.pattern is None or state.join_in_flight or state.join_result is not None:
        return True
    if state.pattern_refresh_since is None:
        state.pattern_refresh_since = state.now
        if state.metadata_last < state.now:
            state.metadata_wanted = True
    return state.metadata_last >= state.pattern_refresh_since


def rejoin_needed_or_pending(state: JavaState) -> bool:
    """rejoinNeededOrPending (M92)."""
    if not state.auto_assigned:
        return False
    if (
        state.assignment_snapshot is not None
        and state.assignment_snapshot != state.metadata_snapshot
        and not state.rejoin_needed
    ):
        abstract_coordinator.request_rejoin(state, METADATA_CHANGED)
    if state.joined_topics not in (None, state.topics) and not state.rejoin_needed:
        by_pattern = state.pattern is not None and state.assignment_snapshot is not None
        abstract_coordinator.request_rejoin(state, METADATA_CHANGED if by_pattern else SUBSCRIPTION_CHANGED)
    pending = state.join_in_flight or state.join_result is not None or state.join_error is not None
    return state.rejoin_needed or pending


# -- the join, inside of poll


def _join_group_if_needed(state: JavaState, out: Out) -> bool:
    """One turn of joinGroupIfNeeded; False when it has to wait for something."""
    if state.coordinator is None:
        coordinator_lookup.lookup_coordinator(state, out)
        return False
    if state.join_result is not None:
        consumer_coordinator.on_join_complete(state, out)
        return state.blocked_on is POLLING and state.pending_exception is None
    if state.join_error is not None:
        return _handle_join_failure(state)
    if state.join_in_flight:
        if state.awaiting_metadata and not state.metadata_wanted and not state.metadata_open:
            abstract_coordinator.perform_assignment(state, out)
        return False
    if state.needs_prepare and not consumer_coordinator.on_join_prepare(state, out):
        return False
    if state.now < state.join_retry_at:
        return False
    abstract_coordinator.send_join_group(state, out)
    return False


def _handle_join_failure(state: JavaState) -> bool:
    code, state.join_error = state.join_error, None
    assert code is not None
    name = "DisconnectException" if code == DISCONNECTED else exception_name(code)
    if code != E.MEMBER_ID_REQUIRED:
        abstract_coordinator.request_rejoin(state, FAILED_WITH.format(name))
    if code in (E.UNKNOWN_MEMBER_ID, E.ILLEGAL_GENERATION, E.REBALANCE_IN_PROGRESS, E.MEMBER_ID_REQUIRED):
        return True
    if code == DISCONNECTED or code in RETRIABLE:
        if state.release.forgets_member_id:
            abstract_coordinator.reset_state_and_rejoin(state, state.reason)
        if state.release.backs_off:
            state.join_retry_at = state.now + RETRY_BACKOFF_MS
        return True
    state.pending_exception = (
        heartbeat_thread.FENCED
        if code == E.FENCED_INSTANCE_ID
        else (name, f"Unexpected error in join: {name}")
    )
    return False


# -- the listener


def on_callback_returned(state: JavaState, error: tuple[str, str] | None, out: Out) -> None:
    """The listener has returned, or raised: the assignment changes only now (M79), and in either case."""
    then, going = state.continuation, state.callback_partitions
    if then is None:
        return
    state.callback_exception = state.callback_exception or error
    state.blocked_on, state.continuation, state.callback_partitions = state.blocked_before_callback, None, ()
    CONTINUATIONS[then](state, going, out)


def _remove_partitions(state: JavaState, partitions: Iterable[TopicPartition]) -> None:
    for tp in partitions:
        state.assigned.pop(tp, None)


def _finish_join_prepare(state: JavaState, going: tuple[TopicPartition, ...], out: Out) -> None:
    _remove_partitions(state, going)
    consumer_coordinator.finish_join_prepare(state)
    if state.callback_exception is not None:
        state.pending_exception, state.callback_exception = (
            wrap_callback_error(state.callback_exception),
            None,
        )


def _finish_revocation(state: JavaState, going: tuple[TopicPartition, ...], out: Out) -> None:
    abstract_coordinator.request_rejoin(state, REVOKED_SOME)
    consumer_coordinator.assign_from_subscribed(state, out)


def _finish_join_complete(state: JavaState, going: tuple[TopicPartition, ...], out: Out) -> None:
    """With an exception the join isn't done: the next poll completes it once more, with nothing to add."""
    if state.callback_exception is None:
        consumer_coordinator.finish_join_complete(state)
    else:
        state.pending_exception, state.callback_exception = callback_exception(state.callback_exception), None


def _finish_unsubscribe_callback(state: JavaState, going: tuple[TopicPartition, ...], out: Out) -> None:
    _remove_partitions(state, going)
    if not _report_callback_error(state, out):
        _finish_unsubscribe(state, out)


def _finish_close_callback(state: JavaState, going: tuple[TopicPartition, ...], out: Out) -> None:
    """A listener that raises keeps the consumer from leaving: the group waits for the session's end."""
    _remove_partitions(state, going)
    if _report_callback_error(state, out):
        _finish_close(state, out)
    else:
        _leave_and_close(state, out)


def _report_callback_error(state: JavaState, out: Out) -> bool:
    cause, state.callback_exception = state.callback_exception, None
    if cause is not None:
        out.append(c.Notify("error", *wrap_callback_error(cause)))
    return cause is not None


CONTINUATIONS: dict[Continuation, Callable[[JavaState, tuple[TopicPartition, ...], Out], None]] = {
    Continuation.JOIN_PREPARE: _finish_join_prepare,
    Continuation.JOIN_COMPLETE_REVOKED: _finish_revocation,
    Continuation.JOIN_COMPLETE_ASSIGNED: _finish_join_complete,
    Continuation.UNSUBSCRIBE: _finish_unsubscribe_callback,
    Continuation.CLOSE: _finish_close_callback,
}


# -- subscribe, unsubscribe, assign, seek


def subscribe(state: JavaState, event: c.SubscribeCalled, out: Out) -> None:
    if not event.topics and event.pattern is None:
        unsubscribe(state, out)
        return
    if state.assigned and not state.auto_assigned:
        text = "Subscription to topics, partitions and pattern are mutually exclusive"
        out.append(c.Notify("error", "IllegalStateException", text))
        return
    state.auto_assigned, state.pattern = True, event.pattern
    state.topics = frozenset(event.topics)
    if event.pattern is not None:
        state.topics = state.cluster.matching_topics(event.pattern, full=True)
    if event.pattern is not None or not state.topics <= state.cluster.topics.keys():
        consumer_metadata.request_update_for_new_topics(state)
    state.metadata_snapshot = consumer_metadata.take_snapshot(state, state.topics | state.group_topics)


def unsubscribe(state: JavaState, out: Out) -> None:
    state.buffer.clear()
    _on_leave_prepare(state, Continuation.UNSUBSCRIBE, _finish_unsubscribe, out)


def _on_leave_prepare(
    state: JavaState, then: Continuation, go_on: Callable[[JavaState, Out], None], out: Out
) -> None:
    """onLeavePrepare (M97): lost without a generation and in the middle of a rebalance, else revoked."""
    owned = tuple(sorted(state.assigned))
    if state.auto_assigned and owned:
        gone = state.generation == NO_GENERATION or state.rebalancing
        consumer_coordinator.invoke_listener(state, "lost" if gone else "revoked", owned, then, out)
    else:
        go_on(state, out)


def _finish_unsubscribe(state: JavaState, out: Out) -> None:
    if state.auto_assigned:
        heartbeat_thread.maybe_leave_group(state, UNSUBSCRIBED, out)
    state.auto_assigned, state.pattern, state.topics = False, None, frozenset()
    state.assigned, state.joined_topics, state.assignment_snapshot = {}, None, None
    state.is_leader, state.group_topics = False, frozenset()


def assign(state: JavaState, event: c.AssignCalled, out: Out) -> None:
    if state.auto_assigned:
        text = "Subscription to topics, partitions and pattern are mutually exclusive"
        out.append(c.Notify("error", "IllegalStateException", text))
        return
    state.assigned = {tp: state.assigned.get(tp) or TopicPartitionState() for tp in event.partitions}
    state.positions_settled = False
    for tp, offset in event.partitions.items():
        if offset is not None:
            offset_fetcher.seek_partition(state.assigned[tp], offset)
    fetcher.clear_unassigned_data(state)
    if any(tp.topic not in state.cluster.topics for tp in state.assigned):
        consumer_metadata.request_update_for_new_topics(state)


def seek(state: JavaState, event: c.SeekCalled, out: Out) -> None:
    one = state.assigned.get(event.partition)
    if one is None:
        text = f"No current assignment for partition {event.partition}"
        out.append(c.Notify("error", "IllegalStateException", text))
    else:
        offset_fetcher.seek_partition(one, event.offset)
        state.positions_settled = False


# -- close


def close(state: JavaState, event: c.CloseCalled, out: Out) -> None:
    """ConsumerCoordinator.close, then AbstractCoordinator.close (M98)."""
    if state.blocked_on is POLLING:
        _return_from_poll(state, out)
    state.closing, state.stay_in_group, state.close_until = True, event.stay, state.now + CLOSE_MS
    op = state.prepare_commit = None
    offset_commits.invoke_completed_callbacks(state, out)
    offsets = offset_commits.all_consumed(state) if state.auto_commit and not state.commit_fenced else {}
    if offsets:
        op = state.close_commit = CommitOperation(offsets, synchronous=True)
        state.blocked_on = BlockedOn.CLOSE_COMMIT
        offset_commits.send_offset_commit(state, op, out)
    else:
        _finish_close_commit(state, out)


def _continue_close_commit(state: JavaState, out: Out) -> bool:
    op = state.close_commit
    assert op is not None
    over = state.now >= state.close_until
    if not over and (op.open or (op.retry_at is not None and op.retry_at > state.now)):
        return False
    if not over and op.retry_at is not None:
        if state.coordinator is None:
            coordinator_lookup.lookup_coordinator(state, out)
            return False
        offset_commits.send_offset_commit(state, op, out)
        return not op.open
    if not over and op.retriable:
        op.retry_at = state.now + RETRY_BACKOFF_MS
        return False
    state.close_commit = None
    _finish_close_commit(state, out)
    return True


def _finish_close_commit(state: JavaState, out: Out) -> None:
    state.blocked_on = NOTHING
    if state.stay_in_group:
        _finish_close(state, out)
        return
    _on_leave_prepare(state, Continuation.CLOSE, _leave_and_close, out)


def _leave_and_close(state: JavaState, out: Out) -> None:
    sent = state.auto_assigned and heartbeat_thread.maybe_leave_group(state, BEING_CLOSED, out)
    state.blocked_on = BlockedOn.CLOSE_LEAVE
    if not sent:
        _finish_close(state, out)


def _continue_close_leave(state: JavaState, out: Out) -> bool:
    if not _is_leave_open(state) or state.now >= state.close_until:
        _finish_close(state, out)
    return False


def _is_leave_open(state: JavaState) -> bool:
    return any(isinstance(entry.send.request, LeaveGroupRequest) for entry in state.open.values())


def _finish_close(state: JavaState, out: Out) -> None:
    if state.closed:
        return
    if state.release.closes_sessions:
        fetcher.maybe_close_fetch_sessions(state, out)
    offset_commits.invoke_completed_callbacks(state, out)
    state.closed, state.blocked_on, state.heartbeat_enabled = True, NOTHING, False
    out.append(c.FinishClose())


def _keep_waiting(state: JavaState, out: Out) -> bool:
    return False


BLOCKS: dict[BlockedOn, Callable[[JavaState, Out], bool]] = {
    NOTHING: _keep_waiting,
    POLLING: _continue_poll,
    BlockedOn.PREPARE_COMMIT: consumer_coordinator.continue_prepare_commit,
    BlockedOn.CALLBACK: _keep_waiting,
    BlockedOn.CLOSE_COMMIT: _continue_close_commit,
    BlockedOn.CLOSE_LEAVE: _continue_close_leave,
}
