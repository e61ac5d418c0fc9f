"""Segments of a log: the units of retention and compaction.

A new segment is rolled before the append of a batch that would make the active segment exceed
`segment.bytes`.

A new segment is also rolled if the timestamp of the next batch is more than `segment.ms` after the timestamp
of the segment's first batch (LogSegment.shouldRoll).

These timestamps come from the records: the clock is not read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple


class Limits(NamedTuple):
    """The limits of a segment: its size in bytes, and the time in ms that its records span."""

    size: int
    ms: int


UNLIMITED: Final = Limits(2**63 - 1, 2**63 - 1)


@dataclass(slots=True)
class Segment:
    """One segment of a log. Its batches begin at `base_offset`, and end before the next segment."""

    base_offset: int
    # The size in bytes. Batches before the log start offset count until the whole segment is deleted.
    size: int = 0
    # The maximum timestamp of the segment's first batch.
    first_timestamp: int = -1
    largest_timestamp: int = -1

    def has_room(self, size: int, max_timestamp: int, limits: Limits) -> bool:
        """Return whether a batch fits into this segment within `limits`.

        If the batch does not fit, the log rolls a new segment.
        """
        if not self.size:
            return True
        exceeds_ms = self.first_timestamp >= 0 and max_timestamp - self.first_timestamp > limits.ms
        return self.size + size <= limits.size and not exceeds_ms

    def add(self, size: int, max_timestamp: int) -> None:
        """Add the size and the maximum timestamp of an appended batch."""
        if not self.size:
            self.first_timestamp = max_timestamp
        self.size += size
        self.largest_timestamp = max(self.largest_timestamp, max_timestamp)
