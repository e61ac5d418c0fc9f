"""Consumers and admin clients that run during an operator's actions, and the clients' results.

ledger = Ledger()
with Readers(bootstrap, "t", ledger, ("blocking", "asyncio"), group_id="g"):
    with Writer(bootstrap, "t", 6) as writer:
        ...                                 # the operator's actions
    until(lambda: ledger.count >= len(writer.sent), "all is read")
assert ledger.wrong(writer.sent) == []
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import defaultdict
from collections.abc import Iterable
from types import TracebackType
from typing import Any

from consumer import (
    Admin,
    AsyncAdmin,
    AsyncConsumer,
    AsyncConsumerGroup,
    Consumer,
    ConsumerGroup,
    GroupChange,
    RebalanceListener,
)
from kproto.errors import ConnectionFailed, KprotoError
from tests.conformance.cluster_workers import CLOSE_S, Closes, InThread

# A handler commits after it has marked this many records.
MARKED = 50
# The timeout of each `Admin` call, retries included, in seconds.
ASKED_S = 60.0
OPTIONS: dict[str, Any] = {"auto_offset_reset": "earliest", "enable_auto_commit": False}


class Ledger:
    """The records that one group read, by partition and offset, and its commits, errors and events."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.read: dict[int, dict[int, int]] = defaultdict(dict)
        self.committed: dict[int, int] = defaultdict(int)
        self.errors: list[str] = []
        self.changes: list[tuple[float, str, GroupChange]] = []
        self.odd: list[str] = []
        self.doubled = 0
        self.silence = 0.0
        self.last: dict[int, float] = {}
        self.silences: dict[int, float] = defaultdict(float)
        self._last_at = 0.0

    @property
    def count(self) -> int:
        return sum(map(len, list(self.read.values())))

    def note(self, who: str, expected: dict[int, int], records: list[Any]) -> None:
        with self.lock:
            now = time.monotonic()
            if records:
                if self._last_at:
                    self.silence = max(self.silence, now - self._last_at)
                self._last_at = now
            for record in records:
                partition, offset = record.partition, record.offset
                self.silences[partition] = max(self.silences[partition], now - self.last.get(partition, now))
                self.last[partition] = now
                # Gaps are allowed, because transaction markers also occupy offsets.
                if offset < expected.get(partition, 0):
                    self.odd.append(f"{who}: read {partition}-{offset} after {expected[partition] - 1}")
                expected[partition] = offset + 1
                if offset in self.read[partition]:
                    self.doubled += 1
                    if offset < self.committed[partition]:
                        below = self.committed[partition]
                        self.odd.append(
                            f"{who}: read {partition}-{offset} again, although {below} is committed"
                        )
                self.read[partition][offset] = int(bytes(record.value))

    def was_committed(self, positions: dict[int, int]) -> None:
        with self.lock:
            for partition, offset in positions.items():
                self.committed[partition] = max(self.committed[partition], offset)

    def kinds(self, *wanted: str) -> list[str]:
        return [f"{who} {change}" for _, who, change in self.changes if change.kind in wanted]

    def wrong(self, sent: Iterable[int]) -> list[str]:
        """Return the lost, wrong and repeated records as errors."""
        errors = self.odd[:5]
        values = [value for offsets in self.read.values() for value in offsets.values()]
        lost = set(sent) - set(values)
        if lost:
            errors.append(f"{len(lost)} records are lost, such as {min(lost)}")
        if len(values) != len(set(values)):
            errors.append(f"the log holds {len(values) - len(set(values))} records twice")
        for partition, offsets in self.read.items():
            in_order = [offsets[offset] for offset in sorted(offsets)]
            if in_order != sorted(in_order):
                errors.append(f"partition {partition} is out of order")
        return errors


class _Assigned(RebalanceListener):
    def __init__(self, expected: dict[int, int]) -> None:
        self.expected = expected

    def assigned(self, partitions: Any) -> None:
        for partition in partitions:
            self.expected.pop(partition.partition, None)

    revoked = assigned


