"""Other clients as members of a group where one must log in: each in a process of its own."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

from tests.conformance import judges, originals

SECURITY = "org.apache.kafka.common.security."


class Member:
    """A member of a group in a process: what it reads comes on its stdout."""

    def __init__(self, order: list[str]) -> None:
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(order, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
        self.read: list[str] = []
        self._reading = Thread(target=self._follow, daemon=True)
        self._reading.start()

    def _follow(self) -> None:
        assert self.process.stdout is not None
        for text in self.process.stdout:
            self.read.append(text.strip())

    def until(self, done: Callable[[], bool]) -> None:
        end = time.monotonic() + 120
        while not done():
            assert self.process.poll() is None, self.process.communicate()[1]
            assert time.monotonic() < end, self.read
            time.sleep(0.05)

    def leave(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            self.process.wait(60)
        finally:
            self.kill()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(60)
        self._reading.join(60)


BEGIN = """
import ssl, sys, threading
place, ca, mechanism, user, password, group = sys.argv[1:]
protocol = "SASL_SSL" if ca else "SASL_PLAINTEXT"
trust = ssl.create_default_context(cafile=ca) if ca else None
over = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), over.set()), daemon=True).start()
"""
OWN = """
from consumer import Consumer
with Consumer(
    place, client_id="kproto", group_id=group, auto_offset_reset="earliest",
    security_protocol=protocol, ssl_cafile=ca or None, sasl_mechanism=mechanism,
    sasl_username=user, sasl_password=password, partition_assignment_strategy=["range"],
) as consumer:
    consumer.subscribe(["flights"])
    while not over.is_set():
        for record in consumer.poll(0.2):
            print(record.value.decode(), flush=True)
"""
KAFKA_PYTHON = """
from kafka import KafkaConsumer
from kafka.coordinator.assignors.range import RangePartitionAssignor
consumer = KafkaConsumer(
    "flights", bootstrap_servers=place, client_id="kafka-python", group_id=group,
    auto_offset_reset="earliest", security_protocol=protocol, ssl_context=trust, sasl_mechanism=mechanism,
    sasl_plain_username=user, sasl_plain_password=password,
    partition_assignment_strategy=[RangePartitionAssignor],
)
while not over.is_set():
    for records in consumer.poll(200).values():
        for record in records:
            print(record.value.decode(), flush=True)
consumer.close()
"""
AIOKAFKA = """
import asyncio
from aiokafka import AIOKafkaConsumer
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
async def main():
    consumer = AIOKafkaConsumer(
        "flights", bootstrap_servers=place, client_id="aiokafka", group_id=group,
        auto_offset_reset="earliest", security_protocol=protocol, ssl_context=trust,
        sasl_mechanism=mechanism, sasl_plain_username=user, sasl_plain_password=password,
        partition_assignment_strategy=[RangePartitionAssignor],
    )
    await consumer.start()
    while not over.is_set():
        for records in (await consumer.getmany(timeout_ms=200)).values():
            for record in records:
                print(record.value.decode(), flush=True)
    await consumer.stop()
asyncio.run(main())
"""
LIBRDKAFKA = """
from confluent_kafka import Consumer
consumer = Consumer({
    "client.id": "librdkafka",
    "bootstrap.servers": place, "group.id": group, "auto.offset.reset": "earliest", "ssl.ca.location": ca,
    "security.protocol": protocol.lower(), "sasl.mechanisms": mechanism, "sasl.username": user,
    "sasl.password": password, "partition.assignment.strategy": "range",
})
consumer.subscribe(["flights"])
while not over.is_set():
    message = consumer.poll(0.2)
    if message is not None and message.error() is None:
        print(message.value().decode(), flush=True)
consumer.close()
"""
PYTHON = {
    "librdkafka": (LIBRDKAFKA, "SCRAM-SHA-256"),
    "kproto": (OWN, "SCRAM-SHA-512"),
    "kafka-python": (KAFKA_PYTHON, "SCRAM-SHA-256"),
    "aiokafka": (AIOKAFKA, "SCRAM-SHA-512"),
}
GO = {"sarama": "SCRAM-SHA-512", "franz": "PLAIN"}
ALL = {*PYTHON, *GO, "java"}


def java_properties(folder: Path, ca: str, mechanism: str, user: str, password: str) -> str:
    """A client.properties; `ca` is empty where there is no TLS."""
    module, said = "scram.ScramLoginModule", f'username="{user}" password="{password}"'
    if mechanism == "PLAIN":
        module = "plain.PlainLoginModule"
    elif mechanism == "OAUTHBEARER":
        module, said = "oauthbearer.OAuthBearerLoginModule", f'unsecuredLoginStringClaim_sub="{user}"'
    protocol = "SASL_SSL" if ca else "SASL_PLAINTEXT"
    tls = f"ssl.truststore.type=PEM\nssl.truststore.location={ca}\n" if ca else ""
    file = folder / "client.properties"
    file.write_text(
        f"client.id=java\nsecurity.protocol={protocol}\n{tls}sasl.mechanism={mechanism}\n"
        f"sasl.jaas.config={SECURITY}{module} required {said};\n"
    )
    return str(file)


@contextmanager
def one_of_each(
    place: str, ca: str, user: str, password: str, folder: Path, kafka_jars: str
) -> Generator[dict[str, Member]]:
    """A member of each client in the group `mixed`, by its name, which is its client.id, too; all read the
    topic `flights`. `ca` is empty where there is no TLS."""
    words = (user, password)
    java = [judges.java(), "-Xmx128m", "-cp", kafka_jars, "org.apache.kafka.tools.consumer.ConsoleConsumer"]
    java += ["--bootstrap-server", place, "--topic", "flights", "--group", "mixed", "--from-beginning"]
    java += ["--command-config", java_properties(folder, ca, "SCRAM-SHA-256", user, password)]
    orders = {
        **{
            name: [originals.secured(), name, place, ca, mechanism, *words, "read", "mixed"]
            for name, mechanism in GO.items()
        },
        **{
            name: [sys.executable, "-c", BEGIN + text, place, ca, mechanism, *words, "mixed"]
            for name, (text, mechanism) in PYTHON.items()
        },
        "java": java,
    }
    members = {name: Member(order) for name, order in orders.items()}
    try:
        yield members
    finally:
        for one in members.values():
            one.kill()
