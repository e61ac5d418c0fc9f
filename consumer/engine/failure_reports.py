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
    """One request that is in vain for one reason: since when and when last, for each partition (or None)."""

    since: dict[TopicPartition | None, tuple[int, int]]
    last: int
    gaps: ReportIntervals


class FailureReports:
    """`tell(partitions, reason)` is called when something has been refused for long. `pause_ms`: no request
    that is tried again stays away for longer."""

    def __init__(self, tell: Callable[[Iterable[TopicPartition], str], None], pause_ms: int) -> None:
        self._tell = tell
        self._pause = pause_ms
        self._known: dict[tuple[str, str], _Refused] = {}

    def refused(
        self, request: str, why: str, now: int, partition: TopicPartition | None = None, *, again: bool
    ) -> None:
        """This was in vain just now, and is tried again."""
        known = self._known.get((request, why))
        if known is None or now - known.last > self._pause:
            self._forget(now)
            known = self._known[request, why] = _Refused({}, now, ReportIntervals())
        known.last = now
        if not again:
            for (name, _), one in self._known.items():
                if name == request:
                    one.since.pop(partition, None)  # it succeeded since
        since, last = known.since.get(partition, (now, now))
        if not again or now - last > self._pause:
            since = now
        known.since[partition] = since, now
        if now - since >= FAILURE_REPORT_DELAY_MS and known.gaps.is_due(now):
            self._say(request, why, known, now)

    def _say(self, request: str, why: str, known: _Refused, now: int) -> None:
        """One report for all partitions that wait for the same."""
        known.since = {one: at for one, at in known.since.items() if now - at[1] <= self._pause}
        late = {
            one: since for one, (since, _) in known.since.items() if now - since >= FAILURE_REPORT_DELAY_MS
        }
        seconds = (now - min(late.values())) // 1000
        partitions = sorted(one for one in late if one is not None)
        self._tell(partitions, f"{request} has been in vain for {seconds} s: {why}; trying again")

    def _forget(self, now: int) -> None:
        self._known = {key: one for key, one in self._known.items() if now - one.last <= self._pause}
