"""Scenarios for one client, run with the original client and with kproto's model of this client.

A scenario is a function of a `Stage`, which holds the members, the proxy and the topic.

A key of `SCENARIOS` is a name. A value is the scenario, and the ability that a client needs for it. A client
without the ability (`LACKS`) skips the scenario.

The comparison covers each member's requests to the coordinator (`request_lines`), and the events that its
application received (`DrivenMember.events`).
"""

from __future__ import annotations

import math
import os
import queue
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

import pytest

from consumer import Admin, Producer
from tests import seeds
from tests.conformance.recording_proxy import RecordingProxy

PATIENCE = 40.0
SEED = seeds.FIRST
# Whether to run all cases. If not, only the cases that are drawn with `SEED` run.
RUN_ALL: Final = bool(os.environ.get("KPROTO_ALL_PLAYS"))
LACKS: Final[Mapping[str, frozenset[str]]] = {
    "kafka-go": frozenset({"static", "unsubscribe", "pattern", "cooperative", "sticky"}),
    "sarama": frozenset({"pattern", "no-leave", "sticky"}),
    "sarama-cluster": frozenset(
        {"static", "unsubscribe", "pattern", "cooperative", "sticky", "no-leave", "growth"}
    ),
    "java": frozenset(),
    "java-2.6": frozenset(),
    "librdkafka": frozenset({"sticky"}),
}


def skip_unless_drawn(case: object, cases: Iterable[object]) -> None:
    """Skip a case that this run did not draw.

    A run draws a quarter of `cases`, because running all of them would take too long. Runs with the same
    `KPROTO_SEED` draw the same cases.

    With `KPROTO_ALL_PLAYS=1`, which tox -e soak sets, no case is skipped.
    """
    every = sorted(map(repr, cases))
    drawn = Random(SEED).sample(every, math.ceil(len(every) / 4))
    if repr(case) not in drawn and not RUN_ALL:
        pytest.skip(f"not drawn (KPROTO_SEED={SEED}); KPROTO_ALL_PLAYS=1 runs all")


