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
from .release import exception, first_raised, wrapped
from .state import (
    DISCONNECTED,
    FOREVER,
    NO_GENERATION,
    NOTHING,
    POLLING,
    RETRIABLE,
    RETRY_BACKOFF_MS,
    Block,
    Committing,
    MemberState,
    Out,
    Partition,
    Patience,
    State,
    Then,
    Where,
)

M = MemberState
CLOSE_MS = 30_000
CLOSED = ("IllegalStateException", "This consumer has already been closed.")
CONCURRENT = (
    "ConcurrentModificationException",
    "KafkaConsumer is not safe for multi-threaded access",
)


def run(state: State, out: Out) -> None:
    """Let the application's thread go on as far as it can."""
    while state.block is not NOTHING and BLOCKS[state.block](state, out):
        pass


# -- poll


def poll(state: State, event: c.PollCalled, out: Out) -> None:
    if state.block is not NOTHING:  # the application's thread is in a call: this is another one
        out.append(c.Notify("error", *CONCURRENT))
        return
    state.polls.begun(state.now)
    state.block = POLLING
    state.poll_until, state.poll_limit = state.now + event.timeout_ms, event.limit
    state.patience = Patience(state.poll_until, event.timeout_ms) if event.patient else None
    if not state.automatic and not state.assigned:
        text = "Consumer is not subscribed to any topics or assigned any partitions"
        _return(state, out, error=("IllegalStateException", text))


def _return(
    state: State, out: Out, records: tuple[c.ModelRecord, ...] = (), error: tuple[str, str] | None = None
) -> None:
    state.block = NOTHING
    state.poll_at = state.now + state.max_poll_ms
    if records:
        records = plugins.consumed(state.interceptors, records, out)
    state.polls.ended(state.now)
    out.append(c.FinishPoll(records, error))


def _polling(state: State, out: Out) -> bool:
    if state.woken:
        state.woken = False
        _return(state, out, error=offset_commits.WAKEUP)
        return False
    if state.finished:
        offset_commits.drain(state, out)
    if state.commit_fenced:
        _return(state, out, error=offset_commits.COMMIT_FENCED)
        return False
    error = state.failed or state.thrown or state.find_fatal
    if error is not None:
        _throw(state, error, out)
        return False
    state.poll_at = state.now + state.max_poll_ms
    ready = _coordinate(state, out)
    if state.block is not POLLING or state.thrown is not None:
        return True
    if ready:
        offset_commits.by_timer(state, out)
        if not state.settled:
            offset_fetcher.serve(state, out)
    records: tuple[c.ModelRecord, ...] = ()
    waits = state.patience is not None and _waits_for_metadata(state, state.patience, ready)
    if state.buffer and not waits and not _waits_for_coordinator(state):
        records = fetcher.collect(state, state.poll_limit)
    fetcher.serve(state, out)
    if records or state.now >= state.poll_until:
        _return(state, out, records)
    return state.thrown is not None and state.block is POLLING


def _throw(state: State, error: tuple[str, str], out: Out) -> None:
    """Poll throws what is oldest: the heartbeat thread's failure first."""
    if state.failed is not None:
        state.failed = None
    elif state.thrown is not None:
        state.thrown = None
    else:
        state.find_fatal = None
    _return(state, out, error=error)


def _waits_for_coordinator(state: State) -> bool:
    return state.automatic and state.coordinator is None and state.now < state.poll_until


def _waits_for_metadata(state: State, patience: Patience, ready: bool) -> bool:
    """poll(long): updateAssignmentMetadataIfNeeded takes as long as it takes (S2-11).

    Its timer isn't looked at meanwhile. When it was over by then, one call of the network client is left, as
    long as that timer still says; whatever that receives first is the end.
    """
    if not ready or any(one.where is Where.initializing for one in state.assigned.values()):
        state.poll_until = FOREVER
        return True
    if state.poll_until == FOREVER:
        late = state.now >= patience.until
        state.poll_until = state.now + patience.timeout_ms if late else patience.until
        patience.ends = late
    elif patience.ends:
        state.poll_until = state.now
    return False


