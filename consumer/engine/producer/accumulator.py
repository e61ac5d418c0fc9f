"""Collects records into batches: the part of a producer that runs in the application's threads.

Rules (Java's RecordAccumulator):

* One batch per partition accepts records. When it is full, or when the sender sends it, the batch is sealed
  and accepts no further records.

* `take` is called for each record, so it only appends the record's fields to a list. The sender encodes the
  batch later.

* `buffer.memory` limits the uncompressed size of all records between their append and their response.

* While more than half of the memory is in use, a partition whose oldest record has waited for a second longer
  than linger.ms accepts no more records. So undeliverable records leave memory for other partitions.

* With a GIL, a record is appended without a lock. No function is called between the check of the batch's free
  memory and the append. So no other thread, signal handler or finalizer runs between them.

* At any other point in `take`, other threads, signal handlers and finalizers may send records.

* Without a GIL, `take` holds the producer's lock (the guard).

* Rare operations hold the guard for a short time: to start a batch, to complete one, or to handle an unknown
  topic. The thread that holds the guard runs only the library's code, signal handlers and finalizers.

* `open` contains every undelivered batch, so that all of them can be failed when the producer ends.
"""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import accumulate
from random import Random
from typing import Any

from kproto.error_codes import ErrorCode
from kproto.errors import IllegalState, KprotoError
from kproto.group.subscription import TopicPartition
from kproto.records.builder import UnnumberedBatch

from ...delivery import Delivery
from ...errors import broker_error
from ...producer_options import ProducerOptions
from ...validation import topic_name
from ..timeouts import SENDER_WAKEUP_MS, STALLED_PARTITION_MS
from .batches import (
    NO_BATCH,
    DeliveryFailures,
    Headers,
    Notifications,
    PartitionQueue,
    ProducerBatch,
    TopicRoute,
    current_place,
)
from .partitioner import Partitioner

# Upper estimates of the number of bytes that the encoding adds: to a record, six varints and a byte of
# attributes; to each of its headers, two lengths.
RECORD_OVERHEAD = 30
HEADER_OVERHEAD = 10
BATCH_OVERHEAD = 61
# Number of bytes that a new batch reserves, or more if its first record needs more. Later, `_grow` extends
# the reservation up to `batch.size`.
FIRST_BYTES = 4096

# Number of bytes after which another partition is selected for records without a key: Java's default of
# batch.size, as in its BuiltInPartitioner. Batches may become larger.
STICKY_BYTES = 16 * 1024
# Time (ms) after which the waiting batches of a topic's partitions are counted again. Counting takes 0.1 ms
# for 1,000 partitions, which is too slow to repeat for each `STICKY_BYTES`.
SHARES_MS = 10
# Whether the interpreter switches threads only at function calls and at the backward jumps of loops. If it
# does, `take` appends without a lock.
GIL = sys.implementation.name == "cpython" and getattr(sys, "_is_gil_enabled", lambda: True)()


