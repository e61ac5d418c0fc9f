"""A claim of a session: the goroutine around ConsumeClaim (sarama consumer_group_session.go, v1.61.1).

* It begins where the group committed, or at Offsets.Initial without a commit (`consume_partition`). An
  offset that is out of range begins at Offsets.Initial instead, with Group.ResetInvalidOffsets (M147).
* A partition without a leader is looked at every 5 s. Errors of the start that a new leader may mend are
  tried again Metadata.Retry.Max times; any other is reported, and the claim is over.
* The handler takes a message whenever the application polls, and marks it. It returns when the session ends,
  or when its partition's messages do; not before the application has taken what it holds.
* When any claim returns, for whatever reason but a cooperative revocation, the session ends (M103).
* A claim that ends waits for the broker consumer to let its partition go: for the open Fetch (M193).
"""

from __future__ import annotations

from typing import ClassVar, Protocol

from ...error_codes import ErrorCode
from ...group.subscription import TopicPartition
from ..contract import ModelRecord
from . import errors
from .application import Application
from .client import Client
from .consume_partition import ConsumePartition
from .errors import Trouble
from .offset_manager import Offsets
from .partition_consumer import PartitionConsumer, Taker
from .routines import States, Table, only

UNREADABLE_MS = 5_000
_RETRIABLE = {
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.REPLICA_NOT_AVAILABLE,
}


class ClaimState(States):
    starting = "starting"
    unreadable = "unreadable"  # no leader known: looks again every 5 s
    opening = "opening"  # ConsumePartition
    backing_off = "backing_off"
    refreshing = "refreshing"  # before another attempt
    consuming = "consuming"  # the handler runs
    draining = "draining"  # it returned: until the partition consumer has closed its channels
    done = "done"


S = ClaimState


class ClaimOwner(Protocol):
    """What a claim uses of its session."""

    client: Client
    application: Application
    offsets: Offsets
    cooperative: bool
    cause: Trouble | None

    @property
    def closed(self) -> bool: ...

    def report(self, error: Trouble, partition: TopicPartition | None = None) -> None: ...

    def tell(self, kind: str, partitions: tuple[TopicPartition, ...]) -> None: ...

    def returned(self, claim: Claim) -> None: ...


class Claim(Taker):
    """One partition while the session has it."""

    __slots__ = (
        "canceled",
        "closed",
        "offset",
        "partition",
        "reset",
        "retries",
        "returning",
        "revoked",
        "session",
    )
    TABLE: ClassVar[Table]
    EDGES: ClassVar = {
        S.starting: {S.unreadable, S.opening, S.done},
        S.unreadable: {S.opening, S.done},
        S.opening: {S.consuming, S.backing_off, S.done},
        S.backing_off: {S.refreshing, S.done},
        S.refreshing: {S.opening},
        S.consuming: {S.draining},
        S.draining: {S.done},
        S.done: set(),
    }

    def __init__(self, session: ClaimOwner, partition: TopicPartition) -> None:
        super().__init__(S.starting)
        self.session = session
        self.partition = partition
        self.retries = session.client.settings.metadata_retry_max
        self.offset = session.client.settings.offsets_initial
        self.reset = False  # begins at Offsets.Initial, as the committed offset is out of range
        self.canceled = False
        self.returning = False  # it gave what it held when the session ended
        self.revoked = False  # by a cooperative rebalance: the session goes on without it
        self.closed = False  # the partition consumer's channels are
        self.child: PartitionConsumer | None = None

    def cancel(self, revoked: bool) -> None:
        """The claim's context is done."""
        if not self.canceled:
            self.canceled, self.revoked = True, revoked
            self.session.client.wake(self, "look")

    def report(self, error: Trouble) -> None:
        """To the group's Errors channel."""
        self.session.report(error, self.partition)

    def take(self, limit: int) -> list[ModelRecord]:
        """What the application polls: it is marked as it is taken."""
        child = self.child
        if child is None or self.state is not S.consuming:
            return []
        messages = child.messages
        if self.session.cause is not None:
            limit = min(limit, 1)  # what the handler holds; it returns then
            self.returning = True
        taken = [messages.popleft() for _ in range(min(limit, len(messages)))]
        managed = self.session.offsets.managed.get(self.partition)
        if taken and managed is not None:
            managed.mark(taken[-1].offset + 1)
        child.taken()
        self.session.client.wake(self, "look")
        return taken


