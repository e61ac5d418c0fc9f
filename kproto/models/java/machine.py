"""The state machine of a KafkaConsumer, with the handlers of events and responses.

`step` applies an event, then runs the heartbeat thread and the application's thread.
"""

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
from .state import FETCHING, FOREVER, NOTHING, POLLING, InFlightRequest, JavaState, Out


def step(state: JavaState, event: c.ModelEvent, now: int) -> list[c.ModelAction]:
    """Apply `event` at `now` (milliseconds) and return the actions to perform, in order."""
    out: Out = []
    state.now = now
    if state.closed:
        return [c.FinishPoll((), kafka_consumer.CLOSED)] if isinstance(event, c.PollCalled) else out
    HANDLERS.dispatch(state, event, now, out)
    if state.closed:
        return out
    action_count = len(out)
    _run_threads(state, out)
    # The application's thread runs last. If the first run has produced actions, this thread may have given
    # new work to the heartbeat thread and the metadata update.
    if len(out) != action_count and state.thread.state is not NOTHING:
        _run_threads(state, out)
    return out


def _run_threads(state: JavaState, out: Out) -> None:
    """Run the heartbeat thread and the application's thread until both have to wait."""
    heartbeat_thread.run(state, out)
    if state.thread.state is not NOTHING or state.heartbeat_enabled:
        consumer_metadata.maybe_update(state, out)
    if state.commits:
        offset_commits.continue_commits(state, out)
    kafka_consumer.run_application_thread(state, out)


def next_deadline(state: JavaState) -> int | None:
    """Return the time in milliseconds of the next `DeadlineReached`, or None if no timer runs."""
    if state.closed or not state.bootstrap:
        return None
    now, blocked_on = state.now, state.thread.state
    deadlines = [heartbeat_thread.deadline(state)]
    if blocked_on is not NOTHING or state.heartbeat_enabled:
        deadlines.append(consumer_metadata.deadline(state))
    if blocked_on is POLLING:
        deadlines.append(state.poll_deadline)
        if state.rejoin_needed:
            deadlines += (state.join_retry_at, state.prepare_deadline)
        if state.coordinator is None:
            deadlines.append(state.find_retry_at)
        if state.auto_commit:
            deadlines.append(state.auto_commit_at)
        if not state.positions_settled:
            deadlines += [
                partition.retry_at for partition in state.assigned.values() if partition.state is not FETCHING
            ]
    if state.closing:
        deadlines += (state.close_until, state.find_retry_at)
    if state.commits or state.prepare_commit is not None or state.close_commit is not None:
        for commit in (*state.commits, state.prepare_commit, state.close_commit):
            if commit is not None:
                deadlines += (commit.retry_at, state.find_retry_at, commit.deadline)
        if state.prepare_commit is not None:
            deadlines.append(state.prepare_deadline)
    soonest = FOREVER
    for deadline in deadlines:
        if deadline is not None and now < deadline < soonest:
            soonest = deadline
    return soonest if soonest < FOREVER else None


# -- responses


def _on_metadata_response(state: JavaState, entry: InFlightRequest, response: Any, out: Out) -> None:
    if response is None:
        consumer_metadata.on_metadata_failure(state)
        return
    consumer_metadata.on_metadata_response(state, response, entry.context, out)
    if state.awaiting_metadata and state.thread.state is not NOTHING:
        abstract_coordinator.perform_assignment(state, out)


def _on_find_coordinator_response(state: JavaState, entry: InFlightRequest, response: Any, out: Out) -> None:
    coordinator_lookup.on_find_coordinator_response(state, response, out)


def _on_leave_group_response(state: JavaState, entry: InFlightRequest, response: Any, out: Out) -> None:
    """Do nothing: Java only logs the response of LeaveGroup."""


