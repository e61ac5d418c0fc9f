"""The machine: applies an event, then runs the main thread (rd_kafka_cgrp_serve).

`LibrdkafkaHandlers` handles the events, `RESPONSES` the responses of brokers. As in librdkafka, every event
except polls and Fetch responses wakes the main thread. It sends heartbeats and joins only while it is awake,
which explains their irregular times.
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
from .request import COORDINATOR, TRANSPORT, retry_due, send, some_broker
from .state import UP, CoordState, JoinState, Open, Out, State, Todo

J = JoinState
LOOP_MS = 1_000


def step(state: State, event: c.ModelEvent, now: int) -> list[c.ModelAction]:
    """Let `event` happen at `now` (milliseconds) and return what to do, in order."""
    out: Out = []
    state.now = now
    if state.closed:
        return out
    awake = _wakes(state, event)
    HANDLERS.dispatch(state, event, now, out)
    _do(state, out)
    rdkafka.serve_queue(state, out)  # the application's thread is the quicker one
    if awake:
        _timers(state, out)
        _serve(state, out)
        rdkafka.serve_queue(state, out)
    _do(state, out)
    if state.terminating:
        rdkafka.try_terminate(state, out)
    if awake:
        state.handled = state.now
    if not state.closed:
        fetcher.serve(state, out)
    state.due = _main_deadline(state)
    return out


def _wakes(state: State, event: c.ModelEvent) -> bool:
    """Whether the main thread hears of it: not of polls and their ends, nor of what brokers' threads get."""
    if isinstance(event, c.DeadlineReached):
        return state.due is not None and state.due <= state.now
    if isinstance(event, (c.ResponseReceived, c.RequestFailed)):
        return not isinstance(event.request, FetchRequest)
    return not isinstance(event, c.PollCalled)


def _do(state: State, out: Out) -> None:
    """What one part has left for another."""
    while state.todo or state.refused:
        while state.todo:
            DO[state.todo.popleft()](state, out)
        offset_store.serve_refused(state, out)


def next_deadline(state: State) -> int | None:
    """When to send the next `Tick`, in the same milliseconds as `now`; None: not before something happens."""
    if state.closed or not state.bootstrap:
        return None
    due, polling = state.due, state.polling
    if polling is not None and state.telling is None and (due is None or polling.until < due):
        return polling.until
    return due


def _main_deadline(state: State) -> int | None:
    """When the main thread wakes next."""
    found: list[int | None] = [state.commit_at, state.metadata_at, state.max_poll_at, state.loop_at]
    if state.coord is not UP:
        if state.coord is CoordState.transport:
            found.append(state.coord_up_at)
        elif state.coord is CoordState.query and state.find_interval.last is not None:
            found.append(state.find_interval.last + cgrp_coordinator.QUERY_MS + 1)
    if state.retries:
        found += [at for at, _ in state.retries]
    for one in state.waiting.values():
        found += [one.query_at, one.retry_at]
    handled, soonest = state.handled, None
    for at in found:
        if at is not None and at > handled and (soonest is None or at < soonest):
            soonest = at
    return soonest


# -- the main thread


def _timers(state: State, out: Out) -> None:
    """rd_kafka_timers_run."""
    if state.retries:
        retry_due(state, out)
    if state.waiting:
        toppar.query_due(state, out)
    if state.max_poll_at is not None and state.max_poll_at <= state.now:
        cgrp_session.max_poll_check(state, out)
    if state.commit_at is not None and state.commit_at <= state.now:
        state.commit_at = state.now + state.auto_commit_ms
        offset_store.commit_timer(state, out)
    if state.metadata_at is not None and state.metadata_at <= state.now:
        metadata.refresh_due(state, out)
    if state.loop_at <= state.now:
        state.loop_at = state.now + LOOP_MS


def _serve(state: State, out: Out) -> None:
    """rd_kafka_cgrp_serve, join_state_serve; twice where the first look opened a door."""
    rdkafka.try_terminate(state, out)
    if state.closed or not state.bootstrap:
        return
    cgrp_session.session_check(state, out)
    for _ in range(2):
        before = (state.join, state.coord)
        if cgrp_coordinator.serve(state, out):
            if state.deferred:
                offset_store.deferred_due(state, out)
            SERVE[state.join](state, out)
        elif state.deferred:
            offset_store.deferred_due(state, out)
        while state.todo:
            DO[state.todo.popleft()](state, out)
        if before == (state.join, state.coord):
            break


def _serve_init(state: State, out: Out) -> None:
    if state.waits_for is not None or (state.fatal is not None and state.static):
        return
    rdkafka.apply_next(state, out)
    if state.join is not J.init or state.subscription is None or state.terminating:
        return
    if state.join_interval.due(cgrp_join.JOIN_INTERVAL_MS, state.now):
        cgrp_join.join(state, out)


def _serve_member(state: State, out: Out) -> None:
    if not (state.fatal is not None and state.static):
        cgrp_join.beat(state, out)


def _nothing(state: State, out: Out) -> None:
    """This state waits for an answer."""


SERVE: dict[JoinState, Callable[[State, Out], None]] = {
    J.init: _serve_init,
    J.wait_join: _nothing,
    J.wait_metadata: _nothing,
    J.wait_sync: _nothing,
    J.wait_assign_call: _serve_member,
    J.wait_unassign_call: _serve_member,
    J.wait_unassign_to_complete: _nothing,
    J.wait_incr_unassign_to_complete: _nothing,
    J.steady: _serve_member,
}
"""rd_kafka_cgrp_join_state_serve."""

