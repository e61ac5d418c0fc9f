"""Monitors streaming queries: computes their lag, and logs one line for each batch.

Spark has no metrics interface for Python sources. But a query's progress contains the offsets at which a
batch began and ended, and the end of each log (`startOffset`, `endOffset`, `latestOffset`). From these, this
module computes the metrics of Spark's own source.

The metrics are available for queries with kproto's source and with Spark's own. Spark's UI shows the numbers
of rows and bytes that came from Python.

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

# The maximum number of partitions that a log line names.
_MAX_NAMED_PARTITIONS = 4


@dataclass(frozen=True, slots=True)
class Behind:
    """The lag of one source of a query, after a batch that has read from `start` to `end`.

    `start`, `end` and `latest` map a partition to an offset. The batch has read from `start` up to, but not
    including, `end`. `latest` contains the end of each log when the batch was planned.

    `rows_per_second` is the number of rows divided by the duration of the batch.
    """

    rows: int
    start: Positions
    end: Positions
    latest: Positions
    rows_per_second: float

    @property
    def offsets(self) -> dict[TopicPartition, int]:
        """Return the lag of each partition: the number of offsets by which the query is behind."""
        return {p: max(0, latest - self.end.get(p, 0)) for p, latest in sorted(self.latest.items())}

    @property
    def seconds(self) -> float | None:
        """Return the seconds until the query has caught up, or None if its rate is unknown.

        The result is based on the rate (rows per second) of this batch.
        """
        waiting = sum(self.offsets.values())
        if not waiting:
            return 0.0
        return waiting / self.rows_per_second if self.rows_per_second else None

    @property
    def metrics(self) -> dict[str, str]:
        """Return the metrics of Spark's own source, under its names and in its number format."""
        counts = self.offsets.values()
        if not counts:
            return {}
        return {
            "minOffsetsBehindLatest": str(min(counts)),
            "maxOffsetsBehindLatest": str(max(counts)),
            "avgOffsetsBehindLatest": str(sum(counts) / len(counts)),
        }

    def __str__(self) -> str:
        read = {p: self.end[p] - start for p, start in self.start.items() if self.end.get(p, start) != start}
        waiting = {p: n for p, n in self.offsets.items() if n}
        ranges = _describe_largest(
            read, lambda p: f"{p.topic}-{p.partition} {self.start[p]} to {self.end[p]}"
        )
        summary = f"{self.rows} rows ({ranges or 'no offsets'})"
        if not waiting:
            return f"{summary}, nothing waits"
        duration = "" if self.seconds is None else f", {self.seconds:.0f} s at this speed"
        partitions = _describe_largest(waiting, lambda p: f"{waiting[p]} in {p.topic}-{p.partition}")
        return f"{summary}, {sum(waiting.values())} wait{duration} ({partitions})"


def behind(progress: Mapping[str, Any] | None) -> list[Behind]:
    """Return the lag of each Kafka source of a query, from ``query.lastProgress``.

    `progress` may also be a parsed JSON object, as in Spark Connect. Before the first batch it is None, and
    the result is empty. Sources other than Kafka are omitted.
    """
    result: list[Behind] = []
    if progress is None:
        return result
    for source in progress["sources"]:
        begin, end, latest = (
            _parse_offsets(source[name]) for name in ("startOffset", "endOffset", "latestOffset")
        )
        if end is None or latest is None:
            continue
        previous: Positions = {} if begin is None else begin.positions
        # `began` contains the first offsets of the partitions that are new in this batch.
        start = {p: end.began.get(p, previous.get(p, 0)) for p in end.positions}
        # Spark omits a rate that is infinite or NaN from the JSON.
        rows_per_second = float(source.get("processedRowsPerSecond") or 0)
        result.append(
            Behind(int(source["numInputRows"]), start, end.positions, latest.positions, rows_per_second)
        )
    return result


def log_batches(spark: SparkSession) -> None:
    """Log one line, from `describe_batch`, for each batch of every query of this session."""
    from pyspark.sql.streaming.listener import StreamingQueryListener

    class BatchLogger(StreamingQueryListener):
        def onQueryStarted(self, event: Any) -> None:
            pass

        def onQueryProgress(self, event: Any) -> None:
            log.info("%s", describe_batch(event.progress))

        def onQueryIdle(self, event: Any) -> None:
            pass

        def onQueryTerminated(self, event: Any) -> None:
            pass

    spark.streams.addListener(BatchLogger())


def describe_batch(progress: Mapping[str, Any]) -> str:
    """Describe a batch in one line: the query, the duration, the records that were read, and the lag."""
    name = progress["name"] or f"query {str(progress['id'])[:8]}"
    rows = sum(int(source["numInputRows"]) for source in progress["sources"])
    sources = "; ".join(map(str, behind(progress))) or f"{rows} rows"
    return f"{name}, batch {progress['batchId']}, {int(progress['batchDuration']) / 1000:.1f} s: {sources}"


def _describe_largest(counts: Mapping[TopicPartition, int], describe: Callable[[TopicPartition], str]) -> str:
    """Describe the partitions with the most offsets in `counts`, and say how many others there are.

    The partitions are sorted by topic and number.
    """
    largest = sorted(counts, key=lambda p: (-counts[p], p))[:_MAX_NAMED_PARTITIONS]
    unnamed = len(counts) - len(largest)
    remainder = [f"{unnamed} more"] if unnamed else []
    return ", ".join([*map(describe, sorted(largest)), *remainder])


def _parse_offsets(text: object) -> Offsets | None:
    """Parse an offset in a query's progress. Return None if it is not an offset of this source.

    `text` is JSON, or the object that was parsed from it.
    """
    try:
        value: object = json.loads(text) if isinstance(text, str) else text
        return Offsets.from_json(cast("dict[str, object]", value)) if isinstance(value, dict) else None
    except ValueError:
        return None
