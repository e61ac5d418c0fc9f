"""A claimed partition: its offset and its messages (partitions.go, v2.1.15).

Messages are delivered to the application one by one. Marking a message stores the offset after it.
"""

from __future__ import annotations

from typing import ClassVar, Protocol

from ...group.subscription import TopicPartition
from ..contract import ModelRecord
from ..sarama import errors
from ..sarama.application import Application
from ..sarama.consume_partition import ConsumePartition
from ..sarama.errors import GoError
from ..sarama.offset_manager import PartitionOffset
from ..sarama.partition_consumer import MessageReceiver, PartitionConsumer
from ..sarama.routines import States, Table, row
from .client import ClusterClient


class PartitionState(States):
    OPENING = "opening"
    CONSUMING = "consuming"
    # The partition delivers no further messages, and waits until the partition consumer has closed.
    STOPPING = "stopping"
    CLOSED = "closed"


P = PartitionState


class PartitionOwner(Protocol):
    """The attributes and methods of a Consumer that its claimed partitions use."""

    client: ClusterClient
    application: Application

    def on_partition_opened(self, partition: ClusterPartition, error: GoError | None) -> None: ...

    def wind_up(self) -> None: ...

    def wake_waiters(self) -> None: ...


class ClusterPartition(MessageReceiver):
    """One claimed partition, its offset and its messages (createConsumer and multiplex)."""

    __slots__ = ("consumer", "partition", "partition_offset", "start_offset")
    TABLE: ClassVar[Table]
    EDGES: ClassVar = {
        P.OPENING: {P.CONSUMING, P.CLOSED},
        P.CONSUMING: {P.STOPPING, P.CLOSED},
        P.STOPPING: {P.CLOSED},
        P.CLOSED: set(),
    }

    def __init__(
        self, consumer: PartitionOwner, partition: TopicPartition, partition_offset: PartitionOffset
    ) -> None:
        super().__init__(P.OPENING)
        self.consumer, self.partition, self.partition_offset = consumer, partition, partition_offset
        self.child: PartitionConsumer | None = None
        self.start_offset = (
            partition_offset.offset
            if partition_offset.offset >= 0
            else consumer.client.settings.offsets_initial
        )

    @property
    def is_closed(self) -> bool:
        return self.state is P.CLOSED

    def start(self) -> None:
        ConsumePartition(self.consumer.client, self, self.partition, self.start_offset).start()

    def stop(self) -> None:
        """Close the partition consumer and drop its remaining messages."""
        if self.state is P.CONSUMING:
            self.move(P.STOPPING)
            assert self.child is not None
            self.child.close()
            self.child.messages.clear()
            self.child.on_messages_taken()

    def report(self, error: GoError) -> None:
        """Report an error on the consumer's Errors channel."""
        self.consumer.client.report(errors.as_consumer_error(error, self.partition))

    def take_messages(self, limit: int) -> list[ModelRecord]:
        """Take up to `limit` messages for the application's poll, and mark them."""
        child = self.child
        if child is None or self.state is not P.CONSUMING:
            return []
        messages = [child.messages.popleft() for _ in range(min(limit, len(child.messages)))]
        if messages:
            self.partition_offset.mark(messages[-1].offset + 1)
        child.on_messages_taken()
        return messages


def _on_opened(partition: ClusterPartition, result: PartitionConsumer | GoError) -> None:
    """Consume the partition; if its committed offset is out of range, retry from Offsets.Initial."""
    default_offset = partition.consumer.client.settings.offsets_initial
    if not isinstance(result, GoError):
        partition.child = result
        partition.move(P.CONSUMING)
        partition.consumer.on_partition_opened(partition, None)
    elif result == errors.OUT_OF_RANGE and partition.start_offset != default_offset:
        partition.partition_offset.offset, partition.start_offset = -1, default_offset
        partition.start()
    else:
        partition.move(P.CLOSED)
        partition.consumer.on_partition_opened(partition, result)


def _on_messages(partition: ClusterPartition, payload: object) -> None:
    partition.consumer.application.on_messages(partition)


def _drop_messages(partition: ClusterPartition, payload: object) -> None:
    assert partition.child is not None
    partition.child.messages.clear()
    partition.child.on_messages_taken()


def _on_closed(partition: ClusterPartition, payload: object) -> None:
    """Handle the end of the partition consumer after a stop or an out-of-range offset."""
    ended_without_stop = partition.state is P.CONSUMING
    partition.move(P.CLOSED)
    if ended_without_stop:
        partition.consumer.wind_up()
    partition.consumer.wake_waiters()


ClusterPartition.TABLE = {
    "partition_opened": row(P, OPENING=_on_opened),
    "messages_available": row(P, CONSUMING=_on_messages, STOPPING=_drop_messages),
    "channels_closed": row(P, CONSUMING=_on_closed, STOPPING=_on_closed),
}
