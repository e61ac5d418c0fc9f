"""What goes from the head of a log because it is old, or because there is too much of it.

Rules, as Kafka's UnifiedLog.deleteOldSegments:
  * Segments go whole, the oldest first, up to the first that stays: a segment is as old as its newest record.
    If all go, the log starts at its end.
  * By size a segment goes only if `retention.bytes` are left without it.
  * With a cleanup.policy without delete, which may be an empty one, only those go that end before the log's
    start.
"""

from __future__ import annotations

from collections.abc import Callable

from .log import Log
from .segments import Segment


def drop_old(log: Log, config: Callable[[str], str], now: int) -> None:
    """Delete the segments of a log whose time is over. `config` tells the topic's configs by their names."""
    _drop(log, lambda segment, end: end <= log.start_offset and segment is not log.segments[-1])
    if "delete" not in config("cleanup.policy"):
        return
    most, oldest = int(config("retention.bytes")), int(config("retention.ms"))
    if most >= 0:
        above = sum(segment.size for segment in log.segments) - most

        def too_many(segment: Segment, _: int) -> bool:
            nonlocal above
            above -= segment.size
            return above >= 0

        _drop(log, too_many)
    if oldest >= 0:
        _drop(log, lambda segment, _: segment.largest_timestamp < now - oldest)


def _drop(log: Log, goes: Callable[[Segment, int], bool]) -> None:
    ends = [*(segment.base_offset for segment in log.segments[1:]), log.end_offset]
    count = 0
    for segment, end in zip(log.segments, ends, strict=True):
        empty = segment is log.segments[-1] and not segment.size
        if empty or not goes(segment, end):
            break
        count += 1
    if count:
        log.drop_segments(count)
