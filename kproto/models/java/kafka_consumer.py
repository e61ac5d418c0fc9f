"""KafkaConsumer's calls on the application's thread: poll, subscribe, assign, seek, close.

One poll performs these steps in order (M21, M122, M139): find the coordinator, join, auto commit, update
positions, return records. If poll returns records, it sends the next fetches first (M119).

Normally poll waits no longer than its timeout. While it waits:

* ensureCoordinatorReady waits for a coordinator. Meanwhile poll returns no records. When poll's timeout has
  passed, poll returns buffered records even if the coordinator is still unknown (M121).

* In 2.6, onJoinPrepare waits for its commit even beyond poll's timeout. In 4.3, poll returns at its timeout,
  even if the commit is not complete (M75).

* A join may span several polls. Its JoinGroup is sent once (M21).
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
    """Run the application's thread until it has to wait for an event."""
    while state.thread.state is not NOTHING and THREAD_STEPS[state.thread.state](state, out):
        pass


# -- poll


def poll(state: JavaState, event: c.PollCalled, out: Out) -> None:
    """Begin a poll, which `_continue_poll` performs. A poll without a subscription fails immediately."""
    # Outside callbacks, a poll that begins before the previous call has returned comes from another thread.
    # Java then throws ConcurrentModificationException.
    if state.thread.state is not NOTHING:
        out.append(c.Notify("error", *CONCURRENT))
        return
    state.metrics.record_poll_start(state.now)
    state.thread.move(POLLING)
    state.poll_deadline, state.poll_limit = state.now + event.timeout_ms, event.limit
    state.legacy_poll = LegacyPoll(state.poll_deadline, event.timeout_ms) if event.patient else None
    if not state.auto_assigned and not state.assigned:
        text = "Consumer is not subscribed to any topics or assigned any partitions"
        _return_from_poll(state, out, error=("IllegalStateException", text))


def _return_from_poll(
    state: JavaState, out: Out, records: tuple[c.ModelRecord, ...] = (), error: tuple[str, str] | None = None
) -> None:
    """End the poll, and restart the timer of max.poll.interval.ms."""
    state.thread.move(NOTHING)
    state.max_poll_deadline = state.now + state.max_poll_ms
    if records:
        records = plugins.on_consume(state.interceptors, records, out)
    state.metrics.record_poll_end(state.now)
    out.append(c.FinishPoll(records, error))


def _continue_poll(state: JavaState, out: Out) -> bool:
    """Run one round of poll's loop; return whether another round may follow immediately."""
    if _throw_error(state, out):
        return False
    state.max_poll_deadline = state.now + state.max_poll_ms
    ready = _poll_coordinator(state, out)
    if state.thread.state is not POLLING or state.pending_exception is not None:
        return True
    if ready:
        offset_commits.maybe_auto_commit_async(state, out)
        if not state.positions_settled:
            offset_fetcher.update_fetch_positions(state, out)
    records: tuple[c.ModelRecord, ...] = ()
    is_legacy_waiting = state.legacy_poll is not None and _update_legacy_deadline(
        state, state.legacy_poll, ready
    )
    if state.buffer and not is_legacy_waiting and not _is_waiting_for_coordinator(state):
        records = fetcher.collect_fetch(state, state.poll_limit)
    fetcher.send_fetches(state, out)
    if records or state.now >= state.poll_deadline:
        _return_from_poll(state, out, records)
    return state.pending_exception is not None and state.thread.state is POLLING


def _throw_error(state: JavaState, out: Out) -> bool:
    """If a wakeup or an error is pending, throw it from poll. Return whether the poll has ended.

    A wakeup is thrown at once. Otherwise the callbacks of completed commits run before an error is thrown.
    """
    if state.wakeup_pending:
        state.wakeup_pending = False
        _return_from_poll(state, out, error=offset_commits.WAKEUP)
        return True
    if state.completed_commits:
        offset_commits.invoke_completed_callbacks(state, out)
    if state.commit_fenced:
        _return_from_poll(state, out, error=offset_commits.COMMIT_FENCED)
        return True
    error = state.heartbeat_exception or state.pending_exception or state.find_error
    if error is not None:
        _throw_from_poll(state, error, out)
        return True
    return False


def _throw_from_poll(state: JavaState, error: tuple[str, str], out: Out) -> None:
    """Throw the pending exception `error` from poll, and reset the attribute that held it."""
    if state.heartbeat_exception is not None:
        state.heartbeat_exception = None
    elif state.pending_exception is not None:
        state.pending_exception = None
    else:
        state.find_error = None
    _return_from_poll(state, out, error=error)


