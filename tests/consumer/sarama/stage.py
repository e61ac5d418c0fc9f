"""Handlers that write down what happens, and what plays with them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from consumer import Cluster, ConsumerGroup, ConsumerRecord, Producer
from kproto.broker.server import Server, running
from kproto.errors import IllegalState
from kproto.group.subscription import TopicPartition

T0 = TopicPartition("t", 0)
FAST: dict[str, Any] = {"auto_offset_reset": "earliest", "heartbeat_interval_ms": 50, "fetch_max_wait_ms": 50}


@contextmanager
def four_partitions() -> Iterator[Server]:
    """A broker with the topic that `Loop` consumes."""
    with running(topics={"t": 4}, settings={"group.min.session.timeout.ms": "100"}) as server:
        yield server


def fill(server: Server, count: int, *, partition: int = 0) -> None:
    with Producer(server.bootstrap) as producer:
        for number in range(count):
            producer.send("t", b"%d" % number, partition=partition)


def committed(server: Server, group: str = "g") -> dict[int, int]:
    with Cluster(server.bootstrap) as cluster:
        found = cluster.committed_offsets(group)
    return {place.partition: value.offset for place, value in found.items() if value is not None}


class Notes:
    """A handler that writes down what happens; `each` is what it does with a record."""

    def __init__(self, each: Callable[[Any, Any, ConsumerRecord], object] | None = None) -> None:
        self.each = each or (lambda session, claim, record: session.mark_message(record))
        self.told: list[tuple[str, Any]] = []
        self.records: list[ConsumerRecord] = []
        self.claims: list[Any] = []
        self.changed = threading.Condition()

    def note(self, what: str, of: Any) -> None:
        with self.changed:
            self.told.append((what, of))
            self.changed.notify_all()

    def until(self, done: Callable[[], bool], seconds: float = 10) -> None:
        with self.changed:
            assert self.changed.wait_for(done, seconds), (self.told, len(self.records))

    def take(self, session: Any, claim: Any, record: ConsumerRecord) -> Any:
        with self.changed:
            self.records.append(record)
            self.changed.notify_all()
        return self.each(session, claim, record)

    def setup(self, session: Any) -> None:
        self.note("setup", session.claims)

    def consume_claim(self, session: Any, claim: Any) -> None:
        self.claims.append(claim)
        self.note("claim", claim.partition)
        for record in claim:
            self.take(session, claim, record)
        self.note("over", claim.partition)

    def cleanup(self, session: Any) -> None:
        self.note("cleanup", session.claims)


class AsyncNotes(Notes):
    async def consume_claim(self, session: Any, claim: Any) -> None:  # type: ignore[override]
        self.claims.append(claim)
        self.note("claim", claim.partition)
        async for record in claim:
            done = self.take(session, claim, record)
            if asyncio.iscoroutine(done):
                await done
        self.note("over", claim.partition)


class Once(Notes):
    """Ends the session with the first record of "t"."""

    def consume_claim(self, session: Any, claim: Any) -> None:
        for record in claim:
            if record.topic == "t":
                self.take(session, claim, record)
                return


class Stuck(Notes):
    """Marks what comes, and does not end with the record at offset 2 until it is let go."""

    def __init__(self) -> None:
        super().__init__(self._each)
        self.never = threading.Event()

    def _each(self, session: Any, claim: Any, record: ConsumerRecord) -> None:
        session.mark_message(record)
        if record.offset == 2:
            self.never.wait(20)


class Loop:
    """`consume` in a loop in a thread, as every program has it."""

    def __init__(self, server: Server, notes: Notes, **config: Any) -> None:
        self.group = ConsumerGroup(server.bootstrap, **{"group_id": "g", **FAST, **config})
        self.returns = 0
        self.error: BaseException | None = None
        self.notes = notes
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        try:
            while True:
                self.group.consume(["t"], self.notes)
                self.returns += 1
        except IllegalState:
            pass
        except BaseException as error:
            self.error = error

    def __enter__(self) -> Loop:
        return self

    def __exit__(self, *_: object) -> None:
        self.group.close(10)
        self.thread.join(10)
        assert not self.thread.is_alive()
