"""Compaction: of a log only the last value of each key stays.

Rules, as Kafka's Cleaner:
  * The active segment is left alone, so is one with what isn't stable (X5) or is of less than
    `min.compaction.lag.ms` ago, and all behind it. What is before is gone over from the log's start.
  * A record goes when a later one there has its key, or none of its own has it. Offsets stay as they are.
  * A tombstone stays until `delete.retention.ms` after the first time that it was gone over; that moment is
    noted in its batch (KIP-534). One that no batch can note is never. So does a transaction's marker once
    nothing of its transaction is left.
  * What was aborted goes at once, and says nothing about a key.
  * The last batch of each producer stays, if need be without records, so that its sequences go on; and the
    last one that was gone over, so that readers learn how far they are.
  * A batch whose records can't be opened here stays as it is, and says nothing about a key. So stays one that
    can't be written again: its producer made it as no batch can be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from ..errors import EncodeError, MissingExtra, RecordError
from ..java_numbers import double
from ..records import Batch, batches, encode_batch
from ..records.reader import is_abort_marker
from ..records.record import Record
from .log import Log
from .segments import Segment
from .topics import Partition
from .transaction_index import Aborted

Config = Callable[[str], str]
_NEVER: Final = -1
_LAST_TIME: Final = 2**63 - 1


def is_due(partition: Partition, config: Config, now: int) -> bool:
    """Is enough of the log dirty, by `min.cleanable.dirty.ratio` or by `max.compaction.lag.ms`?"""
    until = _until(partition, config, now)
    there = [one for one in partition.log.segments if one.base_offset < until]
    dirty = [one for one in there if one.base_offset >= partition.compacted_to]
    size = sum(one.size for one in dirty)
    if not size:
        return False
    oldest = min((one.first_timestamp for one in dirty if one.first_timestamp >= 0), default=now)
    late = now - oldest > int(config("max.compaction.lag.ms"))
    return late or size / sum(one.size for one in there) > (double(config("min.cleanable.dirty.ratio")) or 0)


def compact(partition: Partition, config: Config, now: int) -> bool:
    """Go over the log of a partition once; is anything in it another than before?"""
    log, until = partition.log, _until(partition, config, now)
    found = [one for one in log.all_batches() if one.base_offset < until]
    if not found:
        return False
    aborted = partition.transactions.aborted(0, until)
    latest = _latest(found, aborted)
    horizon = now + int(config("delete.retention.ms"))
    comes = horizon <= _LAST_TIME
    fates, last = _Fates(aborted), found[-1]
    kept: list[Batch] = []
    for batch in found:
        goes = fates.discards(batch)
        keeps_head = batch is last or _is_needed(partition, batch)
        records = _records(batch)
        if records is None:
            kept.append(batch)
            continue
        over = batch.delete_horizon_ms is not None and batch.delete_horizon_ms <= now
        if batch.is_control:
            left = [] if goes and over else records
            begins = goes
        else:
            left = [] if goes else [one for one in records if _stays(one, latest, tombstones=not over)]
            begins = any(one.value is None for one in left)
        if left or keeps_head:
            begins = begins and comes and batch.delete_horizon_ms is None and bool(left)
            try:
                kept.append(_rewritten(batch, records, left, horizon if begins else None))
            except (EncodeError, MissingExtra):
                kept.append(batch)
    log.replace(until, kept)
    partition.transactions.forget(fates.emptied)
    _regroup(log, until, int(config("segment.bytes")))
    partition.compacted_to = until
    return len(kept) < len(found) or any(one is not other for one, other in zip(kept, found, strict=True))


def _until(partition: Partition, config: Config, now: int) -> int:
    """The first segment that is left alone."""
    log, lag = partition.log, int(config("min.compaction.lag.ms"))
    ends = [segment.base_offset for segment in log.segments[1:]]
    for segment, end in zip(log.segments, ends, strict=False):
        dirty = segment.base_offset >= partition.compacted_to
        if end > partition.stable_offset or (dirty and lag > 0 and segment.largest_timestamp > now - lag):
            return segment.base_offset
    return log.segments[-1].base_offset


def _records(batch: Batch) -> list[Record] | None:
    try:
        return batch.records()
    except (MissingExtra, RecordError):
        return None


def _latest(found: Iterable[Batch], aborted: Iterable[Aborted]) -> dict[bytes, int]:
    """The last offset of each key."""
    fates = _Fates(aborted)
    return {
        record.key: record.offset
        for batch in found
        if not fates.discards(batch) and not batch.is_control
        for record in _records(batch) or ()
        if record.key is not None
    }


def _stays(record: Record, latest: dict[bytes, int], *, tombstones: bool) -> bool:
    if record.key is None or latest.get(record.key, _NEVER) > record.offset:
        return False
    return record.value is not None or tombstones


def _is_needed(partition: Partition, batch: Batch) -> bool:
    """Does it hold the last sequence, or the last epoch, of a producer that is remembered?"""
    state = partition.producers.state(batch.producer_id)
    if state is None:
        return False
    if state.batches:
        return state.batches[-1].base_offset == batch.base_offset
    return batch.is_control and batch.producer_epoch == state.epoch


def _rewritten(batch: Batch, before: list[Record], left: list[Record], horizon: int | None) -> Batch:
    if len(before) == len(left) and horizon is None:
        return batch
    if horizon is None and left:
        horizon = batch.delete_horizon_ms
    appended = batch.timestamp_type == "LogAppendTime"
    data = encode_batch(
        left,
        base_offset=batch.base_offset,
        last_offset=batch.last_offset,
        compression=batch.compression if left else "none",
        partition_leader_epoch=batch.partition_leader_epoch,
        timestamp_type=batch.timestamp_type,
        max_timestamp=batch.max_timestamp if appended or not left else None,
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        base_sequence=batch.base_sequence,
        is_transactional=batch.is_transactional,
        is_control=batch.is_control,
        delete_horizon_ms=horizon,
    )
    (made,) = batches(data, check_crc=False)
    return made


def _regroup(log: Log, until: int, largest: int) -> None:
    """Join small segments that were gone over, and note what is left in each."""
    old = [one for one in log.segments if one.base_offset < until]
    joined: list[Segment] = []
    size = 0
    for one in old:
        if not joined or size + one.size > largest:
            joined.append(Segment(one.base_offset))
            size = 0
        size += one.size
    ends = [*(one.base_offset for one in joined[1:]), until]
    for one, end in zip(joined, ends, strict=True):
        for length, timestamp in log.stored(one.base_offset, end):
            one.add(length, timestamp)
    log.segments[: len(old)] = joined


class _Fates:
    """Which batches can go for what became of their transactions, as they are met in a walk over a log
    (CleanedTransactionMetadata).
    """

    def __init__(self, aborted: Iterable[Aborted]) -> None:
        self._coming = sorted(aborted, key=lambda one: one.first_offset, reverse=True)
        self._aborting: dict[int, tuple[Aborted, bool]] = {}  # and whether something of it was met
        self._committing: set[int] = set()
        self.emptied: list[Aborted] = []
        """What was aborted and has nothing left but its marker."""

    def discards(self, batch: Batch) -> bool:
        while self._coming and self._coming[-1].first_offset <= batch.last_offset:
            one = self._coming.pop()
            self._aborting.setdefault(one.producer_id, (one, False))
        if batch.is_control:
            return self._marker_goes(batch)
        if not batch.is_transactional:
            return False
        if batch.producer_id in self._aborting:
            self._aborting[batch.producer_id] = self._aborting[batch.producer_id][0], True
            return True
        self._committing.add(batch.producer_id)
        return False

    def _marker_goes(self, batch: Batch) -> bool:
        if not batch.count:
            return True
        if not is_abort_marker(batch):
            there = batch.producer_id in self._committing
            self._committing.discard(batch.producer_id)
            return not there
        one, met = self._aborting.pop(batch.producer_id, (None, False))
        if one is not None and not met:
            self.emptied.append(one)
        return not met