def wakeup(state: State, event: c.WakeupCalled, out: Out) -> None:
    """ConsumerNetworkClient.wakeup: whatever waits throws, else the next call that would wait.

    In onJoinPrepare it finds a join that is marked as prepared, and isn't: the commit has no result, nobody
    is told of revoked, and the join goes on with the next poll.
    """
    waiting = [one for one in state.commits if one.told]
    if state.closing:
        return
    if waiting:
        for op in waiting:
            state.commits.remove(op)
            out.append(c.FinishCommit(op.token, offset_commits.WAKEUP))
        return
    state.woken = True
    if state.prepare_commit is not None and state.block is not NOTHING:
        state.needs_prepare, state.prepare_commit, state.prepare_until = False, None, None
        state.block = POLLING


def _coordinate(state: State, out: Out) -> bool:
    """ConsumerCoordinator.poll: whether the member is in its group with nothing pending."""
    if not state.automatic:
        return True
    if state.coordinator is None:
        coordinator_lookup.look_up(state, out)
        return False
    while needs_join(state):
        if not _pattern_is_fresh(state) or not _join_turn(state, out):
            return False
    state.fresh_since = None
    return True


def _pattern_is_fresh(state: State) -> bool:
    """A pattern is matched anew before each join (M201)."""
    if state.pattern is None or state.join_open or state.join_done is not None:
        return True
    if state.fresh_since is None:
        state.fresh_since = state.now
        if state.metadata_last < state.now:
            state.metadata_wanted = True
    return state.metadata_last >= state.fresh_since


def needs_join(state: State) -> bool:
    """rejoinNeededOrPending (M92)."""
    if not state.automatic:
        return False
    if state.planned is not None and state.planned != state.snapshot and not state.rejoin_needed:
        abstract_coordinator.want_rejoin(state, METADATA_CHANGED)
    if state.joined_topics not in (None, state.topics) and not state.rejoin_needed:
        by_pattern = state.pattern is not None and state.planned is not None
        abstract_coordinator.want_rejoin(state, METADATA_CHANGED if by_pattern else SUBSCRIPTION_CHANGED)
    pending = state.join_open or state.join_done is not None or state.join_failed is not None
    return state.rejoin_needed or pending


# -- the join, inside of poll


def _join_turn(state: State, out: Out) -> bool:
    """One turn of joinGroupIfNeeded; False when it has to wait for something."""
    if state.coordinator is None:
        coordinator_lookup.look_up(state, out)
        return False
    if state.join_done is not None:
        consumer_coordinator.complete(state, out)
        return state.block is POLLING and state.thrown is None
    if state.join_failed is not None:
        return _join_failed(state)
    if state.join_open:
        if state.planning and not state.metadata_wanted and not state.metadata_open:
            abstract_coordinator.plan(state, out)
        return False
    if state.needs_prepare and not consumer_coordinator.prepare(state, out):
        return False
    if state.now < state.join_again_at:
        return False
    abstract_coordinator.join(state, out)
    return False


def _join_failed(state: State) -> bool:
    code, state.join_failed = state.join_failed, None
    assert code is not None
    name = "DisconnectException" if code == DISCONNECTED else exception(code)
    if code != E.MEMBER_ID_REQUIRED:
        abstract_coordinator.want_rejoin(state, FAILED_WITH.format(name))
    if code in (E.UNKNOWN_MEMBER_ID, E.ILLEGAL_GENERATION, E.REBALANCE_IN_PROGRESS, E.MEMBER_ID_REQUIRED):
        return True
    if code == DISCONNECTED or code in RETRIABLE:
        if state.rules.forgetful:
            abstract_coordinator.reset(state, state.reason)
        if state.rules.backs_off:
            state.join_again_at = state.now + RETRY_BACKOFF_MS
        return True
    state.thrown = (
        heartbeat_thread.FENCED
        if code == E.FENCED_INSTANCE_ID
        else (name, f"Unexpected error in join: {name}")
    )
    return False


