"""What a partition knows of transactions: which are open, and which were aborted where.

Rules, as Kafka's ProducerStateManager and TransactionIndex:
  * X5. A transaction of a partition begins with its first record there. Until its marker is in the log,
    nothing from that record on is stable: who reads only what is committed stops there.
  * A marker of a producer that has written nothing changes nothing, but is in the log.
  * Of what was aborted a reader needs to know those whose records lie between where it reads from and where
    it stops.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Container, Iterable
from typing import NamedTuple

from ..messages.control_records import ControlRecordTypeSchema, EndTxnMarker
from ..records import Batch, encode_batch
from ..records.record import Record

ABORT, COMMIT = 0, 1  # ControlRecordType
COORDINATOR_EPOCH = 0  # with one memory no coordinator is ever deposed


class Aborted(NamedTuple):
    """A transaction that was aborted: its producer, its first record and its marker."""

    producer_id: int
    first_offset: int
    last_offset: int


class Transactions:
    """The transactions in one partition's log."""

    __slots__ = ("_aborted", "_open")

    def __init__(self) -> None:
        # Producer id -> first offset. Offsets grow, so the first entry has the lowest.
        self._open: dict[int, int] = {}
        self._aborted: list[Aborted] = []  # by their last offset

    def first_open(self) -> int | None:
        """The first record whose fate is not decided."""
        return next(iter(self._open.values()), None)

    @property
    def writing(self) -> Container[int]:
        """The producers that have a transaction open here."""
        return self._open

    def start_of(self, producer_id: int) -> int | None:
        """Where the producer's open transaction began here; None if it has none."""
        return self._open.get(producer_id)

    def wrote(self, producer_id: int, offset: int) -> None:
        """A transactional batch of the producer is in the log."""
        self._open.setdefault(producer_id, offset)

    def ended(self, producer_id: int, offset: int, *, committed: bool) -> None:
        """The marker of the producer is in the log."""
        first = self._open.pop(producer_id, None)
        if first is not None and not committed:
            self._aborted.append(Aborted(producer_id, first, offset))

    def aborted(self, start: int, end: int) -> list[Aborted]:
        """Those that have records or a marker from `start` on, and began before `end`."""
        at = bisect_left(self._aborted, start, key=_last)
        return [one for one in self._aborted[at:] if one.first_offset < end]

    def forget_before(self, offset: int) -> None:
        """The log starts here now."""
        del self._aborted[: bisect_left(self._aborted, offset, key=_last)]

    def forget(self, gone: Iterable[Aborted]) -> None:
        """Of these nothing is left in the log."""
        for one in gone:
            self._aborted.remove(one)

    def read_again(self, batches: Iterable[Batch]) -> None:
        """The log was cut: what is left tells what is open, and what was aborted."""
        self._open.clear()
        self._aborted.clear()
        for batch in batches:
            if batch.is_control and not batch.count:
                continue  # a marker that was compacted
            if batch.is_control:
                committed = batch.records()[0].key == _key(COMMIT)
                self.ended(batch.producer_id, batch.base_offset, committed=committed)
            elif batch.is_transactional:
                self.wrote(batch.producer_id, batch.base_offset)


def marker(
    offset: int, leader_epoch: int, producer_id: int, producer_epoch: int, now: int, *, committed: bool
) -> bytes:
    """The batch that ends a transaction in a log."""
    value = (0).to_bytes(2, "big") + EndTxnMarker(coordinator_epoch=COORDINATOR_EPOCH).encode(0)
    record = Record(offset, now, _key(COMMIT if committed else ABORT), value)
    return encode_batch(
        [record],
        is_control=True,
        is_transactional=True,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        partition_leader_epoch=leader_epoch,
    )


def _key(kind: int) -> bytes:
    return (0).to_bytes(2, "big") + ControlRecordTypeSchema(type=kind).encode(0)


def _last(one: Aborted) -> int:
    return one.last_offset
