"""The sensors of a consumer. Its engine records values in them; `consumer_metrics` lists their metrics.

Rules:

* During a poll that returns buffered records, only the start time is stored, and the records and bytes are
  counted. Sensors are not updated.

* The metrics of polls are recorded once per second and before a snapshot.

* The sizes and record counts of fetches are recorded when a response arrives. The record counts are those of
  the batch headers.

* Consumed bytes are counted once all records of a fetch have been returned.

* Java records sizes, record counts and consumed bytes when the last record of a fetch is returned.

* The lag and the lead of a partition are measured after each poll that returned its records.

* Each second, the largest and the latest lag are recorded, and the smallest and the latest lead. Java records
  each value.

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
    BYTES,
    COMMIT_TIME,
    COMMITTED_TIME,
    FAILED_REBALANCE,
    FETCH,
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
    NUMBER,
    PARTITION_LAG,
    PARTITION_LEAD,
    POLL_IDLE_RATIO,
    PREFERRED_REPLICA,
    REBALANCE,
    RECORDS,
    REVOKED_CALLBACK,
    SIZE,
    SYNC,
    THROTTLE,
    TIME_BETWEEN_POLL,
    TOPIC_BYTES,
    TOPIC_NUMBER,
    TOPIC_RECORDS,
    TOPIC_SIZE,
)
from .metrics import Sensor, SnapshotBuilder, seconds_since
from .network.call import Call
from .positions.partition_states import PartitionState

# Interval (ms) at which the engine updates the sensors for the polls that returned buffered records, and for
# the number of these records.
RECORD_INTERVAL_MS = 1_000


class CallSensors:
    """The sensors of the application's polls, commits and `committed()` calls."""

    def __init__(self) -> None:
        self.time_between = Sensor(TIME_BETWEEN_POLL)
        self.idle_ratio = Sensor(POLL_IDLE_RATIO)
        self.commit_time = Sensor(COMMIT_TIME)
        self.committed_time = Sensor(COMMITTED_TIME)
        self.polled_at: int | None = None  # When the last poll began (ms).

        # The start times (ms) of polls that returned buffered records and are not recorded yet. A poll that
        # began in the same millisecond as the previous poll is only counted, in `immediate_polls`.
        self.unrecorded_starts: list[int] = []
        self.immediate_polls = 0
        self._recorded_at: int | None = None  # When the last recorded poll began (ms).
        self._since_previous = 0  # Time (ms) between the starts of the last two recorded polls.

    def record_polls(self) -> None:
        """Record the polls that have returned buffered records since the previous call."""
        starts, self.unrecorded_starts = self.unrecorded_starts, []
        for began in starts:
            self._record_start(began)
            self._record_end(began)
        if self.immediate_polls and self.polled_at is not None:
            self.time_between.record(0, self.polled_at, self.immediate_polls)
            self.immediate_polls = 0

    def poll_began(self, now: int) -> None:
        """Record the start of a poll."""
        self.record_polls()
        self._record_start(now)
        self.polled_at = now

    def _record_start(self, began: int) -> None:
        """Record the time since the previous poll. It is 0 ms for the first poll, as in Java."""
        self._since_previous = 0 if self._recorded_at is None else began - self._recorded_at
        self._recorded_at = began
        self.time_between.record(self._since_previous, began)

    def poll_ended(self, now: int) -> None:
        """Record the end of a poll."""
        self.record_polls()
        self._record_end(now)

    def _record_end(self, ended: int) -> None:
        """Record poll-idle-ratio: time in poll / (time in poll + time between the starts of polls).

        If no time has passed, nothing is recorded, whereas Java records NaN.
        """
        in_poll = 0 if self._recorded_at is None else ended - self._recorded_at
        if in_poll + self._since_previous > 0:
            self.idle_ratio.record(in_poll / (in_poll + self._since_previous), ended)

    def add_to(self, snapshot: SnapshotBuilder, now: int) -> None:
        """Add the metrics to a snapshot."""
        self.record_polls()
        snapshot.add(LAST_POLL, seconds_since(self.polled_at, now))
        snapshot.add_sensors(self.time_between, self.idle_ratio, self.commit_time, self.committed_time)


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
        self._began_at: int | None = None
        self._ended_at: int | None = None

    def record_call(self, purpose: Purpose, call: Call, now: int) -> None:
        """Record the latency or the failure of a finished request of the member."""
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
        if self._began_at is None:
            self._began_at = now

    def rebalance_ended(self, now: int) -> None:
        """Record the end of a rebalance: the member has adopted its assignment."""
        if self._began_at is not None:
            self.rebalance.record(now - self._began_at, now)
            self._began_at, self._ended_at = None, now

    def add_to(self, snapshot: SnapshotBuilder, now: int, assigned: int) -> None:
        """Add the metrics to a snapshot. `assigned` is the number of assigned partitions."""
        snapshot.add_sensors(self.heartbeat)
        snapshot.add(LAST_HEARTBEAT, seconds_since(self.heartbeat_at, now))
        snapshot.add_sensors(self.join, self.sync, self.rebalance, self.failed_rebalance)
        snapshot.add(LAST_REBALANCE, seconds_since(self._ended_at, now))
        snapshot.add(ASSIGNED_PARTITIONS, assigned)
        snapshot.add_sensors(*self.callbacks.values())


