"""Compaction, which keeps only the last record of each key in a log.

Rules, as in Kafka's Cleaner:

* Compaction ends before the first segment that is active, has unstable records (X5), or has records younger
  than `min.compaction.lag.ms`.

* A record is removed if it has no key, or if its key occurs again later in the compacted segments. The
  offsets of other records do not change.

* A tombstone is kept for `delete.retention.ms` after its first compaction. The batch stores the end of this
  time as its delete horizon (KIP-534).

* A tombstone whose delete horizon does not fit in an int64 is kept forever.

* The marker of a transaction is kept for `delete.retention.ms` after the last record of the transaction was
  removed.

* Records of aborted transactions are removed by the first compaction. They do not replace earlier records of
  their keys.

* The last batch of each producer is kept, without records if necessary, so that the producer's sequence
  numbers continue.

* The last batch of the compacted segments is kept, so that consumers advance to the end of these segments.

* A batch that cannot be decoded is kept, and its keys are ignored. A batch that cannot be encoded again is
  kept unchanged.
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
from .transaction_index import AbortedTransactionRange

Config = Callable[[str], str]
_NO_OFFSET: Final = -1
_MAX_TIMESTAMP: Final = 2**63 - 1


def is_due(partition: Partition, config: Config, now: int) -> bool:
    """Return whether a log's dirty part exceeds `min.cleanable.dirty.ratio` or `max.compaction.lag.ms`."""
    end = _compaction_end(partition, config, now)
    cleanable = [segment for segment in partition.log.segments if segment.base_offset < end]
    dirty = [segment for segment in cleanable if segment.base_offset >= partition.compacted_to]
    dirty_size = sum(segment.size for segment in dirty)
    if not dirty_size:
        return False
    timestamps = [segment.first_timestamp for segment in dirty if segment.first_timestamp >= 0]
    if now - min(timestamps, default=now) > int(config("max.compaction.lag.ms")):
        return True
    ratio = dirty_size / sum(segment.size for segment in cleanable)
    return ratio > (double(config("min.cleanable.dirty.ratio")) or 0)


def compact(partition: Partition, config: Config, now: int) -> bool:
    """Compact the log of a partition once; return whether any batch changed."""
    log, end = partition.log, _compaction_end(partition, config, now)
    old_batches = [batch for batch in log.all_batches() if batch.base_offset < end]
    if not old_batches:
        return False
    aborted = partition.transactions.aborted(0, end)
    last_offsets = _last_offsets(old_batches, aborted)
    new_horizon = now + int(config("delete.retention.ms"))
    metadata = _CleanedTransactionMetadata(aborted)
    new_batches: list[Batch] = []
    for batch in old_batches:
        is_discarded = metadata.on_batch_read(batch)
        records = _decode_records(batch)
        if records is None:
            new_batches.append(batch)
            continue
        is_expired = batch.delete_horizon_ms is not None and batch.delete_horizon_ms <= now
        remaining = _remaining_records(
            batch, records, last_offsets, is_discarded=is_discarded, is_expired=is_expired
        )
        keeps_empty_batch = batch is old_batches[-1] or _is_last_of_producer(partition, batch)
        if not remaining and not keeps_empty_batch:
            continue
        # Tombstones that remain in the log will expire. So will a marker if no other batch of its transaction
        # remains.
        will_expire = is_discarded if batch.is_control else any(record.value is None for record in remaining)
        needs_horizon = bool(remaining) and will_expire and batch.delete_horizon_ms is None
        horizon = new_horizon if needs_horizon and new_horizon <= _MAX_TIMESTAMP else None
        try:
            new_batches.append(_with_records(batch, records, remaining, horizon))
        except (EncodeError, MissingExtra):
            new_batches.append(batch)
    log.replace(end, new_batches)
    partition.transactions.remove(metadata.emptied)
    _merge_segments(log, end, int(config("segment.bytes")))
    partition.compacted_to = end
    return len(new_batches) < len(old_batches) or any(
        new_batch is not old_batch for new_batch, old_batch in zip(new_batches, old_batches, strict=True)
    )


def _compaction_end(partition: Partition, config: Config, now: int) -> int:
    """Return the base offset of the first segment that must not be compacted yet."""
    log, min_lag_ms = partition.log, int(config("min.compaction.lag.ms"))
    *inactive_segments, active_segment = log.segments
    segment_ends = [segment.base_offset for segment in log.segments[1:]]
    for segment, segment_end in zip(inactive_segments, segment_ends, strict=True):
        is_unstable = segment_end > partition.stable_offset
        is_dirty = segment.base_offset >= partition.compacted_to
        is_too_young = min_lag_ms > 0 and segment.largest_timestamp > now - min_lag_ms
        if is_unstable or (is_dirty and is_too_young):
            return segment.base_offset
    return active_segment.base_offset


def _decode_records(batch: Batch) -> list[Record] | None:
    """Return the records of a batch, or None if the batch cannot be decoded."""
    try:
        return batch.records()
    except (MissingExtra, RecordError):
        return None


def _last_offsets(
    old_batches: Iterable[Batch], aborted: Iterable[AbortedTransactionRange]
) -> dict[bytes, int]:
    """Return the last offset of each key in the batches; records of aborted transactions are ignored."""
    metadata = _CleanedTransactionMetadata(aborted)
    last_offsets: dict[bytes, int] = {}
    for batch in old_batches:
        is_discarded = metadata.on_batch_read(batch)
        if is_discarded or batch.is_control:
            continue
        for record in _decode_records(batch) or ():
            if record.key is not None:
                last_offsets[record.key] = record.offset
    return last_offsets


