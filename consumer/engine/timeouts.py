"""Backoff, report intervals, and every fixed timeout of the engine.

Configurable timeouts, such as `retry_backoff_ms`, are options with defaults in `consumer.consumer_options`
and `consumer.producer_options`. The defaults in this module apply to clients without such an option.
"""

from __future__ import annotations

from random import Random
from typing import Final

import msgspec

# Kafka's defaults (CommonClientConfigs), in ms.

RETRY_BACKOFF_MS: Final = 100
RETRY_BACKOFF_MAX_MS: Final = 1000
RECONNECT_BACKOFF_MS: Final = 50
RECONNECT_BACKOFF_MAX_MS: Final = 1000
CONNECTION_SETUP_TIMEOUT_MS: Final = 10_000
REQUEST_TIMEOUT_MS: Final = 30_000
# Default (ms) of the broker's offsets.commit.timeout.ms: how long a coordinator waits until the replicas have
# received a commit.
OFFSETS_COMMIT_TIMEOUT_MS: Final = 5_000

# Connections:

# Timeout (ms) of the first attempt to connect. Each attempt that times out doubles the timeout. A TCP
# handshake takes 3 s if the first two SYNs are lost (RFC 6298).
FIRST_SETUP_TIMEOUT_MS: Final = 3_000
# First timeout (ms) of a request whose response a healthy broker does not delay. Each attempt that times out
# doubles the timeout. It is longer than 3 s, the time until a TCP segment that was lost twice arrives
# (RFC 6298).
FIRST_RESPONSE_TIMEOUT_MS: Final = 5_000
# Time (ms) after which a connection attempt counts as slow. Requests that any broker can serve then go to
# another address. A reachable host responds immediately, or after 1 s if the first SYN was lost.
SLOW_CONNECT_MS: Final = 1_500
# Interval (ms) of Metadata requests that check whether a broker is alive while it works on a slow request.
LIVENESS_CHECK_INTERVAL_MS: Final = 2_000

# Longest pause (ms) that a broker's throttle time causes: the default of metadata.max.age.ms.
MAX_THROTTLE_MS: Final = 300_000

# Metadata:

# If no bootstrap address has responded after this time (ms), the application's call raises an error
# (kafka-python's `bootstrap_timeout_ms`).
BOOTSTRAP_REPORT_DELAY_MS: Final = 2_000
# Longest interval (ms) between metadata requests for a missing topic, which may be created at any time.
MISSING_TOPIC_BACKOFF_MAX_MS: Final = 10_000

# Fetching:

# Time (ms) for which fetches to a leader omit the rack id after a follower has failed (KIP-392). With the
# rack id, the leader would return the same follower again. Each further failure doubles the time.
REPLICA_BACKOFF_MS: Final = 10_000

# Producer:

# Time (ms) for which a producer opens no additional connection to a broker after one has failed. The time is
# long, because a failed attempt may take seconds, and delays the partitions that wait for the connection.
EXTRA_CONNECTION_BACKOFF_MS: Final = 60_000
# Backoff (ms) of AddPartitionsToTxn while the coordinator completes the previous transaction
# (TransactionManager.ADD_PARTITIONS_RETRY_BACKOFF_MS).
ADD_PARTITIONS_RETRY_BACKOFF_MS: Final = 20
# Time (ms), in addition to linger.ms, after which a partition's oldest record counts as delayed. While more
# than half of buffer.memory is in use, a partition with a delayed record accepts no records.
STALLED_PARTITION_MS: Final = 1000
# Time (ms) for which a metadata error of a topic is stored, so that the sends that wait for the metadata
# raise the error. A send that begins after the error ignores it, and requests the metadata again.
SENDER_WAKEUP_MS: Final = 1000

# Reports:

# Time (ms) that a failure must last to be reported. Broker restarts and leader elections usually take less
# time.
FAILURE_REPORT_DELAY_MS: Final = 5_000
# First and longest interval (ms) between two reports of the same failure.
FIRST_REPORT_INTERVAL_MS: Final = 30_000
MAX_REPORT_INTERVAL_MS: Final = 600_000
# Shortest throttle time (ms) that is reported. Shorter throttling is the normal effect of a quota.
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
        """Return the time (ms) to wait after a failure that follows `failures` consecutive failures.

        `first_ms`, if given, replaces the attribute `first_ms`.
        """
        first_ms = self.first_ms if first_ms is None else first_ms
        wait = self.spread(first_ms << min(max(failures, 0), MAX_DOUBLINGS))
        return min(wait, max(self.max_ms, self.first_ms))

    def spread(self, wait_ms: int) -> int:
        """Return `wait_ms`, increased or reduced at random by up to 20 %.

        The result is at least 1 ms, unless `wait_ms` is 0.
        """
        if wait_ms <= 0:
            return 0
        return max(1, int(wait_ms * (1 - JITTER + 2 * JITTER * self.random.random())))


class ReportIntervals(msgspec.Struct):
    """The times at which a lasting condition is reported. The intervals between reports double."""

    next_at: int = 0
    interval_ms: int = FIRST_REPORT_INTERVAL_MS

    def advance_if_due(self, now: int) -> bool:
        """If a report is due at `now`, schedule the next one and return True; else return False."""
        if now < self.next_at:
            return False
        self.next_at = now + self.interval_ms
        self.interval_ms = min(2 * self.interval_ms, MAX_REPORT_INTERVAL_MS)
        return True
