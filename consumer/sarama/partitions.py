"""sarama's Consumer and PartitionConsumer for asyncio, which read given partitions without a group.

    async with AsyncPartitionConsumers("localhost:9092") as consumers:
        flights = await consumers.consume_partition("flights", 0, OLDEST)
        async for record in flights:
            print(record.offset, flights.high_water_mark)

`PartitionConsumers`, the class for threads, is in `partitions_threads`.

Rules, which follow sarama's consumer.go except where a rule says otherwise:

* `consume_partition` raises OffsetOutOfRange for an offset outside the log.

* If the log start offset later passes the position, `errors()` reports OffsetOutOfRange, and the loop over
  the partition's records ends. The application decides where to continue.

* After `close` and `async_close`, no more messages are queued. Messages that are already queued are still
  returned after `async_close`, but not after `close`.

* A partition is paused while its queue is full, and does not delay other partitions. In sarama, a full queue
  delays the other partitions of the broker for one to two times MaxProcessingTime, before the partition is
  paused.

* A repeated error is reported, by `errors()` and the log, at increasing intervals.

* These consumers do not commit offsets. `ConsumerGroup` does.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable
from typing import Final, Literal, Unpack

from kproto.error_codes import ErrorCode
from kproto.errors import (
    ConfigError,
    IllegalState,
    KprotoError,
    OffsetOutOfRange,
    RequestTimedOut,
    UnknownTopic,
)
from kproto.group.subscription import TopicPartition

from ..aio.consumer import AsyncConsumer
from ..consumer_options import ConsumerConfig
from ..context_managers import AsyncBlock
from ..logs import log
from ..other_clients import hide_secrets
from ..records import ConsumerRecord
from ..validation import seconds, topic_partition
from .channel import Channel, ErrorThrottle
from .messages import require_bytes
from .record_queue import RECHECK_S, RecordQueue

# The log start offset at the time of the call.
OLDEST: Final = "oldest"
# The offset that ListOffsets returns for the latest timestamp at the time of the call: the high watermark, or
# with read_committed the last stable offset.
NEWEST: Final = "newest"
Start = int | Literal["oldest", "newest"]

POLL_S = 0.1
ERROR_PAUSE_S = 0.3


class AsyncPartitionConsumer(RecordQueue):
    """A consumer of one partition: `async for record in consumer` yields the partition's records.

    The loop over the records ends when the consumer is closed, or when its position is no longer in the log.
    """

    def __init__(
        self, owner: AsyncPartitionConsumers, topic_partition: TopicPartition, offset: int, end: int
    ) -> None:
        super().__init__(owner.consumer, topic_partition)
        self.initial_offset = offset
        self.initial_high_water_mark = end
        self._owner = owner
        self.error_channel: Channel[Exception] = Channel()

    @property
    def high_water_mark_offset(self) -> int:
        """`high_water_mark`, under sarama's name."""
        return self.high_water_mark

    def errors(self) -> AsyncIterator[Exception]:
        """Return an iterator over the errors.

        The iterator over the errors ends when the iterator over the messages ends. The last 256 unread errors
        are kept.
        """
        return aiter(self.error_channel)

    @property
    def is_paused(self) -> bool:
        """Whether the partition is paused by `pause`."""
        return self._paused

    def async_close(self) -> None:
        """Stop fetching. The iterators over messages and errors end after the queued records."""
        self._owner.remove(self)

    async def close(self) -> None:
        """Stop fetching, and drop the queued records."""
        self._owner.remove(self)
        self.end()

    def stop(self, error: Exception | None = None) -> None:
        """End the queue after its last record. If `error` is given, report it first."""
        if error is not None:
            self.error_channel.put(error)
        self.end(drop=False)
        self.error_channel.close()


