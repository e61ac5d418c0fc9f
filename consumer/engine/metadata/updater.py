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

    If no broker has returned metadata for `metadata_recovery_rebootstrap_trigger_ms`, or if a broker requires
    it, the client rebootstraps: it starts again with the bootstrap addresses (KIP-1102).
    """

    def __init__(
        self, core: ClientCore[Any], changed: Callable[[frozenset[str] | None], None] = lambda requested: None
    ) -> None:
        self._core = core
        self.topics: frozenset[str] = frozenset()
        self.everything = False
        self.complete = False  # Whether a response has listed all topics.

        # Called after each response. The argument is the set of requested topics, or None for all topics.
        self.changed = changed
        self._call: Call | None = None
        self._requested: frozenset[str] | None = frozenset()
        self._next_at: int | None = None
        self._last_at = -(10**9)
        # Why no broker responds; "" if the last request succeeded.
        self.trouble = ""
        core.network.on_liveness_check = core.network.on_misrouted = self.need
        self._unreachable_since, self._intervals, self._reported = (
            0,
            ReportIntervals(),
            set[tuple[str, str]](),
        )
        self._failures = 0
        # Number of consecutive responses that contained nothing new, although `need()` had been called before
        # the request.
        self._unhelpful = 0
        self._needed = False
        self._first_request_at = 1 << 62  # Time (ms) of the first request.
        # Time (ms) of the first request since the last success; None if none has been sent.
        self._failing_since: int | None = None
        self._has_responded = False  # Whether a broker has ever responded.

        self.updated_at: int | None = None  # Time (ms) of the last Metadata response with brokers.

        # Topic -> (error code, number of consecutive responses with this code).
        self.topic_errors: dict[str, tuple[int, int]] = {}
        # Topic -> when its next separate request, outside of the regular refresh, is due (ms).
        self._topic_requests: dict[str, int] = {}
        # Topic -> when its last separate request was sent (ms).
        self._topic_requested_at: dict[str, int] = {}
        # Topic -> the number of consecutive responses in which one of its partitions had no leader.
        self._leaderless: dict[str, int] = {}
        # Topic -> number of responses in a row that contained nothing new about the topic.
        self._unhelpful_by_topic: dict[str, int] = {}
        # Topics whose metadata was missing or inconsistent in the last response. A failure of the
        # same topic in the next response is reported as repeated.
        self._inconsistent: set[str] = set()
        self._requests_all = True

    def watch(self, topics: frozenset[str], everything: bool = False) -> None:
        """Set the topics whose metadata is kept up to date. Request new topics immediately."""
        if topics == self.topics and everything == self.everything:
            return
        # If no refresh is scheduled and no request is in flight, even the metadata of topics that were
        # already watched may be outdated.
        asleep = self._next_at is None and self._call is None
        # A topic that was not watched may have changed since the last response about it.
        is_outdated = topics - self.topics or topics - self._core.view.topics.keys() or (topics and asleep)
        if (everything and not self.everything) or (not everything and is_outdated):
            self._refresh_after(0)
        self.topics = topics
        self.everything = everything
        self.complete = self.complete and everything
        self.topic_errors = {name: refusal for name, refusal in self.topic_errors.items() if name in topics}
        if not topics and not everything:
            self._next_at, self._needed = None, False

    def watches(self, topic: str) -> bool:
        """Return whether the topic's metadata is kept up to date."""
        return self.everything or topic in self.topics

    def look_up(self, topic: str, *, has_waiters: bool = False) -> None:
        """Add the topic to those whose metadata is kept up to date.

        Until a response describes the topic, it is also requested separately from the other topics, with a
        backoff.

        `has_waiters` means that a producer's send waits for the topic. A scheduled request for the topic may
        then be sent earlier.
        """
        if topic not in self.topics:
            self.topics |= {topic}
        if topic in self._topic_requests and not has_waiters:
            return
        last = self._topic_requested_at.get(topic)
        wait = (
            0
            if last is None
            else last + self._core.backoff.after(self._unhelpful_by_topic.get(topic, 0)) - self._core.now
        )
        self._request_topic_after(topic, max(0, wait))

    def _request_topic_after(self, topic: str, wait: int) -> None:
        """Request a topic's metadata, separately from the regular refresh, after `wait` ms."""
        at = self._core.now + wait
        self._topic_requests[topic] = min(at, self._topic_requests.get(topic, at))

    def forget(self, topic: str) -> None:
        """Stop refreshing a topic."""
        self.topics -= {topic}
        for topics in (
            self._topic_requests,
            self._topic_requested_at,
            self._leaderless,
            self._unhelpful_by_topic,
            self.topic_errors,
        ):
            topics.pop(topic, None)
        self._inconsistent.discard(topic)

    def need(self) -> None:
        """Refresh the metadata after a backoff, because a leader or a partition is missing."""
        if self._needed or self._call is not None:
            self._needed = True
            return
        self._needed = True
        at = self._last_at + self._core.backoff.after(self._unhelpful)
        self._refresh_after(max(0, at - self._core.now))

    def _refresh_after(self, wait: int) -> None:
        """Refresh all topics in use after `wait` ms, or at the scheduled time if that is earlier."""
        at = self._core.now + wait
        self._next_at = at if self._next_at is None else min(self._next_at, at)

    def due(self) -> int | None:
        """Return when (ms) the next request or rebootstrap is due; None if neither is scheduled."""
        rebootstrap_at = self._rebootstrap_at()
        if self._call is not None:
            return rebootstrap_at
        return earliest(rebootstrap_at, self._next_at, *self._topic_requests.values())

    def _rebootstrap_at(self) -> int | None:
        """Return when (ms) to rebootstrap if no broker responds, or None."""
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
        """Send a Metadata request if one is due."""
        core = self._core
        if self._call is not None:
            return
        self._requests_all = self._next_at is not None and self._next_at <= core.now
        if self._requests_all:
            self._requested = None if self.everything else self.topics
            self._last_at = core.now
            self._next_at = None
            self._topic_requests.clear()
        else:
            due = [topic for topic, at in self._topic_requests.items() if at <= core.now]
            self._requested = frozenset(due)
            if not due:
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
        why = self._missing_metadata(response) if isinstance(response, MetadataResponse) else ""
        if not isinstance(response, MetadataResponse) or why:
            if self._requests_all:
                self._refresh_after(core.backoff.after(self._failures))
            for topic in () if self._requests_all else self._requested or ():
                self._request_topic_after(topic, core.backoff.after(self._failures))
            self._failures += 1
            self._needed = was_needed
            if call.error is None:
                self._report_unreachable(f"{call.address}: {why}")
                return
            reasons = isinstance(call.error, (ConnectionFailed, RequestTimedOut)) and call.error.reasons
            self._report_unreachable(str(call.error), reasons or None)
            # Poll raises the error if no broker has responded in the first `BOOTSTRAP_REPORT_DELAY_MS`
            # (Java's poll raises none), or if the request failed for a reason other than a missing response.
            late = not self._has_responded and core.now - self._first_request_at >= BOOTSTRAP_REPORT_DELAY_MS
            if late or call.outcome is not Outcome.NO_RESPONSE:
                core.queue_error(call.error)
            return
        self._failures, self._failing_since, self._has_responded = 0, None, True
        self.updated_at = core.now
        if self.trouble:
            seconds = (core.now - self._unreachable_since) // 1000
            core.report("reachable", reason=f"a broker responds again after {seconds} s")
        self.trouble = ""
        changed = core.view.update(
            response, core.now, version=call.version, everything=self._requested is None
        )
        self.complete = self.everything and (self.complete or self._requested is None)
        self._unhelpful = self._unhelpful + 1 if was_needed and not changed else 0
        for topic in () if self._requests_all else self._requested or ():
            self._unhelpful_by_topic[topic] = 0 if changed else self._unhelpful_by_topic.get(topic, 0) + 1
        core.network.metadata_changed(core.now)
        self._refresh_after(core.options.metadata_max_age_ms)
        if (
            self._requests_all
            and self._requested is not None
            and self.topics - self._requested - self._topic_requests.keys()
        ):
            self._refresh_after(0)
        self._check_topics(response)
        self.changed(self._requested)

    def _missing_metadata(self, response: MetadataResponse) -> str:
        """Return why a response contains no metadata; "" if it contains metadata."""
        if response.error_code == ErrorCode.REBOOTSTRAP_REQUIRED and self._core.options.recovers:
            self._rebootstrap()
            return describe(response.error_code)
        return "" if response.brokers else "the broker lists no brokers yet"

    def _report_unreachable(self, why: str, reasons: Mapping[str, str] | None = None) -> None:
        """Report that no broker responds, unless the last report of the same reasons is too recent.

        `why` is the text to report. `reasons` maps each address to its own error; without it, `why` is the
        only reason. A new reason is reported immediately. Known reasons are reported again at increasing
        intervals.
        """
        core = self._core
        if not self.trouble:
            self._unreachable_since, self._intervals, self._reported = (
                core.now,
                ReportIntervals(),
                set[tuple[str, str]](),
            )
        late = self._intervals.advance_if_due(core.now)
        items = {("", why)} if reasons is None else set(reasons.items())
        if items - self._reported:
            self._reported |= items
            core.report("unreachable", reason=why)
        elif late:
            core.report(
                "unreachable", reason=f"{why}; for {(core.now - self._unreachable_since) // 1000} s now"
            )
        self.trouble = why

    def _request_again(self, topic: str, wait: int) -> None:
        """Request a topic again after `wait` ms, because its metadata in a response contains an error."""
        if topic in self._topic_requested_at:
            self._request_topic_after(topic, wait)
        else:
            self._refresh_after(wait)

    def _check_topics(self, response: MetadataResponse) -> None:
        """Handle the errors and inconsistencies of topics in a response."""
        core = self._core
        missing = (self._requested or frozenset()) & self.topics - {topic.name for topic in response.topics}
        for topic_name in sorted(missing):
            core.report_failure(
                "Metadata",
                "missing from the response",
                topic_name,
                repeated=topic_name in self._inconsistent,
            )
            self._inconsistent.add(topic_name)
            if self._requests_all:
                self.need()
            else:
                self._request_topic_after(
                    topic_name, core.backoff.after(self._unhelpful_by_topic.get(topic_name, 0))
                )
        shared = shared_ids(response)
        # Error code -> the topics that have this code, and did not have it in the previous response.
        names_by_code: dict[int, list[str]] = {}
        for topic in response.topics:
            name = topic.name
            if name is None or name not in self.topics:
                continue
            code = topic.error_code
            if code == ErrorCode.NONE:
                self.topic_errors.pop(name, None)
                problem = inconsistency(topic) or (SHARED_ID if topic.topic_id in shared else "")
                if problem:
                    core.report_failure("Metadata", problem, name, repeated=name in self._inconsistent)
                    self._inconsistent.add(name)
                else:
                    self._inconsistent.discard(name)
                if not problem and not any(entry.leader_id < 0 for entry in topic.partitions):
                    self._leaderless.pop(name, None)
                elif name in self._topic_requested_at:
                    count = self._leaderless[name] = self._leaderless.get(name, 0) + 1
                    self._request_topic_after(name, core.backoff.after(count - 1))
                else:
                    self.need()
                continue
            last_code, count = self.topic_errors.get(name, (0, 0))
            count = count + 1 if last_code == code else 1
            self.topic_errors[name] = (code, count)
            backoff_ms = core.options.retry_backoff_ms << min(count - 1, 16)
            self._request_again(name, core.backoff.spread(min(MISSING_TOPIC_BACKOFF_MAX_MS, backoff_ms)))
            if (
                action_for(METADATA, code) is not ErrorAction.RAISE
                and code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            ):
                core.report_failure("Metadata", describe(code), name, repeated=count > 1)
            if count == 1:
                names_by_code.setdefault(code, []).append(name)
        for code, names in names_by_code.items():
            if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                verb = "does" if len(names) == 1 else "do"
                core.report("missing", reason=f"{describe_topics(names)} {verb} not exist (yet)")
            elif action_for(METADATA, code) is ErrorAction.RAISE:
                core.queue_error(broker_error(code, "Metadata", describe_topics(names)))
