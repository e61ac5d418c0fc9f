"""A producer's batches, and the queue of each partition.

Rules:

* The records of a batch are delivered or fail together, with two exceptions. If the broker rejects single
  records outside a transaction, these fail, and the other records move to a new batch. If the batch is too
  large, its records move to smaller batches.

* If the records of a batch have moved, `record_locations` contains the new batch of each record, and the
  record's index in that batch. `current_location` follows these entries.

* The batches of a queue keep their order. The parts of a split batch take its place.

* When a batch is encoded, its rows are dropped, and only the timestamp of each record is kept.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import pairwise, repeat
from typing import Any, NamedTuple

import msgspec

from kproto.errors import KprotoError
from kproto.group.subscription import TopicPartition
from kproto.records import rows as read_rows
from kproto.records.builder import UnnumberedBatch
from kproto.records.list_encoder import unnumbered

from .transaction_requests import ProducerIdAndEpoch

Headers = Sequence[tuple[str, bytes | None]]

COLUMNS = 4  # Number of entries of a record in `rows`: timestamp, key, value, headers.
LAST_SEQUENCE = 2**31 - 1
LAST_EPOCH = 2**15 - 1


class BrokerConnection(NamedTuple):
    """Identifies one of the producer's connections to a broker."""

    node: int
    lane: int  # The connection's number among the connections to this broker (a lane of `NetworkClient`).


class DeliveryFailures(msgspec.Struct):
    """Deliveries that failed since the last report to the application."""

    count: int = 0
    first_error: KprotoError | None = None


# In a batch's `callbacks`, the index of an entry for all records of the batch.
ALL_ROWS = -1

# The `shared_timestamp` of a batch without records. No record has this timestamp.
NO_TIMESTAMP = -(2**62)


