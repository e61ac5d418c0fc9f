"""Metrics of a client: sensors that record values, and the snapshot that `metrics()` returns.

A sensor follows Kafka's `org.apache.kafka.common.metrics`: Avg, Max, Min, Rate, WindowedCount, CumulativeSum
and CumulativeCount.

Sensors never read a clock: the caller passes the time (ms).

Sensors follow Java's SampledStat with its default configuration. Only the last two points differ from Java:

* Values are recorded in samples. A sample takes values for 30 s (`metrics.sample.window.ms`).

* A metric covers the last two samples (`metrics.num.samples`), and the sample before them as long as it
  overlaps the last 60 s.

* A sample is emptied when its last value is 60 s old.

* A rate divides by the time since the oldest sample began, plus 30 s if this time is below 30 s. So the first
  rates are not too high.

* All measures of a sensor share its samples. In Java each measure has separate samples, which may begin at
  different times.

* If the samples contain no value, an average, maximum or minimum is None. Java reports NaN.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from functools import partial
from math import inf

import msgspec

from kproto.errors import ConfigError
from kproto.lazy_imports import render_html

# Length (ms) of a sample, and the number of samples: Java's defaults of metrics.sample.window.ms and
# metrics.num.samples.
WINDOW_MS = 30_000
SAMPLES = 2
NS_PER_MS = 1_000_000


class Measure(Enum):
    """How a metric summarizes the values of its sensor. The comments name the Java classes."""

    AVERAGE = "average"  # Avg
    MAXIMUM = "maximum"  # Max
    MINIMUM = "minimum"  # Min
    RATE = "sum per second"  # Rate(WindowedSum)
    COUNT_RATE = "number per second"  # Rate(WindowedCount)
    COUNT_RATE_PER_HOUR = "number per hour"  # Rate(HOURS, WindowedCount)
    TIME_RATIO = "share of the time"  # Rate(NANOSECONDS); the values are in ns
    TOTAL = "sum"  # CumulativeSum
    COUNT = "number"  # CumulativeCount
    GAUGE = "current value"  # Gauge, Measurable


class MetricDefinition(msgspec.Struct, frozen=True):
    """One metric of a client. `group` does not include the client's prefix, such as "consumer-"."""

    name: str
    group: str
    measure: Measure
    unit: str
    description: str
    tags: tuple[str, ...] = ()


def avg_max(
    define: partial[MetricDefinition], name: str, description: str, *, unit: str = "ms"
) -> tuple[MetricDefinition, ...]:
    """Return the metrics for the average and the maximum of a sensor's values."""
    return (
        define(f"{name}-avg", measure=Measure.AVERAGE, unit=unit, description=description),
        define(f"{name}-max", measure=Measure.MAXIMUM, unit=unit, description=description),
    )


def meter(
    define: partial[MetricDefinition], name: str, unit: str, description: str, *, counts: bool = True
) -> tuple[MetricDefinition, ...]:
    """Return the metrics for a rate and a total, as Java's Meter has them.

    The metrics count the sensor's values or, if `counts` is false, sum them.
    """
    rate, total = (Measure.COUNT_RATE, Measure.COUNT) if counts else (Measure.RATE, Measure.TOTAL)
    return (
        define(f"{name}-rate", measure=rate, unit=f"{unit}/s", description=description),
        define(f"{name}-total", measure=total, unit=unit, description=description),
    )


def seconds_since(then: int | None, now: int) -> int | None:
    """Return the whole seconds between `then` and `now` (both in ms); None if `then` is None."""
    return None if then is None else (now - then) // 1_000


class _Sample:
    """The values that were recorded in one window of time."""

    __slots__ = ("count", "last", "maximum", "minimum", "start", "total")

    def __init__(self, now: int) -> None:
        self.reset(now)

    def reset(self, now: int) -> None:
        self.start = self.last = now
        self.count = 0
        self.total = 0.0
        self.maximum = -inf
        self.minimum = inf


