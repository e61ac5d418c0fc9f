"""Refreshes the cluster metadata (Java's DefaultMetadataUpdater)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kproto.deadlines import earliest
from kproto.error_codes import ErrorCode, describe
from kproto.errors import ConnectionFailed, RequestTimedOut
from kproto.messages.metadata import MetadataResponse

from ...errors import broker_error
from ..core import ClientCore
from ..error_actions import METADATA, ErrorAction, action_for
from ..failure_reports import describe_topics
from ..network.call import Call, Outcome
from ..requests import metadata_request
from ..timeouts import BOOTSTRAP_REPORT_DELAY_MS, MISSING_TOPIC_BACKOFF_MAX_MS, ReportIntervals
from .cluster import inconsistency, shared_ids

SHARED_ID = "another topic has the same id"


class MetadataUpdater:
    """Refreshes the metadata of the topics that a client uses.

    Metadata is refreshed regularly, and after a short backoff if a leader or a partition is unknown. The
    backoff grows while responses contain nothing new (M197).

    The client rebootstraps, that is, starts again with the bootstrap addresses (KIP-1102), in two cases: no
    broker has returned metadata for `metadata_recovery_rebootstrap_trigger_ms`, or a broker requires a
    rebootstrap.
    """

    def __init__(
        self,
        core: ClientCore[Any],
        on_response: Callable[[frozenset[str] | None], None] = lambda requested: None,
    ) -> None:
        self._core = core
        self.topics: frozenset[str] = frozenset()
        self.everything = False
        self.complete = False  # Whether a response has listed all topics.

        # Called after each response with metadata. The argument is the set of requested topics, or None for
        # all topics.
        self.on_response = on_response
        self._call: Call | None = None
        # The topics of the last request; None for all topics of the cluster.
        self._requested: frozenset[str] | None = frozenset()
        # Whether the last request was the regular refresh of all topics in use. False: it requested single
        # topics that were due before the regular refresh.
        self._is_full_refresh = True
        # When the next refresh is due (ms), and when the last one was sent.
        self._next_refresh_at: int | None = None
        self._last_refresh_at = -(10**9)
        # Why no broker responds; "" if the last request succeeded.
        self.why_unreachable = ""
        # For the reports "unreachable": the time (ms) since which no broker has responded, the intervals
        # between repeated reports, and the reasons (address, error) that were reported.
        self._unreachable_since = 0
        self._report_intervals = ReportIntervals()
        self._reported_reasons: set[tuple[str, str]] = set()
        core.network.on_liveness_check = core.network.on_misrouted = self.need
        self._failures = 0  # Number of consecutive requests without a usable response.
        # Number of consecutive responses that contained nothing new, although `need()` had been called.
        self._unhelpful_responses = 0
        self._needed = False  # Whether `need()` was called since the last response.
        # Time (ms) at which this client sent its first Metadata request; before, a time in the far future.
        self._first_request_at = 1 << 62
        # Time (ms) of the first request after the last success; None if no request has been sent after it.
        self._failing_since: int | None = None
        self._has_responded = False  # Whether a broker has ever responded.

        self.updated_at: int | None = None  # Time (ms) of the last Metadata response with brokers.

        # Topic -> (error code, number of consecutive responses with this code).
        self.topic_errors: dict[str, tuple[int, int]] = {}
        # Topic -> when the next Metadata request outside of the regular refresh is due for it (ms).
        self._topic_requests: dict[str, int] = {}
        # Topic -> when the last Metadata request outside of the regular refresh was sent for it (ms).
        self._topic_requested_at: dict[str, int] = {}
        # Topic -> the number of consecutive responses in which one of its partitions had no leader.
        self._leaderless: dict[str, int] = {}
        # Topic -> number of responses in a row that contained nothing new about the topic.
        self._unhelpful_by_topic: dict[str, int] = {}
        # Topics whose metadata was missing or inconsistent in the last response. A failure of the
        # same topic in the next response is reported as repeated.
        self._inconsistent: set[str] = set()

    def watch(self, topics: frozenset[str], everything: bool = False) -> None:
        """Set the topics whose metadata is kept up to date. Request new topics immediately.

        With `everything`, all topics of the cluster are requested. If `everything` is false and `topics` is
        empty, no request is scheduled.
        """
        if topics == self.topics and everything == self.everything:
            return
        # If no refresh is scheduled and no request is in flight, even the metadata of the topics that were
        # already watched may be outdated.
        is_idle = self._next_refresh_at is None and self._call is None
        # A topic that was not watched may have changed since the last response about it.
        is_outdated = topics - self.topics or topics - self._core.view.topics.keys() or (topics and is_idle)
        if (everything and not self.everything) or (not everything and is_outdated):
            self._refresh_after(0)
        self.topics = topics
        self.everything = everything
        self.complete = self.complete and everything
        self.topic_errors = {
            name: code_and_count for name, code_and_count in self.topic_errors.items() if name in topics
        }
        if not topics and not everything:
            self._next_refresh_at, self._needed = None, False

    def watches(self, topic: str) -> bool:
        """Return whether the topic's metadata is kept up to date."""
        return self.everything or topic in self.topics

    def look_up(self, topic: str, *, has_waiters: bool = False) -> None:
        """Add the topic to the topics whose metadata is kept up to date.

        Until a response describes the topic, the topic is also requested separately from the others, with a
        backoff.

        `has_waiters` means that a producer's send waits for the topic. A request for the topic that is
        already scheduled may then be sent earlier than planned.
        """
        if topic not in self.topics:
            self.topics |= {topic}
        if topic in self._topic_requests and not has_waiters:
            return
        wait_ms = 0
        requested_at = self._topic_requested_at.get(topic)
        if requested_at is not None:
            backoff_ms = self._core.backoff.after(self._unhelpful_by_topic.get(topic, 0))
            wait_ms = max(0, requested_at + backoff_ms - self._core.now)
        self._request_topic_after(topic, wait_ms)

    def _request_topic_after(self, topic: str, wait_ms: int) -> None:
        """Request a topic's metadata, separately from the regular refresh, after `wait_ms`.

        If a request for this topic is already scheduled for an earlier time, the earlier time is kept.
        """
        at = self._core.now + wait_ms
        self._topic_requests[topic] = min(at, self._topic_requests.get(topic, at))

    def forget(self, topic: str) -> None:
        """Stop refreshing a topic."""
        self.topics -= {topic}
        for by_topic in (
            self._topic_requests,
            self._topic_requested_at,
            self._leaderless,
            self._unhelpful_by_topic,
            self.topic_errors,
        ):
            by_topic.pop(topic, None)
        self._inconsistent.discard(topic)

    def need(self) -> None:
        """Refresh the metadata after a backoff, because a leader or a partition is missing.

        A request in flight counts as this refresh.
        """
        if self._needed or self._call is not None:
            self._needed = True
            return
        self._needed = True
        at = self._last_refresh_at + self._core.backoff.after(self._unhelpful_responses)
        self._refresh_after(max(0, at - self._core.now))

    def _refresh_after(self, wait_ms: int) -> None:
        """Schedule a refresh of the metadata of all topics in use after `wait_ms`.

        A refresh that is already scheduled for an earlier time is kept instead.
        """
        at = self._core.now + wait_ms
        self._next_refresh_at = at if self._next_refresh_at is None else min(self._next_refresh_at, at)

    def due(self) -> int | None:
        """Return when (ms) the next request or rebootstrap is due; None if neither is scheduled."""
        rebootstrap_at = self._rebootstrap_at()
        if self._call is not None:
            return rebootstrap_at
        return earliest(rebootstrap_at, self._next_refresh_at, *self._topic_requests.values())

    def _rebootstrap_at(self) -> int | None:
        """Return when (ms) to rebootstrap if no broker responds by then; None without such a deadline."""
        if self._failing_since is None:
            return None
        options = self._core.options
        if not options.recovers or not self._core.view.brokers:
            return None
        trigger: int = options.metadata_recovery_rebootstrap_trigger_ms
        return self._failing_since + trigger

    def _rebootstrap(self) -> None:
        """Forget the brokers and close their connections; the next request goes to a bootstrap address."""
        self._failing_since = self._core.now
        self._core.network.rebootstrap(self._core.now)

    def tick(self) -> None:
        """Rebootstrap if no broker has responded for `metadata_recovery_rebootstrap_trigger_ms`.

        The caller must handle received data before it calls `tick`. After a pause of the process, the
        received data may contain a response, and a rebootstrap is then unnecessary.
        """
        rebootstrap_at = self._rebootstrap_at()
        if rebootstrap_at is not None and rebootstrap_at <= self._core.now:
            self._rebootstrap()

    def pump(self) -> None:
        """Send the regular refresh if it is due, or else request the topics that are due."""
        core = self._core
        if self._call is not None:
            return
        self._is_full_refresh = self._next_refresh_at is not None and self._next_refresh_at <= core.now
        if self._is_full_refresh:
            self._requested = None if self.everything else self.topics
            self._last_refresh_at = core.now
            self._next_refresh_at = None
            self._topic_requests.clear()
        else:
            due_topics = [topic for topic, at in self._topic_requests.items() if at <= core.now]
            self._requested = frozenset(due_topics)
            if not due_topics:
                return
            for topic in self._requested:
                del self._topic_requests[topic]
                self._topic_requested_at[topic] = core.now
        self._first_request_at = min(self._first_request_at, core.now)
        self._failing_since = core.now if self._failing_since is None else self._failing_since
        request = metadata_request(
            self._requested, allow_auto_topic_creation=core.options.allow_auto_create_topics
        )
        try:
            self._call = core.send(request, self._on_response)
        except BaseException:  # Ctrl-C interrupted the send: the request was not sent
            self._refresh_after(0)
            raise

    def _on_response(self, call: Call) -> None:
        """Handle a Metadata response, or the failure of the request."""
        core = self._core
        self._call = None
        response = call.response
        was_needed, self._needed = self._needed, False
        why = self._reject_response(response) if isinstance(response, MetadataResponse) else ""
        if not isinstance(response, MetadataResponse) or why:
            self._needed = was_needed
            self._on_failed_request(call, why)
            return
        self._failures, self._failing_since, self._has_responded = 0, None, True
        self.updated_at = core.now
        if self.why_unreachable:
            seconds = (core.now - self._unreachable_since) // 1000
            core.report("reachable", reason=f"a broker responds again after {seconds} s")
        self.why_unreachable = ""
        changed = core.view.update(
            response, core.now, version=call.version, everything=self._requested is None
        )
        self.complete = self.everything and (self.complete or self._requested is None)
        self._unhelpful_responses = self._unhelpful_responses + 1 if was_needed and not changed else 0
        for topic in self._separate_topics():
            self._unhelpful_by_topic[topic] = 0 if changed else self._unhelpful_by_topic.get(topic, 0) + 1
        core.network.metadata_changed(core.now)
        self._refresh_after(core.options.metadata_max_age_ms)
        if self._is_full_refresh and self._requested is not None:
            # The topics that the client added after it had sent the request.
            added_topics = self.topics - self._requested
            if added_topics - self._topic_requests.keys():
                self._refresh_after(0)
        self._check_topics(response)
        self.on_response(self._requested)

    def _separate_topics(self) -> frozenset[str]:
        """Return the topics of the last request, or no topics if it was a regular refresh."""
        return frozenset() if self._is_full_refresh else self._requested or frozenset()

    def _on_failed_request(self, call: Call, why: str) -> None:
        """Schedule the next attempt, and report why no broker returns metadata.

        `why` says why the response contains no metadata. If there is no response, `why` is "".
        """
        core = self._core
        if self._is_full_refresh:
            self._refresh_after(core.backoff.after(self._failures))
        for topic in self._separate_topics():
            self._request_topic_after(topic, core.backoff.after(self._failures))
        self._failures += 1
        if call.error is None:
            self._report_unreachable(f"{call.address}: {why}")
            return
        reasons = isinstance(call.error, (ConnectionFailed, RequestTimedOut)) and call.error.reasons
        self._report_unreachable(str(call.error), reasons or None)
        # Poll raises the error in two cases: no broker has responded within `BOOTSTRAP_REPORT_DELAY_MS` of
        # the first request, or the request failed for a reason other than a missing response. In the first
        # case, Java's poll raises no error.
        is_late = not self._has_responded and core.now - self._first_request_at >= BOOTSTRAP_REPORT_DELAY_MS
        if is_late or call.outcome is not Outcome.NO_RESPONSE:
            core.queue_error(call.error)

    def _reject_response(self, response: MetadataResponse) -> str:
        """Return why a response contains no metadata, or "" if it contains metadata.

        Rebootstrap if the broker requires it.
        """
        if response.error_code == ErrorCode.REBOOTSTRAP_REQUIRED and self._core.options.recovers:
            self._rebootstrap()
            return describe(response.error_code)
        return "" if response.brokers else "the broker lists no brokers yet"

    def _report_unreachable(self, why: str, reasons: Mapping[str, str] | None = None) -> None:
        """Report that no broker responds, unless the same reasons were reported too recently.

        `why` is the text to report. `reasons` maps each address to its own error; without `reasons`, `why`
        is the only reason. A new reason is reported immediately. Known reasons are reported again at
        increasing intervals.
        """
        core = self._core
        if not self.why_unreachable:
            self._unreachable_since = core.now
            self._report_intervals = ReportIntervals()
            self._reported_reasons = set()
        is_repeat_due = self._report_intervals.advance_if_due(core.now)
        current_reasons = {("", why)} if reasons is None else set(reasons.items())
        if current_reasons - self._reported_reasons:
            self._reported_reasons |= current_reasons
            core.report("unreachable", reason=why)
        elif is_repeat_due:
            core.report(
                "unreachable", reason=f"{why}; for {(core.now - self._unreachable_since) // 1000} s now"
            )
        self.why_unreachable = why

    def _request_again(self, topic: str, wait_ms: int) -> None:
        """Request a topic again after `wait_ms`, because its metadata in a response contains an error."""
        if topic in self._topic_requested_at:
            self._request_topic_after(topic, wait_ms)
        else:
            self._refresh_after(wait_ms)

    def _check_topics(self, response: MetadataResponse) -> None:
        """Handle the errors and inconsistencies of topics in a response."""
        self._report_missing_topics(response)
        shared = shared_ids(response)
        # Error code -> the topics that have this code, and did not have it in the previous response.
        names_by_code: dict[int, list[str]] = {}
        for topic in response.topics:
            name = topic.name
            if name is None or name not in self.topics:
                continue
            if topic.error_code == ErrorCode.NONE:
                self.topic_errors.pop(name, None)
                problem = inconsistency(topic) or (SHARED_ID if topic.topic_id in shared else "")
                has_leaders = not any(entry.leader_id < 0 for entry in topic.partitions)
                self._check_topic(name, problem, has_leaders)
            elif self._on_topic_error(name, topic.error_code) == 1:
                names_by_code.setdefault(topic.error_code, []).append(name)
        for code, names in names_by_code.items():
            if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                verb = "does" if len(names) == 1 else "do"
                self._core.report("missing", reason=f"{describe_topics(names)} {verb} not exist (yet)")
            elif action_for(METADATA, code) is ErrorAction.RAISE:
                self._core.queue_error(broker_error(code, "Metadata", describe_topics(names)))

    def _report_missing_topics(self, response: MetadataResponse) -> None:
        """Report the requested topics that the response does not contain, and request them again."""
        core = self._core
        missing = (self._requested or frozenset()) & self.topics - {topic.name for topic in response.topics}
        for name in sorted(missing):
            repeated = name in self._inconsistent
            core.report_failure("Metadata", "missing from the response", name, repeated=repeated)
            self._inconsistent.add(name)
            if self._is_full_refresh:
                self.need()
            else:
                self._request_topic_after(name, core.backoff.after(self._unhelpful_by_topic.get(name, 0)))

    def _check_topic(self, name: str, problem: str, has_leaders: bool) -> None:
        """Request a topic again if its metadata is inconsistent or a partition has no leader.

        `problem` describes the inconsistency. It is "" if the metadata is consistent.
        """
        core = self._core
        if problem:
            core.report_failure("Metadata", problem, name, repeated=name in self._inconsistent)
            self._inconsistent.add(name)
        else:
            self._inconsistent.discard(name)
        if not problem and has_leaders:
            self._leaderless.pop(name, None)
        elif name in self._topic_requested_at:
            count = self._leaderless[name] = self._leaderless.get(name, 0) + 1
            self._request_topic_after(name, core.backoff.after(count - 1))
        else:
            self.need()

    def _on_topic_error(self, name: str, code: int) -> int:
        """Request a topic with an error again, after a backoff.

        A retriable error is reported, except UNKNOWN_TOPIC_OR_PARTITION. Returns the number of consecutive
        responses with this error code.
        """
        core = self._core
        last_code, count = self.topic_errors.get(name, (0, 0))
        count = count + 1 if last_code == code else 1
        self.topic_errors[name] = (code, count)
        backoff_ms = core.options.retry_backoff_ms << min(count - 1, 16)
        self._request_again(name, core.backoff.spread(min(MISSING_TOPIC_BACKOFF_MAX_MS, backoff_ms)))
        is_retriable = action_for(METADATA, code) is not ErrorAction.RAISE
        if is_retriable and code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            core.report_failure("Metadata", describe(code), name, repeated=count > 1)
        return count
