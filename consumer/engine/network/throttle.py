"""Brokers that ask for less (KIP-219): who is above a quota is answered at once, and to be quiet for a while.

Rules that hold here:

* The connection that was told so carries no request until the time is over: the broker reads nothing from it
  meanwhile. What is under way on it has so much longer, and is not late.
* Whoever asks a broker for records, or brings some, asks `Network.free_at` first: what would only wait is
  made when its time has come.
* In the versions before those of FROM a broker held the answer back instead: its time is over already then.
* What takes a second or longer is told, then ever more seldom as long as it goes on (`Gaps`). What
  outlasts the gap is told at once: no answer will come in it that could tell. Java waits as long, be it 24
  days, and says nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kproto.wire.message import Message

from ..timing import FIRST_REPORT_INTERVAL_MS, REPORTED_THROTTLE_MS, ReportIntervals

# API key -> from which version on the client is to be quiet (AbstractResponse.shouldClientThrottle).
FROM: Final[Mapping[int, int]] = {
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
    50: 0,  # DescribeUserScramCredentials
    51: 0,  # AlterUserScramCredentials
    62: 0,  # BrokerRegistration
    63: 0,  # BrokerHeartbeat
    64: 0,  # UnregisterBroker
    75: 0,  # DescribeTopicPartitions
}

DAY_MS = 86_400_000


def asked_ms(response: Message, version: int) -> int:
    """How long an answer asks its connection to be quiet; 0 where it doesn't."""
    wait: int = getattr(response, "throttle_time_ms", 0)
    if wait <= 0:
        return 0
    key = response.__api_key__
    first = None if key is None else FROM.get(key)
    return wait if first is not None and version >= first else 0


class ThrottleReports:
    """What was asked for lately, for one report about all of it."""

    def __init__(self) -> None:
        self._gaps = ReportIntervals()
        self._over_at = -2 * FIRST_REPORT_INTERVAL_MS
        self._told_until = 0
        self._since = 0
        self._total = 0

    def news(self, api: str, address: str, wait: int, now: int) -> str:
        """What to tell now; empty for nothing."""
        if now - self._over_at >= 2 * FIRST_REPORT_INTERVAL_MS:
            self._gaps, self._since, self._total = ReportIntervals(), now, 0
        self._over_at = max(now + wait, self._over_at)
        self._total += wait
        if wait < REPORTED_THROTTLE_MS or not (self._gaps.is_due(now) or self._outlasts(now)):
            return ""
        self._told_until = self._over_at
        past = (now - self._since) // 1000
        so_far = f"; {self._total / 1000:.1f} s in the last {past} s" if past else ""
        days = f" ({wait / DAY_MS:.1f} days)" if wait >= DAY_MS else ""
        asks = f"the broker at {address} asks for {wait / 1000:.1f} s{days} without requests{so_far}"
        return f"{api}: {asks}; this client, or its user, is above a quota"

    def _outlasts(self, now: int) -> bool:
        """It ends after the next time that it would be told, and after what was told already."""
        return self._over_at > max(self._gaps.next_at, self._told_until + FIRST_REPORT_INTERVAL_MS)
