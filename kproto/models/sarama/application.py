"""The application beside the group: its polls are handlers that take messages, its callbacks Setup and so on.

* While a Poll is open every handler takes what comes, and marks it; between two polls each handler holds at
  most one message and does not return (`kproto.models.sarama.consumer_group_claim`).
* Commit is the session's Commit: one flush, whose errors are on the Errors channel. It is never an error of
  the call. Offsets that it names are marked first. After a session the last one is meant.
"""

from __future__ import annotations

from collections import deque
from typing import ClassVar

from ...group.subscription import TopicPartition
from ..contract import CommitCalled, FinishCommit, FinishPoll, ModelRecord, PollCalled, RunCallback
from .client import Client
from .offset_manager import Flush, Offsets
from .partition_consumer import Taker
from .routines import Routine, States, Table, only


class ApplicationState(States):
    busy = "busy"
    polling = "polling"


S = ApplicationState
BUSY, POLLING = S.busy, S.polling


class Application(Routine):
    """What the application waits for, and who waits for it."""

    __slots__ = ("client", "limit", "stocked", "tells")
    TABLE: ClassVar[Table]
    EDGES: ClassVar = {S.busy: {S.polling}, S.polling: {S.busy}}

    def __init__(self, client: Client) -> None:
        super().__init__(S.busy)
        self.client = client
        self.limit = 0
        self.stocked: dict[Taker, None] = {}  # those with messages, in the order in which they got them
        self.tells: deque[Routine] = deque()  # who waits for a callback that has not returned

    @property
    def is_busy(self) -> bool:
        """Whether it takes no messages now."""
        return self.state is BUSY

    def poll(self, event: PollCalled) -> None:
        self.limit = event.limit
        if self.state is BUSY:
            self.move(POLLING)
        self.client.sleep(self, self.client.now + event.timeout_ms)
        if self.stocked:
            self.client.wake(self, "stocked")

    def stock(self, claim: Taker) -> None:
        """A claim has messages for the next poll, or for this one."""
        self.stocked[claim] = None
        if self.state is POLLING:
            self.client.wake(self, "stocked")

    def tell(self, kind: str, partitions: tuple[TopicPartition, ...], waiting: Routine | None) -> None:
        """Call the application back; `waiting` goes on with "told"."""
        if waiting is not None:
            self.tells.append(waiting)
        self.client.out.append(RunCallback(kind, partitions, waiting is not None))

    def has_heard(self) -> None:
        """The oldest callback has returned."""
        if self.tells:
            self.client.wake(self.tells.popleft(), "told")


def _take(application: Application, what: object) -> None:
    records: list[ModelRecord] = []
    for claim in list(application.stocked):
        records += claim.take(application.limit - len(records))
        if claim.child is None or not claim.child.messages:
            del application.stocked[claim]
        if len(records) >= application.limit:
            break
    if records:
        application.move(BUSY)
        application.client.out.append(FinishPoll(tuple(records)))


def _timed_out(application: Application, what: object) -> None:
    application.move(BUSY)
    application.client.out.append(FinishPoll())


Application.TABLE = {
    "stocked": only(S, polling=_take),
    "elapsed": only(S, polling=_timed_out),
}


class CommitState(States):
    flushing = "flushing"
    done = "done"


class CommitCall(Routine):
    """One call of Commit."""

    __slots__ = ("client", "offsets", "token")
    TABLE: ClassVar[Table]
    EDGES: ClassVar = {CommitState.flushing: {CommitState.done}, CommitState.done: set()}

    def __init__(self, client: Client, offsets: Offsets, event: CommitCalled) -> None:
        super().__init__(CommitState.flushing)
        self.client, self.offsets, self.token = client, offsets, event.token
        for partition, offset in (event.offsets or {}).items():
            if partition in offsets.managed:
                offsets.managed[partition].mark(offset)
        Flush(offsets, self).start()


def _flushed(call: CommitCall, what: object) -> None:
    call.move(CommitState.done)
    call.offsets.release(False, None)
    call.client.out.append(FinishCommit(call.token))


CommitCall.TABLE = {"flushed": only(CommitState, flushing=_flushed)}
