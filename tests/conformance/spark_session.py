"""One Spark session for all Spark tests, and the brokers that the tests read from."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from kproto.testing import brokers
from tests.conformance import judges
from tests.consumer.spark.stage import Filled

RowWriter = list[dict[str, Any]]


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The Spark session of all tests, made by `consumer.spark.session`, with Spark's event log enabled."""
    try:
        import pyspark  # noqa: F401
    except ImportError:
        judges.missing("PySpark (pip install 'kproto[spark]')")
    judges.java()
    from consumer.spark import session

    settings = {
        "spark.driver.memory": "512m",
        "spark.sql.session.timeZone": "UTC",
        "spark.jars": ",".join(sparks_own_jars()),
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": tmp_path_factory.mktemp("events").as_uri(),
    }
    started = session("tests", quick=True, settings=settings)
    yield started
    started.stop()


def sparks_own_jars() -> list[str]:
    """Return the jars of Spark's own Kafka source, or no jars if Maven is unavailable."""
    spark, token = "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0", "spark-token-provider-kafka-0-10_2.13"
    try:
        jars = brokers.maven_jars("spark-kafka-4.2.0", (spark, f"org.apache.spark:{token}:4.0.0"))
    except brokers.BrokerMissing:
        return []
    wanted = ("spark-sql-kafka", "spark-token", "kafka-clients", "commons-pool2")
    return [str(jar) for jar in Path(jars).parent.glob("*.jar") if jar.name.startswith(wanted)]


@pytest.fixture(scope="session")
def sparks_own() -> None:
    """Skip the test if the jars of Spark's own Kafka source are unavailable."""
    if not sparks_own_jars():
        judges.missing("Spark's own Kafka source (Maven fetches it)")


class Kafka(Filled):
    """A broker, and a unique topic name."""

    def __init__(self, bootstrap: str, name: str) -> None:
        super().__init__(bootstrap)
        self.name = name

    def options(self, **more: str | int) -> dict[str, str]:
        options = super().options(**more)
        return {k: self.name if (k, v) == ("subscribe", "t") else v for k, v in options.items()}

    def fill(self, *counts: int) -> None:
        """Create the topic with a partition for each of `counts`, and write that number of records to it."""
        self.topic(self.name, *counts)

    def offsets(self, *positions: int) -> str:
        """Return the offsets of the topic's partitions as JSON."""
        inner = ", ".join(f'"{i}": {position}' for i, position in enumerate(positions))
        return f'{{"{self.name}": {{{inner}}}}}'


@pytest.fixture(params=["embedded", pytest.param("real", marks=pytest.mark.kafka)])
def kafka(request: pytest.FixtureRequest) -> Iterator[Kafka]:
    """Run the test once with the embedded broker and once with a real Kafka."""
    broker = request.getfixturevalue("embedded" if request.param == "embedded" else "real_kafka")
    kafka = Kafka(broker.bootstrap, f"t-{uuid4().hex[:12]}")
    with kafka.cluster:
        yield kafka


def started(writer: Any) -> Any:
    """Start a query, and return it when it has made progress or has ended.

    The query is started again if it fails before the source has run. Spark waits only 10 s for the Python
    process that plans a stream, and a slow machine may need longer.
    """
    while True:
        query = writer.start()
        while query.isActive and query.lastProgress is None:
            time.sleep(0.05)
        if "Python worker failed to connect back" not in str(query.exception()):
            return query


class Query:
    """A query with a checkpoint. Each `run` starts the query, reads to the end, and stops it."""

    def __init__(self, spark: Any, checkpoint: Path) -> None:
        self.spark = spark
        self.checkpoint = checkpoint
        self.progress: list[dict[str, Any]] = []
        self.batches: list[list[tuple[int, int]]] = []

    def run(
        self, options: dict[str, str], act: Callable[[int], None] = lambda _: None
    ) -> list[list[tuple[int, int]]]:
        """Run the query, and return a list of (partition, offset) for each batch of this run.

        `act` is called with the number of each batch, after the rows of the batch were read.
        """
        done: list[list[tuple[int, int]]] = []

        def see(frame: Any, number: int) -> None:
            rows = sorted(
                (row["partition"], row["offset"]) for row in frame.select("partition", "offset").collect()
            )
            act(number)
            done.append(rows)

        stream = self.spark.readStream.format("kproto").options(**options).load()
        writer = stream.writeStream.foreachBatch(see).option("checkpointLocation", str(self.checkpoint))
        query = started(writer.trigger(availableNow=True))
        try:
            assert query.awaitTermination(120), "the query hangs"
        finally:
            self.progress = [dict(p) for p in query.recentProgress]
            query.stop()
            self.batches = done
        return done


@pytest.fixture
def query(spark: Any, tmp_path: Path) -> Query:
    """Return a new query, whose checkpoint does not exist yet."""
    return Query(spark, tmp_path / "checkpoint")
