"""Retention: deletion of old or excess segments at the start of a log.

Rules, as in Kafka's UnifiedLog.deleteOldSegments:

* Whole segments are deleted, the oldest first, up to the first segment that must be kept.

* If all segments are deleted, the log start offset advances to the log end offset.

* The age of a segment is the age of its newest record.

* A segment is deleted because of `retention.bytes` if the segments after it have at least `retention.bytes`
  bytes.

* If cleanup.policy does not contain "delete", only segments before the log start offset are deleted.
"""

from __future__ import annotations

from collections.abc import Callable

from .log import Log
from .segments import Segment


def delete_old_segments(log: Log, config: Callable[[str], str], now: int) -> None:
    """Apply the retention configs of a topic to a log.

    `config` is a function that returns the value of a topic config by its name.
    """
    _delete_first(log, lambda segment, end: end <= log.start_offset and segment is not log.segments[-1])
    if "delete" not in config("cleanup.policy"):
        return
    max_bytes, max_age = int(config("retention.bytes")), int(config("retention.ms"))
    if max_bytes >= 0:
        excess = sum(segment.size for segment in log.segments) - max_bytes

        def exceeds_size(segment: Segment, _: int) -> bool:
            nonlocal excess
            excess -= segment.size
            return excess >= 0

        _delete_first(log, exceeds_size)
    if max_age >= 0:
        _delete_first(log, lambda segment, _: segment.largest_timestamp < now - max_age)


def _delete_first(log: Log, is_deletable: Callable[[Segment, int], bool]) -> None:
    """Delete all segments before the first one that is not deletable; keep an empty active segment.

    `is_deletable` is a function of a segment and the segment's end offset.
    """
    ends = [*(segment.base_offset for segment in log.segments[1:]), log.end_offset]
    count = 0
    for segment, end in zip(log.segments, ends, strict=True):
        empty = segment is log.segments[-1] and not segment.size
        if empty or not is_deletable(segment, end):
            break
        count += 1
    if count:
        log.delete_segments(count)