def _start(claim: Claim, what: object) -> None:
    client = claim.session.client
    if claim.canceled or claim.session.closed:
        _finish(claim)
    elif client.metadata.is_readable(*claim.partition):
        managed = claim.session.offsets.managed.get(claim.partition)
        if managed is not None and managed.offset >= 0:
            claim.offset = managed.offset
        _ask(claim)
    else:
        if claim.state is S.starting:
            claim.move(S.unreadable)
        client.sleep(claim, client.now + UNREADABLE_MS)


def _ask(claim: Claim) -> None:
    claim.move(S.opening)
    ConsumePartition(claim.session.client, claim, claim.partition, claim.offset).start()


def _opened(claim: Claim, found: PartitionConsumer | Trouble) -> None:
    if isinstance(found, Trouble):
        _failed(claim, found)
        return
    claim.child = found
    claim.move(S.consuming)
    if claim.session.cooperative:
        claim.session.tell("assigned", (claim.partition,))
    _look(claim, None)


def _failed(claim: Claim, trouble: Trouble) -> None:
    client = claim.session.client
    if trouble == errors.OUT_OF_RANGE and client.settings.group_reset_invalid_offsets and not claim.reset:
        claim.reset = True
        claim.offset = client.settings.offsets_initial
        ConsumePartition(client, claim, claim.partition, claim.offset).start()
    elif claim.retries > 0 and (trouble.code in _RETRIABLE or trouble == errors.NOT_CONNECTED):
        claim.retries -= 1
        claim.move(S.backing_off)
        client.sleep(claim, client.now + client.settings.metadata_retry_backoff)
        _look_before(claim, None)
    else:
        if not claim.canceled:
            claim.report(trouble)
        _finish(claim)


def _look_before(claim: Claim, what: object) -> None:
    """Waiting for a leader, or for another attempt: the end of the session ends that."""
    if claim.canceled or claim.session.closed:
        _finish(claim)


def _refresh(claim: Claim, what: object) -> None:
    claim.move(S.refreshing)
    claim.session.client.metadata.want(claim, (claim.partition.topic,))


def _refreshed(claim: Claim, trouble: Trouble | None) -> None:
    _ask(claim)


def _stocked(claim: Claim, what: object) -> None:
    claim.session.application.stock(claim)


def _look(claim: Claim, what: object) -> None:
    """Whether the handler returns."""
    child, session = claim.child, claim.session
    assert child is not None
    if claim.canceled or session.closed:
        child.close()
    if child.messages and session.application.is_busy and not claim.returning:
        return  # it holds a message until the application comes back
    if session.cause is not None or session.closed or (claim.closed and not child.messages):
        _return(claim, child)


def _return(claim: Claim, child: PartitionConsumer) -> None:
    claim.move(S.draining)
    if claim.session.cooperative:
        claim.session.tell("revoked", (claim.partition,))
    child.close()
    _drain(claim, None)


def _drain(claim: Claim, what: object) -> None:
    assert claim.child is not None
    claim.child.messages.clear()
    claim.child.taken()
    if claim.closed:
        _finish(claim)


def _closed(claim: Claim, what: object) -> None:
    claim.closed = True
    if claim.state is S.draining:
        _drain(claim, None)
    else:
        _look(claim, None)


def _closed_early(claim: Claim, what: object) -> None:
    claim.closed = True


def _finish(claim: Claim) -> None:
    claim.move(S.done)
    claim.session.returned(claim)


Claim.TABLE = {
    "start": only(S, starting=_start),
    "look": only(S, unreadable=_look_before, backing_off=_look_before, consuming=_look),
    "elapsed": only(S, unreadable=_start, backing_off=_refresh),
    "opened": only(S, opening=_opened),
    "refreshed": only(S, refreshing=_refreshed),
    "stocked": only(S, consuming=_stocked, draining=_drain),
    "closed": only(S, consuming=_closed, draining=_closed, opening=_closed_early),
}
