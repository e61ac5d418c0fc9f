"""sarama's Consumer and PartitionConsumer for threads; the docstring of `partitions` has the rules.

with PartitionConsumers("localhost:9092") as consumers:
    for record in consumers.consume_partition("flights", 0, OLDEST):
        print(record.offset)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Unpack

from kproto.group.subscription import TopicPartition

from ..consumer_options import ConsumerConfig
from ..context_managers import Block
from ..other_clients import hide_secrets
from ..records import ConsumerRecord
from ..validation import seconds
from .loop_thread import LoopThread
from .partitions import NEWEST, AsyncPartitionConsumer, AsyncPartitionConsumers, Start


class PartitionConsumer:
    """A consumer of one partition: `for record in consumer` yields the partition's records.

    The loop over the records ends when the consumer is closed, or when its position is no longer in the log.
    """

    def __init__(self, consumer: AsyncPartitionConsumer, loop: LoopThread[AsyncPartitionConsumers]) -> None:
        self._consumer = consumer
        self._loop = loop
        self.topic = consumer.topic
        self.partition = consumer.partition
        self.initial_offset = consumer.initial_offset

    def __repr__(self) -> str:
        return repr(self._consumer)

    def messages(self) -> Iterator[ConsumerRecord]:
        """Return an iterator over the records (sarama's `PartitionConsumer.Messages`)."""
        return iter(self)

    def __iter__(self) -> Iterator[ConsumerRecord]:
        return self._loop.iterate(self._consumer)

    def errors(self) -> Iterator[Exception]:
        """Return an iterator over the errors, to be read in a separate thread.

        The iterator over the errors ends when the iterator over the messages ends.
        """
        return self._loop.iterate(self._consumer.error_channel)

    @property
    def high_water_mark_offset(self) -> int:
        """The partition's high watermark, as of the last fetch.

        Before the first fetch, the property returns the log end offset at the time when reading began.
        """
        return self._consumer.high_water_mark

    @property
    def is_paused(self) -> bool:
        """Whether the partition is paused by `pause`."""
        return self._consumer.is_paused

    def pause(self) -> None:
        """Stop fetching until `resume` is called. Queued records are still returned."""
        self._loop.call(self._consumer.pause)

    def resume(self) -> None:
        """Resume fetching."""
        self._loop.call(self._consumer.resume)

    def async_close(self) -> None:
        """Stop fetching. The iterators over messages and errors end after the queued records."""
        if not self._loop.ended:
            self._loop.call(self._consumer.async_close)

    def close(self) -> None:
        """Stop fetching, and drop the queued records."""
        if not self._loop.ended:
            self._loop.run(self._consumer.close())


class PartitionConsumers(Block):
    """Partition consumers for threads. Any number of them share one client.

    Takes the options of `Consumer`, except group options, `auto_offset_reset` and deserializers.
    """

    @hide_secrets
    def __init__(self, bootstrap_servers: str | Iterable[str], **config: Unpack[ConsumerConfig]) -> None:
        def make_client() -> AsyncPartitionConsumers:
            return AsyncPartitionConsumers(bootstrap_servers, **config)

        self._loop = LoopThread("kproto-partitions", make_client)

    def consume_partition(self, topic: str, partition: int, offset: Start = NEWEST) -> PartitionConsumer:
        """Start reading a partition at `offset`: a number, `OLDEST` or `NEWEST`.

        Raises UnknownTopic if the partition does not exist, OffsetOutOfRange if the offset is outside the
        log, and IllegalState if the partition is already being consumed.
        """
        self._loop.check_usable("these partition consumers are closed; make new ones")
        consumer = self._loop.run(self._loop.client.consume_partition(topic, partition, offset))
        return PartitionConsumer(consumer, self._loop)

    def partitions(self, topic: str) -> list[int]:
        """Return the numbers of the topic's partitions. Raises UnknownTopic if the topic is missing."""
        return self._loop.run(self._loop.client.partitions(topic))

    def high_water_marks(self) -> dict[TopicPartition, int]:
        """Return the `high_water_mark_offset` of each partition that is being consumed."""
        return self._loop.call(self._loop.client.high_water_marks)

    def pause_all(self) -> None:
        """Pause all partitions that are being consumed."""
        self._loop.call(self._loop.client.pause_all)

    def resume_all(self) -> None:
        """Resume all partitions that are being consumed."""
        self._loop.call(self._loop.client.resume_all)

    def close(self, timeout: float = 30.0) -> None:
        """Stop all partitions, and close the client."""
        self._loop.close(self._loop.client.close(seconds("timeout", timeout)))
