"""The sensors of a consumer. Its engine records values in them; `consumer_metrics` lists their metrics.

Rules:

* A poll that returns buffered records updates no sensors. It only stores its start time, and counts its
  records and bytes.

* The sensors are updated with these values once per second and before a snapshot.

* The sizes and record counts of fetches are recorded when a response arrives. The record counts come from
  the batch headers.

* The bytes of a partition in a response count as consumed when all records of the partition in this response
  have been returned.

* Java records sizes, record counts and consumed bytes later than kproto: when all records of all
  partitions in the response have been returned (FetchMetricsAggregator).

* The lag and the lead of a partition are measured after each poll that returned its records.

* Of the lags of a partition in each second, only the largest and the latest are recorded. Of its leads, only
  the smallest and the latest are recorded. Java records each value.

* A rebalance lasts from the first JoinGroup until the member adopts its assignment.

* As in Java, each JoinGroup or SyncGroup that fails counts as a failed rebalance.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from kproto.group.protocol import Purpose
from kproto.group.subscription import TopicPartition
from kproto.messages.join_group import JoinGroupResponse
from kproto.messages.sync_group import SyncGroupResponse

from .consumer_metrics import (
    ASSIGNED_CALLBACK,
    ASSIGNED_PARTITIONS,
    BYTES_CONSUMED,
    COMMIT_TIME,
    COMMITTED_TIME,
    FAILED_REBALANCE,
    FETCH,
    FETCH_SIZE,
    HEARTBEAT,
    JOIN,
    LAG,
    LAG_MAX,
    LAST_HEARTBEAT,
    LAST_POLL,
    LAST_REBALANCE,
    LEAD,
    LEAD_MIN,
    LOST_CALLBACK,
    PARTITION_LAG,
    PARTITION_LEAD,
    POLL_IDLE_RATIO,
    PREFERRED_REPLICA,
    REBALANCE,
    RECORDS_CONSUMED,
    RECORDS_PER_REQUEST,
    REVOKED_CALLBACK,
    SYNC,
    THROTTLE,
    TIME_BETWEEN_POLL,
    TOPIC_BYTES_CONSUMED,
    TOPIC_FETCH_SIZE,
    TOPIC_RECORDS_CONSUMED,
    TOPIC_RECORDS_PER_REQUEST,
)
from .metrics import Sensor, SnapshotBuilder, seconds_since
from .network.call import Call
from .positions.partition_states import PartitionState

# Polls that return buffered records are recorded in the sensors only at this interval (ms), together with the
# numbers of the returned records and bytes.
RECORD_INTERVAL_MS = 1_000


class CallSensors:
    """The sensors of the application's polls, commits and `committed()` calls."""

    def __init__(self) -> None:
        self.time_between_polls = Sensor(TIME_BETWEEN_POLL)
        self.idle_ratio = Sensor(POLL_IDLE_RATIO)
        self.commit_time = Sensor(COMMIT_TIME)
        self.committed_time = Sensor(COMMITTED_TIME)
        self.polled_at: int | None = None  # When the last poll began (ms).

        # The start times (ms) of polls that returned buffered records and are not recorded yet. If several
        # polls begin in the same millisecond, the list contains the first one, and `immediate_polls` counts
        # the others.
        self.unrecorded_starts: list[int] = []
        self.immediate_polls = 0
        self._recorded_start: int | None = None  # When the last recorded poll began (ms).
        self._between_starts_ms = 0  # Time between the starts of the last two recorded polls.

    def record_polls(self) -> None:
        """Record the polls that have returned buffered records since the previous call."""
        starts, self.unrecorded_starts = self.unrecorded_starts, []
        for start in starts:
            # A poll that returns buffered records in one step counts as ending at its start time.
            self._record_start(start)
            self._record_end(start)
        if self.immediate_polls and self.polled_at is not None:
            self.time_between_polls.record(0, self.polled_at, self.immediate_polls)
            self.immediate_polls = 0

    def poll_began(self, now: int) -> None:
        """Record the start of a poll."""
        self.record_polls()
        self._record_start(now)
        self.polled_at = now

    def _record_start(self, start: int) -> None:
        """Record the time since the previous poll. It is 0 ms for the first poll, as in Java."""
        self._between_starts_ms = 0 if self._recorded_start is None else start - self._recorded_start
        self._recorded_start = start
        self.time_between_polls.record(self._between_starts_ms, start)

    def poll_ended(self, now: int) -> None:
        """Record the end of a poll."""
        self.record_polls()
        self._record_end(now)

    def _record_end(self, end: int) -> None:
        """Record poll-idle-ratio: time in poll / (time in poll + time between the starts of polls).

        If the denominator is 0, nothing is recorded, whereas Java records NaN.
        """
        in_poll_ms = 0 if self._recorded_start is None else end - self._recorded_start
        if in_poll_ms + self._between_starts_ms > 0:
            self.idle_ratio.record(in_poll_ms / (in_poll_ms + self._between_starts_ms), end)

    def add_to(self, snapshot: SnapshotBuilder, now: int) -> None:
        """Record the polls that are not recorded yet, and add the metrics to a snapshot."""
        self.record_polls()
        snapshot.add(LAST_POLL, seconds_since(self.polled_at, now))
        snapshot.add_sensors(self.time_between_polls, self.idle_ratio, self.commit_time, self.committed_time)


