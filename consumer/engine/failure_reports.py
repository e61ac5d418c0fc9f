"""Reports of requests that keep failing and are retried indefinitely.

    reports.add_failure("OffsetCommit", "orders-0 was answered with ...", now, partition, repeated=False)

Rules:

* If a request is retried indefinitely, its sender calls `add_failure` for each failed attempt. `repeated`
  says whether the previous attempt also failed.

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

    `first_and_last` maps a failing partition or topic to the times (ms) of its first and last failure. The
    key is None for a request without a partition or topic.

    `last` is the time (ms) of the last failure of any partition or topic.
    """

    first_and_last: dict[TopicPartition | str | None, tuple[int, int]]
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
        # (request, reason) -> the record of the attempts that failed for this reason.
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
        """Record a failed attempt of `request` that will be retried. Send a report if one is due.

        `repeated` says whether the previous attempt for `subject`, a partition or topic, also failed.
        """
        failure = self._failures.get((request, why))
        if failure is None or now - failure.last > self._pause_ms:
            self._remove_ended_failures(now)
            failure = self._failures[request, why] = _Failure({}, now, ReportIntervals())
        failure.last = now
        if not repeated:
            for (name, _), earlier_failure in self._failures.items():
                if name == request:
                    # The previous attempt for `subject` succeeded, so the earlier failures of `subject` have
                    # ended.
                    earlier_failure.first_and_last.pop(subject, None)
        first, last = failure.first_and_last.get(subject, (now, now))
        if not repeated or now - last > self._pause_ms:
            first = now
        failure.first_and_last[subject] = first, now
        if now - first >= FAILURE_REPORT_DELAY_MS and failure.intervals.advance_if_due(now):
            self._report(request, why, failure, now)

    def current_failure(self, request: str, subject: TopicPartition | str | None, now: int) -> str | None:
        """Return why `request` keeps failing for a partition or topic; None if it is not failing."""
        for (name, why), failure in self._failures.items():
            if name == request and subject in failure.first_and_last:
                _, last = failure.first_and_last[subject]
                if now - last <= self._pause_ms:
                    return why
        return None

    def _report(self, request: str, why: str, failure: _Failure, now: int) -> None:
        """Forget the subjects that no longer fail with this reason, and report those that keep failing."""
        failure.first_and_last = {
            subject: (first, last)
            for subject, (first, last) in failure.first_and_last.items()
            if now - last <= self._pause_ms
        }
        first_failures = {
            subject: first
            for subject, (first, _) in failure.first_and_last.items()
            if now - first >= FAILURE_REPORT_DELAY_MS
        }
        seconds = (now - min(first_failures.values())) // 1000
        partitions = sorted(subject for subject in first_failures if isinstance(subject, TopicPartition))
        topics = sorted(subject for subject in first_failures if isinstance(subject, str))
        topic_prefix = f"{describe_topics(topics)}: " if topics else ""
        self._send_report(partitions, f"{request} has failed for {seconds} s: {topic_prefix}{why}; retrying")

    def _remove_ended_failures(self, now: int) -> None:
        """Forget the failures that did not occur again within the retry interval."""
        self._failures = {
            request_and_reason: failure
            for request_and_reason, failure in self._failures.items()
            if now - failure.last <= self._pause_ms
        }


def describe_topics(names: Sequence[str]) -> str:
    """Return "topic 'a'", or "topics 'a', 'b' and 12 more"."""
    return f"topic{'s' if len(names) > 1 else ''} {brief_list([brief(name) for name in names])}"
