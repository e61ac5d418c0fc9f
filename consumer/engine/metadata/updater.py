"""When and how metadata is refreshed. The model is Java's DefaultMetadataUpdater."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kproto.error_codes import ErrorCode, describe
from kproto.errors import ConnectionFailed, RequestTimedOut
from kproto.messages.metadata import MetadataResponse

from ...errors import broker_error
from ..core import ClientCore
from ..error_actions import METADATA, ErrorAction, action_for
from ..network.connection import Call, Outcome
from ..requests import metadata_request
from ..timing import BOOTSTRAP_REPORT_DELAY_MS, MISSING_TOPIC_BACKOFF_MAX_MS, ReportIntervals
from .cluster import oddity, shared_ids

SHARED = "its id is told of another topic, too"


class MetadataUpdater:
    """Refreshes the metadata of the topics that a client uses.

    It refreshes regularly, and soon if something is missing; less often while the responses do not help
    (M197). After a long time without metadata, or if a broker asks for it, the client starts again with the
    bootstrap addresses (KIP-1102).
    """

    def __init__(
        self, core: ClientCore[Any], changed: Callable[[frozenset[str] | None], None] = lambda asked: None
    ) -> None:
        self._core = core
        self.topics: frozenset[str] = frozenset()
        self.everything = False
        self.complete = False  # all topics are wanted, and a response has listed them
        # Called after each response with the requested topics, None for all.
        self.changed = changed
        self._call: Call | None = None
        self._asked: frozenset[str] | None = frozenset()
        self._next_at: int | None = None
        self._last_at = -(10**9)
        # Why no broker responds; empty if the last request succeeded.
        self.trouble = ""
        core.network.on_liveness_check = self.need
        self._away_since, self._gaps, self._told = 0, ReportIntervals(), set[tuple[str, str]]()
        self._fails = 0
        self._vain = 0  # responses in a row that were needed and contained nothing new
        self._needed = False
        self._since = 1 << 62  # time of the first request
        # time of the first request without a response since the last success
        self._trying_since: int | None = None
        self._found = False  # a broker has responded before
        # Topic -> (error code, number of responses in a row with it).
        self.refusals: dict[str, tuple[int, int]] = {}
        # Topics to be requested on their own, and when; when they last were; how often a partition had no
        # leader.
        self._single: dict[str, int] = {}
        self._single_at: dict[str, int] = {}
        self._leaderless: dict[str, int] = {}
        self._looks: dict[str, int] = {}  # requests in a row for the topic alone that returned nothing new
        self._odd: set[str] = set()  # topics with an inconsistent description
        self._whole = True

    def watch(self, topics: frozenset[str], everything: bool = False) -> None:
        """Set the topics to keep fresh; request new ones at once."""
        if topics == self.topics and everything == self.everything:
            return
        # metadata was not refreshed, and may be outdated
        asleep = self._next_at is None and self._call is None
        # A topic that was not watched may have changed since its last response.
        is_outdated = topics - self.topics or topics - self._core.view.topics.keys() or (topics and asleep)
        if (everything and not self.everything) or (not everything and is_outdated):
            self._soon(0)
        self.topics = topics
        self.everything = everything
        self.complete = self.complete and everything
        self.refusals = {name: refusal for name, refusal in self.refusals.items() if name in topics}
        if not topics and not everything:
            self._next_at, self._needed = None, False

    def watches(self, topic: str) -> bool:
        """Return whether the topic is kept fresh."""
        return self.everything or topic in self.topics

    def look_up(self, topic: str, *, has_waiters: bool = False) -> None:
        """Keep the topic fresh as well, and request it alone, with a backoff between requests.

        `waits`: a sender waits for it, so a delayed request comes sooner.
        """
        if topic not in self.topics:
            self.topics |= {topic}
        if topic in self._single and not has_waiters:
            return
        last = self._single_at.get(topic)
        wait = (
            0 if last is None else last + self._core.backoff.after(self._looks.get(topic, 0)) - self._core.now
        )
        self._look_later(topic, max(0, wait))

    def _look_later(self, topic: str, wait: int) -> None:
        """Request a topic alone after `wait` ms."""
        at = self._core.now + wait
        self._single[topic] = min(at, self._single.get(topic, at))

    def forget(self, topic: str) -> None:
        """Stop refreshing a topic."""
        self.topics -= {topic}
        for topics in (self._single, self._single_at, self._leaderless, self._looks, self.refusals):
            topics.pop(topic, None)
        self._odd.discard(topic)

    def need(self) -> None:
        """Refresh soon, with a backoff: a leader or a partition is missing."""
        if self._needed or self._call is not None:
            self._needed = True
            return
        self._needed = True
        at = self._last_at + self._core.backoff.after(self._vain)
        self._soon(max(0, at - self._core.now))

    def _soon(self, wait: int) -> None:
        """Refresh all topics after `wait` ms."""
        at = self._core.now + wait
        self._next_at = at if self._next_at is None else min(self._next_at, at)

    def due(self) -> int | None:
        """Return when the next request, or the restart at the bootstrap addresses, is due."""
        rebootstrap_at = self._begins_again_at()
        if self._call is not None:
            return rebootstrap_at
        times = [at for at in (rebootstrap_at, self._next_at) if at is not None]
        return min([*times, *self._single.values()], default=None)

    def _begins_again_at(self) -> int | None:
        """Return when to start again with the bootstrap addresses, as no known broker has responded."""
        options = self._core.options
        if self._trying_since is None or not options.recovers or not self._core.view.brokers:
            return None
        trigger: int = options.metadata_recovery_rebootstrap_trigger_ms
        return self._trying_since + trigger

    def _begin_again(self) -> None:
        """Forget the brokers and close their connections; the next request goes to a bootstrap address."""
        self._trying_since = self._core.now
        self._core.view.brokers = {}
        self._core.network.metadata_changed(self._core.now)

    def tick(self) -> None:
        """Start again with the bootstrap addresses if that is due.

        Called after received data was handled: in a process that stood still, a response may have been
        waiting.
        """
        rebootstrap_at = self._begins_again_at()
        if rebootstrap_at is not None and rebootstrap_at <= self._core.now:
            self._begin_again()

    def pump(self) -> None:
        """Send a request if one is due."""
        core = self._core
        if self._call is not None:
            return
        self._whole = self._next_at is not None and self._next_at <= core.now
        if self._whole:
            self._asked = None if self.everything else self.topics
            self._last_at = core.now
            self._next_at = None
            self._single.clear()
        else:
            self._asked = frozenset(topic for topic, at in self._single.items() if at <= core.now)
            if not self._asked:
                return
            for topic in self._asked:
                del self._single[topic]
                self._single_at[topic] = core.now
        self._since = min(self._since, core.now)
        self._trying_since = core.now if self._trying_since is None else self._trying_since
        request = metadata_request(
            self._asked, allow_auto_topic_creation=core.options.allow_auto_create_topics
        )
        try:
            self._call = core.send(request, self._answered)
        except BaseException:  # Ctrl-C came before the request was sent
            self._soon(0)
            raise

    def _answered(self, call: Call) -> None:
        """Handle a Metadata response, or its failure."""
        core = self._core
        self._call = None
        response = call.response
        needed, self._needed = self._needed, False
        why = self._none_of_it(response) if isinstance(response, MetadataResponse) else ""
        if not isinstance(response, MetadataResponse) or why:
            if self._whole:
                self._soon(core.backoff.after(self._fails))
            for topic in () if self._whole else self._asked or ():
                self._look_later(topic, core.backoff.after(self._fails))
            self._fails += 1
            self._needed = needed
            if call.error is None:
                self._away(f"{call.address}: {why}")
                return
            several = isinstance(call.error, (ConnectionFailed, RequestTimedOut)) and call.error.reasons
            self._away(str(call.error), several or None)
            # Java would wait for ever; a cluster that was there before is waited for here too.
            late = not self._found and core.now - self._since >= BOOTSTRAP_REPORT_DELAY_MS
            if late or call.outcome is not Outcome.NO_RESPONSE:
                core.queue_error(call.error)
            return
        self._fails, self._trying_since, self._found = 0, None, True
        if self.trouble:
            away = (core.now - self._away_since) // 1000
            core.report("reachable", reason=f"a broker answers again, after {away} s")
        self.trouble = ""
        news = core.view.update(response, core.now, version=call.version, everything=self._asked is None)
        self.complete = self.everything and (self.complete or self._asked is None)
        self._vain = self._vain + 1 if needed and not news else 0
        for topic in () if self._whole else self._asked or ():
            self._looks[topic] = 0 if news else self._looks.get(topic, 0) + 1
        core.network.metadata_changed(core.now)
        self._soon(core.options.metadata_max_age_ms)
        if self._whole and self._asked is not None and self.topics - self._asked - self._single.keys():
            self._soon(0)
        self._look_at_errors(response)
        self.changed(self._asked)

    def _none_of_it(self, response: MetadataResponse) -> str:
        """Why an answer is none; "" for one that is."""
        if response.error_code == ErrorCode.REBOOTSTRAP_REQUIRED and self._core.options.recovers:
            self._begin_again()
            return describe(response.error_code)
        return "" if response.brokers else "the broker knows of no broker yet"

    def _away(self, why: str, reasons: Mapping[str, str] | None = None) -> None:
        """Tells that nobody answers, and each address's reason once: they take turns, as the addresses do.
        Then again after growing gaps only."""
        core = self._core
        if not self.trouble:
            self._away_since, self._gaps, self._told = core.now, ReportIntervals(), set[tuple[str, str]]()
        late = self._gaps.is_due(core.now)
        said = {("", why)} if reasons is None else set(reasons.items())
        if said - self._told:
            self._told |= said
            core.report("unreachable", reason=why)
        elif late:
            core.report("unreachable", reason=f"{why}; for {(core.now - self._away_since) // 1000} s now")
        self.trouble = why

    def _again(self, topic: str, wait: int) -> None:
        """Something is wrong with a topic: look at it again."""
        if topic in self._single_at:
            self._look_later(topic, wait)
        else:
            self._soon(wait)

    def _look_at_errors(self, response: MetadataResponse) -> None:
        core = self._core
        left_out = (self._asked or frozenset()) & self.topics - {topic.name for topic in response.topics}
        for unsaid in sorted(left_out):
            core.report_failure(
                "Metadata", f"topic {unsaid!r}: the answer leaves it out", again=unsaid in self._odd
            )
            self._odd.add(unsaid)
            if self._whole:
                self.need()
            else:
                self._look_later(unsaid, core.backoff.after(self._looks.get(unsaid, 0)))
        shared = shared_ids(response)
        for topic in response.topics:
            name = topic.name
            if name is None or name not in self.topics:
                continue
            code = topic.error_code
            if code == ErrorCode.NONE:
                self.refusals.pop(name, None)
                odd = oddity(topic) or (SHARED if topic.topic_id in shared else "")
                if odd:
                    core.report_failure("Metadata", f"topic {name!r}: {odd}", again=name in self._odd)
                    self._odd.add(name)
                else:
                    self._odd.discard(name)
                if not odd and not any(entry.leader_id < 0 for entry in topic.partitions):
                    self._leaderless.pop(name, None)
                elif name in self._single_at:
                    looks = self._leaderless[name] = self._leaderless.get(name, 0) + 1
                    self._look_later(name, core.backoff.after(looks - 1))
                else:
                    self.need()
                continue
            before, looks = self.refusals.get(name, (0, 0))
            looks = looks + 1 if before == code else 1
            self.refusals[name] = (code, looks)
            doubled = core.options.retry_backoff_ms << min(looks - 1, 16)
            self._again(name, core.backoff.spread(min(MISSING_TOPIC_BACKOFF_MAX_MS, doubled)))
            do = action_for(METADATA, code)
            if do is not ErrorAction.RAISE and code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                core.report_failure("Metadata", f"topic {name!r}: {describe(code)}", again=looks > 1)
            if looks > 1:
                continue
            if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                core.report("missing", reason=f"topic {name!r} doesn't exist (yet)")
            elif do is ErrorAction.RAISE:
                core.queue_error(broker_error(code, "Metadata", f"topic {name!r}"))
