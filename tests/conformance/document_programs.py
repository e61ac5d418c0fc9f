"""Run the programs of docs/lessons behind a recording proxy, and collect their output."""

from __future__ import annotations

import json
import os
import signal
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

from consumer import Admin, Producer
from kproto.broker.server import running
from kproto.group.subscription import TopicPartition
from tests.conformance import judges, original_clients
from tests.conformance.client_scenarios import SEED
from tests.conformance.recording_proxy import RecordedRequest, RecordingProxy

NAMED, LAST, OURS = "Shopify 1.27.2", "Shopify 1.38.1", "IBM 1.61.1"
# Releases of sarama: the release of docs/lessons/003, Shopify's last release, and the release that kproto's
# model follows.
RELEASES = (NAMED, LAST, OURS)
# The releases of sarama with which the main() of docs/lessons/001 runs.
MAINS = (LAST, OURS)
# sarama's Offsets.Retention, in ms. With a retention, 1.38.1 sends OffsetCommit v2, which brokers still
# support. Without a retention it would send v1, which Kafka 4.0 removed.
HOUR_MS = 3_600_000

PATIENCE = 60.0
RUNS = count(1)


def of_sarama(folder: str, release: str) -> str:
    """Build the program in `folder` with this release of sarama."""
    owner, _, version = release.partition(" ")
    return original_clients.with_modules(folder, module=f"github.com/{owner}/sarama v{version}")


class Place(NamedTuple):
    """A broker behind a proxy, with an admin client and a producer."""

    proxy: RecordingProxy
    bootstrap: str
    cluster: Admin
    producer: Producer


def run_place(kind: str) -> Iterator[Place]:
    """Run an embedded broker or a real Kafka behind a proxy, and yield it with its clients as a `Place`.

    Fixtures yield from this generator.
    """
    port = judges.free_port()
    with ExitStack() as stack:
        if kind == "kafka":
            advertised = {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}"}
            bootstrap = stack.enter_context(judges.real_kafka(advertised)).bootstrap
        else:
            server = stack.enter_context(running())
            server.advertise(f"127.0.0.1:{port}")
            bootstrap = server.bootstrap
        proxy = stack.enter_context(
            RecordingProxy(port, int(bootstrap.rpartition(":")[2]), frozenset({"Fetch"}))
        )
        address = f"127.0.0.1:{port}"
        cluster, producer = (stack.enter_context(client_class(address)) for client_class in (Admin, Producer))
        cluster.create_topics({"warm": 1})
        # The commits create the offsets topic, and make the broker load its partitions for the 20 groups.
        for number in range(20):
            cluster.commit_offsets(f"warm-{number}", {TopicPartition("warm", 0): 0})
        yield Place(proxy, address, cluster, producer)


def only_one_broker(request: pytest.FixtureRequest) -> None:
    """Skip the test if its broker, embedded or Kafka, is not the one that this run has drawn.

    With `KPROTO_ALL_PLAYS=1` the test runs on both brokers (tox -e soak). The same `KPROTO_SEED` always draws
    the same broker for a test.
    """
    item = request.node
    drawn = Random(f"{SEED} {item.originalname}").choice(["embedded", "kafka"])
    if drawn not in item.name and not os.environ.get("KPROTO_ALL_PLAYS"):
        pytest.skip(f"not drawn (KPROTO_SEED={SEED}); KPROTO_ALL_PLAYS=1 runs on both brokers")


