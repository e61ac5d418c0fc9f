"""Other clients read a compacted and trimmed log of the embedded broker from its start.

The expected records are computed from the writes, not read from the broker.
"""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from consumer import Admin, Producer
from kproto.broker.server import Server, running
from kproto.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from tests.conformance import judges
from tests.conformance.client_scenarios import SEED

Row = tuple[int, str, str | None]
NAME = "compacted"


class Regret(Exception):
    """Aborts a transaction."""


class Log:
    """All written records, and the records that a reader with read_committed has to receive."""

    def __init__(self, server: Server, random: Random) -> None:
        self.server, self.random = server, random
        self.rows: list[Row] = []
        self.everything: list[Row] = []

    def write(self, count: int) -> None:
        """Write plain batches and transactions; about half of the transactions are aborted."""
        plain = Producer(self.server.bootstrap, linger_ms=0)
        names = ("one", "other")
        transactional = [
            Producer(self.server.bootstrap, transactional_id=name, linger_ms=0) for name in names
        ]
        try:
            for _ in range(count):
                kind = self.random.choice(["plain", "committed", "aborted"])
                rows = self._sent(plain if kind == "plain" else self.random.choice(transactional), kind)
                self.everything += rows
                self.rows += rows if kind != "aborted" else []
        finally:
            for producer in (plain, *transactional):
                producer.close()

    def _sent(self, producer: Any, kind: str) -> list[Row]:
        if kind == "plain":
            return self._batch(producer)
        rows: list[Row] = []
        try:
            with producer.transaction():
                for _ in range(self.random.randint(1, 3)):
                    rows += self._batch(producer)
                if kind == "aborted":
                    raise Regret
        except Regret:
            pass
        return rows

    def _batch(self, producer: Any) -> list[Row]:
        pairs = [
            (self.random.choice("abcdef"), self.random.choice(["x", "y", None]))
            for _ in range(self.random.randint(1, 4))
        ]
        sent = [producer.send(NAME, value and value.encode(), key=key.encode()) for key, value in pairs]
        producer.flush()
        return [
            (delivery.result(20).offset, key, value)
            for delivery, (key, value) in zip(sent, pairs, strict=True)
        ]

    def clean(self) -> None:
        self.server.clean_logs()
        last = {key: at for at, key, _ in self.rows}
        self.rows = [row for row in self.rows if last[row[1]] == row[0]]
        remaining = {*self.rows}
        self.everything = [row for row in self.everything if row in remaining]

    def trim(self, cluster: Admin) -> None:
        before = self.random.choice(self.rows)[0]
        part = DeleteRecordsPartition(partition_index=0, offset=before)
        topic = DeleteRecordsTopic(name=NAME, partitions=[part])
        (topic_result,) = cluster.request(DeleteRecordsRequest(topics=[topic], timeout_ms=5_000)).topics
        assert topic_result.partitions[0].low_watermark == before
        self.rows = [row for row in self.rows if row[0] >= before]
        self.everything = [row for row in self.everything if row[0] >= before]


def java(place: str, isolation: str, count: int) -> list[Row]:
    """Read with Kafka's console consumer, which stops after `count` records."""
    tool = "org.apache.kafka.tools.consumer.ConsoleConsumer"
    words = ["--bootstrap-server", place, "--topic", NAME, "--from-beginning", "--isolation-level", isolation]
    for name in ("print.offset", "print.key"):
        words += ["--formatter-property", f"{name}=true"]
    words += ["--max-messages", str(count), "--timeout-ms", "30000"]
    command = [judges.java(), "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", judges.kafka_jars(), tool, *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=90)
    records: list[Row] = []
    for line in done.stdout.splitlines():
        at, key, value = line.split("\t")
        records.append((int(at.removeprefix("Offset:")), key, None if value == "null" else value))
    return records


def confluent(place: str, isolation: str, count: int) -> list[Row]:
    """Read with confluent-kafka until it reports the end of the partition."""
    import confluent_kafka as ck

    options = {"group.id": "g", "enable.partition.eof": True, "isolation.level": isolation}
    consumer = ck.Consumer({"bootstrap.servers": place, **options})
    consumer.assign([ck.TopicPartition(NAME, 0, ck.OFFSET_BEGINNING)])
    records: list[Row] = []
    while True:
        message = consumer.poll(30)
        assert message is not None, records
        if (error := message.error()) is not None:
            assert error.code() == ck.KafkaError._PARTITION_EOF, error
            consumer.close()
            return records
        value = message.value()
        records.append((message.offset(), message.key().decode(), None if value is None else value.decode()))


def aiokafka(place: str, isolation: str, count: int) -> list[Row]:
    """Read with aiokafka up to the end of the log."""

    async def read() -> list[Row]:
        import aiokafka as ak

        consumer = ak.AIOKafkaConsumer(bootstrap_servers=place, isolation_level=isolation)
        await consumer.start()
        try:
            partition = ak.TopicPartition(NAME, 0)
            consumer.assign([partition])
            await consumer.seek_to_beginning(partition)
            (end,) = (await consumer.end_offsets([partition])).values()
            records: list[Row] = []
            async with asyncio.timeout(60):
                while await consumer.position(partition) < end:
                    for record in (await consumer.getmany(timeout_ms=500)).get(partition, []):
                        value = None if record.value is None else record.value.decode()
                        records.append((record.offset, record.key.decode(), value))
            return records
        finally:
            await consumer.stop()

    return asyncio.run(read())


READERS: dict[str, Callable[[str, str, int], list[Row]]] = {
    "java": java,
    "confluent": confluent,
    "aiokafka": aiokafka,
}


@pytest.mark.parametrize(
    "reader",
    [
        pytest.param(name, marks=pytest.mark.java if name == "java" else pytest.mark.clients)
        for name in READERS
    ],
)
@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
@pytest.mark.parametrize("tail", [False, True])
def test_a_client_reads_a_compacted_and_trimmed_log(reader: str, isolation: str, tail: bool) -> None:
    seed = f"{SEED}-{reader}-{isolation}-{tail}"
    with running() as server, Admin(server.bootstrap) as cluster:
        server.create_topic(NAME, 1, {"cleanup.policy": "compact,delete"})
        log = Log(server, Random(seed))
        log.write(20)
        log.clean()
        log.write(10)
        log.clean()
        log.trim(cluster)
        if tail:
            log.write(8)
        shall = log.rows if isolation == "read_committed" else log.everything
        assert shall, seed
        assert READERS[reader](server.bootstrap, isolation, len(shall)) == shall, f"KPROTO_SEED={SEED}"
