"""The segments of a partition's log: the pieces in which its records grow old, are deleted and are compacted.

Rule: a segment ends when the next batch would make it larger than `segment.bytes`, or is of more than
`segment.ms` after its first one (LogSegment.shouldRoll). Only the records' own time counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple


class Limits(NamedTuple):
    """How large a segment may get, and of how long a time its records may be."""

    size: int
    ms: int


UNLIMITED: Final = Limits(2**63 - 1, 2**63 - 1)


@dataclass(slots=True)
class Segment:
    """What is known of one segment; its batches are the log's from `base_offset` on."""

    base_offset: int
    size: int = 0
    """Bytes that it was given; those before the log's start count until the whole segment is deleted."""
    first_timestamp: int = -1
    """The highest of its first batch."""
    largest_timestamp: int = -1

    def takes(self, size: int, max_timestamp: int, limits: Limits) -> bool:
        """Is there room for a batch here, or does it begin the next segment?"""
        if not self.size:
            return True
        late = self.first_timestamp >= 0 and max_timestamp - self.first_timestamp > limits.ms
        return self.size + size <= limits.size and not late

    def add(self, size: int, max_timestamp: int) -> None:
        """A batch is in it."""
        if not self.size:
            self.first_timestamp = max_timestamp
        self.size += size
        self.largest_timestamp = max(self.largest_timestamp, max_timestamp)
