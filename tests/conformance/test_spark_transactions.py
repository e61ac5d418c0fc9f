"""The Spark source returns aborted records only with read_uncommitted, and waits for open transactions.

librdkafka writes the transactions to a real Kafka, and the source reads them without a JVM.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest

from kproto.group.subscription import TopicPartition
from tests.conformance import judges
from tests.consumer.spark.stage import Filled

pytestmark = [pytest.mark.kafka, pytest.mark.clients, pytest.mark.spark]


class Transactions:
    """A topic with one partition, and a transactional producer."""

    def __init__(self, bootstrap: str) -> None:
        try:
            from confluent_kafka import Producer
        except ImportError:
            judges.missing("confluent-kafka")
        self.filled = Filled(bootstrap)
        self.topic = f"transactions-{uuid4().hex[:12]}"
        self.filled.topic(self.topic, 0)
        settings = {"bootstrap.servers": bootstrap, "transactional.id": self.topic}
        self.producer = Producer(settings)
        self.producer.init_transactions(30)

    def write(self, *values: str, end: str) -> None:
        """Write one transaction, and end it with "commit" or "abort". With "nothing" it stays open."""
        self.producer.begin_transaction()
        for value in values:
            self.producer.produce(self.topic, value)
        self.producer.flush(30)
        if end == "nothing":
            return
        before = self.end("read_uncommitted")
        (self.producer.commit_transaction if end == "commit" else self.producer.abort_transaction)(30)
        # The response arrives before the marker is in the log, so the test waits.
        deadline = time.monotonic() + 30
        while not before < self.end("read_uncommitted") == self.end("read_committed"):
            assert time.monotonic() < deadline, "no marker"
            time.sleep(0.05)

    def end(self, isolation: str) -> int:
        partition = TopicPartition(self.topic, 0)
        return (
            self.filled.cluster.list_offsets({partition: "latest"}, isolation=isolation)[partition].offset
            or 0
        )

    def read(self, isolation: str, **more: Any) -> list[tuple[int, str]]:
        pytest.importorskip("pyspark")
        from consumer.spark.options import parse
        from consumer.spark.reader import KprotoReader
        from consumer.spark.schema import full_schema

        options = self.filled.options(subscribe=self.topic, kafka_isolation_level=isolation, **more)
        reader = KprotoReader(full_schema(parse(options)), parse(options))
        rows = [row for p in reader.partitions() for b in reader.read(p) for row in b.to_pylist()]
        return [(row["offset"], row["value"].decode()) for row in rows]


@pytest.fixture
def transactions(real_kafka: judges.RealKafka) -> Iterator[Transactions]:
    transactions = Transactions(real_kafka.bootstrap)
    with transactions.filled.cluster:
        yield transactions


def test_aborted_records_are_rows_only_with_read_uncommitted(transactions: Transactions) -> None:
    transactions.write("a", "b", end="commit")
    transactions.write("x", "y", "z", end="abort")
    transactions.write("c", end="commit")
    committed = [(0, "a"), (1, "b"), (7, "c")]
    assert transactions.read("read_committed") == committed
    assert transactions.read("read_uncommitted") == sorted([*committed, (3, "x"), (4, "y"), (5, "z")])


def test_slices_that_start_inside_a_transaction_omit_aborted_records(
    transactions: Transactions,
) -> None:
    transactions.write(*"abcd", end="abort")
    transactions.write(*"efgh", end="commit")
    assert [value for _, value in transactions.read("read_committed", minPartitions=10)] == list("efgh")


def test_a_log_of_aborted_records_is_empty_without_waiting(
    transactions: Transactions,
) -> None:
    transactions.write("x", end="abort")
    assert transactions.read("read_committed") == []


def test_read_committed_ends_at_an_open_transaction(transactions: Transactions) -> None:
    transactions.write("a", end="commit")
    transactions.write("b", "c", end="nothing")
    assert transactions.read("read_committed") == [(0, "a")]
    assert transactions.read("read_uncommitted") == [(0, "a"), (2, "b"), (3, "c")]


def test_a_query_that_switches_to_read_committed_waits(transactions: Transactions) -> None:
    pytest.importorskip("pyspark")
    from consumer.spark.offsets import Offsets
    from consumer.spark.options import parse
    from consumer.spark.stream import Planner

    transactions.write("a", "b", end="nothing")
    options = transactions.filled.options(
        subscribe=transactions.topic, kafka_isolation_level="read_committed"
    )
    read = Offsets({TopicPartition(transactions.topic, 0): 2})
    assert Planner(parse(options)).next_end(read, None, patient=False) is read
