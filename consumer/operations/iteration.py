"""The records that an iteration holds, and the time for which the consumer certainly owns them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from operator import itemgetter, length_hint
from time import time

from kproto.group.subscription import TopicPartition

from ..clock import now
from ..engine import events as ev
from ..engine.consumer import ConsumerEngine
from ..options import ConsumerOptions
from ..records import ConsumerRecord

# Longest interval (s) at which an iteration asks the engine whether the consumer still owns the held records,
# and reports its progress. If the wall clock is set back, a pause of the process stays unnoticed for at most
# this time.
_MAX_CHECK_S = 1.0

# Pairs (row, partition): the first row of each run of records of the same partition.
Starts = list[tuple[int, TopicPartition]]


class Iteration:
    """The records of one poll, some of which an iteration has returned.

    The iteration returns the remaining records only while their partitions certainly belong to this consumer:
    between `owned_from` and `owned_until`, in seconds of `time.time()`. That clock continues while the
    machine sleeps, and is the fastest one to read. It may be set back, so the iteration checks `owned_from`
    as well. A process that was stopped for longer than its session timeout returns none of these records.
    """

    __slots__ = (
        "_check_s",
        "_engine",
        "_losses",
        "_starts",
        "owned_from",
        "owned_until",
        "records",
        "remaining",
    )

    def __init__(self, engine: ConsumerEngine, options: ConsumerOptions) -> None:
        self._engine = engine
        self.records: list[ConsumerRecord] = []
        self.remaining: Iterator[ConsumerRecord] = iter(())
        self.owned_from = self.owned_until = 0.0
        self._starts: Starts | None = None
        self._losses = 0
        self._check_s = _MAX_CHECK_S
        if options.enable_auto_commit:
            self._check_s = min(_MAX_CHECK_S, max(1, options.auto_commit_interval_ms) / 1000)

    def hold(self, delivered: ev.Deliver) -> None:
        """Hold the records of a poll, in place of those of the previous poll."""
        remaining = iter(delivered.rows)
        self.records, self.remaining, self._losses = delivered.rows, remaining, delivered.losses
        self._starts = None

    def drop(self, remaining: Iterator[ConsumerRecord]) -> None:
        """Release all held records.

        The caller passes an empty iterator as `remaining`, so that this method calls no function and Ctrl-C
        cannot interrupt it.
        """
        self.records, self.remaining, self._starts = [], remaining, None

    def check_ownership(self) -> bool:
        """Return whether the consumer still owns the held records; set for how long this is certain.

        The engine must be locked.
        """
        if self._engine.core.partitions.losses != self._losses:
            return False
        until = self._engine.assignment_deadline()
        seconds = self._check_s if until is None else min(self._check_s, (until - now()) / 1000)
        self.owned_from = time()
        self.owned_until = self.owned_from + seconds
        return True

    def expire_if_lost(self) -> None:
        """Stop the iteration if the consumer has released a partition since the last poll."""
        if self.records and self._engine.core.partitions.losses != self._losses:
            self.owned_until = 0.0

    def returned(self) -> int:
        """Return the number of held records that the iteration has returned."""
        return len(self.records) - length_hint(self.remaining)

    def next_offsets(self) -> dict[TopicPartition, int]:
        """Map each partition to its first offset that the iteration has not returned yet."""
        return self.offsets_from(self.returned()) if self.records else {}

    def offsets_from(self, row: int) -> dict[TopicPartition, int]:
        """Map each partition to its first offset at this row or after it.

        The runs of equal partitions are searched only once for each poll's records.
        """
        if self._starts is None:
            self._starts = partition_starts(self.records)
        return first_offsets(self.records, self._starts, row)


def partition_starts(records: Iterable[ConsumerRecord]) -> Starts:
    """Return each row at which the partition changes, and the partition that begins there.

    The result is short, because most records follow a record of the same partition.
    """
    starts: Starts = []
    last: tuple[str, int] | None = None
    for row, record in enumerate(records):
        if (key := (record.topic, record.partition)) != last:
            starts.append((row, TopicPartition(*key)))
            last = key
    return starts


def first_offsets(records: list[ConsumerRecord], starts: Starts, row: int) -> dict[TopicPartition, int]:
    """Map each partition to its first offset at this row or after it."""
    offsets: dict[TopicPartition, int] = {}
    for index in range(max(0, bisect_right(starts, row, key=itemgetter(0)) - 1), len(starts)):
        start, partition = starts[index]
        first = max(start, row)
        if first < (starts[index + 1][0] if index + 1 < len(starts) else len(records)):
            offsets.setdefault(partition, records[first].offset)
    return offsets
