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

    `config` is a function that returns the value of a topic config by its name. `now` is the wall-clock time
    in ms.
    """
    _delete_leading_segments(
        log, lambda segment, end: end <= log.start_offset and segment is not log.segments[-1]
    )
    if "delete" not in config("cleanup.policy"):
        return
    max_bytes, max_age_ms = int(config("retention.bytes")), int(config("retention.ms"))
    if max_bytes >= 0:
        excess_bytes = sum(segment.size for segment in log.segments) - max_bytes

        def is_excess(segment: Segment, _: int) -> bool:
            nonlocal excess_bytes
            excess_bytes -= segment.size
            return excess_bytes >= 0

        _delete_leading_segments(log, is_excess)
    if max_age_ms >= 0:
        _delete_leading_segments(log, lambda segment, _: segment.largest_timestamp < now - max_age_ms)


def _delete_leading_segments(log: Log, is_deletable: Callable[[Segment, int], bool]) -> None:
    """Delete all segments before the first one that is not deletable, but never an empty active segment.

    `is_deletable` is a function of a segment and the segment's end offset. It is called for the segments in
    order, up to the first segment that is kept.
    """
    end_offsets = [*(segment.base_offset for segment in log.segments[1:]), log.end_offset]
    count = 0
    for segment, end_offset in zip(log.segments, end_offsets, strict=True):
        is_empty_active = segment is log.segments[-1] and not segment.size
        if is_empty_active or not is_deletable(segment, end_offset):
            break
        count += 1
    if count:
        log.delete_segments(count)
