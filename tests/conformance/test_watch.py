"""Clients of a real Kafka behave the same with and without `kproto watch`, which reports every request.

Nine clients run a scenario with and without `kproto watch`. A proxy in front of Kafka records their requests.

`KPROTO_SEED` selects three of the clients. `KPROTO_ALL_PLAYS=1` runs all of them (tox -e soak).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Any

import pytest

from consumer import Admin, Producer
from tests.conformance import original_clients
from tests.conformance.client_scenarios import SEED
from tests.conformance.judges import RealKafka, need_client
from tests.conformance.recording_proxy import GROUP, RecordingProxy
from tests.conformance.scenario_runs import TRIES, run_scenario
from tests.conformance.watch_process import watching

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


def requests(path: Path) -> list[dict[str, Any]]:
    """Return the requests that `kproto watch --json` printed.

    The lines that report the cause of a new generation are omitted.
    """
    lines: list[dict[str, Any]] = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line for line in lines if ("api" in line) == ("cause" in line)] == []
    return [line for line in lines if "api" in line]


@pytest.mark.parametrize("client", PROGRAMS)
def test_a_client_behaves_alike_through_watch(client: str, real_kafka: RealKafka, tmp_path: Path) -> None:
    need_client(client)
    topic = f"watched-{client}"
    with Admin(real_kafka.bootstrap) as cluster:
        cluster.create_topics({topic: 2})
    with watching(real_kafka.bootstrap, tmp_path / "seen") as where:
        program = (
            f"where, topic = {where!r}, {topic!r}\n{PROGRAMS[client]}\nassert got == list(range(100)), got"
        )
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=90)
    assert done.returncode == 0, done.stderr[-2000:]
    lines = requests(tmp_path / "seen")
    assert {"Metadata", "Produce", "JoinGroup", "SyncGroup", "Fetch", "LeaveGroup"} <= {
        line["api"] for line in lines
    }
    assert [line for line in lines if "read" in line.get("trouble", "")] == []


def settled(client: str, scenario: dict[str, dict[str, list[str]]]) -> dict[str, dict[str, list[str]]]:
    """Keep only the last of a kafka-python member's consecutive rounds of JoinGroup and SyncGroup.

    kafka-python's leader causes a rebalance if new metadata arrives while a group forms. Whether it arrives
    then is random.
    """
    if client == "kafka-python":
        for member in scenario.values():
            for kind, first, second in (("said", "JoinGroup", "SyncGroup"), ("heard", "revoked", "assigned")):
                member[kind] = last_rounds(member[kind], first, second)
    return scenario


def last_rounds(lines: list[str], first: str, second: str) -> list[str]:
    """Drop repeated rounds.

    A round is two lines: the first begins with `first`, the second with `second`. A round is dropped only if
    another round follows. In addition, both rounds must have the same second line, or the dropped round's
    second line must have no result.
    """
    kept_lines: list[str] = []
    for line in lines:
        kept_lines.append(line)
        before = kept_lines[-3] if len(kept_lines) > 3 else ""
        kinds = [text.split()[0] for text in kept_lines[-4:]]
        if kinds == [first, second] * 2 and (before in (line, second) or before.endswith("got none")):
            del kept_lines[-4:-2]
    return kept_lines


DRAWN = Random(SEED).sample(original_clients.ALL, 3)


@pytest.mark.originals
@pytest.mark.parametrize("client", original_clients.ALL)
def test_a_group_behaves_alike_through_watch(
    client: str, proxied_kafka: RecordingProxy, operators: tuple[Admin, Producer], tmp_path: Path
) -> None:
    """Two members send the same requests with and without `kproto watch`. The second member joins later and
    leaves first.
    """
    if client not in DRAWN and not os.environ.get("KPROTO_ALL_PLAYS"):
        pytest.skip(f"not drawn (KPROTO_SEED={SEED}); KPROTO_ALL_PLAYS=1 runs all")
    order = original_clients.program(client)
    for tries in range(1, TRIES + 1):
        alone = settled(client, run_scenario(client, order, "second", proxied_kafka, operators))
        recorded_before = len(proxied_kafka.all)
        with watching(f"127.0.0.1:{proxied_kafka.port}", tmp_path / "seen") as where:
            watched = settled(
                client, run_scenario(client, order, "second", proxied_kafka, operators, bootstrap=where)
            )
        if watched == alone:
            break
        assert tries < TRIES or watched == alone
    lines = requests(tmp_path / "seen")
    names = {line["client"] for line in lines}
    recorded = [
        request
        for request in proxied_kafka.all[recorded_before:]
        if request.api in GROUP and request.client in names
    ]
    assert sorted(
        (line["client"], line["api"], line["version"]) for line in lines if line["api"] in GROUP
    ) == sorted((request.client, request.api, request.envelope.version) for request in recorded)
    assert [line for line in lines if "read" in line.get("trouble", "")] == []
