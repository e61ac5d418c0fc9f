"""A task of the Spark sink, run in a process that test_spark_exactly_once.py may kill."""

from __future__ import annotations

import pickle
import time
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
from pyspark import TaskContext


def run(writer: Any, partition: int, batch: int, values: Iterable[str], pause_s: float = 0.0) -> None:
    """Call a writer as Spark's worker does. Rows arrive one by one, with `pause_s` seconds between them."""
    TaskContext._taskContext = None
    context: Any = TaskContext._getOrCreate()
    context._partitionId = partition
    context._localProperties = {"sql.streaming.queryId": "q", "streaming.sql.batchId": str(batch)}

    def batches() -> Iterator[pa.RecordBatch]:
        for value in values:
            yield pa.RecordBatch.from_pydict({"value": [value]})
            time.sleep(pause_s)

    pickle.loads(pickle.dumps(writer)).write(batches())
