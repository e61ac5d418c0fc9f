"""Collects records into batches: the part of a producer that runs in the application's threads.

Rules (Java's RecordAccumulator):

* One batch per partition accepts records. When it is full, or when the sender sends it, the batch is sealed
  and accepts no further records.

* `append` is called for each record, so it only appends the record's fields to a list. The sender encodes the
  batch later.

* `buffer.memory` limits the uncompressed size of all records that are appended and have no response yet.

* When the memory is used up, the open batch of a partition is sealed, unless the partition already has a
  sealed batch. In that case the sealed batch is sent first, and the open batch may become larger.

* Asyncio tasks that wait for memory receive it in the order in which they began to wait (`sends_in_line`),
  like threads in Java's BufferPool. Threads of kproto that wait for memory receive it in no particular order.

* `flush` ends the linger time of all batches, but does not seal them. Until a batch is sent, it accepts more
  records.

* While more than half of the memory is in use, a partition whose oldest record has waited for a second longer
  than linger.ms accepts no more records. So undeliverable records leave memory for other partitions.

* With a GIL, a record is appended without a lock. No function is called between the check of the batch's free
  memory and the append. So no other thread, signal handler or finalizer runs between them.

* At any other point in `append`, other threads, signal handlers and finalizers may send records.

* Without a GIL, `append` holds the producer's lock (the guard).

* Rare operations hold the guard for a short time: to start a batch, to complete one, or to handle an unknown
  topic. The thread that holds the guard runs only the library's code, signal handlers and finalizers.

* `open_batches` contains every undelivered batch, so that all of them can be failed when the producer ends.
  Loops iterate over a copy, because a signal handler or finalizer may start a batch during the loop.
"""

from __future__ import annotations

import math
import sys
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import accumulate
from random import Random
from typing import Any, NamedTuple

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
    ALL_ROWS,
    NO_BATCH,
    DeliveryFailures,
    Headers,
    Notifications,
    PartitionQueue,
    ProducerBatch,
    TopicRoute,
    current_location,
)
from .partitioner import Partitioner

# Upper estimates of the number of bytes that the encoding adds: to a record, six varints and a byte of
# attributes; to each of its headers, two lengths.
RECORD_OVERHEAD = 30
HEADER_OVERHEAD = 10
BATCH_OVERHEAD = 61
# Number of bytes that a new batch reserves, unless its first record needs more or `batch.size` is smaller.
# Later, `_grow` extends the reservation up to `batch.size`.
INITIAL_BATCH_BYTES = 4096

# Number of bytes after which another partition is selected for records without a key: Java's default of
# batch.size, as in its BuiltInPartitioner. Batches may become larger.
STICKY_BYTES = 16 * 1024
# Time (ms) after which the waiting batches of a topic's partitions are counted again. Counting takes 0.1 ms
# for 1,000 partitions, which is too slow to repeat for each `STICKY_BYTES`.
WEIGHTS_MAX_AGE_MS = 10
# Whether the interpreter switches threads only at function calls and at the backward jumps of loops. If it
# does, `append` appends without a lock.
GIL = sys.implementation.name == "cpython" and getattr(sys, "_is_gil_enabled", lambda: True)()


class TopicError(NamedTuple):
    """The error because of which the metadata of a topic is missing."""

    error: KprotoError
    # One sequence of numbers, which starts at 1, counts the errors of all topics.
    number: int
    # When (ms) the error occurred.
    at: int


