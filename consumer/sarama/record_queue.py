"""A queue of one partition's fetched records that the application has not read yet."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator

from kproto.errors import IllegalState
from kproto.group.subscription import TopicPartition

from ..aio.consumer import AsyncConsumer
from ..records import ConsumerRecord

# Number of records at which a queue is full: sarama's default of ChannelBufferSize.
MAX_BUFFERED = 256
# Interval (s) at which a waiting reader checks whether its partition may be lost.
RECHECK_S = 0.01


class RecordQueue:
    """A queue of one partition's records. A full queue pauses its partition.

    `async for record in queue` yields the records, and ends when the queue is closed.
    """

    def __init__(self, consumer: AsyncConsumer, topic_partition: TopicPartition) -> None:
        self.topic = topic_partition.topic
        self.partition = topic_partition.partition
        self.topic_partition = topic_partition
        self.ended = False
        self.initial_high_water_mark = 0
        self._consumer = consumer
        self.items: deque[ConsumerRecord] = deque()
        self._added = asyncio.Event()  # Set when records are added, and when the queue ends.
        # Whether the partition is paused because the queue was full. The partition is resumed when half
        # of the queue has been read.
        self._full = False
        # Whether the application has paused the partition. If so, the partition is not resumed when the queue
        # drains.
        self._paused = False

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.topic_partition}{' (ended)' if self.ended else ''}>"

    @property
    def high_water_mark(self) -> int:
        """The partition's high watermark, as of the last fetch.

        Before the first fetch of a group's claim, the property returns the offset at which the claim began.
        Before the first fetch of a partition without a group, it returns the log end offset at the time when
        reading began.
        """
        high_watermark = self._consumer.high_watermark(self.topic_partition)
        return self.initial_high_water_mark if high_watermark is None else high_watermark

    def messages(self) -> AsyncIterator[ConsumerRecord]:
        """Return this object, an iterator over the records. In sarama, `Messages` returns a channel."""
        return self

    def __aiter__(self) -> AsyncIterator[ConsumerRecord]:
        return self

    async def __anext__(self) -> ConsumerRecord:
        if not await self.ready():
            raise StopAsyncIteration
        record = self.items.popleft()
        self._resume_if_drained()
        return record

    async def take_all(self) -> list[ConsumerRecord]:
        """Wait for a record, and return all queued records. The list is empty if the queue has ended."""
        if not await self.ready():
            return []
        records = list(self.items)
        self.items.clear()
        self._resume_if_drained()
        return records

    def may_be_lost(self) -> bool:
        """Return whether another member may own the partition. Thread-safe.

        If the result is True, the next poll reports the partition as lost or revoked.
        """
        return not self.ended and self._consumer.assignment_lost()

    async def ready(self) -> bool:
        """Wait for a record whose partition this member still owns. Return False if the queue has ended."""
        self._resume_if_drained()
        while True:
            if self.items and not self.may_be_lost():
                return True
            if self.items:
                await asyncio.sleep(RECHECK_S)
            elif self.ended:
                return False
            else:
                self._added.clear()
                await self._added.wait()

    def _resume_if_drained(self) -> None:
        if self._full and len(self.items) <= MAX_BUFFERED // 2:
            self._full = False
            if not self._paused:
                self._resume_partition()

    def put(self, records: list[ConsumerRecord]) -> None:
        """Add records, and pause the partition if the queue is full. An ended queue drops the records."""
        if self.ended:
            return
        self.items.extend(records)
        self._added.set()
        if not self._full and len(self.items) >= MAX_BUFFERED:
            self._full = True
            self._pause_partition()

    def pause(self) -> None:
        """Stop fetching until `resume` is called. Queued records are still returned."""
        self._paused = True
        if not self.ended:
            self._pause_partition()

    def resume(self) -> None:
        """Resume fetching."""
        self._paused = False
        if not self.ended and not self._full:
            self._resume_partition()

    def release(self) -> None:
        """Resume the partition: a pause of this queue must not affect the queue of the next claim."""
        self._resume_partition()

    def seek(self, offset: int) -> None:
        """Continue reading at `offset`, if the consumer still owns the partition."""
        # A seek in a partition that was lost would be applied after the next assignment of the partition. It
        # would then replace the offset that another member has committed.
        consumer = self._consumer
        if self.topic_partition in consumer.assignment() and not consumer.assignment_lost():
            with contextlib.suppress(IllegalState):
                consumer.seek(self.topic_partition, offset)

    # The next two methods suppress IllegalState, which the consumer raises if the partition was revoked or
    # lost. The next poll reports the revocation or loss.

    def _pause_partition(self) -> None:
        with contextlib.suppress(IllegalState):
            self._consumer.pause(self.topic_partition)

    def _resume_partition(self) -> None:
        with contextlib.suppress(IllegalState):
            self._consumer.resume(self.topic_partition)

    def end(self, *, drop: bool = True) -> None:
        """Accept no more records. If `drop` is true, remove the queued records as well."""
        self.ended = True
        if drop:
            self.items.clear()
        self._added.set()

    def discard(self) -> None:
        """Drop the queued records after a seek has moved the position."""
        self.items.clear()
        self._resume_if_drained()

    def first_offset(self) -> int | None:
        """Return the offset of the first queued record, or None if the queue is empty."""
        return self.items[0].offset if self.items else None
