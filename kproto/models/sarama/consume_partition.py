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
from .client import Client
from .config import NEWEST, OLDEST
from .errors import Trouble
from .initial_offset import LogOffset
from .partition_consumer import PartitionConsumer, Taker, subscribe, subscribe_again
from .routines import Routine, States, Table, only


class OpenState(States):
    newest = "newest"  # ListOffsets for the end
    oldest = "oldest"  # ListOffsets for the start
    leading = "leading"  # the topic's metadata is refreshed, as its leader is unknown
    queueing = "queueing"  # until the subscription manager takes the partition
    done = "done"


S = OpenState


class ConsumePartition(Routine):
    """One call: `taker` goes on with "opened" and the partition consumer, or the trouble."""

    __slots__ = ("child", "client", "end", "offset", "partition", "taker")
    TABLE: ClassVar[Table]
    EDGES: ClassVar = {
        S.newest: {S.oldest, S.done},
        S.oldest: {S.leading, S.queueing, S.done},
        S.leading: {S.queueing, S.done},
        S.queueing: {S.done},
        S.done: set(),
    }

    def __init__(self, client: Client, taker: Taker, partition: TopicPartition, offset: int) -> None:
        super().__init__(S.newest)
        self.client, self.taker, self.partition, self.offset = client, taker, partition, offset
        self.end = 0
        self.child: PartitionConsumer | None = None

    def start(self) -> None:
        """The caller goes on into it."""
        LogOffset(self.client, self, self.partition, NEWEST).start()


def _newest(opening: ConsumePartition, found: int | Trouble) -> None:
    if isinstance(found, Trouble):
        _finish(opening, found)
        return
    opening.end = found
    opening.move(S.oldest)
    LogOffset(opening.client, opening, opening.partition, OLDEST).start()


def _oldest(opening: ConsumePartition, found: int | Trouble) -> None:
    if isinstance(found, Trouble):
        _finish(opening, found)
        return
    ends = {NEWEST: opening.end, OLDEST: found}
    opening.offset = ends.get(opening.offset, opening.offset)
    if not found <= opening.offset <= opening.end:
        _finish(opening, errors.OUT_OF_RANGE)
    elif isinstance(opening.client.metadata.leader(*opening.partition), Trouble):
        opening.move(S.leading)
        opening.client.metadata.want(opening, (opening.partition.topic,))
    else:
        _subscribe(opening)


def _led(opening: ConsumePartition, trouble: Trouble | None) -> None:
    if trouble is not None:
        _finish(opening, trouble)
    else:
        _subscribe(opening)


def _subscribe(opening: ConsumePartition) -> None:
    client, partition = opening.client, opening.partition
    leader = client.metadata.leader(*partition)
    if isinstance(leader, Trouble):
        _finish(opening, leader)
        return
    if partition in client.children:
        _finish(opening, Trouble("sarama.ConfigurationError", "the partition is already being consumed"))
        return
    child = PartitionConsumer(client, opening.taker, partition, opening.offset)
    child.high_watermark = opening.end
    child.paused = partition in client.paused
    opening.child = child
    client.children[partition] = child
    opening.move(S.queueing)
    subscribe(child, opening, *leader)


def _queued(opening: ConsumePartition, taken: bool) -> None:
    assert opening.child is not None
    if taken:
        _finish(opening, opening.child)
    else:
        subscribe_again(opening.child, opening)


def _finish(opening: ConsumePartition, result: PartitionConsumer | Trouble) -> None:
    opening.move(S.done)
    opening.client.resume(opening.taker, "opened", result)


ConsumePartition.TABLE = {
    "offset": only(S, newest=_newest, oldest=_oldest),
    "refreshed": only(S, leading=_led),
    "queued": only(S, queueing=_queued),
}
