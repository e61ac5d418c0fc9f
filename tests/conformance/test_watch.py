"""Other clients through `kproto watch` to a real Kafka: they do what they do without it, and all is seen.

Nine clients play a play twice, with and without it; a tap before Kafka hears what they say. A run draws some
of them by KPROTO_SEED, KPROTO_ALL_PLAYS=1 takes all (tox -e soak).
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest

from consumer import Cluster, Producer
from tests.conformance import original_clients
from tests.conformance.client_scenarios import SEED
from tests.conformance.judges import RealKafka
from tests.conformance.recording_proxy import GROUP, Tap
from tests.conformance.test_clients_like_originals import TRIES, played
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
    seen = [json.loads(splitline) for splitline in (tmp_path / "seen").read_text().splitlines()]
    assert {"Metadata", "Produce", "JoinGroup", "SyncGroup", "Fetch", "LeaveGroup"} <= {
        one["api"] for one in seen
    }
    assert [one for one in seen if "read" in one.get("trouble", "")] == []


def settled(client: str, play: dict[str, dict[str, list[str]]]) -> dict[str, dict[str, list[str]]]:
    """Of kafka-python only the last of the rounds (JoinGroup, SyncGroup) that follow each other at once.

    Its leader calls a rebalance whenever its metadata come while a group forms, which is chance.
    """
    if client == "kafka-python":
        for member in play.values():
            for kind, one, other in (("said", "JoinGroup", "SyncGroup"), ("heard", "revoked", "assigned")):
                member[kind] = last_rounds(member[kind], one, other)
    return play


def last_rounds(lines: list[str], one: str, other: str) -> list[str]:
    """Without a pair of lines that begin so, if another follows: the first brought the same, or nothing."""
    found: list[str] = []
    for line in lines:
        found.append(line)
        before = found[-3] if len(found) > 3 else ""
        kinds = [text.split()[0] for text in found[-4:]]
        if kinds == [one, other] * 2 and (before in (line, other) or before.endswith("got none")):
            del found[-4:-2]
    return found


DRAWN = Random(SEED).sample(original_clients.ALL, 3)


@pytest.mark.originals
@pytest.mark.parametrize("client", original_clients.ALL)
def test_a_group_says_and_hears_behind_it_what_it_does_without(
    client: str, tapped: Tap, operators: tuple[Cluster, Producer], tmp_path: Path
) -> None:
    """Two members that read and commit, of which one comes later and leaves first."""
    if client not in DRAWN and not os.environ.get("KPROTO_ALL_PLAYS"):
        pytest.skip(f"not drawn (KPROTO_SEED={SEED}); KPROTO_ALL_PLAYS=1 plays all")
    order = original_clients.program(client)
    for tries in range(1, TRIES + 1):
        alone = settled(client, played(client, order, "second", tapped, operators))
        heard = len(tapped.all)
        with watching(f"127.0.0.1:{tapped.port}", tmp_path / "seen") as where:
            watched = settled(client, played(client, order, "second", tapped, operators, bootstrap=where))
        if watched == alone:
            break
        assert tries < TRIES or watched == alone
    seen = [json.loads(splitline) for splitline in (tmp_path / "seen").read_text().splitlines()]
    names = {one["client"] for one in seen}
    said = [one for one in tapped.all[heard:] if one.api in GROUP and one.client in names]
    assert sorted(
        (one["client"], one["api"], one["version"]) for one in seen if one["api"] in GROUP
    ) == sorted((one.client, one.api, one.envelope.version) for one in said)
    assert [one for one in seen if "read" in one.get("trouble", "")] == []
