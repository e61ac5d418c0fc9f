"""Other clients on the embedded broker: joins, leaves, crashes and broken connections lose no record.

Each client is a separate process (foreign_clients.py), which the tests may kill.
"""

from __future__ import annotations

import json
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from kproto.broker.server import Server
from kproto.records import batches
from tests.conformance.judges import need_client

pytestmark = pytest.mark.clients

PROGRAM = Path(__file__).with_name("foreign_clients.py")
PARTITIONS = 6
SESSION_MS = 2000
PATIENCE = 40.0  # The longest time for a single step of a test, in seconds.


def command(client: str, role: str, *arguments: object) -> list[str]:
    return [sys.executable, str(PROGRAM), client, role, *map(str, arguments)]


def ask(client: str, role: str, *arguments: object) -> dict[str, Any]:
    """Run one of the programs to its end, and return its last line of output."""
    done = subprocess.run(
        command(client, role, *arguments),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    event: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return event


class ForeignMember:
    """A consumer in a separate process, and its output."""

    def __init__(self, client: str, *arguments: object) -> None:
        self.process = subprocess.Popen(
            command(client, "member", *arguments),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.owned: list[int] = []
        self.read: list[list[int]] = []
        self.closed = False
        self.refused: list[str] = []  # Failed commits.
        self.errors: list[str] = []
        self._said: queue.SimpleQueue[str] = queue.SimpleQueue()
        for stream, sink in (
            (self.process.stdout, self._said.put),
            (self.process.stderr, self.errors.append),
        ):
            threading.Thread(target=self._pump, args=(stream, sink), daemon=True).start()

    @staticmethod
    def _pump(stream: Any, sink: Any) -> None:
        for line in stream:
            sink(line)

    def listen(self) -> None:
        """Process the lines that the member has printed so far."""
        while True:
            try:
                event = json.loads(self._said.get_nowait())
            except queue.Empty:
                return
            self.owned = event.get("assigned", self.owned)
            self.read += event.get("read", [])
            self.closed = event.get("closed", self.closed)
            if "commit_failed" in event:
                self.refused.append(event["commit_failed"])

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("close\n")
        self.process.stdin.flush()


@contextmanager
def member(client: str, *arguments: object) -> Iterator[ForeignMember]:
    new_member = ForeignMember(client, *arguments)
    try:
        yield new_member
    finally:
        new_member.process.kill()
        new_member.process.wait(10)


def wait(condition: str, members: list[ForeignMember], done: Any) -> None:
    """Process the members' output until `done()` returns True, for at most PATIENCE seconds."""
    end = time.monotonic() + PATIENCE
    while True:
        for member_ in members:
            member_.listen()
        if done():
            return
        crashed = any(member.process.poll() not in (None, 0, -signal.SIGKILL) for member in members)
        if crashed or time.monotonic() > end:
            states = [
                (
                    member.owned,
                    len(member.read),
                    member.refused,
                    member.process.poll(),
                    "".join(member.errors)[-1500:],
                )
                for member in members
            ]
            pytest.fail(f"{condition}: not within {PATIENCE} s; members: {states}")
        time.sleep(0.02)


def numbers(members: list[ForeignMember]) -> set[int]:
    return {number for member in members for _, _, number in member.read}


def evenly(members: list[ForeignMember]) -> bool:
    """Return whether each partition has one owner, and all members own the same number of partitions."""
    owned = sorted(partition for member in members for partition in member.owned)
    return owned == list(range(PARTITIONS)) and len({len(member.owned) for member in members}) == 1


@pytest.mark.parametrize("leaving", ["killed", "closed"])
@pytest.mark.parametrize(
    ("client", "strategy"),
    [
        ("kafka-python", "range"),
        ("kafka-python", "cooperative-sticky"),
        ("aiokafka", "roundrobin"),
        ("aiokafka", "sticky"),
        ("confluent", "range"),
        ("confluent", "cooperative-sticky"),
    ],
)
def test_a_group_reads_every_record_when_members_join_and_leave(
    embedded: Server, client: str, strategy: str, leaving: str
) -> None:
    need_client(client)
    bootstrap, topic, group = embedded.bootstrap, "flights", "readers"
    assert topic in ask(client, "create", bootstrap, topic, PARTITIONS)["created"]

    def produce(first: int, count: int) -> None:
        assert ask(client, "produce", bootstrap, topic, first, count, "none", "no") == {"produced": count}

    arguments = (client, bootstrap, topic, group, strategy, SESSION_MS)
    produce(0, 4000)
    with ExitStack() as stack:
        members = [stack.enter_context(member(*arguments)) for _ in range(2)]
        wait("two members own all", members, lambda: evenly(members))
        wait("the first records", members, lambda: numbers(members) >= set(range(4000)))
        members.append(stack.enter_context(member(*arguments)))
        wait("three members own all", members, lambda: evenly(members))
        produce(4000, 3000)
        wait("the records in the middle", members, lambda: numbers(members) >= set(range(7000)))
        lost, remaining = members[0], members[1:]
        if leaving == "killed":
            lost.process.kill()
        else:
            lost.close()
        # A commit during a rebalance may fail with these errors.
        embedded.fail("OffsetCommit", "REBALANCE_IN_PROGRESS", 3)
        produce(7000, 3000)
        wait("two members own all again", remaining, lambda: evenly(remaining))
        wait("the last records", members, lambda: numbers(members) == set(range(10_000)))

        stored = embedded.broker.topics.named(topic)
        assert stored is not None
        ends = [partition.log.end_offset for partition in stored.partitions]
        assert sum(ends) == 10_000

        def committed() -> bool:
            return ask(client, "committed", bootstrap, topic, group, PARTITIONS) == {"committed": ends}

        wait("their last commits", remaining, committed)
        for member_ in remaining:
            member_.close()
        wait("the members are closed", remaining, lambda: all(member_.closed for member_ in remaining))
        assert committed()


@pytest.mark.parametrize("client", ["kafka-python", "aiokafka", "confluent"])
def test_an_idempotent_producer_stores_every_record_once_when_connections_break(
    embedded: Server, client: str
) -> None:
    need_client(client)
    count = 20_000
    embedded.create_topic("once", 3)
    topic = embedded.broker.topics.named("once")
    assert topic is not None
    producing = subprocess.Popen(
        command(client, "produce", embedded.bootstrap, "once", 0, count, "none", "yes"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        for part in range(1, 6):  # Close all connections several times while records arrive.
            end = time.monotonic() + PATIENCE
            while sum(partition.log.end_offset for partition in topic.partitions) < part * count // 10:
                assert time.monotonic() < end
                time.sleep(0.001)
            embedded.drop_connections()
        output, errors = producing.communicate(timeout=PATIENCE)
    finally:
        producing.kill()
    assert json.loads(output) == {"produced": count}, errors[-2000:]
    stored = [
        int(record.value or b"")
        for partition in topic.partitions
        for chunk in partition.log.read(0, 1 << 30, at_least_one=True)
        for batch in batches(chunk)
        for record in batch.records()
    ]
    assert sorted(stored) == list(range(count))


@pytest.mark.parametrize(
    ("client", "codec", "needs"),
    [
        ("kafka-python", "gzip", ()),
        ("kafka-python", "snappy", ("snappy",)),
        ("kafka-python", "lz4", ("lz4",)),
        ("kafka-python", "zstd", ("zstandard",)),
        ("aiokafka", "gzip", ()),
        ("aiokafka", "snappy", ("cramjam",)),
        ("aiokafka", "lz4", ("cramjam",)),
        ("aiokafka", "zstd", ("cramjam",)),
        ("confluent", "gzip", ()),
        ("confluent", "snappy", ()),
        ("confluent", "lz4", ()),
        ("confluent", "zstd", ()),
    ],
)
def test_compressed_batches_are_stored_unchanged(
    embedded: Server, client: str, codec: str, needs: tuple[str, ...]
) -> None:
    need_client(client, *needs)
    embedded.create_topic("packed", 1)
    assert ask(client, "produce", embedded.bootstrap, "packed", 0, 500, codec, "no") == {"produced": 500}
    topic = embedded.broker.topics.named("packed")
    assert topic is not None
    stored = topic.partitions[0].log.read(0, 1 << 30, at_least_one=True)
    codecs = {batch.compression for chunk in stored for batch in batches(chunk)}
    assert codec in codecs
    assert codecs <= {codec, "none"}  # kafka-python does not compress a batch if it would become larger.
    with member(client, embedded.bootstrap, "packed", "unpackers", "range", SESSION_MS) as reader:
        wait("all records", [reader], lambda: numbers([reader]) == set(range(500)))
