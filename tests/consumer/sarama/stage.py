"""Handlers for sarama's ConsumerGroup that record their calls, and a loop that consumes with them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from consumer import Admin, ConsumerGroup, ConsumerRecord, Producer
from kproto.broker.server import Server, running
from kproto.errors import IllegalState
from kproto.group.subscription import TopicPartition

T0 = TopicPartition("t", 0)
FAST: dict[str, Any] = {"auto_offset_reset": "earliest", "heartbeat_interval_ms": 50, "fetch_max_wait_ms": 50}


@contextmanager
def four_partitions() -> Iterator[Server]:
    """Yield an embedded broker with the topic that `ConsumeLoop` consumes."""
    with running(topics={"t": 4}, settings={"group.min.session.timeout.ms": "100"}) as server:
        yield server


def fill(server: Server, count: int, *, partition: int = 0) -> None:
    """Write `count` numbered records to a partition."""
    with Producer(server.bootstrap) as producer:
        for number in range(count):
            producer.send("t", b"%d" % number, partition=partition)


def committed(server: Server, group: str = "g") -> dict[int, int]:
    """Return the committed offset of each partition."""
    with Admin(server.bootstrap) as cluster:
        offsets = cluster.committed_offsets(group)
    return {place.partition: value.offset for place, value in offsets.items() if value is not None}


class RecordingHandler:
    """A handler that records its calls. `each` is called for each record, and by default marks the record."""

    def __init__(self, each: Callable[[Any, Any, ConsumerRecord], object] | None = None) -> None:
        self.each = each or (lambda session, claim, record: session.mark_message(record))
        self.calls: list[tuple[str, Any]] = []
        self.records: list[ConsumerRecord] = []
        self.claims: list[Any] = []
        self.changed = threading.Condition()

    def record_call(self, kind: str, detail: Any) -> None:
        with self.changed:
            self.calls.append((kind, detail))
            self.changed.notify_all()

    def until(self, done: Callable[[], bool], seconds: float = 10) -> None:
        """Wait until `done` returns True. `done` is called at each call of the handler and at each record."""
        with self.changed:
            assert self.changed.wait_for(done, seconds), (self.calls, len(self.records))

    def receive(self, session: Any, claim: Any, record: ConsumerRecord) -> Any:
        with self.changed:
            self.records.append(record)
            self.changed.notify_all()
        return self.each(session, claim, record)

    def setup(self, session: Any) -> None:
        self.record_call("setup", session.claims)

    def consume_claim(self, session: Any, claim: Any) -> None:
        self.claims.append(claim)
        self.record_call("claim", claim.partition)
        for record in claim:
            self.receive(session, claim, record)
        self.record_call("over", claim.partition)

    def cleanup(self, session: Any) -> None:
        self.record_call("cleanup", session.claims)


class AsyncRecordingHandler(RecordingHandler):
    async def consume_claim(self, session: Any, claim: Any) -> None:  # type: ignore[override]
        self.claims.append(claim)
        self.record_call("claim", claim.partition)
        async for record in claim:
            done = self.receive(session, claim, record)
            if asyncio.iscoroutine(done):
                await done
        self.record_call("over", claim.partition)


class FirstRecordHandler(RecordingHandler):
    """A handler that ends the session at the first record of the topic `t`."""

    def consume_claim(self, session: Any, claim: Any) -> None:
        for record in claim:
            if record.topic == "t":
                self.receive(session, claim, record)
                return


class StuckHandler(RecordingHandler):
    """A handler that marks records, and blocks at offset 2 until `never` is set."""

    def __init__(self) -> None:
        super().__init__(self._each)
        self.never = threading.Event()

    def _each(self, session: Any, claim: Any, record: ConsumerRecord) -> None:
        session.mark_message(record)
        if record.offset == 2:
            self.never.wait(20)


class ConsumeLoop:
    """A thread that calls `consume` in a loop, as applications do."""

    def __init__(self, server: Server, handler: RecordingHandler, **config: Any) -> None:
        self.group = ConsumerGroup(server.bootstrap, **{"group_id": "g", **FAST, **config})
        self.returns = 0
        self.error: BaseException | None = None
        self.handler = handler
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        try:
            while True:
                self.group.consume(["t"], self.handler)
                self.returns += 1
        except IllegalState:
            pass
        except BaseException as error:
            self.error = error

    def __enter__(self) -> ConsumeLoop:
        return self

    def __exit__(self, *_: object) -> None:
        self.group.close(10)
        self.thread.join(10)
        assert not self.thread.is_alive()
