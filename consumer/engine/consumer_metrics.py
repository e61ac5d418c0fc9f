"""The metrics of a consumer, with Java's names, groups, tags and units.

The module `consumer_sensors` documents when each metric is recorded.
"""

from __future__ import annotations

from functools import partial

from .metrics import Measure, MetricDefinition, avg_max, meter
from .network.sensors import NETWORK_METRICS

M = Measure
_client_metric = partial(MetricDefinition, group="metrics")
_group_metric = partial(MetricDefinition, group="coordinator-metrics")
_fetch_metric = partial(MetricDefinition, group="fetch-manager-metrics")
_topic_metric = partial(_fetch_metric, tags=("topic",))
_partition_metric = partial(_fetch_metric, tags=("topic", "partition"))


# ---- polls and calls of the application (Java's KafkaConsumerMetrics)

LAST_POLL = _client_metric(
    "last-poll-seconds-ago", measure=M.GAUGE, unit="s", description="Time since the last poll began"
)
TIME_BETWEEN_POLL = avg_max(
    _client_metric, "time-between-poll", "Time from the start of a poll to the next start"
)
POLL_IDLE_RATIO = (
    _client_metric(
        "poll-idle-ratio-avg",
        measure=M.AVERAGE,
        unit="ratio",
        description="Time in poll, divided by the time in poll plus that since the previous poll began",
    ),
)
COMMIT_TIME = (
    _client_metric(
        "commit-sync-time-ns-total",
        measure=M.TOTAL,
        unit="ns",
        description="Time from calls of commit() to their end, measured in ms",
    ),
)
COMMITTED_TIME = (
    _client_metric(
        "committed-time-ns-total",
        measure=M.TOTAL,
        unit="ns",
        description="Time in committed(), measured in ms",
    ),
)

# ---- the group (GroupCoordinatorMetrics, ConsumerCoordinatorMetrics, RebalanceCallbackMetricsManager)

HEARTBEAT = (
    _group_metric(
        "heartbeat-response-time-max",
        measure=M.MAXIMUM,
        unit="ms",
        description="Time from a heartbeat to its response",
    ),
    *meter(_group_metric, "heartbeat", "heartbeats", "Heartbeats that got a response"),
)
LAST_HEARTBEAT = _group_metric(
    "last-heartbeat-seconds-ago",
    measure=M.GAUGE,
    unit="s",
    description="Time since the last heartbeat",
)
JOIN = (
    *avg_max(_group_metric, "join-time", "Time from a JoinGroup to its successful response"),
    *meter(_group_metric, "join", "joins", "JoinGroup requests that succeeded"),
)
SYNC = (
    *avg_max(_group_metric, "sync-time", "Time from a SyncGroup to its successful response"),
    *meter(_group_metric, "sync", "syncs", "SyncGroup requests that succeeded"),
)
REBALANCE = (
    *avg_max(_group_metric, "rebalance-latency", "Time from the first JoinGroup to the new assignment"),
    _group_metric(
        "rebalance-latency-total",
        measure=M.TOTAL,
        unit="ms",
        description="Time in rebalances that succeeded",
    ),
    _group_metric(
        "rebalance-total", measure=M.COUNT, unit="rebalances", description="Rebalances that succeeded"
    ),
    _group_metric(
        "rebalance-rate-per-hour",
        measure=M.COUNT_RATE_PER_HOUR,
        unit="rebalances/h",
        description="Rebalances that succeeded",
    ),
)
FAILED_REBALANCE = (
    _group_metric(
        "failed-rebalance-total",
        measure=M.COUNT,
        unit="rebalances",
        description="JoinGroup and SyncGroup requests that failed",
    ),
    _group_metric(
        "failed-rebalance-rate-per-hour",
        measure=M.COUNT_RATE_PER_HOUR,
        unit="rebalances/h",
        description="JoinGroup and SyncGroup requests that failed",
    ),
)
LAST_REBALANCE = _group_metric(
    "last-rebalance-seconds-ago", measure=M.GAUGE, unit="s", description="Time since the last assignment"
)
ASSIGNED_PARTITIONS = _group_metric(
    "assigned-partitions", measure=M.GAUGE, unit="partitions", description="Partitions assigned now"
)
REVOKED_CALLBACK = avg_max(_group_metric, "partition-revoked-latency", "Duration of a revoked callback")
ASSIGNED_CALLBACK = avg_max(_group_metric, "partition-assigned-latency", "Duration of an assigned callback")
LOST_CALLBACK = avg_max(_group_metric, "partition-lost-latency", "Duration of a lost callback")
COMMIT = (
    *avg_max(_group_metric, "commit-latency", "Time from an OffsetCommit to its response"),
    *meter(_group_metric, "commit", "commits", "OffsetCommit requests that got a response"),
)

