"""sarama and kproto's `ConsumerGroup` read the same records and report the same errors.

Each handler exists in Go and in Python. Some fail, and others mark or reset offsets in `setup`.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from consumer import Admin, ConsumerGroup, Producer
from kproto.broker.server import running
from kproto.group.subscription import TopicPartition
from tests.conformance import original_clients

PROGRAM = original_clients.SOURCES / "handlers" / "main.go"
T0 = TopicPartition("t", 0)


class One:
    """A handler that reads and marks one record of partition 0, and then ends the session."""

    def __init__(self) -> None:
        self.read: list[int] = []

    def setup(self, session: Any) -> None: ...

    def cleanup(self, session: Any) -> None: ...

    def consume_claim(self, session: Any, claim: Any) -> None:
        if claim.partition != 0:
            session.done.wait()
            return
        for record in claim:
            self.read.append(record.offset)
            session.mark_message(record)
            return


class Marks(One):
    def setup(self, session: Any) -> None:
        session.mark_offset("t", 0, 3)


class Resets(One):
    def setup(self, session: Any) -> None:
        session.reset_offset("t", 0, 2)


class CleanupFails(One):
    def cleanup(self, session: Any) -> None:
        raise ValueError("no disk")


class SetupFails(One):
    def setup(self, session: Any) -> None:
        raise ValueError("no database")


class ClaimsFail(One):
    def consume_claim(self, session: Any, claim: Any) -> None:
        raise ValueError("no flight")


class FailsBehind(One):
    def consume_claim(self, session: Any, claim: Any) -> None:
        if claim.partition == 0:
            session.done.wait()
            raise ValueError("the last flush failed")


def our_results(bootstrap: str) -> list[Any]:
    results: list[Any] = []

    def session(group: ConsumerGroup, name: str, handler: One) -> None:
        returned = ""
        try:
            group.consume(["t"], handler)
        except ValueError as error:
            returned = str(error)
        errors = group._group.error_channel.items
        messages = sorted(str(errors.popleft()) for _ in range(len(errors)))
        results.append([name, handler.read, returned, messages])

    with ConsumerGroup(bootstrap, group_id="ours", auto_offset_reset="earliest") as group:
        session(group, "a mark of setup behind the commit", Marks())
        session(group, "a reset of setup behind the commit", Resets())
        session(group, "cleanup fails", CleanupFails())
        session(group, "setup fails", SetupFails())
        session(group, "claims fail", ClaimsFail())
        session(group, "a claim fails behind its loop", FailsBehind())
    options: Any = {"auto_offset_reset": "earliest", "enable_auto_commit": False}
    with ConsumerGroup(bootstrap, group_id="ours-by-hand", **options) as group:
        for _ in range(2):
            session(group, "marked without auto commit", One())
    return results


@pytest.mark.originals
def test_handlers_behave_as_with_sarama(tmp_path: Path) -> None:
    program = original_clients.built(PROGRAM, tmp_path / "handlers")
    with running(topics={"t": 2}) as server:
        with Producer(server.bootstrap) as producer:
            for number in range(10):
                producer.send("t", b"%d" % number, partition=0)
        with Admin(server.bootstrap) as cluster:
            for group in ("sarama", "ours"):
                cluster.commit_offsets(group, {T0: 5})
        done = subprocess.run([program, server.bootstrap], capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        theirs = [json.loads(line) for line in done.stdout.splitlines()]
        assert len(theirs) == 8
        assert our_results(server.bootstrap) == theirs
