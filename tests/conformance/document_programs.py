"""The documents' own programs as processes, a tap before their broker, and what they print."""

from __future__ import annotations

import json
import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import count
from random import Random
from typing import Any, NamedTuple

import pytest

from consumer import Cluster, Producer
from kproto.broker.server import running
from kproto.group.subscription import TopicPartition
from tests.conformance import judges, original_clients
from tests.conformance.client_scenarios import SEED
from tests.conformance.recording_proxy import RecordedRequest, Tap

NAMED, LAST, OURS = "Shopify 1.27.2", "Shopify 1.38.1", "IBM 1.61.1"
# sarama's: whose source document 003 reads, the last one of its old name, and the one our machine is.
RELEASES = (NAMED, LAST, OURS)

PATIENCE = 60.0
RUNS = count(1)


def of_sarama(folder: str, release: str) -> str:
    """A program around sarama, made with a release."""
    owner, _, version = release.partition(" ")
    return original_clients.with_modules(folder, module=f"github.com/{owner}/sarama v{version}")


class Place(NamedTuple):
    """A broker behind a tap, and who makes topics and records there."""

    tap: Tap
    bootstrap: str
    cluster: Cluster
    producer: Producer


def tapped(kind: str) -> Iterator[Place]:
    """A place on the embedded broker, or on a real Kafka: what a fixture yields from."""
    port = judges.free_port()
    with ExitStack() as stack:
        if kind == "kafka":
            advertised = {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}"}
            bootstrap = stack.enter_context(judges.real_kafka(advertised)).bootstrap
        else:
            server = stack.enter_context(running())
            server.advertise(f"127.0.0.1:{port}")
            bootstrap = server.bootstrap
        tap = stack.enter_context(Tap(port, int(bootstrap.rpartition(":")[2]), frozenset({"Fetch"})))
        here = f"127.0.0.1:{port}"
        cluster, producer = (stack.enter_context(one(here)) for one in (Cluster, Producer))
        cluster.create_topics({"warm": 1})
        for number in range(20):  # the broker makes its offsets topic, and takes each part of it up
            cluster.commit_offsets(f"warm-{number}", {TopicPartition("warm", 0): 0})
        yield Place(tap, here, cluster, producer)


def only_one_broker(request: pytest.FixtureRequest) -> None:
    """Skips a test on the one of both brokers that this run didn't draw for it.

    KPROTO_ALL_PLAYS=1 plays on both (tox -e soak), and KPROTO_SEED draws the same.
    """
    item = request.node
    drawn = Random(f"{SEED} {item.originalname}").choice(["embedded", "kafka"])
    if drawn not in item.name and not os.environ.get("KPROTO_ALL_PLAYS"):
        pytest.skip(f"not drawn (KPROTO_SEED={SEED}); KPROTO_ALL_PLAYS=1 plays on both brokers")


class Program:
    """A program that runs, what it has printed, and what it has said to the coordinator."""

    def __init__(self, place: Place, name: str, topic: str, group: str, words: Sequence[str]) -> None:
        self.place, self.name, self.topic, self.group = place, name, topic, group
        self.lines: list[str] = []
        self.times: list[float] = []
        self._new = threading.Condition()
        self.started = time.monotonic()
        self.process = subprocess.Popen(
            list(words),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._new:
                self.times.append(time.monotonic())
                self.lines.append(line.strip())
                self._new.notify_all()

    def printed(self, word: str) -> list[str]:
        return [line.removeprefix(word).strip() for line in list(self.lines) if line.split()[0] == word]

    def when(self, word: str) -> list[float]:
        """When it said such lines."""
        return [at for at, line in zip(self.times, list(self.lines), strict=False) if line.split()[0] == word]

    def until(self, word: str, least: int = 1) -> list[str]:
        """What it says with this word, once that is so many."""
        with self._new:
            enough = self._new.wait_for(lambda: len(self.printed(word)) >= least, PATIENCE)
        assert enough, (word, least, self.lines[-10:])
        return self.printed(word)

    @property
    def read(self) -> list[tuple[int, int]]:
        return [(int(a), int(b)) for a, b in (one.split() for one in self.printed("R"))]

    def offsets(self, partition: int) -> list[int]:
        return [offset for one, offset in self.read if one == partition]

    def requests(self, api: str) -> list[RecordedRequest]:
        return [one for one in self.place.tap.requests(self.name) if one.api == api]

    def read_on(self, partitions: Sequence[int], most: float = PATIENCE) -> None:
        """Write into these partitions until some of each is read, and as long as all is not."""
        end = time.monotonic() + most
        while time.monotonic() < end and not set(partitions) <= {one for one, _ in self.read}:
            self.write(partitions)
            time.sleep(0.1)

    def write(self, partitions: Sequence[int], each: int = 1) -> None:
        for partition in partitions:
            for _ in range(each):
                self.place.producer.send(self.topic, b"x", partition=partition)
        self.place.producer.flush()

    def ends(self, partitions: int) -> dict[int, int]:
        found = self.place.cluster.list_offsets(
            {TopicPartition(self.topic, one): "latest" for one in range(partitions)}
        )
        return {tp.partition: one.offset for tp, one in found.items()}

    def committed(self) -> dict[int, int]:
        found = self.place.cluster.committed_offsets(self.group)
        return {tp.partition: one.offset for tp, one in found.items() if tp.topic == self.topic and one}

    def close(self) -> None:
        """The end of its stdin; a program that is gone already has nothing to close."""
        if self.process.stdin is not None and not self.process.stdin.closed:
            self.process.stdin.close()
        self.ended()

    def ended(self) -> None:
        """Wait for its end, which something else has brought about."""
        try:
            self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
        self._reader.join()

    def kill(self) -> None:
        self.process.kill()
        self.close()


def walked(kind: str) -> Iterator[Place]:
    for release in RELEASES:
        of_sarama("sarama_walk", release)  # built once, before they all want it
    yield from tapped(kind)


class Walk(Program):
    """One of document 003's programs with one release. The end of its stdin is its defer: Close."""

    def __init__(
        self, place: Place, example: str, release: str, topic: str = "", group: str = "", **conf: Any
    ) -> None:
        name = f"{example}-{next(RUNS)}"
        topic, group = topic or f"t-{name}", group or f"g-{name}"
        said = json.dumps({"client_id": name, **conf})
        words = [of_sarama("sarama_walk", release), example, place.bootstrap, group, topic, said]
        super().__init__(place, name, topic, group, words)


def eventually(true: Callable[[], bool], most: float = PATIENCE) -> bool:
    """Whether it comes true in this time."""
    end = time.monotonic() + most
    while not true():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


def at_once(acts: dict[Any, Callable[[], Any]]) -> dict[Any, Any]:
    with ThreadPoolExecutor(len(acts)) as pool:
        asked = {name: pool.submit(act) for name, act in acts.items()}
        return {name: one.result() for name, one in asked.items()}
