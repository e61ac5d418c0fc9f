"""Partitions that one names, for threads; `partitions` says what holds.

with PartitionConsumers("localhost:9092") as consumers:
    for record in consumers.consume_partition("flights", 0, OLDEST):
        print(record.offset)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Unpack

from kproto.group.subscription import TopicPartition

from ..context_managers import Block
from ..options import ConsumerConfig
from ..other_clients import hide_secrets
from ..records import ConsumerRecord
from ..validation import seconds
from .loop_thread import LoopThread
from .partitions import NEWEST, AsyncPartitionConsumer, AsyncPartitionConsumers, Start


class PartitionConsumer:
    """One partition. `for record in it` ends when it is closed, or when its position is gone."""

    def __init__(self, made: AsyncPartitionConsumer, loop: LoopThread[AsyncPartitionConsumers]) -> None:
        self._made = made
        self._loop = loop
        self.topic = made.topic
        self.partition = made.partition
        self.initial_offset = made.initial_offset

    def __repr__(self) -> str:
        return repr(self._made)

    def messages(self) -> Iterator[ConsumerRecord]:
        """The same, under sarama's name."""
        return iter(self)

    def __iter__(self) -> Iterator[ConsumerRecord]:
        return self._loop.iterate(self._made)

    def errors(self) -> Iterator[Exception]:
        """What went wrong; ends with the messages. For a thread of its own."""
        return self._loop.iterate(self._made.told)

    @property
    def high_water_mark_offset(self) -> int:
        """The offset behind the partition's last record, as the last fetch told it, or the beginning."""
        return self._made.high_water_mark

    @property
    def is_paused(self) -> bool:
        """`pause` was called, and not `resume`."""
        return self._made.is_paused

    def pause(self) -> None:
        """Fetches nothing more, until `resume`. What waits already is handed out."""
        self._loop.there(self._made.pause)

    def resume(self) -> None:
        """Goes on."""
        self._loop.there(self._made.resume)

    def async_close(self) -> None:
        """Ends it; what waits is still handed out, then messages and errors end."""
        if not self._loop.ended:
            self._loop.there(self._made.async_close)

    def close(self) -> None:
        """Ends it, and drops what waits."""
        if not self._loop.ended:
            self._loop.do(self._made.close())


class PartitionConsumers(Block):
    """Any number of partitions over one client, for threads. Options are those of `Consumer`; no group."""

    @hide_secrets
    def __init__(self, bootstrap_servers: str | Iterable[str], **config: Unpack[ConsumerConfig]) -> None:
        make: Callable[[], AsyncPartitionConsumers]
        make = lambda: AsyncPartitionConsumers(bootstrap_servers, **config)  # noqa: E731
        self._loop = LoopThread("kproto-partitions", make)

    def consume_partition(self, topic: str, partition: int, offset: Start = NEWEST) -> PartitionConsumer:
        """Begins to read a partition at `offset`, `OLDEST` or `NEWEST`.

        Raises UnknownTopic, OffsetOutOfRange for an offset that the log doesn't have, and IllegalState for a
        partition that is consumed already.
        """
        self._loop.usable("these partition consumers are closed; make new ones")
        made = self._loop.do(self._loop.made.consume_partition(topic, partition, offset))
        return PartitionConsumer(made, self._loop)

    def partitions(self, topic: str) -> list[int]:
        """The topic's partitions; raises UnknownTopic."""
        return self._loop.do(self._loop.made.partitions(topic))

    def high_water_marks(self) -> dict[TopicPartition, int]:
        """`high_water_mark_offset` of each partition that is consumed."""
        return self._loop.there(self._loop.made.high_water_marks)

    def pause_all(self) -> None:
        self._loop.there(self._loop.made.pause_all)

    def resume_all(self) -> None:
        self._loop.there(self._loop.made.resume_all)

    def close(self, timeout: float = 30.0) -> None:
        """Ends all of them and the client."""
        self._loop.close(self._loop.made.close(seconds("timeout", timeout)))