class ProducerBatch:
    """Records of one partition that are sent together (Java's ProducerBatch)."""

    __slots__ = (
        "attempts",
        "base_offset",
        "callbacks",
        "compression_ratio",
        "count",
        "created",
        "data",
        "deadline",
        "delivery_failures",
        "done",
        "encoded",
        "error",
        "failures",
        "free_bytes",
        "identity",
        "known_failures",
        "largest_record",
        "lingers",
        "log_append_time",
        "number",
        "order",
        "queue",
        "record_locations",
        "retry_at",
        "rows",
        "run_end",
        "run_start",
        "sealed",
        "sequence",
        "shared_timestamp",
        "size",
        "timestamp_runs",
        "timestamps",
        "why",
    )

    def __init__(
        self, queue: PartitionQueue, size: int, created: int, deadline: int, order: tuple[int, ...]
    ) -> None:
        self.queue = queue
        # Number of bytes that the batch reserves in buffer.memory. `free_bytes` of them are unused. If
        # `free_bytes` is -1, the batch accepts no more records.
        self.size = size
        self.free_bytes = size
        # When (ms) the batch was created, and when its delivery times out.
        self.created = created
        self.deadline = deadline
        # The sort key of the batch in its queue: the batch's number. When a batch is split, each part gets
        # the sort key of the batch, followed by the part's index.
        self.order = order
        self.count = 0
        # Holds the records until the batch is encoded. The short format holds only their values. It is used
        # while no record has a key or headers, and most records have the same timestamp as the record before.
        # In the general format, each record has four entries: timestamp, key, value and headers.
        self.rows: list[Any] = []
        # In the short format: (index, timestamp in ms) of the first record in each run of equal timestamps.
        self.timestamp_runs: list[tuple[int, int]] = []
        # In the short format: the timestamp (ms) of the last record. None in the general format.
        self.shared_timestamp: int | None = NO_TIMESTAMP
        # The start and end (s since 1970) of the millisecond `shared_timestamp`. A record that is sent
        # between them belongs to the last run. In the general format, `run_end` is 0, so no record does.
        self.run_start = self.run_end = 0.0
        # The encoded records of a batch from an Arrow table. Such a batch has no `rows`.
        self.encoded: UnnumberedBatch | None = None
        self.timestamps: Sequence[int] = ()
        self.sealed = False
        # Whether the sender waits for linger.ms before it sends the batch. `flush` sets this to False.
        self.lingers = True
        self.data: bytes | None = None
        # Of the encoded batch: the compressed size divided by the uncompressed size, and the size of the
        # largest record in bytes before compression.
        self.compression_ratio = 1.0
        self.largest_record = 0
        self.identity: ProducerIdAndEpoch | None = None
        self.sequence = -1
        # Number of batches of the queue that were numbered before this batch. While this batch is in flight,
        # at most four later batches are numbered, because brokers remember only five batches.
        self.number = 0
        # Number of times that the batch was sent, and number of failed attempts. If this batch is a part of a
        # split batch, `failures` includes the failures of the split batch.
        self.attempts = 0
        self.failures = 0
        self.retry_at = 0
        # Why the batch has not been delivered yet; "" while nothing has prevented its delivery.
        self.why = ""
        self.done = False
        self.error: KprotoError | None = None
        self.base_offset: int | None = None
        self.log_append_time: int | None = None
        self.record_locations: list[tuple[ProducerBatch, int]] | None = None
        # Triples (index of a record, callback for the end of its delivery, whether the callback reports a
        # failure to the application).
        self.callbacks: list[tuple[int, Callable[[], object], bool]] | None = None
        # For a failed batch: the failure counter that includes its records, and the indexes of the records
        # whose failure the application already knows.
        self.delivery_failures: DeliveryFailures | None = None
        self.known_failures: set[int] | None = None

    def __len__(self) -> int:
        """Return the number of records."""
        return self.count

    @property
    def partition(self) -> TopicPartition:
        """The partition of the batch."""
        return self.queue.partition

    @property
    def is_complete(self) -> bool:
        """Whether `rows` contains all `count` records, or the records are already encoded.

        A send first counts its record in `count`, and then adds it to `rows`. Another thread can run between
        these two steps only if a debugger or profiler runs Python code there.
        """
        if self.encoded is not None or self.data is not None:
            return True
        return len(self.rows) == self.count * (COLUMNS if self.shared_timestamp is None else 1)

    def encode(self, compression: str, level: int | None, *, transactional: bool = False) -> None:
        """Encode the records, with the batch's sequence number if it has one, and then clear `rows`."""
        producer_id, epoch = self.identity or (-1, -1)
        encoded = self.encoded
        if encoded is None and self.shared_timestamp is not None:
            self.timestamps = self._record_timestamps()
            no_keys = [None] * self.count
            encoded = unnumbered(self.timestamps, no_keys, self.rows, compression=compression, level=level)
        elif encoded is None:
            columns = [self.rows[column::COLUMNS] for column in range(COLUMNS)]
            self.timestamps = columns[0]
            encoded = unnumbered(*columns, compression=compression, level=level)
        self.data = encoded.numbered(producer_id, epoch, self.sequence, is_transactional=transactional)
        self.compression_ratio, self.largest_record = encoded.compression_ratio, encoded.largest_record
        self.encoded, self.rows = None, []

    def start_timestamp_run(self, shared_timestamp: int) -> bool:
        """Start a run of records that share this timestamp (ms), in the short format of `rows`.

        Return False if the batch has too many runs, uses the general format, or is sealed.

        The lock `guard` must be held. During this method a signal handler or a finalizer may run and send
        records.
        """
        if 8 * len(self.timestamp_runs) > self.count + 64:
            return False
        self.timestamp_runs.append((self.count, shared_timestamp))
        if self.shared_timestamp is None or self.sealed:
            return False
        start, end = shared_timestamp / 1000, (shared_timestamp + 1) / 1000
        self.shared_timestamp, self.run_start, self.run_end = shared_timestamp, start, end
        return True

    def use_general_rows(self) -> None:
        """Convert `rows` to the general format, in which records may have keys and headers.

        The lock `guard` must be held. Other threads may append during the conversion. If the record count has
        changed by the end of the conversion, the conversion starts again. No function is called between the
        check of the count and the assignments to the attributes, so no thread can append between them. A
        sealed batch is not converted.
        """
        while self.shared_timestamp is not None:
            count = self.count
            rows: list[Any] = []
            for timestamp, value in zip(self._record_timestamps(), self.rows, strict=False):
                rows += (timestamp, None, value, ())
            if self.sealed:
                return
            if self.count == count:
                self.rows = rows
                self.shared_timestamp, self.run_end = None, 0.0

    def _record_timestamps(self) -> list[int]:
        """Return the timestamp of each record. The batch must be in the short format (see `rows`)."""
        timestamps: list[int] = []
        for (first, shared_timestamp), (end, _) in pairwise([*sorted(self.timestamp_runs), (self.count, 0)]):
            timestamps += repeat(shared_timestamp, end - first)
        return timestamps

    def __repr__(self) -> str:
        state = f"failed: {self.error}" if self.error else "done" if self.done else "open"
        return f"<ProducerBatch of {len(self)} for {self.partition}: {state}>"


