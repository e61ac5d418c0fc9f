"""A claim, the consumption of one partition in a session (sarama v1.61.1).

The original is the goroutine around ConsumeClaim in consumer_group_session.go.

* A claim starts at the group's committed offset, or at Offsets.Initial if no offset is committed
  (`consume_partition`). If the committed offset is out of range, the claim starts at Offsets.Initial if
  Group.ResetInvalidOffsets is true (M147). Otherwise the claim reports the error and ends.

* A partition without a leader is checked every 5 s. If opening the partition consumer fails with an error
  that a new leader may fix, the claim retries up to Metadata.Retry.Max times. Any other error, and an error
  of the last retry, is reported and ends the claim.

* The handler takes a message at every poll of the application, and marks it. The handler returns when the
  session ends, or when its channel of messages is closed and empty. If it holds a message at the end of the
  session, it returns only after the application has taken this message.

* When a claim returns, the session ends (M103), unless the claim was revoked cooperatively.

* A claim ends only when the broker consumer has released its partition, after the Fetch in flight (M193).
"""

from __future__ import annotations

from typing import ClassVar, Protocol

from ...error_codes import ErrorCode
from ...group.subscription import TopicPartition
from ..contract import ModelRecord
from . import errors
from .application import Application
from .client import SaramaClient
from .consume_partition import ConsumePartition
from .errors import GoError
from .offset_manager import OffsetManager
from .partition_consumer import MessageReceiver, PartitionConsumer
from .routines import States, Table, row

# The interval at which a claim without a leader checks for one.
_LEADER_CHECK_MS = 5_000
_RETRIABLE = {
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.REPLICA_NOT_AVAILABLE,
}


class ClaimState(States):
    STARTING = "starting"
    # No leader is known. The claim checks again every 5 s.
    UNREADABLE = "unreadable"
    # A call of ConsumePartition is in progress.
    OPENING = "opening"
    BACKING_OFF = "backing_off"
    # The claim refreshes the topic's metadata before the next call of ConsumePartition.
    REFRESHING = "refreshing"
    # The handler runs.
    CONSUMING = "consuming"
    # The handler has returned. The claim waits until the partition consumer has closed its channels.
    DRAINING = "draining"
    DONE = "done"


S = ClaimState


class ClaimOwner(Protocol):
    """The attributes and methods of a session that its claims use."""

    client: SaramaClient
    application: Application
    offsets: OffsetManager
    cooperative: bool
    cause: GoError | None

    @property
    def closed(self) -> bool: ...

    def report(self, error: GoError, partition: TopicPartition | None = None) -> None: ...

    def run_callback(self, kind: str, partitions: tuple[TopicPartition, ...]) -> None: ...

    def on_claim_returned(self, claim: GroupClaim) -> None: ...


class GroupClaim(MessageReceiver):
    """The claim of one partition, from its start until its end."""

    __slots__ = (
        "canceled",
        "closed",
        "is_reset",
        "offset",
        "partition",
        "retries",
        "returning",
        "revoked",
        "session",
    )
    TABLE: ClassVar[Table]
    EDGES: ClassVar = {
        S.STARTING: {S.UNREADABLE, S.OPENING, S.DONE},
        S.UNREADABLE: {S.OPENING, S.DONE},
        S.OPENING: {S.CONSUMING, S.BACKING_OFF, S.DONE},
        S.BACKING_OFF: {S.REFRESHING, S.DONE},
        S.REFRESHING: {S.OPENING},
        S.CONSUMING: {S.DRAINING},
        S.DRAINING: {S.DONE},
        S.DONE: set(),
    }

    def __init__(self, session: ClaimOwner, partition: TopicPartition) -> None:
        super().__init__(S.STARTING)
        self.session = session
        self.partition = partition
        self.retries = session.client.settings.metadata_retry_max
        self.offset = session.client.settings.offsets_initial
        # Whether the claim starts at Offsets.Initial because the committed offset is out of range.
        self.is_reset = False
        self.canceled = False
        # Whether the application has polled since the session ended. Such a poll takes at most the message
        # that the handler holds, and then the handler returns.
        self.returning = False
        # Whether a cooperative rebalance revoked the claim. The session continues without it.
        self.revoked = False
        self.closed = False  # Whether the partition consumer has closed its channels.
        self.child: PartitionConsumer | None = None

    def cancel(self, revoked: bool) -> None:
        """Cancel the claim's context."""
        if not self.canceled:
            self.canceled, self.revoked = True, revoked
            self.session.client.wake(self, "check")

    def report(self, error: GoError) -> None:
        """Report an error on the group's Errors channel."""
        self.session.report(error, self.partition)

    def take_messages(self, limit: int) -> list[ModelRecord]:
        """Take up to `limit` messages for the application's poll, and mark them."""
        child = self.child
        if child is None or self.state is not S.CONSUMING:
            return []
        queue = child.messages
        if self.session.cause is not None:
            limit = min(limit, 1)  # The handler delivers only the message that it holds, and then returns.
            self.returning = True
        messages = [queue.popleft() for _ in range(min(limit, len(queue)))]
        partition_offset = self.session.offsets.partition_offsets.get(self.partition)
        if messages and partition_offset is not None:
            partition_offset.mark(messages[-1].offset + 1)
        child.on_messages_taken()
        self.session.client.wake(self, "check")
        return messages