def _is_waiting_for_coordinator(state: JavaState) -> bool:
    return state.auto_assigned and state.coordinator is None and state.now < state.poll_deadline


def _update_legacy_deadline(state: JavaState, legacy_poll: LegacyPoll, ready: bool) -> bool:
    """Set poll's deadline; return whether the old poll(long) still waits for metadata or positions.

    updateAssignmentMetadataIfNeeded ignores the timeout of poll(long). If it returns after the timeout, poll
    calls ConsumerNetworkClient.poll once more, with the whole timeout. The next response ends that call.
    """
    if not ready or any(partition.state is FetchStates.INITIALIZING for partition in state.assigned.values()):
        state.poll_deadline = FOREVER
        return True
    if state.poll_deadline == FOREVER:
        is_late = state.now >= legacy_poll.deadline
        state.poll_deadline = state.now + legacy_poll.timeout_ms if is_late else legacy_poll.deadline
        legacy_poll.ends_with_next_event = is_late
    elif legacy_poll.ends_with_next_event:
        state.poll_deadline = state.now
    return False


def wakeup(state: JavaState, event: c.WakeupCalled, out: Out) -> None:
    """Make the blocked call, or else the next blocking call, throw WakeupException.

    Once close() has begun, a wakeup has no effect.

    A wakeup inside onJoinPrepare (ConsumerNetworkClient.wakeup) ends the preparation, and onPartitionsRevoked
    is not called. The result of the commit is ignored, and the next poll continues the join.
    """
    if state.closing:
        return
    synchronous_commits = [commit for commit in state.commits if commit.synchronous]
    if synchronous_commits:
        for commit in synchronous_commits:
            state.commits.remove(commit)
            out.append(c.FinishCommit(commit.token, offset_commits.WAKEUP))
        return
    state.wakeup_pending = True
    if state.prepare_commit is not None and state.thread.state is not NOTHING:
        state.needs_prepare, state.prepare_commit, state.prepare_deadline = False, None, None
        state.thread.move(POLLING)


def _poll_coordinator(state: JavaState, out: Out) -> bool:
    """Find the coordinator and join; return whether the member is in its group and no join is pending.

    Follows ConsumerCoordinator.poll.
    """
    if not state.auto_assigned:
        return True
    if state.coordinator is None:
        coordinator_lookup.lookup_coordinator(state, out)
        return False
    while rejoin_needed_or_pending(state):
        if not _refresh_pattern_topics(state) or not _join_group_if_needed(state, out):
            return False
    state.pattern_refresh_since = None
    return True


def _refresh_pattern_topics(state: JavaState) -> bool:
    """Request metadata at the start of a pattern join; return whether the join may proceed.

    With a pattern subscription, the join waits for a Metadata response that arrives after the start of the
    join (M201).
    """
    if state.pattern is None or state.join_in_flight or state.join_result is not None:
        return True
    if state.pattern_refresh_since is None:
        state.pattern_refresh_since = state.now
        if state.metadata_refreshed_at < state.now:
            state.metadata_update_requested = True
    return state.metadata_refreshed_at >= state.pattern_refresh_since


def rejoin_needed_or_pending(state: JavaState) -> bool:
    """Return whether a join is needed or in progress (rejoinNeededOrPending, M92).

    If the metadata or the subscription changed since the last join, the function first requests a rejoin.
    """
    if (
        state.assignment_snapshot is not None
        and state.assignment_snapshot != state.metadata_snapshot
        and not state.rejoin_needed
    ):
        abstract_coordinator.request_rejoin(state, METADATA_CHANGED)
    if state.joined_topics not in (None, state.topics) and not state.rejoin_needed:
        by_pattern = state.pattern is not None and state.assignment_snapshot is not None
        abstract_coordinator.request_rejoin(state, METADATA_CHANGED if by_pattern else SUBSCRIPTION_CHANGED)
    is_pending = state.join_in_flight or state.join_result is not None or state.join_error is not None
    return state.rejoin_needed or is_pending


# -- the join, which runs inside poll


def _join_group_if_needed(state: JavaState, out: Out) -> bool:
    """Perform the next step of the join (joinGroupIfNeeded). Return False if the join has to wait for an
    event.
    """
    if state.coordinator is None:
        coordinator_lookup.lookup_coordinator(state, out)
        return False
    if state.join_result is not None:
        consumer_coordinator.on_join_complete(state, out)
        return state.thread.state is POLLING and state.pending_exception is None
    if state.join_error is not None:
        return _handle_join_failure(state)
    if state.join_in_flight:
        if state.awaiting_metadata and not state.metadata_update_requested and not state.metadata_in_flight:
            abstract_coordinator.perform_assignment(state, out)
        return False
    if state.needs_prepare and not consumer_coordinator.on_join_prepare(state, out):
        return False
    if state.now < state.join_retry_at:
        return False
    abstract_coordinator.send_join_group(state, out)
    return False


