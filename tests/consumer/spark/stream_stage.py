"""Run a streaming query: the methods of the reader are called in the same order as in Spark."""

from __future__ import annotations

import json
import pickle
from typing import Any

from pyspark.sql.streaming.datasource import ReadLimit

from consumer.spark.options import parse
from consumer.spark.schema import full_schema
from consumer.spark.stream import KprotoStreamReader, Planner
from tests.consumer.spark.stage import Filled

Offset = dict[str, Any]


class Run:
    """Plans batches as Spark does, with a clock that the test advances."""

    def __init__(self, filled: Filled, start: Offset | None = None, **more: str | int) -> None:
        options = parse(filled.options(**more))
        self.reader = KprotoStreamReader(full_schema(options), options)
        self.now = 100.0
        self.reader._planner = Planner(options, lambda: self.now)
        self.at: Offset = self.reader.initialOffset() if start is None else start

    def poll(self, limit: ReadLimit | None = None, *, later: float = 2.0) -> Offset | None:
        """Advance the clock by `later` seconds, by default far enough to detect new topics.

        Return the offsets at which the next batch ends, or None if there is no next batch.
        """
        self.now += later
        end = self.reader.latestOffset(self.at, limit or self.reader.getDefaultReadLimit())
        return None if json.dumps(end) == json.dumps(self.at) else json.loads(json.dumps(end))

    def batch(self, limit: ReadLimit | None = None, *, later: float = 2.0) -> dict[str, list[int]] | None:
        """Plan and read the next batch. Return its offsets by partition, or None if there is no batch."""
        end = self.poll(limit, later=later)
        if end is None:
            return None
        rows = self.rows(self.at, end)
        self.at = end
        return rows

    def rows(self, start: Offset, end: Offset) -> dict[str, list[int]]:
        """Return the offsets that a batch reads in each partition."""
        offsets: dict[str, list[int]] = {}
        for partition in self.reader.partitions(start, end):
            for batch in pickle.loads(pickle.dumps(self.reader)).read(partition):
                for row in batch.select(["topic", "partition", "offset"]).to_pylist():
                    offsets.setdefault(f"{row['topic']}-{row['partition']}", []).append(row["offset"])
        return offsets