def current_location(batch: ProducerBatch, index: int) -> tuple[ProducerBatch, int]:
    """Return the batch that now contains a record, and the record's index in that batch."""
    while batch.record_locations is not None:
        batch, index = batch.record_locations[index]
    return batch, index


def split_batch(
    batch: ProducerBatch, groups: Sequence[Sequence[int]]
) -> tuple[list[ProducerBatch], list[tuple[ProducerBatch, int]]]:
    """Split a batch into new batches, one for each group of record indexes.

    Return the new batches, and for each record its new batch and its index there.
    """
    assert batch.data is not None
    records = read_rows(batch.data, max_decompressed=LAST_SEQUENCE)
    locations: list[tuple[ProducerBatch, int]] = [(batch, 0)] * len(records)
    parts: list[ProducerBatch] = []
    for number, group in enumerate(groups):
        size = batch.size * len(group) // len(records) if number else 0
        part = ProducerBatch(batch.queue, size, batch.created, batch.deadline, (*batch.order, number))
        for index in group:
            record = records[index]
            locations[index] = part, len(part)
            part.rows += (batch.timestamps[index], record.key, record.value, record.headers)
            part.count += 1
        part.free_bytes, part.sealed, part.shared_timestamp = -1, True, None
        part.failures, part.why = batch.failures, batch.why
        parts.append(part)
    parts[0].size = batch.size - sum(part.size for part in parts)
    return parts, locations


NO_CONNECTION = BrokerConnection(-1, -1)


