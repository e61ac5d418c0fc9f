"""Collects records into batches: the part of a producer that runs in the application's threads.

Rules (Java's RecordAccumulator):

* One batch per partition accepts records, until it is full or the sender takes it. A record is one entry in a
  list, or four. Nothing is encoded or searched here: this is the innermost loop.
* `buffer.memory` bounds the memory before compression, from the arrival of a record until its response. While
  half of it is in use, a partition whose oldest record has waited for a second accepts no more, so records
  that cannot be delivered leave room for others.
* A record is appended without a lock: nothing is called between the check of the batch's room and the append,
  so no other thread, signal handler or finalizer can run there. They may run anywhere else, and may send.
  Without a GIL `take` holds the guard.
* Rare steps hold the guard for a moment: a new batch, the end of a batch, an unknown topic. No code of the
  application runs inside it, except signal handlers and finalizers.
* Every open batch is in `open`, so that all can be failed when the producer ends.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from random import Random
from typing import Any

import msgspec

from kproto.error_codes import ErrorCode
from kproto.errors import IllegalState, KprotoError
from kproto.group.subscription import TopicPartition
from kproto.records.builder import UnnumberedBatch

from ...delivery import Delivery
from ...errors import broker_error
from ...options import ProducerOptions
from ...validation import topic_name
from ..timing import SENDER_WAKEUP_MS, STALLED_PARTITION_MS
from .batches import (
    NO_BATCH,
    DeliveryFailures,
    Headers,
    PartitionQueue,
    ProducerBatch,
    fate,
)
from .partitioner import Partitioner

# Most bytes of a record besides its content: seven varints, and more for each header.
RECORD_OVERHEAD = 30
HEADER_OVERHEAD = 10
BATCH_OVERHEAD = 61
# A new batch reserves this much memory, then twice as much again up to `batch.size`.
FIRST_BYTES = 4096
# Whether threads are only switched at instructions that call something.
GIL = sys.implementation.name == "cpython" and getattr(sys, "_is_gil_enabled", lambda: True)()


class TopicRoute(msgspec.Struct):
    """The partitions of a topic: all queues, those that have a leader, and the current sticky one."""

    topic: str
    lanes: list[PartitionQueue]
    led: list[PartitionQueue]
    sticky: PartitionQueue
    # Number of Metadata responses for the topic.
    version: int = 0
    # Bytes that `sticky` received since records without a key go there.
    spent: int = 0


class Notifications(msgspec.Struct):
    """What the sender has to handle: new batches, queues to visit, topics without metadata."""

    begun: list[ProducerBatch] = msgspec.field(default_factory=list[ProducerBatch])
    ripe: list[PartitionQueue] = msgspec.field(default_factory=list[PartitionQueue])
    unknown: dict[str, None] = msgspec.field(default_factory=dict[str, None])


class RecordAccumulator:
    """The records of a producer that were not sent yet."""

    # Whether each record must go through `take`; otherwise the commonest case may append as `take` does.
    gated = not GIL

    def __init__(
        self,
        options: ProducerOptions,
        random: Random,
        clock: Callable[[], int],
        guard: AbstractContextManager[Any] | None = None,
    ) -> None:
        self.guard: AbstractContextManager[Any] = nullcontext() if guard is None else guard
        self.routes: dict[str, TopicRoute] = {}
        self.lanes: dict[TopicPartition, PartitionQueue] = {}
        self.open: dict[ProducerBatch, None] = {}
        self.buffered = 0
        self.ledger = DeliveryFailures()
        self.owner: Any = None
        # Called with the guard held when the sender has something to do.
        self.stir: Callable[[], object] = self._note
        # Set by the default of `stir`, for a caller without a thread to wake.
        self.stirred = False
        self.why = ""
        # Why no records are accepted; "" while they are.
        self.closed = ""
        self.partitioner = Partitioner()
        self._hashes = self.partitioner.hashes
        self._options = options
        self._random = random
        self._clock = clock
        self._news = Notifications()
        # Topic -> (why it cannot be written to, since when). Raised by waiting sends, not by later ones.
        self.refused: dict[str, tuple[KprotoError, int]] = {}
        self._asked: set[str] = set()
        # Partition -> (version of its topic's metadata when it was first missing, time of the last attempt).
        self._sought: dict[TopicPartition, tuple[int, int]] = {}
        if not GIL:
            take = self.take

            def guarded(*record: Any) -> Delivery | None:
                with self.guard:
                    return take(*record)

            setattr(self, "take", guarded)  # noqa: B010

    def take(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        partition: int | None,
        timestamp: int,
        headers: Headers,
    ) -> Delivery | None:
        """Append a record; return None if there is no room or no metadata yet (`why` says which).

        Raises BrokerError for a topic or partition that cannot be written to, and for a record larger than
        max_request_size.
        """
        route = self.routes.get(topic)
        if route is None:
            topic_name(topic)  # an invalid name would make the request for all topics fail
            self._ask_for(topic)
            return None
        size = RECORD_OVERHEAD if value is None else RECORD_OVERHEAD + len(value)
        if key is not None:
            size += len(key)
            if partition is None:
                number = self._hashes.get(key)
                if number is None:
                    number = self.partitioner.number(key)
                lanes = route.lanes
                lane = lanes[number % len(lanes)]
            elif partition < len(route.lanes):
                lane = route.lanes[partition]
            else:
                self._missing(route, partition)
                return None
        elif partition is None:
            lane = route.sticky
        elif partition < len(route.lanes):
            lane = route.lanes[partition]
        else:
            self._missing(route, partition)
            return None
        if headers:
            size += sum([HEADER_OVERHEAD + 3 * len(name) + len(content or b"") for name, content in headers])
        row = timestamp, key, value, headers
        plain = key is None and not headers
        batch = lane.filling
        room = batch.left - size
        while room < 0 or not (batch.moment is None or (plain and batch.moment is timestamp)):
            with self.guard:
                if room < 0:
                    open_batch = self._room(route, lane, size, key is None and partition is None)
                    if open_batch is None:
                        return None
                    batch = open_batch
                elif not (plain and batch.begin_moment(timestamp)):
                    batch.widen()
            room = batch.left - size
        batch.left = room
        index = batch.count
        batch.count = index + 1
        if batch.moment is None:
            batch.rows += row
        else:
            batch.rows.append(value)
        return Delivery(batch, index)

    def count(self, topic: str) -> int | None:
        """Return the number of partitions; None while it is unknown. Raises as `take` does."""
        route = self.routes.get(topic)
        if route is None:
            self._ask_for(topic)
            return None
        return len(route.lanes)

    def put(
        self, topic: str, partition: int | None, encoded: UnnumberedBatch, timestamps: Sequence[int]
    ) -> ProducerBatch | None:
        """Append a whole batch; return None and raise as `take` does. The guard must be held."""
        route, options = self.routes.get(topic), self._options
        if route is None:
            self._ask_for(topic)
            return None
        if partition is not None and partition >= len(route.lanes):
            self._missing(route, partition)
            return None
        size = len(encoded)
        if size > options.max_request_size:
            detail = f"a batch of {size} bytes for {topic!r}; max_request_size is {options.max_request_size}"
            raise broker_error(ErrorCode.MESSAGE_TOO_LARGE, "Produce", detail)
        lane = route.sticky if partition is None else route.lanes[partition]
        if self.buffered and self.buffered + size > options.buffer_memory:
            self._full()
            return None
        if self._crowded(lane):
            return None
        if lane.filling is not NO_BATCH:
            self.seal(lane.filling)
        now = self._clock()
        lane.batches += 1
        batch = ProducerBatch(lane, size, now, now + options.delivery_timeout_ms, (lane.batches,))
        batch.made, batch.timestamps, batch.count = encoded, timestamps, encoded.count
        batch.sealed, batch.left = True, -1
        self.buffered += size
        self.open[batch] = None
        self._news.begun.append(batch)
        self._news.ripe.append(lane)
        if partition is None:
            self.move_on(route)
        self.stir()
        return batch

    def _missing(self, route: TopicRoute, partition: int) -> None:
        """Raise an error for a partition that does not exist after two more Metadata responses.

        The topic may have grown since: the first response may have been on its way by then. Responses before
        this attempt do not count.
        """
        topic_partition, now = TopicPartition(route.topic, partition), self._clock()
        with self.guard:
            first_version, last_attempt = self._sought.get(topic_partition, (route.version, now))
            # the earlier sender gave up: one that waits tries again after each response
            if now - last_attempt > self._options.request_timeout_ms:
                first_version = route.version
            self._sought[topic_partition] = first_version, now
            if route.version > first_version + 1:
                del self._sought[topic_partition]
                detail = f"{topic_partition}: the topic has the partitions 0 to {len(route.lanes) - 1}"
                raise broker_error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "Produce", detail)
            self.why = f"no metadata for {topic_partition} yet"
            self._news.unknown[route.topic] = None
            self.stir()

    def _ask_for(self, topic: str) -> None:
        """Request metadata of a topic, or raise why it cannot be written to."""
        if self.closed:
            raise IllegalState(self.closed)
        with self.guard:
            error, at = self.refused.pop(topic, (None, 0))
            if error is not None and self._clock() - at <= SENDER_WAKEUP_MS:
                raise error
            self.why = f"no metadata for topic {topic!r} yet"
            self._asked.add(topic)
            self._news.unknown[topic] = None
            self.stir()

    def _room(
        self, route: TopicRoute, lane: PartitionQueue, size: int, movable: bool
    ) -> ProducerBatch | None:
        """Return a batch with room for a record of this size; None if there is no memory. The guard must be
        held.
        """
        if self.closed:
            raise IllegalState(self.closed)
        options = self._options
        max_size = max(options.batch_size, size + BATCH_OVERHEAD)
        if size + BATCH_OVERHEAD > options.max_request_size:
            detail = (
                f"a record of {size} bytes for {route.topic!r}; "
                f"max_request_size is {options.max_request_size}, {BATCH_OVERHEAD} of them for the batch"
            )
            raise broker_error(ErrorCode.MESSAGE_TOO_LARGE, "Produce", detail)
        batch = lane.filling
        if batch is not NO_BATCH:
            used = batch.size - batch.left
            if used + size <= options.batch_size:
                return batch if self._grow(batch, used + size) else None
            self.seal(batch)
            if movable:
                if route.sticky is lane:
                    self.move_on(route)
                lane = route.sticky
                if lane.filling.left >= size:
                    return lane.filling
                if lane.filling is not NO_BATCH:
                    return self._room(route, lane, size, movable=False)
        if self._crowded(lane):
            return None
        wanted = min(max_size, max(FIRST_BYTES, size + BATCH_OVERHEAD))
        available = options.buffer_memory - self.buffered
        if wanted > available and self.buffered:
            wanted = size + BATCH_OVERHEAD
            if wanted > available:
                self._full()
                return None
        now = self._clock()
        lane.batches += 1
        batch = ProducerBatch(lane, wanted, now, now + options.delivery_timeout_ms, (lane.batches,))
        batch.left -= BATCH_OVERHEAD
        # This order matters, as Ctrl-C may come in between: a batch without a record ends by itself.
        self.stir()
        self.buffered += wanted
        self._news.begun.append(batch)
        self.open[batch] = None
        lane.filling = batch
        return batch

    def _grow(self, batch: ProducerBatch, used: int) -> bool:
        """Reserve more memory for a batch; return False if there is none."""
        wanted = min(self._options.batch_size, 2 * batch.size)
        wanted = max(wanted, used) - batch.size
        available = self._options.buffer_memory - self.buffered
        if wanted > available:
            wanted = used - batch.size
            if wanted > available:
                self._full()
                return False
        if batch.sealed:
            return True  # sealed by another thread; the caller sees that it has no room
        batch.size += wanted
        batch.left += wanted
        self.buffered += wanted
        return True

    def _full(self) -> None:
        """Note that the buffer is full, and send everything."""
        self.why = f"the buffer of {self._options.buffer_memory} bytes is full"
        self.seal_all()

    def _crowded(self, lane: PartitionQueue) -> bool:
        """Return whether this partition uses memory that others need: no progress while half of it is in use."""
        options = self._options
        if self.buffered * 2 <= options.buffer_memory:
            return False
        oldest = lane.oldest()
        if oldest is None or self._clock() - oldest < STALLED_PARTITION_MS + options.linger_ms:
            return False
        self.why = (
            f"{lane.partition} has not been delivered to for {self._clock() - oldest} ms, "
            f"and half of the buffer of {options.buffer_memory} bytes is in use"
        )
        return True

    def move_on(self, route: TopicRoute) -> None:
        """Send records without a key to another partition from now on."""
        available = route.led
        if len(available) > 1 or available[0] is not route.sticky:
            queues = [lane for lane in available if lane is not route.sticky]
            route.sticky = queues[int(self._random.random() * len(queues))]
        route.spent = 0

    def seal(self, batch: ProducerBatch) -> None:
        """Let the batch accept no more records. The guard must be held."""
        if batch.sealed:
            return
        batch.sealed = True
        lane = batch.lane
        room, batch.left = batch.left, -1
        batch.size -= room
        self.buffered -= room
        if lane.filling is batch:
            lane.filling = NO_BATCH
        route = self.routes.get(lane.partition.topic)
        if route is not None and route.sticky is lane:
            route.spent += batch.size
            if route.spent >= self._options.batch_size:
                self.move_on(route)
        self._news.ripe.append(lane)
        self.stir()

    def seal_all(self) -> None:
        """Let the sender take every batch. The guard must be held."""
        for batch in [batch for batch in self.open if not batch.sealed]:
            self.seal(batch)

    def urgent(self) -> bool:
        """Return whether something must be handled without waiting for linger.ms."""
        return bool(self._news.ripe or self._news.unknown)

    def changed(self) -> bool:
        """Return whether the sender has something to handle."""
        notifications = self._news
        return bool(notifications.begun or notifications.ripe or notifications.unknown)

    def news(self) -> Notifications | None:
        """Remove and return what the sender has to handle, None for nothing."""
        if not self.changed():
            return None
        with self.guard:
            notifications, self._news = self._news, Notifications()
        return notifications

    def route(self, topic: str, count: int, led: Iterable[int]) -> None:
        """Set the partitions of a topic, and which of them have a leader."""
        with self.guard:
            if self.closed:
                return
            old = self.routes.get(topic)
            self.refused.pop(topic, None)
            self._asked.discard(topic)
            lanes = [self._lane(topic, index) for index in range(count)]
            available = [lanes[index] for index in led] or lanes
            route = self.routes[topic] = TopicRoute(topic, lanes, available, available[0])
            route.version = 1 if old is None else old.version + 1
            if old is not None and old.sticky in available:
                route.sticky, route.spent = old.sticky, old.spent
            elif len(available) > 1:
                route.sticky = available[int(self._random.random() * len(available))]

    def _lane(self, topic: str, index: int) -> PartitionQueue:
        """Return the queue of a partition."""
        topic_partition = TopicPartition(topic, index)
        lane = self.lanes.get(topic_partition)
        if lane is None:
            lane = self.lanes[topic_partition] = PartitionQueue(topic_partition, self.owner)
        return lane

    def forget(self, topic: str) -> None:
        """Forget a topic: sends wait for metadata again."""
        with self.guard:
            self.routes.pop(topic, None)

    def refuse(self, topic: str, error: KprotoError) -> None:
        """Fail the sends that are waiting for this topic; if there are none, the next send requests metadata."""
        with self.guard:
            if topic in self._asked:
                self._asked.remove(topic)
                self.refused[topic] = error, self._clock()

    def divided(
        self, batch: ProducerBatch, parts: list[ProducerBatch], places: list[tuple[ProducerBatch, int]]
    ) -> None:
        """Replace a batch by its parts; callbacks move with their records."""
        with self.guard:
            self.open.pop(batch, None)
            self.open.update(dict.fromkeys(parts))
            for index, callback in batch.callbacks or ():
                part, part_index = places[index]
                part.callbacks = [*(part.callbacks or ()), (part_index, callback)]
            batch.callbacks = None
            batch.data = None
            batch.places = places

    def call_back(self, batch: ProducerBatch, index: int, callback: Callable[[], object]) -> bool:
        """Call `callback` when the record's delivery ends; return False if it has ended."""
        with self.guard:
            batch, index = fate(batch, index)
            if batch.done:
                return False
            if batch.callbacks is None:
                batch.callbacks = []
            batch.callbacks.append((index, callback))
            return True

    def looked_at(self, batch: ProducerBatch, index: int) -> None:
        """Note that the application knows of this record's failure: `take_failures` does not count it."""
        with self.guard:
            batch, index = fate(batch, index)
            if batch.seen is None:
                batch.seen = set()
            if batch.ledger is not None and index not in batch.seen:
                batch.seen.add(index)
                batch.ledger.count -= 1

    def end(self, batch: ProducerBatch) -> list[Callable[[], object]]:
        """End a batch and free its memory; return the callbacks to call outside of the guard."""
        with self.guard:
            self.seal(batch)
            batch.done = True
            self.open.pop(batch, None)
            self.buffered -= batch.size
            callbacks, batch.callbacks = batch.callbacks, None
            if batch.error is not None:
                batch.ledger = ledger = self.ledger
                batch.seen = {index for index, _ in callbacks or ()}
                ledger.count += len(batch) - len(batch.seen)
                if ledger.first is None:
                    ledger.first = batch.error
            batch.data = batch.made = None
        return [] if callbacks is None else [callback for _, callback in callbacks]

    def _note(self) -> None:
        """Note that the sender has something to do."""
        self.stirred = True

    def close(self, why: str) -> None:
        """Accept no more records. May be called by any thread."""
        with self.guard:
            self.closed = self.closed or why
            self.routes.clear()

    def tell(self) -> DeliveryFailures:
        """Remove and return the unreported failures. The guard must be held."""
        ledger, self.ledger = self.ledger, DeliveryFailures()
        return ledger

    @property
    def open_records(self) -> int:
        """The number of records whose delivery has not ended."""
        return sum(map(len, list(self.open)))
