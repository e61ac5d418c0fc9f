"""The state machine of librdkafka: it applies an event, then runs the main thread (rd_kafka_cgrp_serve).

`LibrdkafkaHandlers` handles the events, and `RESPONSES` has the handlers of brokers' responses.

As in librdkafka, the main thread sends heartbeats and JoinGroups only when it is awake, so their times are
irregular. Every event except polls and Fetch responses wakes the main thread.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from ...messages.fetch import FetchRequest
from .. import contract as c
from ..common import metadata_request
from ..handlers import EventHandlers
from . import (
    assignment,
    cgrp_coordinator,
    cgrp_join,
    cgrp_session,
    fetcher,
    metadata,
    offset_store,
    rdkafka,
    toppar,
)
from .cgrp_rebalance import assignment_done, revoke_all_rejoin_maybe
from .constants import INVALID_ARG
from .request import COORDINATOR, TRANSPORT, any_usable_broker, resend_due_requests, send_request
from .state import UP, CgrpJoinState, CgrpState, InternalOp, LibrdkafkaState, Out, RequestBuf

J = CgrpJoinState
# The longest sleep of the main thread (rd_kafka_thread_main).
LOOP_MS = 1_000


def step(state: LibrdkafkaState, event: c.ModelEvent, now: int) -> list[c.ModelAction]:
    """Apply `event` at `now` (milliseconds) and return the actions to perform, in order."""
    out: Out = []
    state.now = now
    if state.closed:
        return out
    awake = _wakes_main_thread(state, event)
    HANDLERS.dispatch(state, event, now, out)
    _run_internal_ops(state, out)
    # In the model, the application's thread takes entries from the queue before the main thread's timers add
    # to it.
    rdkafka.serve_queue(state, out)
    if awake:
        _run_timers(state, out)
        _cgrp_serve(state, out)
        rdkafka.serve_queue(state, out)
    _run_internal_ops(state, out)
    if state.terminating:
        rdkafka.try_terminate(state, out)
    if awake:
        state.last_wakeup = state.now
    if not state.closed:
        fetcher.fetch_toppars(state, out)
    state.next_wakeup = _main_thread_deadline(state)
    return out


def _wakes_main_thread(state: LibrdkafkaState, event: c.ModelEvent) -> bool:
    """Return whether the event wakes the main thread.

    Polls, the timeouts of polls, and Fetch responses do not wake the thread.
    """
    if isinstance(event, c.DeadlineReached):
        return state.next_wakeup is not None and state.next_wakeup <= state.now
    if isinstance(event, (c.ResponseReceived, c.RequestFailed)):
        return not isinstance(event.request, FetchRequest)
    return not isinstance(event, c.PollCalled)


def _run_internal_ops(state: LibrdkafkaState, out: Out) -> None:
    """Run the internal operations that were queued in this step, and fail the commits that cannot be sent."""
    while state.internal_ops or state.refused:
        while state.internal_ops:
            INTERNAL_OPS[state.internal_ops.popleft()](state, out)
        offset_store.fail_unsent(state, out)


def next_deadline(state: LibrdkafkaState) -> int | None:
    """Return the time in milliseconds of the next `DeadlineReached`, or None if no timer runs."""
    if state.closed or not state.bootstrap:
        return None
    wakeup, poll = state.next_wakeup, state.open_poll
    # A poll does not time out while the application's rebalance callback runs.
    if poll is None or state.rebalance_in_callback is not None:
        return wakeup
    return poll.deadline if wakeup is None else min(wakeup, poll.deadline)


def _main_thread_deadline(state: LibrdkafkaState) -> int | None:
    """Return the time at which the main thread wakes next, or None if no timer runs.

    Deadlines up to the last wakeup are ignored, because that wakeup has already handled them.
    """
    deadlines: list[int | None] = [state.commit_at, state.metadata_at, state.max_poll_at, state.loop_at]
    if state.coord.state is not UP:
        if state.coord.state is CgrpState.WAIT_BROKER_TRANSPORT:
            deadlines.append(state.coord.up_at)
        elif state.coord.state is CgrpState.QUERY_COORD and state.coord.query_interval.last is not None:
            deadlines.append(state.coord.query_interval.last + cgrp_coordinator.QUERY_INTERVAL_MS + 1)
    if state.retries:
        deadlines += [deadline for deadline, _ in state.retries]
    for toppar_state in state.waiting_toppars.values():
        deadlines += [toppar_state.query_at, toppar_state.retry_at]
    last_wakeup, earliest = state.last_wakeup, None
    for deadline in deadlines:
        if deadline is None or deadline <= last_wakeup:
            continue
        if earliest is None or deadline < earliest:
            earliest = deadline
    return earliest


# -- the main thread


def _run_timers(state: LibrdkafkaState, out: Out) -> None:
    """Run the timers that are due (rd_kafka_timers_run)."""
    if state.retries:
        resend_due_requests(state, out)
    if state.waiting_toppars:
        toppar.run_offset_timers(state, out)
    if state.max_poll_at is not None and state.max_poll_at <= state.now:
        cgrp_session.check_max_poll_interval(state, out)
    if state.commit_at is not None and state.commit_at <= state.now:
        state.commit_at = state.now + state.auto_commit_ms
        offset_store.commit_on_timer(state, out)
    if state.metadata_at is not None and state.metadata_at <= state.now:
        metadata.refresh(state, out)
    if state.loop_at <= state.now:
        state.loop_at = state.now + LOOP_MS


def _cgrp_serve(state: LibrdkafkaState, out: Out) -> None:
    """Serve the group and its join state; if either changes, serve both again (rd_kafka_cgrp_serve)."""
    rdkafka.try_terminate(state, out)
    if state.closed or not state.bootstrap:
        return
    cgrp_session.check_session_timeout(state, out)
    for _ in range(2):
        states_before = (state.state, state.coord.state)
        if cgrp_coordinator.serve(state, out):
            if state.deferred:
                offset_store.send_deferred(state, out)
            SERVE[state.state](state, out)
        elif state.deferred:
            offset_store.send_deferred(state, out)
        while state.internal_ops:
            INTERNAL_OPS[state.internal_ops.popleft()](state, out)
        if states_before == (state.state, state.coord.state):
            break


def _serve_init(state: LibrdkafkaState, out: Out) -> None:
    """Apply a changed subscription, and join if the minimum interval between joins has passed."""
    is_disabled = state.fatal is not None and state.is_static
    if state.join_or_sync_in_flight is not None or is_disabled:
        return
    rdkafka.apply_next_subscription(state, out)
    if state.state is not J.INIT or state.subscription is None or state.terminating:
        return
    if state.join_interval.restart_if_due(cgrp_join.JOIN_INTERVAL_MS, state.now):
        cgrp_join.join(state, out)


def _serve_member(state: LibrdkafkaState, out: Out) -> None:
    """Send a heartbeat if one is due. A static member sends none after a fatal error."""
    if not (state.fatal is not None and state.is_static):
        cgrp_join.send_heartbeat(state, out)


def _do_nothing(state: LibrdkafkaState, out: Out) -> None:
    """Do nothing: the group waits for a response, or for its partitions to be unassigned."""


# The handlers of rd_kafka_cgrp_join_state_serve.
SERVE: dict[CgrpJoinState, Callable[[LibrdkafkaState, Out], None]] = {
    J.INIT: _serve_init,
    J.WAIT_JOIN: _do_nothing,
    J.WAIT_METADATA: _do_nothing,
    J.WAIT_SYNC: _do_nothing,
    J.WAIT_ASSIGN_CALL: _serve_member,
    J.WAIT_UNASSIGN_CALL: _serve_member,
    J.WAIT_UNASSIGN_TO_COMPLETE: _do_nothing,
    J.WAIT_INCR_UNASSIGN_TO_COMPLETE: _do_nothing,
    J.STEADY: _serve_member,
}

INTERNAL_OPS: dict[InternalOp, Callable[[LibrdkafkaState, Out], None]] = {
    InternalOp.SERVE_ASSIGNMENT: assignment.serve,
    InternalOp.ASSIGNMENT_DONE: assignment_done,
    InternalOp.QUERY_COORDINATOR: cgrp_coordinator.coord_query,
    InternalOp.COORDINATOR_DEAD: cgrp_coordinator.coord_dead,
    InternalOp.REVOKE_AS_LOST: lambda state, out: revoke_all_rejoin_maybe(state, lost=True, out=out),
}


# -- responses


def _on_metadata_response(state: LibrdkafkaState, entry: RequestBuf, response: Any, out: Out) -> None:
    if response is None:
        metadata.on_metadata_failure(state, entry)
        return
    metadata.on_metadata_response(state, entry, response, out)
    if entry.context == metadata.FOR_PLAN:
        cgrp_join.assignor_run(state, out)


def _on_find_coordinator_response(state: LibrdkafkaState, entry: RequestBuf, response: Any, out: Out) -> None:
    if response is None:
        cgrp_coordinator.on_find_coordinator_error(state, TRANSPORT, None, out)
    else:
        cgrp_coordinator.on_find_coordinator_response(state, entry, response, out)


def _on_offset_fetch_response(state: LibrdkafkaState, entry: RequestBuf, response: Any, out: Out) -> None:
    assignment.on_offset_fetch_response(state, entry, response, TRANSPORT if response is None else 0, out)


def _on_leave_group_response(state: LibrdkafkaState, entry: RequestBuf, response: Any, out: Out) -> None:
    state.wait_leave = False


RESPONSES: Final[dict[str, Callable[[LibrdkafkaState, RequestBuf, Any, Out], None]]] = {
    "MetadataRequest": _on_metadata_response,
    "FindCoordinatorRequest": _on_find_coordinator_response,
    "JoinGroupRequest": cgrp_join.on_join_group_response,
    "SyncGroupRequest": cgrp_join.on_sync_group_response,
    "HeartbeatRequest": cgrp_session.on_heartbeat_response,
    "LeaveGroupRequest": _on_leave_group_response,
    "OffsetCommitRequest": offset_store.on_offset_commit_response,
    "OffsetFetchRequest": _on_offset_fetch_response,
    "ListOffsetsRequest": toppar.on_list_offsets_response,
    "OffsetForLeaderEpochRequest": toppar.on_offset_for_leader_epoch_response,
    "FetchRequest": fetcher.on_fetch_response,
}


# -- events


class LibrdkafkaHandlers(EventHandlers[LibrdkafkaState]):
    """Handle the application's calls and the brokers' responses."""

    UNSUPPORTED = ("AttributeError", "librdkafka has no {}")

    def on_started(self, state: LibrdkafkaState, event: c.Started, now: int, out: Out) -> None:
        state.bootstrap, state.offered = event.bootstrap, event.offered
        state.last_poll = state.loop_at = state.now
        if state.auto_commit and state.auto_commit_ms > 0:
            state.commit_at = state.now + state.auto_commit_ms
        state.metadata_at = state.now + state.metadata_ms
        send_request(state, any_usable_broker(state), metadata_request(()), out, metadata.FOR_BROKERS)

    def on_subscribe(self, state: LibrdkafkaState, event: c.SubscribeCalled, now: int, out: Out) -> None:
        pattern = event.pattern
        if pattern is not None and not pattern.startswith("^"):
            pattern = f"^{pattern}"
        topics = event.topics if pattern is None else (*event.topics, pattern)
        has_empty_name, has_duplicates = not all(topics), len(set(topics)) < len(topics)
        if has_empty_name or has_duplicates:
            out.append(c.Notify("error", *INVALID_ARG))
            return
        state.last_poll = state.now
        rdkafka.subscribe(state, topics or None, out)

    def on_unsubscribe(self, state: LibrdkafkaState, event: c.UnsubscribeCalled, now: int, out: Out) -> None:
        rdkafka.subscribe(state, None, out)

    def on_assign(self, state: LibrdkafkaState, event: c.AssignCalled, now: int, out: Out) -> None:
        rdkafka.assign(state, event, out)

    def on_seek(self, state: LibrdkafkaState, event: c.SeekCalled, now: int, out: Out) -> None:
        rdkafka.seek(state, event, out)

    def on_pause(self, state: LibrdkafkaState, event: c.PauseCalled, now: int, out: Out) -> None:
        rdkafka.pause(state, event.partitions, paused=True)

    def on_resume(self, state: LibrdkafkaState, event: c.ResumeCalled, now: int, out: Out) -> None:
        rdkafka.pause(state, event.partitions, paused=False)

    def on_poll(self, state: LibrdkafkaState, event: c.PollCalled, now: int, out: Out) -> None:
        rdkafka.poll(state, event, out)

    def on_callback_returned(
        self, state: LibrdkafkaState, event: c.CallbackReturned, now: int, out: Out
    ) -> None:
        rdkafka.on_callback_returned(state, out)

    def on_commit(self, state: LibrdkafkaState, event: c.CommitCalled, now: int, out: Out) -> None:
        offset_store.commit(state, event.token, event.offsets, event.wait, out)

    def on_store(self, state: LibrdkafkaState, event: c.StoreCalled, now: int, out: Out) -> None:
        error = offset_store.store(state, event.offsets)
        if error is not None:
            out.append(c.Notify("error", *error))

    def on_rebalance(self, state: LibrdkafkaState, event: c.RebalanceCalled, now: int, out: Out) -> None:
        out.append(c.Notify("error", "AttributeError", "librdkafka has no call that starts a rebalance"))

    def on_close(self, state: LibrdkafkaState, event: c.CloseCalled, now: int, out: Out) -> None:
        rdkafka.close(state, out)

    def on_response(self, state: LibrdkafkaState, event: c.ResponseReceived, now: int, out: Out) -> None:
        entry = state.open.pop(id(event.request), None)
        if entry is not None:
            RESPONSES[type(event.request).__name__](state, entry, event.response, out)

    def on_request_failed(self, state: LibrdkafkaState, event: c.RequestFailed, now: int, out: Out) -> None:
        entry = state.open.pop(id(event.request), None)
        if entry is None:
            return
        if entry.send.to.lane == COORDINATOR:
            cgrp_coordinator.on_coordinator_disconnect(state)
        RESPONSES[type(event.request).__name__](state, entry, None, out)

    def on_connection_lost(self, state: LibrdkafkaState, event: c.ConnectionLost, now: int, out: Out) -> None:
        if event.address.lane == COORDINATOR:
            cgrp_coordinator.on_coordinator_disconnect(state)


HANDLERS: Final = LibrdkafkaHandlers()
