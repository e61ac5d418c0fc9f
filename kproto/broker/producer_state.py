"""The state of idempotent producers in one partition, from which the broker detects retries.

Rules, as in Kafka's ProducerStateManager and ProducerAppendInfo:

* The last five batches of each producer are remembered. A new batch is a duplicate if its epoch and its first
  and last sequence equal the epoch and sequences of a remembered batch.

* A duplicate is not stored. Its response contains the offset of the stored batch.

* A batch that is not a duplicate must start at the sequence after the producer's last sequence. Otherwise,
  it fails with OUT_OF_ORDER_SEQUENCE_NUMBER. Sequence 2**31 - 1 is followed by 0.

* A producer's new epoch starts at sequence 0. A batch of an older epoch fails with INVALID_PRODUCER_EPOCH.

* A producer that is unknown to the partition may start at any sequence, because its state may have expired.
  In a transaction with KIP-890's protocol (Produce v12 and later), however, such a producer must start at
  sequence 0.

* Attempts to write the first batch of a transaction are remembered until a batch or a marker of the producer
  is stored (VerificationStateEntry).

* The first stored batch of a transaction must not skip a remembered attempt of the same epoch: no such
  attempt may have a lower first sequence than the batch.

* The state of a producer expires if the producer writes nothing for `producer.id.expiration.ms`.

* After a truncation of the log, the state is rebuilt from the remaining batches.

* A marker may raise the epoch of a producer. Batches of the older epoch are then fenced (X4).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from ..error_codes import ErrorCode
from ..records import Batch

REMEMBERED_BATCHES: Final = 5  # ProducerStateEntry.NUM_BATCHES_TO_RETAIN
_SEQUENCE_COUNT: Final = 2**31


class StoredBatch(NamedTuple):
    """The metadata of a producer's batch in the log (Kafka's BatchMetadata)."""

    first_sequence: int
    last_sequence: int
    base_offset: int
    max_timestamp: int


@dataclass(slots=True)
class ProducerStateEntry:
    """The state of one producer in a partition (Kafka's ProducerStateEntry)."""

    epoch: int
    batches: deque[StoredBatch] = field(default_factory=lambda: deque(maxlen=REMEMBERED_BATCHES))
    # The coordinator epoch of the last marker; -1 without a marker.
    coordinator_epoch: int = -1
    # The timestamp (ms) of the last batch or marker.
    last_timestamp: int = -1

    @property
    def last_sequence(self) -> int:
        """The last sequence that was stored; -1 if no batch was stored."""
        return self.batches[-1].last_sequence if self.batches else -1

    def find_duplicate(self, first_sequence: int, last_sequence: int) -> StoredBatch | None:
        """Return the remembered batch with this first and last sequence; None if no batch has them."""
        for batch in self.batches:
            if (batch.first_sequence, batch.last_sequence) == (first_sequence, last_sequence):
                return batch
        return None


@dataclass(slots=True)
class VerificationState:
    """A producer's attempts to write the first batch of a transaction (Kafka's VerificationStateEntry)."""

    epoch: int
    # The lowest first sequence of the attempts in this epoch.
    lowest_sequence: int
    # Whether the first attempt to write this batch used Produce v12 or later. From v12, a producer that is
    # unknown to the partition must start at sequence 0 (KIP-890).
    starts_at_zero: bool
    timestamp: int


class PartitionProducers:
    """The idempotent producers of one partition (Kafka's ProducerStateManager)."""

    __slots__ = ("_entries", "_verifications")

    def __init__(self) -> None:
        self._entries: dict[int, ProducerStateEntry] = {}
        self._verifications: dict[int, VerificationState] = {}

    def active(self) -> list[tuple[int, ProducerStateEntry]]:
        """Return all known producers: pairs of a producer id and the producer's state."""
        return list(self._entries.items())

    def entry(self, producer_id: int) -> ProducerStateEntry | None:
        """Return the state of a producer, or None if the producer is unknown."""
        return self._entries.get(producer_id)

    def epoch(self, producer_id: int) -> int:
        """Return the newest epoch of a producer; -1 if the producer is unknown."""
        entry = self._entries.get(producer_id)
        return -1 if entry is None else entry.epoch

    def start_verification(
        self, producer_id: int, epoch: int, first_sequence: int, now: int, *, starts_at_zero: bool
    ) -> None:
        """Remember that a producer attempts to write the first batch of a transaction.

        An attempt in a newer epoch replaces the attempts of older epochs.
        """
        state = self._verifications.setdefault(
            producer_id, VerificationState(epoch, first_sequence, starts_at_zero, now)
        )
        if epoch > state.epoch:
            state.epoch, state.lowest_sequence = epoch, first_sequence
        elif epoch == state.epoch:
            state.lowest_sequence = min(state.lowest_sequence, first_sequence)

    def check(
        self,
        producer_id: int,
        epoch: int,
        first_sequence: int,
        count: int,
        *,
        starts_transaction: bool = False,
    ) -> ErrorCode | StoredBatch:
        """Return NONE to store the batch, an error to reject it, or a `StoredBatch`.

        A `StoredBatch` describes the batch in the log that this batch duplicates.

        `count` is the number of records in the batch. `starts_transaction` is true for the first batch of a
        transaction in this partition.

        If the result is NONE, the caller stores the batch and calls `on_batch_appended`.
        """
        entry = self._entries.get(producer_id)
        verification = self._verifications.get(producer_id) if starts_transaction else None
        # Whether the batch skips sequences of an earlier attempt to write to this transaction.
        skips_attempt = verification is not None and first_sequence > verification.lowest_sequence
        if entry is None:
            must_start_at_zero = verification is not None and verification.starts_at_zero
            in_order = not skips_attempt and (first_sequence == 0 or not must_start_at_zero)
            return ErrorCode.NONE if in_order else ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        if epoch < entry.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if epoch > entry.epoch:
            # A producer whose epoch is not known (-1) may start at any sequence.
            in_order = (first_sequence == 0 or entry.epoch < 0) and not skips_attempt
            return ErrorCode.NONE if in_order else ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        duplicate = entry.find_duplicate(first_sequence, last_sequence(first_sequence, count))
        if duplicate is not None:
            return duplicate
        next_sequence = (entry.last_sequence + 1) % _SEQUENCE_COUNT
        in_order = first_sequence == next_sequence and not skips_attempt
        return ErrorCode.NONE if in_order else ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

    def on_batch_appended(self, producer_id: int, epoch: int, batch: StoredBatch) -> None:
        """Remember a batch that was stored, and forget the attempts to write it."""
        self._verifications.pop(producer_id, None)
        entry = self._entries.get(producer_id)
        if entry is None or entry.epoch != epoch:
            coordinator_epoch = -1 if entry is None else entry.coordinator_epoch
            entry = ProducerStateEntry(epoch, coordinator_epoch=coordinator_epoch)
            self._entries[producer_id] = entry
        entry.batches.append(batch)
        entry.last_timestamp = batch.max_timestamp

    def on_marker_appended(self, producer_id: int, epoch: int, coordinator_epoch: int, now: int) -> None:
        """Record a transaction's marker; forget the producer's attempts to start a transaction."""
        self._verifications.pop(producer_id, None)
        entry = self._entries.get(producer_id)
        if entry is None or epoch > entry.epoch:
            entry = self._entries[producer_id] = ProducerStateEntry(epoch)
        entry.coordinator_epoch = coordinator_epoch
        entry.last_timestamp = now

    def expire(self, before: int, ongoing: Container[int]) -> None:
        """Remove producers and `VerificationState`s that are not newer than `before` (ms).

        Producers in `ongoing`, whose transactions are ongoing, are kept. Kafka's method is
        removeExpiredProducers.
        """
        for producer_id, entry in list(self._entries.items()):
            if entry.last_timestamp <= before and producer_id not in ongoing:
                del self._entries[producer_id]
        self._verifications = {
            producer_id: state
            for producer_id, state in self._verifications.items()
            if state.timestamp > before
        }

    def rebuild(self, batches: Iterable[Batch], end: int, coordinator_epoch: int) -> None:
        """Rebuild the state from the batches of a log that was truncated at `end`.

        If retention, not this truncation, removed the batches of a producer, the producer keeps its state.
        Unfinished attempts to write the first batch of a transaction are also kept. All markers in the log
        are treated as markers of `coordinator_epoch`.
        """
        previous_entries = self._entries
        # `on_batch_appended` and `on_marker_appended` forget a producer's attempts to start a transaction. So
        # the attempts are kept here, and restored when all batches have been read.
        verifications = self._verifications
        self._entries, self._verifications = {}, {}
        for batch in batches:
            if batch.is_control and batch.count:  # A control batch is empty if compaction removed its marker.
                self.on_marker_appended(
                    batch.producer_id, batch.producer_epoch, coordinator_epoch, batch.max_timestamp
                )
            elif batch.producer_id >= 0 and not batch.is_control:
                count = batch.last_offset - batch.base_offset + 1
                stored = StoredBatch(
                    batch.base_sequence,
                    last_sequence(batch.base_sequence, count),
                    batch.base_offset,
                    batch.max_timestamp,
                )
                self.on_batch_appended(batch.producer_id, batch.producer_epoch, stored)
        self._verifications = verifications
        for producer_id, entry in previous_entries.items():
            remaining = [batch for batch in entry.batches if batch.base_offset < end]
            if remaining and producer_id not in self._entries:
                entry.batches = deque(remaining, maxlen=REMEMBERED_BATCHES)
                self._entries[producer_id] = entry


def last_sequence(first_sequence: int, count: int) -> int:
    """Return the sequence of the last of `count` records; 0 follows 2**31 - 1."""
    return (first_sequence + count - 1) % _SEQUENCE_COUNT
