"""The metrics of a consumer, with Java's names, groups, tags and units.

The module `consumer_sensors` documents when each metric is recorded.
"""

from __future__ import annotations

from functools import partial

from .metrics import Measure, MetricDefinition, avg_max, meter
from .network.sensors import NETWORK_METRICS

M = Measure
_client = partial(MetricDefinition, group="metrics")
_group = partial(MetricDefinition, group="coordinator-metrics")
_fetch = partial(MetricDefinition, group="fetch-manager-metrics")
_topic = partial(_fetch, tags=("topic",))
_partition = partial(_fetch, tags=("topic", "partition"))


# ---- polls and calls of the application (Java's KafkaConsumerMetrics)

LAST_POLL = _client(
    "last-poll-seconds-ago", measure=M.GAUGE, unit="s", description="Time since the last poll began"
)
TIME_BETWEEN_POLL = avg_max(_client, "time-between-poll", "Time from the start of a poll to the next start")
POLL_IDLE_RATIO = (
    _client(
        "poll-idle-ratio-avg",
        measure=M.AVERAGE,
        unit="ratio",
        description="Time in poll, divided by the time in poll plus that since the previous poll began",
    ),
)
COMMIT_TIME = (
    _client(
        "commit-sync-time-ns-total",
        measure=M.TOTAL,
        unit="ns",
        description="Time from calls of commit() to their end, measured in ms",
    ),
)
COMMITTED_TIME = (
    _client(
        "committed-time-ns-total",
        measure=M.TOTAL,
        unit="ns",
        description="Time in committed(), measured in ms",
    ),
)

# ---- the group (GroupCoordinatorMetrics, ConsumerCoordinatorMetrics, RebalanceCallbackMetricsManager)

HEARTBEAT = (
    _group(
        "heartbeat-response-time-max",
        measure=M.MAXIMUM,
        unit="ms",
        description="Time from a heartbeat to its response",
    ),
    *meter(_group, "heartbeat", "heartbeats", "Heartbeats that got a response"),
)
LAST_HEARTBEAT = _group(
    "last-heartbeat-seconds-ago",
    measure=M.GAUGE,
    unit="s",
    description="Time since the last heartbeat",
)
JOIN = (
    *avg_max(_group, "join-time", "Time from a JoinGroup to its successful response"),
    *meter(_group, "join", "joins", "JoinGroup requests that succeeded"),
)
SYNC = (
    *avg_max(_group, "sync-time", "Time from a SyncGroup to its successful response"),
    *meter(_group, "sync", "syncs", "SyncGroup requests that succeeded"),
)
REBALANCE = (
    *avg_max(_group, "rebalance-latency", "Time from the first JoinGroup to the new assignment"),
    _group(
        "rebalance-latency-total",
        measure=M.TOTAL,
        unit="ms",
        description="Time in rebalances that succeeded",
    ),
    _group("rebalance-total", measure=M.COUNT, unit="rebalances", description="Rebalances that succeeded"),
    _group(
        "rebalance-rate-per-hour",
        measure=M.COUNT_RATE_PER_HOUR,
        unit="rebalances/h",
        description="Rebalances that succeeded",
    ),
)
FAILED_REBALANCE = (
    _group(
        "failed-rebalance-total",
        measure=M.COUNT,
        unit="rebalances",
        description="JoinGroup and SyncGroup requests that failed",
    ),
    _group(
        "failed-rebalance-rate-per-hour",
        measure=M.COUNT_RATE_PER_HOUR,
        unit="rebalances/h",
        description="JoinGroup and SyncGroup requests that failed",
    ),
)
LAST_REBALANCE = _group(
    "last-rebalance-seconds-ago", measure=M.GAUGE, unit="s", description="Time since the last assignment"
)
ASSIGNED_PARTITIONS = _group(
    "assigned-partitions", measure=M.GAUGE, unit="partitions", description="Partitions assigned now"
)
REVOKED_CALLBACK = avg_max(_group, "partition-revoked-latency", "Duration of a revoked callback")
ASSIGNED_CALLBACK = avg_max(_group, "partition-assigned-latency", "Duration of an assigned callback")
LOST_CALLBACK = avg_max(_group, "partition-lost-latency", "Duration of a lost callback")
COMMIT = (
    *avg_max(_group, "commit-latency", "Time from an OffsetCommit to its response"),
    *meter(_group, "commit", "commits", "OffsetCommit requests that got a response"),
)

