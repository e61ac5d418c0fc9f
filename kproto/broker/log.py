"""The log of one partition: record batches as they were produced, in offset order.

Rules:

* A batch is stored and sent whole, without being decoded. Apart from compaction, only a search by timestamp
  decodes stored records: the records of the batch that contains the result.

* Offsets increase from batch to batch, so a fetch finds its batches by binary search. Between batches,
  offsets are missing only where compaction removed a whole batch.

* The high watermark is the end of the log, because followers are not simulated.

* The last stable offset is an attribute of `topics.Partition`, because a log does not track transactions.

* Leader epochs are stored with their start offsets, as in Kafka's LeaderEpochFileCache. An epoch without
  records is removed when the next epoch starts.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from ..records import Batch, batches
from ..records.record_stream import record_lists
from .segments import UNLIMITED, Limits, Segment

# The number of records that a search by timestamp decodes at a time.
_SEARCH_PART_RECORDS: Final = 1000


class TimestampOffset(NamedTuple):
    """The offset, timestamp and leader epoch of the record that a search by timestamp found."""

    offset: int
    timestamp: int
    leader_epoch: int


class BatchRange(NamedTuple):
    """Adjacent batches of a log, with their size in bytes.

    `first` is the index of the first batch, `stop` the index after the last one.
    """

    first: int
    stop: int
    size: int


NO_BATCHES: Final = BatchRange(0, 0, 0)


class EpochEnd(NamedTuple):
    """A leader epoch and its end offset, which for the current epoch is the end of the log.

    Both fields are -1 if the log does not know the epoch.
    """

    leader_epoch: int
    end_offset: int


class Log:
    """The log of one partition. `append` stores whole batches; `find` and `read` return them."""

    __slots__ = (
        "_base_offsets",
        "_batch_timestamps",
        "_batches",
        "_epochs",
        "_latest_batch",
        "_next_offsets",
        "_running_max_timestamps",
        "_size_sums",
        "end_offset",
        "segments",
        "start_offset",
    )

    def __init__(self) -> None:
        self.start_offset = 0
        self.end_offset = 0
        # The last segment is active: batches are appended to it.
        self.segments = [Segment(0)]
        # `_batches` and the next five lists have one entry per batch.
        self._batches: list[bytes] = []
        self._base_offsets: list[int] = []
        # The offset after the last offset of each batch.
        self._next_offsets: list[int] = []
        # For each batch, the total size (bytes) of all batches ever stored, up to and including this batch.
        self._size_sums: list[int] = []
        # The maximum timestamp of each batch.
        self._batch_timestamps: list[int] = []
        # For each batch, the maximum timestamp of all batches up to and including it. The values never
        # decrease.
        self._running_max_timestamps: list[int] = []
        # The first batch with the maximum timestamp of the log, and this timestamp. DeleteRecords does not
        # change this attribute until the batch's segment is deleted.
        self._latest_batch: tuple[bytes, int] | None = None
        # Leader epochs and their first offsets.
        self._epochs: list[tuple[int, int]] = [(0, 0)]

    @property
    def leader_epoch(self) -> int:
        """The current leader epoch."""
        return self._epochs[-1][0]

    @property
    def size(self) -> int:
        """The size of all stored batches in bytes."""
        if not self._batches:
            return 0
        return self._size_sums[-1] - self._size_sums[0] + len(self._batches[0])

    def append(self, batch: bytes, count: int, max_timestamp: int, limits: Limits = UNLIMITED) -> None:
        """Append a batch of `count` records; its base offset is `end_offset`.

        If the batch exceeds the `limits` of the active segment, the log first rolls a new segment.
        """
        if not self.segments[-1].has_room(len(batch), max_timestamp, limits):
            self.roll()
        self.segments[-1].add(len(batch), max_timestamp)
        self._store(batch, self.end_offset, self.end_offset + count, max_timestamp)
        self.end_offset += count

    def _store(self, batch: bytes, base_offset: int, next_offset: int, max_timestamp: int) -> None:
        """Append a batch to the lists that have one entry per batch."""
        self._batches.append(batch)
        self._base_offsets.append(base_offset)
        self._next_offsets.append(next_offset)
        self._size_sums.append((self._size_sums[-1] if self._size_sums else 0) + len(batch))
        self._batch_timestamps.append(max_timestamp)
        maxima = self._running_max_timestamps
        maxima.append(max(max_timestamp, maxima[-1]) if maxima else max_timestamp)
        if self._latest_batch is None or max_timestamp > self._latest_batch[1]:
            self._latest_batch = batch, max_timestamp

    def roll(self) -> None:
        """Roll a new segment, unless the active segment is empty."""
        if self.segments[-1].size:
            self.segments.append(Segment(self.end_offset))

    def find(
        self, offset: int, max_bytes: int, *, at_least_one: bool, before: int | None = None
    ) -> BatchRange:
        """Find as many batches as fit into `max_bytes`, starting with the one that contains `offset`.

        With `at_least_one`, the first batch is found even if it is larger than `max_bytes`. Otherwise a
        consumer could never read past it.

        `before` excludes batches that start at this offset or later.

        The first batch may begin before `offset`: consumers drop its records before `offset`.

        No batch is copied: the cost does not depend on the size of the batches.
        """
        end = self.end_offset if before is None else before
        first = bisect_right(self._next_offsets, offset)
        if offset >= end or first == len(self._batches):
            return NO_BATCHES
        size_before = self._size_sums[first] - len(self._batches[first])
        stop = bisect_right(self._size_sums, size_before + max_bytes, lo=first)
        if stop == first and at_least_one:
            stop = first + 1
        if end < self.end_offset:
            stop = min(stop, bisect_left(self._base_offsets, end))
        return BatchRange(first, stop, self._size_sums[stop - 1] - size_before if stop > first else 0)

    def batches_of(self, batches: BatchRange) -> list[bytes]:
        """Return the batches that `find` found. The log must not have changed since `find` was called."""
        return self._batches[batches.first : batches.stop]

    def read(
        self, offset: int, max_bytes: int, *, at_least_one: bool, before: int | None = None
    ) -> list[bytes]:
        """Find batches as `find` does, and return them."""
        return self.batches_of(self.find(offset, max_bytes, at_least_one=at_least_one, before=before))

    def all_batches(self) -> list[Batch]:
        """Return all stored batches as parsed `Batch` objects."""
        return [batch for stored in self._batches for batch in batches(stored, check_crc=False)]

    def sizes_and_timestamps(self, start: int, end: int) -> list[tuple[int, int]]:
        """Return the size and maximum timestamp of each batch with a base offset in [start, end)."""
        first, stop = bisect_left(self._base_offsets, start), bisect_left(self._base_offsets, end)
        return [(len(self._batches[index]), self._batch_timestamps[index]) for index in range(first, stop)]

    def base_after(self, offset: int, count: int) -> int:
        """Return the base offset of the batch that is `count` batches after the one that contains `offset`.

        Returns the end offset of the log if fewer than `count` batches follow.
        """
        index = bisect_right(self._next_offsets, offset) + count
        return self._base_offsets[index] if index < len(self._base_offsets) else self.end_offset

    def first_at(self, timestamp: int) -> TimestampOffset | None:
        """Return the first record with this timestamp or a later one; None if all records are older.

        Raises RecordError or MissingExtra if the batch of the record cannot be decoded.
        """
        for index in range(bisect_left(self._running_max_timestamps, timestamp), len(self._batches)):
            if self._batch_timestamps[index] >= timestamp:
                record = _first_record(self._batches[index], timestamp, self.start_offset)
                if record is not None:
                    return record
        return None

    def latest_timestamp(self) -> TimestampOffset | None:
        """Return the first record with the maximum timestamp, or None if no segment has a record.

        As in Kafka, the record may be before the log start offset, if its segment still exists.
        """
        return None if self._latest_batch is None else _first_record(*self._latest_batch, 0)

    def delete_before(self, offset: int) -> None:
        """Move the start offset forward to `offset`, and delete the batches that end before it.

        The segments are not changed. The leader epoch of the new start offset becomes the first known epoch.
        """
        self.start_offset = max(self.start_offset, offset)
        count = bisect_right(self._next_offsets, self.start_offset)
        for column in (
            self._batches,
            self._base_offsets,
            self._next_offsets,
            self._size_sums,
            self._batch_timestamps,
        ):
            del column[:count]
        maximum = -(2**63)
        self._running_max_timestamps = [
            maximum := max(maximum, timestamp) for timestamp in self._batch_timestamps
        ]
        first_epoch = bisect_right(self._epochs, self.start_offset, key=_first_offset) - 1
        if first_epoch >= 0:
            self._epochs[: first_epoch + 1] = [(self._epochs[first_epoch][0], self.start_offset)]

    def delete_segments(self, count: int) -> None:
        """Delete the first `count` segments; if no segment remains, start a new one."""
        if count == len(self.segments):
            self.segments.append(Segment(self.end_offset))
        del self.segments[:count]
        start = self.segments[0].base_offset
        self.delete_before(start)
        if self._latest_batch is not None:
            base_offset = int.from_bytes(self._latest_batch[0][:8], "big")
            if base_offset < start:
                self._find_latest_batch()

    def replace(self, end: int, compacted: Sequence[Batch]) -> None:
        """Replace all batches before the offset `end` with those in `compacted`."""
        first = bisect_left(self._base_offsets, end)
        following_entries = [
            *zip(
                self._batches[first:],
                self._base_offsets[first:],
                self._next_offsets[first:],
                self._batch_timestamps[first:],
                strict=True,
            )
        ]
        compacted_entries = [
            (bytes(batch.data), batch.base_offset, batch.last_offset + 1, batch.max_timestamp)
            for batch in compacted
        ]
        for column in self._columns():
            column.clear()
        self._latest_batch = None
        for entry in (*compacted_entries, *following_entries):
            self._store(*entry)

    def _columns(self) -> tuple[list[Any], ...]:
        """Return the lists that have one entry per batch."""
        return (
            self._batches,
            self._base_offsets,
            self._next_offsets,
            self._size_sums,
            self._batch_timestamps,
            self._running_max_timestamps,
        )

    def corrupt(self, batch: int) -> None:
        """Invert the last byte of the stored batch with the index `batch`, as a defective disk might."""
        stored = self._batches[batch]
        self._batches[batch] = stored[:-1] + bytes([stored[-1] ^ 0xFF])

    def start_leader_epoch(self) -> None:
        """Start the next leader epoch at the end of the log, as after an election."""
        self._start_epoch(self.leader_epoch + 1)

    def truncate(self, offset: int) -> None:
        """Remove the batches from `offset` on, and start a new leader epoch (unclean election).

        The batch that contains `offset` is removed as a whole. The log then ends at the base offset of this
        batch, but never before the log start offset.
        """
        kept = bisect_right(self._next_offsets, offset)  # The number of batches that are not removed.
        first_removed = self._base_offsets[kept] if kept < len(self._base_offsets) else offset
        self.end_offset = max(min(first_removed, offset), self.start_offset)
        for column in self._columns():
            del column[kept:]
        self._find_latest_batch()
        while len(self.segments) > 1 and self.segments[-1].base_offset >= self.end_offset:
            self.segments.pop()
        active = self.segments[-1] = Segment(min(self.segments[-1].base_offset, self.end_offset))
        for size, timestamp in self.sizes_and_timestamps(active.base_offset, self.end_offset):
            active.add(size, timestamp)
        self._start_epoch(self.leader_epoch + 1)

    def _find_latest_batch(self) -> None:
        """Set `_latest_batch` to the first batch with the maximum timestamp; None if the log is empty."""
        latest = max(range(len(self._batches)), key=self._batch_timestamps.__getitem__, default=None)
        self._latest_batch = (
            None if latest is None else (self._batches[latest], self._batch_timestamps[latest])
        )

    def _start_epoch(self, leader_epoch: int) -> None:
        """Start a leader epoch at the end of the log.

        Leader epochs that already start at the end of the log, or after it, have no records, and are removed.
        """
        del self._epochs[bisect_left(self._epochs, self.end_offset, key=_first_offset) :]
        self._epochs.append((leader_epoch, self.end_offset))

    def epoch_end(self, leader_epoch: int) -> EpochEnd:
        """Return the largest known epoch up to `leader_epoch`, and its end offset (endOffsetFor).

        An epoch older than all known epochs ends at the first offset of the oldest known epoch. For
        epoch -1, and for an epoch newer than the current one, both fields of the result are -1.
        """
        if leader_epoch == self.leader_epoch:
            return EpochEnd(leader_epoch, self.end_offset)
        if leader_epoch == -1 or leader_epoch > self.leader_epoch:
            return EpochEnd(-1, -1)
        # Index of the first epoch after `leader_epoch`. This epoch starts where the previous epoch ends.
        newer = bisect_right(self._epochs, (leader_epoch, 2**63))
        known_epoch = self._epochs[newer - 1][0] if newer else leader_epoch
        return EpochEnd(known_epoch, self._epochs[newer][1])

    def epoch_at(self, offset: int) -> int:
        """Return the leader epoch of the record at `offset`; for the end offset, return the current epoch."""
        return self._epochs[max(bisect_right(self._epochs, offset, key=_first_offset) - 1, 0)][0]


def _first_record(stored: bytes, timestamp: int, start: int) -> TimestampOffset | None:
    """Return the first record with offset >= `start` and timestamp >= `timestamp`; None without a match."""
    for batch in batches(stored, check_crc=False):
        for records in record_lists(batch, _SEARCH_PART_RECORDS):
            for record in records:
                if record.timestamp >= timestamp and record.offset >= start:
                    return TimestampOffset(record.offset, record.timestamp, batch.partition_leader_epoch)
    return None


def _first_offset(epoch: tuple[int, int]) -> int:
    """Return the first offset of an entry of `Log._epochs`, as a search key."""
    return epoch[1]
