"""The transactions of one partition: the ongoing ones, and the offsets of aborted ones.

Rules, as in Kafka's ProducerStateManager and TransactionIndex:

* X5. A transaction starts with its first record in the partition. This record and all later records are
  unstable until the transaction's marker is written: `read_committed` does not read them.

* A marker may also be written to a partition that contains no records of its transaction. Such a marker has
  no effect.

* A Fetch response lists the aborted transactions that overlap the fetched offsets.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Container, Iterable
from typing import Final, NamedTuple

from ..messages.control_records import ControlRecordTypeSchema, EndTxnMarker
from ..records import Batch, encode_batch
from ..records.record import Record

# ControlRecordType
ABORT: Final = 0
COMMIT: Final = 1
# The bytes with which the key and the value of a control record begin: version 0 of their schema.
_SCHEMA_VERSION: Final = (0).to_bytes(2, "big")
# The coordinator epoch in markers. It is constant, because the brokers of a cluster share one transaction
# coordinator, which is never replaced.
COORDINATOR_EPOCH: Final = 0


class AbortedTransactionRange(NamedTuple):
    """An aborted transaction: the offset of its first record, and the offset of its marker."""

    producer_id: int
    first_offset: int
    last_offset: int


class PartitionTransactions:
    """The transactions in the log of one partition."""

    __slots__ = ("_aborted", "_ongoing")

    def __init__(self) -> None:
        # Producer id -> the first offset of its transaction, in the order of the offsets.
        self._ongoing: dict[int, int] = {}
        # Ordered by last offset.
        self._aborted: list[AbortedTransactionRange] = []

    def first_unstable_offset(self) -> int | None:
        """Return the first offset of the oldest ongoing transaction; None if no transaction is ongoing."""
        return next(iter(self._ongoing.values()), None)

    @property
    def ongoing_producers(self) -> Container[int]:
        """The producer ids with an ongoing transaction."""
        return self._ongoing

    def start_of(self, producer_id: int) -> int | None:
        """Return the first offset of the producer's ongoing transaction; None without a transaction."""
        return self._ongoing.get(producer_id)

    def on_batch_appended(self, producer_id: int, offset: int) -> None:
        """Record a transactional batch; the first one starts the producer's transaction."""
        self._ongoing.setdefault(producer_id, offset)

    def on_marker_appended(self, producer_id: int, offset: int, *, committed: bool) -> None:
        """Record the marker that ends the producer's transaction."""
        first_offset = self._ongoing.pop(producer_id, None)
        if first_offset is not None and not committed:
            self._aborted.append(AbortedTransactionRange(producer_id, first_offset, offset))

    def aborted(self, start: int, end: int) -> list[AbortedTransactionRange]:
        """Return the aborted transactions that end at `start` or later, and begin before `end`."""
        first_index = bisect_left(self._aborted, start, key=_last_offset)
        return [aborted for aborted in self._aborted[first_index:] if aborted.first_offset < end]

    def delete_before(self, offset: int) -> None:
        """Delete the aborted transactions that end before the new log start offset."""
        del self._aborted[: bisect_left(self._aborted, offset, key=_last_offset)]

    def remove(self, transactions: Iterable[AbortedTransactionRange]) -> None:
        """Remove aborted transactions of which compaction has left only the markers."""
        for aborted in transactions:
            self._aborted.remove(aborted)

    def rebuild(self, batches: Iterable[Batch]) -> None:
        """Rebuild the transactions from the remaining batches of a truncated log."""
        self._ongoing.clear()
        self._aborted.clear()
        for batch in batches:
            if batch.is_control and not batch.count:
                continue  # Compaction removed the marker.
            if batch.is_control:
                committed = batch.records()[0].key == _marker_key(COMMIT)
                self.on_marker_appended(batch.producer_id, batch.base_offset, committed=committed)
            elif batch.is_transactional:
                self.on_batch_appended(batch.producer_id, batch.base_offset)


def marker(
    offset: int,
    leader_epoch: int,
    producer_id: int,
    producer_epoch: int,
    now: int,
    coordinator_epoch: int,
    *,
    committed: bool,
) -> bytes:
    """Return the control batch that ends a transaction."""
    value = _SCHEMA_VERSION + EndTxnMarker(coordinator_epoch=coordinator_epoch).encode(0)
    record = Record(offset, now, _marker_key(COMMIT if committed else ABORT), value)
    return encode_batch(
        [record],
        is_control=True,
        is_transactional=True,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        partition_leader_epoch=leader_epoch,
    )


def _marker_key(record_type: int) -> bytes:
    return _SCHEMA_VERSION + ControlRecordTypeSchema(type=record_type).encode(0)


def _last_offset(aborted: AbortedTransactionRange) -> int:
    return aborted.last_offset
