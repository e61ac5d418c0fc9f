"""ConsumePartition: opens a partition consumer at an offset (sarama consumer.go, v1.61.1).

* Regardless of the requested offset, ConsumePartition first sends two ListOffsets, for the newest and the
  oldest offset. A requested offset outside these two is out of range (M185).

* Then the leader is looked up in the metadata. If the leader is unknown, the metadata is refreshed once. Each
  partition can have only one partition consumer.

* The call returns when the leader's fetch loop (`broker_consumer`) has accepted the partition.
"""

from __future__ import annotations

from typing import ClassVar

from ...group.subscription import TopicPartition
from . import errors
from .client import SaramaClient
from .config import NEWEST, OLDEST
from .errors import GoError
from .initial_offset import LogOffset
from .partition_consumer import MessageReceiver, PartitionConsumer, subscribe, subscribe_again
from .routines import Routine, States, Table, row


class OpenState(States):
    # ListOffsets for the end of the log.
    LISTING_NEWEST = "listing_newest"
    # ListOffsets for the start of the log.
    LISTING_OLDEST = "listing_oldest"
    # The call refreshes the topic's metadata, since the leader is unknown.
    FINDING_LEADER = "finding_leader"
    # The call waits until the subscription manager takes the partition.
    QUEUEING = "queueing"
    DONE = "done"


S = OpenState


class ConsumePartition(Routine):
    """One call of ConsumePartition. At its end, `receiver` resumes with "partition_opened" and the partition
    consumer, or the error if the call failed.
    """

    __slots__ = ("child", "client", "newest_offset", "offset", "partition", "receiver")
    TABLE: ClassVar[Table]
    EDGES: ClassVar = {
        S.LISTING_NEWEST: {S.LISTING_OLDEST, S.DONE},
        S.LISTING_OLDEST: {S.FINDING_LEADER, S.QUEUEING, S.DONE},
        S.FINDING_LEADER: {S.QUEUEING, S.DONE},
        S.QUEUEING: {S.DONE},
        S.DONE: set(),
    }

    def __init__(
        self, client: SaramaClient, receiver: MessageReceiver, partition: TopicPartition, offset: int
    ) -> None:
        super().__init__(S.LISTING_NEWEST)
        self.client, self.receiver, self.partition, self.offset = client, receiver, partition, offset
        self.newest_offset = 0
        self.child: PartitionConsumer | None = None

    def start(self) -> None:
        """Start the call, which runs in the caller's goroutine."""
        LogOffset(self.client, self, self.partition, NEWEST).start()


def _on_newest_offset(opening: ConsumePartition, result: int | GoError) -> None:
    if isinstance(result, GoError):
        _finish(opening, result)
        return
    opening.newest_offset = result
    opening.move(S.LISTING_OLDEST)
    LogOffset(opening.client, opening, opening.partition, OLDEST).start()


def _on_oldest_offset(opening: ConsumePartition, result: int | GoError) -> None:
    """Check the requested offset, and look up the leader (chooseStartingOffset)."""
    if isinstance(result, GoError):
        _finish(opening, result)
        return
    oldest_offset, newest_offset = result, opening.newest_offset
    resolved_offsets = {NEWEST: newest_offset, OLDEST: oldest_offset}
    opening.offset = resolved_offsets.get(opening.offset, opening.offset)
    if not oldest_offset <= opening.offset <= newest_offset:
        _finish(opening, errors.OUT_OF_RANGE)
    elif isinstance(opening.client.metadata.leader(*opening.partition), GoError):
        opening.move(S.FINDING_LEADER)
        opening.client.metadata.request_refresh(opening, (opening.partition.topic,))
    else:
        _subscribe_partition(opening)


def _on_refreshed(opening: ConsumePartition, error: GoError | None) -> None:
    if error is not None:
        _finish(opening, error)
    else:
        _subscribe_partition(opening)


def _subscribe_partition(opening: ConsumePartition) -> None:
    """Create the partition consumer, and hand it to the leader's fetch loop."""
    client, partition = opening.client, opening.partition
    leader = client.metadata.leader(*partition)
    if isinstance(leader, GoError):
        _finish(opening, leader)
        return
    if partition in client.children:
        text = "kafka: invalid configuration (That topic/partition is already being consumed)"
        _finish(opening, GoError("sarama.ConfigurationError", text))
        return
    child = PartitionConsumer(client, opening.receiver, partition, opening.offset)
    child.high_watermark = opening.newest_offset
    child.paused = partition in client.paused
    opening.child = child
    client.children[partition] = child
    opening.move(S.QUEUEING)
    subscribe(child, opening, *leader)


def _on_queued(opening: ConsumePartition, is_queued: bool) -> None:
    assert opening.child is not None
    if is_queued:
        _finish(opening, opening.child)
    else:
        subscribe_again(opening.child, opening)


def _finish(opening: ConsumePartition, result: PartitionConsumer | GoError) -> None:
    """Return `result` to the caller of ConsumePartition."""
    opening.move(S.DONE)
    opening.client.resume(opening.receiver, "partition_opened", result)


ConsumePartition.TABLE = {
    "offset_listed": row(S, LISTING_NEWEST=_on_newest_offset, LISTING_OLDEST=_on_oldest_offset),
    "metadata_refreshed": row(S, FINDING_LEADER=_on_refreshed),
    "subscription_queued": row(S, QUEUEING=_on_queued),
}
