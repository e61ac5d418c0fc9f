"""``spark.readStream.format("kproto")``: plans the offsets that the next micro-batch reads.

Spark runs the reader in one process for each run of a query. The rules state Spark's contract and its
consequences:

* Spark writes an end offset to the checkpoint before the batch runs. After a crash, Spark repeats the batch:
  it calls ``partitions(start, end)``, but not ``latestOffset``. So `partitions` sends no request and depends
  only on its arguments.

* Spark's end offset of a batch also contains Kafka's first offset of each partition that is new in the batch
  (see the module `offsets`).

* Spark does not store the initial offset: it requests the offset twice, and again if batch 0 is repeated. So
  the initial offset is a constant that names no partitions. The first end offset also stores where the first
  batch starts, according to ``startingOffsets``.

* Spark calls ``commit(end)`` one batch late, and never for the last batch. After the last batch it calls
  ``latestOffset(start)`` with the completed offset as `start`. So ``latestOffset`` also commits the group's
  offsets (`commitGroupId`). Spark usually does not call ``stop()``.

* An exception in ``commit`` or ``latestOffset`` ends the query. So a failed commit to the group is only
  logged, and retried later. A commit takes at most two seconds.

* The checkpoint determines the position. Commits to a group are for lag tools only.

* For an idle query, Spark calls ``latestOffset`` about every 11 ms, and expects a current result:
  ``processAllAvailable()`` must include all records that were written before the call, also those in
  partitions that the query has not seen yet.

* Each call to ``latestOffset`` requests the end of each log, which costs less than a millisecond of CPU time.
  It also requests the list of topics, unless the cached list is recent enough (`_topics_max_age`).

* ``pushFilters`` is not implemented. Spark 4.3 pushes filters only to batch sources, and by mistake
  also applies the filters of one query to other queries (docs/spark-upstream.md).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from kproto.errors import KprotoError, UnknownTopic
from kproto.group.subscription import TopicPartition

from .offset_reader import METADATA_TRIES, OffsetReader, report_losses
from .offsets import (
    Changes,
    Offsets,
    View,
    advance,
    describe_trimmed,
    find_changes,
    moved,
    should_wait,
)
from .options import Options
from .ranges import ranges, split, waiting
from .schema import checked
from .security import kafka_option_names_in_errors
from .selection import LogEdge, partition_filter
from .slices import Slice

if TYPE_CHECKING:
    from .arrow import RecordBatch

log = logging.getLogger(__name__)

# With at least this number of partitions, the list of topics is cached between calls of latestOffset.
MANY_PARTITIONS = 1_000
# The maximum age in ms of the cached list of topics, unless kafka.metadata.max.age.ms sets another. A request
# for the list takes milliseconds. The cache delays the detection of new partitions, but not of re-created
# topics: executors fetch by topic id.
TOPICS_MAX_AGE_MS = 1_000


class KprotoStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans micro-batches over the selected partitions, and reads them on the executors."""

    def __init__(self, schema: StructType, options: Options) -> None:
        self.schema = checked(schema, options)
        self.options = options.for_stream()
        self._planner: Planner | None = None

    @property
    def planner(self) -> Planner:
        """The planner, which is created at first use, because Spark also pickles readers that never plan."""
        if self._planner is None:
            self._planner = Planner(self.options)
        return self._planner

    def initialOffset(self) -> dict[str, object]:
        """Return the initial offset of a new query: an `Offsets` without partitions.

        The end offset of the first batch also stores where the batch starts in each partition.
        """
        return Offsets().to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return maxOffsetsPerTrigger if set, else minOffsetsPerTrigger if set, else no limit.

        Spark passes a single limit to `latestOffset`. So `latestOffset` reads minOffsetsPerTrigger from the
        options, and not from this limit.
        """
        if self.options.max_offsets_per_trigger is not None:
            return ReadMaxRows(self.options.max_offsets_per_trigger)
        if self.options.min_offsets_per_trigger is not None:
            return ReadMinRows(self.options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """Make this run of the query end at the current end of each log."""
        with kafka_option_names_in_errors():
            self.planner.stop_at_present_ends()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return the end offset of the next batch, or `start` itself if no records can be read.

        Raises DataLoss if records were deleted or truncated before the query read them, unless
        failOnDataLoss=false. Also raises errors of the cluster that remain after all retries.
        """
        max_rows = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        with kafka_option_names_in_errors():
            completed = Offsets.from_json(start)
            self.planner.commit(completed)
            end = self.planner.next_end(completed, max_rows, patient=not isinstance(limit, ReadAllAvailable))
        return start if end is completed else end.to_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return the last known end of each log, which the query's progress shows as `latestOffset`."""
        return self.planner.report()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Return the slices of the batch from `start` to `end`. The result depends only on the arguments."""
        with kafka_option_names_in_errors():
            batch = ranges(Offsets.from_json(start), Offsets.from_json(end))
        max_records = self.options.max_records_per_partition
        return [
            Slice(range_)
            for range_ in split(batch, least=self.options.min_partitions, most_records=max_records)
        ]

    def read(self, partition: InputPartition) -> Iterator[RecordBatch]:
        """Yield the records of one slice as Arrow batches. Runs on an executor."""
        from .partition_reader import read

        return read(partition, self.schema, self.options)

    def commit(self, end: dict[str, Any]) -> None:
        """Commit `end` to the consumer group that lag tools read, if the options name this group.

        Spark calls this method when all batches up to `end` are complete.
        """
        with kafka_option_names_in_errors():
            self.planner.commit(Offsets.from_json(end))

    def stop(self) -> None:
        """Close the connections."""
        if self._planner is not None:
            self._planner.close()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_planner": None}


class Planner:
    """Plans the micro-batches of one run of a stream, and keeps state between them.

    This state is not stored in the checkpoint, so each run of the stream starts without it.
    """

    def __init__(self, options: Options, clock: Callable[[], float] = time.monotonic) -> None:
        self.options = options
        self.logs = OffsetReader(options)
        self._clock = clock
        self._view: View | None = None
        self._partitions: list[TopicPartition] = []
        self._topic_ids: Mapping[str, str] = {}
        self._topics_time = float("-inf")  # When the list of topics was last requested.
        self._ceiling: View | None = None  # The ends at which a run with Trigger.AvailableNow stops.
        self._reported_losses: set[str] = set()
        self._is_selected = None if options.choice is None else partition_filter(options.choice)
        self._last_batch_time: float | None = None
        # Maps a partition to (previous epoch, current epoch, position) if its leader changed and its log was
        # not truncated. The log is checked again only after one of these values has changed.
        self._untruncated_states: dict[TopicPartition, tuple[int, int, int]] = {}
        self._group = LagGroup(self.logs, options.commit_group_id, clock)

    def next_end(self, start: Offsets, max_offsets: int | None, *, patient: bool) -> Offsets:
        """Return the end of the next batch, or the object `start` itself if no batch follows.

        `patient` says whether minOffsetsPerTrigger and maxTriggerDelay may delay the batch.
        """
        view, starts = self._find_view_and_starts(start)
        end = advance(start, view, starts, limit=max_offsets, ceiling=self._ceiling)
        if end is start:
            return start
        if patient and self._ceiling is None:
            since_last_ms = None
            if self._last_batch_time is not None:
                since_last_ms = int((self._clock() - self._last_batch_time) * 1000)
            min_offsets, max_delay_ms = (
                self.options.min_offsets_per_trigger,
                self.options.max_trigger_delay_ms,
            )
            # Compare the minimum with all available offsets, even those beyond the limit. Each partition's
            # share of the limit is rounded down, so the sum of the shares might never reach the minimum.
            available = end if max_offsets is None else advance(start, view, starts)
            if should_wait(waiting(start, available), min_offsets, since_last_ms, max_delay_ms):
                return start
        self._last_batch_time = self._clock()
        return end

    def _find_view_and_starts(self, start: Offsets) -> tuple[View, dict[TopicPartition, int]]:
        """Return the view of the logs, and the first position of each new, re-created or truncated partition.

        Both the metadata and the offsets are requested again if a topic was deleted between these two
        requests.
        """
        for retries_left in reversed(range(METADATA_TRIES)):
            try:
                view, changes = self._find_changes(start)
                return view, self._find_starts(start, view, changes)
            except UnknownTopic:
                if not retries_left or start.new:
                    raise
                self._topics_time = float("-inf")
        raise AssertionError("unreachable: the last attempt returns or raises")

    def stop_at_present_ends(self) -> None:
        """Make this run of the query end at the current end of each log."""
        self._ceiling = self.logs.view(strict=False)

    def report(self) -> dict[str, object] | None:
        """Return the last known end of each log, in the format of the query's offsets."""
        return None if self._view is None else Offsets(self._view.ends, begun=True).to_json()

    def commit(self, completed: Offsets) -> None:
        """Commit the completed offsets to the group in the options. Without a group, do nothing."""
        self._group.commit(completed)

    def close(self) -> None:
        """Close the connections."""
        self.logs.close()

    def _current_view(self, start: Offsets, *, refresh_topics: bool = False) -> View:
        """Return the current end of each log. For a new query, every selected topic must exist.

        The list of topics is requested again if it is too old, or if `refresh_topics` is set.
        """
        view = None
        if self._clock() - self._topics_time < self._topics_max_age and not refresh_topics:
            with suppress(UnknownTopic):  # If a topic is unknown, the list of topics is requested again.
                view = self.logs.view_of(self._partitions, self._topic_ids)
        if view is None:
            if start.new:
                view = self.logs.view()
            else:
                view = self.logs.view({p.topic for p in start.positions}, strict=False)
            self._partitions, self._topic_ids, self._topics_time = list(view.ends), view.ids, self._clock()
        self._view = view
        return view

    @property
    def _topics_max_age(self) -> float:
        """The maximum age (s) of the cached list of topics.

        The default is `TOPICS_MAX_AGE_MS` for `MANY_PARTITIONS` partitions or more, and 0 for fewer.
        """
        default_ms = TOPICS_MAX_AGE_MS if self.logs.partition_count >= MANY_PARTITIONS else 0
        return self.options.number("metadata.max.age.ms", default_ms) / 1000

    def _find_changes(self, start: Offsets) -> tuple[View, Changes]:
        """Return the view of the logs, and what has changed in the logs since `start`.

        Raises DataLoss for lost records, unless failOnDataLoss=false.
        """
        view = self._add_truncations(start, self._current_view(start))
        changes = find_changes(start, view, self._is_selected)
        if changes.losses:
            # Request the list of topics again, because a topic may have been re-created since the last
            # request.
            view = self._add_truncations(start, self._current_view(start, refresh_topics=True))
            changes = find_changes(start, view, self._is_selected)
        beyond_end = [p for p in changes.truncated if p not in view.truncations]
        if beyond_end and self.logs.isolation == "read_committed":
            view = self._raise_ends_to_positions(start, view, beyond_end)
            changes = find_changes(start, view, self._is_selected)
        self._report_losses(changes.losses)
        return view, changes

    def _raise_ends_to_positions(self, start: Offsets, view: View, partitions: list[TopicPartition]) -> View:
        """Return `view`, with the ends of these partitions raised to at least the query's positions.

        If an earlier run of the query also read uncommitted records, its position may be beyond the last
        stable offset. The log is not truncated in this case, so the end is raised to the position, but not
        above the high watermark. The query then waits until the transactions end.
        """
        high_watermarks = self.logs.ends(partitions, isolation="read_uncommitted")
        ends = {
            p: max(view.ends[p], min(start.positions[p], high_watermark))
            for p, high_watermark in high_watermarks.items()
        }
        return replace(view, ends={**view.ends, **ends})

    def _report_losses(self, losses: tuple[str, ...]) -> None:
        """Raise DataLoss for a loss, or log it if failOnDataLoss=false. Each loss is logged once."""
        report_losses([loss for loss in losses if loss not in self._reported_losses], self.options)
        self._reported_losses.update(losses)

    def _add_truncations(self, start: Offsets, view: View) -> View:
        """Return `view` with the truncation offset of each log that lost records before the query's position.

        The end offset of the previous leader epoch is requested once for each new leader.
        """
        leader_states = {
            p: (epoch, view.epochs[p], start.positions[p]) for p, epoch in moved(start, view).items()
        }
        former_epochs = {
            p: state[0] for p, state in leader_states.items() if self._untruncated_states.get(p) != state
        }
        if not former_epochs:
            return view
        ends = self.logs.epoch_ends(former_epochs)
        truncations = {p: end for p, end in ends.items() if end < start.positions[p]}
        self._untruncated_states.update({p: leader_states[p] for p in former_epochs if p not in truncations})
        return replace(view, truncations=truncations)

    def _find_starts(self, start: Offsets, view: View, changes: Changes) -> dict[TopicPartition, int]:
        """Return the first position of each partition that is new, re-created or truncated."""
        if start.new:
            return self.logs.begin(self.options.starting or LogEdge("latest"), view)
        starts: dict[TopicPartition, int] = {p: view.ends[p] for p in changes.truncated}
        if view.truncations:
            log_starts = self.logs.starts(view.truncations)
            starts.update(
                {
                    p: min(view.ends[p], max(log_starts[p], truncated_at))
                    for p, truncated_at in view.truncations.items()
                }
            )
        # New and re-created partitions are read from their start, even if startingOffsets is "latest": the
        # query has not read any of their records.
        added = [p for p in [*changes.new, *changes.recreated] if p not in starts]
        if added:
            added_starts = self.logs.starts(added)
            new_starts = {p: added_starts[p] for p in changes.new if p in added_starts}
            self._report_losses(tuple(describe_trimmed(new_starts)))
            starts.update(added_starts)
        return starts


