"""sarama's Consumer without a group: ConsumePartition for each partition (consumer.go, v1.61.1).

* Assign is one call of ConsumePartition for each of its partitions: from an offset, from OffsetNewest (-1) or
  OffsetOldest (-2), or, where it names none, from Offsets.Initial. `change` "remove" closes them.
* Each is consumed once at a time: a second call is refused, and the first one goes on. One call doesn't end
  another's: there is no assignment that could be replaced.
* An error of the call is told as what the call returns; later ones are ConsumerErrors on the partition's
  Errors channel. Nothing is marked and nothing committed.
"""

from __future__ import annotations

from typing import ClassVar

from ...group.subscription import TopicPartition
from ..contract import AssignCalled, ModelRecord
from . import errors
from .application import Application
from .client import Client
from .consume_partition import ConsumePartition
from .errors import Trouble
from .partition_consumer import PartitionConsumer, Taker
from .routines import States, Table, ignored, only


class DirectState(States):
    opening = "opening"
    consuming = "consuming"
    ended = "ended"


S = DirectState


class Direct(Taker):
    """One partition that the application consumes by itself."""

    __slots__ = ("application", "client", "partition")
    TABLE: ClassVar[Table]
    EDGES: ClassVar = {S.opening: {S.consuming, S.ended}, S.consuming: {S.ended}, S.ended: set()}

    def __init__(self, client: Client, application: Application, partition: TopicPartition) -> None:
        super().__init__(S.opening)
        self.client, self.application, self.partition = client, application, partition
        self.child: PartitionConsumer | None = None

    def take(self, limit: int) -> list[ModelRecord]:
        """What the application polls."""
        child = self.child
        if child is None:
            return []
        taken = [child.messages.popleft() for _ in range(min(limit, len(child.messages)))]
        child.taken()
        return taken

    def report(self, error: Trouble) -> None:
        """To the partition's Errors channel."""
        self.client.report(errors.of_partition(error))


def assign(client: Client, application: Application, event: AssignCalled) -> None:
    """ConsumePartition, or Close, for each of these partitions."""
    for partition, offset in event.partitions.items():
        if event.change != "remove":
            start = client.settings.offsets_initial if offset is None else offset
            ConsumePartition(client, Direct(client, application, partition), partition, start).start()
        elif partition in client.children:
            client.children[partition].close()


def _opened(direct: Direct, found: PartitionConsumer | Trouble) -> None:
    if isinstance(found, Trouble):
        direct.move(S.ended)
        direct.client.report(found)
    else:
        direct.child = found
        direct.move(S.consuming)


def _stocked(direct: Direct, what: object) -> None:
    direct.application.stock(direct)


def _closed(direct: Direct, what: object) -> None:
    direct.move(S.ended)


Direct.TABLE = {
    "opened": only(S, opening=_opened),
    "stocked": only(S, opening=_stocked, consuming=_stocked, ended=ignored),
    "closed": only(S, consuming=_closed),
}