# ---- fetches (FetchMetricsRegistry)

FETCH = (
    *avg_max(
        _fetch_metric, "fetch-latency", "Time from a Fetch to its response, with the wait at the broker"
    ),
    *meter(_fetch_metric, "fetch", "requests", "Fetch requests that got a response"),
)
THROTTLE = avg_max(_fetch_metric, "fetch-throttle-time", "Throttle time in the responses to Fetch")
LAG_MAX = (
    _fetch_metric(
        "records-lag-max",
        measure=M.MAXIMUM,
        unit="records",
        description="Largest lag of any partition after a poll returned records of it",
    ),
)
LEAD_MIN = (
    _fetch_metric(
        "records-lead-min",
        measure=M.MINIMUM,
        unit="records",
        description="Smallest lead of any partition after a poll returned records of it",
    ),
)
LAG = _partition_metric(
    "records-lag", measure=M.GAUGE, unit="records", description="Offsets from the position to the log's end"
)
LEAD = _partition_metric(
    "records-lead",
    measure=M.GAUGE,
    unit="records",
    description="Offsets from the log start to the position",
)
PARTITION_LAG = avg_max(
    _partition_metric, "records-lag", "Lag after a poll returned records of the partition", unit="records"
)
PARTITION_LEAD = (
    _partition_metric(
        "records-lead-avg",
        measure=M.AVERAGE,
        unit="records",
        description="Lead after a poll returned records of the partition",
    ),
    _partition_metric(
        "records-lead-min",
        measure=M.MINIMUM,
        unit="records",
        description="Lead after a poll returned records of the partition",
    ),
)
PREFERRED_REPLICA = _partition_metric(
    "preferred-read-replica",
    measure=M.GAUGE,
    unit="node id",
    description="Follower from which the partition is read (KIP-392), if it is not the leader",
)


def _fetch_size_metrics(define: partial[MetricDefinition]) -> tuple[MetricDefinition, ...]:
    return avg_max(define, "fetch-size", "Bytes of record batches in a response to Fetch", unit="bytes")


def _record_count_metrics(define: partial[MetricDefinition]) -> tuple[MetricDefinition, ...]:
    return (
        define(
            "records-per-request-avg",
            measure=M.AVERAGE,
            unit="records",
            description="Records in a response to Fetch",
        ),
    )


def _bytes_consumed_metrics(define: partial[MetricDefinition]) -> tuple[MetricDefinition, ...]:
    text = "Bytes of fetched record batches whose records were all returned"
    return meter(define, "bytes-consumed", "bytes", text, counts=False)


def _records_consumed_metrics(define: partial[MetricDefinition]) -> tuple[MetricDefinition, ...]:
    return meter(define, "records-consumed", "records", "Records that polls have returned", counts=False)


FETCH_SIZE, TOPIC_FETCH_SIZE = _fetch_size_metrics(_fetch_metric), _fetch_size_metrics(_topic_metric)
RECORDS_PER_REQUEST, TOPIC_RECORDS_PER_REQUEST = (
    _record_count_metrics(_fetch_metric),
    _record_count_metrics(_topic_metric),
)
BYTES_CONSUMED, TOPIC_BYTES_CONSUMED = (
    _bytes_consumed_metrics(_fetch_metric),
    _bytes_consumed_metrics(_topic_metric),
)
RECORDS_CONSUMED, TOPIC_RECORDS_CONSUMED = (
    _records_consumed_metrics(_fetch_metric),
    _records_consumed_metrics(_topic_metric),
)

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
    *FETCH_SIZE,
    *RECORDS_PER_REQUEST,
    *BYTES_CONSUMED,
    *RECORDS_CONSUMED,
    *LAG_MAX,
    *LEAD_MIN,
    *TOPIC_FETCH_SIZE,
    *TOPIC_RECORDS_PER_REQUEST,
    *TOPIC_BYTES_CONSUMED,
    *TOPIC_RECORDS_CONSUMED,
    LAG,
    *PARTITION_LAG,
    LEAD,
    *PARTITION_LEAD,
    PREFERRED_REPLICA,
)
