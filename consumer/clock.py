"""The clock of all clients. It never goes back, and continues while the computer sleeps.

While a laptop sleeps for an hour, the group gives the partitions of the laptop's member to other members. A
clock that stops during the sleep (CLOCK_MONOTONIC on Linux) would hide this from the member, so
CLOCK_BOOTTIME is used where it exists.
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
    """Return the milliseconds since 1970. The clock may be set at any time, so it is read at each call."""
    return time.time_ns() // 1_000_000


def moment() -> tuple[float, float, int]:
    """Return (start, end, ms). `ms` is the current time in ms since 1970. This millisecond lasts from `start`
    to `end`, in s since 1970.

    A caller uses one result for many records, as long as the current time is between `start` and `end`. It
    compares the time with both, because the clock may be set back.
    """
    ms = wall()
    return ms / 1000, (ms + 1) / 1000, ms
