"""The Go programs of docs/lessons/001 on current brokers: the test shows which of them find new partitions.

The programs confirm the document's table: only sarama and confluent-kafka-go find new partitions, and sarama
only if the application calls Consume in a loop.

The programs also confirm the document's warning: with the offset reset `newest`, earlier records of the new
partitions are lost.

One result is not in the document. On Kafka 4, the document's sarama release 1.38.1 commits nothing, and with
the document's protocol version V0_10_2_1 it also reads nothing. In neither case does a call return an error.
"""

from __future__ import annotations

import json
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import pytest

from consumer import Admin, Producer
from kproto.broker.server import running
from tests.conformance import judges, original_clients
from tests.conformance.document_programs import LAST, of_sarama

pytestmark = pytest.mark.originals

USER, PASSWORD = "adEngine", "secret"
OLD, NEW = (0, 1), (2, 3)
# The longest waits (s): until the program has read the old partitions, and from then until the new ones.
JOINS_S, SEES_S = 12.0, 16.0

# Maps a program to two results: which of the new partitions' records it reads, and whether it commits
# offsets. "all" means all records from the first one on, and "some" means that the program misses the
# earliest records.
FOUND: dict[str, tuple[str, bool]] = {
    "sarama": ("some", False),
    "sarama-retention": ("some", True),
    "sarama-once": ("none", False),
    "kafka-go": ("none", True),
    "kafka-go-watch": ("some", True),
    "confluent": ("all", True),
}


# Maps a case to the options of the document's sarama program. Only the last case uses the document's protocol
# version, V0_10_2_1.
MAIN: dict[str, dict[str, Any]] = {
    "sarama": {},
    "sarama-retention": {"retention_ms": 3_600_000},
    "sarama-once": {"once": True},
    "sarama-old": {"version": "0.10.2.1"},
}


def _words(client: str, bootstrap: str, topic: str, sasl: bool) -> list[str]:
    if client in MAIN:
        conf = MAIN[client] | ({"user": USER, "password": PASSWORD} if sasl else {})
        return [of_sarama("sarama_main", LAST), bootstrap, topic, topic, json.dumps(conf)]
    words = [original_clients.with_modules("new_partitions"), client, bootstrap, topic, topic]
    return [*words, USER, PASSWORD] if sasl else words


class Reads:
    """A running program, and the offsets that it has read from each partition."""

    def __init__(self, client: str, bootstrap: str, topic: str, sasl: bool) -> None:
        words = _words(client, bootstrap, topic, sasl)
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.offsets: dict[int, list[int]] = {}
        self.sessions: list[str] = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            word, _, details = line.strip().partition(" ")
            if word == "R":
                partition, offset = map(int, details.split())
                self.offsets.setdefault(partition, []).append(offset)
            elif word == "session":
                self.sessions.append(details)

    def end(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
        self._reader.join()


def _write_until(
    producer: Producer, topic: str, reads: Reads, partitions: tuple[int, int], most: float
) -> None:
    """Write ten records per second to each partition, until the program has read a record of each partition.

    Stop after `most` seconds, even if the program has not.
    """
    end = time.monotonic() + most
    while time.monotonic() < end and not all(reads.offsets.get(partition) for partition in partitions):
        for partition in partitions:
            producer.send(topic, b"x", partition=partition)
        producer.flush()
        time.sleep(0.1)


def run_program(client: str, bootstrap: str, topic: str, sasl: bool = False) -> tuple[Reads, bool]:
    """Run the program on a topic that grows from 2 to 4 partitions.

    Return the program's reads, and whether its group committed.
    """
    own: Any = {}
    if sasl:
        own = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN"}
        own |= {"sasl_username": USER, "sasl_password": PASSWORD}
    with Admin(bootstrap, **own) as cluster, Producer(bootstrap, **own) as producer:
        cluster.create_topics({topic: len(OLD)})
        reads = Reads(client, bootstrap, topic, sasl)
        try:
            _write_until(producer, topic, reads, OLD, JOINS_S)
            cluster.create_partitions({topic: len(OLD) + len(NEW)})
            _write_until(producer, topic, reads, NEW, SEES_S)
            # Time for automatic commits, which most clients send every second. librdkafka commits only every
            # five seconds, but also in the rebalance that assigns the new partitions.
            time.sleep(2.5)
        finally:
            reads.end()
        return reads, bool(cluster.committed_offsets(topic))


def _of_new(reads: Reads) -> str:
    firsts = {reads.offsets[partition][0] for partition in NEW if partition in reads.offsets}
    return "none" if not firsts else "all" if firsts == {0} else "some"


@pytest.fixture(scope="module", params=["embedded", "sasl", pytest.param("kafka", marks=pytest.mark.kafka)])
def broker(request: pytest.FixtureRequest) -> Iterator[tuple[str, str]]:
    with ExitStack() as stack:
        if request.param == "kafka":
            yield request.param, stack.enter_context(judges.real_kafka()).bootstrap
        elif request.param == "sasl":
            listen = ["SASL_PLAINTEXT://127.0.0.1:0"]
            yield request.param, stack.enter_context(running(listen=listen, users={USER: PASSWORD})).bootstrap
        else:
            yield request.param, stack.enter_context(running()).bootstrap


def test_the_documents_programs_find_new_partitions_as_in_its_table(broker: tuple[str, str]) -> None:
    """Covers the scenarios S1-2, S1-3, S1-14 and S1-17 of docs/lessons/001, and the table of S1-25. The test
    of S1-9 covers sarama-cluster.
    """
    kind, bootstrap = broker
    for client in ("sarama", "kafka-go"):
        _words(client, bootstrap, "", False)  # The program is built once, before several threads need it.
    with ThreadPoolExecutor(len(FOUND) + 1) as pool:
        futures = {
            client: pool.submit(
                run_program, client, bootstrap, f"grown-{client}-{time.time_ns()}", kind == "sasl"
            )
            for client in (*FOUND, "sarama-old")
        }
        outcomes = {client: future.result() for client, future in futures.items()}
    old, committed = outcomes.pop("sarama-old")
    assert {
        client: (_of_new(reads), has_committed) for client, (reads, has_committed) in outcomes.items()
    } == FOUND
    assert all(set(OLD) <= set(reads.offsets) for reads, _ in outcomes.values())
    assert old.offsets == {}, "Kafka 4 no longer supports Fetch 3"
    assert not committed
    assert old.sessions == ["[0 1]", "[0 1 2 3]"], "it joins nevertheless, and finds new partitions"