class _Numbers:
    """sarama's handler, in threads."""

    def __init__(self, ledger: Ledger, name: str) -> None:
        self._ledger, self._name = ledger, name

    def setup(self, session: Any) -> None:
        pass

    cleanup = setup

    def consume_claim(self, session: Any, claim: Any) -> None:
        expected: dict[int, int] = {}
        for count, record in enumerate(claim, 1):
            self._ledger.note(self._name, expected, [record])
            session.mark_message(record)
            if count % MARKED == 0:
                session.commit()
                # After a revocation the claim has ended and the member no longer owns the partition. The
                # commit then omits the partition's offset, so the offset is not recorded.
                if not claim.ended:
                    self._ledger.was_committed(expected)


class _AsyncNumbers(_Numbers):
    """sarama's handler, in asyncio."""

    async def consume_claim(self, session: Any, claim: Any) -> None:
        expected: dict[int, int] = {}
        count = 0
        async for record in claim:
            self._ledger.note(self._name, expected, [record])
            session.mark_message(record)
            count += 1
            if count % MARKED == 0:
                position = dict(expected)
                await session.commit()
                if not claim.ended:
                    self._ledger.was_committed(position)


class Readers:
    """Members of one group, each in a thread.

    The kinds of members are "blocking", "asyncio", and sarama's "handler" and "async handler".
    """

    def __init__(
        self, bootstrap: str, topic: str, ledger: Ledger, kinds: Iterable[str] = ("blocking",), **options: Any
    ) -> None:
        self._over = threading.Event()
        self._ledger = ledger
        self.closes = Closes()
        self._threads: list[threading.Thread] = []
        work = {
            "blocking": self._blocking,
            "asyncio": self._waiting,
            "handler": self._handling,
            "async handler": self._handling_async,
        }
        for number, kind in enumerate(kinds):
            name = f"{options.get('group_id')}-{number}-{kind}"
            member_options = {**OPTIONS, "client_id": name, **options}
            thread = threading.Thread(
                target=work[kind], args=(bootstrap, topic, name, member_options), daemon=True
            )
            self._threads.append(thread)

    def __enter__(self) -> Readers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(60)
        self._ledger.errors += self.closes.errors
        late = [thread for thread in self._threads if thread.is_alive()]
        assert error is not None or not late, f"{len(late)} readers hang"

    def _noted(self, name: str) -> Any:
        return lambda change: self._ledger.changes.append((time.monotonic(), name, change))

    def _raised(self, name: str, error: KprotoError) -> None:
        self._ledger.errors.append(f"{name}: {type(error).__name__}: {error}")

    def _blocking(self, bootstrap: str, topic: str, name: str, options: dict[str, Any]) -> None:
        expected: dict[int, int] = {}
        with self.closes.closing(Consumer(bootstrap, **options)) as consumer:
            consumer.events(self._noted(name))
            consumer.subscribe([topic], listener=_Assigned(expected))
            while not self._over.is_set():
                try:
                    records = consumer.poll(0.2)
                    self._ledger.note(name, expected, records)
                    if records:
                        positions = dict(expected)
                        consumer.commit()
                        self._ledger.was_committed(positions)
                except KprotoError as error:
                    self._raised(name, error)

    def _waiting(self, bootstrap: str, topic: str, name: str, options: dict[str, Any]) -> None:
        asyncio.run(self._wait(bootstrap, topic, name, options))

    async def _wait(self, bootstrap: str, topic: str, name: str, options: dict[str, Any]) -> None:
        expected: dict[int, int] = {}
        async with self.closes.closing_async(AsyncConsumer(bootstrap, **options)) as consumer:
            consumer.events(self._noted(name))
            consumer.subscribe([topic], listener=_Assigned(expected))
            while not self._over.is_set():
                try:
                    records = await consumer.poll(0.2)
                    self._ledger.note(name, expected, records)
                    if records:
                        positions = dict(expected)
                        await consumer.commit()
                        self._ledger.was_committed(positions)
                except KprotoError as error:
                    self._raised(name, error)

    def _handling(self, bootstrap: str, topic: str, name: str, options: dict[str, Any]) -> None:
        with self.closes.closing(ConsumerGroup(bootstrap, **options)) as group:
            listening = threading.Thread(target=self._listen, args=(name, group))
            listening.start()
            ending = threading.Thread(target=lambda: self._over.wait() and group.close(CLOSE_S))
            ending.start()
            while not self._over.is_set():
                try:
                    group.consume([topic], _Numbers(self._ledger, name))
                except KprotoError as error:
                    if not self._over.is_set():
                        self._raised(name, error)
            ending.join()
            listening.join()

    def _listen(self, name: str, group: ConsumerGroup) -> None:
        for error in group.errors():
            self._ledger.errors.append(f"{name}: {type(error).__name__}: {error}")

    def _handling_async(self, bootstrap: str, topic: str, name: str, options: dict[str, Any]) -> None:
        asyncio.run(self._handle(bootstrap, topic, name, options))

    async def _handle(self, bootstrap: str, topic: str, name: str, options: dict[str, Any]) -> None:
        async with self.closes.closing_async(AsyncConsumerGroup(bootstrap, **options)) as group:

            async def listen() -> None:
                async for error in group.errors():
                    self._ledger.errors.append(f"{name}: {type(error).__name__}: {error}")

            async def end() -> None:
                while not self._over.is_set():
                    await asyncio.sleep(0.1)
                await group.close(CLOSE_S)

            beside = [asyncio.create_task(listen()), asyncio.create_task(end())]
            while not self._over.is_set():
                try:
                    await group.consume([topic], _AsyncNumbers(self._ledger, name))
                except KprotoError as error:
                    if not self._over.is_set():
                        self._raised(name, error)
            await asyncio.gather(*beside)


