"""Plan and read batches as Spark does, against the embedded broker, without a JVM."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from consumer.spark.offsets import DataLoss
from consumer.spark.options import parse
from consumer.spark.reader import KprotoReader
from consumer.spark.schema import full_schema
from kproto.errors import ConfigError, UnknownTopic
from kproto.group.subscription import TopicPartition
from tests.consumer.spark.stage import Filled, runs

T0 = TopicPartition("t", 0)


def reader(filled: Filled, /, schema: StructType | None = None, **more: Any) -> KprotoReader:
    """Return a batch reader of the topic "t" with these options."""
    options = parse(filled.options(**more))
    return KprotoReader(full_schema(options) if schema is None else schema, options)


def table(filled: Filled, /, schema: StructType | None = None, **more: Any) -> pa.Table:
    """Plan and read a batch. As in Spark, the reader is pickled for the executor."""
    planned = reader(filled, schema, **more)
    sent = pickle.loads(pickle.dumps(planned))
    batches = [b for p in planned.partitions() for b in sent.read(pickle.loads(pickle.dumps(p)))]
    return pa.Table.from_batches(batches, to_arrow_schema(planned.schema, timezone="UTC"))


def offsets(filled: Filled, **more: Any) -> list[tuple[int, int, int]]:
    """Return (partition, first, last) for each range of consecutive offsets that a batch reads."""
    columns = table(filled, **more).to_pydict()
    rows = sorted(zip(columns["partition"], columns["offset"], strict=True))
    return [
        (partition, first, last)
        for partition in sorted(set(columns["partition"]))
        for first, last in runs([offset for number, offset in rows if number == partition])
    ]


def failure(filled: Filled, **more: Any) -> Exception:
    """Return the error that a batch with these options raises."""
    with pytest.raises((ConfigError, DataLoss, UnknownTopic)) as raised:
        table(filled, **more)
    return raised.value


def read_offsets(planned: KprotoReader, slices: Sequence[InputPartition]) -> list[tuple[int, int]]:
    """Read a batch in a later action of Spark, which reuses the plan. Return (partition, offset) of each
    record.
    """
    sent = pickle.loads(pickle.dumps(planned))
    batches = [batch.to_pydict() for slice_ in slices for batch in sent.read(slice_)]
    return sorted(place for b in batches for place in zip(b["partition"], b["offset"], strict=True))
