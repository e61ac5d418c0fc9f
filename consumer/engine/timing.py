"""Backoff, report intervals, and every fixed timeout of the engine.

Options set the other timeouts (`retry_backoff_ms`, `request_timeout_ms`, ...): their defaults stand in
`consumer.options`, and the ones here serve clients without such an option.
"""

from __future__ import annotations

from random import Random
from typing import Final

import msgspec

# Kafka's defaults (CommonClientConfigs), in ms

RETRY_BACKOFF_MS: Final = 100
RETRY_BACKOFF_MAX_MS: Final = 1000
RECONNECT_BACKOFF_MS: Final = 50
RECONNECT_BACKOFF_MAX_MS: Final = 1000
CONNECTION_SETUP_TIMEOUT_MS: Final = 10_000
REQUEST_TIMEOUT_MS: Final = 30_000
# The broker's offsets.commit.timeout.ms: how long a coordinator waits for the replicas of a commit.
OFFSETS_COMMIT_TIMEOUT_MS: Final = 5_000

# Connections:

# First timeout of a connection attempt, doubled by each attempt that times out. Two lost SYNs cost 3 s
# (RFC 6298).
FIRST_SETUP_TIMEOUT_MS: Final = 3_000
# First timeout of a request that brokers answer from memory, doubled by each one that times out. Two lost
# SYNs cost 3 s (RFC 6298).
FIRST_RESPONSE_TIMEOUT_MS: Final = 5_000
# A connection attempt that lasts longer is slow: a call for any broker then goes to another address. A
# reachable address answers a SYN immediately, or after 1 s if the first SYN was lost.
SLOW_CONNECT_MS: Final = 1_500
# Interval of metadata requests while a broker leaves a request unanswered that may take long.
LIVENESS_CHECK_INTERVAL_MS: Final = 2_000

# Metadata:

# How long no bootstrap address may answer before the application gets an error; kafka-python's
# `bootstrap_timeout_ms`.
BOOTSTRAP_REPORT_DELAY_MS: Final = 2_000
# Longest interval between requests for a topic that does not exist: it may be created at any time.
MISSING_TOPIC_BACKOFF_MAX_MS: Final = 10_000

# Fetching:

# How long a leader gets no rack after a follower failed, so that it does not send the client there again;
# doubled by each further failure.
REPLICA_BACKOFF_MS: Final = 10_000

# Producer:

# How long no further connection to a broker is opened after one broke: each attempt may delay the partitions
# of that connection by seconds.
EXTRA_CONNECTION_BACKOFF_MS: Final = 60_000
# TransactionManager.ADD_PARTITIONS_RETRY_BACKOFF_MS: the previous transaction is about to be completed.
ADD_PARTITIONS_RETRY_BACKOFF_MS: Final = 20
# While more than half of buffer.memory is in use, a partition without progress for this long accepts no
# records.
STALLED_PARTITION_MS: Final = 1000
# A blocked sender wakes within this time of a failure; a later call is a new sender.
SENDER_WAKEUP_MS: Final = 1000

# Reports:

# A failure that lasts this long is reported: a broker that restarts, or an election, fails requests for a
# moment only.
FAILURE_REPORT_DELAY_MS: Final = 5_000
# First and longest interval between two reports of the same failure.
FIRST_REPORT_INTERVAL_MS: Final = 30_000
MAX_REPORT_INTERVAL_MS: Final = 600_000
# Throttling for less than this is what quotas are for, and is not reported.
REPORTED_THROTTLE_MS: Final = 1_000

JITTER: Final = 0.2  # CommonClientConfigs.RETRY_BACKOFF_JITTER
MAX_DOUBLINGS: Final = 16


class Backoff(msgspec.Struct, frozen=True):
    """Exponential backoff from `first_ms` to `max_ms`, with jitter (Kafka's ExponentialBackoff).

    The jitter of 20 % keeps the clients of a restarted broker from reconnecting at the same moment.
    """

    first_ms: int
    max_ms: int
    random: Random

    def after(self, failures: int, first_ms: int | None = None) -> int:
        """Return the ms to wait after a failure that followed `failures` earlier ones in a row."""
        first_ms = self.first_ms if first_ms is None else first_ms
        wait = self.spread(first_ms << min(max(failures, 0), MAX_DOUBLINGS))
        return min(wait, max(self.max_ms, self.first_ms))

    def spread(self, wait_ms: int) -> int:
        """Return `wait_ms` with up to 20 % added or removed; at least 1 ms, unless it is 0."""
        if wait_ms <= 0:
            return 0
        return max(1, int(wait_ms * (1 - JITTER + 2 * JITTER * self.random.random())))


class ReportIntervals(msgspec.Struct):
    """Decides when a lasting condition is reported again: after intervals that double."""

    next_at: int = 0
    interval_ms: int = FIRST_REPORT_INTERVAL_MS

    def is_due(self, now: int) -> bool:
        """Return whether to report at `now`; if so, schedule the next report."""
        if now < self.next_at:
            return False
        self.next_at = now + self.interval_ms
        self.interval_ms = min(2 * self.interval_ms, MAX_REPORT_INTERVAL_MS)
        return True
