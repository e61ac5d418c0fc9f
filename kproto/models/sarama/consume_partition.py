"""ConsumePartition: from an offset to a partition consumer that is fed (sarama consumer.go, v1.61.1).

* ListOffsets is asked twice first, for the newest and for the oldest offset, whatever the offset (M139). One
  that is not between them is out of range (M185).
* Then the leader; a topic without one is refreshed once. A partition can be consumed once at a time.
* It is open when the leader's subscription manager has taken it.
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
    LISTING_NEWEST = "listing_newest"  # ListOffsets for the end
    LISTING_OLDEST = "listing_oldest"  # ListOffsets for the start
    FINDING_LEADER = "finding_leader"  # the topic's metadata is refreshed, as its leader is unknown
    QUEUEING = "queueing"  # until the subscription manager takes the partition
    DONE = "done"


S = OpenState


class ConsumePartition(Routine):
    """One call: `taker` goes on with "opened" and the partition consumer, or the trouble."""

    __slots__ = ("child", "client", "end", "offset", "partition", "receiver")
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
        self.end = 0
        self.child: PartitionConsumer | None = None

    def start(self) -> None:
        """The caller goes on into it."""
        LogOffset(self.client, self, self.partition, NEWEST).start()


def _on_newest_offset(opening: ConsumePartition, result: int | GoError) -> None:
    if isinstance(result, GoError):
        _finish(opening, result)
        return
    opening.end = result
    opening.move(S.LISTING_OLDEST)
    LogOffset(opening.client, opening, opening.partition, OLDEST).start()


def _on_oldest_offset(opening: ConsumePartition, result: int | GoError) -> None:
    if isinstance(result, GoError):
        _finish(opening, result)
        return
    ends = {NEWEST: opening.end, OLDEST: result}
    opening.offset = ends.get(opening.offset, opening.offset)
    if not result <= opening.offset <= opening.end:
        _finish(opening, errors.OUT_OF_RANGE)
    elif isinstance(opening.client.metadata.leader(*opening.partition), GoError):
        opening.move(S.FINDING_LEADER)
        opening.client.metadata.request_refresh(opening, (opening.partition.topic,))
    else:
        _subscribe(opening)


def _on_refreshed(opening: ConsumePartition, error: GoError | None) -> None:
    if error is not None:
        _finish(opening, error)
    else:
        _subscribe(opening)


def _subscribe(opening: ConsumePartition) -> None:
    client, partition = opening.client, opening.partition
    leader = client.metadata.leader(*partition)
    if isinstance(leader, GoError):
        _finish(opening, leader)
        return
    if partition in client.children:
        _finish(opening, GoError("sarama.ConfigurationError", "the partition is already being consumed"))
        return
    child = PartitionConsumer(client, opening.receiver, partition, opening.offset)
    child.high_watermark = opening.end
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
    opening.move(S.DONE)
    opening.client.resume(opening.receiver, "partition_opened", result)


ConsumePartition.TABLE = {
    "offset_listed": row(S, LISTING_NEWEST=_on_newest_offset, LISTING_OLDEST=_on_oldest_offset),
    "metadata_refreshed": row(S, FINDING_LEADER=_on_refreshed),
    "subscription_queued": row(S, QUEUEING=_on_queued),
}