class _TopicSensors:
    def __init__(self) -> None:
        self.size = Sensor(TOPIC_SIZE)
        self.number = Sensor(TOPIC_NUMBER)
        self.bytes_consumed = Sensor(TOPIC_BYTES)
        self.records_consumed = Sensor(TOPIC_RECORDS)


class _PartitionSensors:
    def __init__(self, state: PartitionState) -> None:
        self.state = state
        self.lag = Sensor(PARTITION_LAG)
        self.lead = Sensor(PARTITION_LEAD)


class FetchSensors:
    """The sensors of fetches, and of the records that polls return."""

    def __init__(self) -> None:
        self.latency = Sensor(FETCH)
        self.throttle = Sensor(THROTTLE)
        self._size = Sensor(SIZE)
        self._number = Sensor(NUMBER)
        self._bytes_consumed = Sensor(BYTES)
        self._records_consumed = Sensor(RECORDS)
        self._lag = Sensor(LAG_MAX)
        self._lead = Sensor(LEAD_MIN)
        self._topics: defaultdict[str, _TopicSensors] = defaultdict(_TopicSensors)
        self._partitions: dict[TopicPartition, _PartitionSensors] = {}

    def record_arrived(self, topics: Mapping[str, tuple[int, int]], now: int) -> None:
        """Record the total size (bytes) and the number of records that a response contains for each topic."""
        for name, (size, number) in topics.items():
            topic = self._topics[name]
            topic.size.record(size, now)
            topic.number.record(number, now)
        if topics:
            self._size.record(sum(size for size, _ in topics.values()), now)
            self._number.record(sum(number for _, number in topics.values()), now)

    def record_returned(self, states: Iterable[PartitionState], now: int) -> None:
        """Record how many records polls have returned since the last call, and the lags and leads."""
        topics: dict[str, int] = {}
        returned_bytes: dict[str, int] = {}
        lags: list[int] = []
        leads: list[float] = []
        for state in states:
            partition = state.partition
            number, size = state.take_counts()
            topics[partition.topic] = topics.get(partition.topic, 0) + number
            if size:
                returned_bytes[partition.topic] = returned_bytes.get(partition.topic, 0) + size
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
        for name, number in topics.items():
            self._topics[name].records_consumed.record(number, now)
        for name, size in returned_bytes.items():
            self._topics[name].bytes_consumed.record(size, now)
        if topics:
            self._records_consumed.record(sum(topics.values()), now)
        if returned_bytes:
            self._bytes_consumed.record(sum(returned_bytes.values()), now)
        if lags:
            self._lag.record(max(lags), now)
        if leads:
            self._lead.record(min(leads), now)

    def add_to(
        self, snapshot: SnapshotBuilder, now: int, states: Mapping[TopicPartition, PartitionState]
    ) -> None:
        """Add the metrics of the client, of each topic and of each assigned partition to a snapshot."""
        self._partitions = {p: known for p, known in self._partitions.items() if states.get(p) is known.state}
        snapshot.add_sensors(
            self.latency,
            self.throttle,
            self._size,
            self._number,
            self._bytes_consumed,
            self._records_consumed,
            self._lag,
            self._lead,
        )
        for name, topic in sorted(self._topics.items()):
            snapshot.add_sensors(
                topic.size, topic.number, topic.bytes_consumed, topic.records_consumed, tags={"topic": name}
            )
        for partition, state in sorted(states.items(), key=lambda entry: entry[0]):
            tags = {"topic": partition.topic, "partition": str(partition.partition)}
            sensors = self._partitions.get(partition) or _PartitionSensors(state)
            snapshot.add(LAG, state.lag, tags)
            snapshot.add_sensors(sensors.lag, tags=tags)
            snapshot.add(LEAD, state.lead, tags)
            snapshot.add_sensors(sensors.lead, tags=tags)
            snapshot.add(PREFERRED_REPLICA, state.replica, tags)
