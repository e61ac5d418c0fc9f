"""The state machine of a Reader: it handles events and deadlines, then runs the goroutines."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ...wire.message import Message
from ..contract import (
    CloseCalled,
    CommitCalled,
    ModelAction,
    ModelEvent,
    Notify,
    PollCalled,
    RequestFailed,
    ResponseReceived,
    Started,
    SubscribeCalled,
)
from ..handlers import EventHandlers
from . import consumergroup, generation, partition_reader, reader
from .state import RUNNING, ConsumerGroupPhase, KafkaGoState, Out, close_connection

P = ConsumerGroupPhase


def step(state: KafkaGoState, event: ModelEvent, now: int) -> list[ModelAction]:
    """Apply `event` at `now` (milliseconds) and return the actions to perform, in order."""
    out: Out = []
    HANDLERS.dispatch(state, event, now, out)
    _run_goroutines(state, now, out)
    return out


def next_deadline(state: KafkaGoState) -> int | None:
    """Return the time in milliseconds of the next `DeadlineReached`, or None if no timer runs."""
    deadlines: list[int] = []
    if state.open_poll is not None:
        deadlines.append(state.open_poll[0])
    if state.retry_at is not None and state.state is P.BACKING_OFF:
        deadlines.append(state.retry_at)
    reader.add_deadlines(state, deadlines)
    current_generation = state.generation
    if current_generation is not None:
        if current_generation.next_reader_wakeup is not None:
            deadlines.append(current_generation.next_reader_wakeup)
        if state.state is RUNNING:
            generation.add_deadlines(current_generation, deadlines)
    return min(deadlines) if deadlines else None


class KafkaGoHandlers(EventHandlers[KafkaGoState]):
    """The handlers for the calls of a Reader and the responses to its requests."""

    UNSUPPORTED = ("Unsupported", "kafka-go's Reader with a GroupID has no {}")

    def on_started(self, state: KafkaGoState, event: Started, now: int, out: Out) -> None:
        state.bootstrap, state.offered = event.bootstrap, event.offered
        if state.topics:
            consumergroup.start_next_generation(state, now, out)

    def on_subscribe(self, state: KafkaGoState, event: SubscribeCalled, now: int, out: Out) -> None:
        """Set the topics of the Reader (NewReader). They cannot change, and patterns are not supported."""
        if state.topics or not event.topics:
            problem = (
                "topics cannot be changed; create a new Reader"
                if state.topics
                else "patterns are not supported; name the topics"
            )
            out.append(Notify("error", "Unsupported", f"kafka-go's Reader: {problem}"))
            return
        state.topics = event.topics
        if state.bootstrap:
            consumergroup.start_next_generation(state, now, out)

    def on_poll(self, state: KafkaGoState, event: PollCalled, now: int, out: Out) -> None:
        state.open_poll = (now + event.timeout_ms, event.limit)

    def on_commit(self, state: KafkaGoState, event: CommitCalled, now: int, out: Out) -> None:
        reader.commit_messages(state, event, now, out)

    def on_close(self, state: KafkaGoState, event: CloseCalled, now: int, out: Out) -> None:
        if state.closing:
            return
        state.closing = True
        if state.state is P.RUNNING:
            consumergroup.end_generation(state, out)
        elif state.state in (P.IDLE, P.BACKING_OFF):
            consumergroup.finish_close(state, out)

    def on_response(self, state: KafkaGoState, event: ResponseReceived, now: int, out: Out) -> None:
        _complete_request(state, event.request, event.response, "", now, out)

    def on_request_failed(self, state: KafkaGoState, event: RequestFailed, now: int, out: Out) -> None:
        if event.late and _uses_coordinator_connection(state, event.request):
            close_connection(out, state.coordinator)  # conn.go closes the connection after a timeout.
        _complete_request(state, event.request, None, event.why, now, out)


HANDLERS: Final = KafkaGoHandlers()


# -- responses and goroutines

ResponseHandler = Callable[[KafkaGoState, "Message | None", str, int, Out], None]

# Phase -> handler of the response to the group loop's request. The handler gets None for a failed request.
RESPONSES: Final[dict[ConsumerGroupPhase, ResponseHandler]] = {
    P.FINDING: consumergroup.on_find_coordinator_response,
    P.JOINING: consumergroup.on_join_group_response,
    P.PLANNING: consumergroup.on_metadata_response,
    P.SYNCING: consumergroup.on_sync_group_response,
    P.FETCHING_OFFSETS: consumergroup.on_offset_fetch_response,
    P.FINDING_TO_LEAVE: consumergroup.on_find_coordinator_response,
    P.LEAVING: consumergroup.on_leave_group_response,
}


def _complete_request(
    state: KafkaGoState, request: Message, response: Message | None, failure: str, now: int, out: Out
) -> None:
    """Pass a response to the goroutine of kafka-go that sent the request."""
    if request is state.open:
        state.open = None
        RESPONSES[state.state](state, response, failure, now, out)
        return
    if state.generation is None:
        return
    for reader_goroutine in state.generation.readers:
        if request is reader_goroutine.open:
            partition_reader.on_response(state, reader_goroutine, response, failure, now, out)
            return
    if request is state.generation.commits.open:
        reader.on_commit_response(state, response, failure, now, out)
    elif generation.on_response(state.generation, request, response) and state.state is P.RUNNING:
        consumergroup.end_generation(state, out)


def _uses_coordinator_connection(state: KafkaGoState, request: Message) -> bool:
    """Return whether `request` was sent on the connection to the coordinator."""
    return state.generation is None or all(
        reader_goroutine.open is not request for reader_goroutine in state.generation.readers
    )


def _run_goroutines(state: KafkaGoState, now: int, out: Out) -> None:
    """Run all goroutines until each of them has to wait."""
    if state.retry_at is not None and now >= state.retry_at and state.state is P.BACKING_OFF:
        state.retry_at = None
        consumergroup.start_next_generation(state, now, out)
    current_generation = state.generation
    if current_generation is not None:
        if state.state is RUNNING:
            generation.run_heartbeat_loop(state, current_generation, now, out)
            generation.run_partition_watchers(state, current_generation, now, out)
        if current_generation.next_reader_wakeup is not None and now >= current_generation.next_reader_wakeup:
            partition_reader.run_timers(state, current_generation, now, out)
        reader.refill_queue(state, now, out)
    reader.deliver_records(state, now, out)
    if state.blocked_commits:
        reader.unblock_commits(state, out)
    reader.run_commit_loop(state, now, out)
    if state.blocked_commits:
        reader.unblock_commits(state, out)
    reader.expire_commits(state, now, out)
    if current_generation is not None and state.state is P.ENDING:
        consumergroup.complete_generation(state, now, out)
