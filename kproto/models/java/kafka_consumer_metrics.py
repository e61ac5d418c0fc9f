"""When poll was called, and how long it took: KafkaConsumerMetrics, and the samples behind its averages.

* last-poll-seconds-ago counts from the beginning of the last poll; -1 before the first.
* time-between-poll is from beginning to beginning; the first poll counts as 0.
* poll-idle-ratio is the part of the time that poll took: near 1 the application waits for records, near 0
  the records wait for the application. A first poll that takes no time is 0 of 0, which is no number, and
  neither is the average until that sample is over.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import nan

SAMPLES = 2
SAMPLE_MS = 30_000
"""metrics.num.samples and metrics.sample.window.ms."""


@dataclass(slots=True)
class Sample:
    begun: int
    count: int = 0
    total: float = 0.0
    most: float = 0.0


@dataclass(slots=True)
class SampledStat:
    """SampledStat: what was recorded in the last samples; older ones are forgotten."""

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
        found = self._recent(now)
        count = sum(one.count for one in found)
        return sum(one.total for one in found) / count if count else nan

    def most(self, now: int) -> float:
        return max((one.most for one in self._recent(now)), default=nan)

    def _recent(self, now: int) -> list[Sample]:
        return [one for one in self.samples if now - one.begun < SAMPLES * SAMPLE_MS]


@dataclass(slots=True)
class KafkaConsumerMetrics:
    """KafkaConsumerMetrics. `begun` and `ended` are recordPollStart and recordPollEnd; times are ms."""

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
        """The metrics of poll, by Java's names."""
        return {
            "last-poll-seconds-ago": -1 if self.last is None else (now - self.last) // 1000,
            "time-between-poll-avg": self.between.average(now),
            "time-between-poll-max": self.between.most(now),
            "poll-idle-ratio-avg": self.idle.average(now),
        }
