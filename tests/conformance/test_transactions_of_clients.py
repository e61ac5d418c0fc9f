"""Transactions of other clients on the embedded broker: readers get exactly the committed records."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kproto.broker.server import running
from kproto.testing.kafka import Kafka
from tests.conformance import judges
from tests.conformance.judges import need_client
from tests.conformance.kafka_tools import tool

PROGRAM = Path(__file__).parent / "java" / "Transactions.java"


@pytest.fixture
def kafka() -> Iterator[Kafka]:
    with running(topics={"t": 2, "in": 1}) as server:
        kafka = Kafka(server.bootstrap, server)
        yield kafka
        kafka.close()


def values(kafka: Kafka) -> list[str]:
    return sorted((record.value or b"").decode() for record in kafka.records("t"))


@pytest.mark.java
def test_java_producers_and_readers(kafka: Kafka, kafka_jars: str) -> None:
    kafka.produce("in", "a", "b")
    command = [judges.java(), "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", kafka_jars, str(PROGRAM)]
    done = subprocess.run([*command, kafka.bootstrap, "t", "in"], capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    output = done.stdout.splitlines()
    values_seen = sorted(line.removeprefix("saw ") for line in output if line.startswith("saw "))
    assert values_seen == ["0-0", "0-1", "2-0", "2-1", "4-0", "4-1", "a!", "b!", "two"]
    assert values_seen == values(kafka)
    assert "zombie committed" not in output
    assert kafka.group("java-enrich").total_lag == 0


@pytest.mark.java
def test_kafkas_transaction_tool(kafka: Kafka, kafka_jars: str) -> None:
    from consumer import Producer

    server = ("--bootstrap-server", kafka.bootstrap)
    with Producer(kafka.bootstrap, transactional_id="mine") as producer, producer.transaction():
        producer.send("t", b"a", partition=0).result()
        listed = tool(kafka_jars, "TransactionsCommand", *server, "list")
        assert [line.split()[0::3] for line in listed.splitlines()[1:]] == [["mine", "Ongoing"]]
        described = tool(kafka_jars, "TransactionsCommand", *server, "describe", "--transactional-id", "mine")
        assert "Ongoing" in described
        assert "t-0" in described
        place = ("--topic", "t", "--partition", "0")
        output = tool(kafka_jars, "TransactionsCommand", *server, "describe-producers", *place)
        assert output.splitlines()[1].split()[-1] == "0"  # CurrentTransactionStartOffset


@pytest.mark.clients
def test_librdkafka(kafka: Kafka) -> None:
    need_client("confluent")
    import confluent_kafka as client

    settings = {"bootstrap.servers": kafka.bootstrap, "transactional.id": "lib"}
    first = client.Producer(settings)
    first.init_transactions(30)
    for number in range(4):
        first.begin_transaction()
        for partition in range(2):
            first.produce("t", b"%d-%d" % (number, partition), partition=partition)
        first.flush(30)
        (first.abort_transaction if number % 2 else first.commit_transaction)(30)
    assert values(kafka) == ["0-0", "0-1", "2-0", "2-1"]

    kafka.produce("in", "a", "b")
    reader = client.Consumer(
        {
            "bootstrap.servers": kafka.bootstrap,
            "group.id": "g",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
    )
    reader.subscribe(["in"])
    read: list[Any] = []
    while len(read) < 2:
        read += [message for message in reader.consume(2, 1) if not message.error()]
    first.begin_transaction()
    for message in read:
        first.produce("t", message.value() + b"!", partition=0)
    places = reader.position(reader.assignment())
    first.send_offsets_to_transaction(places, reader.consumer_group_metadata(), 30)
    first.commit_transaction(30)
    reader.close()
    assert values(kafka)[4:] == ["a!", "b!"]
    assert kafka.group("g").total_lag == 0

    two = client.Producer(settings)
    two.init_transactions(30)
    first.begin_transaction()
    first.produce("t", b"zombie", partition=0)
    with pytest.raises(client.KafkaException) as error:
        first.commit_transaction(30)
    assert error.value.args[0].code() == client.KafkaError._FENCED
    assert len(values(kafka)) == 6


@pytest.mark.clients
def test_aiokafka(kafka: Kafka) -> None:
    need_client("aiokafka")
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

    async def go() -> list[str]:
        producer = AIOKafkaProducer(bootstrap_servers=kafka.bootstrap, transactional_id="aio")
        await producer.start()
        for number in range(4):
            with contextlib.suppress(ZeroDivisionError):
                async with producer.transaction():
                    for partition in range(2):
                        value = b"%d-%d" % (number, partition)
                        await producer.send_and_wait("t", value, partition=partition)
                    assert number % 2 == 0 or 1 // 0
        await producer.stop()
        reader = AIOKafkaConsumer(
            "t",
            bootstrap_servers=kafka.bootstrap,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
        )
        await reader.start()
        values_read: list[str] = []
        while len(values_read) < 4:
            for records in (await reader.getmany(timeout_ms=500)).values():
                values_read += [record.value.decode() for record in records]
        await reader.stop()
        return sorted(values_read)

    assert asyncio.run(go()) == ["0-0", "0-1", "2-0", "2-1"] == values(kafka)


@pytest.mark.clients
def test_kafka_python(kafka: Kafka) -> None:
    need_client("kafka-python")
    from kafka import KafkaConsumer, KafkaProducer

    producer = KafkaProducer(bootstrap_servers=kafka.bootstrap, transactional_id="python")
    producer.init_transactions()
    for number in range(4):
        producer.begin_transaction()
        for partition in range(2):
            producer.send("t", b"%d-%d" % (number, partition), partition=partition)
        producer.flush()
        (producer.abort_transaction if number % 2 else producer.commit_transaction)()
    producer.close()
    reader = KafkaConsumer(
        "t",
        bootstrap_servers=kafka.bootstrap,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
    )
    values_read = sorted(next(reader).value.decode() for _ in range(4))
    reader.close()
    assert values_read == ["0-0", "0-1", "2-0", "2-1"] == values(kafka)
