"""What operators look at: how far a query is behind, and a line in the log for each batch.

Spark gives a Python source no metrics of its own: a query's progress shows the offsets where a batch began
and ended and those of the logs' ends (`startOffset`, `endOffset`, `latestOffset`), and Spark's UI the rows
and bytes that came from Python. What Spark's own source shows as metrics follows from the offsets, and is
counted here, for its progress as well as for this one's.

    for source in behind(query.lastProgress):
        print(source.metrics)          # {"minOffsetsBehindLatest": "0", "maxOffsetsBehindLatest": "7", ...}

    log_batches(spark)                 # to the logger consumer.spark.progress, at INFO
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from kproto.group.subscription import TopicPartition

from .offsets import Offsets, Positions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

# So many partitions are named in a line.
_NAMED = 4


@dataclass(frozen=True, slots=True)
class Behind:
    """Where one source of a query is after a batch that read from `start` to `end`, when the logs ended at
    `latest`. Offsets are those of the next record; `rows_per_second` is the speed of that batch.
    """

    rows: int
    start: Positions
    end: Positions
    latest: Positions
    rows_per_second: float

    @property
    def offsets(self) -> dict[TopicPartition, int]:
        """How many offsets of each partition were not read yet when the batch was planned."""
        return {p: max(0, latest - self.end.get(p, 0)) for p, latest in sorted(self.latest.items())}

    @property
    def seconds(self) -> float | None:
        """How long it takes to catch up at the speed of this batch; None if there is no telling."""
        waiting = sum(self.offsets.values())
        if not waiting:
            return 0.0
        return waiting / self.rows_per_second if self.rows_per_second else None

    @property
    def metrics(self) -> dict[str, str]:
        """By the names, and in the form, in which Spark's own source has them in its progress."""
        found = self.offsets.values()
        if not found:
            return {}
        return {
            "minOffsetsBehindLatest": str(min(found)),
            "maxOffsetsBehindLatest": str(max(found)),
            "avgOffsetsBehindLatest": str(sum(found) / len(found)),
        }

    def __str__(self) -> str:
        read = {p: self.end[p] - start for p, start in self.start.items() if self.end.get(p, start) != start}
        waiting = {p: n for p, n in self.offsets.items() if n}
        ranges = _named(read, lambda p: f"{p.topic}-{p.partition} {self.start[p]} to {self.end[p]}")
        said = f"{self.rows} rows ({ranges or 'no offsets'})"
        if not waiting:
            return f"{said}, nothing waits"
        soon = "" if self.seconds is None else f", {self.seconds:.0f} s at this speed"
        which = _named(waiting, lambda p: f"{waiting[p]} in {p.topic}-{p.partition}")
        return f"{said}, {sum(waiting.values())} wait{soon} ({which})"


def behind(progress: Mapping[str, Any] | None) -> list[Behind]:
    """How far each Kafka source of a query is, after a batch's progress (``query.lastProgress``; None, before
    the first, gives none).

    Sources of other kinds are left out. A progress may have been read from its JSON, as in Spark Connect.
    """
    found: list[Behind] = []
    if progress is None:
        return found
    for source in progress["sources"]:
        begin, end, latest = (_offsets(source[name]) for name in ("startOffset", "endOffset", "latestOffset"))
        if end is None or latest is None:
            continue
        before: Positions = {} if begin is None else begin.positions
        start = {p: end.began.get(p, before.get(p, 0)) for p in end.positions}
        # A JSON has none where it is no number.
        speed = float(source.get("processedRowsPerSecond") or 0)
        found.append(Behind(int(source["numInputRows"]), start, end.positions, latest.positions, speed))
    return found


def log_batches(spark: SparkSession) -> None:
    """Log a line for each batch of every query of this session, as `line` has it."""
    from pyspark.sql.streaming.listener import StreamingQueryListener

    class Batches(StreamingQueryListener):
        def onQueryStarted(self, event: Any) -> None:
            pass

        def onQueryProgress(self, event: Any) -> None:
            log.info("%s", line(event.progress))

        def onQueryIdle(self, event: Any) -> None:
            pass

        def onQueryTerminated(self, event: Any) -> None:
            pass

    spark.streams.addListener(Batches())


def line(progress: Mapping[str, Any]) -> str:
    """A batch in one line: the query, how long it took, what it read of which partitions, what waits."""
    name = progress["name"] or f"query {str(progress['id'])[:8]}"
    rows = sum(int(source["numInputRows"]) for source in progress["sources"])
    sources = "; ".join(map(str, behind(progress))) or f"{rows} rows"
    return f"{name}, batch {progress['batchId']}, {int(progress['batchDuration']) / 1000:.1f} s: {sources}"


def _named(counts: Mapping[TopicPartition, int], say: Callable[[TopicPartition], str]) -> str:
    """The partitions with the largest counts, in order; the rest as a number."""
    largest = sorted(counts, key=lambda p: (-counts[p], p))[:_NAMED]
    more = [f"{len(counts) - _NAMED} more"] if len(counts) > _NAMED else []
    return ", ".join([*map(say, sorted(largest)), *more])


def _offsets(text: object) -> Offsets | None:
    """The offsets that a progress shows, as text or read; None if they are not Kafka's."""
    try:
        read: object = json.loads(text) if isinstance(text, str) else text
        return Offsets.from_json(cast("dict[str, object]", read)) if isinstance(read, dict) else None
    except ValueError:
        return None
