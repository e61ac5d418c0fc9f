"""The sensors of a consumer. The parts of its engine record them; `consumer_metrics` lists their metrics.

Rules:

* Nothing is recorded per record. The records that polls return within 20 ms are recorded together, and so are
  the polls that begin within one millisecond.
* Sizes and numbers of records per request are recorded when a fetch arrives. The numbers are those of the
  batch headers. Consumed bytes are counted when all records of a fetch were returned. In Java, sizes, numbers
  and bytes are all recorded when the last record of a fetch is returned.
* The lag and the lead of a partition are recorded when a poll returns records of the partition.
* A rebalance lasts from the first JoinGroup until the member adopts its assignment. Each JoinGroup or
  SyncGroup that fails is a failed rebalance, as in Java.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

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

# Shortest interval (ms) between two recordings of the records that polls have returned. Each recording also
# reads the lags of their partitions.
RECORD_INTERVAL_MS = 20


class CallSensors:
    """The sensors of polls, commits and committed() of the application."""

    def __init__(self) -> None:
        self.time_between = Sensor(TIME_BETWEEN_POLL)
        self.idle_ratio = Sensor(POLL_IDLE_RATIO)
        self.commit_time = Sensor(COMMIT_TIME)
        self.committed_time = Sensor(COMMITTED_TIME)
        self.polled_at: int | None = None  # When the last poll began (ms).
        self._since_previous = 0  # Time (ms) from the start of the poll before the last one to `polled_at`.
        # Number of polls that began in the same millisecond as the poll before, and are not recorded yet.
        self.immediate_polls = 0

    def poll_began(self, now: int) -> None:
        """Record the start of a poll. The time since the previous poll is 0 ms for the first poll, as in
        Java.
        """
        if now == self.polled_at or self.polled_at is None:
            self.polled_at, self._since_previous = now, 0
            self.immediate_polls += 1
            return
        if self.immediate_polls:
            self._record_immediate()
        self._since_previous, self.polled_at = now - self.polled_at, now
        self.time_between.record(self._since_previous, now)

    def poll_ended(self, now: int) -> None:
        """Record the end of a poll: the share of the time that was spent in poll.

        If no time has passed, nothing is recorded; Java records NaN.
        """
        if self.polled_at is not None and (in_poll := now - self.polled_at) + self._since_previous > 0:
            self.idle_ratio.record(in_poll / (in_poll + self._since_previous), now)

    def _record_immediate(self) -> None:
        if self.immediate_polls and self.polled_at is not None:
            self.time_between.record(0, self.polled_at, self.immediate_polls)
            self.immediate_polls = 0

    def add_to(self, snapshot: SnapshotBuilder, now: int) -> None:
        """Add the metrics to a snapshot."""
        self._record_immediate()
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
        # Times (ms): when the last heartbeat was sent, when the rebalance in progress began, and when the
        # last rebalance ended. None if there was none.
        self.heartbeat_at: int | None = None
        self._began_at: int | None = None
        self._ended_at: int | None = None

    def record_call(self, purpose: Purpose, call: Call, now: int) -> None:
        """Record the end of a request of the member."""
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
        """Record that the member has adopted its assignment."""
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
        # What polls have returned and `record_returned` has not recorded yet. `returned` has the number of
        # records of each partition, which `FetchCollector` counts. `_returned_bytes` has for each topic the
        # bytes of the fetches whose records were all returned.
        self.returned: dict[PartitionState, int] = {}
        self._returned_bytes: dict[str, int] = {}
        self._record_at = 0  # When to record the counted records (ms).

    def record_arrived(self, topics: Mapping[str, tuple[int, int]], now: int) -> None:
        """Record the records in a response: for each topic, their size (bytes) and their number."""
        for name, (size, number) in topics.items():
            topic = self._topics[name]
            topic.size.record(size, now)
            topic.number.record(number, now)
        if topics:
            self._size.record(sum(size for size, _ in topics.values()), now)
            self._number.record(sum(number for _, number in topics.values()), now)

    def add_exhausted(self, topic: str, size: int) -> None:
        """Count the bytes of a fetch whose records were all returned."""
        self._returned_bytes[topic] = self._returned_bytes.get(topic, 0) + size

    def record_returned(self, now: int) -> None:
        """Record the counted records, unless others were recorded in the last `RECORD_INTERVAL_MS`."""
        if now < self._record_at:
            return
        self._record_at = now + RECORD_INTERVAL_MS
        returned, self.returned = self.returned, {}
        returned_bytes, self._returned_bytes = self._returned_bytes, {}
        topics: dict[str, int] = {}
        lags: list[int] = []
        leads: list[int] = []
        for state, number in returned.items():
            partition = state.partition
            topics[partition.topic] = topics.get(partition.topic, 0) + number
            if state.released:
                continue
            sensors = self._partitions.get(partition)
            if sensors is None or sensors.state is not state:
                sensors = self._partitions[partition] = _PartitionSensors(state)
            if (lag := state.lag) is not None:
                sensors.lag.record(lag, now)
                lags.append(lag)
            if (lead := state.lead) is not None:
                sensors.lead.record(lead, now)
                leads.append(lead)
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
        self._record_at = now
        self.record_returned(now)
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
