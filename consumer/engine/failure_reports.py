"""Reports of requests that keep failing and are retried indefinitely.

    reports.add_failure("OffsetCommit", "orders-0 was answered with ...", now, partition, repeated=False)

Rules:

* If a request is retried indefinitely, its sender calls `add_failure` for each failed attempt. `repeated`
  says whether the previous attempt failed as well.

* A failure counts as ended if it does not occur again within the retry interval.

* A failure that lasts `FAILURE_REPORT_DELAY_MS` is reported once for all its partitions and topics. The
  report contains the request, the reason and the duration.

* While the failure lasts, the report is repeated at increasing intervals.

* A report needs no timer, because each retry that fails calls `add_failure` again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import msgspec

from kproto.errors import brief, brief_list
from kproto.group.subscription import TopicPartition

from .timeouts import FAILURE_REPORT_DELAY_MS, ReportIntervals


class _Failure(msgspec.Struct, eq=False):
    """A request that keeps failing for the same reason.

    `since` maps a failing partition or topic to the times (ms) of its first and last failure. The key is None
    for a request without a partition or topic.
    """

    since: dict[TopicPartition | str | None, tuple[int, int]]
    last: int
    intervals: ReportIntervals


class FailureReports:
    """Collects failures, and calls `send_report(partitions, reason)` for those that persist.

    `pause_ms` is the longest interval between two attempts. A failure counts as ended if no attempt has
    failed during this interval.
    """

    def __init__(self, send_report: Callable[[Iterable[TopicPartition], str], None], pause_ms: int) -> None:
        self._send_report = send_report
        self._pause_ms = pause_ms
        self._failures: dict[tuple[str, str], _Failure] = {}

    def add_failure(
        self,
        request: str,
        why: str,
        now: int,
        subject: TopicPartition | str | None = None,
        *,
        repeated: bool,
    ) -> None:
        """Record a failed attempt of `request` that will be retried."""
        failure = self._failures.get((request, why))
        if failure is None or now - failure.last > self._pause_ms:
            self._forget(now)
            failure = self._failures[request, why] = _Failure({}, now, ReportIntervals())
        failure.last = now
        if not repeated:
            for (name, _), earlier_failure in self._failures.items():
                if name == request:
                    # The previous attempt for `subject` succeeded, so its earlier failures have ended.
                    earlier_failure.since.pop(subject, None)
        since, last = failure.since.get(subject, (now, now))
        if not repeated or now - last > self._pause_ms:
            since = now
        failure.since[subject] = since, now
        if now - since >= FAILURE_REPORT_DELAY_MS and failure.intervals.is_due(now):
            self._report(request, why, failure, now)

    def current_failure(self, request: str, subject: TopicPartition | str | None, now: int) -> str | None:
        """Return why `request` keeps failing for a partition or topic; None if it is not failing."""
        for (name, why), failure in self._failures.items():
            if name == request and subject in failure.since:
                _, last = failure.since[subject]
                if now - last <= self._pause_ms:
                    return why
        return None

    def _report(self, request: str, why: str, failure: _Failure, now: int) -> None:
        """Report the partitions and topics for which `request` keeps failing for this reason."""
        failure.since = {
            subject: at for subject, at in failure.since.items() if now - at[1] <= self._pause_ms
        }
        late = {
            subject: since
            for subject, (since, _) in failure.since.items()
            if now - since >= FAILURE_REPORT_DELAY_MS
        }
        seconds = (now - min(late.values())) // 1000
        partitions = sorted(subject for subject in late if isinstance(subject, TopicPartition))
        topics = sorted(subject for subject in late if isinstance(subject, str))
        about = f"{describe_topics(topics)}: " if topics else ""
        self._send_report(partitions, f"{request} has failed for {seconds} s: {about}{why}; retrying")

    def _forget(self, now: int) -> None:
        self._failures = {
            key: key_failure
            for key, key_failure in self._failures.items()
            if now - key_failure.last <= self._pause_ms
        }


def describe_topics(names: Sequence[str]) -> str:
    """Return "topic 'a'", or "topics 'a', 'b' and 12 more"."""
    return f"topic{'s' if len(names) > 1 else ''} {brief_list([brief(name) for name in names])}"