class RecordAccumulator:
    """The batches of a producer, from the append of their records until the end of their delivery."""

    # Whether `append` holds the lock `guard`. If so, callers must call `append` for every record. If not, a
    # caller may inline the statements of `append` for a record without key and headers.
    append_is_guarded = not GIL

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
        self.open_batches: dict[ProducerBatch, None] = {}
        # Number of bytes of buffer.memory that the open batches reserve.
        self.buffered_bytes = 0
        self.delivery_failures = DeliveryFailures()
        # The application's producer, whose methods the deliveries call.
        self.owner: Any = None
        # Wakes the sender when the accumulator has a notification for it. Called with the lock `guard` held.
        self.notify_sender: Callable[[], object] = self._set_notified
        # Only for producers without a sender thread: `notify_sender` sets this flag. The next `send` clears
        # the flag, and runs the engine.
        self.sender_notified = False
        # Why the last record could not be appended yet. Whether this record waits for memory (True) or for
        # metadata (False).
        self.why_waiting = ""
        self.waits_for_memory = False
        # If the last record waits because its partition is stalled (see `_check_stalled`): the partition.
        self.stalled_partition: TopicPartition | None = None
        # Number of tasks that wait in line for memory, and whether such a task makes the current call.
        self.sends_in_line = 0
        self.has_turn = False
        # Why no records are accepted; "" while the accumulator accepts them.
        self.why_closed = ""
        self.partitioner = Partitioner()
        self._key_hashes = self.partitioner.hashes
        self._options = options
        # The maximum size in bytes of a batch with several records. It is at most max.request.size, so a
        # record above max.request.size never fits into the batch that is being filled.
        self._batch_size = min(options.batch_size, options.max_request_size)
        self._sticky_limit = min(STICKY_BYTES, self._batch_size)
        self._random = random
        self._clock = clock
        self._notifications = Notifications()
        # Topic -> the error because of which its metadata is missing. Sends that waited for the metadata when
        # the error occurred raise it. Later sends request metadata again.
        self.topic_errors: dict[str, TopicError] = {}
        # Number of topic errors so far, and the number of them that had occurred when the current call began
        # to wait. A call that has not waited raises no topic error.
        self.topic_error_count = 0
        self.seen_topic_errors: float = math.inf
        # Topics for whose metadata a send waits.
        self._requested_topics: set[str] = set()
        # Missing partition -> (version of its topic's metadata at the first attempt to send, time of the last
        # attempt).
        self._missing_partitions: dict[TopicPartition, tuple[int, int]] = {}
        if not GIL:
            append = self.append

            def guarded_append(*record: Any) -> Delivery | None:
                with self.guard:
                    return append(*record)

            setattr(self, "append", guarded_append)  # noqa: B010

    def append(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        partition: int | None,
        timestamp: int,
        headers: Headers,
    ) -> Delivery | None:
        """Append a record and return its delivery.

        The result is None if buffer memory or metadata is not available yet. `why_waiting` then contains the
        reason, and the caller calls this method again later.

        Raises IllegalState after `close`. Raises BrokerError for a topic or partition that cannot be written
        to, and for a record larger than max_request_size.
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
                key_hash = self._key_hashes.get(key)
                if key_hash is None:
                    key_hash = self.partitioner.number(key)
                queues = route.queues
                queue = queues[key_hash % len(queues)]
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
        is_value_only = key is None and not headers
        batch = queue.filling
        remaining_bytes = batch.free_bytes - size
        while remaining_bytes < 0 or not (
            batch.shared_timestamp is None or (is_value_only and batch.shared_timestamp is timestamp)
        ):
            with self.guard:
                if remaining_bytes < 0:
                    uses_sticky = key is None and partition is None
                    open_batch = self._find_or_start_batch(route, queue, size, uses_sticky=uses_sticky)
                    if open_batch is None:
                        return None
                    batch = open_batch
                elif not (is_value_only and batch.start_timestamp_run(timestamp)):
                    batch.use_general_rows()
            remaining_bytes = batch.free_bytes - size
        batch.free_bytes = remaining_bytes
        index = batch.count
        batch.count = index + 1
        if batch.shared_timestamp is None:
            batch.rows += row
        else:
            batch.rows.append(value)
        return Delivery(batch, index)

    def route_of(self, topic: str) -> TopicRoute | None:
        """Return the partitions of a topic; None while they are unknown.

        Raises the errors that `append` raises for the topic.
        """
        route = self.routes.get(topic)
        if route is None:
            self._request_metadata(topic)
        return route

    def partition_count(self, topic: str) -> int | None:
        """Return the topic's number of partitions; None while it is unknown.

        Raises the errors that `append` raises for the topic.
        """
        route = self.route_of(topic)
        return None if route is None else len(route.queues)

    def append_batch(
        self, topic: str, partition: int | None, encoded: UnnumberedBatch, timestamps: Sequence[int]
    ) -> ProducerBatch | None:
        """Append a whole encoded batch and return it.

        The result is None if the batch must wait (see `why_waiting`). Raises as `append` does.

        The lock `guard` must be held.
        """
        route, options = self.routes.get(topic), self._options
        if route is None:
            self._request_metadata(topic)
            return None
        if partition is not None and partition >= len(route.queues):
            self._on_missing_partition(route, partition)
            return None
        size = len(encoded)
        # A compressed batch counts as large as its largest record, as in Java.
        if (counted := max(size, encoded.largest_record + BATCH_OVERHEAD)) > options.max_request_size:
            limit = options.max_request_size
            detail = f"a batch of {counted} bytes for {topic!r}; max_request_size is {limit}"
            raise broker_error(ErrorCode.MESSAGE_TOO_LARGE, "Produce", detail)
        queue = route.sticky if partition is None else route.queues[partition]
        if self._available_memory() < size and (self.buffered_bytes or self._is_out_of_turn):
            self._on_buffer_full()
            return None
        if self._check_stalled(queue):
            return None
        if queue.filling is not NO_BATCH:
            self.seal(queue.filling)
        now = self._clock()
        queue.batches += 1
        batch = ProducerBatch(queue, size, now, now + options.delivery_timeout_ms, (queue.batches,))
        batch.encoded, batch.timestamps, batch.count = encoded, timestamps, encoded.count
        batch.sealed, batch.free_bytes = True, -1
        self.buffered_bytes += size
        self.open_batches[batch] = None
        self._notifications.new_batches.append(batch)
        self._notifications.queues_to_visit.append(queue)
        if partition is None:
            self.change_sticky_partition(route)
        self.notify_sender()
        return batch

    def _on_missing_partition(self, route: TopicRoute, partition: int) -> None:
        """Request metadata, or raise if two new Metadata responses still lack the partition.

        A response that arrived before the first attempt to send does not count, because the broker may have
        built it before the partition existed.
        """
        topic_partition, now = TopicPartition(route.topic, partition), self._clock()
        with self.guard:
            first_version, last_attempt = self._missing_partitions.get(topic_partition, (route.version, now))
            # A waiting send tries again after each Metadata response, and a response usually arrives within
            # the request timeout. If the last attempt is older than this timeout, it was probably made by an
            # earlier send that was abandoned. The current send must then see two new responses itself.
            if now - last_attempt > self._options.request_timeout_ms:
                first_version = route.version
            self._missing_partitions[topic_partition] = first_version, now
            if route.version > first_version + 1:
                del self._missing_partitions[topic_partition]
                detail = f"{topic_partition}: the topic has the partitions 0 to {len(route.queues) - 1}"
                raise broker_error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "Produce", detail)
            self.why_waiting, self.waits_for_memory = f"no metadata for {topic_partition} yet", False
            self._notifications.unknown_topics[route.topic] = None
            self.notify_sender()

    def _request_metadata(self, topic: str) -> None:
        """Request the metadata of a topic and set `why_waiting`.

        If the topic had an error while the current call was waiting, raise this error and request nothing.
        """
        if self.why_closed:
            raise IllegalState(self.why_closed)
        with self.guard:
            failure = self.topic_errors.get(topic)
            if failure is not None and failure.number > self.seen_topic_errors:
                if self._clock() - failure.at <= SENDER_WAKEUP_MS:
                    raise failure.error
                del self.topic_errors[topic]
            self.why_waiting, self.waits_for_memory = f"no metadata for topic {topic!r} yet", False
            self._requested_topics.add(topic)
            self._notifications.unknown_topics[topic] = None
            self.notify_sender()

    def _find_or_start_batch(
        self, route: TopicRoute, queue: PartitionQueue, size: int, *, uses_sticky: bool
    ) -> ProducerBatch | None:
        """Return a batch for a record of this size; None if the record must wait (see `why_waiting`).

        If `uses_sticky` is true, the record may go to any partition. The batch may then be in the queue of
        the current sticky partition instead of in `queue`. The lock `guard` must be held.
        """
        if self.why_closed:
            raise IllegalState(self.why_closed)
        options = self._options
        if size + BATCH_OVERHEAD > options.max_request_size:
            detail = (
                f"a record of {size} bytes for {route.topic!r}; "
                f"max_request_size is {options.max_request_size}, {BATCH_OVERHEAD} of them for the batch"
            )
            raise broker_error(ErrorCode.MESSAGE_TOO_LARGE, "Produce", detail)
        while (batch := queue.filling) is not NO_BATCH:
            is_sticky = route.sticky is queue
            used = batch.size - batch.free_bytes + size
            fits = used <= self._batch_size
            must_change_queue = uses_sticky and (
                not is_sticky or route.sticky_bytes + used > self._sticky_limit
            )
            if fits and not must_change_queue:
                if batch.free_bytes >= size:
                    return batch
                stepwise = is_sticky and len(route.candidates) > 1
                return batch if self._grow(batch, used, stepwise=stepwise) else None
            if not fits:
                self.seal(batch)
            if not uses_sticky:
                break
            if route.sticky is queue:  # False if `seal` or another send has changed the sticky partition.
                self.change_sticky_partition(route)
            # For one record, the sticky partition changes at most once.
            queue, uses_sticky = route.sticky, False
        return None if self._check_stalled(queue) else self._start_batch(queue, size)

    def _start_batch(self, queue: PartitionQueue, first_size: int) -> ProducerBatch | None:
        """Start the queue's next batch; return None if buffer.memory is too full for its first record.

        An empty buffer accepts a record of any size. The lock `guard` must be held.
        """
        options = self._options
        reserved = max(min(self._batch_size, INITIAL_BATCH_BYTES), first_size + BATCH_OVERHEAD)
        available = self._available_memory()
        if reserved > available and (self.buffered_bytes or self._is_out_of_turn):
            reserved = first_size + BATCH_OVERHEAD
            if reserved > available:
                self._on_buffer_full()
                return None
        now = self._clock()
        queue.batches += 1
        batch = ProducerBatch(queue, reserved, now, now + options.delivery_timeout_ms, (queue.batches,))
        batch.free_bytes -= BATCH_OVERHEAD
        # Ctrl-C may interrupt between any two of these statements. In this order, the sender knows every
        # batch for which memory is reserved, and can remove a batch that Ctrl-C left empty.
        self.notify_sender()
        self.buffered_bytes += reserved
        self._notifications.new_batches.append(batch)
        self.open_batches[batch] = None
        queue.filling = batch
        return batch

    def _grow(self, batch: ProducerBatch, used: int, *, stepwise: bool) -> bool:
        """Reserve more memory for a batch; return False if buffer.memory does not suffice.

        `used` is the number of bytes that the batch needs with its next record. The reservation doubles, but
        does not exceed `_batch_size`. If `stepwise` is true, the batch is in the sticky partition, and the
        reservation grows by at most `STICKY_BYTES` at a time. Before each of these steps, the caller checks
        whether to select another sticky partition.

        If `used` is larger, or if buffer.memory does not suffice for this growth, the reservation grows to
        exactly `used`.
        """
        step = STICKY_BYTES if stepwise else batch.size
        new_size = min(self._batch_size, batch.size + min(step, batch.size))
        growth = max(new_size, used) - batch.size
        available = self._available_memory()
        if growth > available:
            growth = used - batch.size
            if growth > available:
                self._on_buffer_full()
                return False
        if batch.sealed:
            return True  # Another thread has sealed the batch. The caller checks `free_bytes` again.
        batch.size += growth
        batch.free_bytes += growth
        self.buffered_bytes += growth
        return True

    @property
    def _is_out_of_turn(self) -> bool:
        """Whether tasks wait in line for memory, and the current call is not by one of these tasks."""
        return self.sends_in_line > 0 and not self.has_turn

    def _available_memory(self) -> int:
        """Return the number of bytes of buffer.memory that the current call may reserve."""
        return 0 if self._is_out_of_turn else self._options.buffer_memory - self.buffered_bytes

    def _on_buffer_full(self) -> None:
        """Record that buffer.memory is used up, and seal open batches: sending them frees memory.

        If a partition already has a sealed batch, the sender sends this batch first. So the partition's open
        batch is not sealed, and may receive more records. If it were sealed, batches would become smaller
        each time that the buffer is full.
        """
        self.why_waiting = f"the buffer of {self._options.buffer_memory} bytes is full"
        self.waits_for_memory, self.stalled_partition = True, None
        batches = list(self.open_batches)
        sending_queues = {batch.queue for batch in batches if batch.sealed}
        for batch in batches:
            if batch.queue not in sending_queues:
                self.seal(batch)

    def _check_stalled(self, queue: PartitionQueue) -> bool:
        """Return whether the partition accepts no records now. If so, set `why_waiting`.

        While more than half of buffer.memory is in use, a partition accepts no records if its oldest batch
        has waited for `STALLED_PARTITION_MS` in addition to linger.ms.
        """
        options = self._options
        if self.buffered_bytes * 2 <= options.buffer_memory:
            return False
        oldest_creation = queue.oldest_creation()
        if oldest_creation is None:
            return False
        age = self._clock() - oldest_creation
        if age < STALLED_PARTITION_MS + options.linger_ms:
            return False
        self.why_waiting = (
            f"{queue.partition} has made no progress for {age} ms, "
            f"and half of the buffer of {options.buffer_memory} bytes is in use"
        )
        self.waits_for_memory, self.stalled_partition = True, queue.partition
        return True

    def change_sticky_partition(self, route: TopicRoute) -> None:
        """Select a random partition for the next records without a key (KIP-794).

        The selected partition may be the same as before. As in Java's BuiltInPartitioner, partitions with
        fewer waiting batches are more likely to be selected. The batches are counted at most once every
        `WEIGHTS_MAX_AGE_MS`.
        """
        now, weights = self._clock(), route.cumulative_weights
        if not weights or now - route.weights_at >= WEIGHTS_MAX_AGE_MS:
            # A batch is in `filling` from its start until it is sealed. Soon after the start, the sender also
            # adds it to `waiting`. `max` avoids counting the batch twice.
            loads = [max(len(queue.waiting), queue.filling is not NO_BATCH) for queue in route.candidates]
            max_load = max(loads)
            weights = list(accumulate([max_load + 1 - load for load in loads]))
            route.cumulative_weights = weights
            route.weights_at = now
        selected_weight = int(self._random.random() * weights[-1])
        queue = route.candidates[bisect_right(weights, selected_weight)]
        filling = queue.filling
        route.sticky = queue
        route.sticky_bytes = 0 if filling is NO_BATCH else filling.free_bytes - filling.size

    def seal(self, batch: ProducerBatch) -> None:
        """Seal the batch, free its unused memory, and notify the sender. The lock `guard` must be held.

        If the sticky partition has received enough bytes, a new sticky partition is selected.
        """
        if batch.sealed:
            return
        batch.sealed = True
        queue = batch.queue
        unused, batch.free_bytes = batch.free_bytes, -1
        batch.size -= unused
        self.buffered_bytes -= unused
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
        """Seal all batches that accept records. The lock `guard` must be held."""
        for batch in list(self.open_batches):
            self.seal(batch)

    def end_linger(self) -> None:
        """Let the sender send all batches without waiting for linger.ms. The lock `guard` must be held.

        A batch accepts records until it is sent. If `flush` sealed the batches, and many threads
        or tasks called `flush` after each record, every batch would have one record.
        """
        for batch in list(self.open_batches):
            if not batch.sealed and batch.lingers:
                batch.lingers = False
                self._notifications.queues_to_visit.append(batch.queue)
                self.notify_sender()

    def needs_sender_now(self) -> bool:
        """Return whether the sender has notifications other than new batches.

        New batches wait for linger.ms.
        """
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

    def set_route(
        self, topic: str, count: int, with_leader: Iterable[int], in_rack: Iterable[int] = ()
    ) -> None:
        """Set the number of partitions of a topic, and the partitions that have a leader.

        `in_rack` contains the partitions whose leader is in the client's rack, if the client selects by rack
        (KIP-1123). If the leader of the sticky partition is no longer in this rack, the partition remains
        sticky until it has received `_sticky_limit` bytes, as in Java.

        An earlier error of the topic is dropped. After `close`, the call has no effect.
        """
        with self.guard:
            if self.why_closed:
                return
            previous = self.routes.get(topic)
            self.topic_errors.pop(topic, None)
            self._requested_topics.discard(topic)
            queues = [self._ensure_queue(topic, index) for index in range(count)]
            available = [queues[index] for index in with_leader] or queues
            candidates = [queues[index] for index in in_rack] or available
            route = self.routes[topic] = TopicRoute(topic, queues, available, candidates, candidates[0])
            route.version = 1 if previous is None else previous.version + 1
            if previous is not None and previous.sticky in available:
                route.sticky, route.sticky_bytes = previous.sticky, previous.sticky_bytes
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
                route.cumulative_weights = []

    def _ensure_queue(self, topic: str, index: int) -> PartitionQueue:
        """Return the queue of a partition, and create it if necessary."""
        topic_partition = TopicPartition(topic, index)
        queue = self.queues.get(topic_partition)
        if queue is None:
            queue = self.queues[topic_partition] = PartitionQueue(topic_partition, self.owner)
        return queue

    def forget_topic(self, topic: str) -> None:
        """Forget a topic's partitions and leaders, so that sends to the topic wait for metadata again."""
        with self.guard:
            self.routes.pop(topic, None)

    def fail_waiting_sends(self, topic: str, error: KprotoError) -> None:
        """Make all sends that wait for the topic's metadata raise `error`.

        They notice the error within SENDER_WAKEUP_MS. Afterwards the error is dropped. Sends that begin after
        the error request the metadata again.
        """
        now = self._clock()
        with self.guard:
            # Errors of topics to which nothing is sent any more would otherwise stay.
            for name, failure in list(self.topic_errors.items()):
                if now - failure.at > SENDER_WAKEUP_MS:
                    del self.topic_errors[name]
            if topic in self._requested_topics:
                self._requested_topics.remove(topic)
                self.topic_error_count += 1
                self.topic_errors[topic] = TopicError(error, self.topic_error_count, now)

    def replace_split_batch(
        self, batch: ProducerBatch, parts: list[ProducerBatch], locations: list[tuple[ProducerBatch, int]]
    ) -> None:
        """Replace a split batch with its parts, and move the callbacks of its records to the parts."""
        with self.guard:
            self.open_batches.pop(batch, None)
            self.open_batches.update(dict.fromkeys(parts))
            for index, callback, is_known in batch.callbacks or ():
                if index == ALL_ROWS:
                    # One part is enough for the call. The other entries count the failures as known.
                    for number, part in enumerate(parts):
                        entry = ALL_ROWS, _nothing if number else callback, is_known
                        part.callbacks = [*(part.callbacks or ()), entry]
                else:
                    part, part_index = locations[index]
                    part.callbacks = [*(part.callbacks or ()), (part_index, callback, is_known)]
            batch.callbacks = None
            batch.data = None
            batch.record_locations = locations

    def add_callback(
        self, batch: ProducerBatch, index: int, callback: Callable[[], object], *, is_known: bool = True
    ) -> bool:
        """Call `callback` when the record's delivery ends. If it has already ended, return False instead.

        With the index `ALL_ROWS`, the callback is called when the batch ends, or when one part of it ends if
        the batch is split. The result is also False if the batch was split before the call.

        If `is_known` is true, the callback reports a failure to the application, so flush does not also raise
        NotDelivered for the record.
        """
        with self.guard:
            if index != ALL_ROWS:
                batch, index = current_location(batch, index)
            if batch.done or (index == ALL_ROWS and batch.record_locations is not None):
                return False
            if batch.callbacks is None:
                batch.callbacks = []
            batch.callbacks.append((index, callback, is_known))
            return True

    def remove_callback(self, batch: ProducerBatch, index: int, callback: Callable[[], object]) -> None:
        """Remove a callback whose caller no longer waits, so that flush reports a failure of the record."""
        with self.guard:
            if index != ALL_ROWS:
                batch, index = current_location(batch, index)
            if batch.callbacks is not None:
                batch.callbacks = [entry for entry in batch.callbacks if entry[1] is not callback]

    def mark_failure_known(self, batch: ProducerBatch, index: int) -> None:
        """Exclude a record's failure from `take_failures`, because the application knows it."""
        with self.guard:
            batch, index = current_location(batch, index)
            failures, known = batch.delivery_failures, batch.known_failures
            if failures is not None and known is not None and index not in known:
                known.add(index)
                failures.count -= 1
                if failures.count == 0:
                    failures.first_error = None

    def end_batch(self, batch: ProducerBatch) -> list[Callable[[], object]]:
        """End a batch, free its memory, and count its failures. Return its callbacks.

        The caller sets `error` of a failed batch before this call. After this call, the caller
        calls the returned callbacks without holding the lock `guard`.
        """
        with self.guard:
            self.seal(batch)
            batch.done = True
            self.open_batches.pop(batch, None)
            self.buffered_bytes -= batch.size
            callbacks, batch.callbacks = batch.callbacks, None
            if batch.error is not None:
                batch.delivery_failures = delivery_failures = self.delivery_failures
                batch.known_failures = {index for index, _, is_known in callbacks or () if is_known}
                if ALL_ROWS in batch.known_failures:
                    batch.known_failures = set(range(len(batch)))
                unknown_count = len(batch) - len(batch.known_failures)
                delivery_failures.count += unknown_count
                if delivery_failures.first_error is None and unknown_count:
                    delivery_failures.first_error = batch.error
            batch.data = batch.encoded = None
        return [] if callbacks is None else [callback for _, callback, _ in callbacks]

    def _set_notified(self) -> None:
        """Record that the sender has notifications to handle."""
        self.sender_notified = True

    def close(self, why: str) -> None:
        """Stop accepting records: sends raise IllegalState with the reason `why` of the first call.

        Any thread may call this method.
        """
        with self.guard:
            self.why_closed = self.why_closed or why
            self.routes.clear()

    def take_failures(self) -> DeliveryFailures:
        """Return and reset the failures that the application does not know. The lock `guard` must be held."""
        delivery_failures, self.delivery_failures = self.delivery_failures, DeliveryFailures()
        return delivery_failures

    @property
    def open_records(self) -> int:
        """The number of records whose delivery has not ended."""
        return sum(map(len, list(self.open_batches)))


def _nothing() -> None:
    """Do nothing."""
