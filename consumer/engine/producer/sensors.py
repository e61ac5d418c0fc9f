"""The metrics of a producer: their table, and the sensors that its engine updates (Java's SenderMetrics).

Rules:

* Individual records are not measured. A batch is measured each time its request is built, as in Java, so a
  batch that is sent again is measured again.

* The size of a batch is measured after encoding and compression.

* The durations of flush, begin, commit, abort and send_offsets, and the times for which `send` waits for
  metadata or memory, are measured in ms.

* The first begin() also requests the producer id. The duration of this begin() is recorded in the metric of
  Java's initTransactions.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from ..metrics import NS_PER_MS, Measure, MetricDefinition, Sensor, SnapshotBuilder, avg_max, meter
from ..network.sensors import NETWORK_METRICS
from .batches import ProducerBatch

M = Measure
_client_metric = partial(MetricDefinition, group="metrics")
_topic_metric = partial(MetricDefinition, group="topic-metrics", tags=("topic",))


def _record_metrics(
    define: partial[MetricDefinition], name: str, description: str
) -> tuple[MetricDefinition, ...]:
    return meter(define, name, "records", description, counts=False)


def _time_metrics(name: str, description: str) -> tuple[MetricDefinition, ...]:
    """Return the metric of the total time (ns) that calls have taken."""
    return (_client_metric(f"{name}-time-ns-total", measure=M.TOTAL, unit="ns", description=description),)


BATCH_SIZE = avg_max(_client_metric, "batch-size", "Bytes of a batch in a request", unit="bytes")
BATCH_SPLIT = meter(
    _client_metric, "batch-split", "batches", "Batches that the broker rejected and that were split"
)
BUFFER_TOTAL = _client_metric(
    "buffer-total-bytes", measure=M.GAUGE, unit="bytes", description="The option `buffer_memory`"
)
BUFFER_AVAILABLE = _client_metric(
    "buffer-available-bytes", measure=M.GAUGE, unit="bytes", description="Bytes of the buffer that are free"
)
BUFFER_EXHAUSTED = meter(
    _client_metric, "buffer-exhausted", "records", "Sends that found no free memory within `max_block_ms`"
)
BUFFER_WAIT = (
    _client_metric(
        "bufferpool-wait-ratio",
        measure=M.TIME_RATIO,
        unit="ratio",
        description="Time in which sends waited for free memory",
    ),
    *_time_metrics("bufferpool-wait", "Time in which sends waited for free memory"),
)
WAITING_THREADS = _client_metric(
    "waiting-threads", measure=M.GAUGE, unit="calls", description="Sends that wait for free memory now"
)
METADATA_WAIT = _time_metrics("metadata-wait", "Time in which sends waited for the metadata of their topic")
METADATA_AGE = _client_metric(
    "metadata-age", measure=M.GAUGE, unit="s", description="Time since the last Metadata response"
)
RECORD_SIZE = avg_max(
    _client_metric, "record-size", "Size of the largest record of a batch, before compression", unit="bytes"
)
COMPRESSION = (
    _client_metric(
        "compression-rate-avg",
        measure=M.AVERAGE,
        unit="ratio",
        description="Size of a batch's records, divided by their size before compression",
    ),
)
QUEUE_TIME = avg_max(
    _client_metric, "record-queue-time", "Time from the start of a batch to the request that carries it"
)
SENT = (
    *_record_metrics(_client_metric, "record-send", "Records in Produce requests"),
    _client_metric(
        "records-per-request-avg",
        measure=M.AVERAGE,
        unit="records",
        description="Records in a Produce request",
    ),
)
RETRIED = _record_metrics(_client_metric, "record-retry", "Records that are sent again")
FAILED = _record_metrics(_client_metric, "record-error", "Records that were not delivered")
LATENCY = avg_max(_client_metric, "request-latency", "Time from a Produce to its response")
THROTTLE = avg_max(_client_metric, "produce-throttle-time", "Throttle time in the responses to Produce")
IN_FLIGHT = _client_metric(
    "requests-in-flight",
    measure=M.GAUGE,
    unit="requests",
    description="Produce requests without a response",
)
FLUSH_TIME = _time_metrics("flush", "Time in flush()")
TRANSACTION_TIMES = {
    "init": _time_metrics("txn-init", "Time in the first begin(), which requests the producer id"),
    "begin": _time_metrics("txn-begin", "Time in every later begin()"),
    "commit": _time_metrics("txn-commit", "Time in commit()"),
    "abort": _time_metrics("txn-abort", "Time in abort()"),
}
SEND_OFFSETS_TIME = _time_metrics("txn-send-offsets", "Time in send_offsets()")
TOPIC_SENT = _record_metrics(_topic_metric, "record-send", "Records in Produce requests")
TOPIC_BYTES = meter(_topic_metric, "byte", "bytes", "Bytes of batches in Produce requests", counts=False)
TOPIC_RETRIED = _record_metrics(_topic_metric, "record-retry", "Records that are sent again")
TOPIC_FAILED = _record_metrics(_topic_metric, "record-error", "Records that were not delivered")
TOPIC_COMPRESSION = (
    _topic_metric(
        "compression-rate",
        measure=M.AVERAGE,
        unit="ratio",
        description="Size of a batch's records, divided by their size before compression",
    ),
)

# Every metric of a producer.
PRODUCER_METRICS: tuple[MetricDefinition, ...] = (
    *NETWORK_METRICS,
    *BATCH_SIZE,
    *BATCH_SPLIT,
    BUFFER_TOTAL,
    BUFFER_AVAILABLE,
    *BUFFER_EXHAUSTED,
    *BUFFER_WAIT,
    WAITING_THREADS,
    *METADATA_WAIT,
    METADATA_AGE,
    *RECORD_SIZE,
    *COMPRESSION,
    *QUEUE_TIME,
    *SENT,
    *RETRIED,
    *FAILED,
    *LATENCY,
    *THROTTLE,
    IN_FLIGHT,
    *FLUSH_TIME,
    *(metric for call in TRANSACTION_TIMES.values() for metric in call),
    *SEND_OFFSETS_TIME,
    *TOPIC_SENT,
    *TOPIC_BYTES,
    *TOPIC_RETRIED,
    *TOPIC_FAILED,
    *TOPIC_COMPRESSION,
)


class _TopicSensors:
    def __init__(self) -> None:
        self.sent = Sensor(TOPIC_SENT)
        self.bytes = Sensor(TOPIC_BYTES)
        self.retried = Sensor(TOPIC_RETRIED)
        self.failed = Sensor(TOPIC_FAILED)
        self.compression = Sensor(TOPIC_COMPRESSION)


class ProducerSensors:
    """The sensors of one producer."""

    def __init__(self) -> None:
        self.latency = Sensor(LATENCY)
        self.throttle = Sensor(THROTTLE)
        self.flush_time = Sensor(FLUSH_TIME)
        self.transaction_times = {call: Sensor(metrics) for call, metrics in TRANSACTION_TIMES.items()}
        self.send_offsets_time = Sensor(SEND_OFFSETS_TIME)
        self.waiting_threads = 0  # Number of sends that wait for free memory.
        self._buffer_exhausted = Sensor(BUFFER_EXHAUSTED)
        self._buffer_wait = Sensor(BUFFER_WAIT)
        self._metadata_wait = Sensor(METADATA_WAIT)
        self._record_size = Sensor(RECORD_SIZE)
        self._compression = Sensor(COMPRESSION)
        self._batch_size = Sensor(BATCH_SIZE)
        self._batch_split = Sensor(BATCH_SPLIT)
        self._queue_time = Sensor(QUEUE_TIME)
        self._sent = Sensor(SENT)
        self._retried = Sensor(RETRIED)
        self._failed = Sensor(FAILED)
        self._topics: dict[str, _TopicSensors] = {}

    def record_request(self, batches: Sequence[ProducerBatch], now: int) -> None:
        """Record the batches of a Produce request."""
        record_count = 0
        for batch in batches:
            size = 0 if batch.data is None else len(batch.data)
            self._batch_size.record(size, now)
            self._queue_time.record(now - batch.created, now)
            self._record_size.record(batch.largest_record, now)
            self._compression.record(batch.compression_ratio, now)
            topic = self._topic_sensors(batch)
            topic.compression.record(batch.compression_ratio, now)
            topic.bytes.record(size, now)
            topic.sent.record(len(batch), now)
            record_count += len(batch)
        self._sent.record(record_count, now)

    def record_wait(self, wait_ms: int, now: int, *, for_memory: bool, timed_out: bool) -> None:
        """Record how long a send has waited for memory or metadata, and whether it then timed out.

        A timeout is counted only if the send waited for memory.
        """
        sensor = self._buffer_wait if for_memory else self._metadata_wait
        sensor.record(wait_ms * NS_PER_MS, now)
        if for_memory and timed_out:
            self._buffer_exhausted.record(1, now)

    def record_retry(self, batch: ProducerBatch, now: int) -> None:
        """Record that a batch is sent again."""
        self._retried.record(len(batch), now)
        self._topic_sensors(batch).retried.record(len(batch), now)

    def record_failure(self, batch: ProducerBatch, now: int) -> None:
        """Record that a batch was not delivered."""
        self._failed.record(len(batch), now)
        self._topic_sensors(batch).failed.record(len(batch), now)

    def record_split(self, now: int) -> None:
        """Record that a batch was split."""
        self._batch_split.record(1, now)

    def _topic_sensors(self, batch: ProducerBatch) -> _TopicSensors:
        """Return the sensors of the batch's topic. The first batch of a topic creates them."""
        name = batch.partition.topic
        topic = self._topics.get(name)
        if topic is None:
            topic = self._topics[name] = _TopicSensors()
        return topic

    def add_to(
        self,
        snapshot: SnapshotBuilder,
        *,
        buffer_memory: int,
        buffered_bytes: int,
        requests_in_flight: int,
        metadata_age: int | None,
    ) -> None:
        """Add the metrics of the producer and of each topic to a snapshot.

        Sizes are in bytes. `metadata_age` is in seconds, and None before the first Metadata response.
        """
        snapshot.add_sensors(self._batch_size, self._batch_split)
        snapshot.add(BUFFER_TOTAL, buffer_memory)
        snapshot.add(BUFFER_AVAILABLE, max(0, buffer_memory - buffered_bytes))
        snapshot.add_sensors(self._buffer_exhausted, self._buffer_wait)
        snapshot.add(WAITING_THREADS, self.waiting_threads)
        snapshot.add_sensors(self._metadata_wait)
        snapshot.add(METADATA_AGE, metadata_age)
        snapshot.add_sensors(self._record_size, self._compression)
        snapshot.add_sensors(
            self._queue_time, self._sent, self._retried, self._failed, self.latency, self.throttle
        )
        snapshot.add(IN_FLIGHT, requests_in_flight)
        snapshot.add_sensors(self.flush_time, *self.transaction_times.values(), self.send_offsets_time)
        for name, topic in sorted(self._topics.items()):
            sensors = topic.sent, topic.bytes, topic.retried, topic.failed, topic.compression
            snapshot.add_sensors(*sensors, tags={"topic": name})