# ---- fetches (FetchMetricsRegistry)

FETCH = (
    *avg_max(_fetch, "fetch-latency", "Time from a Fetch to its response, with the wait at the broker"),
    *meter(_fetch, "fetch", "requests", "Fetch requests that got a response"),
)
THROTTLE = avg_max(_fetch, "fetch-throttle-time", "Throttle time in the responses to Fetch")
LAG_MAX = (
    _fetch(
        "records-lag-max",
        measure=M.MAXIMUM,
        unit="records",
        description="Largest lag of any partition after a poll returned records of it",
    ),
)
LEAD_MIN = (
    _fetch(
        "records-lead-min",
        measure=M.MINIMUM,
        unit="records",
        description="Smallest lead of any partition after a poll returned records of it",
    ),
)
LAG = _partition(
    "records-lag", measure=M.GAUGE, unit="records", description="Offsets from the position to the log's end"
)
LEAD = _partition(
    "records-lead",
    measure=M.GAUGE,
    unit="records",
    description="Offsets from the log start to the position",
)
PARTITION_LAG = avg_max(
    _partition, "records-lag", "Lag after a poll returned records of the partition", unit="records"
)
PARTITION_LEAD = (
    _partition(
        "records-lead-avg",
        measure=M.AVERAGE,
        unit="records",
        description="Lead after a poll returned records of the partition",
    ),
    _partition(
        "records-lead-min",
        measure=M.MINIMUM,
        unit="records",
        description="Lead after a poll returned records of the partition",
    ),
)
PREFERRED_REPLICA = _partition(
    "preferred-read-replica",
    measure=M.GAUGE,
    unit="node id",
    description="Follower from which the partition is read (KIP-392), if it is not the leader",
)


def _sizes(define: partial[MetricDefinition]) -> tuple[MetricDefinition, ...]:
    return avg_max(define, "fetch-size", "Bytes of record batches in a response to Fetch", unit="bytes")


def _numbers(define: partial[MetricDefinition]) -> tuple[MetricDefinition, ...]:
    return (
        define(
            "records-per-request-avg",
            measure=M.AVERAGE,
            unit="records",
            description="Records in a response to Fetch",
        ),
    )


def _bytes_consumed(define: partial[MetricDefinition]) -> tuple[MetricDefinition, ...]:
    text = "Bytes of fetched record batches whose records were all returned"
    return meter(define, "bytes-consumed", "bytes", text, counts=False)


def _records_consumed(define: partial[MetricDefinition]) -> tuple[MetricDefinition, ...]:
    return meter(define, "records-consumed", "records", "Records that polls have returned", counts=False)


SIZE, TOPIC_SIZE = _sizes(_fetch), _sizes(_topic)
NUMBER, TOPIC_NUMBER = _numbers(_fetch), _numbers(_topic)
BYTES, TOPIC_BYTES = _bytes_consumed(_fetch), _bytes_consumed(_topic)
RECORDS, TOPIC_RECORDS = _records_consumed(_fetch), _records_consumed(_topic)

# Every metric of a consumer.
CONSUMER_METRICS: tuple[MetricDefinition, ...] = (
    *NETWORK_METRICS,
    LAST_POLL,
    *TIME_BETWEEN_POLL,
    *POLL_IDLE_RATIO,
    *COMMIT_TIME,
    *COMMITTED_TIME,
    *HEARTBEAT,
    LAST_HEARTBEAT,
    *JOIN,
    *SYNC,
    *REBALANCE,
    *FAILED_REBALANCE,
    LAST_REBALANCE,
    ASSIGNED_PARTITIONS,
    *REVOKED_CALLBACK,
    *ASSIGNED_CALLBACK,
    *LOST_CALLBACK,
    *COMMIT,
    *FETCH,
    *THROTTLE,
    *SIZE,
    *NUMBER,
    *BYTES,
    *RECORDS,
    *LAG_MAX,
    *LEAD_MIN,
    *TOPIC_SIZE,
    *TOPIC_NUMBER,
    *TOPIC_BYTES,
    *TOPIC_RECORDS,
    LAG,
    *PARTITION_LAG,
    LEAD,
    *PARTITION_LEAD,
    PREFERRED_REPLICA,
)
