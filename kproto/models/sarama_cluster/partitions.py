"""A claimed partition: its offset and its messages (partitions.go, v2.1.15).

Messages go one by one to the application; marking stores the offset behind the message.
"""

from __future__ import annotations

from typing import ClassVar, Protocol

from ...group.subscription import TopicPartition
from ..contract import ModelRecord
from ..sarama import errors
from ..sarama.application import Application
from ..sarama.consume_partition import ConsumePartition
from ..sarama.errors import Trouble
from ..sarama.offset_manager import Managed
from ..sarama.partition_consumer import PartitionConsumer, Taker
from ..sarama.routines import States, Table, only
from .client import ClusterClient


class PartitionState(States):
    opening = "opening"
    consuming = "consuming"
    stopping = "stopping"  # nothing is given any more: until the partition consumer has closed
    closed = "closed"


P = PartitionState


class PartitionOwner(Protocol):
    """What a claimed partition uses of its consumer."""

    client: ClusterClient
    application: Application

    def opened(self, one: Partition, trouble: Trouble | None) -> None: ...

    def wind_up(self) -> None: ...

    def look(self) -> None: ...


class Partition(Taker):
    """createConsumer and multiplex: one claimed partition, its offset and its messages."""

    __slots__ = ("consumer", "initial", "managed", "partition")
    TABLE: ClassVar[Table]
    EDGES: ClassVar = {
        P.opening: {P.consuming, P.closed},
        P.consuming: {P.stopping, P.closed},
        P.stopping: {P.closed},
        P.closed: set(),
    }

    def __init__(self, consumer: PartitionOwner, partition: TopicPartition, managed: Managed) -> None:
        super().__init__(P.opening)
        self.consumer, self.partition, self.managed = consumer, partition, managed
        self.child: PartitionConsumer | None = None
        self.initial = managed.offset if managed.offset >= 0 else consumer.client.settings.offsets_initial

    @property
    def is_closed(self) -> bool:
        return self.state is P.closed

    def start(self) -> None:
        ConsumePartition(self.consumer.client, self, self.partition, self.initial).start()

    def stop(self) -> None:
        """Close the partition consumer and drop what it still has."""
        if self.state is P.consuming:
            self.move(P.stopping)
            assert self.child is not None
            self.child.close()
            self.child.messages.clear()
            self.child.taken()

    def report(self, error: Trouble) -> None:
        """To the consumer's Errors channel."""
        self.consumer.client.report(errors.of_partition(error))

    def take(self, limit: int) -> list[ModelRecord]:
        """What the application polls: it is marked as it is taken."""
        child = self.child
        if child is None or self.state is not P.consuming:
            return []
        taken = [child.messages.popleft() for _ in range(min(limit, len(child.messages)))]
        if taken:
            self.managed.mark(taken[-1].offset + 1)
        child.taken()
        return taken


def _opened(one: Partition, found: PartitionConsumer | Trouble) -> None:
    initial = one.consumer.client.settings.offsets_initial
    if not isinstance(found, Trouble):
        one.child = found
        one.move(P.consuming)
        one.consumer.opened(one, None)
    elif found == errors.OUT_OF_RANGE and one.initial != initial:
        one.managed.offset, one.initial = -1, initial
        one.start()
    else:
        one.move(P.closed)
        one.consumer.opened(one, found)


def _stocked(one: Partition, what: object) -> None:
    one.consumer.application.stock(one)


def _drop(one: Partition, what: object) -> None:
    assert one.child is not None
    one.child.messages.clear()
    one.child.taken()


def _closed(one: Partition, what: object) -> None:
    """Its channels are closed: by `stop`, or because its offset is out of range."""
    ended = one.state is P.consuming
    one.move(P.closed)
    if ended:
        one.consumer.wind_up()
    one.consumer.look()


Partition.TABLE = {
    "opened": only(P, opening=_opened),
    "stocked": only(P, consuming=_stocked, stopping=_drop),
    "closed": only(P, consuming=_closed, stopping=_closed),
}