class AsyncPartitionConsumers(AsyncBlock):
    """Partition consumers for asyncio. Any number of them share one client.

    Takes the options of `AsyncConsumer`, except group options, `auto_offset_reset` and deserializers.
    """

    @hide_secrets
    def __init__(self, bootstrap_servers: str | Iterable[str], **config: Unpack[ConsumerConfig]) -> None:
        group_id, offset_reset = config.get("group_id"), config.get("auto_offset_reset", "none")
        if group_id is not None:
            raise ConfigError(
                "group_id",
                group_id,
                "leave it out, because this class commits no offsets (ConsumerGroup does)",
            )
        if offset_reset != "none":
            allowed = "leave it out, because consume_partition() takes the offset at which to begin"
            raise ConfigError("auto_offset_reset", offset_reset, allowed)
        require_bytes(config)
        config["auto_offset_reset"] = "none"
        self.consumer = AsyncConsumer(bootstrap_servers, **config)
        self._open_consumers: dict[TopicPartition, AsyncPartitionConsumer] = {}
        self._opening_partitions: set[TopicPartition] = set()
        self._poll_task: asyncio.Task[None] | None = None
        self._closed = False

    async def consume_partition(
        self, topic: str, partition: int, offset: Start = NEWEST
    ) -> AsyncPartitionConsumer:
        """Start reading a partition at `offset`: a number, `OLDEST` or `NEWEST`.

        Raises UnknownTopic if the partition does not exist, OffsetOutOfRange if the offset is outside the
        log, and IllegalState if the partition is already being consumed.
        """
        checked_partition = topic_partition(topic, partition)
        is_named = isinstance(offset, str) and offset in (OLDEST, NEWEST)
        if not is_named and (type(offset) is not int or offset < 0):
            raise ConfigError("offset", offset, "allowed: an offset of at least 0, OLDEST or NEWEST")
        self._check_open()
        if checked_partition in self._open_consumers or checked_partition in self._opening_partitions:
            raise IllegalState(f"{checked_partition} is already being consumed; close() its consumer first")
        self._opening_partitions.add(checked_partition)
        try:
            start, end = await self._resolve_offset(checked_partition, offset)
        finally:
            self._opening_partitions.discard(checked_partition)
        self._check_open()
        consumer = AsyncPartitionConsumer(self, checked_partition, start, end)
        self._open_consumers[checked_partition] = consumer
        # The value None keeps the position of a partition that is already being consumed.
        start_offsets: dict[TopicPartition, int | None] = dict.fromkeys(self._open_consumers)
        start_offsets[checked_partition] = start
        self.consumer.assign(start_offsets)
        if self._poll_task is None or self._poll_task.done():
            self._poll_task = asyncio.create_task(self._run_poll_loop())
        return consumer

    async def _resolve_offset(self, partition: TopicPartition, offset: Start) -> tuple[int, int]:
        """Return the offset at which to start, and the offset after the last record."""
        if partition not in await self.consumer.partitions_for(partition.topic):
            raise UnknownTopic(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "Metadata", str(partition))
        earliest = (await self.consumer.list_offsets({partition: "earliest"}))[partition]
        latest = (await self.consumer.list_offsets({partition: "latest"}))[partition]
        log_start, log_end = earliest.offset or 0, latest.offset or 0
        start = log_start if offset == OLDEST else log_end if offset == NEWEST else offset
        if not log_start <= start <= log_end:
            detail = f"{partition} has offsets from {log_start} to {log_end}, not {start}"
            raise OffsetOutOfRange(ErrorCode.OFFSET_OUT_OF_RANGE, "ListOffsets", detail)
        return start, log_end

    async def partitions(self, topic: str) -> list[int]:
        """Return the numbers of the topic's partitions. Raises UnknownTopic if the topic is missing."""
        return sorted(partition.partition for partition in await self.consumer.partitions_for(topic))

    def high_water_marks(self) -> dict[TopicPartition, int]:
        """Return the `high_water_mark` of each partition that is being consumed."""
        return {partition: consumer.high_water_mark for partition, consumer in self._open_consumers.items()}

    def pause_all(self) -> None:
        """Pause all partitions that are being consumed."""
        for consumer in self._open_consumers.values():
            consumer.pause()

    def resume_all(self) -> None:
        """Resume all partitions that are being consumed."""
        for consumer in self._open_consumers.values():
            consumer.resume()

    def remove(self, consumer: AsyncPartitionConsumer, error: Exception | None = None) -> None:
        """Stop the consumer of one partition.

        If `error` is given, the consumer's `errors()` reports it.
        """
        if self._open_consumers.get(consumer.topic_partition) is consumer:
            del self._open_consumers[consumer.topic_partition]
            with contextlib.suppress(IllegalState):  # `assign` fails if the client is closed.
                self.consumer.assign(dict.fromkeys(self._open_consumers))
        consumer.stop(error)

    async def close(self, timeout: float = 30.0) -> None:
        """Stop all partitions, and close the client."""
        timeout = seconds("timeout", timeout)
        self._closed = True
        for consumer in list(self._open_consumers.values()):
            self.remove(consumer)
        try:
            if self._poll_task is not None:
                self._poll_task.cancel()
                await asyncio.wait([self._poll_task])
        finally:
            await self.consumer.close(timeout=timeout)

    def _check_open(self) -> None:
        if self._closed:
            raise IllegalState("these partition consumers are closed; make new ones")

    async def _run_poll_loop(self) -> None:
        """Poll and distribute records and errors, until no partition is being consumed."""
        throttle = ErrorThrottle()
        while self._open_consumers:
            try:
                records = await self.consumer.poll(POLL_S)
            except OffsetOutOfRange as error:
                await self._remove_out_of_range(error)
            # The last partition was closed during this poll. Another partition may have been added since, so
            # the loop continues.
            except IllegalState:
                await asyncio.sleep(RECHECK_S)
            except KprotoError as error:
                if throttle.passes(error):
                    log.warning("%s: %s", self.consumer.options.client_id, error)
                    for consumer in self._open_consumers.values():
                        consumer.error_channel.put(error)
                await asyncio.sleep(ERROR_PAUSE_S)
            # The client has failed: end all queues, so that no reader waits for records.
            except Exception as error:
                for consumer in list(self._open_consumers.values()):
                    self.remove(consumer, error)
                raise
            else:
                self._distribute(records)

    async def _remove_out_of_range(self, error: OffsetOutOfRange) -> None:
        """Stop the partitions whose position is outside the log: `position` raises an error for them.

        If `error` names the partition of a consumer, this consumer reports `error`. The other stopped
        consumers report the error that `position` raised for them.
        """
        for consumer in list(self._open_consumers.values()):
            try:
                await self.consumer.position(consumer.topic_partition, timeout=0)
            except RequestTimedOut:
                pass
            except KprotoError as position_error:
                partition = str(consumer.topic_partition)
                is_named = error.detail.startswith((f"{partition} ", f"{partition}:"))
                self.remove(consumer, error if is_named else position_error)

    def _distribute(self, records: list[ConsumerRecord]) -> None:
        """Add each record to the queue of its partition."""
        by_partition: dict[TopicPartition, list[ConsumerRecord]] = {}
        for record in records:
            by_partition.setdefault(TopicPartition(record.topic, record.partition), []).append(record)
        for partition, partition_records in by_partition.items():
            if partition in self._open_consumers:
                self._open_consumers[partition].put(partition_records)