# -- the listener


def told(state: State, error: tuple[str, str] | None, out: Out) -> None:
    """The listener has returned, or raised: the assignment changes only now (M79), and in either case."""
    then, going = state.then, state.telling
    if then is None:
        return
    state.raised = state.raised or error
    state.block, state.then, state.telling = state.after, None, ()
    THENS[then](state, going, out)


def _remove(state: State, partitions: Iterable[TopicPartition]) -> None:
    for tp in partitions:
        state.assigned.pop(tp, None)


def _told_prepare(state: State, going: tuple[TopicPartition, ...], out: Out) -> None:
    _remove(state, going)
    consumer_coordinator.prepared(state)
    if state.raised is not None:
        state.thrown, state.raised = wrapped(state.raised), None


def _told_revoked(state: State, going: tuple[TopicPartition, ...], out: Out) -> None:
    abstract_coordinator.want_rejoin(state, REVOKED_SOME)
    consumer_coordinator.adopt(state, out)


def _told_assigned(state: State, going: tuple[TopicPartition, ...], out: Out) -> None:
    """With an exception the join isn't done: the next poll completes it once more, with nothing to add."""
    if state.raised is None:
        consumer_coordinator.completed(state)
    else:
        state.thrown, state.raised = first_raised(state.raised), None


def _told_unsubscribed(state: State, going: tuple[TopicPartition, ...], out: Out) -> None:
    _remove(state, going)
    if not _callback_failed(state, out):
        _unsubscribed(state, out)


def _told_closed(state: State, going: tuple[TopicPartition, ...], out: Out) -> None:
    """A listener that raises keeps the consumer from leaving: the group waits for the session's end."""
    _remove(state, going)
    if _callback_failed(state, out):
        _end(state, out)
    else:
        _leave_and_close(state, out)


def _callback_failed(state: State, out: Out) -> bool:
    cause, state.raised = state.raised, None
    if cause is not None:
        out.append(c.Notify("error", *wrapped(cause)))
    return cause is not None


THENS: dict[Then, Callable[[State, tuple[TopicPartition, ...], Out], None]] = {
    Then.joined_prepare: _told_prepare,
    Then.complete_revoked: _told_revoked,
    Then.complete_assigned: _told_assigned,
    Then.unsubscribed: _told_unsubscribed,
    Then.closed: _told_closed,
}


# -- subscribe, unsubscribe, assign, seek


def subscribe(state: State, event: c.SubscribeCalled, out: Out) -> None:
    if not event.topics and event.pattern is None:
        unsubscribe(state, out)
        return
    if state.assigned and not state.automatic:
        text = "Subscription to topics, partitions and pattern are mutually exclusive"
        out.append(c.Notify("error", "IllegalStateException", text))
        return
    state.automatic, state.pattern = True, event.pattern
    state.topics = frozenset(event.topics)
    if event.pattern is not None:
        state.topics = state.cluster.matching(event.pattern, full=True)
    if event.pattern is not None or not state.topics <= state.cluster.topics.keys():
        consumer_metadata.new_topics(state)
    state.snapshot = consumer_metadata.counts(state, state.topics | state.group_topics)


def unsubscribe(state: State, out: Out) -> None:
    state.buffer.clear()
    _leave_prepare(state, Then.unsubscribed, _unsubscribed, out)


def _leave_prepare(state: State, then: Then, go_on: Callable[[State, Out], None], out: Out) -> None:
    """onLeavePrepare (M97): lost without a generation and in the middle of a rebalance, else revoked."""
    owned = tuple(sorted(state.assigned))
    if state.automatic and owned:
        gone = state.generation == NO_GENERATION or state.rebalancing
        consumer_coordinator.tell(state, "lost" if gone else "revoked", owned, then, out)
    else:
        go_on(state, out)


