"""The metrics of poll (KafkaConsumerMetrics) and the samples behind their averages.

* last-poll-seconds-ago is the time since the start of the last poll, or -1 before the first poll.

* time-between-poll is the time between the starts of two polls. The first poll has the value 0.

* poll-idle-ratio is the share of time inside poll. A value near 1 means that the application waits for
  records. A value near 0 means that records wait for the application.

* If the first poll takes no time, its poll-idle-ratio is 0/0, which is NaN. The average is then NaN until the
  sample with this value expires.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import nan

SAMPLE_COUNT = 2
# metrics.num.samples and metrics.sample.window.ms.
SAMPLE_MS = 30_000


@dataclass(slots=True)
class Sample:
    """The values of one window, which starts at `started_at` (ms)."""

    started_at: int
    count: int = 0
    total: float = 0.0
    maximum: float = 0.0


@dataclass(slots=True)
class SampledStat:
    """The values of the last `SAMPLE_COUNT` windows of `SAMPLE_MS` each; older ones are dropped.

    Follows SampledStat.
    """

    samples: list[Sample] = field(default_factory=list[Sample])

    def record(self, value: float, now: int) -> None:
        """Add a value to the last sample, or to a new one if the last sample's window has passed."""
        sample = self.samples[-1] if self.samples else None
        if sample is None or now - sample.started_at >= SAMPLE_MS:
            sample = Sample(now)
            self.samples = [*self.samples[1 - SAMPLE_COUNT :], sample]
        if not sample.count or value > sample.maximum:
            sample.maximum = value
        sample.count += 1
        sample.total += value

    def average(self, now: int) -> float:
        samples = self._recent_samples(now)
        count = sum(sample.count for sample in samples)
        return sum(sample.total for sample in samples) / count if count else nan

    def maximum(self, now: int) -> float:
        return max((sample.maximum for sample in self._recent_samples(now)), default=nan)

    def _recent_samples(self, now: int) -> list[Sample]:
        return [sample for sample in self.samples if now - sample.started_at < SAMPLE_COUNT * SAMPLE_MS]


@dataclass(slots=True)
class KafkaConsumerMetrics:
    """The times between polls (ms), and the shares of time inside poll (KafkaConsumerMetrics)."""

    time_between_poll: SampledStat = field(default_factory=SampledStat)
    poll_idle_ratio: SampledStat = field(default_factory=SampledStat)
    time_since_last_poll_ms: int = 0
    last_poll_ms: int | None = None

    def record_poll_start(self, now: int) -> None:
        self.time_since_last_poll_ms = 0 if self.last_poll_ms is None else now - self.last_poll_ms
        self.time_between_poll.record(self.time_since_last_poll_ms, now)
        self.last_poll_ms = now

    def record_poll_end(self, now: int) -> None:
        if self.last_poll_ms is not None:
            poll_time_ms = now - self.last_poll_ms
            total_ms = poll_time_ms + self.time_since_last_poll_ms
            self.poll_idle_ratio.record(poll_time_ms / total_ms if total_ms else nan, now)

    def values(self, now: int) -> dict[str, float]:
        """Return the metrics of poll under Java's names."""
        return {
            "last-poll-seconds-ago": -1 if self.last_poll_ms is None else (now - self.last_poll_ms) // 1000,
            "time-between-poll-avg": self.time_between_poll.average(now),
            "time-between-poll-max": self.time_between_poll.maximum(now),
            "poll-idle-ratio-avg": self.poll_idle_ratio.average(now),
        }