RESPONSES: Final[dict[str, Callable[[JavaState, InFlightRequest, Any, Out], None]]] = {
    "MetadataRequest": _on_metadata_response,
    "FindCoordinatorRequest": _on_find_coordinator_response,
    "JoinGroupRequest": abstract_coordinator.on_join_group_response,
    "SyncGroupRequest": abstract_coordinator.on_sync_group_response,
    "HeartbeatRequest": heartbeat_thread.on_heartbeat_response,
    "LeaveGroupRequest": _on_leave_group_response,
    "OffsetCommitRequest": offset_commits.on_offset_commit_response,
    "OffsetFetchRequest": offset_fetcher.on_offset_fetch_response,
    "ListOffsetsRequest": offset_fetcher.on_list_offsets_response,
    "OffsetForLeaderEpochRequest": offset_fetcher.on_offset_for_epoch_response,
    "FetchRequest": fetcher.on_fetch_response,
}


# -- events


class JavaHandlers(EventHandlers[JavaState]):
    """Handle the application's calls and the brokers' responses."""

    UNSUPPORTED = ("UnsupportedOperationException", "KafkaConsumer has no {}")

    def on_started(self, state: JavaState, event: c.Started, now: int, out: Out) -> None:
        state.bootstrap, state.offered = event.bootstrap, event.offered
        state.auto_commit_at = state.now + state.auto_commit_ms

    def on_subscribe(self, state: JavaState, event: c.SubscribeCalled, now: int, out: Out) -> None:
        kafka_consumer.subscribe(state, event, out)

    def on_unsubscribe(self, state: JavaState, event: c.UnsubscribeCalled, now: int, out: Out) -> None:
        kafka_consumer.unsubscribe(state, out)

    def on_assign(self, state: JavaState, event: c.AssignCalled, now: int, out: Out) -> None:
        kafka_consumer.assign(state, event, out)

    def on_seek(self, state: JavaState, event: c.SeekCalled, now: int, out: Out) -> None:
        kafka_consumer.seek(state, event, out)

    def on_pause(self, state: JavaState, event: c.PauseCalled, now: int, out: Out) -> None:
        for tp in event.partitions:
            if tp in state.assigned:
                state.assigned[tp].paused = True

    def on_resume(self, state: JavaState, event: c.ResumeCalled, now: int, out: Out) -> None:
        for tp in event.partitions:
            if tp in state.assigned:
                state.assigned[tp].paused = False

    def on_poll(self, state: JavaState, event: c.PollCalled, now: int, out: Out) -> None:
        kafka_consumer.poll(state, event, out)

    def on_callback_returned(self, state: JavaState, event: c.CallbackReturned, now: int, out: Out) -> None:
        kafka_consumer.on_callback_returned(state, event.error, out)

    def on_commit(self, state: JavaState, event: c.CommitCalled, now: int, out: Out) -> None:
        offset_commits.commit(state, event, out)

    def on_store(self, state: JavaState, event: c.StoreCalled, now: int, out: Out) -> None:
        """Do nothing: Java has no offset store."""

    def on_rebalance(self, state: JavaState, event: c.RebalanceCalled, now: int, out: Out) -> None:
        """Request a rejoin, which the next poll performs (enforceRebalance)."""
        abstract_coordinator.request_rejoin(state, event.reason or "rebalance enforced by user")

    def on_close(self, state: JavaState, event: c.CloseCalled, now: int, out: Out) -> None:
        kafka_consumer.close(state, event, out)

    def on_wakeup(self, state: JavaState, event: c.WakeupCalled, now: int, out: Out) -> None:
        kafka_consumer.wakeup(state, event, out)

    def on_response(self, state: JavaState, event: c.ResponseReceived, now: int, out: Out) -> None:
        entry = state.open.pop(id(event.request), None)
        if entry is not None:
            RESPONSES[type(event.request).__name__](state, entry, event.response, out)

    def on_request_failed(self, state: JavaState, event: c.RequestFailed, now: int, out: Out) -> None:
        entry = state.open.pop(id(event.request), None)
        if entry is not None:
            RESPONSES[type(event.request).__name__](state, entry, None, out)

    def on_connection_lost(self, state: JavaState, event: c.ConnectionLost, now: int, out: Out) -> None:
        """Mark the coordinator unknown if its connection was lost (checkAndGetCoordinator, M29)."""
        if event.address == state.coordinator:
            coordinator_lookup.mark_coordinator_unknown(state, out, disconnected=True)


HANDLERS: Final = JavaHandlers()