def _unsubscribed(state: State, out: Out) -> None:
    if state.automatic:
        heartbeat_thread.leave(state, UNSUBSCRIBED, out)
    state.automatic, state.pattern, state.topics = False, None, frozenset()
    state.assigned, state.joined_topics, state.planned = {}, None, None
    state.leads, state.group_topics = False, frozenset()


def assign(state: State, event: c.AssignCalled, out: Out) -> None:
    if state.automatic:
        text = "Subscription to topics, partitions and pattern are mutually exclusive"
        out.append(c.Notify("error", "IllegalStateException", text))
        return
    state.assigned = {tp: state.assigned.get(tp) or Partition() for tp in event.partitions}
    state.settled = False
    for tp, offset in event.partitions.items():
        if offset is not None:
            offset_fetcher.seek(state.assigned[tp], offset)
    fetcher.drop_unassigned(state)
    if any(tp.topic not in state.cluster.topics for tp in state.assigned):
        consumer_metadata.new_topics(state)


def seek(state: State, event: c.SeekCalled, out: Out) -> None:
    one = state.assigned.get(event.partition)
    if one is None:
        text = f"No current assignment for partition {event.partition}"
        out.append(c.Notify("error", "IllegalStateException", text))
    else:
        offset_fetcher.seek(one, event.offset)
        state.settled = False


# -- close


def close(state: State, event: c.CloseCalled, out: Out) -> None:
    """ConsumerCoordinator.close, then AbstractCoordinator.close (M98)."""
    if state.block is POLLING:
        _return(state, out)
    state.closing, state.stay, state.close_until = True, event.stay, state.now + CLOSE_MS
    op = state.prepare_commit = None
    offset_commits.drain(state, out)
    offsets = offset_commits.consumed(state) if state.auto_commit and not state.commit_fenced else {}
    if offsets:
        op = state.committing = Committing(offsets, told=True)
        state.block = Block.close_commit
        offset_commits.try_send(state, op, out)
    else:
        _after_close_commit(state, out)


def _close_commit(state: State, out: Out) -> bool:
    op = state.committing
    assert op is not None
    over = state.now >= state.close_until
    if not over and (op.open or (op.again_at is not None and op.again_at > state.now)):
        return False
    if not over and op.again_at is not None:
        if state.coordinator is None:
            coordinator_lookup.look_up(state, out)
            return False
        offset_commits.try_send(state, op, out)
        return not op.open
    if not over and op.retriable:
        op.again_at = state.now + RETRY_BACKOFF_MS
        return False
    state.committing = None
    _after_close_commit(state, out)
    return True


def _after_close_commit(state: State, out: Out) -> None:
    state.block = NOTHING
    if state.stay:
        _end(state, out)
        return
    _leave_prepare(state, Then.closed, _leave_and_close, out)


def _leave_and_close(state: State, out: Out) -> None:
    sent = state.automatic and heartbeat_thread.leave(state, BEING_CLOSED, out)
    state.block = Block.close_leave
    if not sent:
        _end(state, out)


def _close_leave(state: State, out: Out) -> bool:
    if not _leaves(state) or state.now >= state.close_until:
        _end(state, out)
    return False


def _leaves(state: State) -> bool:
    return any(isinstance(entry.send.request, LeaveGroupRequest) for entry in state.open.values())


def _end(state: State, out: Out) -> None:
    if state.closed:
        return
    if state.rules.closes_sessions:
        fetcher.close_sessions(state, out)
    offset_commits.drain(state, out)
    state.closed, state.block, state.beats = True, NOTHING, False
    out.append(c.FinishClose())


def _still(state: State, out: Out) -> bool:
    return False


BLOCKS: dict[Block, Callable[[State, Out], bool]] = {
    NOTHING: _still,
    POLLING: _polling,
    Block.prepare_commit: consumer_coordinator.commit_turn,
    Block.callback: _still,
    Block.close_commit: _close_commit,
    Block.close_leave: _close_leave,
}