DO: dict[Todo, Callable[[State, Out], None]] = {
    Todo.serve_assignment: assignment.serve,
    Todo.assignment_done: assignment_done,
    Todo.query_coordinator: cgrp_coordinator.query,
    Todo.coordinator_dead: cgrp_coordinator.dead,
    Todo.lose: lambda state, out: revoke_all_rejoin_maybe(state, True, out),
}


# -- responses


def _metadata(state: State, entry: Open, answer: Any, out: Out) -> None:
    if answer is None:
        metadata.failed(state, entry)
        return
    metadata.answered(state, entry, answer, out)
    if entry.about == metadata.FOR_PLAN:
        cgrp_join.plan(state, out)


def _find(state: State, entry: Open, answer: Any, out: Out) -> None:
    if answer is None:
        cgrp_coordinator.refused(state, TRANSPORT, None, out)
    else:
        cgrp_coordinator.found(state, entry, answer, out)


def _committed(state: State, entry: Open, answer: Any, out: Out) -> None:
    assignment.fetched(state, entry, answer, TRANSPORT if answer is None else 0, out)


def _left(state: State, entry: Open, answer: Any, out: Out) -> None:
    state.wait_leave = False


RESPONSES: Final[dict[str, Callable[[State, Open, Any, Out], None]]] = {
    "MetadataRequest": _metadata,
    "FindCoordinatorRequest": _find,
    "JoinGroupRequest": cgrp_join.join_answered,
    "SyncGroupRequest": cgrp_join.sync_answered,
    "HeartbeatRequest": cgrp_session.heartbeat_answered,
    "LeaveGroupRequest": _left,
    "OffsetCommitRequest": offset_store.answered,
    "OffsetFetchRequest": _committed,
    "ListOffsetsRequest": toppar.listed,
    "OffsetForLeaderEpochRequest": toppar.validated,
    "FetchRequest": fetcher.answered,
}


# -- events


class LibrdkafkaHandlers(EventHandlers[State]):
    """The application's calls, and what arrives from the brokers."""

    UNSUPPORTED = ("AttributeError", "librdkafka has no {}")

    def on_started(self, state: State, event: c.Started, now: int, out: Out) -> None:
        state.bootstrap, state.offered = event.bootstrap, event.offered
        state.last_poll = state.loop_at = state.now
        if state.auto_commit and state.auto_commit_ms > 0:
            state.commit_at = state.now + state.auto_commit_ms
        state.metadata_at = state.now + state.metadata_ms
        send(state, some_broker(state), metadata_request(()), out, metadata.FOR_BROKERS)

    def on_subscribe(self, state: State, event: c.SubscribeCalled, now: int, out: Out) -> None:
        pattern = event.pattern
        if pattern is not None and not pattern.startswith("^"):
            pattern = f"^{pattern}"
        topics = event.topics if pattern is None else (*event.topics, pattern)
        if not all(topics) or len(set(topics)) < len(topics):
            out.append(c.Notify("error", *INVALID_ARG))
            return
        state.last_poll = state.now
        rdkafka.subscribe(state, topics or None, out)

    def on_unsubscribe(self, state: State, event: c.UnsubscribeCalled, now: int, out: Out) -> None:
        rdkafka.subscribe(state, None, out)

    def on_assign(self, state: State, event: c.AssignCalled, now: int, out: Out) -> None:
        rdkafka.assign(state, event, out)

    def on_seek(self, state: State, event: c.SeekCalled, now: int, out: Out) -> None:
        rdkafka.seek(state, event, out)

    def on_pause(self, state: State, event: c.PauseCalled, now: int, out: Out) -> None:
        rdkafka.pause(state, event.partitions, True)

    def on_resume(self, state: State, event: c.ResumeCalled, now: int, out: Out) -> None:
        rdkafka.pause(state, event.partitions, False)

    def on_poll(self, state: State, event: c.PollCalled, now: int, out: Out) -> None:
        rdkafka.poll(state, event, out)

    def on_callback_returned(self, state: State, event: c.CallbackReturned, now: int, out: Out) -> None:
        rdkafka.told(state, out)

    def on_commit(self, state: State, event: c.CommitCalled, now: int, out: Out) -> None:
        offset_store.commit(state, event.token, event.offsets, event.wait, out)

    def on_store(self, state: State, event: c.StoreCalled, now: int, out: Out) -> None:
        error = offset_store.store(state, event.offsets)
        if error is not None:
            out.append(c.Notify("error", *error))

    def on_rebalance(self, state: State, event: c.RebalanceCalled, now: int, out: Out) -> None:
        out.append(c.Notify("error", "AttributeError", "librdkafka can't be asked for a rebalance"))

    def on_close(self, state: State, event: c.CloseCalled, now: int, out: Out) -> None:
        rdkafka.close(state, out)

    def on_response(self, state: State, event: c.ResponseReceived, now: int, out: Out) -> None:
        entry = state.open.pop(id(event.request), None)
        if entry is not None:
            RESPONSES[type(event.request).__name__](state, entry, event.response, out)

    def on_request_failed(self, state: State, event: c.RequestFailed, now: int, out: Out) -> None:
        entry = state.open.pop(id(event.request), None)
        if entry is None:
            return
        if entry.send.to.lane == COORDINATOR:
            cgrp_coordinator.went_down(state)
        RESPONSES[type(event.request).__name__](state, entry, None, out)

    def on_connection_lost(self, state: State, event: c.ConnectionLost, now: int, out: Out) -> None:
        if event.address.lane == COORDINATOR:
            cgrp_coordinator.went_down(state)


HANDLERS: Final = LibrdkafkaHandlers()