class GroupSensors:
    """The sensors of the membership: heartbeats, rebalances and callbacks."""

    def __init__(self) -> None:
        self.heartbeat = Sensor(HEARTBEAT)
        self.join = Sensor(JOIN)
        self.sync = Sensor(SYNC)
        self.rebalance = Sensor(REBALANCE)
        self.failed_rebalance = Sensor(FAILED_REBALANCE)
        self.callbacks = {
            "revoked": Sensor(REVOKED_CALLBACK),
            "assigned": Sensor(ASSIGNED_CALLBACK),
            "lost": Sensor(LOST_CALLBACK),
        }
        # When the last heartbeat was sent, when the current rebalance began, and when the last rebalance
        # ended (ms). A time is None if its event has not occurred.
        self.heartbeat_at: int | None = None
        self._rebalance_began_at: int | None = None
        self._rebalance_ended_at: int | None = None

    def record_call(self, purpose: Purpose, call: Call, now: int) -> None:
        """Record the latency or the failure of a finished request of the member.

        A heartbeat without a response is not recorded. A JoinGroup or SyncGroup without a response, or with
        an error code, counts as a failed rebalance.
        """
        latency = now - call.created_at
        if purpose is Purpose.HEARTBEAT:
            if call.response is not None:
                self.heartbeat.record(latency, now)
        elif purpose in (Purpose.JOIN, Purpose.SYNC):
            response = call.response
            if isinstance(response, JoinGroupResponse | SyncGroupResponse) and not response.error_code:
                (self.join if purpose is Purpose.JOIN else self.sync).record(latency, now)
            else:
                self.failed_rebalance.record(1, now)

    def rebalance_began(self, now: int) -> None:
        """Record the start of a rebalance, unless one is in progress."""
        if self._rebalance_began_at is None:
            self._rebalance_began_at = now

    def rebalance_ended(self, now: int) -> None:
        """Record the end of a rebalance, if one is in progress.

        The rebalance ends when the member has adopted its assignment.
        """
        if self._rebalance_began_at is not None:
            self.rebalance.record(now - self._rebalance_began_at, now)
            self._rebalance_began_at, self._rebalance_ended_at = None, now

    def add_to(self, snapshot: SnapshotBuilder, now: int, assigned: int) -> None:
        """Add the metrics to a snapshot. `assigned` is the number of assigned partitions."""
        snapshot.add_sensors(self.heartbeat)
        snapshot.add(LAST_HEARTBEAT, seconds_since(self.heartbeat_at, now))
        snapshot.add_sensors(self.join, self.sync, self.rebalance, self.failed_rebalance)
        snapshot.add(LAST_REBALANCE, seconds_since(self._rebalance_ended_at, now))
        snapshot.add(ASSIGNED_PARTITIONS, assigned)
        snapshot.add_sensors(*self.callbacks.values())


class _TopicSensors:
    """The sensors of one topic."""

    def __init__(self) -> None:
        self.fetch_size = Sensor(TOPIC_FETCH_SIZE)
        self.records_per_request = Sensor(TOPIC_RECORDS_PER_REQUEST)
        self.bytes_consumed = Sensor(TOPIC_BYTES_CONSUMED)
        self.records_consumed = Sensor(TOPIC_RECORDS_CONSUMED)


class _PartitionSensors:
    """The sensors of a partition. If it is assigned again, it has a new `state` and new sensors."""

    def __init__(self, state: PartitionState) -> None:
        self.state = state
        self.lag = Sensor(PARTITION_LAG)
        self.lead = Sensor(PARTITION_LEAD)