class Sensor(msgspec.Struct, eq=False, gc=False):
    """Records values, and measures them for the metrics in `definitions`.

    `count` and `total` are the number and the sum of all values since the sensor was created.

    A client has about 30 sensors. They refer only to constants and numbers, so the garbage collector need
    not track them.
    """

    definitions: tuple[MetricDefinition, ...] = ()
    count: int = 0
    total: float = 0.0
    _samples: tuple[_Sample, ...] = ()
    _current: _Sample | None = None

    def record(self, value: float, now: int, times: int = 1) -> None:
        """Record a value at the time `now` (ms). It counts as `times` equal values."""
        sample = self._current
        if sample is None or now - sample.start >= WINDOW_MS:
            sample = self._next_sample(now)
        total = value if times == 1 else value * times
        self.count += times
        self.total += total
        sample.count += times
        sample.total += total
        sample.last = now
        if value > sample.maximum:
            sample.maximum = value
        if value < sample.minimum:
            sample.minimum = value

    def _next_sample(self, now: int) -> _Sample:
        """Return an empty sample, which becomes the current one.

        A new sample is created until `SAMPLES` + 1 samples exist. After that, the oldest sample is reset and
        returned.
        """
        samples, current = self._samples, self._current
        if current is None or len(samples) <= SAMPLES:
            sample = _Sample(now)
            self._samples = (*samples, sample)
        else:
            sample = samples[(samples.index(current) + 1) % len(samples)]
            sample.reset(now)
        self._current = sample
        return sample

    def measure(self, measure: Measure, now: int) -> float | None:
        """Return the value of `measure` for the recorded values; None if the samples contain no value."""
        self._empty_old_samples(now)
        count = sum(sample.count for sample in self._samples)
        match measure:
            case Measure.TOTAL:
                return self.total
            case Measure.COUNT:
                return self.count
            case Measure.GAUGE:
                raise ValueError("a sensor cannot measure a gauge; pass its value to SnapshotBuilder.add")
            case Measure.RATE:
                return sum(sample.total for sample in self._samples) * 1_000 / self._elapsed_ms(now)
            case Measure.COUNT_RATE:
                return count * 1_000 / self._elapsed_ms(now)
            case Measure.TIME_RATIO:
                total_ns = sum(sample.total for sample in self._samples)
                return total_ns / (self._elapsed_ms(now) * NS_PER_MS)
            case Measure.COUNT_RATE_PER_HOUR:
                return count * 3_600_000 / self._elapsed_ms(now)
            case _ if not count:
                return None
            case Measure.AVERAGE:
                return sum(sample.total for sample in self._samples) / count
            case Measure.MAXIMUM:
                return max(sample.maximum for sample in self._samples)
            case Measure.MINIMUM:
                return min(sample.minimum for sample in self._samples)

    def _empty_old_samples(self, now: int) -> None:
        """Empty the samples whose last value is too old (SampledStat.purgeObsoleteSamples)."""
        if self._current is None:
            self._next_sample(now)
        for sample in self._samples:
            if now - sample.last >= SAMPLES * WINDOW_MS:
                sample.reset(now)

    def _elapsed_ms(self, now: int) -> int:
        """Return the length (ms) of the period over which a rate is measured (Rate.windowSize)."""
        elapsed = now - min(sample.start for sample in self._samples)
        missing_samples = SAMPLES - 1 - elapsed // WINDOW_MS
        return max(elapsed + max(missing_samples, 0) * WINDOW_MS, 1)


class Metric(msgspec.Struct, frozen=True):
    """The value of one metric at the time of a snapshot.

    `name`, `group` and `tags` follow Kafka's Java client. `unit` is the unit of `value`, such as "ms"
    or "bytes/s".

    `value` is None while there is nothing to measure. Java reports NaN or -1 in this case.
    """

    name: str
    group: str
    tags: Mapping[str, str]
    value: float | None
    unit: str
    description: str


class Metrics:
    """The metrics of a client at one moment, in a fixed order. Later events do not change them.

    for metric in consumer.metrics():
        print(metric.name, metric.tags, metric.value, metric.unit)
    consumer.metrics().value("records-lag-max", topic="flights", partition=0)
    """

    def __init__(self, metrics: Iterable[Metric]) -> None:
        self._metrics = tuple(metrics)

    def __iter__(self) -> Iterator[Metric]:
        return iter(self._metrics)

    def __len__(self) -> int:
        return len(self._metrics)

    def __repr__(self) -> str:
        return f"<Metrics: {len(self)} metrics>"

    def _repr_html_(self) -> str:
        """Return a table of the metrics, for a notebook."""
        return render_html("kproto.inspect.notebook:metrics", self)

    def value(self, name: str, **tags: object) -> float | None:
        """Return the metric value for this name and exactly these tags, ignoring `client-id`.

        In keywords, an underscore stands for a tag's hyphen: `node_id="node-1"` matches the tag `node-id`.

        Raises ConfigError if the snapshot has no such metric. Metrics of a broker, topic or partition are
        missing until the client has used it.
        """
        expected = {tag.replace("_", "-"): str(value) for tag, value in tags.items()}
        described_tags: list[str] = []
        for metric in self._metrics:
            if metric.name == name:
                metric_tags = {tag: value for tag, value in metric.tags.items() if tag != "client-id"}
                if metric_tags == expected:
                    return metric.value
                described_tags.append(_describe_tags(metric_tags))
        if not described_tags:
            raise ConfigError("name", name, "the name of a metric in this snapshot")
        allowed = f"the tags of a metric {name!r} in this snapshot: {'; '.join(sorted(described_tags)[:5])}"
        raise ConfigError("tags", _describe_tags(expected), allowed)


def _describe_tags(tags: Mapping[str, str]) -> str:
    return ", ".join(f"{tag}={value}" for tag, value in tags.items()) or "no tags"


class SnapshotBuilder:
    """Collects the metrics of a snapshot.

    `client` is the prefix of the groups: "consumer", "producer" or "admin-client". Every metric gets the tag
    `client-id`.
    """

    def __init__(self, client: str, client_id: str, now: int) -> None:
        self._client = client
        self._client_id = client_id
        self._now = now
        self._metrics: list[Metric] = []

    def add_sensors(self, *sensors: Sensor, tags: Mapping[str, str] = {}) -> None:
        """Add the metrics of these sensors, all with the given `tags`."""
        for sensor in sensors:
            for definition in sensor.definitions:
                self.add(definition, sensor.measure(definition.measure, self._now), tags)

    def add(self, definition: MetricDefinition, value: float | None, tags: Mapping[str, str] = {}) -> None:
        """Add one metric with its value."""
        self._metrics.append(
            Metric(
                definition.name,
                f"{self._client}-{definition.group}",
                {"client-id": self._client_id, **tags},
                value,
                definition.unit,
                definition.description,
            )
        )

    def build(self) -> Metrics:
        """Return the snapshot."""
        return Metrics(self._metrics)