def _start_claim(claim: GroupClaim, payload: object) -> None:
    """Consume from the committed offset. If the partition has no leader, check again after 5 s."""
    client = claim.session.client
    if claim.canceled or claim.session.closed:
        _finish(claim)
    elif client.metadata.is_readable(*claim.partition):
        committed = claim.session.offsets.partition_offsets.get(claim.partition)
        if committed is not None and committed.offset >= 0:
            claim.offset = committed.offset
        _consume_partition(claim)
    else:
        if claim.state is S.STARTING:
            claim.move(S.UNREADABLE)
        client.sleep(claim, client.now + _LEADER_CHECK_MS)


def _consume_partition(claim: GroupClaim) -> None:
    claim.move(S.OPENING)
    ConsumePartition(claim.session.client, claim, claim.partition, claim.offset).start()


def _on_opened(claim: GroupClaim, result: PartitionConsumer | GoError) -> None:
    if isinstance(result, GoError):
        _on_open_failed(claim, result)
        return
    claim.child = result
    claim.move(S.CONSUMING)
    if claim.session.cooperative:
        claim.session.run_callback("assigned", (claim.partition,))
    _check_handler(claim, None)


def _on_open_failed(claim: GroupClaim, error: GoError) -> None:
    """Retry from Offsets.Initial, retry after a backoff, or end the claim, depending on the error."""
    client = claim.session.client
    if error == errors.OUT_OF_RANGE and client.settings.group_reset_invalid_offsets and not claim.is_reset:
        claim.is_reset = True
        claim.offset = client.settings.offsets_initial
        ConsumePartition(client, claim, claim.partition, claim.offset).start()
    elif claim.retries > 0 and (error.code in _RETRIABLE or error == errors.NOT_CONNECTED):
        claim.retries -= 1
        claim.move(S.BACKING_OFF)
        client.sleep(claim, client.now + client.settings.metadata_retry_backoff)
        _check_canceled(claim, None)
    else:
        if not claim.canceled:
            claim.report(error)
        _finish(claim)


def _check_canceled(claim: GroupClaim, payload: object) -> None:
    """End the claim if the session has ended while no partition consumer was open."""
    if claim.canceled or claim.session.closed:
        _finish(claim)


def _on_backoff_elapsed(claim: GroupClaim, payload: object) -> None:
    claim.move(S.REFRESHING)
    claim.session.client.metadata.request_refresh(claim, (claim.partition.topic,))


def _on_refreshed(claim: GroupClaim, error: GoError | None) -> None:
    _consume_partition(claim)


def _on_messages(claim: GroupClaim, payload: object) -> None:
    claim.session.application.on_messages(claim)


def _check_handler(claim: GroupClaim, payload: object) -> None:
    """Return from the handler if the session has ended, or if no more messages can arrive."""
    child, session = claim.child, claim.session
    assert child is not None
    if claim.canceled or session.closed:
        child.close()
    if child.messages and session.application.is_busy and not claim.returning:
        return  # The handler holds a message until the application polls again.
    if session.cause is not None or session.closed or (claim.closed and not child.messages):
        _return_from_handler(claim, child)


def _return_from_handler(claim: GroupClaim, child: PartitionConsumer) -> None:
    """Return from ConsumeClaim, and close the partition consumer."""
    claim.move(S.DRAINING)
    if claim.session.cooperative:
        claim.session.run_callback("revoked", (claim.partition,))
    child.close()
    _drain(claim, None)


def _drain(claim: GroupClaim, payload: object) -> None:
    """Discard the messages that are left, and end the claim if the channels are closed."""
    assert claim.child is not None
    claim.child.messages.clear()
    claim.child.on_messages_taken()
    if claim.closed:
        _finish(claim)


def _on_closed(claim: GroupClaim, payload: object) -> None:
    claim.closed = True
    if claim.state is S.DRAINING:
        _drain(claim, None)
    else:
        _check_handler(claim, None)


def _on_closed_early(claim: GroupClaim, payload: object) -> None:
    claim.closed = True


def _finish(claim: GroupClaim) -> None:
    claim.move(S.DONE)
    claim.session.on_claim_returned(claim)


GroupClaim.TABLE = {
    "start": row(S, STARTING=_start_claim),
    "check": row(S, UNREADABLE=_check_canceled, BACKING_OFF=_check_canceled, CONSUMING=_check_handler),
    "timer_elapsed": row(S, UNREADABLE=_start_claim, BACKING_OFF=_on_backoff_elapsed),
    "partition_opened": row(S, OPENING=_on_opened),
    "metadata_refreshed": row(S, REFRESHING=_on_refreshed),
    "messages_available": row(S, CONSUMING=_on_messages, DRAINING=_drain),
    "channels_closed": row(S, CONSUMING=_on_closed, DRAINING=_on_closed, OPENING=_on_closed_early),
}