class FetchSensors:
    """The sensors of fetches, and of the records that polls return."""

    def __init__(self) -> None:
        self.latency = Sensor(FETCH)
        self.throttle = Sensor(THROTTLE)
        self._fetch_size = Sensor(FETCH_SIZE)
        self._records_per_request = Sensor(RECORDS_PER_REQUEST)
        self._bytes_consumed = Sensor(BYTES_CONSUMED)
        self._records_consumed = Sensor(RECORDS_CONSUMED)
        self._lag_max = Sensor(LAG_MAX)
        self._lead_min = Sensor(LEAD_MIN)
        self._topics: defaultdict[str, _TopicSensors] = defaultdict(_TopicSensors)
        self._partitions: dict[TopicPartition, _PartitionSensors] = {}

    def record_arrived(self, topics: Mapping[str, tuple[int, int]], now: int) -> None:
        """Record the sizes and record counts of a Fetch response.

        `topics` maps each topic to (bytes of batches, number of records).
        """
        for name, (size, record_count) in topics.items():
            topic = self._topics[name]
            topic.fetch_size.record(size, now)
            topic.records_per_request.record(record_count, now)
        if topics:
            self._fetch_size.record(sum(size for size, _ in topics.values()), now)
            self._records_per_request.record(sum(count for _, count in topics.values()), now)

    def record_returned(self, states: Iterable[PartitionState], now: int) -> None:
        """Record what polls returned since the last update, and the lags and leads afterwards.

        `states` are the states of the partitions whose records these polls have returned. The call clears the
        counts, lags and leads in `states`.
        """
        returned_records: dict[str, int] = {}  # By topic, as `returned_bytes`.
        returned_bytes: dict[str, int] = {}
        lags: list[int] = []
        leads: list[float] = []
        for state in states:
            partition, topic = state.partition, state.partition.topic
            record_count, size = state.take_counts()
            returned_records[topic] = returned_records.get(topic, 0) + record_count
            if size:
                returned_bytes[topic] = returned_bytes.get(topic, 0) + size
            partition_lags, partition_leads = state.take_lags(), state.take_leads()
            lags.extend(partition_lags)
            leads.extend(partition_leads)
            if state.released:
                continue
            sensors = self._partitions.get(partition)
            if sensors is None or sensors.state is not state:
                sensors = self._partitions[partition] = _PartitionSensors(state)
            for lag in partition_lags:
                sensors.lag.record(lag, now)
            for lead in partition_leads:
                sensors.lead.record(lead, now)
        for topic, record_count in returned_records.items():
            self._topics[topic].records_consumed.record(record_count, now)
        for topic, size in returned_bytes.items():
            self._topics[topic].bytes_consumed.record(size, now)
        if returned_records:
            self._records_consumed.record(sum(returned_records.values()), now)
        if returned_bytes:
            self._bytes_consumed.record(sum(returned_bytes.values()), now)
        if lags:
            self._lag_max.record(max(lags), now)
        if leads:
            self._lead_min.record(min(leads), now)

    def add_to(
        self, snapshot: SnapshotBuilder, now: int, states: Mapping[TopicPartition, PartitionState]
    ) -> None:
        """Add the metrics of the client, of each topic and of each assigned partition to a snapshot.

        `states` has the state of each assigned partition. The sensors of other partitions are dropped.
        """
        self._partitions = {
            partition: sensors
            for partition, sensors in self._partitions.items()
            if states.get(partition) is sensors.state
        }
        snapshot.add_sensors(
            self.latency,
            self.throttle,
            self._fetch_size,
            self._records_per_request,
            self._bytes_consumed,
            self._records_consumed,
            self._lag_max,
            self._lead_min,
        )
        for name, topic in sorted(self._topics.items()):
            snapshot.add_sensors(
                topic.fetch_size,
                topic.records_per_request,
                topic.bytes_consumed,
                topic.records_consumed,
                tags={"topic": name},
            )
        for partition, state in sorted(states.items(), key=lambda entry: entry[0]):
            tags = {"topic": partition.topic, "partition": str(partition.partition)}
            sensors = self._partitions.get(partition) or _PartitionSensors(state)
            snapshot.add(LAG, state.lag, tags)
            snapshot.add_sensors(sensors.lag, tags=tags)
            snapshot.add(LEAD, state.lead, tags)
            snapshot.add_sensors(sensors.lead, tags=tags)
            snapshot.add(PREFERRED_REPLICA, state.replica, tags)
