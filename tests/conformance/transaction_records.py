"""Reads the committed records of a transactional producer's topic with two consumers.

One consumer is kproto's, and the other librdkafka's, both with read_committed.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import pytest

from consumer import Admin, Consumer, TopicPartition
from kproto.broker.server import running
from tests.conformance import judges


class Place:
    """A topic with two partitions, and its committed records."""

    def __init__(self, bootstrap: str, cluster: Admin, kind: Callable[..., Any]) -> None:
        self.bootstrap, self.cluster, self.kind = bootstrap, cluster, kind
        self.name = f"txn-{uuid4().hex[:10]}"
        cluster.create_topics({self.name: 2})
        self.partitions = [TopicPartition(self.name, number) for number in range(2)]

    def producer(self, **options: int) -> Any:
        options = {"max_block_ms": 300_000, **options}
        return self.kind(self.bootstrap, transactional_id=self.name, **options)

    def ends(self, isolation: str) -> dict[TopicPartition, int]:
        offsets = self.cluster.list_offsets(dict.fromkeys(self.partitions, "latest"), isolation=isolation)
        return {partition: at.offset or 0 for partition, at in offsets.items()}

    def settled(self) -> None:
        """Wait until no transaction is open. The response to EndTxn arrives before the markers."""
        deadline = time.monotonic() + 300
        while self.ends("read_committed") != self.ends("read_uncommitted"):
            assert time.monotonic() < deadline, "a transaction is still open"
            time.sleep(0.05)

    def ours(self) -> list[str]:
        """Return the committed records that kproto's consumer reads."""
        ends, values = self.ends("read_committed"), list[str]()
        options = {"auto_offset_reset": "earliest", "isolation_level": "read_committed"}
        with Consumer(self.bootstrap, **options) as consumer:  # type: ignore[arg-type]
            consumer.assign(self.partitions)
            deadline = time.monotonic() + 300
            while any(consumer.position(partition) < end for partition, end in ends.items()):
                assert time.monotonic() < deadline
                values += [(record.value or b"").decode() for record in consumer.poll(0.5)]
        return sorted(values)

    def theirs(self) -> list[str]:
        """Return the committed records that librdkafka reads."""
        confluent_kafka = pytest.importorskip("confluent_kafka")
        settings = {
            "bootstrap.servers": self.bootstrap, "group.id": uuid4().hex, "auto.offset.reset": "earliest",
            "isolation.level": "read_committed", "enable.partition.eof": True, "enable.auto.commit": False,
        }  # fmt: skip
        consumer, values, over = confluent_kafka.Consumer(settings), list[str](), set[int]()
        consumer.assign([confluent_kafka.TopicPartition(self.name, number, 0) for number in range(2)])
        deadline = time.monotonic() + 300
        while len(over) < 2:
            assert time.monotonic() < deadline
            message = consumer.poll(1)
            if message is None:
                continue
            if message.error():
                over.add(message.partition())
            else:
                values.append(message.value().decode())
        consumer.close()
        return sorted(values)

    def seen(self) -> list[str]:
        """Return the committed records, after checking that both consumers read the same ones."""
        self.settled()
        ours = self.ours()
        assert self.theirs() == ours
        return ours


@contextlib.contextmanager
def bootstrap_of(broker: str, request: pytest.FixtureRequest) -> Iterator[str]:
    """Yield the address of the real Kafka if `broker` is "kafka", else that of a new embedded broker."""
    if broker == "kafka":
        real: judges.RealKafka = request.getfixturevalue("real_kafka")
        yield real.bootstrap
    else:
        with running() as server:
            yield server.bootstrap
