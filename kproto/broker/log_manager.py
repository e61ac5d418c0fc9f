"""Retention and compaction of all logs of a cluster, which run at separate intervals.

Rules, as in Kafka's LogManager and LogCleaner, but without background threads:

* Topics without "compact" in cleanup.policy are checked every `log.retention.check.interval.ms`, for the
  first time `log.initial.task.delay.ms` after the first event of the broker.

* Topics with "compact" in cleanup.policy are checked every `log.cleaner.backoff.ms`.

* Logs change only when the broker handles an event (`machine.step`). A check that becomes due between two
  events runs with the next event, but with the time at which it became due.

* The retention time of a topic without `retention.ms` is the first of the broker's `log.retention.ms`,
  `.minutes` and `.hours` that is set.

* Without any `log.retention` config, the retention time is unlimited, because tests and demos often write
  records with old timestamps. Kafka's default is a week.
"""

from __future__ import annotations

from collections.abc import Iterator

from .compaction import Config, compact, is_due
from .dynamic_config import DynamicConfig
from .topics import Partition, Topic, Topics


class LogManager:
    """The manager that runs retention and compaction on the logs of a cluster (Kafka's LogManager)."""

    __slots__ = (
        "_dynamic",
        "_next_compaction",
        "_next_retention_check",
        "_node",
        "_retention_interval",
        "_topics",
    )

    def __init__(self, topics: Topics, dynamic: DynamicConfig, node: int) -> None:
        """Create the manager of the logs of `topics`. The settings of the broker `node` apply."""
        self._topics, self._dynamic, self._node = topics, dynamic, node
        self._retention_interval = max(dynamic.start.log_retention_check_interval_ms, 1)
        self._next_retention_check: int | None = None
        self._next_compaction: int | None = None

    def run_due_tasks(self, now: int, wall_clock_offset: int) -> list[Partition]:
        """Run retention and compaction if they are due; return the partitions that changed.

        The first call schedules the first run of each task. `now` is in ms, and `wall_clock_offset` is the
        wall-clock time minus `now`.
        """
        if self._next_retention_check is None or self._next_compaction is None:
            self._next_retention_check = now + self._dynamic.start.log_initial_task_delay_ms
            self._next_compaction = now + self._compaction_interval()
        changed: list[Partition] = []
        if now >= self._next_compaction:
            interval = self._compaction_interval()
            due_at = _latest_due_time(now, self._next_compaction, interval)
            self._next_compaction = due_at + interval
            wall_clock = due_at + wall_clock_offset
            for partition, config in self._partitions(compacted=True):
                has_changed = is_due(partition, config, wall_clock) and compact(partition, config, wall_clock)
                if partition.apply_retention(config, wall_clock) or has_changed:
                    changed.append(partition)
        if now >= self._next_retention_check:
            due_at = _latest_due_time(now, self._next_retention_check, self._retention_interval)
            self._next_retention_check = due_at + self._retention_interval
            changed += self._apply_retention(due_at + wall_clock_offset, compacted=False)
        return changed

    def clean_all(self, wall_clock: int) -> list[Partition]:
        """Compact the logs of compacted topics, and run retention on all logs.

        Returns the changed partitions. A partition that both compaction and retention changed appears twice.
        """
        changed: list[Partition] = []
        for partition, config in self._partitions(compacted=True):
            partition.log.roll()
            if compact(partition, config, wall_clock):
                changed.append(partition)
        changed += self._apply_retention(wall_clock, compacted=True)
        changed += self._apply_retention(wall_clock, compacted=False)
        return changed

    def _apply_retention(self, wall_clock: int, *, compacted: bool) -> list[Partition]:
        """Run retention on compacted topics, or on the others if `compacted` is false.

        Returns the changed partitions.
        """
        partitions = self._partitions(compacted=compacted)
        return [
            partition for partition, config in partitions if partition.apply_retention(config, wall_clock)
        ]

    def _compaction_interval(self) -> int:
        """Return the interval of compaction in ms, which `log.cleaner.backoff.ms` may change dynamically."""
        return max(self._dynamic.settings(self._node).log_cleaner_backoff_ms, 1)

    def _partitions(self, *, compacted: bool) -> Iterator[tuple[Partition, Config]]:
        """Yield each partition with the function that returns its topic's configs.

        The topics are the compacted topics if `compacted` is true, otherwise all other topics.
        """
        settings = self._dynamic.settings(self._node)
        for topic in self._topics:

            def config(name: str, topic: Topic = topic) -> str:
                if name == "retention.ms" and name not in topic.configs and settings.retention_ms is None:
                    return "-1"
                return topic.config(name, settings)

            if ("compact" in config("cleanup.policy")) is compacted:
                for partition in topic.partitions:
                    yield partition, config


def _latest_due_time(now: int, first_due: int, interval: int) -> int:
    """Return the last due time, at or before `now`, of a task that is due every `interval` ms."""
    return now - (now - first_due) % interval