class DrivenMember:
    """A client program that is controlled through stdin: an original client or its model."""

    def __init__(self, name: str, order: Sequence[str]) -> None:
        self.name = name
        self.process = subprocess.Popen(
            list(order), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self.lines: list[str] = []
        self.arrived: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.at = 0  # The number of lines that `until` has read.
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.arrived.put(line.rstrip("\n").partition(" ")[2])
        self.arrived.put("END")

    def send(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def until(self, start: str, count: int = 1, patience: float = PATIENCE) -> str:
        """Wait for `count` lines that begin with `start`, after the lines that earlier calls have read."""
        end = time.monotonic() + patience
        while True:
            while self.at < len(self.lines):
                line = self.lines[self.at]
                self.at += 1
                count -= line.startswith(start)
                if count == 0:
                    return line
            self._next(start, end)

    def until_read(self, count: int, patience: float = PATIENCE) -> None:
        """Wait until the member has read `count` records in all; ignore its other output."""
        end = time.monotonic() + patience
        while len(self.read()) < count:
            self._next(f"{count} times 'R '", end)
        self.at = len(self.lines)

    def _next(self, wanted: str, end: float) -> None:
        try:
            self.lines.append(self.arrived.get(timeout=max(0.01, end - time.monotonic())))
        except queue.Empty:
            raise AssertionError(
                f"{self.name} did not print {wanted!r} in time; its last lines: {self.lines[-12:]}"
            ) from None

    def close(self) -> None:
        self.send("close")
        self.until("closed")
        self.process.wait(PATIENCE)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(PATIENCE)

    def events(self) -> list[str]:
        """Return the rebalance callbacks and commit results that the application received."""
        events: list[str] = []
        for line in self.lines:
            word, _, result = line.partition(" ")
            if word in ("assigned", "revoked", "lost", "setup", "cleanup", "answer"):
                events.append(line.rstrip())
            elif word == "commit":
                events.append(line if result == "ok" else f"commit {result.split()[0]}")
        return events

    def errors(self) -> list[str]:
        """Return the names of the reported errors.

        The errors are not among `events`, because their order relative to events is random.
        """
        return [line.split()[1] for line in self.lines if line.startswith("error ")]

    def read(self) -> list[str]:
        return [line[2:] for line in self.lines if line.startswith("R ")]


@dataclass
class Stage:
    """One run of a scenario: its members, the proxy in front of the broker, and the operator's actions."""

    start: Callable[[str, str, str, Mapping[str, Any]], DrivenMember]
    proxy: RecordingProxy
    cluster: Admin
    producer: Producer
    run: str
    members: list[DrivenMember] = field(default_factory=list[DrivenMember])

    @property
    def topic(self) -> str:
        return f"t-{self.run}"

    def name(self, member: str) -> str:
        return f"{member}-{self.run}"

    def members_named(self, name: str) -> list[DrivenMember]:
        """Return the processes that were started under this member name, in order of their start."""
        return [member for member in self.members if member.name == name]

    def member(self, name: str, **conf: Any) -> DrivenMember:
        """Start a member of the scenario's group."""
        usual: dict[str, Any] = {
            "assignors": ["range"],
            "session_ms": 4_000,
            "heartbeat_ms": 200,
            "max_poll_ms": 6_000,
            "auto_commit": True,
            "auto_commit_ms": 400,
            "reset": "earliest",
            "metadata_ms": 800,
        }
        member = self.start(name, self.name(name), f"g-{self.run}", {**usual, **conf})
        self.members.append(member)
        member.until("ready")
        return member

    def start_subscribed(self, name: str, **conf: Any) -> DrivenMember:
        """Start a member, subscribe it, and wait until it has partitions."""
        member = self.member(name, **conf)
        member.send(f"subscribe {self.topic}")
        member.until("assigned")
        return member

    def produce(self, count: int, partitions: int = 2) -> None:
        for number in range(count):
            self.producer.send(self.topic, b"%d" % number, partition=number % partitions)
        self.producer.flush()

    def grow(self, partitions: int) -> None:
        self.cluster.create_partitions({self.topic: partitions})

    def inject(self, member: str, api: str, *codes: int) -> None:
        self.proxy.inject(self.name(member), api, *codes)

    def wait_for_request(self, member: str, api: str, *, repeated: bool = False) -> None:
        """Wait until a member has sent a request of this API.

        With `repeated`, requests that the member sent before this call do not count.
        """
        end = time.monotonic() + PATIENCE
        before = self._asked(member, api) if repeated else 0
        while self._asked(member, api) <= before:
            if time.monotonic() > end:
                raise AssertionError(f"{member} did not send the expected request in time: {api}")
            time.sleep(0.02)

    def _asked(self, member: str, api: str) -> int:
        return sum(request.api == api for request in self.proxy.requests(self.name(member)))

    def pause(self, seconds: float) -> None:
        time.sleep(seconds)


def join(stage: Stage) -> None:
    """One member joins, reads, commits automatically and closes."""
    stage.produce(20)
    a = stage.start_subscribed("A")
    a.until_read(20)
    stage.pause(1.0)
    a.close()


def second(stage: Stage) -> None:
    """A second member joins and leaves. The first member gets all partitions again."""
    stage.produce(20)
    a = stage.start_subscribed("A")
    a.until_read(20)
    stage.pause(0.6)
    b = stage.start_subscribed("B")
    a.until("assigned")
    stage.pause(1.2)
    b.close()
    a.until("assigned")
    stage.pause(0.6)
    a.close()


def growth(stage: Stage) -> None:
    """The topic gets more partitions. A client that refreshes its metadata rejoins."""
    stage.produce(10)
    a = stage.start_subscribed("A")
    a.until_read(10)
    stage.pause(1.0)
    stage.grow(4)
    a.until("assigned")
    stage.pause(0.6)
    a.close()


def crash(stage: Stage) -> None:
    """Member B is killed. When its session has expired, member A gets B's partitions."""
    stage.produce(20)
    a = stage.start_subscribed("A")
    a.until_read(20)
    stage.pause(0.6)
    b = stage.start_subscribed("B")
    a.until("assigned")
    stage.pause(1.2)
    b.kill()
    a.until("assigned")
    stage.pause(0.6)
    a.close()


def restart(stage: Stage) -> None:
    """A static member restarts within its session timeout.

    The session timeout is 60 s, so that it does not expire while the process starts.
    """
    stage.produce(10)
    a = stage.start_subscribed("A", instance="one", session_ms=60_000, max_poll_ms=90_000)
    a.until_read(10)
    stage.pause(0.8)
    a.close()
    restarted = stage.start_subscribed("A", instance="one", session_ms=60_000, max_poll_ms=90_000)
    stage.pause(0.8)
    restarted.close()


def manual(stage: Stage) -> None:
    """Only the application commits."""
    stage.produce(20)
    a = stage.start_subscribed("A", auto_commit=False)
    a.until_read(20)
    stage.pause(0.6)
    a.send("commit")
    a.until("done commit")
    stage.pause(0.4)
    a.close()


def heartbeat_errors(stage: Stage) -> None:
    """Answer heartbeats with each error code in turn.

    Automatic commits are off, because it is random whether Java's client sends one before or after an error.
    """
    stage.produce(10)
    a = stage.start_subscribed("A", auto_commit=False)
    a.until_read(10)
    for code in (27, 22, 25, 15, 16):
        stage.pause(1.0)
        stage.inject("A", "Heartbeat", code)
        stage.pause(1.5)
    a.close()


def commit_errors(stage: Stage) -> None:
    """Answer the application's commits with each error code in turn."""
    stage.produce(10)
    a = stage.start_subscribed("A", auto_commit=False)
    a.until_read(10)
    for code in (27, 14, 16):
        stage.pause(0.8)
        stage.inject("A", "OffsetCommit", code)
        a.send("commit")
        a.until("done commit")
    stage.pause(1.0)
    a.close()


def join_errors(stage: Stage) -> None:
    """For each error code, start a member whose first JoinGroup fails with this code."""
    for number, code in enumerate((15, 25)):
        name = f"A{number}"
        stage.inject(name, "JoinGroup", code)
        member = stage.start_subscribed(name)
        stage.pause(1.5)
        member.close()


def sync_errors(stage: Stage) -> None:
    """For each error code, start a member whose first SyncGroup fails with this code."""
    for number, code in enumerate((27, 22, 25)):
        name = f"A{number}"
        stage.inject(name, "SyncGroup", code)
        member = stage.start_subscribed(name)
        stage.pause(1.5)
        member.close()


def start_errors(stage: Stage) -> None:
    """Answer one member's first FindCoordinator, and another's first OffsetFetch, with an error."""
    for number, (api, code) in enumerate((("FindCoordinator", 15), ("OffsetFetch", 14))):
        name = f"A{number}"
        stage.inject(name, api, code)
        member = stage.start_subscribed(name)
        stage.pause(1.0)
        member.close()


def unsubscribe(stage: Stage) -> None:
    """The application unsubscribes and subscribes again."""
    stage.produce(10)
    a = stage.start_subscribed("A")
    a.until_read(10)
    stage.pause(0.8)
    a.send("unsubscribe")
    a.until("done unsubscribe")
    a.send(f"subscribe {stage.topic}")
    a.until("assigned")
    stage.pause(0.6)
    a.close()


def cooperative(stage: Stage) -> None:
    """A second member joins. Only the partitions that it gets are revoked from the first member."""
    stage.produce(20)
    a = stage.start_subscribed("A", assignors=["cooperative-sticky"])
    a.until_read(20)
    stage.pause(0.6)
    b = stage.member("B", assignors=["cooperative-sticky"])
    b.send(f"subscribe {stage.topic}")
    a.until("revoked")
    b.until("assigned " + stage.topic)
    stage.pause(1.0)
    b.close()
    a.until("assigned " + stage.topic)
    stage.pause(1.0)
    a.close()


def sticky(stage: Stage) -> None:
    """A second member joins and leaves. Then the user data of A's JoinGroup lists A's partitions."""
    stage.produce(20)
    a = stage.start_subscribed("A", assignors=["sticky"])
    a.until_read(20)
    stage.pause(0.6)
    b = stage.start_subscribed("B", assignors=["sticky"])
    a.until("assigned " + stage.topic)
    stage.pause(1.0)
    b.close()
    a.until("assigned " + stage.topic)
    stage.pause(1.0)
    a.close()


def close_while_joining(stage: Stage) -> None:
    """The application closes while the JoinGroup response is delayed."""
    a = stage.member("A")
    stage.proxy.hold(stage.name("A"), "JoinGroup", 1.5)
    a.send(f"subscribe {stage.topic}")
    stage.wait_for_request("A", "JoinGroup")
    stage.pause(0.2)
    a.close()


def fencing(stage: Stage) -> None:
    """A second process with the same instance id fences the first process.

    The test kills the fenced process immediately, because Java's client would rejoin and fence the second
    process.
    """
    stage.produce(10)
    conf: dict[str, Any] = {
        "instance": "one",
        "auto_commit": False,
        "session_ms": 60_000,
        "max_poll_ms": 90_000,
    }
    a = stage.start_subscribed("A", **conf)
    a.until_read(10)
    b = stage.member("B", **conf)
    b.send(f"subscribe {stage.topic}")
    a.until("error")
    a.kill()
    b.until("assigned")
    stage.pause(1.0)
    b.close()


def commit_while_joining(stage: Stage) -> None:
    """The application commits while the JoinGroup response is delayed."""
    stage.produce(10)
    a = stage.start_subscribed("A", auto_commit=False)
    a.until_read(10)
    stage.pause(0.6)
    stage.proxy.hold(stage.name("A"), "JoinGroup", 1.5)
    b = stage.member("B", auto_commit=False)
    b.send(f"subscribe {stage.topic}")
    stage.wait_for_request("A", "JoinGroup", repeated=True)
    stage.pause(0.3)
    a.send("commit")
    a.until("assigned")
    b.until("assigned")
    stage.pause(0.6)
    b.close()
    a.until("assigned")
    stage.pause(0.4)
    a.close()


def pattern(stage: Stage) -> None:
    """Subscribe to a pattern that matches an existing topic and one that is created later."""
    stage.produce(10)
    a = stage.member("A")
    a.send(f"pattern ^{stage.topic}.*")
    a.until("assigned")
    a.until_read(10)
    stage.pause(0.6)
    stage.cluster.create_topics({f"{stage.topic}-too": 1})
    a.until("assigned")
    stage.pause(0.6)
    a.close()


Scenario = Callable[[Stage], None]
# Name -> the scenario, and the ability that a client needs for it ("": none). `LACKS` lists the abilities
# that clients lack.
SCENARIOS: Final[Mapping[str, tuple[Scenario, str]]] = {
    "join": (join, ""),
    "second": (second, ""),
    "growth": (growth, "growth"),
    "crash": (crash, ""),
    "restart": (restart, "static"),
    "manual": (manual, ""),
    "heartbeat-errors": (heartbeat_errors, ""),
    "commit-errors": (commit_errors, ""),
    "join-errors": (join_errors, ""),
    "sync-errors": (sync_errors, ""),
    "start-errors": (start_errors, ""),
    "unsubscribe": (unsubscribe, "unsubscribe"),
    "cooperative": (cooperative, "cooperative"),
    "sticky": (sticky, "sticky"),
    "close-while-joining": (close_while_joining, ""),
    "fencing": (fencing, "static"),
    "commit-while-joining": (commit_while_joining, ""),
    "pattern": (pattern, "pattern"),
}
