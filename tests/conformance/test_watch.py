"""Other clients through `kproto watch` to a real Kafka: they do what they do without it, and all is seen."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from consumer import Cluster
from tests.conformance.judges import RealKafka
from tests.conformance.test_foreign_clients import need

pytestmark = [pytest.mark.kafka, pytest.mark.clients]

PROGRAMS = {
    "kafka-python": """
from kafka import KafkaConsumer, KafkaProducer
producer = KafkaProducer(bootstrap_servers=where)
for number in range(100):
    producer.send(topic, b"%d" % number)
producer.close()
consumer = KafkaConsumer(topic, bootstrap_servers=where, group_id=topic, auto_offset_reset="earliest")
got = sorted(int(next(consumer).value) for _ in range(100))
consumer.close()
""",
    "aiokafka": """
import asyncio
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
async def main():
    async with AIOKafkaProducer(bootstrap_servers=where) as producer:
        for number in range(100):
            await producer.send_and_wait(topic, b"%d" % number)
    consumer = AIOKafkaConsumer(topic, bootstrap_servers=where, group_id=topic, auto_offset_reset="earliest")
    async with consumer:
        return sorted([int((await consumer.getone()).value) for _ in range(100)])
got = asyncio.run(main())
""",
    "confluent": """
from confluent_kafka import Consumer, Producer
producer = Producer({"bootstrap.servers": where})
for number in range(100):
    producer.produce(topic, b"%d" % number)
producer.flush()
consumer = Consumer({"bootstrap.servers": where, "group.id": topic, "auto.offset.reset": "earliest"})
consumer.subscribe([topic])
got = []
while len(got) < 100:
    message = consumer.poll(10)
    if message is not None and not message.error():
        got.append(int(message.value()))
consumer.close()
got.sort()
""",
}


@contextmanager
def watching(bootstrap: str, seen: Path, *options: str) -> Iterator[str]:
    """`kproto watch --json --all` before a cluster; its lines are in `seen` at the end."""
    command = [
        sys.executable,
        "-m",
        "kproto",
        "watch",
        "--listen",
        "127.0.0.1:0",
        "--json",
        "--all",
        *options,
        bootstrap,
    ]
    with seen.open("w") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.PIPE, text=True)
        assert process.stderr is not None
        try:
            yield process.stderr.readline().split()[3]
        finally:
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=20)


@pytest.mark.parametrize("client", PROGRAMS)
def test_a_client_does_behind_it_what_it_does_without(
    client: str, real_kafka: RealKafka, tmp_path: Path
) -> None:
    need(client)
    topic = f"watched-{client}"
    with Cluster(real_kafka.bootstrap) as cluster:
        cluster.create_topics({topic: 2})
    with watching(real_kafka.bootstrap, tmp_path / "seen") as where:
        program = (
            f"where, topic = {where!r}, {topic!r}\n{PROGRAMS[client]}\nassert got == list(range(100)), got"
        )
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=90)
    assert done.returncode == 0, done.stderr[-2000:]
    seen = [json.loads(told) for told in (tmp_path / "seen").read_text().splitlines()]
    assert {"Metadata", "Produce", "JoinGroup", "SyncGroup", "Fetch", "LeaveGroup"} <= {
        one["api"] for one in seen
    }
    assert [one for one in seen if "read" in one.get("trouble", "")] == []