class LagGroup:
    """Commits a consumer group's offsets for lag tools. Failures are logged, and not raised."""

    # The timeout of a commit in seconds. An available coordinator responds within this time, and an
    # unavailable one does not delay the query for longer.
    TIMEOUT_S = 2.0
    FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0

    def __init__(self, logs: OffsetReader, name: str | None, clock: Callable[[], float]) -> None:
        self._logs = logs
        self._name = name
        self._clock = clock
        self._committed: Mapping[TopicPartition, int] = {}  # The positions of the last successful commit.
        self._retry_pause_s = 0.0  # The pause after the last failed commit; 0 after a successful one.
        self._next_attempt_time = float("-inf")

    def commit(self, completed: Offsets) -> None:
        """Commit the positions that have changed since the last successful commit.

        The pause before the next attempt doubles after each failure.
        """
        changed = {
            p: position for p, position in completed.positions.items() if self._committed.get(p) != position
        }
        if self._name is None or not changed or self._clock() < self._next_attempt_time:
            return
        try:
            self._logs.cluster.commit_offsets(self._name, changed, timeout=self.TIMEOUT_S)
        except (KprotoError, OSError) as error:
            self._retry_pause_s = min(self.LONGEST_PAUSE_S, self._retry_pause_s * 2 or self.FIRST_PAUSE_S)
            self._next_attempt_time = self._clock() + self._retry_pause_s
            log.warning(
                "offsets of group %s could not be committed; the query continues, and the commit is "
                "retried later: %s",
                self._name,
                error,
            )
        else:
            self._committed = completed.positions
            self._retry_pause_s = 0.0
