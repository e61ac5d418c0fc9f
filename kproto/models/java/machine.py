"""The dispatch: an event, then the heartbeat thread has a look, then the application's goes on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from .. import contract as c
from ..handlers import EventHandlers
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
    HANDLERS.dispatch(state, event, now, out)
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


# -- responses


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


RESPONSES: Final[dict[str, Callable[[State, Open, Any, Out], None]]] = {
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


# -- events


class JavaHandlers(EventHandlers[State]):
    """The consumer's calls, and what arrives from the brokers."""

    UNSUPPORTED = ("UnsupportedOperationException", "KafkaConsumer has no {}")

    def on_started(self, state: State, event: c.Started, now: int, out: Out) -> None:
        state.bootstrap, state.offered = event.bootstrap, event.offered
        state.commit_at = state.now + state.auto_commit_ms

    def on_subscribe(self, state: State, event: c.SubscribeCalled, now: int, out: Out) -> None:
        kafka_consumer.subscribe(state, event, out)

    def on_unsubscribe(self, state: State, event: c.UnsubscribeCalled, now: int, out: Out) -> None:
        kafka_consumer.unsubscribe(state, out)

    def on_assign(self, state: State, event: c.AssignCalled, now: int, out: Out) -> None:
        kafka_consumer.assign(state, event, out)

    def on_seek(self, state: State, event: c.SeekCalled, now: int, out: Out) -> None:
        kafka_consumer.seek(state, event, out)

    def on_pause(self, state: State, event: c.PauseCalled, now: int, out: Out) -> None:
        for tp in event.partitions:
            if tp in state.assigned:
                state.assigned[tp].paused = True

    def on_resume(self, state: State, event: c.ResumeCalled, now: int, out: Out) -> None:
        for tp in event.partitions:
            if tp in state.assigned:
                state.assigned[tp].paused = False

    def on_poll(self, state: State, event: c.PollCalled, now: int, out: Out) -> None:
        kafka_consumer.poll(state, event, out)

    def on_callback_returned(self, state: State, event: c.CallbackReturned, now: int, out: Out) -> None:
        kafka_consumer.told(state, event.error, out)

    def on_commit(self, state: State, event: c.CommitCalled, now: int, out: Out) -> None:
        offset_commits.commit(state, event, out)

    def on_store(self, state: State, event: c.StoreCalled, now: int, out: Out) -> None:
        """Do nothing: Java has no offset store."""

    def on_rebalance(self, state: State, event: c.RebalanceCalled, now: int, out: Out) -> None:
        """Request a rejoin (enforceRebalance); the next poll performs it."""
        abstract_coordinator.want_rejoin(state, event.reason or "rebalance enforced by user")

    def on_close(self, state: State, event: c.CloseCalled, now: int, out: Out) -> None:
        kafka_consumer.close(state, event, out)

    def on_wakeup(self, state: State, event: c.WakeupCalled, now: int, out: Out) -> None:
        kafka_consumer.wakeup(state, event, out)

    def on_response(self, state: State, event: c.ResponseReceived, now: int, out: Out) -> None:
        entry = state.open.pop(id(event.request), None)
        if entry is not None:
            RESPONSES[type(event.request).__name__](state, entry, event.response, out)

    def on_request_failed(self, state: State, event: c.RequestFailed, now: int, out: Out) -> None:
        entry = state.open.pop(id(event.request), None)
        if entry is not None:
            RESPONSES[type(event.request).__name__](state, entry, None, out)

    def on_connection_lost(self, state: State, event: c.ConnectionLost, now: int, out: Out) -> None:
        """Mark the coordinator unknown if its connection is gone (checkAndGetCoordinator, M29)."""
        if event.address == state.coordinator:
            coordinator_lookup.unknown(state, out, disconnected=True)


HANDLERS: Final = JavaHandlers()