class PartitionQueue:
    """The batches of one partition: the waiting ones in order, and the ones in flight."""

    __slots__ = (
        "batches",
        "connection",
        "end_of_log",
        "epoch_accepted",
        "filling",
        "halted",
        "identity",
        "in_flight",
        "last_offset",
        "needs_new_epoch",
        "next_sequence",
        "numbered",
        "out_of_order",
        "owner",
        "partition",
        "renumber_from",
        "timeout_at",
        "visit_at",
        "waiting",
    )

    def __init__(self, partition: TopicPartition, owner: Any) -> None:
        self.partition = partition
        # The application's producer. The deliveries of this queue's records call its methods.
        self.owner = owner
        self.filling: ProducerBatch = NO_BATCH
        self.waiting: deque[ProducerBatch] = deque()
        self.in_flight: list[ProducerBatch] = []
        # The connection that carries the batches in flight.
        self.connection = NO_CONNECTION
        # Number of batches that the queue has received. The parts of split batches do not count.
        self.batches = 0
        # Whether a batch was put back for a retry, or split. If so, the queue sends no batch while any of
        # its batches is in flight.
        self.halted = False
        # Times (ms) at which the sender next visits the queue: `visit_at` because of linger.ms or a backoff,
        # `timeout_at` because of a delivery timeout.
        self.visit_at: int | None = None
        self.timeout_at: int | None = None
        self.identity: ProducerIdAndEpoch | None = None
        self.next_sequence = 0
        # The sequence number that follows the last batch that the leader has accepted in this epoch.
        self.end_of_log = 0
        # The offset of the last record that the leader has acknowledged; -1 until a response contains an
        # offset.
        self.last_offset = -1
        # Number of batches that have received a sequence number.
        self.numbered = 0
        # Whether the leader has accepted a batch of this producer id and epoch. Until then only one batch is
        # in flight: a leader that does not know the producer id accepts any sequence number. If the first of
        # two batches in flight were lost, the leader would append the second, and then reject the first when
        # it is sent again.
        self.epoch_accepted = False
        # Whether a failed batch may be in the log. If so, batches without a sequence number need a new epoch.
        # Numbered batches keep their epoch, so that the broker recognizes duplicates.
        self.needs_new_epoch = False
        # `order` of the first batch that is certainly not in the log, because the broker rejected it. This
        # batch and the batches after it get new sequence numbers.
        self.renumber_from: tuple[int, ...] | None = None
        # Batches that the broker rejected because of their sequence number. The response to a later batch may
        # show that they are in the log.
        self.out_of_order: list[ProducerBatch] = []

    def oldest_creation(self) -> int | None:
        """Return when the oldest open batch was created (ms); None if no batch is open.

        Any thread may call this method.
        """
        for batches in (self.in_flight, self.waiting):
            with suppress(IndexError):  # The sender may have emptied the list.
                return batches[0].created
        return None if self.filling is NO_BATCH else self.filling.created

    def open_batches(self) -> list[ProducerBatch]:
        """Return the batches in flight and the waiting batches, in order, without those that are done."""
        return sorted(
            (batch for batch in (*self.in_flight, *self.waiting) if not batch.done),
            key=lambda batch: batch.order,
        )

    def assign_sequence(self, batch: ProducerBatch) -> None:
        """Assign the next sequence number of the queue to the batch."""
        batch.identity, batch.sequence, batch.number = self.identity, self.next_sequence, self.numbered
        self.next_sequence = (self.next_sequence + len(batch)) & LAST_SEQUENCE
        self.numbered += 1

    def reinsert(self, batch: ProducerBatch) -> None:
        """Put the batch back among the waiting batches, which are sorted by `order`."""
        index = 0
        while index < len(self.waiting) and self.waiting[index].order < batch.order:
            index += 1
        self.waiting.insert(index, batch)

    def resume(self) -> None:
        """Allow the queue to send again after a failure. Call this only if no batch is in flight.

        After `mark_not_in_log`, the batches that are not in the log lose their sequence numbers, and the
        queue needs a new epoch.
        """
        self.halted = False
        self.out_of_order.clear()
        renumber_from, self.renumber_from = self.renumber_from, None
        if renumber_from is not None:
            self.needs_new_epoch = True
            for batch in self.waiting:
                if batch.order >= renumber_from:
                    batch.sequence = -1

    def mark_not_in_log(self, since: tuple[int, ...]) -> None:
        """Record that no batch with `order` >= `since` is in the log."""
        self.renumber_from = since if self.renumber_from is None else min(since, self.renumber_from)

    def __repr__(self) -> str:
        return f"<PartitionQueue {self.partition}: {len(self.waiting)} wait, {len(self.in_flight)} in flight>"


# A batch that accepts no records: the value of `filling` in a queue where no batch accepts records.
NO_BATCH: ProducerBatch = ProducerBatch.__new__(ProducerBatch)
NO_BATCH.free_bytes = -1
NO_BATCH.sealed = True
NO_BATCH.done = True


class TopicRoute(msgspec.Struct):
    """A topic's queues, one per partition: all, those of partitions with a leader, and the sticky one.

    The next sticky queue is selected among `candidates`. If the client selects by rack, `candidates` are the
    partitions whose leader is in the client's rack. Otherwise, or if this rack has no leader, `candidates`
    are all partitions with a leader.
    """

    topic: str
    queues: list[PartitionQueue]
    with_leader: list[PartitionQueue]
    candidates: list[PartitionQueue]
    sticky: PartitionQueue
    # How many Metadata responses about the topic have arrived.
    version: int = 0
    # Number of bytes that the sticky partition has received since its selection, not counting its unsealed
    # batch. The number is negative if the unsealed batch already had records at the selection.
    sticky_bytes: int = 0
    # The cumulative weights of `candidates` in the selection of the next sticky partition, and the time (ms)
    # when they were computed.
    cumulative_weights: list[int] = msgspec.field(default_factory=list[int])
    weights_at: int = 0


class Notifications(msgspec.Struct):
    """Notifications for the sender: new batches, queues to visit, topics without metadata."""

    new_batches: list[ProducerBatch] = msgspec.field(default_factory=list[ProducerBatch])
    queues_to_visit: list[PartitionQueue] = msgspec.field(default_factory=list[PartitionQueue])
    unknown_topics: dict[str, None] = msgspec.field(default_factory=dict[str, None])
