"""When and how metadata is refreshed; Kafka's DefaultMetadataUpdater is the model."""

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
    """Keeps the metadata of the topics of interest fresh: regularly, and soon when somebody misses
    something; less and less soon when the answers don't help (M197). Who has none for long, or is told so,
    begins again at the bootstrap addresses (KIP-1102)."""

    def __init__(
        self, core: ClientCore[Any], changed: Callable[[frozenset[str] | None], None] = lambda asked: None
    ) -> None:
        self._core = core
        self.topics: frozenset[str] = frozenset()
        self.everything = False
        self.complete = False  # everything is wanted, and was told
        # Told after each answer: the topics that were asked for, None for all.
        self.changed = changed
        self._call: Call | None = None
        self._asked: frozenset[str] | None = frozenset()
        self._next_at: int | None = None
        self._last_at = -(10**9)
        # Why nobody answers just now; empty when somebody did last.
        self.trouble = ""
        core.network.on_liveness_check = self.need
        self._away_since, self._gaps, self._told = 0, ReportIntervals(), set[tuple[str, str]]()
        self._fails = 0
        self._vain = 0  # answers in a row that somebody needed, and that told nothing new
        self._needed = False
        self._since = 1 << 62  # when it was asked for the first time
        self._trying_since: int | None = None  # since when it is asked for in vain
        self._found = False  # there was a cluster
        # Topic -> (error code, how many answers in a row said so).
        self.refusals: dict[str, tuple[int, int]] = {}
        # Topics that are asked for on their own, and when; when they were, and how often one had no leader.
        self._single: dict[str, int] = {}
        self._single_at: dict[str, int] = {}
        self._leaderless: dict[str, int] = {}
        self._looks: dict[str, int] = {}  # how often in a row looks at it alone told nothing new
        self._odd: set[str] = set()  # of which something odd was told
        self._whole = True

    def watch(self, topics: frozenset[str], everything: bool = False) -> None:
        """These topics matter from now on; asks at once for a new one."""
        if topics == self.topics and everything == self.everything:
            return
        asleep = self._next_at is None and self._call is None  # nothing mattered: what is known may be old
        # What didn't matter may have changed since it was told, too.
        news = topics - self.topics or topics - self._core.view.topics.keys() or (topics and asleep)
        if (everything and not self.everything) or (not everything and news):
            self._soon(0)
        self.topics = topics
        self.everything = everything
        self.complete = self.complete and everything
        self.refusals = {name: refusal for name, refusal in self.refusals.items() if name in topics}
        if not topics and not everything:
            self._next_at, self._needed = None, False

    def watches(self, topic: str) -> bool:
        return self.everything or topic in self.topics

    def look_up(self, topic: str, *, waits: bool = False) -> None:
        """This topic matters from now on; it alone is asked for, soon, but not too often. `waits`: somebody
        waits for it just now, so that a look that was to come much later comes sooner."""
        if topic not in self.topics:
            self.topics |= {topic}
        if topic in self._single and not waits:
            return
        last = self._single_at.get(topic)
        wait = (
            0 if last is None else last + self._core.backoff.after(self._looks.get(topic, 0)) - self._core.now
        )
        self._look_later(topic, max(0, wait))

    def _look_later(self, topic: str, wait: int) -> None:
        at = self._core.now + wait
        self._single[topic] = min(at, self._single.get(topic, at))

    def forget(self, topic: str) -> None:
        """This topic doesn't matter any more."""
        self.topics -= {topic}
        for known in (self._single, self._single_at, self._leaderless, self._looks, self.refusals):
            known.pop(topic, None)
        self._odd.discard(topic)

    def need(self) -> None:
        """Something is missing (a leader, a partition): ask again, but not too often."""
        if self._needed or self._call is not None:
            self._needed = True
            return
        self._needed = True
        at = self._last_at + self._core.backoff.after(self._vain)
        self._soon(max(0, at - self._core.now))

    def _soon(self, wait: int) -> None:
        at = self._core.now + wait
        self._next_at = at if self._next_at is None else min(self._next_at, at)

    def due(self) -> int | None:
        again_at = self._begins_again_at()
        if self._call is not None:
            return again_at
        times = [at for at in (again_at, self._next_at) if at is not None]
        return min([*times, *self._single.values()], default=None)

    def _begins_again_at(self) -> int | None:
        """When it has been asked for in vain for so long that the known brokers are none any more."""
        options = self._core.options
        if self._trying_since is None or not options.recovers or not self._core.view.brokers:
            return None
        trigger: int = options.metadata_recovery_rebootstrap_trigger_ms
        return self._trying_since + trigger

    def _begin_again(self) -> None:
        """Forgets the brokers, with their connections: who is asked next is at a bootstrap address."""
        self._trying_since = self._core.now
        self._core.view.brokers = {}
        self._core.network.metadata_changed(self._core.now)

    def tick(self) -> None:
        """Time has passed, and the sockets were looked at since: in a process that stood still an answer may
        have waited in one of those that would be given up."""
        again_at = self._begins_again_at()
        if again_at is not None and again_at <= self._core.now:
            self._begin_again()

    def pump(self) -> None:
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
        except BaseException:  # Ctrl-C came first
            self._soon(0)
            raise

    def _answered(self, call: Call) -> None:
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