class RecordAccumulator:
    """The batches of a producer, from the append of their records until the end of their delivery."""

    # Whether callers must append every record through `take`. If false, a caller may inline the statements of
    # `take` for a record without key and headers.
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
        self.queues: dict[TopicPartition, PartitionQueue] = {}
        self.open: dict[ProducerBatch, None] = {}
        self.buffered = 0
        self.delivery_failures = DeliveryFailures()
        self.owner: Any = None
        # Wakes the sender when it has a notification. Called with the guard held.
        self.notify_sender: Callable[[], object] = self._set_notified
        # Only for producers without a sender thread: `notify_sender` sets this flag, and the next `send` runs
        # the engine and clears it.
        self.sender_notified = False
        # Why the last record could not be appended yet, and whether it waits for memory or for metadata.
        self.why = ""
        self.waits_for_memory = False
        # Why no records are accepted; "" while the accumulator accepts them.
        self.closed = ""
        self.partitioner = Partitioner()
        self._hashes = self.partitioner.hashes
        self._options = options
        self._sticky_limit = min(STICKY_BYTES, options.batch_size)
        self._random = random
        self._clock = clock
        self._notifications = Notifications()
        # Topic -> (error that prevents sends to the topic, time of the error). Sends that were waiting at
        # this time raise the error. Later sends request metadata again.
        self.topic_errors: dict[str, tuple[KprotoError, int]] = {}
        self._requested: set[str] = set()
        # Missing partition -> (version of its topic's metadata at the first attempt to send, time of the last
        # attempt).
        self._missing_partitions: dict[TopicPartition, tuple[int, int]] = {}
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
        """Append a record and return its delivery.

        The result is None if buffer memory or metadata is not available yet; `why` then says which.

        Raises BrokerError for a topic or partition that cannot be written to, and for a record larger than
        max_request_size.
        """
        route = self.routes.get(topic)
        if route is None:
            # An invalid topic name would make a Metadata request fail for all of its topics.
            topic_name(topic)
            self._request_metadata(topic)
            return None
        size = RECORD_OVERHEAD if value is None else RECORD_OVERHEAD + len(value)
        if key is not None:
            size += len(key)
            if partition is None:
                number = self._hashes.get(key)
                if number is None:
                    number = self.partitioner.number(key)
                queues = route.queues
                queue = queues[number % len(queues)]
            elif partition < len(route.queues):
                queue = route.queues[partition]
            else:
                self._on_missing_partition(route, partition)
                return None
        elif partition is None:
            queue = route.sticky
        elif partition < len(route.queues):
            queue = route.queues[partition]
        else:
            self._on_missing_partition(route, partition)
            return None
        if headers:
            size += sum([HEADER_OVERHEAD + 4 * len(name) + len(content or b"") for name, content in headers])
        row = timestamp, key, value, headers
        plain = key is None and not headers
        batch = queue.filling
        room = batch.room - size
        while room < 0 or not (
            batch.shared_timestamp is None or (plain and batch.shared_timestamp is timestamp)
        ):
            with self.guard:
                if room < 0:
                    open_batch = self._batch_with_room(route, queue, size, key is None and partition is None)
                    if open_batch is None:
                        return None
                    batch = open_batch
                elif not (plain and batch.start_timestamp_run(timestamp)):
                    batch.use_general_rows()
            room = batch.room - size
        batch.room = room
        index = batch.count
        batch.count = index + 1
        if batch.shared_timestamp is None:
            batch.rows += row
        else:
            batch.rows.append(value)
        return Delivery(batch, index)

    def route_of(self, topic: str) -> TopicRoute | None:
        """Return the partitions of a topic; None while they are unknown. Raises as `take` does."""
        route = self.routes.get(topic)
        if route is None:
            self._request_metadata(topic)
        return route

    def count(self, topic: str) -> int | None:
        """Return the topic's number of partitions; None while it is unknown. Raises as `take` does."""
        route = self.route_of(topic)
        return None if route is None else len(route.queues)

    def append_batch(
        self, topic: str, partition: int | None, encoded: UnnumberedBatch, timestamps: Sequence[int]
    ) -> ProducerBatch | None:
        """Append a whole encoded batch and return it; return None or raise as `take` does.

        The guard must be held.
        """
        route, options = self.routes.get(topic), self._options
        if route is None:
            self._request_metadata(topic)
            return None
        if partition is not None and partition >= len(route.queues):
            self._on_missing_partition(route, partition)
            return None
        size = len(encoded)
        if size > options.max_request_size:
            detail = f"a batch of {size} bytes for {topic!r}; max_request_size is {options.max_request_size}"
            raise broker_error(ErrorCode.MESSAGE_TOO_LARGE, "Produce", detail)
        queue = route.sticky if partition is None else route.queues[partition]
        if self.buffered and self.buffered + size > options.buffer_memory:
            self._on_buffer_full()
            return None
        if self._is_stalled(queue):
            return None
        if queue.filling is not NO_BATCH:
            self.seal(queue.filling)
        now = self._clock()
        queue.batches += 1
        batch = ProducerBatch(queue, size, now, now + options.delivery_timeout_ms, (queue.batches,))
        batch.encoded, batch.timestamps, batch.count = encoded, timestamps, encoded.count
        batch.sealed, batch.room = True, -1
        self.buffered += size
        self.open[batch] = None
        self._notifications.new_batches.append(batch)
        self._notifications.queues_to_visit.append(queue)
        if partition is None:
            self.change_sticky_partition(route)
        self.notify_sender()
        return batch

    def _on_missing_partition(self, route: TopicRoute, partition: int) -> None:
        """Request metadata, or raise if two new Metadata responses still lack the partition.

        Both responses must arrive after the first attempt to send. A broker may have built an earlier
        response before the partition existed.
        """
        topic_partition, now = TopicPartition(route.topic, partition), self._clock()
        with self.guard:
            first_version, last_attempt = self._missing_partitions.get(topic_partition, (route.version, now))
            # A waiting send tries again after each Metadata response, usually within a request timeout. If
            # the last attempt is older, it belongs to an earlier send that was abandoned, so the count of
            # responses starts again.
            if now - last_attempt > self._options.request_timeout_ms:
                first_version = route.version
            self._missing_partitions[topic_partition] = first_version, now
            if route.version > first_version + 1:
                del self._missing_partitions[topic_partition]
                detail = f"{topic_partition}: the topic has the partitions 0 to {len(route.queues) - 1}"
                raise broker_error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "Produce", detail)
            self.why, self.waits_for_memory = f"no metadata for {topic_partition} yet", False
            self._notifications.unknown_topics[route.topic] = None
            self.notify_sender()

    def _request_metadata(self, topic: str) -> None:
        """Request the metadata of a topic, or raise the error that prevents writes to the topic."""
        if self.closed:
            raise IllegalState(self.closed)
        with self.guard:
            error, at = self.topic_errors.pop(topic, (None, 0))
            if error is not None and self._clock() - at <= SENDER_WAKEUP_MS:
                raise error
            self.why, self.waits_for_memory = f"no metadata for topic {topic!r} yet", False
            self._requested.add(topic)
            self._notifications.unknown_topics[topic] = None
            self.notify_sender()

    def _batch_with_room(
        self, route: TopicRoute, queue: PartitionQueue, size: int, movable: bool
    ) -> ProducerBatch | None:
        """Return a batch with free memory for a record of this size; None if buffer.memory is exhausted.

        The guard must be held.
        """
        if self.closed:
            raise IllegalState(self.closed)
        options = self._options
        if size + BATCH_OVERHEAD > options.max_request_size:
            detail = (
                f"a record of {size} bytes for {route.topic!r}; "
                f"max_request_size is {options.max_request_size}, {BATCH_OVERHEAD} of them for the batch"
            )
            raise broker_error(ErrorCode.MESSAGE_TOO_LARGE, "Produce", detail)
        while (batch := queue.filling) is not NO_BATCH:
            is_sticky = route.sticky is queue
            used = batch.size - batch.room + size
            fits = used <= options.batch_size
            if fits and not (movable and (not is_sticky or route.sticky_bytes + used > self._sticky_limit)):
                stepwise = is_sticky and len(route.candidates) > 1
                return batch if batch.room >= size or self._grow(batch, used, stepwise=stepwise) else None
            if not fits:
                self.seal(batch)
            if not movable:
                break
            if route.sticky is queue:
                self.change_sticky_partition(route)
            queue, movable = route.sticky, False
        if self._is_stalled(queue):
            return None
        wanted = max(min(options.batch_size, FIRST_BYTES), size + BATCH_OVERHEAD)
        available = options.buffer_memory - self.buffered
        if wanted > available and self.buffered:
            wanted = size + BATCH_OVERHEAD
            if wanted > available:
                self._on_buffer_full()
                return None
        now = self._clock()
        queue.batches += 1
        batch = ProducerBatch(queue, wanted, now, now + options.delivery_timeout_ms, (queue.batches,))
        batch.room -= BATCH_OVERHEAD
        # Ctrl-C may interrupt between any two of these statements. In this order, the sender knows every
        # batch for which memory is reserved, and can remove a batch that Ctrl-C left empty.
        self.notify_sender()
        self.buffered += wanted
        self._notifications.new_batches.append(batch)
        self.open[batch] = None
        queue.filling = batch
        return batch

    def _grow(self, batch: ProducerBatch, used: int, *, stepwise: bool) -> bool:
        """Reserve more memory for a batch; return False if buffer.memory does not suffice.

        If `stepwise` is true, the batch is in the sticky partition and grows by at most `STICKY_BYTES` at a
        time. Before each of these steps, the caller checks whether to select another sticky partition.
        """
        step = STICKY_BYTES if stepwise else batch.size
        wanted = min(self._options.batch_size, batch.size + min(step, batch.size))
        wanted = max(wanted, used) - batch.size
        available = self._options.buffer_memory - self.buffered
        if wanted > available:
            wanted = used - batch.size
            if wanted > available:
                self._on_buffer_full()
                return False
        if batch.sealed:
            return True  # Another thread has sealed the batch. The caller checks `room` again.
        batch.size += wanted
        batch.room += wanted
        self.buffered += wanted
        return True

    def _on_buffer_full(self) -> None:
        """Record that buffer.memory is used up, and seal all batches, so that the sender sends them."""
        self.why, self.waits_for_memory = f"the buffer of {self._options.buffer_memory} bytes is full", True
        self.seal_all()

    def _is_stalled(self, queue: PartitionQueue) -> bool:
        """Return whether the partition accepts no records now.

        While more than half of buffer.memory is in use, a partition accepts no records if its oldest batch
        has waited for `STALLED_PARTITION_MS` in addition to linger.ms.
        """
        options = self._options
        if self.buffered * 2 <= options.buffer_memory:
            return False
        oldest = queue.oldest()
        if oldest is None or self._clock() - oldest < STALLED_PARTITION_MS + options.linger_ms:
            return False
        self.why = (
            f"{queue.partition} has made no progress for {self._clock() - oldest} ms, "
            f"and half of the buffer of {options.buffer_memory} bytes is in use"
        )
        self.waits_for_memory = True
        return True

    def change_sticky_partition(self, route: TopicRoute) -> None:
        """Select a random partition for the next records without a key (KIP-794).

        The selected partition may be the same as before. As in Java's BuiltInPartitioner, partitions with
        fewer waiting batches are more likely to be selected. The batches are counted at most once every
        `SHARES_MS`.
        """
        now, shares = self._clock(), route.shares
        if not shares or now - route.shares_at >= SHARES_MS:
            loads = [len(queue.waiting) + (queue.filling is not NO_BATCH) for queue in route.candidates]
            most = max(loads) + 1
            shares = route.shares = list(accumulate([most - load for load in loads]))
            route.shares_at = now
        queue = route.candidates[bisect_right(shares, int(self._random.random() * shares[-1]))]
        filling = queue.filling
        route.sticky = queue
        route.sticky_bytes = 0 if filling is NO_BATCH else filling.room - filling.size

    def seal(self, batch: ProducerBatch) -> None:
        """Seal the batch: it accepts no further records. The guard must be held."""
        if batch.sealed:
            return
        batch.sealed = True
        queue = batch.queue
        room, batch.room = batch.room, -1
        batch.size -= room
        self.buffered -= room
        if queue.filling is batch:
            queue.filling = NO_BATCH
        route = self.routes.get(queue.partition.topic)
        if route is not None and route.sticky is queue:
            route.sticky_bytes += batch.size
            if route.sticky_bytes >= self._sticky_limit:
                self.change_sticky_partition(route)
        self._notifications.queues_to_visit.append(queue)
        self.notify_sender()

    def seal_all(self) -> None:
        """Seal all batches that accept records, so that the sender sends them. The guard must be held."""
        for batch in [batch for batch in self.open if not batch.sealed]:
            self.seal(batch)

    def needs_sender_now(self) -> bool:
        """Return whether the sender has a notification to handle now, without waiting for linger.ms."""
        return bool(self._notifications.queues_to_visit or self._notifications.unknown_topics)

    def has_notifications(self) -> bool:
        """Return whether there are notifications for the sender."""
        pending = self._notifications
        return bool(pending.new_batches or pending.queues_to_visit or pending.unknown_topics)

    def take_notifications(self) -> Notifications | None:
        """Remove and return the notifications for the sender; None if there are none."""
        if not self.has_notifications():
            return None
        with self.guard:
            notifications, self._notifications = self._notifications, Notifications()
        return notifications

    def route(self, topic: str, count: int, with_leader: Iterable[int], in_rack: Iterable[int] = ()) -> None:
        """Set the number of partitions of a topic, and the partitions that have a leader.

        `in_rack` contains the partitions whose leader is in the client's rack, if the client selects by rack
        (KIP-1123). If the leader of the sticky partition is no longer in this rack, the partition remains
        sticky until it has received the usual number of bytes, as in Java.
        """
        with self.guard:
            if self.closed:
                return
            old = self.routes.get(topic)
            self.topic_errors.pop(topic, None)
            self._requested.discard(topic)
            queues = [self._lane(topic, index) for index in range(count)]
            available = [queues[index] for index in with_leader] or queues
            candidates = [queues[index] for index in in_rack] or available
            route = self.routes[topic] = TopicRoute(topic, queues, available, candidates, candidates[0])
            route.version = 1 if old is None else old.version + 1
            if old is not None and old.sticky in available:
                route.sticky, route.sticky_bytes = old.sticky, old.sticky_bytes
            elif len(candidates) > 1:
                route.sticky = candidates[int(self._random.random() * len(candidates))]

    def set_candidates(self, topic: str, in_rack: Iterable[int]) -> None:
        """Select sticky partitions from `in_rack` or, if it is empty, from the partitions that have a leader.

        `in_rack` contains the partitions whose leader is now in the client's rack.
        """
        with self.guard:
            route = self.routes.get(topic)
            if route is not None:
                queues = route.queues
                route.candidates = [queues[i] for i in in_rack if i < len(queues)] or route.with_leader
                route.shares = []

    def _lane(self, topic: str, index: int) -> PartitionQueue:
        """Return the queue of a partition, and create it if necessary."""
        topic_partition = TopicPartition(topic, index)
        queue = self.queues.get(topic_partition)
        if queue is None:
            queue = self.queues[topic_partition] = PartitionQueue(topic_partition, self.owner)
        return queue

    def forget(self, topic: str) -> None:
        """Forget a topic's partitions and leaders, so that sends to the topic wait for metadata again."""
        with self.guard:
            self.routes.pop(topic, None)

    def fail_waiting_sends(self, topic: str, error: KprotoError) -> None:
        """Make the sends that wait for this topic raise `error`.

        If no send waits for the topic, the error is dropped, and the next send requests metadata.
        """
        with self.guard:
            if topic in self._requested:
                self._requested.remove(topic)
                self.topic_errors[topic] = error, self._clock()

    def on_split(
        self, batch: ProducerBatch, parts: list[ProducerBatch], places: list[tuple[ProducerBatch, int]]
    ) -> None:
        """Replace a batch with its parts, and move the callbacks of its records to the parts."""
        with self.guard:
            self.open.pop(batch, None)
            self.open.update(dict.fromkeys(parts))
            for index, callback, is_known in batch.callbacks or ():
                part, part_index = places[index]
                part.callbacks = [*(part.callbacks or ()), (part_index, callback, is_known)]
            batch.callbacks = None
            batch.data = None
            batch.places = places

    def add_callback(
        self, batch: ProducerBatch, index: int, callback: Callable[[], object], *, is_known: bool = True
    ) -> bool:
        """Call `callback` when the record's delivery ends. If it has already ended, return False instead.

        If `is_known` is true, the callback reports a failure to the application, so flush does not also raise
        NotDelivered for the record.
        """
        with self.guard:
            batch, index = current_place(batch, index)
            if batch.done:
                return False
            if batch.callbacks is None:
                batch.callbacks = []
            batch.callbacks.append((index, callback, is_known))
            return True

    def mark_failure_known(self, batch: ProducerBatch, index: int) -> None:
        """Record that the application knows of a record's failure. `take_failures` then does not count it."""
        with self.guard:
            batch, index = current_place(batch, index)
            failures, known = batch.delivery_failures, batch.known_failures
            if failures is not None and known is not None and index not in known:
                known.add(index)
                failures.count -= 1

    def end_batch(self, batch: ProducerBatch) -> list[Callable[[], object]]:
        """End a batch and free its memory. Return its callbacks, to be called without the guard."""
        with self.guard:
            self.seal(batch)
            batch.done = True
            self.open.pop(batch, None)
            self.buffered -= batch.size
            callbacks, batch.callbacks = batch.callbacks, None
            if batch.error is not None:
                batch.delivery_failures = delivery_failures = self.delivery_failures
                batch.known_failures = {index for index, _, is_known in callbacks or () if is_known}
                delivery_failures.count += len(batch) - len(batch.known_failures)
                if delivery_failures.first is None:
                    delivery_failures.first = batch.error
            batch.data = batch.encoded = None
        return [] if callbacks is None else [callback for _, callback, _ in callbacks]

    def _set_notified(self) -> None:
        """Record that the sender has notifications to handle."""
        self.sender_notified = True

    def close(self, why: str) -> None:
        """Stop accepting records. Any thread may call this method."""
        with self.guard:
            self.closed = self.closed or why
            self.routes.clear()

    def take_failures(self) -> DeliveryFailures:
        """Return the failures not yet reported to the application, and reset them. The guard must be held."""
        delivery_failures, self.delivery_failures = self.delivery_failures, DeliveryFailures()
        return delivery_failures

    @property
    def open_records(self) -> int:
        """The number of records whose delivery has not ended."""
        return sum(map(len, list(self.open)))
