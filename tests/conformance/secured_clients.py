"""Authenticated members of one group, each with a different client library and in a separate process."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

from kproto.security.oauthbearer import unsecured_token
from tests.conformance import judges, original_clients

SECURITY = "org.apache.kafka.common.security."


class SecuredMember:
    """A group member in a separate process that prints the values it reads."""

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
import ssl, sys, threading, time
from kproto.security.oauthbearer import unsecured_token
place, ca, mechanism, user, password, group = sys.argv[1:]
protocol = "SASL_SSL" if ca else "SASL_PLAINTEXT"
trust = ssl.create_default_context(cafile=ca) if ca else None
by_token = mechanism == "OAUTHBEARER"
def token():
    return unsecured_token(user, int(time.time() * 1000), 600_000)
over = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), over.set()), daemon=True).start()
"""
OWN = """
from consumer import Consumer
login = {"sasl_oauth_token_provider": token} if by_token else {
    "sasl_username": user, "sasl_password": password}
with Consumer(
    place, client_id="kproto", group_id=group, auto_offset_reset="earliest",
    security_protocol=protocol, ssl_cafile=ca or None, sasl_mechanism=mechanism, **login,
    partition_assignment_strategy=["range"],
) as consumer:
    consumer.subscribe(["flights"])
    while not over.is_set():
        for record in consumer.poll(0.2):
            print(record.value.decode(), flush=True)
"""
KAFKA_PYTHON = """
from kafka import KafkaConsumer
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.net.sasl.oauth import AbstractTokenProvider
class Tokens(AbstractTokenProvider):
    def token(self):
        return token()
login = {"sasl_oauth_token_provider": Tokens()} if by_token else {
    "sasl_plain_username": user, "sasl_plain_password": password}
consumer = KafkaConsumer(
    "flights", bootstrap_servers=place, client_id="kafka-python", group_id=group,
    auto_offset_reset="earliest", security_protocol=protocol, ssl_context=trust, sasl_mechanism=mechanism,
    partition_assignment_strategy=[RangePartitionAssignor], **login,
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
from aiokafka.abc import AbstractTokenProvider
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
class Tokens(AbstractTokenProvider):
    async def token(self):
        return token()
login = {"sasl_oauth_token_provider": Tokens()} if by_token else {
    "sasl_plain_username": user, "sasl_plain_password": password}
async def main():
    consumer = AIOKafkaConsumer(
        "flights", bootstrap_servers=place, client_id="aiokafka", group_id=group,
        auto_offset_reset="earliest", security_protocol=protocol, ssl_context=trust,
        sasl_mechanism=mechanism, partition_assignment_strategy=[RangePartitionAssignor], **login,
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
login = {"oauth_cb": lambda config: (token(), time.time() + 600, user, {})} if by_token else {
    "sasl.username": user, "sasl.password": password}
consumer = Consumer({
    "client.id": "librdkafka",
    "bootstrap.servers": place, "group.id": group, "auto.offset.reset": "earliest", "ssl.ca.location": ca,
    "security.protocol": protocol.lower(), "sasl.mechanisms": mechanism, **login,
    "partition.assignment.strategy": "range",
})
consumer.subscribe(["flights"])
while not over.is_set():
    message = consumer.poll(0.2)
    if message is not None and message.error() is None:
        print(message.value().decode(), flush=True)
consumer.close()
"""
PYTHON = {"librdkafka": LIBRDKAFKA, "kproto": OWN, "kafka-python": KAFKA_PYTHON, "aiokafka": AIOKAFKA}
# Client -> the mechanism of its member in the mixed group. Each client of `ALL` supports all mechanisms.
MIXED = {
    "librdkafka": "SCRAM-SHA-256",
    "kproto": "SCRAM-SHA-512",
    "kafka-python": "SCRAM-SHA-256",
    "aiokafka": "SCRAM-SHA-512",
    "sarama": "SCRAM-SHA-512",
    "franz": "PLAIN",
    "java": "SCRAM-SHA-256",
}
ALL = {*MIXED}


def java_properties(folder: Path, ca: str, mechanism: str, user: str, password: str) -> str:
    """Write a client.properties file and return its path. Without TLS, `ca` is empty."""
    module, login = "scram.ScramLoginModule", f'username="{user}" password="{password}"'
    if mechanism == "PLAIN":
        module = "plain.PlainLoginModule"
    elif mechanism == "OAUTHBEARER":
        module, login = "oauthbearer.OAuthBearerLoginModule", f'unsecuredLoginStringClaim_sub="{user}"'
    protocol = "SASL_SSL" if ca else "SASL_PLAINTEXT"
    tls = f"ssl.truststore.type=PEM\nssl.truststore.location={ca}\n" if ca else ""
    file = folder / f"client-{mechanism}.properties"
    file.write_text(
        f"client.id=java\nsecurity.protocol={protocol}\n{tls}sasl.mechanism={mechanism}\n"
        f"sasl.jaas.config={SECURITY}{module} required {login};\n"
    )
    return str(file)


def order(
    client: str, place: str, ca: str, mechanism: str, login: tuple[str, str], group: str, folder: Path
) -> list[str]:
    """Return the command of a member that reads the topic `flights`. Without TLS, `ca` is empty.

    `login` is a name and a password. For OAUTHBEARER an unsigned token for this name is used.
    """
    user, password = login
    if client == "java":
        file = java_properties(folder, ca, mechanism, user, password)
        tool = "org.apache.kafka.tools.consumer.ConsoleConsumer"
        words = ["--bootstrap-server", place, "--topic", "flights", "--group", group, "--from-beginning"]
        java = [judges.java(), "-Xmx128m", "-XX:+UseSerialGC", "-cp", judges.kafka_jars(), tool]
        return [*java, *words, "--command-config", file]
    if client in PYTHON:
        return [sys.executable, "-c", BEGIN + PYTHON[client], place, ca, mechanism, user, password, group]
    if mechanism == "OAUTHBEARER":
        password = unsecured_token(user, int(time.time() * 1000), 600_000)
    return [original_clients.secured(), client, place, ca, mechanism, user, password, "read", group]


@contextmanager
def members(orders: Mapping[str, list[str]]) -> Generator[dict[str, SecuredMember]]:
    """Run the members, and yield them by name."""
    started: dict[str, SecuredMember] = {}
    try:
        for name, words in orders.items():
            started[name] = SecuredMember(words)
        yield started
    finally:
        for member in started.values():
            member.kill()


@contextmanager
def one_of_each(
    place: str, ca: str, user: str, password: str, folder: Path
) -> Generator[dict[str, SecuredMember]]:
    """Run a member of each client in the group `mixed`. Each member's client.id is the name of its client."""
    with members(
        {
            name: order(name, place, ca, mechanism, (user, password), "mixed", folder)
            for name, mechanism in MIXED.items()
        }
    ) as running:
        yield running
