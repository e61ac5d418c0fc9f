"""A producer's batches, and the queue of each partition.

Rules:

* The records of a batch are delivered or fail together, unless the broker rejects single records or the size.
  Then `places` says where each record continues; `current_place` follows it.
* The batches of a queue keep their order; the parts of a split batch take its place.
* The records of a batch are kept until it is encoded. The timestamp of each delivery is kept.
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

from ..requests import ProducerIdAndEpoch

Headers = Sequence[tuple[str, bytes | None]]

COLUMNS = 4  # of a row: timestamp, key, value, headers
LAST_SEQUENCE = 2**31 - 1
LAST_EPOCH = 2**15 - 1


class BrokerConnection(NamedTuple):
    """One of the connections to a broker."""

    node: int
    lane: int  # a lane of the network client


class DeliveryFailures(msgspec.Struct):
    """Deliveries that failed since the application was last told."""

    count: int = 0
    first: KprotoError | None = None


NO_MOMENT = -(2**62)  # the timestamp of a batch without records


class ProducerBatch:
    """Records of one partition that are sent together (Java's ProducerBatch)."""

    __slots__ = (
        "attempts",
        "base_offset",
        "callbacks",
        "count",
        "created",
        "data",
        "deadline",
        "done",
        "error",
        "failures",
        "identity",
        "lane",
        "ledger",
        "left",
        "log_append_time",
        "made",
        "moment",
        "moments",
        "number",
        "order",
        "places",
        "retry_at",
        "rows",
        "sealed",
        "seen",
        "sequence",
        "size",
        "timestamps",
        "why",
    )

    def __init__(
        self, lane: PartitionQueue, size: int, created: int, deadline: int, order: tuple[int, ...]
    ) -> None:
        self.lane = lane
        # Bytes reserved in buffer.memory, and how many of them are free; -1 once it accepts no more records.
        self.size = size
        self.left = size
        self.created = created
        self.deadline = deadline
        self.order = order
        self.count = 0
        # Until it is encoded: timestamp, key, value and headers of each record, one after the other, if
        # `moment` is None. Otherwise the records have only values, and `rows` has just these; `moments` has
        # (first index, timestamp in ms), and `moment` is the last of those timestamps.
        self.rows: list[Any] = []
        self.moments: list[tuple[int, int]] = []
        self.moment: int | None = NO_MOMENT
        # Or the records of an Arrow table, already encoded.
        self.made: UnnumberedBatch | None = None
        self.timestamps: Sequence[int] = ()
        self.sealed = False
        self.data: bytes | None = None
        self.identity: ProducerIdAndEpoch | None = None
        self.sequence = -1
        self.number = 0  # how many batches of the queue were numbered before it
        self.attempts = 0
        self.failures = 0
        self.retry_at = 0
        self.why = ""
        self.done = False
        self.error: KprotoError | None = None
        self.base_offset: int | None = None
        self.log_append_time: int | None = None
        self.places: list[tuple[ProducerBatch, int]] | None = None
        # (Index of the record, what to call when its delivery ends).
        self.callbacks: list[tuple[int, Callable[[], object]]] | None = None
        # Where its failures are counted, and the records whose failure the application knows.
        self.ledger: DeliveryFailures | None = None
        self.seen: set[int] | None = None

    def __len__(self) -> int:
        """Return the number of records."""
        return self.count

    @property
    def partition(self) -> TopicPartition:
        """The partition of the batch."""
        return self.lane.partition

    def encode(self, compression: str, level: int | None, *, transactional: bool = False) -> None:
        """Encode the records, with the batch's sequence number if it has one; then drop the rows."""
        producer_id, epoch = self.identity or (-1, -1)
        made = self.made
        if made is None and self.moment is not None:
            self.timestamps = self._times()
            nothing = [None] * self.count
            made = unnumbered(self.timestamps, nothing, self.rows, compression=compression, level=level)
        elif made is None:
            columns = [self.rows[column::COLUMNS] for column in range(COLUMNS)]
            self.timestamps = columns[0]
            made = unnumbered(*columns, compression=compression, level=level)
        self.data = made.numbered(producer_id, epoch, self.sequence, is_transactional=transactional)
        self.made, self.rows = None, []

    def begin_moment(self, moment: int) -> bool:
        """Let the next records have this timestamp; False if they should have a timestamp each.

        The guard must be held. Calls in here may run a signal handler or a finalizer that sends.
        """
        if 8 * len(self.moments) > self.count + 64:
            return False
        self.moments.append((self.count, moment))
        if self.moment is None or self.sealed:
            return False
        self.moment = moment
        return True

    def widen(self) -> None:
        """Switch to the general row format: later records may have a key or headers.

        The guard must be held. Other threads may append meanwhile, but not between the check of the count and
        the switch, since nothing is called there.
        """
        while self.moment is not None:
            count = self.count
            rows: list[Any] = []
            for timestamp, value in zip(self._times(), self.rows, strict=False):
                rows += (timestamp, None, value, ())
            if self.sealed:
                return
            if self.count == count:
                self.rows = rows
                self.moment = None

    def _times(self) -> list[int]:
        """Return the timestamps of records that have only values."""
        timestamps: list[int] = []
        for (first, moment), (end, _) in pairwise([*sorted(self.moments), (self.count, 0)]):
            timestamps += repeat(moment, end - first)
        return timestamps

    def __repr__(self) -> str:
        state = f"failed: {self.error}" if self.error else "done" if self.done else "open"
        return f"<OutBatch of {len(self)} for {self.partition}: {state}>"


def fate(batch: ProducerBatch, index: int) -> tuple[ProducerBatch, int]:
    """Return the batch that now contains a record, and the record's index there."""
    while batch.places is not None:
        batch, index = batch.places[index]
    return batch, index


def divided(
    batch: ProducerBatch, groups: Sequence[Sequence[int]]
) -> tuple[list[ProducerBatch], list[tuple[ProducerBatch, int]]]:
    """Return a batch for each group of records, and where each record of `batch` is then."""
    assert batch.data is not None
    records = read_rows(batch.data, max_decompressed=LAST_SEQUENCE)
    places: list[tuple[ProducerBatch, int]] = [(batch, 0)] * len(records)
    parts: list[ProducerBatch] = []
    for number, group in enumerate(groups):
        size = batch.size * len(group) // len(records) if number else 0
        part = ProducerBatch(batch.lane, size, batch.created, batch.deadline, (*batch.order, number))
        for index in group:
            record = records[index]
            places[index] = part, len(part)
            part.rows += (batch.timestamps[index], record.key, record.value, record.headers)
            part.count += 1
        part.left, part.sealed, part.moment = -1, True, None
        part.failures, part.why = batch.failures, batch.why
        parts.append(part)
    parts[0].size = batch.size - sum(part.size for part in parts)
    return parts, places


NOWHERE = BrokerConnection(-1, -1)


class PartitionQueue:
    """The batches of one partition: those that wait, in order, and those in flight."""

    __slots__ = (
        "batches",
        "filling",
        "halted",
        "identity",
        "known",
        "late_at",
        "next_sequence",
        "numbered",
        "owner",
        "partition",
        "renew",
        "soon_at",
        "under_way",
        "unexpected",
        "unnumber",
        "waiting",
        "way",
    )

    def __init__(self, partition: TopicPartition, owner: Any) -> None:
        self.partition = partition
        # The producer of the deliveries.
        self.owner = owner
        self.filling: ProducerBatch = NO_BATCH
        self.waiting: deque[ProducerBatch] = deque()
        self.under_way: list[ProducerBatch] = []
        # The connection on which they were sent.
        self.way = NOWHERE
        self.batches = 0
        # A batch failed: nothing is sent until nothing is in flight any more.
        self.halted = False
        # When it is visited again: for linger.ms or a backoff, and for a delivery timeout.
        self.soon_at: int | None = None
        self.late_at: int | None = None
        self.identity: ProducerIdAndEpoch | None = None
        self.next_sequence = 0
        # How many batches were numbered so far.
        self.numbered = 0
        # The leader has accepted a batch of this producer id and epoch. Before that it accepts any sequence
        # number: a second batch could overtake a first one that must be resent, and block it.
        self.known = False
        # A batch failed that may be in the log: batches without a sequence number need a new epoch. Numbered
        # ones keep theirs, by which the broker recognizes duplicates.
        self.renew = False
        # The broker said that the batch of this order, and so all later ones, are not in the log. Only those
        # may be renumbered.
        self.unnumber: tuple[int, ...] | None = None
        # The batches with such an error while others are in flight, whose responses may say that they are in
        # the log.
        self.unexpected: list[ProducerBatch] = []

    def oldest(self) -> int | None:
        """Return when the oldest open batch was created. May be called by any thread."""
        for batches in (self.under_way, self.waiting):
            with suppress(IndexError):  # the sender removed it meanwhile
                return batches[0].created
        return None if self.filling is NO_BATCH else self.filling.created

    def open(self) -> list[ProducerBatch]:
        """Return all open batches, in order."""
        return sorted(
            (batch for batch in (*self.under_way, *self.waiting) if not batch.done),
            key=lambda batch: batch.order,
        )

    def number(self, batch: ProducerBatch) -> None:
        """Assign the next sequence number of the queue to the batch."""
        batch.identity, batch.sequence, batch.number = self.identity, self.next_sequence, self.numbered
        self.next_sequence = (self.next_sequence + len(batch)) & LAST_SEQUENCE
        self.numbered += 1

    def put_back(self, batch: ProducerBatch) -> None:
        """Put the batch back into the queue, at the place of its order."""
        index = 0
        while index < len(self.waiting) and self.waiting[index].order < batch.order:
            index += 1
        self.waiting.insert(index, batch)

    def go_on(self) -> None:
        """Continue after a failure, once nothing is in flight any more."""
        self.halted = False
        self.unexpected.clear()
        first_missing, self.unnumber = self.unnumber, None
        if first_missing is not None:
            self.renew = True
            for batch in self.waiting:
                if batch.order >= first_missing:
                    batch.sequence = -1

    def not_there(self, since: tuple[int, ...]) -> None:
        """Note that no batch from this order on is in the log."""
        self.unnumber = since if self.unnumber is None else min(since, self.unnumber)

    def __repr__(self) -> str:
        return f"<Lane {self.partition}: {len(self.waiting)} wait, {len(self.under_way)} under way>"


NO_BATCH: ProducerBatch = ProducerBatch.__new__(ProducerBatch)
"""What a lane fills that fills none: it never has room."""
NO_BATCH.left = -1
NO_BATCH.sealed = True
NO_BATCH.done = True
