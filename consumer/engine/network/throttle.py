"""Throttling by quotas (KIP-219): a broker responds without delay, and asks the client to pause.

Rules:

* A throttled connection carries no request until the throttle time has passed, because the broker reads
  nothing from it.

* The deadlines of requests in flight are extended by the throttle time.

* The fetcher and the producer's sender check `NetworkClient.throttled_until` before they build a request.

* For request versions below those in `CLIENT_PAUSES_FROM`, the broker delays the response itself. When the
  response arrives, the throttle time has passed.

* The client pauses for at most `metadata_max_age_ms`, because a throttle time of days is probably wrong. If
  the pause is shortened, the report of the throttling states this limit.

* After a shortened pause the client uses a new connection, because the broker may still not be reading from
  the old one.

* Throttling of at least a second is reported. While it lasts, the report is repeated at increasing
  intervals. Java reports nothing.

* A report can only follow a response, and during a pause no response arrives. So a pause that will outlast
  the time of the next report is reported immediately.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kproto.wire.message import Message

from ..timeouts import FIRST_REPORT_INTERVAL_MS, REPORTED_THROTTLE_MS, ReportIntervals

# API key -> the first version in which the client pauses, instead of the broker delaying its response (Java's
# AbstractResponse.shouldClientThrottle).
CLIENT_PAUSES_FROM: Final[Mapping[int, int]] = {
    0: 6,  # Produce
    1: 8,  # Fetch
    2: 3,  # ListOffsets
    3: 6,  # Metadata
    8: 4,  # OffsetCommit
    9: 4,  # OffsetFetch
    10: 2,  # FindCoordinator
    11: 3,  # JoinGroup
    12: 2,  # Heartbeat
    13: 2,  # LeaveGroup
    14: 2,  # SyncGroup
    15: 2,  # DescribeGroups
    16: 2,  # ListGroups
    18: 2,  # ApiVersions
    19: 3,  # CreateTopics
    20: 2,  # DeleteTopics
    21: 1,  # DeleteRecords
    22: 1,  # InitProducerId
    23: 2,  # OffsetForLeaderEpoch
    24: 1,  # AddPartitionsToTxn
    25: 1,  # AddOffsetsToTxn
    26: 1,  # EndTxn
    28: 1,  # TxnOffsetCommit
    29: 1,  # DescribeAcls
    30: 1,  # CreateAcls
    31: 1,  # DeleteAcls
    32: 2,  # DescribeConfigs
    33: 1,  # AlterConfigs
    34: 1,  # AlterReplicaLogDirs
    35: 1,  # DescribeLogDirs
    37: 1,  # CreatePartitions
    38: 1,  # CreateDelegationToken
    39: 1,  # RenewDelegationToken
    40: 1,  # ExpireDelegationToken
    41: 1,  # DescribeDelegationToken
    42: 1,  # DeleteGroups
    43: 0,  # ElectLeaders
    44: 0,  # IncrementalAlterConfigs
    45: 0,  # AlterPartitionReassignments
    46: 0,  # ListPartitionReassignments
    47: 0,  # OffsetDelete
    48: 0,  # DescribeClientQuotas
    49: 0,  # AlterClientQuotas
    50: 0,  # DescribeUserScramCredentials
    51: 0,  # AlterUserScramCredentials
    56: 2,  # AlterPartition
    57: 0,  # UpdateFeatures
    59: 0,  # FetchSnapshot
    60: 0,  # DescribeCluster
    61: 0,  # DescribeProducers
    62: 0,  # BrokerRegistration
    63: 0,  # BrokerHeartbeat
    64: 0,  # UnregisterBroker
    65: 0,  # DescribeTransactions
    66: 0,  # ListTransactions
    67: 0,  # AllocateProducerIds
    68: 0,  # ConsumerGroupHeartbeat
    69: 0,  # ConsumerGroupDescribe
    70: 0,  # ControllerRegistration
    71: 0,  # GetTelemetrySubscriptions
    72: 0,  # PushTelemetry
    73: 0,  # AssignReplicasToDirs
    74: 0,  # ListConfigResources
    75: 0,  # DescribeTopicPartitions
    76: 1,  # ShareGroupHeartbeat
    77: 1,  # ShareGroupDescribe
    78: 1,  # ShareFetch
    79: 1,  # ShareAcknowledge
    80: 0,  # AddRaftVoter
    81: 0,  # RemoveRaftVoter
    82: 0,  # UpdateRaftVoter
    88: 0,  # StreamsGroupHeartbeat
    89: 0,  # StreamsGroupDescribe
    90: 0,  # DescribeShareGroupOffsets
    91: 0,  # AlterShareGroupOffsets
    92: 0,  # DeleteShareGroupOffsets
    93: 0,  # StreamsGroupTopologyDescriptionUpdate
    94: 0,  # UnregisterController
}

DAY_MS = 86_400_000


def throttle_ms(response: Message, version: int) -> int:
    """Return the time (ms) for which a response asks the client to pause; 0 for no pause."""
    throttle_time_ms: int = getattr(response, "throttle_time_ms", 0)
    if throttle_time_ms <= 0:
        return 0
    key = response.__api_key__
    first_version = None if key is None else CLIENT_PAUSES_FROM.get(key)
    return throttle_time_ms if first_version is not None and version >= first_version else 0


class ThrottleReports:
    """Collects throttle times, and decides when to report them.

    `max_ms` is the longest time (ms) for which this client pauses at a broker's request.
    """

    def __init__(self, max_ms: int) -> None:
        self._max_ms = max_ms
        self._intervals = ReportIntervals()
        # The time (ms) at which the throttling ends. The initial value is so long ago that the first report
        # starts a new period of throttling.
        self._ends_at = -2 * FIRST_REPORT_INTERVAL_MS
        # The end of the throttling (ms) according to the last report.
        self._reported_until = 0
        # When the throttling began (ms), and the sum of the pauses since then (ms).
        self._since = 0
        self._total_ms = 0

    def report(self, api: str, address: str, wait_ms: int, now: int) -> str:
        """Record a broker's throttle time of `wait_ms`.

        Return the text of the report to send now; empty if none is due.
        """
        if now - self._ends_at >= 2 * FIRST_REPORT_INTERVAL_MS:
            self._intervals, self._since, self._total_ms = ReportIntervals(), now, 0
        pause_ms = min(wait_ms, self._max_ms)
        self._ends_at = max(now + pause_ms, self._ends_at)
        self._total_ms += pause_ms
        if wait_ms < REPORTED_THROTTLE_MS or not (
            self._intervals.advance_if_due(now) or self._needs_another_report(now)
        ):
            return ""
        self._reported_until = self._ends_at
        seconds = (now - self._since) // 1000
        total = f"; {self._total_ms / 1000:.1f} s in the last {seconds} s" if seconds else ""
        days = f" ({wait_ms / DAY_MS:.1f} days)" if wait_ms >= DAY_MS else ""
        pause = f"the broker at {address} asks for {wait_ms / 1000:.1f} s{days} without requests{total}"
        if pause_ms < wait_ms:
            limit = f"this client pauses for {pause_ms / 1000:.1f} s at most"
            return f"{api}: {pause}; {limit}"
        return f"{api}: {pause}; this client, or its user, exceeds a quota"

    def _needs_another_report(self, now: int) -> bool:
        """Return whether to report before the next scheduled report: the throttling ends much later.

        The condition is that the throttling ends after the next scheduled report, and more than
        `FIRST_REPORT_INTERVAL_MS` after the end that was known at the last report.
        """
        return self._ends_at > max(self._intervals.next_at, self._reported_until + FIRST_REPORT_INTERVAL_MS)
