"""How long to wait before trying again: longer each time, and never at the same moment as everybody else.

Kafka's ExponentialBackoff: the first wait doubles with every failure up to a maximum, and each wait is
spread by 20 % to both sides, so that a thousand clients of a broker that restarts don't come back at once.
"""

from __future__ import annotations

from random import Random

import msgspec

JITTER = 0.2  # CommonClientConfigs.RETRY_BACKOFF_JITTER
MOST_DOUBLINGS = 16


class Backoff(msgspec.Struct, frozen=True):
    """Waits from `first_ms` to `most_ms`, spread by the dice of `random`."""

    first_ms: int
    most_ms: int
    random: Random

    def after(self, failures: int, first_ms: int | None = None) -> int:
        """Milliseconds to wait after so many failures in a row before this one; the first is 0."""
        first_ms = self.first_ms if first_ms is None else first_ms
        wait = self.spread(first_ms << min(max(failures, 0), MOST_DOUBLINGS))
        return min(wait, max(self.most_ms, self.first_ms))

    def spread(self, wait_ms: int) -> int:
        """About `wait_ms`: 20 % more or less, never below 1 ms unless it is 0."""
        if wait_ms <= 0:
            return 0
        return max(1, int(wait_ms * (1 - JITTER + 2 * JITTER * self.random.random())))
