"""Reports of requests that keep failing while they are retried without end.

    reports.refused("OffsetCommit", "orders-0 was answered with ...", now, partition, again=False)

Rules:

* Every request that is retried indefinitely reports each failed attempt here; `again` says whether the
  previous attempt failed too. A request kind that stops reporting failures is considered recovered.
* A failure that lasts `FAILURE_REPORT_DELAY_MS` is reported once for all its partitions: request, reason and
  duration. It is reported again after growing intervals while it lasts.
* There is no timer here: each retry that fails calls `refused` again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from kproto.group.subscription import TopicPartition

from .timing import FAILURE_REPORT_DELAY_MS, ReportIntervals


class _Refused(msgspec.Struct, eq=False):
    """A request that keeps failing for one reason.

    `since` has, for each partition (or None), when the failures began and when the last one was.
    """

    since: dict[TopicPartition | None, tuple[int, int]]
    last: int
    gaps: ReportIntervals


class FailureReports:
    """Collects failures and calls `tell(partitions, reason)` for those that last.

    `pause_ms` is the longest interval between two attempts; a failure that is older has ended.
    """

    def __init__(self, tell: Callable[[Iterable[TopicPartition], str], None], pause_ms: int) -> None:
        self._tell = tell
        self._pause = pause_ms
        self._known: dict[tuple[str, str], _Refused] = {}

    def refused(
        self, request: str, why: str, now: int, partition: TopicPartition | None = None, *, again: bool
    ) -> None:
        """Note that an attempt of `request` failed just now and will be repeated."""
        known = self._known.get((request, why))
        if known is None or now - known.last > self._pause:
            self._forget(now)
            known = self._known[request, why] = _Refused({}, now, ReportIntervals())
        known.last = now
        if not again:
            for (name, _), failure in self._known.items():
                if name == request:
                    failure.since.pop(partition, None)  # it has succeeded in between
        since, last = known.since.get(partition, (now, now))
        if not again or now - last > self._pause:
            since = now
        known.since[partition] = since, now
        if now - since >= FAILURE_REPORT_DELAY_MS and known.gaps.is_due(now):
            self._say(request, why, known, now)

    def _say(self, request: str, why: str, known: _Refused, now: int) -> None:
        """Report all partitions that wait for the same request and reason."""
        known.since = {partition: at for partition, at in known.since.items() if now - at[1] <= self._pause}
        late = {
            partition: since
            for partition, (since, _) in known.since.items()
            if now - since >= FAILURE_REPORT_DELAY_MS
        }
        seconds = (now - min(late.values())) // 1000
        partitions = sorted(partition for partition in late if partition is not None)
        self._tell(partitions, f"{request} has been in vain for {seconds} s: {why}; trying again")

    def _forget(self, now: int) -> None:
        self._known = {key: one for key, one in self._known.items() if now - one.last <= self._pause}
