"""The clocks of all clients: `now` never goes backwards, and `wall` is the time of day.

Where CLOCK_BOOTTIME exists, `now` also advances while the computer sleeps. After the sleep a member
therefore notices that its session has expired, and that the group may have reassigned its partitions. On
other systems `now` may stop during the sleep.
"""

from __future__ import annotations

import time

if hasattr(time, "CLOCK_BOOTTIME"):

    def now() -> int:
        """Return the milliseconds since a fixed moment in the past."""
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000

else:

    def now() -> int:
        """Return the milliseconds since a fixed moment in the past."""
        return time.monotonic_ns() // 1_000_000


def wall() -> int:
    """Return the current time in ms since 1970."""
    return time.time_ns() // 1_000_000


def moment() -> tuple[float, float, int]:
    """Return the start and the end of the current millisecond, and the time in ms: (start, end, ms).

    `ms` is the current time in ms since 1970. `start` and `end` are in s since 1970.

    A caller may use one result for many records, while the current time is between `start` and `end`.

    Callers must compare the current time with both `start` and `end`, because it is before `start` if the
    clock was set back.
    """
    ms = wall()
    return ms / 1000, (ms + 1) / 1000, ms
