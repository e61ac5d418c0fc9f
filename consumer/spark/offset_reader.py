"""Reads partitions and offsets of the cluster on the driver, as Spark's KafkaOffsetReader does.

Rules:

* A topic or partition is missing from a `View` (a snapshot of the log ends) only if the brokers report that
  it does not exist. If it existed before, it is requested several times before it counts as deleted.

* All other failures are retried (``fetchOffset.numRetries``, ``fetchOffset.retryIntervalMs``) and then
  raised.

* Every wait has a timeout, because a driver that hangs during planning would show no error at all
  (SPARK-32032).

* Requests are retried while the cluster is unreachable, as in Java's clients. After the first response of the
  cluster, the limit is ``kafka.default.api.timeout.ms``. Before the first response, the limit is
  ``kafka.request.timeout.ms``, or ``kafka.default.api.timeout.ms`` if that is set and shorter.

* Metadata requests never create topics.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
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
    brief_list,
)
from kproto.group.subscription import TopicPartition

from ..blocking.admin import Admin
from ..clock import now
from ..engine.admin.records import OffsetAt, epoch_ends
from ..engine.metadata.cluster import TopicView
from ..engine.network.transport import RECEIVE_MESSAGE_MAX_BYTES, RESPONSE_OVERHEAD_BYTES
from ..errors import broker_error
from .java_regex import matcher
from .offsets import DataLoss, Positions, View
from .options import Options
from .ranges import check_partitions, clamp_starts
from .selection import Assigned, Bound, GlobalTimestamp, LogEdge, Pattern, SpecificOffsets, Topics

T = TypeVar("T")
log = logging.getLogger(__name__)

# The number of requests after which a missing topic counts as deleted. A broker may learn of a new topic
# late, and until then reports that the topic does not exist.
METADATA_TRIES = 5

# The pause in seconds between requests for a missing topic. It is also the first pause between attempts to
# reach an unreachable cluster. The pauses between further attempts double, up to LONGEST_PAUSE_S.
PAUSE_S = 0.1
LONGEST_PAUSE_S = 1.0

_RETRY_HINT = "see fetchOffset.numRetries and fetchOffset.retryIntervalMs"

# Java's default.api.timeout.ms.
API_TIMEOUT_MS = 60_000


class ResolvedBound(NamedTuple):
    """A starting or ending bound, resolved to an offset for each partition.

    `edges` contains the partitions whose offset is the current start or end of the log, which may change
    later. `explicit` contains the partitions whose offset is a number in the options. All other offsets were
    found by a timestamp.
    """

    positions: dict[TopicPartition, int]
    edges: Set[TopicPartition] = frozenset()
    explicit: Set[TopicPartition] = frozenset()


def report_losses(losses: Collection[str], options: Options) -> None:
    """Raise DataLoss if data was lost, or log the losses if failOnDataLoss=false."""
    if losses and options.fail_on_data_loss:
        raise DataLoss(tuple(losses))
    if losses:
        log.warning("failOnDataLoss=false: %s", brief_list(list(losses), separator="; "))


class OffsetReader:
    """Reads the offsets of the partitions that the options select.

    The first request opens the connections, and `close` closes them.
    """

    def __init__(self, options: Options) -> None:
        self.options = options
        self.isolation = options.text("isolation.level", "read_uncommitted")
        self.partition_count = 0  # The number of partitions in the last metadata response.
        self._cluster: Admin | None = None
        self._has_responded = False  # Whether the cluster has responded to a request.

    @property
    def cluster(self) -> Admin:
        """The admin client for the cluster. The client is created at its first use."""
        if self._cluster is None:
            self._cluster = connect(self.options)
        return self._cluster

    def close(self) -> None:
        """Close the connections. The next request opens new ones."""
        if self._cluster is not None:
            self._cluster.close()
            self._cluster = None

    # ---- partitions

    def partitions(
        self, expected: Collection[str] | None = None, *, strict: bool = True
    ) -> tuple[list[TopicPartition], dict[str, str]]:
        """Return the sorted list of partitions that the query reads now, and the ids of their topics.

        A topic in `expected` that is missing from a response is requested again several times before it
        counts as deleted. If `expected` is None, this applies to every topic that the options name.

        `strict` is for the start of a query. UnknownTopic is then raised if a topic that the options name is
        missing, or if no partition of the option `assign` exists. If only some partitions of `assign` are
        missing, a warning is logged for each of them. Without `strict`, missing topics and partitions are
        omitted.
        """
        choice = self.options.choice
        topic_names: list[str] | None = None  # None, which a pattern needs, requests all topics.
        if isinstance(choice, Topics):
            topic_names = list(choice.names)
        elif isinstance(choice, Assigned):
            topic_names = list(dict.fromkeys(p.topic for p in choice.partitions))
        expected_topics = (topic_names or ()) if expected is None else expected
        topics = self._retry(lambda: self._existing_topics(topic_names, expected_topics))
        if isinstance(choice, Pattern):
            matches = matcher(choice.regex)
            topics = {name: view for name, view in topics.items() if not view.internal and matches(name)}
        partitions = {
            TopicPartition(name, partition) for name, view in topics.items() for partition in view.partitions
        }
        if isinstance(choice, Assigned):
            partitions &= set(choice.partitions)
        if strict:
            missing_topics = [name for name in topic_names or () if name not in topics]
            assigned = set(choice.partitions) if isinstance(choice, Assigned) else set[TopicPartition]()
            _report_missing(missing_topics, assigned - partitions, partitions_required=not partitions)
        names = {p.topic for p in partitions}
        ids = {name: str(view.id) for name, view in topics.items() if view.id is not None and name in names}
        return sorted(partitions), ids

    def _existing_topics(
        self, topic_names: list[str] | None, expected: Iterable[str]
    ) -> dict[str, TopicView]:
        """Return the existing topics among `topic_names`, or all topics if `topic_names` is None.

        While a topic in `expected` is missing, the request is repeated, up to METADATA_TRIES requests in
        total. Each request updates `partition_count`. An error of a topic in `topic_names` or `expected` is
        raised, unless it is UNKNOWN_TOPIC_OR_PARTITION.
        """
        expected, existing = set(expected), dict[str, TopicView]()
        for attempt in range(METADATA_TRIES):
            if attempt:
                time.sleep(PAUSE_S)
            view = self.cluster.metadata(topic_names, timeout=self._timeout)
            names = list(view.topics) if topic_names is None else topic_names
            if topic_names is None and (unlisted := expected.difference(names)):
                # The response for all topics omits topics that the client is not authorized to describe. A
                # request for the missing topics by name returns the authorization error.
                view = self.cluster.metadata(unlisted, timeout=self._timeout)
                names = [*names, *unlisted]
            topics = {name: view.topics[name] for name in names if name in view.topics}
            self.partition_count = sum(len(topic.partitions) for topic in topics.values())
            existing = {
                name: topic for name, topic in topics.items() if not topic.error_code and topic.partitions
            }
            for name, topic in topics.items():
                is_unknown = topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                is_needed = topic_names is not None or name in expected
                if topic.error_code and not is_unknown and is_needed:
                    raise broker_error(topic.error_code, "Metadata", f"topic {name!r}")
            if expected <= existing.keys():
                break
        return existing

    # ---- offsets

    def view(self, expected: Collection[str] | None = None, *, strict: bool = True) -> View:
        """Return the current end of each log that the query reads. See `partitions` for the arguments."""
        partitions, ids = self.partitions(expected, strict=strict)
        try:
            return self.view_of(partitions, ids)
        except UnknownTopic:
            # Repeat both requests: the topic was deleted, or re-created with fewer partitions, between them.
            partitions, ids = self.partitions(expected, strict=strict)
            return self.view_of(partitions, ids)

    def view_of(self, partitions: Iterable[TopicPartition], ids: Mapping[str, str]) -> View:
        """Return a `View` of these partitions: their current log ends and leader epochs."""
        offsets = self._list_offsets(dict.fromkeys(partitions, "latest"), self.isolation)
        epochs = {p: offset.leader_epoch for p, offset in offsets.items() if offset.leader_epoch is not None}
        return View({p: offset.offset or 0 for p, offset in offsets.items()}, ids, epochs)

    def epoch_ends(self, epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return the end offset of each leader epoch. Partitions whose end is unknown are omitted."""
        try:
            ends = self._retry(
                lambda: self.cluster.run(epoch_ends(self.cluster.view, epochs, now), self._timeout)
            )
        # If a topic does not exist, the next Metadata response shows this, so the error is ignored here.
        except (UnknownTopic, UnsupportedVersion):
            return {}
        return {p: end for p, end in ends.items() if end is not None}

    def ends(
        self, partitions: Iterable[TopicPartition], isolation: str | None = None
    ) -> dict[TopicPartition, int]:
        """Return the end of each log: the high watermark, or the last stable offset under read_committed."""
        return self._edge_offsets(dict.fromkeys(partitions, "latest"), isolation)

    def starts(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the first offset of each log."""
        return self._edge_offsets(dict.fromkeys(partitions, "earliest"))

    def resolve(self, bound: Bound, end: Literal["starting", "ending"], ends: Positions) -> ResolvedBound:
        """Return the offsets to which `bound` refers. `ends` contains the current end of each log.

        Explicit offsets are returned unchanged, even if they are outside of the log.

        Raises ConfigError if the option does not list exactly the partitions of `ends`. Also raises it if a
        starting timestamp is later than every record of a partition, unless
        startingOffsetsByTimestampStrategy is `latest`.
        """
        if isinstance(bound, LogEdge):
            return ResolvedBound(dict(ends) if bound.edge == "latest" else self.starts(ends), set(ends))
        if isinstance(bound, SpecificOffsets):
            offsets = bound.of(ends)
            check_partitions(f"{end}Offsets", offsets, ends, bound.topics)
            log_starts = self.starts(p for p, offset in offsets.items() if offset == "earliest")
            positions = {
                p: offset if isinstance(offset, int) else log_starts[p] if offset == "earliest" else ends[p]
                for p, offset in offsets.items()
            }
            explicit = {p for p, offset in offsets.items() if isinstance(offset, int)}
            return ResolvedBound(positions, positions.keys() - explicit, explicit)
        if isinstance(bound, GlobalTimestamp):
            option, timestamps = f"{end}Timestamp", dict.fromkeys(ends, bound.timestamp_ms)
        else:
            option, timestamps = f"{end}OffsetsByTimestamp", dict(bound.timestamps_ms)
            check_partitions(option, timestamps, ends)
        return self._resolve_timestamps(option, timestamps, ends, strict=end == "starting")

    def _resolve_timestamps(
        self, option: str, timestamps: Mapping[TopicPartition, int], ends: Positions, *, strict: bool
    ) -> ResolvedBound:
        """Return each partition's first offset whose record is not older than the timestamp (ms).

        If a partition has no such record, the result is the end of its log. With `strict` (for a starting
        bound), ConfigError is raised instead, unless startingOffsetsByTimestampStrategy is `latest`.
        """
        offsets = self._retry(
            lambda: self.cluster.list_offsets(timestamps, isolation=self.isolation, timeout=self._timeout)
        )
        positions: dict[TopicPartition, int] = {}
        edges: set[TopicPartition] = set()
        for partition, offset in offsets.items():
            if offset.offset is None and strict and self.options.starting_without_match == "error":
                name = f"{partition.topic}-{partition.partition}"
                reason = (
                    f"{name} has no record at or after it; to start at the end of the log, set "
                    "startingOffsetsByTimestampStrategy=latest"
                )
                raise ConfigError(option, timestamps[partition], reason)
            positions[partition] = ends[partition] if offset.offset is None else offset.offset
            if offset.offset is None and not strict:
                edges.add(partition)
        return ResolvedBound(positions, edges)

    def begin(self, bound: Bound, view: View) -> dict[TopicPartition, int]:
        """Return the offset at which a new query starts in each partition.

        An explicit offset outside of its log is moved to the log's start or end, and reported as a loss.
        """
        starts, _, explicit_partitions = self.resolve(bound, "starting", view.ends)
        if explicit_partitions:
            explicit = {p: starts[p] for p in explicit_partitions}
            clamped, losses = clamp_starts("startingOffsets", explicit, self.starts(explicit), view.ends)
            report_losses(losses, self.options)
            starts.update(clamped)
        return starts

    # ---- requests

    @property
    def _timeout(self) -> float:
        """The timeout (s) of one call of the admin client."""
        return self.options.number("default.api.timeout.ms", API_TIMEOUT_MS) / 1000

    @property
    def _unreachable_limit(self) -> tuple[float, str]:
        """Return how long (s) to retry while the cluster is unreachable, and the option that sets it."""
        api_timeout, request_timeout = self._timeout, request_timeout_ms(self.options) / 1000
        is_shorter = "default.api.timeout.ms" in self.options.client and api_timeout < request_timeout
        if self._has_responded or is_shorter:
            return api_timeout, "kafka.default.api.timeout.ms"
        return request_timeout, "kafka.request.timeout.ms"

    def _edge_offsets(
        self, edges: Mapping[TopicPartition, str], isolation: str | None = None
    ) -> dict[TopicPartition, int]:
        """Return the start or end offset of each log: `edges` maps partitions to "earliest" or "latest"."""
        return {
            p: offset.offset or 0
            for p, offset in self._list_offsets(edges, isolation or self.isolation).items()
        }

    def _list_offsets(
        self, edges: Mapping[TopicPartition, str], isolation: str
    ) -> dict[TopicPartition, OffsetAt]:
        """Return the start or end offset of each log, with its leader epoch.

        `edges` maps a partition to "earliest" or "latest".
        """
        if not edges:
            return {}
        return self._retry(
            lambda: self.cluster.list_offsets(edges, isolation=isolation, timeout=self._timeout)
        )

    def _retry(self, request: Callable[[], T]) -> T:
        """Return the result of `request`, which is retried at most `fetchOffset.numRetries` times.

        If the cluster is unreachable, the attempt does not end immediately: `retry_while_unreachable`
        repeats the request until the time limit `_unreachable_limit`.
        """
        timeout, option = self._unreachable_limit
        for retries_left in reversed(range(self.options.fetch_offset_retries + 1)):
            try:
                result = retry_while_unreachable(request, timeout, option)
            except (RequestTimedOut, Retriable) as error:
                if not retries_left:
                    error.add_note(
                        f"It was retried {self.options.fetch_offset_retries} times; {_RETRY_HINT}."
                    )
                    # Remove the traceback, because kproto's stack frames do not help the user.
                    raise error.with_traceback(None) from None
                time.sleep(self.options.fetch_offset_retry_interval_ms / 1000)
            else:
                self._has_responded = True
                return result
        raise AssertionError("unreachable: the last attempt returns or raises")


def _report_missing(
    topics: Sequence[str], partitions: Iterable[TopicPartition], *, partitions_required: bool
) -> None:
    """Raise UnknownTopic if a topic is missing. Log a warning for each missing partition.

    With `partitions_required`, raise UnknownTopic for the first missing partition instead.
    """
    if topics:
        detail = (
            f"topic {topics[0]!r} does not exist, or this client is not authorized to describe it; "
            "create it first: reading does not create topics"
        )
        raise broker_error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "Metadata", detail)
    for topic, partition in sorted(partitions):
        detail = f"topic {topic!r} has no partition {partition}"
        if partitions_required:
            raise broker_error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "Metadata", detail)
        log.warning(
            "assign: %s; the other partitions are read now, and this one as soon as it exists", detail
        )


def retry_while_unreachable(request: Callable[[], T], seconds: float, option: str) -> T:
    """Return the result of `request`. Retry for at most `seconds` seconds while the cluster is unreachable.

    `option` is the name of the option that sets `seconds`. Raises ConnectionFailed if the cluster is still
    unreachable after this time.
    """
    deadline, pause = time.monotonic() + seconds, PAUSE_S
    for attempt in count():
        try:
            return request()
        except ConnectionFailed as error:
            if time.monotonic() + pause >= deadline:
                error.add_note(f"It was tried for {seconds:g} s; see {option}.")
                raise error.with_traceback(None) from None
            if attempt == 0:
                log.warning("the cluster is unreachable, retrying for %d s: %s", seconds, error)
        time.sleep(pause)
        pause = min(LONGEST_PAUSE_S, pause * 2)
    raise AssertionError("unreachable: the loop returns or raises")


def connect(options: Options) -> Admin:
    """Return a client of the cluster that the options name. The client connects at its first request."""
    timeout_ms = request_timeout_ms(options)
    max_response_bytes = options.number("max.partition.fetch.bytes", 0) + RESPONSE_OVERHEAD_BYTES
    return Admin(
        options.bootstrap_servers,
        client_id=options.text("client.id", "kproto-spark"),
        request_timeout_ms=timeout_ms,
        receive_message_max_bytes=min(max(RECEIVE_MESSAGE_MAX_BYTES, max_response_bytes), 2**31 - 1),
        timeout=timeout_ms / 1000,
        enable_metrics_push=bool(options.number("enable.metrics.push", True)),
        **options.access.options,
    )


def request_timeout_ms(options: Options) -> int:
    """Return the timeout of one request in milliseconds."""
    return options.number("request.timeout.ms", 30_000)