def _remaining_records(
    batch: Batch,
    records: list[Record],
    last_offsets: dict[bytes, int],
    *,
    is_discarded: bool,
    is_expired: bool,
) -> list[Record]:
    """Return those records of a batch that compaction keeps.

    `is_discarded` is the result of `on_batch_read`. `is_expired` says whether the batch's delete horizon has
    passed. A discarded marker is kept until this horizon has passed. Discarded data records are removed
    immediately.
    """
    if batch.is_control:
        return [] if is_discarded and is_expired else records
    if is_discarded:
        return []
    return [record for record in records if _is_kept(record, last_offsets, keeps_tombstones=not is_expired)]


def _is_kept(record: Record, last_offsets: dict[bytes, int], *, keeps_tombstones: bool) -> bool:
    """Return whether a record is the last one of its key, and not a tombstone to be removed."""
    if record.key is None or last_offsets.get(record.key, _NO_OFFSET) > record.offset:
        return False
    return record.value is not None or keeps_tombstones


def _is_last_of_producer(partition: Partition, batch: Batch) -> bool:
    """Return whether a batch is the last one of a known producer.

    If the producer's last epoch has only a marker, this marker is the last batch.
    """
    entry = partition.producers.entry(batch.producer_id)
    if entry is None:
        return False
    if entry.batches:
        return entry.batches[-1].base_offset == batch.base_offset
    return batch.is_control and batch.producer_epoch == entry.epoch


def _with_records(batch: Batch, records: list[Record], remaining: list[Record], horizon: int | None) -> Batch:
    """Return a copy of the batch that contains only the records in `remaining`.

    `horizon` is the new delete horizon in ms. If it is None, the copy keeps the delete horizon of `batch`, or
    has none if no records remain. If nothing changes, the result is `batch` itself.
    """
    if len(records) == len(remaining) and horizon is None:
        return batch
    if horizon is None and remaining:
        horizon = batch.delete_horizon_ms
    has_append_time = batch.timestamp_type == "LogAppendTime"
    data = encode_batch(
        remaining,
        base_offset=batch.base_offset,
        last_offset=batch.last_offset,
        compression=batch.compression if remaining else "none",
        partition_leader_epoch=batch.partition_leader_epoch,
        timestamp_type=batch.timestamp_type,
        max_timestamp=batch.max_timestamp if has_append_time or not remaining else None,
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        base_sequence=batch.base_sequence,
        is_transactional=batch.is_transactional,
        is_control=batch.is_control,
        delete_horizon_ms=horizon,
    )
    (encoded,) = batches(data, check_crc=False)
    return encoded


def _merge_segments(log: Log, end: int, max_bytes: int) -> None:
    """Merge adjacent compacted segments up to `max_bytes`, and update their sizes and timestamps."""
    compacted = [segment for segment in log.segments if segment.base_offset < end]
    merged: list[Segment] = []
    merged_size = 0
    for segment in compacted:
        # `segment.size` is still the size before this compaction.
        if not merged or merged_size + segment.size > max_bytes:
            merged.append(Segment(segment.base_offset))
            merged_size = 0
        merged_size += segment.size
    segment_ends = [*(segment.base_offset for segment in merged[1:]), end]
    for segment, segment_end in zip(merged, segment_ends, strict=True):
        for length, timestamp in log.sizes_and_timestamps(segment.base_offset, segment_end):
            segment.add(length, timestamp)
    log.segments[: len(compacted)] = merged


class _CleanedTransactionMetadata:
    """A pass over a log that finds the batches to discard (Kafka's CleanedTransactionMetadata)."""

    def __init__(self, aborted: Iterable[AbortedTransactionRange]) -> None:
        # The aborted transactions that start after the current batch, in descending order of their first
        # offsets.
        self._upcoming = sorted(aborted, key=lambda transaction: transaction.first_offset, reverse=True)
        # Producer id -> its aborted transaction, and whether a batch of the transaction was found.
        self._ongoing_aborted: dict[int, tuple[AbortedTransactionRange, bool]] = {}
        # The ids of producers with a batch in a transaction that is not aborted.
        self._ongoing_committed: set[int] = set()
        # The aborted transactions of which the log contains only the marker.
        self.emptied: list[AbortedTransactionRange] = []

    def on_batch_read(self, batch: Batch) -> bool:
        """Return whether compaction discards a batch. Must be called once for each batch, in log order."""
        while self._upcoming and self._upcoming[-1].first_offset <= batch.last_offset:
            transaction = self._upcoming.pop()
            self._ongoing_aborted.setdefault(transaction.producer_id, (transaction, False))
        if batch.is_control:
            return self._on_control_batch_read(batch)
        if not batch.is_transactional:
            return False
        if batch.producer_id in self._ongoing_aborted:
            transaction, _ = self._ongoing_aborted[batch.producer_id]
            self._ongoing_aborted[batch.producer_id] = transaction, True
            return True
        self._ongoing_committed.add(batch.producer_id)
        return False

    def _on_control_batch_read(self, batch: Batch) -> bool:
        """End the producer's transaction; return whether compaction discards its marker.

        The marker is kept only if the cleaner has read a batch of the transaction before it.
        """
        if not batch.count:
            # An earlier compaction has removed the marker.
            return True
        if not is_abort_marker(batch):
            has_records = batch.producer_id in self._ongoing_committed
            self._ongoing_committed.discard(batch.producer_id)
            return not has_records
        aborted, has_batches = self._ongoing_aborted.pop(batch.producer_id, (None, False))
        if aborted is not None and not has_batches:
            self.emptied.append(aborted)
        return not has_batches
