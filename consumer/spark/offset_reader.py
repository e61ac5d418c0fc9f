"""What the driver asks the cluster: which partitions there are, and from where to where their logs reach.

Rules:

* Absent means gone, never "not known just now": a topic or partition is left out of a `View` only when the
  cluster says so, several times for one that was there before. Everything else is retried
  (``fetchOffset.numRetries``, ``fetchOffset.retryIntervalMs``) and then raised.
* Every wait has an end. A driver that hangs in planning shows nothing to anybody (SPARK-32032).
* A broker that restarts is waited for, as Java's clients do: a cluster that answered before for
  ``kafka.default.api.timeout.ms``, one that never did for ``kafka.request.timeout.ms``, or for the former
  where that was given and is shorter.
* Topics are never created by asking for them.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Set
from itertools import count
from typing import Literal, NamedTuple, TypeVar

from kproto.error_codes import ErrorCode
from kproto.errors import (
    ConfigError,
    ConnectionFailed,
    RequestTimedOut,
    Retriable,
    UnknownTopic,
    UnsupportedVersion,
)
from kproto.group.subscription import TopicPartition

from ..blocking.cluster import Cluster
from ..clock import now
from ..engine.admin import OffsetAt, epoch_ends
from ..engine.metadata.cluster import TopicView
from ..errors import broker_error
from .java_regex import matcher
from .offsets import DataLoss, Positions, View, exactly, inside
from .options import Options
from .selection import Assigned, Bound, Each, Everywhere, Pattern, Since, Topics

T = TypeVar("T")
log = logging.getLogger(__name__)

# How often, and how far apart, a missing topic is looked for before it counts as gone: metadata spreads among
# brokers, and one that was just created or restarted may deny a topic for a moment.
LOOKS = 5
PAUSE_S = 0.1
LONGEST_PAUSE_S = 1.0

_RETRIES = "see fetchOffset.numRetries and fetchOffset.retryIntervalMs"

# Java's default.api.timeout.ms.
API_TIMEOUT_MS = 60_000


class Resolved(NamedTuple):
    """What a bound means now. Of the partitions in `edges` it is an edge of the log, which moves, and of
    those in `given` a number of the user's; of the others it is where a time was found.
    """

    positions: dict[TopicPartition, int]
    edges: Set[TopicPartition] = frozenset()
    given: Set[TopicPartition] = frozenset()


def lose(losses: Collection[str], options: Options) -> None:
    """Raise DataLoss, or say what is allowed to be lost."""
    if losses and options.fail_on_data_loss:
        raise DataLoss(tuple(losses))
    for loss in losses:
        log.warning("failOnDataLoss=false: %s", loss)


class Logs:
    """The logs that the options choose. Connects at the first question; `close` at the end."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.isolation = options.text("isolation.level", "read_uncommitted")
        self.described = 0  # partitions, by the last answer about topics
        self._cluster: Cluster | None = None
        self._answered = False

    @property
    def cluster(self) -> Cluster:
        """The connections to the cluster."""
        if self._cluster is None:
            self._cluster = connect(self.options)
        return self._cluster

    def close(self) -> None:
        """Close the connections. The next question opens new ones."""
        if self._cluster is not None:
            self._cluster.close()
            self._cluster = None

    # ---- which partitions

    def assigned(
        self, sought: Collection[str] | None = None, *, strict: bool = True
    ) -> tuple[list[TopicPartition], dict[str, str]]:
        """The partitions that are to be read now, in order, and the ids of their topics.

        Topics in `sought` (None: all that have a name) are looked for again when they are missing.
        `strict`, at the start of a query, raises UnknownTopic for what isn't there.
        """
        choice = self.options.choice
        wanted: list[str] | None = None
        if isinstance(choice, Topics):
            wanted = list(choice.names)
        elif isinstance(choice, Assigned):
            wanted = list(dict.fromkeys(p.topic for p in choice.partitions))
        topics = self._retried(lambda: self._topics(wanted, (wanted or ()) if sought is None else sought))
        if isinstance(choice, Pattern):
            matches = matcher(choice.regex)
            topics = {name: t for name, t in topics.items() if not t.internal and matches(name)}
        found = {TopicPartition(name, number) for name, t in topics.items() for number in t.partitions}
        if isinstance(choice, Assigned):
            found &= set(choice.partitions)
        if strict:
            needed = set(choice.partitions) if isinstance(choice, Assigned) else found
            for name in wanted or ():
                if name not in topics:
                    detail = f"topic {name!r}: reading makes none, and who may not describe it sees none"
                    raise broker_error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "Metadata", detail)
            for topic, number in sorted(needed - found):
                detail = f"topic {topic!r} has no partition {number}"
                if not found:
                    raise broker_error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "Metadata", detail)
                log.warning("assign: %s; the others are read, and it is when it is there", detail)
        names = {p.topic for p in found}
        ids = {name: str(t.id) for name, t in topics.items() if t.id is not None and name in names}
        return sorted(found), ids

    def _topics(self, wanted: list[str] | None, sought: Iterable[str]) -> dict[str, TopicView]:
        """The topics that exist, of those wanted (None: of all)."""
        sought, there = set(sought), dict[str, TopicView]()
        for look in range(LOOKS):
            if look:
                time.sleep(PAUSE_S)
            view = self.cluster.metadata(wanted, timeout=self._timeout)
            names = list(view.topics) if wanted is None else wanted
            if wanted is None and (unseen := sought.difference(names)):
                # Of all topics those are left out that may not be described; who asks for one is told.
                view = self.cluster.metadata(unseen, timeout=self._timeout)
                names = [*names, *unseen]
            topics = {name: view.topics[name] for name in names if name in view.topics}
            self.described = sum(len(topic.partitions) for topic in topics.values())
            there = {name: t for name, t in topics.items() if not t.error_code and t.partitions}
            for name, topic in topics.items():
                unknown = topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                if topic.error_code and not unknown and (wanted is not None or name in sought):
                    raise broker_error(topic.error_code, "Metadata", f"topic {name!r}")
            if sought <= there.keys():
                break
        return there

    # ---- from where to where

    def view(self, sought: Collection[str] | None = None, *, strict: bool = True) -> View:
        """The ends of all logs that are to be read, as of now; the arguments are those of `assigned`."""
        partitions, ids = self.assigned(sought, strict=strict)
        try:
            return self.look(partitions, ids)
        except UnknownTopic:
            # Deleted, or made anew with fewer partitions, between the two questions.
            partitions, ids = self.assigned(sought, strict=strict)
            return self.look(partitions, ids)

    def look(self, partitions: Iterable[TopicPartition], ids: Mapping[str, str]) -> View:
        """The ends of these logs, as of now, and who leads them."""
        answers = self._asked(dict.fromkeys(partitions, "latest"), self.isolation)
        epochs = {p: at.leader_epoch for p, at in answers.items() if at.leader_epoch is not None}
        return View({p: at.offset or 0 for p, at in answers.items()}, ids, epochs)

    def epoch_ends(self, epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Where each log ends for who knows nothing of a later leader epoch; without those that can't be
        told.
        """
        try:
            ends = self._retried(
                lambda: self.cluster.run(epoch_ends(self.cluster.view, epochs, now), self._timeout)
            )
        except (UnknownTopic, UnsupportedVersion):  # the first is told by whoever looks for topics
            return {}
        return {p: end for p, end in ends.items() if end is not None}

    def ends(
        self, partitions: Iterable[TopicPartition], isolation: str | None = None
    ) -> dict[TopicPartition, int]:
        """The end of each log: its last stable offset, if only committed records are read."""
        return self._offsets(dict.fromkeys(partitions, "latest"), isolation)

    def starts(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The start of each log."""
        return self._offsets(dict.fromkeys(partitions, "earliest"))

    def resolve(self, bound: Bound, end: Literal["starting", "ending"], ends: Positions) -> Resolved:
        """The offsets that `bound` means for the partitions of `ends`, which says where their logs end now.

        Raises ConfigError if the option doesn't name exactly these partitions, or a time has no record at or
        after it. Explicit offsets are as given, also outside of the log.
        """
        if isinstance(bound, Everywhere):
            return Resolved(dict(ends) if bound.edge == "latest" else self.starts(ends), set(ends))
        if isinstance(bound, Each):
            each = bound.of(ends)
            exactly(f"{end}Offsets", each, ends, bound.topics)
            first = self.starts(p for p, where in each.items() if where == "earliest")
            found = {
                p: where if isinstance(where, int) else first[p] if where == "earliest" else ends[p]
                for p, where in each.items()
            }
            given = {p for p, where in each.items() if isinstance(where, int)}
            return Resolved(found, found.keys() - given, given)
        if isinstance(bound, Since):
            option, times = f"{end}Timestamp", dict.fromkeys(ends, bound.timestamp_ms)
        else:
            option, times = f"{end}OffsetsByTimestamp", dict(bound.timestamps_ms)
            exactly(option, times, ends)
        return self._since(option, times, ends, strict=end == "starting")

    def _since(
        self, option: str, times: Mapping[TopicPartition, int], ends: Positions, *, strict: bool
    ) -> Resolved:
        answers = self._retried(
            lambda: self.cluster.list_offsets(times, isolation=self.isolation, timeout=self._timeout)
        )
        found: dict[TopicPartition, int] = {}
        edges: set[TopicPartition] = set()
        for partition, at in answers.items():
            if at.offset is None and strict and self.options.starting_without_match == "error":
                name = f"{partition.topic}-{partition.partition}"
                why = f'{name} has no record so young; startingOffsetsByTimestampStrategy="latest" allows it'
                raise ConfigError(option, times[partition], why)
            found[partition] = ends[partition] if at.offset is None else at.offset
            if at.offset is None and not strict:
                edges.add(partition)
        return Resolved(found, edges)

    def begin(self, bound: Bound, view: View) -> dict[TopicPartition, int]:
        """Where a new query begins."""
        starts, _, numbers = self.resolve(bound, "starting", view.ends)
        if numbers:
            given = {p: starts[p] for p in numbers}
            moved, losses = inside("startingOffsets", given, self.starts(given), view.ends)
            lose(losses, self.options)
            starts.update(moved)
        return starts

    # ---- asking

    @property
    def _timeout(self) -> float:
        return self.options.number("default.api.timeout.ms", API_TIMEOUT_MS) / 1000

    @property
    def _patience(self) -> tuple[float, str]:
        """How long, in seconds, nobody may be reached, and the option that says so."""
        whole, first = self._timeout, request_timeout_ms(self.options) / 1000
        shorter = "default.api.timeout.ms" in self.options.client and whole < first
        if self._answered or shorter:
            return whole, "kafka.default.api.timeout.ms"
        return first, "kafka.request.timeout.ms"

    def _offsets(
        self, wants: Mapping[TopicPartition, str], isolation: str | None = None
    ) -> dict[TopicPartition, int]:
        return {p: at.offset or 0 for p, at in self._asked(wants, isolation or self.isolation).items()}

    def _asked(self, wants: Mapping[TopicPartition, str], isolation: str) -> dict[TopicPartition, OffsetAt]:
        if not wants:
            return {}
        return self._retried(
            lambda: self.cluster.list_offsets(wants, isolation=isolation, timeout=self._timeout)
        )

    def _retried(self, ask: Callable[[], T]) -> T:
        patience, option = self._patience
        for left in reversed(range(self.options.fetch_offset_retries + 1)):
            try:
                found = ridden_out(ask, patience, option)
            except (RequestTimedOut, Retriable) as error:
                if not left:
                    error.add_note(
                        f"It was tried again {self.options.fetch_offset_retries} times; {_RETRIES}."
                    )
                    # Where in our own code it was asked is of no use to who reads this.
                    raise error.with_traceback(None) from None
                time.sleep(self.options.fetch_offset_retry_interval_ms / 1000)
            else:
                self._answered = True
                return found
        raise AssertionError("the last try returns or raises")


def ridden_out(ask: Callable[[], T], seconds: float, option: str) -> T:
    """The answer, asked for again while nobody can be reached, for so long, which `option` decides; then
    ConnectionFailed.
    """
    end, pause = time.monotonic() + seconds, PAUSE_S
    for tries in count():
        try:
            return ask()
        except ConnectionFailed as error:
            if time.monotonic() + pause >= end:
                error.add_note(f"It was tried for {seconds:g} s; see {option}.")
                raise error.with_traceback(None) from None
            if tries == 0:
                log.warning("the cluster is out of reach, trying again for %d s: %s", seconds, error)
        time.sleep(pause)
        pause = min(LONGEST_PAUSE_S, pause * 2)
    raise AssertionError("the loop returns or raises")


def connect(options: Options) -> Cluster:
    """A client of the cluster that these options name; it connects when it is first asked."""
    timeout_ms = request_timeout_ms(options)
    return Cluster(
        options.bootstrap_servers,
        client_id=options.text("client.id", "kproto-spark"),
        request_timeout_ms=timeout_ms,
        timeout=timeout_ms / 1000,
        **options.access.options,
    )


def request_timeout_ms(options: Options) -> int:
    """How long one request may take."""
    return options.number("request.timeout.ms", 30_000)