class Program:
    """A running program, its output, and its requests to the coordinator."""

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
        """Return the times at which the program printed lines that begin with this word."""
        return [at for at, line in zip(self.times, list(self.lines), strict=False) if line.split()[0] == word]

    def until(self, word: str, least: int = 1) -> list[str]:
        """Wait until the program has printed `least` lines that begin with this word.

        Return all such lines, without the word.
        """
        with self._new:
            enough = self._new.wait_for(lambda: len(self.printed(word)) >= least, PATIENCE)
        assert enough, (word, least, self.lines[-10:])
        return self.printed(word)

    @property
    def read(self) -> list[tuple[int, int]]:
        return [(int(a), int(b)) for a, b in (line.split() for line in self.printed("R"))]

    def offsets(self, partition: int) -> list[int]:
        return [offset for read_from, offset in self.read if read_from == partition]

    def requests(self, api: str) -> list[RecordedRequest]:
        return [request for request in self.place.proxy.requests(self.name) if request.api == api]

    def read_on(self, partitions: Sequence[int], most: float = PATIENCE) -> None:
        """Write to these partitions until the program has read a record from each."""
        end = time.monotonic() + most
        while time.monotonic() < end and not set(partitions) <= {partition for partition, _ in self.read}:
            self.write(partitions)
            time.sleep(0.1)

    def write(self, partitions: Sequence[int], each: int = 1) -> None:
        for partition in partitions:
            for _ in range(each):
                self.place.producer.send(self.topic, b"x", partition=partition)
        self.place.producer.flush()

    def ends(self, partitions: int) -> dict[int, int]:
        end_offsets = self.place.cluster.list_offsets(
            {TopicPartition(self.topic, partition): "latest" for partition in range(partitions)}
        )
        return {tp.partition: offset.offset for tp, offset in end_offsets.items()}

    def committed(self) -> dict[int, int]:
        committed_offsets = self.place.cluster.committed_offsets(self.group)
        return {
            tp.partition: offset.offset
            for tp, offset in committed_offsets.items()
            if tp.topic == self.topic and offset
        }

    def close(self) -> None:
        """Close the program's stdin and wait until the program has ended."""
        if self.process.stdin is not None and not self.process.stdin.closed:
            self.process.stdin.close()
        self.ended()

    def ended(self) -> None:
        """Wait until the program ends; kill it after PATIENCE seconds."""
        try:
            self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
        self._reader.join()

    def kill(self) -> None:
        self.process.kill()
        self.close()


class Main(Program):
    """A running copy of the main() that docs/lessons/001 shows for sarama."""

    def __init__(self, place: Place, release: str, topic: str, group: str = "", **conf: Any) -> None:
        name = f"main-{next(RUNS)}"
        group = group or f"g-{name}"
        config = {"client_id": name, "retention_ms": HOUR_MS, "refresh_ms": 1_000, **conf}
        words = [of_sarama("sarama_main", release), conf.pop("bootstrap", place.bootstrap), group, topic]
        super().__init__(place, name, topic, group, [*words, json.dumps(config)])

    def signal(self, number: int = signal.SIGTERM) -> None:
        self.process.send_signal(number)

    @property
    def sessions(self) -> list[str]:
        return self.printed("session")

    def owns(self, claims: str) -> bool:
        return self.sessions[-1:] == [claims]


def topic_of(place: Place, name: str, partitions: int = 2) -> str:
    topic = f"{name}-{next(RUNS)}"
    place.cluster.create_topics({topic: partitions})
    return topic


def run_walk_place(kind: str) -> Iterator[Place]:
    for release in RELEASES:
        of_sarama("sarama_walk", release)  # The program is built once, before several threads need it.
    yield from run_place(kind)


class Walk(Program):
    """A program of docs/lessons/003, built with one release of sarama.

    When stdin is closed, the program runs its deferred Close.
    """

    def __init__(
        self, place: Place, example: str, release: str, topic: str = "", group: str = "", **conf: Any
    ) -> None:
        name = f"{example}-{next(RUNS)}"
        topic, group = topic or f"t-{name}", group or f"g-{name}"
        config = json.dumps({"client_id": name, **conf})
        words = [of_sarama("sarama_walk", release), example, place.bootstrap, group, topic, config]
        super().__init__(place, name, topic, group, words)


def eventually(true: Callable[[], bool], most: float = PATIENCE) -> bool:
    """Return whether the condition becomes true within `most` seconds."""
    end = time.monotonic() + most
    while not true():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


def at_once(acts: dict[Any, Callable[[], Any]]) -> dict[Any, Any]:
    with ThreadPoolExecutor(len(acts)) as pool:
        futures = {name: pool.submit(act) for name, act in acts.items()}
        return {name: future.result() for name, future in futures.items()}