class Asker(InThread):
    """Sends requests about one topic and one group every half second.

    `kind` is "blocking" or "asyncio", the kind of the client.

    `refused` lists the errors of requests that found no available broker.
    """

    def __init__(self, bootstrap: str, topic: str, group: str, kind: str) -> None:
        super().__init__()
        self.answered = 0
        self.refused: list[str] = []
        self.longest = 0.0
        self._bootstrap, self._topic, self._group, self._kind = bootstrap, topic, group, kind

    def _work(self) -> None:
        asyncio.run(self._ask_async()) if self._kind == "asyncio" else self._ask()

    def _ask(self) -> None:
        with Admin(self._bootstrap, timeout=ASKED_S) as cluster:
            while not self._over.wait(0.5):
                began = time.monotonic()
                try:
                    partitions = cluster.partitions(self._topic)
                    committed = cluster.committed_offsets(self._group, partitions)
                    ends = cluster.list_offsets(dict.fromkeys(partitions, "latest"))
                    members = cluster.group(self._group).members
                    cluster.list_groups()
                except ConnectionFailed as error:
                    self.refused.append(str(error))
                else:
                    if _ends_before(committed, ends):
                        ends = cluster.list_offsets(dict.fromkeys(partitions, "latest"))
                    self._look(began, committed, ends, members)

    async def _ask_async(self) -> None:
        async with AsyncAdmin(self._bootstrap, timeout=ASKED_S) as cluster:
            while not self._over.is_set():
                began = time.monotonic()
                try:
                    partitions = await cluster.partitions(self._topic)
                    committed = await cluster.committed_offsets(self._group, partitions)
                    ends, group, _ = await asyncio.gather(
                        cluster.list_offsets(dict.fromkeys(partitions, "latest")),
                        cluster.group(self._group),
                        cluster.list_groups(),
                    )
                except ConnectionFailed as error:
                    self.refused.append(str(error))
                else:
                    if _ends_before(committed, ends):
                        ends = await cluster.list_offsets(dict.fromkeys(partitions, "latest"))
                    self._look(began, committed, ends, group.members)
                await asyncio.sleep(0.5)

    def _look(self, began: float, committed: Any, ends: Any, members: Any) -> None:
        self.longest = max(self.longest, time.monotonic() - began)
        self.answered += 1
        self.errors += _ends_before(committed, ends)
        if not members:
            self.errors.append(f"the group {self._group!r} has no members")


def _ends_before(committed: Any, ends: Any) -> list[str]:
    """Return a line for each partition whose committed offset is above the end of its log.

    A leader that resumes after a freeze may return its old end offset once. The caller lists the offsets
    again before it reports an error.
    """
    return [
        f"{partition}: {at.offset} is committed, but the end is {ends[partition].offset}"
        for partition, at in committed.items()
        if at is not None and at.offset > ends[partition].offset
    ]
