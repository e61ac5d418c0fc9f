"""sarama's Consumer without a group: ConsumePartition for each partition (consumer.go, v1.61.1).

* Assign calls ConsumePartition once for each partition, with the offset of the event. OffsetNewest is -1 and
  OffsetOldest -2. None stands for Offsets.Initial. If `change` is "remove", Assign closes the partitions.

* ConsumePartition fails for a partition that is already consumed, and the existing consumption continues. So
  an Assign only adds partitions: sarama has no assignment to replace.

* An error that ConsumePartition returns is reported unchanged. Later errors are reported on the partition's
  Errors channel as ConsumerErrors.

* A consumer without a group marks and commits no offsets.
"""

from __future__ import annotations

from typing import ClassVar

from ...group.subscription import TopicPartition
from ..contract import AssignCalled, ModelRecord
from . import errors
from .application import Application
from .client import SaramaClient
from .consume_partition import ConsumePartition
from .errors import GoError
from .partition_consumer import MessageReceiver, PartitionConsumer
from .routines import States, Table, row


class DirectPartitionState(States):
    OPENING = "opening"
    CONSUMING = "consuming"
    ENDED = "ended"


S = DirectPartitionState


class DirectPartition(MessageReceiver):
    """A partition that the application consumes without a group."""

    __slots__ = ("application", "client", "partition")
    TABLE: ClassVar[Table]
    EDGES: ClassVar = {S.OPENING: {S.CONSUMING, S.ENDED}, S.CONSUMING: {S.ENDED}, S.ENDED: set()}

    def __init__(self, client: SaramaClient, application: Application, partition: TopicPartition) -> None:
        super().__init__(S.OPENING)
        self.client, self.application, self.partition = client, application, partition
        self.child: PartitionConsumer | None = None

    def take_messages(self, limit: int) -> list[ModelRecord]:
        """Take up to `limit` messages for the application's poll."""
        child = self.child
        if child is None:
            return []
        messages = [child.messages.popleft() for _ in range(min(limit, len(child.messages)))]
        child.on_messages_taken()
        return messages

    def report(self, error: GoError) -> None:
        """Report an error on the partition's Errors channel."""
        self.client.report(errors.as_consumer_error(error, self.partition))


def assign(client: SaramaClient, application: Application, event: AssignCalled) -> None:
    """Call ConsumePartition for each partition of the event, or Close if the event removes partitions."""
    for partition, offset in event.partitions.items():
        if event.change != "remove":
            start = client.settings.offsets_initial if offset is None else offset
            ConsumePartition(
                client, DirectPartition(client, application, partition), partition, start
            ).start()
        elif partition in client.children:
            client.children[partition].close()


def _on_opened(direct: DirectPartition, result: PartitionConsumer | GoError) -> None:
    if isinstance(result, GoError):
        direct.move(S.ENDED)
        direct.client.report(result)
    else:
        direct.child = result
        direct.move(S.CONSUMING)


def _on_messages(direct: DirectPartition, payload: object) -> None:
    direct.application.on_messages(direct)


def _on_closed(direct: DirectPartition, payload: object) -> None:
    direct.move(S.ENDED)


DirectPartition.TABLE = {
    "partition_opened": row(S, OPENING=_on_opened),
    "messages_available": row(S, OPENING=_on_messages, CONSUMING=_on_messages),
    "channels_closed": row(S, CONSUMING=_on_closed),
}
