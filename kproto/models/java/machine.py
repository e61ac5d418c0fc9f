"""The dispatch: an event, then the heartbeat thread has a look, then the application's goes on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import contract as c
from . import (
    abstract_coordinator,
    consumer_metadata,
    coordinator_lookup,
    fetcher,
    heartbeat_thread,
    kafka_consumer,
    offset_commits,
    offset_fetcher,
)
from .state import FETCHING, FOREVER, NOTHING, POLLING, Open, Out, State


def step(state: State, event: c.ModelEvent, now: int) -> list[c.ModelAction]:
    """Let `event` happen at `now` (milliseconds) and return what to do, in order."""
    out: Out = []
    state.now = now
    if state.closed:
        return [c.FinishPoll((), kafka_consumer.CLOSED)] if isinstance(event, c.PollCalled) else out
    TABLE[type(event)](state, event, out)
    if state.closed:
        return out
    said = len(out)
    _turn(state, out)
    if len(out) != said and state.block is not NOTHING:
        _turn(state, out)
    return out


def _turn(state: State, out: Out) -> None:
    """Both threads go on as far as they can."""
    heartbeat_thread.serve(state, out)
    if state.block is not NOTHING or state.beats:
        consumer_metadata.serve(state, out)
    if state.commits:
        offset_commits.serve_commits(state, out)
    kafka_consumer.run(state, out)


def next_deadline(state: State) -> int | None:
    """When to send the next `Tick`, in the same milliseconds as `now`; None: not before something happens."""
    if state.closed or not state.bootstrap:
        return None
    now, block = state.now, state.block
    found = [heartbeat_thread.due(state)]
    if block is not NOTHING or state.beats:
        found.append(consumer_metadata.due(state))
    if block is POLLING:
        found.append(state.poll_until)
        if state.rejoin_needed:
            found += (state.join_again_at, state.prepare_until)
        if state.coordinator is None:
            found.append(state.find_again_at)
        if state.auto_commit:
            found.append(state.commit_at)
        if not state.settled:
            found += [one.retry_at for one in state.assigned.values() if one.where is not FETCHING]
    if state.closing:
        found += (state.close_until, state.find_again_at)
    if state.commits or state.prepare_commit is not None or state.committing is not None:
        for op in (*state.commits, state.prepare_commit, state.committing):
            if op is not None:
                found += (op.again_at, state.find_again_at, op.until)
    soonest = FOREVER
    for at in found:
        if at is not None and now < at < soonest:
            soonest = at
    return soonest if soonest < FOREVER else None


# -- events


def _started(state: State, event: c.Started, out: Out) -> None:
    state.bootstrap, state.offered = event.bootstrap, event.offered
    state.commit_at = state.now + state.auto_commit_ms


def _unsubscribe(state: State, event: c.UnsubscribeCalled, out: Out) -> None:
    kafka_consumer.unsubscribe(state, out)


def _told(state: State, event: c.CallbackReturned, out: Out) -> None:
    kafka_consumer.told(state, event.error, out)


def _pause(state: State, event: c.PauseCalled, out: Out) -> None:
    for tp in event.partitions:
        if tp in state.assigned:
            state.assigned[tp].paused = True


def _resume(state: State, event: c.ResumeCalled, out: Out) -> None:
    for tp in event.partitions:
        if tp in state.assigned:
            state.assigned[tp].paused = False


def _rebalance(state: State, event: c.RebalanceCalled, out: Out) -> None:
    """enforceRebalance: only a wish; the next poll joins."""
    abstract_coordinator.want_rejoin(state, event.reason or "rebalance enforced by user")


def _store(state: State, event: c.StoreCalled, out: Out) -> None:
    """Java has no offset store."""


def _tick(state: State, event: c.DeadlineReached, out: Out) -> None:
    """What is due is looked at after every event."""


def _answered(state: State, event: c.ResponseReceived, out: Out) -> None:
    entry = state.open.pop(id(event.request), None)
    if entry is not None:
        ANSWERS[type(event.request).__name__](state, entry, event.response, out)


def _failed(state: State, event: c.RequestFailed, out: Out) -> None:
    entry = state.open.pop(id(event.request), None)
    if entry is not None:
        ANSWERS[type(event.request).__name__](state, entry, None, out)


def _disconnected(state: State, event: c.ConnectionLost, out: Out) -> None:
    """checkAndGetCoordinator: a connection that isn't there makes the coordinator unknown (M29)."""
    if event.address == state.coordinator:
        coordinator_lookup.unknown(state, out, disconnected=True)


def _metadata(state: State, entry: Open, answer: Any, out: Out) -> None:
    if answer is None:
        consumer_metadata.failed(state)
        return
    consumer_metadata.answered(state, answer, entry.about, out)
    if state.planning and state.block is not NOTHING:
        abstract_coordinator.plan(state, out)


def _find(state: State, entry: Open, answer: Any, out: Out) -> None:
    coordinator_lookup.answered(state, answer, out)


def _leave(state: State, entry: Open, answer: Any, out: Out) -> None:
    """Its answer is only logged."""


ANSWERS: dict[str, Callable[[State, Open, Any, Out], None]] = {
    "MetadataRequest": _metadata,
    "FindCoordinatorRequest": _find,
    "JoinGroupRequest": abstract_coordinator.join_answered,
    "SyncGroupRequest": abstract_coordinator.sync_answered,
    "HeartbeatRequest": heartbeat_thread.answered,
    "LeaveGroupRequest": _leave,
    "OffsetCommitRequest": offset_commits.answered,
    "OffsetFetchRequest": offset_fetcher.committed,
    "ListOffsetsRequest": offset_fetcher.listed,
    "OffsetForLeaderEpochRequest": offset_fetcher.validated,
    "FetchRequest": fetcher.answered,
}

TABLE: dict[type[Any], Callable[[State, Any, Out], None]] = {
    c.Started: _started,
    c.SubscribeCalled: kafka_consumer.subscribe,
    c.UnsubscribeCalled: _unsubscribe,
    c.AssignCalled: kafka_consumer.assign,
    c.SeekCalled: kafka_consumer.seek,
    c.PauseCalled: _pause,
    c.ResumeCalled: _resume,
    c.PollCalled: kafka_consumer.poll,
    c.CallbackReturned: _told,
    c.CommitCalled: offset_commits.commit,
    c.StoreCalled: _store,
    c.RebalanceCalled: _rebalance,
    c.CloseCalled: kafka_consumer.close,
    c.WakeupCalled: kafka_consumer.wakeup,
    c.ResponseReceived: _answered,
    c.RequestFailed: _failed,
    c.ConnectionLost: _disconnected,
    c.DeadlineReached: _tick,
}
