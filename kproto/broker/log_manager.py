"""When the broker looks over its logs: what is old is deleted, what is to be compacted is compacted.

Rules, as Kafka's LogManager and LogCleaner, but for their threads:
  * Topics without compact in their cleanup.policy are looked at every `log.retention.check.interval.ms`, for
    the first time `log.initial.task.delay.ms` after the broker's first step; the others every
    `log.cleaner.backoff.ms`.
  * Nobody sees a log between two steps, so a look that is due is taken with the next step, as of the moment
    when it was due.
  * A topic that doesn't say `retention.ms` itself keeps its records for as long as the broker's
    `log.retention.ms`, `.minutes` or `.hours` say; where nothing does, however old they are, where Kafka's
    broker has a week: what a test or a demo writes is often of another year.
"""

from __future__ import annotations

from collections.abc import Iterator

from .compaction import Config, compact, is_due
from .dynamic_config import DynamicConfig
from .topics import Partition, Topic, Topics


class Cleaning:
    """Looks over the logs of a cluster's `topics`."""

    __slots__ = ("_compacts_at", "_deletes_at", "_dynamic", "_interval", "_node", "_topics")

    def __init__(self, topics: Topics, dynamic: DynamicConfig, node: int) -> None:
        """`node` is one whose settings count; all brokers have the same logs."""
        self._topics, self._dynamic, self._node = topics, dynamic, node
        self._interval = max(dynamic.start.log_retention_check_interval_ms, 1)
        self._deletes_at: int | None = None
        self._compacts_at: int | None = None

    def look(self, now: int, ahead: int) -> list[Partition]:
        """Do what is due; the partitions from which something was taken. `ahead`: the time of day is so far
        ahead of `now`.
        """
        if self._deletes_at is None or self._compacts_at is None:
            self._deletes_at = now + self._dynamic.start.log_initial_task_delay_ms
            self._compacts_at = now + self._backoff()
        changed: list[Partition] = []
        if now >= self._compacts_at:
            backoff = self._backoff()
            at = now - (now - self._compacts_at) % backoff
            self._compacts_at = at + backoff
            for partition, config in self._logs(compacted=True):
                day = at + ahead
                compacted = is_due(partition, config, day) and compact(partition, config, day)
                if partition.delete_old(config, day) or compacted:
                    changed.append(partition)
        if now >= self._deletes_at:
            at = now - (now - self._deletes_at) % self._interval
            self._deletes_at = at + self._interval
            day = at + ahead
            changed += [one for one, config in self._logs(compacted=False) if one.delete_old(config, day)]
        return changed

    def _backoff(self) -> int:
        return max(self._dynamic.settings(self._node).log_cleaner_backoff_ms, 1)

    def look_at_once(self, day: int) -> list[Partition]:
        """Go over every log, also what is in its active segment; those from which something was taken. `day`
        is the time of day.
        """
        changed: list[Partition] = []
        for partition, config in self._logs(compacted=True):
            partition.log.roll()
            if compact(partition, config, day):
                changed.append(partition)
        for compacted in (True, False):
            changed += [one for one, config in self._logs(compacted=compacted) if one.delete_old(config, day)]
        return changed

    def _logs(self, *, compacted: bool) -> Iterator[tuple[Partition, Config]]:
        settings = self._dynamic.settings(self._node)
        for topic in self._topics:

            def config(name: str, topic: Topic = topic) -> str:
                if name == "retention.ms" and name not in topic.configs and settings.retention_ms is None:
                    return "-1"
                return topic.config(name, settings)

            if ("compact" in config("cleanup.policy")) is compacted:
                for partition in topic.partitions:
                    yield partition, config
