"""The metrics of poll (KafkaConsumerMetrics) and the samples behind their averages.

* last-poll-seconds-ago is the time since the start of the last poll, or -1 before the first poll.

* time-between-poll is the time between the starts of two polls. The first poll has the value 0.

* poll-idle-ratio is the share of time inside poll. A value near 1 means that the application waits for
  records. A value near 0 means that records wait for the application.

* If the first poll takes no time, its poll-idle-ratio is 0/0, which is NaN. Then the average is NaN until
  this sample expires.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import nan

SAMPLES = 2
# metrics.num.samples and metrics.sample.window.ms.
SAMPLE_MS = 30_000


@dataclass(slots=True)
class Sample:
    begun: int
    count: int = 0
    total: float = 0.0
    most: float = 0.0


@dataclass(slots=True)
class SampledStat:
    """The values of the last `SAMPLES` windows of `SAMPLE_MS` each; older ones are dropped (SampledStat)."""

    samples: list[Sample] = field(default_factory=list[Sample])

    def record(self, value: float, now: int) -> None:
        last = self.samples[-1] if self.samples else None
        if last is None or now - last.begun >= SAMPLE_MS:
            last = Sample(now)
            self.samples = [*self.samples[1 - SAMPLES :], last]
        if not last.count or value > last.most:
            last.most = value
        last.count += 1
        last.total += value

    def average(self, now: int) -> float:
        samples = self._recent(now)
        count = sum(sample.count for sample in samples)
        return sum(sample.total for sample in samples) / count if count else nan

    def most(self, now: int) -> float:
        return max((sample.most for sample in self._recent(now)), default=nan)

    def _recent(self, now: int) -> list[Sample]:
        return [sample for sample in self.samples if now - sample.begun < SAMPLES * SAMPLE_MS]


@dataclass(slots=True)
class KafkaConsumerMetrics:
    """The times between polls (ms), and the shares of time inside poll (KafkaConsumerMetrics)."""

    between: SampledStat = field(default_factory=SampledStat)
    idle: SampledStat = field(default_factory=SampledStat)
    since_last: int = 0
    last: int | None = None

    def record_poll_start(self, now: int) -> None:
        self.since_last = 0 if self.last is None else now - self.last
        self.between.record(self.since_last, now)
        self.last = now

    def record_poll_end(self, now: int) -> None:
        if self.last is not None:
            took = now - self.last
            whole = took + self.since_last
            self.idle.record(took / whole if whole else nan, now)

    def values(self, now: int) -> dict[str, float]:
        """Return the metrics of poll under Java's names."""
        return {
            "last-poll-seconds-ago": -1 if self.last is None else (now - self.last) // 1000,
            "time-between-poll-avg": self.between.average(now),
            "time-between-poll-max": self.between.most(now),
            "poll-idle-ratio-avg": self.idle.average(now),
        }