def _handle_join_failure(state: JavaState) -> bool:
    """Return True if the error of a failed join allows a retry; otherwise make poll throw it."""
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
    """Continue the call that waited for the rebalance listener, which has returned or raised an exception.

    Revoked or lost partitions stay in the assignment until the continued call removes them (M79).
    """
    thread = state.thread
    continuation, partitions = thread.continuation, thread.callback_partitions
    if continuation is None:
        return
    state.callback_exception = state.callback_exception or error
    thread.move(thread.state_before_callback)
    thread.continuation, thread.callback_partitions = None, ()
    CONTINUATIONS[continuation](state, partitions, out)


def _remove_partitions(state: JavaState, partitions: Iterable[TopicPartition]) -> None:
    for tp in partitions:
        state.assigned.pop(tp, None)


def _finish_join_prepare(state: JavaState, partitions: tuple[TopicPartition, ...], out: Out) -> None:
    """Remove the partitions that onJoinPrepare has revoked or lost from the assignment."""
    _remove_partitions(state, partitions)
    consumer_coordinator.finish_join_prepare(state)
    if state.callback_exception is not None:
        state.pending_exception, state.callback_exception = (
            wrap_callback_error(state.callback_exception),
            None,
        )


def _finish_revocation(state: JavaState, partitions: tuple[TopicPartition, ...], out: Out) -> None:
    """Adopt the new assignment after a cooperative member has revoked partitions, and request a rejoin."""
    abstract_coordinator.request_rejoin(state, REVOKED_SOME)
    consumer_coordinator.assign_from_subscribed(state, out)


def _finish_join_complete(state: JavaState, partitions: tuple[TopicPartition, ...], out: Out) -> None:
    """Finish onJoinComplete.

    If the listener or the assignor raised an exception, poll throws it, and the next poll runs onJoinComplete
    again. The assignment is then already in place, so the listener gets no new partitions.
    """
    if state.callback_exception is None:
        consumer_coordinator.finish_join_complete(state)
    else:
        state.pending_exception, state.callback_exception = callback_exception(state.callback_exception), None


def _finish_unsubscribe_callback(state: JavaState, partitions: tuple[TopicPartition, ...], out: Out) -> None:
    """Finish unsubscribe. If the rebalance listener raised an exception, only report this exception."""
    _remove_partitions(state, partitions)
    if not _report_callback_error(state, out):
        _finish_unsubscribe(state, out)


def _finish_close_callback(state: JavaState, partitions: tuple[TopicPartition, ...], out: Out) -> None:
    """Leave and close.

    If the rebalance listener raised an exception, no LeaveGroup is sent. The broker removes the member when
    its session expires.
    """
    _remove_partitions(state, partitions)
    if _report_callback_error(state, out):
        _finish_close(state, out)
    else:
        _leave_and_close(state, out)


def _report_callback_error(state: JavaState, out: Out) -> bool:
    """Report the exception that the listener raised; return False if it raised none."""
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
    """Replace the subscription. The next poll joins. An empty list of topics unsubscribes."""
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
    """Call the listener, leave the group, and clear the subscription or manual assignment."""
    state.buffer.clear()
    _on_leave_prepare(state, Continuation.UNSUBSCRIBE, _finish_unsubscribe, out)


def _on_leave_prepare(
    state: JavaState, continuation: Continuation, proceed: Callable[[JavaState, Out], None], out: Out
) -> None:
    """Call onPartitionsLost or onPartitionsRevoked before leaving (onLeavePrepare, M97).

    The function calls onPartitionsLost if the member has no generation or if a rebalance is in progress.
    Otherwise it calls onPartitionsRevoked.
    """
    owned = tuple(sorted(state.assigned))
    if state.auto_assigned and owned:
        is_lost = state.generation == NO_GENERATION or state.rebalancing
        consumer_coordinator.invoke_listener(
            state, "lost" if is_lost else "revoked", owned, continuation, out
        )
    else:
        proceed(state, out)


def _finish_unsubscribe(state: JavaState, out: Out) -> None:
    if state.auto_assigned:
        heartbeat_thread.maybe_leave_group(state, UNSUBSCRIBED, out)
    state.auto_assigned, state.pattern, state.topics = False, None, frozenset()
    state.assigned, state.joined_topics, state.assignment_snapshot = {}, None, None
    state.is_leader, state.group_topics = False, frozenset()


