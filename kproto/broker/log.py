"""One partition's log: record batches as the bytes they came in, in offset order.

Rules:
  * A batch is stored and sent whole, and never decoded for either. Only a search by time decodes records,
    and only those of the batch that holds the answer.
  * Offsets grow from batch to batch, so finding one, and the end of what fits into a fetch, are binary
    searches. Gaps there are only where compaction left nothing of a batch.
  * With one broker the high watermark is the end of the log. The last stable offset is the partition's
    (`topics.Partition`), as a log knows nothing of transactions.
  * Leader epochs are kept as Kafka's LeaderEpochFileCache does: each with its first offset, both growing.
    An epoch in which nothing was written is forgotten when the next one begins at the same offset.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Any, NamedTuple

from ..records import Batch, batches
from .segments import UNLIMITED, Limits, Segment


class Found(NamedTuple):
    """A record found by time."""

    offset: int
    timestamp: int
    leader_epoch: int


class EpochEnd(NamedTuple):
    """Where a leader epoch ended. Both -1: this log knows nothing of that epoch."""

    leader_epoch: int
    end_offset: int


class Log:
    """The log of one partition. `append` takes whole batches, `read` gives them back."""

    __slots__ = (
        "_bases",
        "_batches",
        "_ends",
        "_epochs",
        "_highest",
        "_latest",
        "_nexts",
        "_timestamps",
        "end_offset",
        "segments",
        "start_offset",
    )

    def __init__(self) -> None:
        self.start_offset = 0
        self.end_offset = 0
        self.segments = [Segment(0)]
        """The last one is the active one, which is written to."""
        # One entry per batch in each of these six, in step.
        self._batches: list[bytes] = []
        self._bases: list[int] = []
        self._nexts: list[int] = []  # the offset after its last one
        self._ends: list[int] = []  # bytes ever stored up to and including this batch
        self._timestamps: list[int] = []
        self._highest: list[int] = []  # the highest timestamp up to and including this batch: ordered
        # The first batch with the highest timestamp, and that: it stays when the log starts behind it.
        self._latest: tuple[bytes, int] | None = None
        self._epochs: list[tuple[int, int]] = [(0, 0)]  # (leader epoch, its first offset)

    @property
    def leader_epoch(self) -> int:
        return self._epochs[-1][0]

    @property
    def size(self) -> int:
        """Bytes stored now."""
        return self._ends[-1] - self._ends[0] + len(self._batches[0]) if self._batches else 0

    def append(self, batch: bytes, count: int, max_timestamp: int, limits: Limits = UNLIMITED) -> None:
        """Store a batch of `count` records, which already carries `end_offset` as its base offset; in a new
        segment when the `limits` say so.
        """
        if not self.segments[-1].takes(len(batch), max_timestamp, limits):
            self.roll()
        self.segments[-1].add(len(batch), max_timestamp)
        self._store(batch, self.end_offset, self.end_offset + count, max_timestamp)
        self.end_offset += count

    def _store(self, batch: bytes, base: int, after: int, max_timestamp: int) -> None:
        self._batches.append(batch)
        self._bases.append(base)
        self._nexts.append(after)
        self._ends.append((self._ends[-1] if self._ends else 0) + len(batch))
        self._timestamps.append(max_timestamp)
        self._highest.append(max(max_timestamp, self._highest[-1]) if self._highest else max_timestamp)
        if self._latest is None or max_timestamp > self._latest[1]:
            self._latest = batch, max_timestamp

    def roll(self) -> None:
        """Begin a new segment, unless the active one is empty."""
        if self.segments[-1].size:
            self.segments.append(Segment(self.end_offset))

    def read(
        self, offset: int, max_bytes: int, *, at_least_one: bool, before: int | None = None
    ) -> list[bytes]:
        """The batches from the one that holds `offset` on, as many as fit into `max_bytes`.

        With `at_least_one` the first is there even when it alone is larger: a consumer could otherwise never
        get past it. The first batch may begin before `offset`; consumers drop what they didn't ask for.
        Of batches from the offset `before` on there is none.
        """
        end = self.end_offset if before is None else before
        first = bisect_right(self._nexts, offset)
        if offset >= end or first == len(self._batches):
            return []
        stored = self._ends[first] - len(self._batches[first])
        after = bisect_right(self._ends, stored + max_bytes, lo=first)
        if after == first and at_least_one:
            after = first + 1
        if end < self.end_offset:
            after = min(after, bisect_left(self._bases, end))
        return self._batches[first:after]

    def all_batches(self) -> list[Batch]:
        """All that is stored, opened."""
        return [batch for stored in self._batches for batch in batches(stored, check_crc=False)]

    def stored(self, start: int, end: int) -> list[tuple[int, int]]:
        """The size and the highest timestamp of each batch that begins from `start` on, and before `end`."""
        first, after = bisect_left(self._bases, start), bisect_left(self._bases, end)
        return [(len(self._batches[at]), self._timestamps[at]) for at in range(first, after)]

    def base_after(self, offset: int, count: int) -> int:
        """Where the batch begins that comes `count` batches after the one that holds `offset`."""
        at = bisect_right(self._nexts, offset) + count
        return self._bases[at] if at < len(self._bases) else self.end_offset

    def first_at(self, timestamp: int) -> Found | None:
        """The first record whose timestamp is `timestamp` or later; None when all are older.

        Raises RecordError or MissingExtra when the batch that holds it can't be decoded.
        """
        for index in range(bisect_left(self._highest, timestamp), len(self._batches)):
            if self._timestamps[index] >= timestamp:
                found = _first_in(self._batches[index], timestamp, self.start_offset)
                if found is not None:
                    return found
        return None

    def latest_timestamp(self) -> Found | None:
        """The first record with the highest timestamp of all; None in a log that never had one.

        It may lie before the start, as Kafka's does while its segment is there.
        """
        return None if self._latest is None else _first_in(*self._latest, 0)

    def delete_before(self, offset: int) -> None:
        """Let the log start at `offset`, and forget the batches that end before it."""
        self.start_offset = max(self.start_offset, offset)
        gone = bisect_right(self._nexts, self.start_offset)
        for column in (self._batches, self._bases, self._nexts, self._ends, self._timestamps):
            del column[:gone]
        highest = -(2**63)
        self._highest = [highest := max(highest, timestamp) for timestamp in self._timestamps]
        first = bisect_right(self._epochs, self.start_offset, key=_start) - 1
        if first >= 0:
            self._epochs[: first + 1] = [(self._epochs[first][0], self.start_offset)]

    def drop_segments(self, count: int) -> None:
        """Delete the first `count` segments, and begin a new one if these are all."""
        if count == len(self.segments):
            self.segments.append(Segment(self.end_offset))
        del self.segments[:count]
        start = self.segments[0].base_offset
        self.delete_before(start)
        if self._latest is not None and int.from_bytes(self._latest[0][:8], "big") < start:
            self._look_for_latest()

    def replace(self, until: int, kept: Sequence[Batch]) -> None:
        """Let these batches, in their order, be all that there is before the offset `until`."""
        at = bisect_left(self._bases, until)
        rest = [
            *zip(self._batches[at:], self._bases[at:], self._nexts[at:], self._timestamps[at:], strict=True)
        ]
        stored = [(bytes(one.data), one.base_offset, one.last_offset + 1, one.max_timestamp) for one in kept]
        for column in self._columns():
            column.clear()
        self._latest = None
        for entry in (*stored, *rest):
            self._store(*entry)

    def _columns(self) -> tuple[list[Any], ...]:
        """What is kept of each batch, an entry for each in every one."""
        return self._batches, self._bases, self._nexts, self._ends, self._timestamps, self._highest

    def spoil(self, batch: int) -> None:
        """Break the last byte of a stored batch, as a bad disk would; 0 is the first that is there."""
        stored = self._batches[batch]
        self._batches[batch] = stored[:-1] + bytes([stored[-1] ^ 0xFF])

    def elect(self) -> None:
        """A new leader epoch begins here, as after a leader election."""
        self._begin(self.leader_epoch + 1)

    def truncate(self, offset: int) -> None:
        """Lose everything from `offset` on, and begin a new leader epoch: an unclean election.

        A batch is lost whole, so the log may end before `offset`: where the batch that holds it began. It
        never ends before it starts.
        """
        left = bisect_right(self._nexts, offset)
        first = self._bases[left] if left < len(self._bases) else offset
        self.end_offset = max(min(first, offset), self.start_offset)
        for column in self._columns():
            del column[left:]
        self._look_for_latest()
        while len(self.segments) > 1 and self.segments[-1].base_offset >= self.end_offset:
            self.segments.pop()
        active = self.segments[-1] = Segment(min(self.segments[-1].base_offset, self.end_offset))
        for size, timestamp in self.stored(active.base_offset, self.end_offset):
            active.add(size, timestamp)
        self._begin(self.leader_epoch + 1)

    def _look_for_latest(self) -> None:
        latest = max(range(len(self._batches)), key=self._timestamps.__getitem__, default=None)
        self._latest = None if latest is None else (self._batches[latest], self._timestamps[latest])

    def _begin(self, leader_epoch: int) -> None:
        """Note where an epoch begins; those that began there or later have no records (any more)."""
        del self._epochs[bisect_left(self._epochs, self.end_offset, key=_start) :]
        self._epochs.append((leader_epoch, self.end_offset))

    def epoch_end(self, leader_epoch: int) -> EpochEnd:
        """The end of the largest known epoch not above `leader_epoch` (LeaderEpochFileCache.endOffsetFor).

        An epoch older than all that are known ended where the first of these began; -1 is none.
        """
        if leader_epoch == self.leader_epoch:
            return EpochEnd(leader_epoch, self.end_offset)
        if leader_epoch == -1 or leader_epoch > self.leader_epoch:
            return EpochEnd(-1, -1)
        after = bisect_right(self._epochs, (leader_epoch, 2**63))
        known = self._epochs[after - 1][0] if after else leader_epoch
        return EpochEnd(known, self._epochs[after][1])

    def epoch_at(self, offset: int) -> int:
        """The leader epoch under which `offset` was, or will be, stored."""
        return self._epochs[max(bisect_right(self._epochs, offset, key=_start) - 1, 0)][0]


def _first_in(stored: bytes, timestamp: int, start: int) -> Found | None:
    """The first record of a batch from `start` on that is of `timestamp` or later."""
    for batch in batches(stored, check_crc=False):
        for record in batch.records():
            if record.timestamp >= timestamp and record.offset >= start:
                return Found(record.offset, record.timestamp, batch.partition_leader_epoch)
    return None


def _start(epoch: tuple[int, int]) -> int:
    return epoch[1]
