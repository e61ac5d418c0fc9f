"""The demo's Spark query: departures and delays per origin and hour, read from the topic.

with hourly_query(bootstrap, "flights") as query:
    ...                            # the query runs during the block
    rows = query.result(336_776)   # (origin, hour) -> Total, once that many departures were read
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import time
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from consumer.security.properties import about_security

from .flights import Total

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

# Maximum time in seconds to wait for Spark to read the departures, after all of them were produced.
_PATIENCE_S = 60.0


class HourlyQuery:
    """A running query."""

    def __init__(self, spark: SparkSession, query: StreamingQuery) -> None:
        self._spark, self._query = spark, query

    def result(self, produced: int) -> dict[tuple[str, int], Total]:
        """Wait until `produced` departures are read; return (origin, hour) -> totals.

        `hour` is the start of the hour, in ms since 1970.

        If Spark needs more than a minute to read `produced` departures, the result contains only the
        departures that it has read.
        """
        from pyspark.sql import functions as f

        deadline = time.monotonic() + _PATIENCE_S
        while True:
            self._query.processAllAvailable()
            columns = ("origin", f.unix_millis("hour").alias("at"), "departures", "flown", "delay")
            rows = self._spark.table("hourly").select(*columns).collect()
            if sum(row.departures for row in rows) >= produced or time.monotonic() > deadline:
                return {
                    (row.origin, row["at"]): Total(row.departures, row.flown, row.delay or 0) for row in rows
                }


@contextlib.contextmanager
def hourly_query(bootstrap: str, topic: str, command_config: Path | None = None) -> Generator[HourlyQuery]:
    """Start Spark and the query; `command_config` is the path of a secured cluster's client.properties.

    Raises MissingExtra, which says what to install, if PySpark or Java is missing.
    """
    from consumer.spark import session

    with tempfile.TemporaryDirectory(prefix="kproto-demo-", ignore_cleanup_errors=True) as scratch:
        log = Path(scratch, "spark.log")
        try:
            with _redirect_stderr(log):
                spark = session("kproto demo", quick=True, settings={"spark.sql.session.timeZone": "UTC"})
            try:
                security = {} if command_config is None else about_security(command_config)
                query = _start_query(spark, bootstrap, topic, f"{scratch}/checkpoint", security)
                try:
                    yield HourlyQuery(spark, query)
                finally:
                    query.stop()
            finally:
                spark.stop()
        except Exception:
            if log.exists():
                sys.stderr.write(log.read_text(errors="replace")[-3000:])
            raise


def _start_query(
    spark: SparkSession, bootstrap: str, topic: str, checkpoint: str, security: Mapping[str, str]
) -> StreamingQuery:
    from pyspark.sql import functions as f

    frame = (
        spark.readStream.format("kproto")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .options(**{f"kafka.{name}": value for name, value in security.items()})
        .load()
    )
    departure = f.from_json(f.col("value").cast("string"), "origin string, dep_delay int")
    hourly = (
        frame.select(departure.alias("d"), f.date_trunc("hour", "timestamp").alias("hour"))
        .groupBy("d.origin", "hour")
        .agg(
            f.count("*").alias("departures"),
            f.count("d.dep_delay").alias("flown"),
            f.sum("d.dep_delay").alias("delay"),
            f.avg("d.dep_delay").alias("mean_delay"),
        )
    )
    writer = hourly.writeStream.outputMode("complete").format("memory").queryName("hourly")
    return writer.option("checkpointLocation", checkpoint).trigger(processingTime="2 seconds").start()


@contextlib.contextmanager
def _redirect_stderr(path: Path) -> Generator[None]:
    """Redirect stderr to a file during the block, including the stderr of processes that the block starts.

    Without the redirection, Spark's workers would print errors when they end.
    """
    sys.stderr.flush()
    original = os.dup(2)
    with path.open("ab") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(original, 2)
        os.close(original)