def assign(state: JavaState, event: c.AssignCalled, out: Out) -> None:
    """Replace the manual assignment. Partitions without an offset in the event keep their positions."""
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
    partition = state.assigned.get(event.partition)
    if partition is None:
        text = f"No current assignment for partition {event.partition}"
        out.append(c.Notify("error", "IllegalStateException", text))
    else:
        offset_fetcher.seek_partition(partition, event.offset)
        state.positions_settled = False


# -- close


def close(state: JavaState, event: c.CloseCalled, out: Out) -> None:
    """Close the consumer: commit, call the listener, leave (ConsumerCoordinator.close, M98)."""
    if state.thread.state is POLLING:
        _return_from_poll(state, out)
    state.closing, state.stay_in_group, state.close_until = True, event.stay, state.now + CLOSE_MS
    state.prepare_commit = None
    offset_commits.invoke_completed_callbacks(state, out)
    offsets = offset_commits.all_consumed(state) if state.auto_commit and not state.commit_fenced else {}
    if offsets:
        commit = state.close_commit = CommitOperation(offsets, synchronous=True)
        state.thread.move(BlockedOn.CLOSE_COMMIT)
        offset_commits.send_offset_commit(state, commit, out)
    else:
        _finish_close_commit(state, out)


def _continue_close_commit(state: JavaState, out: Out) -> bool:
    """Send or retry the commit that close() makes. Return False if the thread has to wait for it."""
    commit = state.close_commit
    assert commit is not None
    if state.now < state.close_until:
        is_backing_off = commit.retry_at is not None and commit.retry_at > state.now
        if commit.open or is_backing_off:
            return False
        if commit.retry_at is not None:
            if state.coordinator is None:
                coordinator_lookup.lookup_coordinator(state, out)
                return False
            offset_commits.send_offset_commit(state, commit, out)
            return not commit.open
        if commit.retriable:
            commit.retry_at = state.now + RETRY_BACKOFF_MS
            return False
    state.close_commit = None
    _finish_close_commit(state, out)
    return True


def _finish_close_commit(state: JavaState, out: Out) -> None:
    """Continue close() after its commit: call the listener and leave, unless `stay_in_group` is set."""
    state.thread.move(NOTHING)
    if state.stay_in_group:
        _finish_close(state, out)
        return
    _on_leave_prepare(state, Continuation.CLOSE, _leave_and_close, out)


def _leave_and_close(state: JavaState, out: Out) -> None:
    """Send LeaveGroup, and block until the response arrives.

    If the member does not leave, close immediately.
    """
    is_leaving = state.auto_assigned and heartbeat_thread.maybe_leave_group(state, BEING_CLOSED, out)
    state.thread.move(BlockedOn.CLOSE_LEAVE)
    if not is_leaving:
        _finish_close(state, out)


def _continue_close_leave(state: JavaState, out: Out) -> bool:
    """Finish close() if LeaveGroup was answered, or if the timeout of close() has expired.

    Always returns False, because the thread has nothing more to do in this step.
    """
    if not _is_leave_in_flight(state) or state.now >= state.close_until:
        _finish_close(state, out)
    return False


def _is_leave_in_flight(state: JavaState) -> bool:
    return any(isinstance(entry.send.request, LeaveGroupRequest) for entry in state.open.values())


def _finish_close(state: JavaState, out: Out) -> None:
    """Close fetch sessions, run pending commit callbacks, and report that the consumer is closed."""
    if state.closed:
        return
    if state.release.closes_sessions:
        fetcher.maybe_close_fetch_sessions(state, out)
    offset_commits.invoke_completed_callbacks(state, out)
    state.closed, state.heartbeat_enabled = True, False
    state.thread.move(NOTHING)
    out.append(c.FinishClose())


def _stay_blocked(state: JavaState, out: Out) -> bool:
    return False


# Maps what the application's thread is blocked on to the function that performs its next step. The function
# returns whether another step may follow immediately.
THREAD_STEPS: dict[BlockedOn, Callable[[JavaState, Out], bool]] = {
    NOTHING: _stay_blocked,
    POLLING: _continue_poll,
    BlockedOn.PREPARE_COMMIT: consumer_coordinator.continue_prepare_commit,
    BlockedOn.CALLBACK: _stay_blocked,
    BlockedOn.CLOSE_COMMIT: _continue_close_commit,
    BlockedOn.CLOSE_LEAVE: _continue_close_leave,
}
