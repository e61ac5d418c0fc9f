"""``spark.readStream.format("kproto")``: which offsets the next micro-batch reads.

Spark runs this in one process of its own for each run of a query. What it promises, and what follows:

* An end offset is written to the checkpoint before the batch runs, and after a crash the batch is repeated
  by ``partitions(start, end)`` alone, without ``latestOffset``. So `partitions` asks nobody and depends on
  nothing but its arguments; see `offsets` for how an end says where newcomers began.
* The initial offset is asked for twice, is asked for again when batch 0 is repeated, and is not kept. So it
  is always the same one; what ``startingOffsets`` means is settled in the first end.
* ``commit(end)`` comes one batch late, and never for the last batch; ``stop()`` is normally not called.
  ``latestOffset(start)`` is also called after the last batch, with what was completed as its start: so the
  group's offsets are committed there too (`commitGroupId`).
* An exception in ``commit`` or ``latestOffset`` ends the query. Commits to a group are for lag tools only,
  the checkpoint is the truth: their failure is logged and tried again later, and takes two seconds at most.
* An idle query calls ``latestOffset`` about every 11 ms, and takes the answer for what there is: who waits
  with ``processAllAvailable()`` sees what was written before, and new partitions, only if the cluster is
  asked each time. So it is, for less than a millisecond of CPU; but for what topics there are, where these
  are many.
* ``pushFilters`` is never implemented: Spark 4.3 applies the filters of one query to others (and batches
  only).
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

from .offset_reader import LOOKS, Logs, lose
from .offsets import (
    Changes,
    Offsets,
    View,
    advance,
    changes,
    moved,
    ranges,
    split,
    trimmed,
    waiting,
    waits,
)
from .options import Options
from .schema import checked
from .security import said_in_kafkas_words
from .selection import Everywhere, asks
from .slices import Slice

if TYPE_CHECKING:
    from .arrow import RecordBatch

log = logging.getLogger(__name__)

# How old what is known of topics may be, unless kafka.metadata.max.age.ms says otherwise: where there are so
# many partitions that to ask costs milliseconds, new ones are read that much later. Topics made anew are
# noticed at once by the executors, who fetch by topic id.
MANY_PARTITIONS = 1_000
TOPICS_MAX_AGE_MS = 1_000


class KprotoStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans micro-batches over the logs that the options choose, and reads them on the executors."""

    def __init__(self, schema: StructType, options: Options) -> None:
        self.schema = checked(schema, options)
        self.options = options.for_stream()
        self._planner: Planner | None = None

    @property
    def planner(self) -> Planner:
        """Made at first use: Spark also pickles a reader that never plans."""
        if self._planner is None:
            self._planner = Planner(self.options)
        return self._planner

    def initialOffset(self) -> dict[str, object]:
        """That of a new query: the first end says where each partition began."""
        return Offsets().to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        """maxOffsetsPerTrigger, else minOffsetsPerTrigger, else everything: Spark passes on one of them."""
        if self.options.max_offsets_per_trigger is not None:
            return ReadMaxRows(self.options.max_offsets_per_trigger)
        if self.options.min_offsets_per_trigger is not None:
            return ReadMinRows(self.options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """Take the logs' ends of this moment as the end of this run."""
        with said_in_kafkas_words():
            self.planner.stop_at_present_ends()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """The end of the next batch; `start` itself when there is nothing to read.

        Raises DataLoss with failOnDataLoss, and what the cluster answers when retries don't help.
        """
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        with said_in_kafkas_words():
            completed = Offsets.from_json(start)
            self.planner.commit(completed)
            end = self.planner.next_end(completed, most, patient=not isinstance(limit, ReadAllAvailable))
        return start if end is completed else end.to_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """The logs' ends when they were last looked at; shown in the query's progress as `latestOffset`."""
        return self.planner.report()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The slices that the batch from `start` to `end` reads; a function of its arguments only."""
        with said_in_kafkas_words():
            whole = ranges(Offsets.from_json(start), Offsets.from_json(end))
        most = self.options.max_records_per_partition
        return [Slice(r) for r in split(whole, least=self.options.min_partitions, most_records=most)]

    def read(self, partition: InputPartition) -> Iterator[RecordBatch]:
        """The records of one slice as Arrow batches; runs on an executor."""
        from .partition_reader import read

        return read(partition, self.schema, self.options)

    def commit(self, end: dict[str, Any]) -> None:
        """Spark completed everything before `end`: show that to lag tools."""
        with said_in_kafkas_words():
            self.planner.commit(Offsets.from_json(end))

    def stop(self) -> None:
        """Close the connections."""
        if self._planner is not None:
            self._planner.close()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_planner": None}


class Planner:
    """What a stream's driver remembers between micro-batches of one run. Nothing in it outlives the run."""

    def __init__(self, options: Options, clock: Callable[[], float] = time.monotonic) -> None:
        self.options = options
        self.logs = Logs(options)
        self._clock = clock
        self._view: View | None = None
        self._partitions: list[TopicPartition] = []
        self._ids: Mapping[str, str] = {}
        self._topics_at = float("-inf")
        self._ceiling: View | None = None
        self._told: set[str] = set()
        self._asked = None if options.choice is None else asks(options.choice)
        self._batch_at: float | None = None
        # Logs that a new leader has as they were read: (epoch then, epoch now, position).
        self._whole: dict[TopicPartition, tuple[int, int, int]] = {}
        self._group = Group(self.logs, options.commit_group_id, clock)

    def next_end(self, start: Offsets, most: int | None, *, patient: bool) -> Offsets:
        """The end of the next batch; the very `start` if there is none. `patient` heeds
        minOffsetsPerTrigger.
        """
        view, starts = self._looked(start)
        end = advance(start, view, starts, limit=most, ceiling=self._ceiling)
        if end is start:
            return start
        if patient and self._ceiling is None:
            since = None if self._batch_at is None else int((self._clock() - self._batch_at) * 1000)
            least, longest = self.options.min_offsets_per_trigger, self.options.max_trigger_delay_ms
            # All that is there counts: shares of a limit are rounded down, and might never be enough.
            whole = end if most is None else advance(start, view, starts)
            if waits(waiting(start, whole), least, since, longest):
                return start
        self._batch_at = self._clock()
        return end

    def _looked(self, start: Offsets) -> tuple[View, dict[TopicPartition, int]]:
        """The logs, and from where those are read that need a start. Topics may come and go meanwhile."""
        for left in reversed(range(LOOKS)):
            try:
                view, found = self._changes(start)
                return view, self._starts(start, view, found)
            except UnknownTopic:
                if not left or start.new:
                    raise
                self._topics_at = float("-inf")
        raise AssertionError("the last look returns or raises")

    def stop_at_present_ends(self) -> None:
        """Read nothing that comes after this moment."""
        self._ceiling = self.logs.view(strict=False)

    def report(self) -> dict[str, object] | None:
        """The last known ends, in the form of an offset."""
        return None if self._view is None else Offsets(self._view.ends, begun=True).to_json()

    def commit(self, completed: Offsets) -> None:
        """Show the group's offsets, if there is a group."""
        self._group.commit(completed)

    def close(self) -> None:
        """Close the connections."""
        self.logs.close()

    def _look(self, start: Offsets, *, afresh: bool = False) -> View:
        """The logs as of now, or of a moment ago. A new query insists that all of them are there."""
        view = None
        if self._clock() - self._topics_at < self._topics_max_age and not afresh:
            with suppress(UnknownTopic):  # then it is high time to look for topics
                view = self.logs.look(self._partitions, self._ids)
        if view is None:
            if start.new:
                view = self.logs.view()
            else:
                view = self.logs.view({p.topic for p in start.positions}, strict=False)
            self._partitions, self._ids, self._topics_at = list(view.ends), view.ids, self._clock()
        self._view = view
        return view

    @property
    def _topics_max_age(self) -> float:
        few = self.logs.described < MANY_PARTITIONS
        return self.options.number("metadata.max.age.ms", 0 if few else TOPICS_MAX_AGE_MS) / 1000

    def _changes(self, start: Offsets) -> tuple[View, Changes]:
        """The logs, and what happened to them. Raises DataLoss unless that is allowed."""
        view = self._with_cuts(start, self._look(start))
        found = changes(start, view, self._asked)
        if found.losses:
            # A log that seems cut off may be another topic's, made anew since topics were looked for.
            view = self._with_cuts(start, self._look(start, afresh=True))
            found = changes(start, view, self._asked)
        short = [p for p in found.cut if p not in view.cuts]
        if short and self.logs.isolation == "read_committed":
            # Read as uncommitted before this run: the query waits until transactions end, nothing was cut
            # off.
            tops = self.logs.ends(short, isolation="read_uncommitted")
            ends = {p: max(view.ends[p], min(start.positions[p], top)) for p, top in tops.items()}
            view = replace(view, ends={**view.ends, **ends})
            found = changes(start, view, self._asked)
        self._lose(found.losses)
        return view, found

    def _lose(self, losses: tuple[str, ...]) -> None:
        """Raise DataLoss, or say once what is allowed to be lost."""
        lose([loss for loss in losses if loss not in self._told], self.options)
        self._told.update(losses)

    def _with_cuts(self, start: Offsets, view: View) -> View:
        """The view, with where logs were cut off below the position: who has a new leader is asked once."""
        asked = {p: (epoch, view.epochs[p], start.positions[p]) for p, epoch in moved(start, view).items()}
        unknown = {p: what[0] for p, what in asked.items() if self._whole.get(p) != what}
        if not unknown:
            return view
        ends = self.logs.epoch_ends(unknown)
        cuts = {p: end for p, end in ends.items() if end < start.positions[p]}
        self._whole.update({p: asked[p] for p in unknown if p not in cuts})
        return replace(view, cuts=cuts)

    def _starts(self, start: Offsets, view: View, found: Changes) -> dict[TopicPartition, int]:
        """A first position for every partition that needs one."""
        if start.new:
            return self.logs.begin(self.options.starting or Everywhere("latest"), view)
        starts: dict[TopicPartition, int] = {p: view.ends[p] for p in found.cut}
        if view.cuts:
            first = self.logs.starts(view.cuts)
            starts.update({p: min(view.ends[p], max(first[p], at)) for p, at in view.cuts.items()})
        # What came later is read from its beginning, whatever startingOffsets says: nothing of it was seen.
        late = [p for p in [*found.new, *found.remade] if p not in starts]
        if late:
            begin = self.logs.starts(late)
            self._lose(tuple(trimmed({p: begin[p] for p in found.new if p in begin})))
            starts.update(begin)
        return starts


class Group:
    """The offsets of a consumer group, kept up to date for those who look at lag. Never raises."""

    # Long enough for a coordinator that is there; a query doesn't wait longer for one that isn't.
    TIMEOUT_S = 2.0
    FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0

    def __init__(self, logs: Logs, name: str | None, clock: Callable[[], float]) -> None:
        self._logs = logs
        self._name = name
        self._clock = clock
        self._done: Mapping[TopicPartition, int] = {}
        self._pause = 0.0
        self._not_before = float("-inf")

    def commit(self, completed: Offsets) -> None:
        """Commit what changed since the last success; after a failure, not before a pause that doubles."""
        changed = {p: n for p, n in completed.positions.items() if self._done.get(p) != n}
        if self._name is None or not changed or self._clock() < self._not_before:
            return
        try:
            self._logs.cluster.commit_offsets(self._name, changed, timeout=self.TIMEOUT_S)
        except (KprotoError, OSError) as e:
            self._pause = min(self.LONGEST_PAUSE_S, self._pause * 2 or self.FIRST_PAUSE_S)
            self._not_before = self._clock() + self._pause
            log.warning("offsets of group %s are not committed, the query goes on: %s", self._name, e)
        else:
            self._done = completed.positions
            self._pause = 0.0
