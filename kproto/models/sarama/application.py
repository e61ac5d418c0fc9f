"""The application that uses sarama: its handlers receive messages while a poll is open.

* A poll is open from a `PollCalled` to a `FinishPoll` (`kproto.models.contract`). Meanwhile every handler
  receives the available messages and marks them. Between two polls each handler holds at most one message and
  does not return (`consumer_group_claim`).

* A `CommitCalled` marks the event's offsets (MarkOffset), and calls the session's Commit,
  which sends one OffsetCommit with all marked offsets. Commit never fails: errors are reported on the Errors
  channel.

* After the end of a session, Commit still sends the member id and generation of that session.
"""

from __future__ import annotations

from collections import deque
from typing import ClassVar

from ...group.subscription import TopicPartition
from ..contract import CommitCalled, FinishCommit, FinishPoll, ModelRecord, PollCalled, RunCallback
from .client import SaramaClient
from .offset_manager import Flush, OffsetManager
from .partition_consumer import MessageReceiver
from .routines import Routine, States, Table, row


class ApplicationState(States):
    BUSY = "busy"
    POLLING = "polling"


S = ApplicationState
BUSY, POLLING = S.BUSY, S.POLLING


class Application(Routine):
    """The application's open poll, and the routines that wait until a callback returns."""

    __slots__ = ("callback_waiters", "client", "limit", "ready_receivers")
    TABLE: ClassVar[Table]
    EDGES: ClassVar = {S.BUSY: {S.POLLING}, S.POLLING: {S.BUSY}}

    def __init__(self, client: SaramaClient) -> None:
        super().__init__(S.BUSY)
        self.client = client
        self.limit = 0  # The largest number of records that the open poll returns.
        # The partitions' receivers that have messages, in the order in which the messages arrived.
        self.ready_receivers: dict[MessageReceiver, None] = {}
        self.callback_waiters: deque[Routine] = deque()  # Routines that wait until a callback returns.

    @property
    def is_busy(self) -> bool:
        """Whether the application is between two polls."""
        return self.state is BUSY

    def poll(self, event: PollCalled) -> None:
        """Open a poll. It finishes with the next messages, or without messages at its timeout."""
        self.limit = event.limit
        if self.state is BUSY:
            self.move(POLLING)
        self.client.sleep(self, self.client.now + event.timeout_ms)
        if self.ready_receivers:
            self.client.wake(self, "messages_available")

    def on_messages(self, receiver: MessageReceiver) -> None:
        """Deliver a receiver's messages to the open poll, or keep the receiver for the next poll."""
        self.ready_receivers[receiver] = None
        if self.state is POLLING:
            self.client.wake(self, "messages_available")

    def run_callback(self, kind: str, partitions: tuple[TopicPartition, ...], waiter: Routine | None) -> None:
        """Run a callback of the application. Its return wakes `waiter` with "callback_returned"."""
        if waiter is not None:
            self.callback_waiters.append(waiter)
        self.client.out.append(RunCallback(kind, partitions, waiter is not None))

    def on_callback_returned(self) -> None:
        """Wake the routine that waits for the oldest open callback."""
        if self.callback_waiters:
            self.client.wake(self.callback_waiters.popleft(), "callback_returned")


def _take_messages(application: Application, payload: object) -> None:
    """Finish the poll with the receivers' messages. Without messages, the poll stays open."""
    records: list[ModelRecord] = []
    for receiver in list(application.ready_receivers):
        records += receiver.take_messages(application.limit - len(records))
        # In sarama, all claims run concurrently. To give each claim its turn, a receiver that has delivered a
        # message moves to the end of the queue.
        del application.ready_receivers[receiver]
        if receiver.child is not None and receiver.child.messages:
            application.ready_receivers[receiver] = None
        if len(records) >= application.limit:
            break
    if records:
        application.move(BUSY)
        application.client.out.append(FinishPoll(tuple(records)))


def _on_poll_timeout(application: Application, payload: object) -> None:
    application.move(BUSY)
    application.client.out.append(FinishPoll())


Application.TABLE = {
    "messages_available": row(S, POLLING=_take_messages),
    "timer_elapsed": row(S, POLLING=_on_poll_timeout),
}


class CommitState(States):
    FLUSHING = "flushing"
    DONE = "done"


class CommitCall(Routine):
    """One call of Commit: it marks the event's offsets, and immediately flushes all marked offsets."""

    __slots__ = ("client", "offsets", "token")
    TABLE: ClassVar[Table]
    EDGES: ClassVar = {CommitState.FLUSHING: {CommitState.DONE}, CommitState.DONE: set()}

    def __init__(self, client: SaramaClient, offsets: OffsetManager, event: CommitCalled) -> None:
        super().__init__(CommitState.FLUSHING)
        self.client, self.offsets, self.token = client, offsets, event.token
        for partition, offset in (event.offsets or {}).items():
            if partition in offsets.partition_offsets:
                offsets.partition_offsets[partition].mark(offset)
        Flush(offsets, self).start()


def _on_flushed(call: CommitCall, payload: object) -> None:
    call.move(CommitState.DONE)
    call.offsets.release_closed(force=False, targets=None)
    call.client.out.append(FinishCommit(call.token))


CommitCall.TABLE = {"flushed": row(CommitState, FLUSHING=_on_flushed)}
