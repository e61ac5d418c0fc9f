"""Prepares the metrics of a push: their names, and the changes of sums since the last push (KIP-714).

Rules, as in Java's TelemetryMetricNamingConvention and KafkaMetricsCollector:

* For example, the metric `bytes-consumed-total` of the group `consumer-fetch-manager-metrics` becomes
  `org.apache.kafka.consumer.fetch.manager.bytes.consumed.total`. Tags become attributes, with underscores.
  The tag `client-id` is omitted, because the broker knows it from each request.

* Metrics whose name ends with -total are monotonic sums. All other metrics are gauges. A push
  contains a sum's change since the previous push with delta temporality, and the whole sum with cumulative
  temporality.

* When a sensor is removed, for example because its topic was deleted, the sum of the sensor is forgotten.

* If a broker rejects a push, the next push also contains the changes of the rejected one (`restore`). In Java
  they are lost.

* A metric without a value is omitted. Java sends NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from kproto.otlp import MetricPoint, Temporality

from ..metrics import Metric

_PREFIX: Final = "org.apache.kafka"
_CLIENT_ID: Final = "client-id"

_Key = tuple[str, tuple[tuple[str, str], ...]]


def telemetry_name(group: str, name: str) -> str:
    """Return the KIP-714 name of a client's metric."""
    cleaned = _dotted_name(group).replace(".metrics", "")
    return f"{_PREFIX}.{cleaned}.{_dotted_name(name)}"


def telemetry_key(metric: Metric) -> tuple[str, dict[str, str]]:
    """Return the KIP-714 name and the attributes of a metric."""
    attributes = {
        tag.lower().replace("-", "_"): text for tag, text in metric.tags.items() if tag != _CLIENT_ID
    }
    return telemetry_name(metric.group, metric.name), attributes


def _dotted_name(name: str) -> str:
    return name.lower().replace("-", ".")


def is_sum(metric: Metric) -> bool:
    """Return whether a metric counts from the start of the client (Java's CumulativeSum)."""
    return metric.name.endswith("-total")


class MetricsCollector:
    """Converts snapshots of metrics, and remembers the sums of the last push."""

    def __init__(self, start_ns: int) -> None:
        """Create a collector; sums count from the time `start_ns`, in nanoseconds since 1970."""
        self._start_ns = start_ns
        # The sums of the last push, from which the next changes are computed, and the sums of the push before
        # it, for `restore`: metric -> (value, time in ns).
        self._sums: dict[_Key, tuple[float, int]] = {}
        self._previous_sums: dict[_Key, tuple[float, int]] = {}

    def collect(
        self, metrics: Iterable[Metric], selects: Callable[[str], bool], now_ns: int, *, is_delta: bool
    ) -> list[MetricPoint]:
        """Return the selected metrics at the time `now_ns`, and remember their sums for the next push.

        The sums of metrics that are missing from `metrics` are forgotten, because their sensors have been
        removed.
        """
        known, sums = self._sums, dict[_Key, tuple[float, int]]()
        points: list[MetricPoint] = []
        for metric in metrics:
            name, attributes = telemetry_key(metric)
            key: _Key = (name, tuple(attributes.items()))
            if metric.value is None or not selects(name):
                if key in known:  # The sensor still exists, so its sum is kept for a later push.
                    sums[key] = known[key]
                continue
            value = float(metric.value)
            if not is_sum(metric):
                points.append(MetricPoint(name, value, attributes, now_ns))
                continue
            pushed, start_ns = known.get(key, (0.0, self._start_ns)) if is_delta else (0.0, self._start_ns)
            # A sum that is smaller than the last pushed sum belongs to a sensor that was re-created.
            change = value - pushed if value >= pushed else value
            temporality = Temporality.DELTA if is_delta else Temporality.CUMULATIVE
            points.append(MetricPoint(name, change, attributes, now_ns, start_ns, temporality, True))
            sums[key] = value, now_ns
        self._previous_sums, self._sums = known, sums
        return points

    def restore(self) -> None:
        """Undo the last `collect`, because the broker has rejected its metrics."""
        self._sums = self._previous_sums

    def reset(self) -> None:
        """Forget all sums, because the temporality has changed."""
        self._sums = self._previous_sums = {}
